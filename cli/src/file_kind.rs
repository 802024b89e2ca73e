//! Detection of the kind of a file that a command cannot read. The error names the command for this kind.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use trace::{Compression, DETECT_BYTES, Detection, Format, detect};

/// Largest number of examined bytes of a file. It limits memory; scenarios and configurations have some kilobytes.
const LOOK_BYTES: u64 = 1 << 20;

/// First bytes of disk images: qcow2, VMDK, VHDX, VHD.
const IMAGES: [&[u8]; 4] = [b"QFI\xfb", b"KDMV", b"vhdxfile", b"conectix"];

/// Kind of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileKind {
    /// Input of `terrace sim run`.
    Scenario,
    /// Input of `terrace sim sweep`.
    Sweep,
    /// Input of `terrace serve`.
    LiveConfiguration,
    /// Recorded requests.
    Trace,
    /// JSON output of fio, the input of `terrace device calibrate`.
    FioOutput,
    /// Disk image in a format of QEMU.
    DiskImage,
    /// Binary data of an unknown kind.
    Binary,
    /// JSON output of a command, with its schema.
    Output(String),
    /// Directory instead of a file.
    Directory,
}

impl FileKind {
    fn of(path: &Path) -> Option<Self> {
        if path.is_dir() {
            return Some(FileKind::Directory);
        }
        let mut bytes = vec![];
        let file = File::open(path).ok()?;
        file.take(LOOK_BYTES).read_to_end(&mut bytes).ok()?;
        if Compression::detect(&bytes) != Compression::None {
            return Some(FileKind::Trace);
        }
        if IMAGES.iter().any(|magic| bytes.starts_with(magic)) {
            return Some(FileKind::DiskImage);
        }
        let is_text = std::str::from_utf8(&bytes).is_ok();
        if let Ok(text) = std::str::from_utf8(&bytes) {
            if text.trim_start().starts_with('{') {
                return schema(text).map(FileKind::Output);
            }
            if let Some(kind) = of_toml(text) {
                return Some(kind);
            }
        }
        let first = &bytes[..bytes.len().min(DETECT_BYTES)];
        match detect(first, &path.display().to_string()) {
            // Rows without a header may have any content.
            Detection::Assumed {
                format: Format::Csv,
                ..
            }
            | Detection::Unknown { .. } => (!is_text).then_some(FileKind::Binary),
            Detection::Known(_) | Detection::Assumed { .. } | Detection::Ambiguous(_) => {
                Some(FileKind::Trace)
            }
        }
    }

    fn name(&self) -> String {
        match self {
            FileKind::Scenario => "a scenario".into(),
            FileKind::Sweep => "a sweep".into(),
            FileKind::LiveConfiguration => "a configuration of the controller".into(),
            FileKind::Trace => "a trace".into(),
            FileKind::FioOutput => "output of `fio --output-format=json`".into(),
            FileKind::DiskImage => "a disk image".into(),
            FileKind::Binary => "a binary file".into(),
            FileKind::Output(schema) => format!("output of terrace ({schema})"),
            FileKind::Directory => "a directory".into(),
        }
    }

    /// Returns the commands for the file.
    fn remedy(&self, file: &str) -> String {
        match self {
            FileKind::Scenario => format!("`terrace sim run {file}` runs it"),
            FileKind::Sweep => format!("`terrace sim sweep {file}` runs it"),
            FileKind::LiveConfiguration => format!(
                "`terrace serve --config {file}` runs it, `terrace config check {file}` checks it"
            ),
            FileKind::Trace => format!(
                "`terrace trace info {file}` describes it, `terrace sim cache {file}` simulates caches, and \
                 a scenario names it in [[traces]]"
            ),
            FileKind::DiskImage => {
                format!("`terrace volume import NAME {file}` imports it as a volume")
            }
            FileKind::FioOutput => format!("`terrace device calibrate {file}` reads it"),
            FileKind::Binary => "name another file".into(),
            FileKind::Output(schema) if schema.starts_with("terrace.recording/") => {
                format!("`terrace sim replay {file}` replays it")
            }
            FileKind::Output(schema) if schema.starts_with("terrace.reproduce.") => {
                format!("`terrace reproduce summary {file}` summarizes it")
            }
            FileKind::Output(_) => {
                "name the input file of that command instead; `terrace why --run DIR` reads the record of a run"
                    .into()
            }
            FileKind::Directory => "name a file in this directory".into(),
        }
    }
}

/// Adds the kind of the file and its command to an error, unless the kind is one of `expected`.
pub fn with_kind(path: &Path, expected: &[FileKind], error: anyhow::Error) -> anyhow::Error {
    let kind = FileKind::of(path).filter(|kind| !expected.contains(kind));
    let Some((kind, wanted)) = kind.zip(expected.first()) else {
        return error;
    };
    let file = path.display().to_string();
    anyhow::anyhow!(
        "{file} is {}, not {}: {}",
        kind.name(),
        wanted.name(),
        kind.remedy(&file)
    )
}

/// Returns true if a text may be a live configuration: it has no key that only scenarios have, such as `volumes`.
pub fn is_live(text: &str) -> bool {
    let (scenario, live) = (sim::scenario_schema(), agent::config_schema());
    let keys = config::root_keys(text);
    !keys.iter().any(|k| has(&scenario, k) && !has(&live, k))
}

fn has(schema: &serde_json::Value, key: &str) -> bool {
    schema["properties"].get(key).is_some()
}

/// Detects the kind by keys that only files of one kind have.
fn of_toml(text: &str) -> Option<FileKind> {
    let keys = config::root_keys(text);
    if keys.iter().any(|key| key == "scenario") {
        return Some(FileKind::Sweep);
    }
    if !is_live(text) {
        return Some(FileKind::Scenario);
    }
    let (scenario, live) = (sim::scenario_schema(), agent::config_schema());
    let only_live = |key: &String| has(&live, key) && !has(&scenario, key);
    keys.iter()
        .any(only_live)
        .then_some(FileKind::LiveConfiguration)
}

/// Returns the schema name in JSON output of this program.
fn schema(text: &str) -> Option<String> {
    let behind = text.split_once("\"schema\"")?.1;
    let value = behind.trim_start().strip_prefix(':')?.trim_start();
    let value = value.strip_prefix('"')?.split_once('"')?.0;
    value.starts_with("terrace.").then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_files_are_distinguished_from_live_configurations() {
        for text in [
            "",
            "strategy = \"idt\"\nwindow = \"5s\"",
            "[controller]\nstate = \"s\"",
            "[[tiers]]\nname = \"fast\"\n[policy]\nhold = 1",
            // An unknown key is a fault of a live configuration.
            "volums = 1",
            // Text that is not TOML is one too.
            "strategy =",
        ] {
            assert!(is_live(text), "{text}");
        }
        for text in [
            "[[volumes]]\nname = \"a\"",
            "[[traces]]\nfile = \"a\"",
            "[[clients]]\nvolume = \"a\"",
            "[[measurements]]\nfile = \"a\"",
            "duration = \"1m\"\n[[tiers]]\nname = \"fast\"",
        ] {
            assert!(!is_live(text), "{text}");
        }
    }

    #[test]
    fn file_of_another_kind_names_its_command() {
        let dir = tempfile::tempdir().unwrap();
        let cases: [(&str, &[u8], &str); 6] = [
            ("s.toml", b"[[volumes]]\nname = \"a\"", "`terrace sim run "),
            ("w.toml", b"scenario = \"s.toml\"", "`terrace sim sweep "),
            (
                "l.toml",
                b"[controller]\nstate = \"s\"",
                "`terrace serve --config ",
            ),
            (
                "t.csv",
                b"0,20941264,8192,W,0.551706\n",
                "`terrace trace info ",
            ),
            (
                "r.json",
                b"{\n \"schema\": \"terrace.sim.run/1\"}",
                "(terrace.sim.run/1)",
            ),
            (
                "c.json",
                b"{\"schema\":\"terrace.recording/1\"}",
                "`terrace sim replay ",
            ),
        ];
        for (name, bytes, says) in cases {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let error = with_kind(&path, &[FileKind::Directory], anyhow::anyhow!("bad"));
            assert!(error.to_string().contains(says), "{error}");
            let kind = FileKind::of(&path).unwrap();
            let error = with_kind(&path, &[kind], anyhow::anyhow!("bad"));
            assert_eq!(error.to_string(), "bad");
        }
        for (bytes, kind) in [
            (&b"QFI\xfb\0\0\0\x03"[..], FileKind::DiskImage),
            (b"\xff\xfe\0\x01\x80", FileKind::Binary),
        ] {
            let path = dir.path().join("binary");
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(FileKind::of(&path), Some(kind));
        }
        let path = dir.path().join("x");
        std::fs::write(&path, "volums = 1").unwrap();
        assert_eq!(FileKind::of(&path), None);
    }
}
