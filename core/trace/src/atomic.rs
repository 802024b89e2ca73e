//! Output files that appear whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::TraceError;

/// Temporary names that are tried before giving up. Protects from looping over a directory of leftovers.
const TEMPORARY_NAMES_MAX: u32 = 100;

/// A file under a temporary name beside its target; [`AtomicFile::commit`] renames it, dropping it removes it.
#[derive(Debug)]
pub struct AtomicFile {
    target: PathBuf,
    temporary: Option<PathBuf>,
    file: File,
}

impl AtomicFile {
    /// Creates the temporary file in the target's directory, open for reading and writing.
    ///
    /// # Errors
    /// A file that cannot be created.
    pub fn create(target: &Path) -> Result<Self, TraceError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let mut attempt = 0;
        loop {
            let temporary =
                target.with_file_name(format!(".{name}.{}-{attempt}.tmp", std::process::id()));
            match OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&temporary)
            {
                Ok(file) => {
                    return Ok(Self {
                        target: target.to_owned(),
                        temporary: Some(temporary),
                        file,
                    });
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists && attempt < TEMPORARY_NAMES_MAX => {
                    attempt += 1
                }
                Err(e) => return Err(TraceError::io("create", target)(e)),
            }
        }
    }

    /// Returns the file under its temporary name.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path that the file gets.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Flushes the file to the device and gives it its name, replacing what had it.
    ///
    /// # Errors
    /// A flush or renaming that fails.
    pub fn commit(mut self) -> Result<(), TraceError> {
        let fail = |e| TraceError::io("write", &self.target)(e);
        (&self.file).flush().map_err(fail)?;
        self.file.sync_all().map_err(fail)?;
        let temporary = self.temporary.as_ref().expect("committed once");
        std::fs::rename(temporary, &self.target).map_err(fail)?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing can be done about a failure here; the name says what the file is.
            let _ = std::fs::remove_file(temporary);
        }
    }
}
