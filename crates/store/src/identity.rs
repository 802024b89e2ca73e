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

/// The files as they were when they were opened.
pub(crate) struct Files(Vec<(PathBuf, Identity)>);

/// Device and inode.
type Identity = (u64, u64);

fn identity(path: &Path) -> std::io::Result<Identity> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl Files {
    /// Those of an open database; a file that is not there is not looked at.
    pub(crate) fn of(database: &Path) -> Self {
        let named = SUFFIXES.iter().map(|suffix| beside(database, suffix));
        let there = named.filter_map(|path| Some((path.clone(), identity(&path).ok()?)));
        Self(there.collect())
    }

    /// Refuses files that are not where they were opened.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        for (path, opened) in &self.0 {
            let how = match identity(path) {
                Ok(found) if found == *opened => continue,
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
