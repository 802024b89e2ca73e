//! The file of a map. Its lock belongs to the open file, not to the store that is in it: so the store can be closed, and opened by whoever is
//! handed the open file, and the map is nobody else's at any time in between.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::ArrayError;
use crate::view::Shared;

static READS: AtomicU64 = AtomicU64::new(0);

/// Number of reads from files of maps in this process: the opening of a map that hangs makes none.
pub fn map_reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// A file as a store wants it.
#[derive(Debug)]
pub(crate) struct MapFile(pub(crate) Arc<File>);

impl StorageBackend for MapFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        READS.fetch_add(1, Ordering::Relaxed);
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

/// Storage that writes its header after all other data of a sync.
///
/// The store writes the header of a commit before its pages. If the process is killed in between,
/// the header names a commit without pages. With this storage only a loss of power has that effect.
#[derive(Debug)]
pub(crate) struct HeaderLast {
    storage: Shared,
    header: Mutex<Option<Vec<u8>>>,
}

impl HeaderLast {
    pub(crate) fn new(storage: Shared) -> Self {
        let header = Mutex::default();
        Self { storage, header }
    }

    fn header(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.header.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageBackend for HeaderLast {
    fn len(&self) -> io::Result<u64> {
        self.storage.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.storage.read(offset, out)?;
        if let Some(header) = self.header().as_ref()
            && let Some(behind) = header.get(usize::try_from(offset).unwrap_or(usize::MAX)..)
        {
            let length = behind.len().min(out.len());
            out[..length].copy_from_slice(&behind[..length]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.storage.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut header = self.header();
        if let Some(header) = header.as_ref() {
            self.storage.write(0, header)?;
        }
        *header = None;
        drop(header);
        self.storage.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match offset {
            0 => {
                let mut header = self.header();
                let known = header.get_or_insert_default();
                known.resize(known.len().max(data.len()), 0);
                known[..data.len()].copy_from_slice(data);
                Ok(())
            }
            _ => self.storage.write(offset, data),
        }
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
