//! Kinds of storage: how the images of each are created, recognised, renamed and removed.
//!
//! ```text
//!   path ─▶ of ─┬─▶ Lvm     /dev/GROUP/NAME
//!               ├─▶ Zfs     /dev/zvol/DATASET/NAME
//!               └─▶ Files   all others
//! ```
//!
//! A kind is a file here and a line in [`of`]. An image is never removed by its name alone: its identity must be the
//! recorded one, and no program or image may use it.

mod files;
mod lvm;
mod programs;
mod volumes;
mod zfs;

use vmhost::moving::ImageId;
use vmhost::stored::Storage;

use crate::error::{AgentError, Result};
use files::Files;
pub(crate) use files::{id_of, is_gone, may_be_there, rename_durably, sync_directory, sync_parent};
pub(crate) use volumes::{space, volumes_of};

/// Image that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageDescription {
    pub id: ImageId,
    /// Path of the image; if it has several, the one that changes with its name.
    pub path: String,
    /// Images that depend on it, such as snapshots.
    pub dependents: Vec<String>,
}

/// Kind of storage.
pub(crate) trait ImageStorage {
    /// Describes the image at a path; `None` if there is no image of this kind.
    ///
    /// # Errors
    /// The image cannot be inspected.
    fn describe(&self, path: &str) -> Result<Option<ImageDescription>>;

    /// Creates an image of at least this many bytes in a storage, at an unused path.
    ///
    /// # Errors
    /// The image exists, or cannot be created.
    fn create(&self, within: Option<&Storage>, path: &str, bytes: u64) -> Result<ImageId>;

    /// Renames an image, never over another one. An image that already has the new name is not an error.
    ///
    /// # Errors
    /// The image at the path is another one, or still has the old name.
    fn rename(&self, id: Option<&ImageId>, from: &str, to: &str) -> Result<()>;

    /// Removes an image, durably. A missing image is not an error.
    ///
    /// # Errors
    /// The image at the path is another one, has dependents, or still exists.
    fn remove(&self, id: &ImageId, path: &str) -> Result<()>;

    /// Returns the free bytes for the image at a path; `None` if its space is reserved or unknown.
    fn free(&self, path: &str) -> Option<u64>;
}

/// Returns the kind of storage of a path.
pub(crate) fn of(path: &str) -> &'static dyn ImageStorage {
    match path {
        p if p.starts_with("/dev/zvol/") => &zfs::Zfs,
        p if p.starts_with("/dev/") => &lvm::LVM,
        _ => &Files,
    }
}

/// Returns the error for an image that is not the recorded one.
fn is_another(path: &str) -> AgentError {
    AgentError::Changed(format!("another image has replaced {path}"))
}

/// Returns the error for an image with dependents.
fn has_dependents(path: &str, dependents: &[String]) -> AgentError {
    AgentError::InUse(format!(
        "{path} has {}: remove them first",
        dependents.join(", ")
    ))
}

/// Returns the error for a new image whose path is occupied.
pub(crate) fn exists(path: &str) -> AgentError {
    AgentError::InUse(format!("{path} already exists"))
}
