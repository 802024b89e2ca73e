//! Places of the copies of a map.

use std::fmt::Debug;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::statvfs;
use units::Bytes;

use crate::create::sync_dir;
use crate::{Array, ArrayError, ArrayId};

/// Place of a copy of a map.
pub trait CopyPlace: Send + Sync + Debug {
    /// Returns its name for messages.
    fn name(&self) -> String;

    /// Opens the copy read-only and verifies all pages and records.
    ///
    /// # Errors
    /// [`ArrayError::Missing`] if the copy does not exist, [`ArrayError::Damaged`], and other
    /// errors of reading.
    fn look(&self) -> Result<Array, ArrayError>;

    /// Opens a copy for changes, without verifying its pages.
    ///
    /// # Errors
    /// Those of [`CopyPlace::look`], except for damage that only a verification finds.
    fn open(&self) -> Result<Array, ArrayError>;

    /// Returns the identity of the present file, to detect that it was replaced.
    fn identity(&self) -> Identity {
        Identity::Unknown
    }

    /// Verifies that a new map of this size fits.
    ///
    /// # Errors
    /// [`ArrayError::NoSpace`].
    fn check_space(&self, _: Bytes) -> Result<(), ArrayError> {
        Ok(())
    }

    /// Creates a new map next to the existing one, if the place allows it.
    ///
    /// # Errors
    /// [`ArrayError`].
    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<NewMap, ArrayError>;
}

/// New map that is not in its place yet.
pub struct NewMap {
    pub array: Array,
    /// Moves the new map to its place and replaces the old one.
    pub put: Box<dyn FnOnce() -> Result<(), ArrayError> + Send>,
}

/// Identity of the file in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The identity is unknown.
    Unknown,
    /// No file exists.
    Missing,
    /// File, by device and inode.
    File(u64, u64),
}

/// Place of a copy in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlace(pub PathBuf);

/// Infix of the names of new maps that are not in their place yet. No other program uses such names.
const FRESH: &str = ".terrace-new-";

impl FilePlace {
    fn dir(&self) -> &Path {
        let dir = self.0.parent().filter(|d| *d != Path::new(""));
        dir.unwrap_or(Path::new("."))
    }

    /// Returns a name that no other attempt has, not even one that hangs.
    fn fresh(&self) -> PathBuf {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = self.fresh_prefix();
        self.0
            .with_file_name(format!("{prefix}{}-{number}", std::process::id()))
    }

    fn fresh_prefix(&self) -> String {
        let name = self.0.file_name().unwrap_or_default().to_string_lossy();
        format!(".{name}{FRESH}")
    }

    /// Removes files of unfinished attempts. An attempt that is still running fails when it moves its file to its
    /// place.
    pub fn tidy(&self) {
        let prefix = self.fresh_prefix();
        let Ok(entries) = std::fs::read_dir(self.dir()) else {
            return; // a later attempt to create a file reports the error
        };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

impl CopyPlace for FilePlace {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn look(&self) -> Result<Array, ArrayError> {
        Array::look_at(&self.0)
    }

    fn open(&self) -> Result<Array, ArrayError> {
        Array::open_file(&self.0)
    }

    fn identity(&self) -> Identity {
        match std::fs::metadata(&self.0) {
            Ok(meta) => Identity::File(meta.dev(), meta.ino()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Identity::Missing,
            Err(_) => Identity::Unknown,
        }
    }

    fn check_space(&self, needed: Bytes) -> Result<(), ArrayError> {
        self.tidy();
        let stat = statvfs(self.dir());
        let stat = stat.map_err(|e| ArrayError::io("inspect", self.dir())(e.into()))?;
        match stat.f_bavail.saturating_mul(stat.f_frsize) < needed.0 {
            true => Err(ArrayError::NoSpace {
                place: self.name(),
                needed,
            }),
            false => Ok(()),
        }
    }

    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<NewMap, ArrayError> {
        self.tidy();
        let (fresh, place) = (self.fresh(), self.clone());
        let array = Array::create_file(&fresh, id, extent)?;
        let put = move || {
            std::fs::rename(fresh, &place.0).map_err(ArrayError::io("replace", &place.0))?;
            sync_dir(place.dir())
        };
        let put = Box::new(put);
        Ok(NewMap { array, put })
    }
}
