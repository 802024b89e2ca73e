//! Image files: identity, creation, renaming, removal.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use vmhost::moving::{FileId, ImageId};
use vmhost::stored::Storage;

use super::{ImageDescription, ImageStorage, is_another};
use crate::error::{Result, file_error, system_error};
use crate::kernel;

/// Storage of image files in directories.
pub(crate) struct Files;

impl ImageStorage for Files {
    fn describe(&self, path: &str) -> Result<Option<ImageDescription>> {
        match fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(ImageDescription {
                id: id_of(&found).into(),
                path: path.into(),
                dependents: vec![],
            })),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(file_error("cannot inspect", path)(e)),
        }
    }

    /// Creates an empty file, whose size depends on the format of the image.
    fn create(&self, _: Option<&Storage>, path: &str, _: u64) -> Result<ImageId> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let made = options.open(path).and_then(|f| f.metadata());
        let made = made.map_err(file_error("cannot create", path))?;
        Ok(id_of(&made).into())
    }

    fn rename(&self, _: Option<&ImageId>, from: &str, to: &str) -> Result<()> {
        rename_durably(from, to)
    }

    fn remove(&self, id: &ImageId, path: &str) -> Result<()> {
        match self.describe(path)? {
            None => Ok(()),
            Some(there) if there.id != *id => Err(is_another(path)),
            Some(_) => {
                fs::remove_file(path).map_err(file_error("cannot remove", path))?;
                sync_parent(Path::new(path))
            }
        }
    }

    fn free(&self, path: &str) -> Option<u64> {
        let system = kernel::file_system(Path::new(path).parent()?).ok()?;
        Some(system.size.saturating_sub(system.used))
    }
}

/// Returns false if no file has this path; true if one exists or its existence cannot be determined.
pub(crate) fn may_be_there(path: &str) -> bool {
    let looked = fs::symlink_metadata(path);
    !looked.is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Returns true if the file was removed, and false if its file system is not mounted.
pub(crate) fn is_gone(path: &str, file: Option<FileId>) -> bool {
    let dir = Path::new(path).parent().and_then(|d| fs::metadata(d).ok());
    let mounted = dir.is_some_and(|d| file.is_none_or(|f| f.device == d.dev()));
    mounted && !may_be_there(path)
}

/// Returns the identity of a file from its metadata.
pub(crate) fn id_of(found: &fs::Metadata) -> FileId {
    FileId {
        device: found.dev(),
        inode: found.ino(),
    }
}

/// Renames a file, durably and without replacing another file.
///
/// # Errors
/// The file keeps the old name, or may have it again after a power loss.
pub(crate) fn rename_durably(from: &str, to: &str) -> Result<()> {
    let renamed = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Network file systems do not support this flag.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let linked = match fs::hard_link(from, to) {
                // An agent was killed between the two steps.
                Err(_) if kernel::same_file(Path::new(from), Path::new(to)) => Ok(()),
                other => other,
            };
            linked.and_then(|()| fs::remove_file(from))
        }
        other => other.map_err(std::io::Error::from),
    };
    renamed.map_err(system_error(format_args!("cannot rename {from} to {to}")))?;
    sync_parent(Path::new(from))
}

/// Makes the name of a file durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    sync_directory(dir).map_err(file_error("cannot flush", dir))
}

/// Makes names in a directory durable.
pub(crate) fn sync_directory(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}
