//! Where copies of a map are.

use std::fmt::Debug;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::statvfs;
use units::Bytes;

use crate::create::sync_dir;
use crate::{Array, ArrayError, ArrayId};

/// Where a copy of a map is.
pub trait CopyPlace: Send + Sync + Debug {
    /// How it is called in messages.
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

    /// What is there now, to see whether it is still what was opened.
    fn identity(&self) -> Identity {
        Identity::Unknown
    }

    /// Fails if a new map of so many bytes has no space there.
    ///
    /// # Errors
    /// [`ArrayError::NoSpace`].
    fn check_space(&self, _: Bytes) -> Result<(), ArrayError> {
        Ok(())
    }

    /// Begins a new map there, aside of what is there if that can be.
    ///
    /// # Errors
    /// [`ArrayError`].
    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<Fresh, ArrayError>;
}

/// A new map that is not in its place yet.
pub struct Fresh {
    pub array: Array,
    /// Puts it in the place of what was there.
    pub put: Box<dyn FnOnce() -> Result<(), ArrayError> + Send>,
}

/// What is in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// That cannot be said.
    Unknown,
    /// Nothing.
    Missing,
    /// A file, by device and inode.
    File(u64, u64),
}

/// A copy in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlace(pub PathBuf);

/// What the names of maps end with that are not in their place yet. Nobody else gives a file such a name.
const FRESH: &str = ".terrace-new-";

impl FilePlace {
    fn dir(&self) -> &Path {
        let dir = self.0.parent().filter(|d| *d != Path::new(""));
        dir.unwrap_or(Path::new("."))
    }

    /// A name that no other attempt has, also one that hangs.
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

    /// Removes what attempts have left that did not end. One that goes on nevertheless fails as it takes its place.
    pub fn tidy(&self) {
        let prefix = self.fresh_prefix();
        let Ok(entries) = std::fs::read_dir(self.dir()) else {
            return; // whoever creates a file there says why
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

    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<Fresh, ArrayError> {
        self.tidy();
        let (fresh, place) = (self.fresh(), self.clone());
        let array = Array::create_file(&fresh, id, extent)?;
        let put = move || {
            std::fs::rename(fresh, &place.0).map_err(ArrayError::io("replace", &place.0))?;
            sync_dir(place.dir())
        };
        let put = Box::new(put);
        Ok(Fresh { array, put })
    }
}
