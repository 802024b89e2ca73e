//! Files of images: which one it is, and what is done to its name.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use vmhost::moving::{FileId, ImageId};
use vmhost::stored::Storage;

use super::{Described, ImageStorage, is_another};
use crate::kernel;

/// Files in directories.
pub(crate) struct Files;

impl ImageStorage for Files {
    fn describe(&self, path: &str) -> Result<Option<Described>, String> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(Described {
                id: id_of(&found).into(),
                path: path.into(),
                dependents: vec![],
            })),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("cannot inspect {path}: {e}")),
        }
    }

    /// An empty file: what it gets depends on the format of the image.
    fn create(&self, _: Option<&Storage>, path: &str, _: u64) -> Result<ImageId, String> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let made = options.open(path).and_then(|f| f.metadata());
        let made = made.map_err(|e| format!("cannot create {path}: {e}"))?;
        Ok(id_of(&made).into())
    }

    fn rename(&self, _: Option<&ImageId>, from: &str, to: &str) -> Result<(), String> {
        rename_durably(from, to)
    }

    fn remove(&self, id: &ImageId, path: &str) -> Result<(), String> {
        match self.describe(path)? {
            None => Ok(()),
            Some(there) if there.id != *id => Err(is_another(path)),
            Some(_) => {
                fs::remove_file(path).map_err(|e| format!("cannot remove {path}: {e}"))?;
                sync_parent(Path::new(path))
            }
        }
    }

    fn free(&self, path: &str) -> Option<u64> {
        let system = kernel::file_system(Path::new(path).parent()?).ok()?;
        Some(system.size.saturating_sub(system.used))
    }
}

/// Returns false if no file has this path; true if one has it or that cannot be found out.
pub(crate) fn may_be_there(path: &str) -> bool {
    let looked = fs::symlink_metadata(path);
    !looked.is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Returns true if a file was removed, and false if its file system is missing.
pub(crate) fn is_gone(path: &str, file: Option<FileId>) -> bool {
    let dir = Path::new(path).parent().and_then(|d| fs::metadata(d).ok());
    let mounted = dir.is_some_and(|d| file.is_none_or(|f| f.device == d.dev()));
    mounted && !may_be_there(path)
}

/// Which file it is that was looked at.
pub(crate) fn id_of(found: &fs::Metadata) -> FileId {
    FileId {
        device: found.dev(),
        inode: found.ino(),
    }
}

/// Gives a file another name, durably; never over another file.
///
/// # Errors
/// Why it has the old one, or may have it again after a power loss.
pub(crate) fn rename_durably(from: &str, to: &str) -> Result<(), String> {
    let renamed = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Network file systems know no such rename.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let linked = match fs::hard_link(from, to) {
                // Somebody was killed in between.
                Err(_) if kernel::same_file(Path::new(from), Path::new(to)) => Ok(()),
                other => other,
            };
            linked.and_then(|()| fs::remove_file(from))
        }
        other => other.map_err(Into::into),
    };
    renamed.map_err(|e| format!("cannot rename {from} to {to}: {e}"))?;
    sync_parent(Path::new(from))
}

/// Makes the name of a file durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), String> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    sync_directory(dir).map_err(|e| format!("cannot flush {}: {e}", dir.display()))
}

/// Makes names in a directory durable.
pub(crate) fn sync_directory(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}
