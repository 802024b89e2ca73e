//! Which files a store has open: a path may name another file, or none, while they are in use.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use manager::store::StoreError;

use crate::failure::Place;
use crate::open::beside;

/// Behind the path of a database: its own file, SQLite's log and index, and our lock. A log that is
/// not there at a start is lost with what was committed to it, and two controllers that lock
/// different files both write.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", ".lock"];

/// The files as they were when they were opened, and last written to.
pub(crate) struct Files(Vec<(PathBuf, Identity)>);

/// A file, and its content as far as its metadata tell.
#[derive(PartialEq, Eq)]
struct Identity {
    /// Device and inode.
    file: (u64, u64),
    /// Size and time of the last change. Only this process writes to the database and its log, in transactions that
    /// write: another change is one by another program, such as an old copy that was put over the file.
    content: (u64, i64, i64),
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    let found = std::fs::metadata(path)?;
    // The index is mapped into memory, so its time says nothing.
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
    /// Those of an open database; a file that is not there is not looked at.
    pub(crate) fn of(database: &Path) -> Self {
        let named = SUFFIXES.iter().map(|suffix| beside(database, suffix));
        let there = named.filter_map(|path| Some((path.clone(), identity(&path).ok()?)));
        Self(there.collect())
    }

    /// Takes the content as it is now, after a transaction of this process.
    pub(crate) fn note_own_writes(&mut self) {
        for (path, known) in &mut self.0 {
            if let Ok(found) = identity(path)
                && found.file == known.file
            {
                *known = found;
            }
        }
    }

    /// Refuses files that are not where they were opened, or were changed by another program.
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
