//! Identity of the files of an open store: a path may refer to another file, or none, while the store is in use.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use manager::store::StoreError;

use crate::failure::Place;
use crate::open::beside;

/// Suffixes of the files of a database: its own file, SQLite's log and index, and our lock. If the log is missing at a
/// start, the commits in it are lost. If two controllers lock different files, both write.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", ".lock"];

/// Files as they were when they were opened and last written.
pub(crate) struct Files(Vec<(PathBuf, Identity)>);

/// Identity of a file, and of its content as far as metadata show it.
#[derive(PartialEq, Eq)]
struct Identity {
    /// Device and inode.
    file: (u64, u64),
    /// Size and time of the last change. Only this process writes to the database and its log, in write transactions. Any
    /// other change is by another program, for example an old copy over the file.
    content: (u64, i64, i64),
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    let found = std::fs::metadata(path)?;
    // The index is mapped into memory, so its time is meaningless.
    let is_index = path.as_os_str().as_encoded_bytes().ends_with(b"-shm");
    Ok(Identity {
        file: (found.dev(), found.ino()),
        content: match is_index {
            true => (0, 0, 0),
            false => (found.len(), found.mtime(), found.mtime_nsec()),
        },
    })
}

impl Files {
    /// Returns the identities of an open database's files. Missing files are not checked.
    pub(crate) fn of(database: &Path) -> Self {
        let named = SUFFIXES.iter().map(|suffix| beside(database, suffix));
        let there = named.filter_map(|path| Some((path.clone(), identity(&path).ok()?)));
        Self(there.collect())
    }

    /// Updates the known content after a transaction of this process.
    pub(crate) fn note_own_writes(&mut self) {
        for (path, known) in &mut self.0 {
            if let Ok(found) = identity(path)
                && found.file == known.file
            {
                *known = found;
            }
        }
    }

    /// Fails if a file was moved or replaced, or changed by another program.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for (path, known) in &self.0 {
            let how = match identity(path) {
                Ok(found) if found == *known => continue,
                Ok(found) if found.file == known.file => "overwritten by another program",
                Ok(_) => "replaced",
                Err(e) if e.kind() == ErrorKind::NotFound => "deleted or moved",
                Err(e) => return Err(Place(path.clone()).io("look at", &e)),
            };
            return Err(StoreError::Replaced {
                path: path.display().to_string(),
                how,
            });
        }
        Ok(())
    }
}
