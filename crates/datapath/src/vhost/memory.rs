//! What a connection hands over is mapped, if nobody can be hurt by that.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, SealFlags};
use thiserror::Error;
use vhost::vhost_user::message::{VhostUserInflight, VhostUserMemoryRegion};
use vm_memory::mmap::MmapRegionError;
use vm_memory::{FileOffset, MmapRegion};
use vring::{Ledger, Memory, Region, RingError};

use crate::worker::FileId;

/// File systems whose files are memory.
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;

/// Why something is not taken.
#[derive(Debug, Error)]
pub enum HandedOver {
    /// A file that is no memory: reading it could take any time.
    #[error(
        "the guest's memory is in a file on a disk: it has to be shared memory (a memfd, tmpfs or hugetlbfs)"
    )]
    NotMemory,
    /// A file that ends before the memory does.
    #[error("the guest's memory is said to have {needs} bytes in a file of {has}")]
    Short {
        /// Bytes that it should have.
        needs: u64,
        /// Bytes that it has.
        has: u64,
    },
    /// Somebody could cut it short.
    #[error("what is in flight is in a file that is not sealed")]
    NotSealed,
    /// Something else than an event counter, or one that may block.
    #[error("kicks and interrupts go through event counters that do not block, and this is none")]
    NotAnEvent,
    /// The system refuses.
    #[error("cannot map it")]
    Map(#[from] MmapRegionError),
    /// Likewise.
    #[error("the system refuses")]
    System(#[from] std::io::Error),
    /// It does not fit together.
    #[error(transparent)]
    Ring(#[from] RingError),
}

impl From<rustix::io::Errno> for HandedOver {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Maps a guest's memory.
pub fn guest_memory(
    regions: &[VhostUserMemoryRegion],
    files: Vec<File>,
) -> Result<Arc<Memory>, HandedOver> {
    let mapped = regions.iter().zip(files).map(|(r, file)| region(r, file));
    let mapped = mapped.collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Memory::new(mapped)?))
}

fn region(region: &VhostUserMemoryRegion, file: File) -> Result<Region, HandedOver> {
    let (guest, user, length, offset) = (
        region.guest_phys_addr,
        region.user_addr,
        region.memory_size,
        region.mmap_offset,
    );
    let kind = rustix::fs::fstatfs(&file)?.f_type;
    if kind != TMPFS && kind != HUGETLBFS {
        return Err(HandedOver::NotMemory);
    }
    let about = rustix::fs::fstat(&file)?;
    let (has, page) = (
        about.st_size.unsigned_abs(),
        about.st_blksize.unsigned_abs(),
    );
    let short = HandedOver::Short {
        needs: offset.saturating_add(length),
        has,
    };
    let end = offset.checked_add(length).filter(|end| *end <= has);
    let end = end.ok_or(short)?;
    // A mapping begins and ends with a page, which may be a huge one.
    let start = offset - offset % page;
    let bytes = (end - start).next_multiple_of(page);
    let map = MmapRegion::from_file(FileOffset::new(file, start), bytes as usize)?;
    Ok(Region {
        guest,
        user,
        length,
        map: Arc::new(map),
        at: (offset - start) as usize,
    })
}

/// A ledger and its file.
pub struct Kept {
    pub ledger: Ledger,
    pub id: FileId,
}

/// Makes a ledger, in a file that keeps its size.
pub fn new_ledger(queues: u16, size: u16) -> Result<(VhostUserInflight, File, Kept), HandedOver> {
    let bytes = Ledger::bytes(queues, size) as u64;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("terrace-in-flight", flags)?;
    // All of it is there from the start: where there is no memory for it, that is said here.
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    let file = File::from(file);
    let told = VhostUserInflight::new(bytes, 0, queues, size);
    let kept = known_ledger(&told, file.try_clone()?)?;
    Ok((told, file, kept))
}

/// Takes a ledger that was made before, by this process or by one that is no more.
pub fn known_ledger(told: &VhostUserInflight, file: File) -> Result<Kept, HandedOver> {
    let seals = rustix::fs::fcntl_get_seals(&file);
    if !seals.is_ok_and(|s| s.contains(SealFlags::SHRINK)) {
        return Err(HandedOver::NotSealed);
    }
    let about = rustix::fs::fstat(&file)?;
    let has = about.st_size.unsigned_abs();
    let offset = usize::try_from(told.mmap_offset).unwrap_or(usize::MAX);
    let map = MmapRegion::from_file(FileOffset::new(file, 0), has as usize)?;
    let ledger = Ledger::new(Arc::new(map), offset, told.num_queues, told.queue_size)?;
    Ok(Kept {
        ledger,
        id: (about.st_dev, about.st_ino),
    })
}

/// An event counter, which neither a worker that writes to it nor one that reads it waits for.
pub fn event(file: File) -> Result<Arc<OwnedFd>, HandedOver> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = std::fs::read_link(link)?;
    let is_event = name.as_os_str() == "anon_inode:[eventfd]";
    if !is_event || !rustix::fs::fcntl_getfl(&file)?.contains(OFlags::NONBLOCK) {
        return Err(HandedOver::NotAnEvent);
    }
    Ok(Arc::new(file.into()))
}
