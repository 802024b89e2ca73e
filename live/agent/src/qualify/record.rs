//! Records of qualifications: one file for each build-id and way of copying.
//!
//! Write access to a record is enough to allow copies that lose data. A record that others can write is therefore
//! refused. An unreadable record makes the build unknown and is not ignored.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vmhost::builds::{BuildId, CopyInitiator, Qualification};

use crate::error::{AgentError, Result, file_error, record_error};
use crate::moves::{read_kept, save_durably};

/// Format of records.
const FORM: u32 = 1;
/// Numbers of copies that a qualification needs on each storage: starts with proven writes in flight, and pivots.
pub const STARTS_NEEDED: u32 = 40;
pub const PIVOTS_NEEDED: u32 = 20;

/// Result of `terrace host qualify` for one build of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    form: u32,
    /// Build-id of the program, in hexadecimal digits.
    pub build_id: String,
    /// Version and package revision, as QEMU reports them.
    pub build: String,
    /// `libvirt` or `qemu`: program that ordered the copies.
    pub by: String,
    /// Seconds since 1970 at the end.
    pub at_unix_s: u64,
    pub storages: Vec<StorageCounts>,
}

/// Copies within one storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageCounts {
    /// Directory that the operator named.
    pub path: String,
    /// Starts with writes acknowledged between the order and the end of the copy.
    pub starts: u32,
    /// Starts with too few of such writes, which prove nothing.
    pub unproven: u32,
    pub pivots: u32,
    pub cancels: u32,
    pub kills: u32,
    /// Writes that QEMU acknowledged.
    pub writes: u64,
    /// Blocks without their acknowledged content, or with content that the test did not write.
    pub lost: u64,
    /// Other failures of copies, such as a crash of QEMU; the first reasons.
    pub faults: Vec<String>,
}

impl Record {
    pub(super) fn new(
        id: &BuildId,
        build: String,
        by: CopyInitiator,
        storages: Vec<StorageCounts>,
    ) -> Self {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
        Self {
            form: FORM,
            build_id: id.to_string(),
            build,
            by: word(by).into(),
            at_unix_s: since.map_or(0, |t| t.as_secs()),
            storages,
        }
    }

    /// Returns the result that follows from the counts.
    pub fn qualified(&self) -> Qualification {
        let is_bad = |s: &StorageCounts| s.lost > 0 || !s.faults.is_empty();
        let is_enough = |s: &StorageCounts| s.starts >= STARTS_NEEDED && s.pivots >= PIVOTS_NEEDED;
        if self.storages.iter().any(is_bad) {
            Qualification::Failed
        } else if !self.storages.is_empty() && self.storages.iter().all(is_enough) {
            Qualification::Passed
        } else {
            Qualification::Undecided
        }
    }
}

fn word(by: CopyInitiator) -> &'static str {
    match by {
        CopyInitiator::Us => "qemu",
        // Copies with a printed command are carried out by libvirt, too.
        CopyInitiator::Libvirt | CopyInitiator::Person => "libvirt",
    }
}

/// Returns the directory of records, `terrace-qualified`: in `$XDG_STATE_HOME`, else in `/var/lib` for root and `~/.local/state` for others.
/// It is not below the state of the service, which another user may own.
pub fn directory() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|path| path.is_absolute());
    let parent = match state {
        Some(state) => state,
        None if rustix::process::geteuid().is_root() => "/var/lib".into(),
        None => Path::new(&env::var_os("HOME")?).join(".local/state"),
    };
    Some(parent.join("terrace-qualified"))
}

fn file(dir: &Path, id: &str, by: &str) -> PathBuf {
    dir.join(format!("{id}.{by}.json"))
}

/// Returns the recorded result for a build; `None` without a record.
///
/// # Errors
/// The record cannot be read, or others can write it.
pub(crate) fn qualified(id: &BuildId, by: CopyInitiator) -> Result<Option<Qualification>> {
    match directory() {
        Some(dir) => Ok(read(&dir, &id.to_string(), word(by))?.map(|r| r.qualified())),
        None => Ok(None),
    }
}

fn read(dir: &Path, id: &str, by: &str) -> Result<Option<Record>> {
    const SO: &str = "it records a qualification of QEMU: repeat it, or remove the file";
    let path = file(dir, id, by);
    let found = match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.map_err(record_error(&path, SO))?,
    };
    let parent = fs::metadata(dir).map_err(record_error(&path, SO))?;
    let own = [0, rustix::process::geteuid().as_raw()];
    let is_safe = |m: &fs::Metadata| own.contains(&m.uid()) && m.mode() & 0o022 == 0;
    if !found.is_file() || !is_safe(&found) || !is_safe(&parent) {
        return Err(record_error(&path, SO)("other users can write it"));
    }
    let record: Record = read_kept(&path, FORM, SO)?;
    if (&*record.build_id, &*record.by) != (id, by) {
        return Err(record_error(&path, SO)("it is the record of another build"));
    }
    Ok(Some(record))
}

/// Writes a record. A failed record stays until an operator removes it. An undecided result replaces neither a passed
/// nor a failed record.
///
/// # Errors
/// The record cannot be written, or an earlier one stays.
pub(super) fn write(record: &Record) -> Result<PathBuf> {
    let none = || AgentError::Setting("no directory for the record: HOME is not set".into());
    let dir = directory().ok_or_else(none)?;
    write_in(&dir, record)
}

fn write_in(dir: &Path, record: &Record) -> Result<PathBuf> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o755).create(dir);
    made.map_err(file_error("cannot create", dir))?;
    let path = file(dir, &record.build_id, &record.by);
    let before = read(dir, &record.build_id, &record.by)?.map(|r| r.qualified());
    match (before, record.qualified()) {
        (Some(Qualification::Failed), Qualification::Passed | Qualification::Undecided) => {
            Err(AgentError::Refused(format!(
                "{} stays: an earlier qualification of this build failed; remove the file only if QEMU was not the cause",
                path.display()
            )))
        }
        (Some(Qualification::Passed), Qualification::Undecided) => {
            Err(AgentError::Refused(format!(
                "{} stays: an earlier qualification of this build passed, and this one was undecided",
                path.display()
            )))
        }
        _ => save_durably(&path, record).map(|()| path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(change: impl FnOnce(&mut StorageCounts)) -> Record {
        let mut counts = StorageCounts {
            path: "/a".into(),
            starts: 40,
            pivots: 20,
            ..StorageCounts::default()
        };
        change(&mut counts);
        let id = BuildId::of_text("00ff").unwrap();
        Record::new(&id, "10.0.13".into(), CopyInitiator::Libvirt, vec![counts])
    }

    #[test]
    fn result_follows_from_counts() {
        assert_eq!(record(|_| {}).qualified(), Qualification::Passed);
        for (record, expected) in [
            (record(|c| c.starts = 39), Qualification::Undecided),
            (record(|c| c.pivots = 19), Qualification::Undecided),
            (record(|c| c.lost = 1), Qualification::Failed),
            (
                record(|c| c.faults = vec!["crash".into()]),
                Qualification::Failed,
            ),
        ] {
            assert_eq!(record.qualified(), expected);
        }
        let mut two = record(|_| {});
        two.storages.push(StorageCounts::default());
        assert_eq!(two.qualified(), Qualification::Undecided);
        two.storages.clear();
        assert_eq!(two.qualified(), Qualification::Undecided);
    }

    #[test]
    fn failed_record_persists_until_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("qualified");
        let bad = record(|c| c.lost = 3);
        let path = write_in(&dir, &record(|_| {})).unwrap();
        let why = write_in(&dir, &record(|c| c.starts = 1)).unwrap_err();
        let why = why.to_string();
        assert!(why.contains("this one was undecided"), "{why}");
        write_in(&dir, &bad).unwrap();
        let why = write_in(&dir, &record(|_| {})).unwrap_err().to_string();
        assert!(why.contains("remove the file"), "{why}");
        assert_eq!(read(&dir, "00ff", "libvirt").unwrap(), Some(bad));
        fs::remove_file(&path).unwrap();
        assert_eq!(read(&dir, "00ff", "libvirt").unwrap(), None);
        write_in(&dir, &record(|_| {})).unwrap();
    }

    #[test]
    fn untrusted_record_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("qualified");
        let path = write_in(&dir, &record(|_| {})).unwrap();
        let why = |expected: &str| {
            let why = read(&dir, "00ff", "libvirt").unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        };
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("00ff", "11ff")).unwrap();
        why("another build");
        fs::write(&path, text.replace("\"lost\"", "\"gone\"")).unwrap();
        why("unknown field");
        fs::write(&path, text.replace("\"form\": 1", "\"form\": 2")).unwrap();
        why("format 2");
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        why("other users can write it");
    }
}
