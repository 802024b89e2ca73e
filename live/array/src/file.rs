//! File of a map. The lock belongs to the open file, not to the store in it. So the store can be closed and opened
//! again by a process that received the open file, while the map stays locked against all others.
//!
//! # Reserve
//!
//! ```text
//!   0               length                           2 × length
//!   ├── the store ──┼── reserve: allocated blocks behind the end of the file ──┤
//! ```
//!
//! The store writes new pages before it frees old ones, so a deletion needs space as well. When the
//! store has no free page its file doubles. The reserve makes that possible on a full file system.
//! While the reserve is incomplete, commits that add records are refused
//! ([`MapFile::has_reserve`]); all others use the rest of it. The store also cuts free pages off the
//! end of its file. Their blocks stay allocated as part of the reserve, because another program
//! would take them and a later deletion would fail.
//!
//! The file has no holes, so no write of a page needs space, with one exception: if the reserve is
//! smaller than the growth, the file gets its new length with the blocks that there are. The store
//! fills a file from the front, and the next complete reserve also fills the holes.
//!
//! On file systems without preallocation there is no reserve; on those that never overwrite a block
//! the reserve is given back when a write fails.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use units::Bytes;

use crate::ArrayError;
use crate::view::SharedStorage;

static READS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of reads from map files in this process. If it stops growing, the opening of a map hangs.
pub fn map_reads() -> u64 {
    READS.load(Ordering::Relaxed)
}

/// File with the interface of a store's storage.
#[derive(Debug)]
pub(crate) struct MapFile {
    pub(crate) file: Arc<File>,
    /// True if the reserve is allocated. The lock is held while the reserve or the length of the file changes.
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

    /// Returns true if the last attempt to allocate the reserve succeeded.
    pub(crate) fn has_reserve(&self) -> bool {
        *self.reserve()
    }

    /// Allocates the reserve, and blocks for holes in the file, which a copied file may have.
    ///
    /// # Errors
    /// The file system is full.
    pub(crate) fn take_reserve(&self) -> io::Result<()> {
        self.take_into(&mut self.reserve())
    }

    fn take_into(&self, reserve: &mut bool) -> io::Result<()> {
        let length = self.len()?;
        let taken = self.extend(0, length);
        let taken = taken.and_then(|()| self.extend(length, self.reserve_bytes().0));
        *reserve = taken.is_ok();
        taken
    }

    /// Allocates blocks for a range. If that fails, the file keeps the blocks that it had.
    fn extend(&self, offset: u64, length: u64) -> io::Result<()> {
        let owned = self.owned_bytes()?;
        allocate(&self.file, offset, length).inspect_err(|_| self.keep(offset, owned))
    }

    /// Number of allocated bytes. They are one range from the start of the file, unless the file has holes.
    fn owned_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Allocates the blocks between two offsets again. A failed allocation on tmpfs frees unwritten blocks in its range
    /// that were allocated before, and a shorter length frees all blocks behind it.
    fn keep(&self, from: u64, to: u64) {
        if to > from {
            // Without these blocks, only a growth of the file fails.
            let _ = allocate(&self.file, from, to - from);
        }
    }

    /// Size of the reserve in bytes.
    pub(crate) fn reserve_bytes(&self) -> Bytes {
        Bytes(RESERVE_MIN.max(self.len().unwrap_or(0)))
    }

    /// Bytes that a copy of the file needs, including its reserve.
    pub(crate) fn needed_bytes(&self) -> Bytes {
        Bytes(self.reserve_bytes().0 + self.len().unwrap_or(0))
    }
}

/// Smallest reserve. A new map is smaller and soon doubles several times.
const RESERVE_MIN: u64 = 4 << 20;

/// Allocates blocks for a range of a file without changing its length. Does nothing on file systems without
/// preallocation.
fn allocate(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, offset, length) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if the error means that no space is left.
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
        let (before, owned) = (self.len()?, self.owned_bytes()?);
        if len == before {
            return Ok(());
        }
        // The length changes in one step or not at all, because no intermediate length is valid for the store.
        if len > before
            && let Err(error) = self.extend(before, len - before)
            && self.owned_bytes()? <= before
        {
            return Err(error);
        }
        self.file.set_len(len)?;
        self.keep(len, owned);
        // The next commit that adds records reports a failure.
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
                self.file.set_len(self.len()?)?; // frees the reserve
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
    storage: SharedStorage,
    header: Mutex<Option<Vec<u8>>>,
}

impl HeaderLast {
    pub(crate) fn new(storage: SharedStorage) -> Self {
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

/// Opens or creates a file and locks it, with the same kind of lock as earlier versions, so they are locked out too.
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
