//! Measures the latency of a directory's device with a few reads of an existing file.
//!
//! The reads bypass the page cache and skip holes, which a file system answers without the device. A result that is too
//! fast for the device is refused, because it came from memory: a file system in memory, or the cache of a hypervisor
//! or a controller. A slower cache cannot be distinguished from the medium.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use vmhost::Medium;

use crate::error::{AgentError, Result, in_context, system_error};
use crate::kernel::medium_of;

/// Largest number of reads of a probe. Together with [`TIME`] it bounds the load, so that guests do not notice the
/// probe.
const READS: u32 = 64;
const TIME: Duration = Duration::from_secs(2);
/// Smallest number of reads for a result.
const READS_MIN: usize = 8;
/// Longest wait after [`TIME`] for a device that does not answer.
const SILENT: Duration = Duration::from_secs(5);
/// Size and alignment of a read in bytes.
const READ_BYTES: usize = 4096;
/// Smallest size of a file for a probe: a smaller file would be read repeatedly at the same places.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Largest number of files that are tried, the largest first.
const FILES_TRIED: usize = 8;
/// Types of file systems whose files are in memory: tmpfs and ramfs. Their "direct" reads are copies.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeResult {
    /// Median time of a read in microseconds.
    pub median_us: f64,
    /// Number of reads.
    pub reads: u32,
}

/// Reads a little of the largest readable file in a directory.
///
/// # Errors
/// There is no result; the error has the reason.
pub fn probe(directory: &Path) -> Result<ProbeResult> {
    let directory = directory.to_owned();
    let (sender, receiver) = channel();
    // A read that hangs cannot be cancelled: its thread is left behind.
    let thread = std::thread::Builder::new().name("terrace-probe".into());
    let begun = thread.spawn(move || sender.send(of_directory(&directory)));
    begun.map_err(system_error("cannot start a thread for it"))?;
    let silent = |_| {
        let limit = (TIME + SILENT).as_secs();
        Err(AgentError::Silent(format!("no answer within {limit} s")))
    };
    receiver.recv_timeout(TIME + SILENT).unwrap_or_else(silent)
}

fn of_directory(directory: &Path) -> Result<ProbeResult> {
    let mut files = files(directory).map_err(system_error("cannot list the directory"))?;
    files.sort_by(|a, b| b.cmp(a));
    let mut why = AgentError::Unsuitable(format!(
        "the directory has no file of at least {} MiB",
        FILE_BYTES_MIN >> 20
    ));
    let until = Instant::now() + TIME;
    for (_, path) in files.into_iter().take(FILES_TRIED) {
        if Instant::now() >= until {
            break;
        }
        match of_file(&path, until) {
            Ok(probed) => return Ok(probed),
            Err(said) => why = in_context(path.display())(said),
        }
    }
    Err(why)
}

/// Returns regular files of sufficient size, with the bytes that they occupy.
fn files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = vec![];
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // The metadata of a symbolic link is that of the link itself.
        let Ok(data) = entry.metadata() else { continue };
        let taken = data.blocks().saturating_mul(512);
        if data.is_file() && taken.min(data.len()) >= FILE_BYTES_MIN {
            found.push((taken, entry.path()));
        }
    }
    Ok(found)
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // Only the owner of a file may open it without an update of the access time.
    match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        other => other,
    }
}

/// Refuses a result that is too fast for a device of this medium.
fn checked(probed: ProbeResult, medium: Option<Medium>) -> Result<ProbeResult> {
    let ProbeResult { median_us, reads } = probed;
    let (least_us, what) = match medium {
        Some(medium) => (medium.read_us_min(READ_BYTES), medium.to_string()),
        None => (model::LATENCY_MIN_US, "a device".into()),
    };
    if median_us >= least_us {
        return Ok(probed);
    }
    Err(AgentError::Unsuitable(format!(
        "refused an impossible result: {reads} reads of 4 KiB took {median_us:.1} µs each (median), and {what} needs at least {least_us:.0} µs, so a cache or a file system in memory answered; measure the device with `terrace device calibrate`, or name a preset with --preset"
    )))
}

fn of_file(path: &Path, until: Instant) -> Result<ProbeResult> {
    let file = open(path).map_err(system_error("cannot open it with direct I/O"))?;
    let said = system_error("cannot read it");
    let file_system = rustix::fs::fstatfs(&file).map_err(&said)?.f_type as u64;
    // The type is a signed word on some platforms.
    if IN_MEMORY.contains(&(file_system & 0xffff_ffff)) {
        return Err(AgentError::Unsuitable(
            "its file system is in memory, so no device answers".into(),
        ));
    }
    let pages = rustix::fs::fstat(&file).map_err(&said)?.st_size as u64 / READ_BYTES as u64;
    let mut memory = vec![0u8; 2 * READ_BYTES];
    let skip = memory.as_ptr().align_offset(READ_BYTES);
    let buffer = memory.get_mut(skip..skip + READ_BYTES);
    let buffer =
        buffer.ok_or_else(|| AgentError::Unsupported("no aligned memory for it".into()))?;
    let mut took_us = vec![];
    for place in places(pages) {
        if took_us.len() >= READS as usize || Instant::now() >= until {
            break;
        }
        let Some(at) = data_at(&file, place * READ_BYTES as u64).map_err(&said)? else {
            continue;
        };
        let before = Instant::now();
        if rustix::io::pread(&file, &mut *buffer, at).map_err(&said)? == READ_BYTES {
            took_us.push(before.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    if took_us.len() < READS_MIN {
        let reads = took_us.len();
        return Err(AgentError::Silent(format!(
            "only {reads} reads completed within {} s",
            TIME.as_secs()
        )));
    }
    took_us.sort_by(f64::total_cmp);
    let probed = ProbeResult {
        median_us: took_us[took_us.len() / 2],
        reads: took_us.len() as u32,
    };
    checked(probed, medium_of(path))
}

/// Returns pages of a file, spread over all of it and different in each probe. Steps of the golden ratio keep them
/// apart.
fn places(pages: u64) -> impl Iterator<Item = u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let start = f64::from(now.map_or(0, |d| d.subsec_nanos())) / 1e9;
    let step = 0.618_033_988_749_895;
    (0..4 * READS).map(move |i| {
        let at = (start + step * f64::from(i)).fract();
        ((at * pages as f64) as u64).min(pages.saturating_sub(1))
    })
}

/// Returns the offset of the next page with data; `None` if it is beyond the last whole page.
fn data_at(file: &OwnedFd, from: u64) -> Result<Option<u64>, Errno> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    let data = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => return Ok(None),
        // Assume data everywhere if the file system does not report holes.
        Err(Errno::INVAL) => from,
        Err(e) => return Err(e),
    };
    let at = data.next_multiple_of(READ_BYTES as u64);
    Ok((at + READ_BYTES as u64 <= size).then_some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_reads_little_data_and_no_holes() {
        // Use a directory in the source tree, because the directory for temporary files may be in memory.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::write(dir.path().join("small"), [1; 4096]).unwrap();
        let hole = fs::File::create(dir.path().join("hole")).unwrap();
        hole.set_len(64 << 20).unwrap();
        let none = "the directory has no file of at least 1 MiB";
        assert_eq!(probe(dir.path()).unwrap_err().to_string(), none);
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("link")).unwrap();
        assert_eq!(probe(dir.path()).unwrap_err().to_string(), none);
        fs::write(dir.path().join("image"), vec![1; 4 << 20]).unwrap();
        let probed = probe(dir.path()).unwrap();
        assert_eq!(probed.reads, READS);
        assert!(probed.median_us > 0.0, "{probed:?}");
        assert!(
            probe(&dir.path().join("gone"))
                .unwrap_err()
                .to_string()
                .starts_with("cannot list the directory")
        );
    }

    #[test]
    fn implausible_probe_results_are_refused() {
        let probed = |median_us| ProbeResult {
            median_us,
            reads: READS,
        };
        let sata = Medium {
            transport: vmhost::Transport::Sata,
            rotational: Some(false),
        };
        let virtio = Medium {
            transport: vmhost::Transport::Virtio,
            rotational: Some(true),
        };
        let why = checked(probed(1.0), None).unwrap_err().to_string();
        assert!(
            why.starts_with("refused an impossible result: 64 reads of 4 KiB took 1.0 µs each"),
            "{why}"
        );
        assert!(checked(probed(1.0), Some(virtio)).is_err());
        assert_eq!(checked(probed(90.0), Some(virtio)).unwrap(), probed(90.0));
        // The transfer over the bus alone takes 7 µs.
        assert!(checked(probed(10.0), Some(sata)).is_err());
        assert_eq!(checked(probed(13.0), Some(sata)).unwrap(), probed(13.0));
    }

    #[test]
    fn probe_of_a_file_system_in_memory_is_refused() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        fs::write(dir.path().join("image"), vec![1; 4 << 20]).unwrap();
        let why = probe(dir.path()).unwrap_err().to_string();
        // Kernels before 6.6 do not support direct I/O there.
        let refused = ["is in memory", "with direct I/O"];
        assert!(refused.iter().any(|w| why.contains(w)), "{why}");
    }

    #[test]
    fn probe_positions_are_inside_the_file_and_spread_out() {
        let mut all: Vec<u64> = places(1000).take(64).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 60 && all.iter().all(|p| *p < 1000), "{all:?}");
        assert!(all[0] < 100 && all[all.len() - 1] > 900, "{all:?}");
        assert!(places(1).all(|p| p == 0));
    }
}
