//! Home of an owner: the id of an array directory. A copy of the directory has another id.
//!
//! The id is random. A file in the directory stores it with the identity of the directory: the
//! machine id, and the number and birth time of the inode. If the stored identity does not match,
//! the directory is a copy or was moved to another file system, and gets a new id.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Name of the file in the array directory.
const FILE: &str = "remote-owner";

/// Returns the id of an array directory. If the id cannot be stored, each start has a new one,
/// which owns nothing.
pub(super) fn home_of(dir: &Path) -> u128 {
    let place = place_of(dir);
    let file = dir.join(FILE);
    let kept = fs::read_to_string(&file).ok();
    let kept = kept
        .as_deref()
        .and_then(|text| text.trim_end().split_once(' '));
    if let Some((id, _)) = kept.filter(|(_, there)| *there == place)
        && let Ok(id) = u128::from_str_radix(id, 16)
    {
        return id;
    }
    let id = super::random();
    // Written under another name first: a partial file would make the directory look like a copy.
    let new = dir.join(format!("{FILE}.new"));
    let written = fs::File::create(&new).and_then(|mut f| {
        writeln!(f, "{id:032x} {place}")?;
        f.sync_all()
    });
    if let Err(why) = written.and_then(|()| fs::rename(&new, &file)) {
        let path = file.display().to_string();
        tracing::warn!(path, %why, "cannot store the id of the array directory: after a crash its remote tiers need --force-remote");
    }
    id
}

/// Returns the identity of a directory, which differs from that of its copies.
fn place_of(dir: &Path) -> String {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let meta = fs::metadata(dir);
    let inode = meta.as_ref().map_or(0, |m| m.ino());
    let born = meta.and_then(|m| m.created()).ok();
    let born = born.and_then(|b| b.duration_since(UNIX_EPOCH).ok());
    let born_ns = born.map_or(0, |b| b.as_nanos());
    format!("{}/{inode}/{born_ns}", machine.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_of_a_copied_directory_differs() {
        let dir = tempfile::tempdir().unwrap();
        let (first, copy) = (dir.path().join("first"), dir.path().join("copy"));
        fs::create_dir(&first).unwrap();
        let home = home_of(&first);
        assert_eq!(home_of(&first), home);
        fs::create_dir(&copy).unwrap();
        fs::copy(first.join(FILE), copy.join(FILE)).unwrap();
        let other = home_of(&copy);
        assert_ne!(other, home);
        assert_eq!(home_of(&copy), other);
        // A renamed directory keeps its home.
        fs::rename(&first, dir.path().join("second")).unwrap();
        assert_eq!(home_of(&dir.path().join("second")), home);
    }
}
