//! The file of a map. Its lock belongs to the open file, not to the store that is in it: so the store can be closed, and opened by whoever is
//! handed the open file, and the map is nobody else's at any time in between.
//!
//! # Reserve
//!
//! ```text
//!   0               length                           2 × length
//!   ├── the store ──┼── reserve: allocated blocks behind the end of the file ──┤
//! ```
//!
//! The store writes new pages before it frees old ones, so a deletion needs space as well. When the
//! store has no free page its file doubles. The reserve makes that possible on a full file system:
//! then half of the file is free, and only commits that add records are refused until the reserve
//! is allocated again ([`MapFile::has_reserve`]). The file has no holes, so no write of a page
//! needs space. On file systems without preallocation there is no reserve; on those that never
//! overwrite a block the reserve is given back when a write fails.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use units::Bytes;

use crate::ArrayError;
use crate::view::Shared;

static READS: AtomicU64 = AtomicU64::new(0);

/// Number of reads from files of maps in this process: the opening of a map that hangs makes none.
pub fn map_reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// A file as a store wants it.
#[derive(Debug)]
pub(crate) struct MapFile {
    pub(crate) file: Arc<File>,
    /// True if the reserve is allocated. Held while it changes, or the length of the file.
    reserve: Mutex<bool>,
}

impl MapFile {
    pub(crate) fn new(file: Arc<File>) -> Self {
        let reserve = Mutex::new(false);
        Self { file, reserve }
    }

    fn reserve(&self) -> MutexGuard<'_, bool> {
        self.reserve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the reserve was allocated when this was last tried.
    pub(crate) fn has_reserve(&self) -> bool {
        *self.reserve()
    }

    /// Allocates the reserve, and blocks for holes in the file, as a copy of it may have.
    ///
    /// # Errors
    /// When the file system is full.
    pub(crate) fn take_reserve(&self) -> io::Result<()> {
        self.take_into(&mut self.reserve())
    }

    fn take_into(&self, reserve: &mut bool) -> io::Result<()> {
        let length = self.len()?;
        let taken = allocate(&self.file, 0, length)
            .and_then(|()| allocate(&self.file, length, self.reserve_bytes().0));
        *reserve = taken.is_ok();
        taken
    }

    /// Bytes of the reserve.
    pub(crate) fn reserve_bytes(&self) -> Bytes {
        Bytes(RESERVE_MIN.max(self.len().unwrap_or(0)))
    }

    /// Bytes that a copy of the file needs, with its reserve.
    pub(crate) fn needed_bytes(&self) -> Bytes {
        Bytes(self.reserve_bytes().0 + self.len().unwrap_or(0))
    }
}

/// Smallest reserve. A new map is smaller, and its first doublings come soon.
const RESERVE_MIN: u64 = 4 << 20;

/// Allocates blocks for a range of a file, which keeps its length. Does nothing on file systems that
/// cannot.
fn allocate(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, offset, length) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if an error says that there is no space.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl StorageBackend for MapFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        READS.fetch_add(1, Ordering::Relaxed);
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut reserve = self.reserve();
        let before = self.len()?;
        if len == before {
            return Ok(());
        }
        // The length changes in one step, or not at all: no other one belongs to a layout of the store.
        if len > before {
            allocate(&self.file, before, len - before)?;
        }
        self.file.set_len(len)?;
        // The next commit that adds records tells of a failure.
        let _ = self.take_into(&mut reserve);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.file.write_all_at(data, offset) {
            Err(error) if is_no_space(&error) => {
                let mut reserve = self.reserve();
                *reserve = false;
                self.file.set_len(self.len()?)?; // gives the reserve back
                self.file.write_all_at(data, offset)
            }
            written => written,
        }
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
