//! What a new tier can do, for the live manager: its configuration says that, not the array.
//!
//! The lines are appended to the file as text, so that its comments and its order stay; what comes out is checked as
//! `terrace serve` would, before a device is touched.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use manager::settings::{ManagerConfig, Settings};
use model::DevicePreset;

/// A description of a tier that is ready to be written, or to be shown.
pub struct Description {
    lines: String,
    file: Option<File>,
}

/// A live configuration, before and after.
struct File {
    path: PathBuf,
    before: String,
    /// None if it describes the tier already.
    after: Option<String>,
}

impl Description {
    /// Checks that a tier can be described as a preset, in a configuration if one is given. Nothing is written.
    pub fn of(tier: &str, preset: &DevicePreset, config: Option<&Path>) -> anyhow::Result<Self> {
        // A string of JSON is one of TOML.
        let name = serde_json::to_string(tier)?;
        let lines = format!("[[tiers]]\nname = {name}\npreset = \"{}\"\n", preset.name);
        let file = config.map(|path| File::with(path, tier, preset, &lines));
        let file = file.transpose()?;
        Ok(Self { lines, file })
    }

    /// Writes it; what a person should know then.
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
        // A link stays one.
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

    /// In one step: whoever reads it meanwhile reads all of the old or all of the new.
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
    fn lines_are_appended_and_everything_else_stays() {
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
        // Again is nothing new; as something else it is refused.
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
    fn what_cannot_be_appended_is_refused_before_anything_is_done() {
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
    fn a_file_that_was_changed_meanwhile_is_left_alone() {
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
