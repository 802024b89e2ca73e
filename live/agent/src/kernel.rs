//! Facts from the kernel about file systems, block devices and file locks.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use manager::wire::DeviceIoCounts;
use vmhost::{Medium, Transport};

use crate::block_times::Blocks;
use crate::error::{AgentError, Result, file_error, system_error};

/// Bytes of a sector in the kernel's counters, independent of the device's sector size.
const SECTOR: u64 = 512;
/// Operation in the errors of failed looks at a path.
const INSPECT: &str = "cannot inspect";
/// Largest depth of stacked block devices, such as a logical volume on a RAID on partitions.
const DEPTH_MAX: u32 = 6;

#[derive(Debug, Clone)]
pub(crate) struct FileSystem {
    /// Bytes in all, and bytes that are used or reserved for root.
    pub size: u64,
    pub used: u64,
    /// Device number of the file system: directories with the same number share their space.
    pub device: u64,
}

/// Returns the file system of a directory.
///
/// # Errors
/// The directory cannot be inspected; the error has the reason.
pub(crate) fn file_system(path: &Path) -> Result<FileSystem> {
    let space = rustix::fs::statvfs(path).map_err(file_error(INSPECT, path))?;
    let device = fs::metadata(path).map_err(file_error(INSPECT, path))?.dev();
    let size = space.f_blocks.saturating_mul(space.f_frsize);
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    Ok(FileSystem {
        size,
        used: size.saturating_sub(free),
        device,
    })
}

/// Block device.
pub(crate) struct BlockDevice {
    /// Device number in the kernel.
    pub number: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Returns the block device at a path.
///
/// # Errors
/// The path is not a block device, or cannot be inspected.
pub(crate) fn block_device(path: &Path) -> Result<BlockDevice> {
    let said = file_error(INSPECT, path);
    let found = fs::metadata(path).map_err(&said)?;
    if !found.file_type().is_block_device() {
        return Err(said(io::Error::other("it is no block device")));
    }
    let number = found.rdev();
    let tree = in_tree(number);
    let tree = tree.ok_or_else(|| said(io::Error::other("the kernel does not list it")))?;
    let sectors = fs::read_to_string(tree.join("size")).map_err(&said)?;
    let sectors = sectors.trim().parse::<u64>();
    let sectors = sectors.map_err(|e| said(io::Error::other(e)))?;
    Ok(BlockDevice {
        number,
        size: sectors.saturating_mul(SECTOR),
    })
}

/// Returns true if two paths lead to the same file or device.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some(match found.file_type().is_block_device() {
            // A block device may have several device nodes, each with its own inode number.
            true => (found.rdev(), 0),
            false => (found.dev(), found.ino()),
        })
    };
    id(a).is_some_and(|a| Some(a) == id(b))
}

/// Returns true if a process holds a lock on a file. QEMU locks every image that it has open, unless locking is turned
/// off.
///
/// # Errors
/// The locks cannot be read; the error has the reason.
pub(crate) fn is_locked(path: &Path) -> Result<bool> {
    let said = use_unknown(path);
    let file = fs::metadata(path).map_err(&said)?;
    let locks = fs::read_to_string("/proc/locks").map_err(&said)?;
    Ok(has_lock(&locks, file.dev(), file.ino()))
}

/// Returns the conversion of an error into that of a check for other users of a file or device.
pub(crate) fn use_unknown(path: &Path) -> impl Fn(io::Error) -> AgentError {
    system_error(format!(
        "cannot find out whether {} is in use",
        path.display()
    ))
}

/// Searches the kernel's list of locks. A line has a number, kinds of lock, a process, and device and file as
/// `fe:00:1234`, with the device's numbers in hexadecimal.
fn has_lock(locks: &str, device: u64, inode: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A file system without a block device, such as a subvolume of btrfs, has another device number in this list. Only
    // the inode number is compared then, which may match a file of another file system.
    let of = match major {
        0 => format!(":{inode}"),
        _ => format!("{major:02x}:{minor:02x}:{inode}"),
    };
    locks.split_whitespace().any(|word| match major {
        0 => word.ends_with(&of) && word.matches(':').count() == 2,
        _ => word == of,
    })
}

/// Returns true if this process may rename files in the path's directory.
pub(crate) fn may_rename(path: &Path) -> bool {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let dir = path.parent().unwrap_or(Path::new("/"));
    rustix::fs::access(dir, access).is_ok()
}

/// Returns true if no part of the path is a symbolic link.
pub(crate) fn is_plain(path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|p| p == path)
}

/// Returns the path of a block device in sysfs, such as `/sys/devices/…/nvme0n1/nvme0n1p2`; `None` for a number that is
/// not that of a block device.
fn in_tree(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// Returns the kernel's I/O counters of a device.
pub(crate) fn io(device: u64) -> Option<DeviceIoCounts> {
    io_of(&fs::read_to_string(in_tree(device)?.join("stat")).ok()?)
}

/// Reads the counters of the running kernel.
pub(crate) struct Kernel;

impl Blocks for Kernel {
    fn below(&self, path: &str) -> Option<u64> {
        // A relative path is relative to the server's directory, not to that of this process.
        let path = Some(Path::new(path)).filter(|p| p.is_absolute())?;
        let found = fs::metadata(path).ok()?;
        let is_block = found.file_type().is_block_device();
        is_block
            .then(|| found.rdev())
            .or(found.is_file().then(|| found.dev()))
    }

    fn busy_ns(&self, block: u64) -> Option<u64> {
        io(block)?.busy_ns
    }
}

/// Parses a device's file `stat`: reads, merged, sectors, ms; the same for writes; in flight; ms in use. Newer kernels
/// append more fields.
fn io_of(stat: &str) -> Option<DeviceIoCounts> {
    let numbers: Result<Vec<u64>, _> = stat.split_whitespace().map(str::parse).collect();
    let numbers = numbers.ok().filter(|n| n.len() >= 11)?;
    Some(DeviceIoCounts {
        reads: numbers[0],
        writes: numbers[4],
        read_bytes: numbers[2].saturating_mul(SECTOR),
        write_bytes: numbers[6].saturating_mul(SECTOR),
        busy_ns: Some(numbers[9].saturating_mul(1_000_000)),
    })
}

/// Returns transport and kind of a device. A device that consists of others has those of its slowest part.
pub(crate) fn medium(device: u64) -> Medium {
    let unknown = Medium {
        transport: Transport::Unknown,
        rotational: None,
    };
    found(device).unwrap_or(unknown)
}

fn found(device: u64) -> Option<Medium> {
    Some(medium_at(&in_tree(device)?, 0))
}

/// Returns transport and kind of the device below a directory; `None` without a block device, or if the directory
/// cannot be inspected.
pub fn medium_of(directory: &Path) -> Option<Medium> {
    found(fs::metadata(directory).ok()?.dev())
}

fn medium_at(path: &Path, depth: u32) -> Medium {
    let below = fs::read_dir(path.join("slaves")).into_iter().flatten();
    let below = below.filter_map(|e| fs::canonicalize(e.ok()?.path()).ok());
    if depth < DEPTH_MAX
        && let Some(slowest) = below
            .map(|p| medium_at(&p, depth + 1))
            .max_by_key(|m| vmhost::guessed(*m))
    {
        return slowest;
    }
    // A partition has the queue of its disk.
    let queue = [path.join("queue"), path.join("../queue")];
    let said = queue
        .iter()
        .find_map(|q| fs::read_to_string(q.join("rotational")).ok());
    Medium {
        transport: transport(&path.to_string_lossy()),
        rotational: said.map(|s| s.trim() == "1"),
    }
}

/// Derives the transport from the device's path in sysfs.
fn transport(path: &str) -> Transport {
    let has = |part: &str| path.split('/').any(|p| p.starts_with(part));
    match () {
        () if has("nvme") => Transport::Nvme,
        () if has("virtio") => Transport::Virtio,
        () if has("ata") => Transport::Sata,
        () if has("session") || has("nbd") || has("rbd") => Transport::Network,
        () if has("host") => Transport::Scsi,
        () => Transport::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_device_counters_are_parsed() {
        let stat = "  2100  30  84000  900  5200 11 1040000 7000 2 6500 8000 0 0 0 0 1 2\n";
        let io = io_of(stat).unwrap();
        assert_eq!((io.reads, io.writes), (2100, 5200));
        assert_eq!(io.read_bytes, 84_000 * 512);
        assert_eq!(io.busy_ns, Some(6_500_000_000));
        assert_eq!(io_of("1 2 3"), None);
        assert_eq!(io_of("a b c d e f g h i j k"), None);
    }

    #[test]
    fn file_is_on_the_block_device_of_its_file_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let below = Kernel.below(path);
        assert_eq!(below, Some(fs::metadata(path).unwrap().dev()));
        for none in ["relative", "/no/such/file", "/", "nbd://host/export"] {
            assert_eq!(Kernel.below(none), None, "{none}");
        }
        // File systems in memory have no block device.
        assert_eq!(Kernel.busy_ns(rustix::fs::makedev(0, 77)), None);
    }

    #[test]
    fn locked_file_is_detected() {
        let list = "1: OFDLCK ADVISORY  READ -1 fe:01:77 100 101\n1: -> POSIX  ADVISORY  WRITE 9 08:03:5 0 EOF\n";
        let device = |major, minor| rustix::fs::makedev(major, minor);
        assert!(has_lock(list, device(0xfe, 1), 77) && has_lock(list, device(8, 3), 5));
        assert!(!has_lock(list, device(0xfe, 1), 7) && !has_lock(list, device(0xfe, 0), 77));
        assert!(has_lock(list, device(0, 40), 77) && !has_lock(list, device(0, 40), 7));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_locked(file.path()).unwrap());
        file.as_file().lock().unwrap();
        assert!(is_locked(file.path()).unwrap());
        assert!(is_locked(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn transport_of_a_device_follows_from_its_sysfs_path() {
        for (path, of) in [
            (
                "/sys/devices/pci0000:00/0000:00:1d.0/0000:03:00.0/nvme/nvme0/nvme0n1",
                Transport::Nvme,
            ),
            (
                "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda",
                Transport::Sata,
            ),
            (
                "/sys/devices/pci0000:00/0000:00:03.0/virtio0/block/vda",
                Transport::Virtio,
            ),
            (
                "/sys/devices/pci0000:00/0000:01:00.0/host2/target2:0:1/2:0:1:0/block/sdb",
                Transport::Scsi,
            ),
            (
                "/sys/devices/platform/host3/session1/target3:0:0/3:0:0:0/block/sdc",
                Transport::Network,
            ),
            ("/sys/devices/virtual/block/zram0", Transport::Unknown),
        ] {
            assert_eq!(transport(path), of, "{path}");
        }
    }

    #[test]
    fn directory_has_file_system_sizes_and_a_missing_one_is_an_error() {
        let here = file_system(Path::new("/")).unwrap();
        assert!(here.size > 0 && here.used <= here.size);
        let said = file_system(Path::new("/no/such/place")).unwrap_err();
        let said = said.to_string();
        assert!(said.starts_with("cannot inspect /no/such/place"), "{said}");
    }
}
