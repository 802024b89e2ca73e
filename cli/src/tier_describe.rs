//! Description of a new tier for the live manager. The configuration of the manager has the description, not the array.
//!
//! The lines are appended to the file as text, which keeps its comments and its order. The new text is checked as `terrace serve` does,
//! before any device is changed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use manager::settings::{ManagerConfig, Settings};
use model::DevicePreset;

/// Checked description of a tier, which can be written or shown.
pub struct Description {
    lines: String,
    file: Option<File>,
}

/// Live configuration before and after the change.
struct File {
    path: PathBuf,
    before: String,
    /// New text; `None` if the file already describes the tier.
    after: Option<String>,
}

impl Description {
    /// Checks that a tier can be described as a preset, in a configuration if one is given. Nothing is written.
    pub fn of(tier: &str, preset: &DevicePreset, config: Option<&Path>) -> anyhow::Result<Self> {
        // A JSON string is also a TOML string.
        let name = serde_json::to_string(tier)?;
        let lines = format!("[[tiers]]\nname = {name}\npreset = \"{}\"\n", preset.name);
        let file = config.map(|path| File::with(path, tier, preset, &lines));
        let file = file.transpose()?;
        Ok(Self { lines, file })
    }

    /// Writes the description. Returns a message for the user.
    pub fn write(self) -> anyhow::Result<String> {
        let Some(file) = self.file else {
            return Ok(format!(
                "for the controller, add this to its configuration (--config FILE does that), then `terrace reload`:\n\n{}",
                self.lines
            ));
        };
        let path = file.path.display().to_string();
        let Some(after) = &file.after else {
            return Ok(format!("{path} already has this description of the tier"));
        };
        let written = file.replace(after);
        written.with_context(|| {
            format!(
                "added the device, but could not change {path}; add these lines to it:\n\n{}",
                self.lines
            )
        })?;
        Ok(format!(
            "added the tier to {path}; run `terrace reload` to use it now, otherwise the next start does"
        ))
    }
}

impl File {
    fn with(path: &Path, tier: &str, preset: &DevicePreset, lines: &str) -> anyhow::Result<Self> {
        // The target of a link is replaced, not the link.
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot read {}", path.display()))?;
        let shown = path.display().to_string();
        let before = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let settings = settings(&shown, &before)?;
        if let Some(there) = settings.tiers.get(tier) {
            ensure!(
                there.spec == preset.spec(),
                "{shown} already describes tier {tier:?}, but not as {}: change it there, or leave --config out",
                preset.name
            );
            return Ok(Self {
                path,
                before,
                after: None,
            });
        }
        let gap = if before.ends_with('\n') { "\n" } else { "\n\n" };
        let after = format!("{before}{gap}{lines}");
        let described = self::settings(&shown, &after).with_context(|| {
            format!("cannot append to {shown}; add these lines to it by hand:\n\n{lines}")
        })?;
        let spec = described.tiers.get(tier).map(|t| &t.spec);
        assert_eq!(spec, Some(&preset.spec()), "it is what was written");
        Ok(Self {
            path,
            before,
            after: Some(after),
        })
    }

    /// Replaces the file atomically: a concurrent reader gets the complete old or the complete new text.
    fn replace(&self, after: &str) -> anyhow::Result<()> {
        if fs::read_to_string(&self.path)? != self.before {
            bail!("another program has changed the file in the meantime");
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".tmp");
        let new = PathBuf::from(name);
        let written = (|| {
            let mut file = fs::File::create(&new)?;
            file.set_permissions(fs::metadata(&self.path)?.permissions())?;
            file.write_all(after.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        Ok(written?)
    }
}

fn settings(name: &str, text: &str) -> anyhow::Result<Settings> {
    let (words, text) = config::read::<ManagerConfig>(name, text)?;
    Ok(Settings::new(text, words)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> &'static DevicePreset {
        model::preset(name).unwrap()
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live.toml");
        fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn tier_description_is_appended_and_other_lines_are_unchanged() {
        let before = "# ours\nwindow = \"10s\" # as ever\n[modes]\nlatency = \"auto\"";
        let (dir, path) = file(before);
        let add = |tier: &str, name: &str| {
            Description::of(tier, preset(name), Some(&path)).and_then(Description::write)
        };
        assert!(
            add("fast", "nvme-tlc")
                .unwrap()
                .contains("`terrace reload`")
        );
        let after = fs::read_to_string(&path).unwrap();
        assert_eq!(
            after,
            format!("{before}\n\n[[tiers]]\nname = \"fast\"\npreset = \"nvme-tlc\"\n")
        );
        add("a \"b\"", "nvme-qlc").unwrap();
        let after = fs::read_to_string(&path).unwrap();
        let settings = settings("live.toml", &after).unwrap();
        let known: Vec<&str> = settings.tiers.keys().map(String::as_str).collect();
        assert_eq!(known, ["a \"b\"", "fast"]);
        // The same description changes nothing; a different one is refused.
        assert!(
            add("fast", "nvme-tlc")
                .unwrap()
                .ends_with("already has this description of the tier")
        );
        let refused = add("fast", "nvme-qlc").unwrap_err().to_string();
        assert!(refused.contains("already describes tier \"fast\", but not as nvme-qlc"));
        assert_eq!(fs::read_to_string(&path).unwrap(), after);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn invalid_file_is_refused_before_the_tier_is_added() {
        for text in ["tiers = []", "window = \"1 parsec\""] {
            let (_dir, path) = file(text);
            assert!(
                Description::of("fast", preset("nvme-tlc"), Some(&path)).is_err(),
                "{text}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let nowhere = Description::of("fast", preset("nvme-tlc"), Some(Path::new("/nowhere.toml")));
        assert!(nowhere.is_err());
    }

    #[test]
    fn file_changed_since_it_was_read_is_not_overwritten() {
        let (_dir, path) = file("");
        let ready = Description::of("fast", preset("nvme-tlc"), Some(&path)).unwrap();
        fs::write(&path, "window = \"5s\"\n").unwrap();
        let refused = format!("{:#}", ready.write().unwrap_err());
        assert!(
            refused.contains("preset = \"nvme-tlc\"") && refused.ends_with("meantime"),
            "{refused}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "window = \"5s\"\n");
    }
}
