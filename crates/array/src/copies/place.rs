//! Where copies of a map are.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use units::Bytes;

use crate::create::sync_dir;
use crate::{Array, ArrayError, ArrayId};

/// Where a copy of a map is.
pub trait CopyPlace: Send + Sync + Debug {
    /// How it is called in messages.
    fn name(&self) -> String;

    /// Opens it.
    ///
    /// # Errors
    /// [`ArrayError::Missing`] where there is none, and whatever else is wrong with it.
    fn open(&self) -> Result<Array, ArrayError>;

    /// Begins a new map there, aside of what is there if that can be.
    ///
    /// # Errors
    /// [`ArrayError`].
    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<Array, ArrayError>;

    /// Puts the new map in the place of what was there.
    ///
    /// # Errors
    /// [`ArrayError`].
    fn replace(&self) -> Result<(), ArrayError>;
}

/// A copy in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlace(pub PathBuf);

impl FilePlace {
    /// A new map before it takes its place: a name that nobody else gives a file, since what has it is overwritten.
    fn fresh(&self) -> PathBuf {
        let name = self.0.file_name().unwrap_or_default().to_string_lossy();
        self.0.with_file_name(format!(".{name}.terrace-new"))
    }
}

impl CopyPlace for FilePlace {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn open(&self) -> Result<Array, ArrayError> {
        Array::open_file(&self.0)
    }

    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<Array, ArrayError> {
        Array::create_file(&self.fresh(), id, extent)
    }

    fn replace(&self) -> Result<(), ArrayError> {
        std::fs::rename(self.fresh(), &self.0).map_err(ArrayError::io("replace", &self.0))?;
        let dir = self.0.parent().filter(|d| *d != Path::new(""));
        sync_dir(dir.unwrap_or(Path::new(".")))
    }
}
