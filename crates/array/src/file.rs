//! The file of a map. Its lock belongs to the open file, not to the store that is in it: so the store can be closed, and opened by whoever is
//! handed the open file, and the map is nobody else's at any time in between.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use redb::StorageBackend;

use crate::ArrayError;

/// A file as a store wants it.
#[derive(Debug)]
pub(crate) struct MapFile(pub(crate) Arc<File>);

impl StorageBackend for MapFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

/// Opens a file, or makes it, and locks it: as earlier versions did, so that they keep away from it too.
pub(crate) fn open_locked(path: &Path, new: bool) -> Result<Arc<File>, ArrayError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(new);
    let action = if new { "create" } else { "open" };
    let file = options.open(path).map_err(ArrayError::io(action, path))?;
    match file.try_lock() {
        Ok(()) => Ok(Arc::new(file)),
        Err(TryLockError::WouldBlock) => Err(ArrayError::InUse {
            place: path.display().to_string(),
        }),
        Err(TryLockError::Error(error)) => Err(ArrayError::io("lock", path)(error)),
    }
}
