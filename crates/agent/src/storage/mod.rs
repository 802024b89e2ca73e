//! Kinds of storage: how the images of each are created, recognised, renamed and removed.
//!
//! ```text
//!   path ─▶ of ─┬─▶ Lvm     /dev/GROUP/NAME
//!               ├─▶ Zfs     /dev/zvol/DATASET/NAME
//!               └─▶ Files   all others
//! ```
//!
//! A kind is a file here and a line in [`of`]. A name alone is never enough to remove anything: the
//! identity must be the recorded one, and nobody may use the image or depend on it.

mod files;
mod lvm;
mod programs;
mod volumes;
mod zfs;

use vmhost::moving::ImageId;
use vmhost::stored::Storage;

use files::Files;
pub(crate) use files::{id_of, is_gone, may_be_there, rename_durably, sync_directory, sync_parent};
pub(crate) use volumes::{space, volumes_of};

/// An image that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    pub id: ImageId,
    /// Its path, of several the one that changes with its name.
    pub path: String,
    /// Images that depend on it, such as snapshots.
    pub dependents: Vec<String>,
}

/// A kind of storage.
pub(crate) trait ImageStorage {
    /// Describes the image at a path; none if there is none, or none of this kind.
    ///
    /// # Errors
    /// It cannot be found out.
    fn describe(&self, path: &str) -> Result<Option<Described>, String>;

    /// Creates an image of this many bytes or some more where there is none, in a storage.
    ///
    /// # Errors
    /// The image exists, or cannot be created.
    fn create(&self, within: Option<&Storage>, path: &str, bytes: u64) -> Result<ImageId, String>;

    /// Renames an image, and never over another one. An image that has the new name already is no
    /// fault.
    ///
    /// # Errors
    /// The image at the path is another one, or has the old name still.
    fn rename(&self, id: Option<&ImageId>, from: &str, to: &str) -> Result<(), String>;

    /// Removes an image, durably. One that does not exist is no fault.
    ///
    /// # Errors
    /// The image at the path is another one, or something depends on it, or it exists still.
    fn remove(&self, id: &ImageId, path: &str) -> Result<(), String>;

    /// Bytes that are free for the image at a path; none where its space is reserved or unknown.
    fn free(&self, path: &str) -> Option<u64>;
}

/// The kind of storage of a path.
pub(crate) fn of(path: &str) -> &'static dyn ImageStorage {
    match path {
        p if p.starts_with("/dev/zvol/") => &zfs::Zfs,
        p if p.starts_with("/dev/") => &lvm::LVM,
        _ => &Files,
    }
}

/// Fault of an image that is not the recorded one.
fn is_another(path: &str) -> String {
    format!("another image has replaced {path}")
}

/// Fault of an image that others depend on.
fn has_dependents(path: &str, dependents: &[String]) -> String {
    format!("{path} has {}: remove them first", dependents.join(", "))
}
