//! Validation and mapping of the memory, buffers and events that a connection hands over.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, OFlags, SealFlags};
use thiserror::Error;
use vhost::vhost_user::message::{VhostUserInflight, VhostUserMemoryRegion};
use vm_memory::mmap::MmapRegionError;
use vm_memory::{FileOffset, MmapRegion};
use vring::{InflightBuffer, Memory, Region, RingError};

use crate::worker::FileId;

/// Types of file systems whose files are in memory.
const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;

/// Reason why a handed-over file is rejected.
#[derive(Debug, Error)]
pub enum HandedOver {
    /// The file is not in memory: access to it could take any time.
    #[error(
        "the guest's memory is a file on a disk: configure shared memory (memfd, tmpfs or hugetlbfs)"
    )]
    NotMemory,
    /// The file is shorter than the memory.
    #[error("the guest's memory needs {needs} bytes, but its file has {has}")]
    Short {
        /// Required bytes.
        needs: u64,
        /// Bytes of the file.
        has: u64,
    },
    /// Another process could truncate the file.
    #[error("the file of the inflight buffer is not sealed")]
    NotSealed,
    /// The file is not an event counter, or can block.
    #[error("the file descriptor of a kick or interrupt is not a non-blocking eventfd")]
    NotAnEvent,
    /// The mapping failed.
    #[error("cannot map the memory")]
    Map(#[from] MmapRegionError),
    /// A system call failed.
    #[error("system call failed")]
    System(#[from] std::io::Error),
    /// Parameters of a ring are inconsistent.
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
    // A mapping begins and ends at a page boundary; pages may be huge.
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

/// Inflight buffer and its file.
pub struct InflightFile {
    pub inflight: InflightBuffer,
    pub id: FileId,
}

/// Creates an inflight buffer in a file whose size is sealed.
pub fn new_inflight(
    queues: u16,
    size: u16,
) -> Result<(VhostUserInflight, File, InflightFile), HandedOver> {
    if !InflightBuffer::can_be(queues, size) {
        return Err(RingError::InflightBuffer("invalid number or size of queues").into());
    }
    let bytes = InflightBuffer::bytes(queues, size) as u64;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("terrace-in-flight", flags)?;
    // Allocate all of it now, so a lack of memory is reported here.
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    let file = File::from(file);
    let inflight = VhostUserInflight::new(bytes, 0, queues, size);
    let kept = known_inflight(&inflight, file.try_clone()?)?;
    Ok((inflight, file, kept))
}

/// Adopts an inflight buffer that this or an earlier process created.
pub fn known_inflight(
    inflight: &VhostUserInflight,
    file: File,
) -> Result<InflightFile, HandedOver> {
    let seals = rustix::fs::fcntl_get_seals(&file);
    if !seals.is_ok_and(|s| s.contains(SealFlags::SHRINK)) {
        return Err(HandedOver::NotSealed);
    }
    let about = rustix::fs::fstat(&file)?;
    let has = about.st_size.unsigned_abs();
    let offset = usize::try_from(inflight.mmap_offset).unwrap_or(usize::MAX);
    let map = MmapRegion::from_file(FileOffset::new(file, 0), has as usize)?;
    let inflight = InflightBuffer::new(
        Arc::new(map),
        offset,
        inflight.num_queues,
        inflight.queue_size,
    )?;
    Ok(InflightFile {
        inflight,
        id: (about.st_dev, about.st_ino),
    })
}

/// Checks an event counter. Neither reading nor writing it blocks a worker.
pub fn event(file: File) -> Result<Arc<OwnedFd>, HandedOver> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = std::fs::read_link(link)?;
    let is_event = name.as_os_str() == "anon_inode:[eventfd]";
    if !is_event || !rustix::fs::fcntl_getfl(&file)?.contains(OFlags::NONBLOCK) {
        return Err(HandedOver::NotAnEvent);
    }
    Ok(Arc::new(file.into()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn memfd(bytes: u64) -> File {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("test", flags).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    fn mapped(file: File, offset: u64, length: u64) -> Result<Arc<Memory>, HandedOver> {
        let region = VhostUserMemoryRegion::new(0, length, 0x7000_0000, offset);
        guest_memory(&[region], vec![file])
    }

    #[test]
    fn guest_memory_must_be_a_memfd_of_the_stated_size() {
        assert!(mapped(memfd(0x4000), 0, 0x4000).is_ok());
        // Not aligned to a page.
        assert!(mapped(memfd(0x4000), 0x1800, 0x2800).is_ok());
        for (offset, length) in [(0, 0x4001), (0x4000, 1), (1, u64::MAX - 1), (u64::MAX, 2)] {
            let refused = mapped(memfd(0x4000), offset, length).unwrap_err();
            assert!(
                matches!(refused, HandedOver::Short { has: 0x4000, .. }),
                "{refused}"
            );
        }
        // Files of procfs are neither on a disk nor in memory.
        let proc = File::open("/proc/self/maps").unwrap();
        let refused = mapped(proc, 0, 1).unwrap_err();
        assert!(matches!(refused, HandedOver::NotMemory), "{refused}");
    }

    #[test]
    fn event_descriptors_must_be_nonblocking_eventfds() {
        let event_of = |flags| event(eventfd(0, flags).unwrap().into());
        assert!(event_of(EventfdFlags::NONBLOCK).is_ok());
        let blocks = event_of(EventfdFlags::empty()).unwrap_err();
        assert!(matches!(blocks, HandedOver::NotAnEvent), "{blocks}");
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = reader.as_fd().try_clone_to_owned().unwrap();
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        let other = event(reader.into()).unwrap_err();
        assert!(matches!(other, HandedOver::NotAnEvent), "{other}");
    }

    #[test]
    fn inflight_region_cannot_be_truncated() {
        for (queues, size) in [
            (0, 128),
            (65, 128),
            (u16::MAX, 1 << 15),
            (1, 100),
            (1, u16::MAX),
        ] {
            assert!(new_inflight(queues, size).is_err(), "{queues} of {size}");
        }
        let (inflight, file, kept) = new_inflight(2, 128).unwrap();
        assert!(file.set_len(4096).is_err());
        kept.inflight.note_writes_through(true);
        let again = known_inflight(&inflight, file.try_clone().unwrap()).unwrap();
        assert!(again.inflight.writes_through() && again.id == kept.id);
        let unsealed = known_inflight(&inflight, memfd(inflight.mmap_size));
        assert!(matches!(unsealed, Err(HandedOver::NotSealed)));
        for (offset, queues, size) in [(64, 2, 128), (0, 3, 128), (0, 2, 256), (u64::MAX, 1, 1)] {
            let other = VhostUserInflight::new(inflight.mmap_size, offset, queues, size);
            let refused = known_inflight(&other, file.try_clone().unwrap());
            assert!(
                matches!(refused, Err(HandedOver::Ring(_))),
                "{offset} {queues} {size}"
            );
        }
    }
}
