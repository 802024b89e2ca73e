//! Measures the latency of a directory's device with a few reads of an existing file.
//!
//! The reads bypass the page cache and skip holes, which a file system answers without the device. A result that the device cannot have is
//! refused, because a memory answered: a file system in memory, the cache of a hypervisor, or that of a controller. A slower cache cannot be
//! told from the medium.

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

use crate::kernel::medium_of;

/// Reads of a probe and the time that they may take, whichever is less: nobody's guests are to notice.
const READS: u32 = 64;
const TIME: Duration = Duration::from_secs(2);
/// Of fewer reads nothing is said.
const READS_MIN: usize = 8;
/// A device that answers nothing for so long keeps nobody waiting.
const SILENT: Duration = Duration::from_secs(5);
/// Bytes of a read, and what it is aligned to.
const READ_BYTES: usize = 4096;
/// A smaller file is read again and again at the same places.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Files that are tried, the largest first.
const FILES_TRIED: usize = 8;
/// Types of file systems whose files are in memory: tmpfs and ramfs. Their "direct" reads are copies.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probed {
    /// Median time of a read, microseconds.
    pub median_us: f64,
    /// Reads that were made.
    pub reads: u32,
}

/// Reads a little of the largest file in a directory that can be read.
///
/// # Errors
/// Why nothing can be said.
pub fn probe(directory: &Path) -> Result<Probed, String> {
    let directory = directory.to_owned();
    let (sender, receiver) = channel();
    // A read that hangs cannot be given up: its thread is left to itself.
    let thread = std::thread::Builder::new().name("terrace-probe".into());
    let begun = thread.spawn(move || sender.send(of_directory(&directory)));
    begun.map_err(|e| format!("cannot start a thread for it: {e}"))?;
    let silent = |_| Err(format!("no answer within {} s", (TIME + SILENT).as_secs()));
    receiver.recv_timeout(TIME + SILENT).unwrap_or_else(silent)
}

fn of_directory(directory: &Path) -> Result<Probed, String> {
    let mut files = files(directory).map_err(|e| format!("cannot list the directory: {e}"))?;
    files.sort_by(|a, b| b.cmp(a));
    let mut why = format!(
        "the directory has no file of at least {} MiB",
        FILE_BYTES_MIN >> 20
    );
    let until = Instant::now() + TIME;
    for (_, path) in files.into_iter().take(FILES_TRIED) {
        if Instant::now() >= until {
            break;
        }
        match of_file(&path, until) {
            Ok(probed) => return Ok(probed),
            Err(said) => why = format!("{}: {said}", path.display()),
        }
    }
    Err(why)
}

/// Plain files that are large enough, by the bytes that they take.
fn files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = vec![];
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Of a link this is the link's own.
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
    // Whose file it is not may not keep its time of access as it is.
    match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        other => other,
    }
}

/// Refuses a result that the device of this medium cannot have.
fn checked(probed: Probed, medium: Option<Medium>) -> Result<Probed, String> {
    let Probed { median_us, reads } = probed;
    let (least_us, what) = match medium {
        Some(medium) => (medium.read_us_min(READ_BYTES), medium.to_string()),
        None => (model::LATENCY_MIN_US, "a device".into()),
    };
    if median_us >= least_us {
        return Ok(probed);
    }
    Err(format!(
        "refused an impossible result: {reads} reads of 4 KiB took {median_us:.1} µs each (median), and {what} needs at least {least_us:.0} µs, so a cache or a file system in memory answered; measure the device with `terrace device calibrate`, or name a preset with --preset"
    ))
}

fn of_file(path: &Path, until: Instant) -> Result<Probed, String> {
    let file = open(path).map_err(|e| format!("cannot open it with direct I/O: {e}"))?;
    let said = |e: Errno| format!("cannot read it: {e}");
    let file_system = rustix::fs::fstatfs(&file).map_err(said)?.f_type as u64;
    // The type is a signed word on some platforms.
    if IN_MEMORY.contains(&(file_system & 0xffff_ffff)) {
        return Err("its file system is in memory, so no device answers".into());
    }
    let pages = rustix::fs::fstat(&file).map_err(said)?.st_size as u64 / READ_BYTES as u64;
    let mut memory = vec![0u8; 2 * READ_BYTES];
    let skip = memory.as_ptr().align_offset(READ_BYTES);
    let buffer = memory.get_mut(skip..skip + READ_BYTES);
    let buffer = buffer.ok_or("no aligned memory for it")?;
    let mut took_us = vec![];
    for place in places(pages) {
        if took_us.len() >= READS as usize || Instant::now() >= until {
            break;
        }
        let Some(at) = data_at(&file, place * READ_BYTES as u64).map_err(said)? else {
            continue;
        };
        let before = Instant::now();
        if rustix::io::pread(&file, &mut *buffer, at).map_err(said)? == READ_BYTES {
            took_us.push(before.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    if took_us.len() < READS_MIN {
        let reads = took_us.len();
        return Err(format!(
            "only {reads} reads completed within {} s",
            TIME.as_secs()
        ));
    }
    took_us.sort_by(f64::total_cmp);
    let probed = Probed {
        median_us: took_us[took_us.len() / 2],
        reads: took_us.len() as u32,
    };
    checked(probed, medium_of(path))
}

/// Pages of a file in an order that is spread over all of it, another one each time: steps of the golden ratio never come close to one another.
fn places(pages: u64) -> impl Iterator<Item = u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let start = f64::from(now.map_or(0, |d| d.subsec_nanos())) / 1e9;
    let step = 0.618_033_988_749_895;
    (0..4 * READS).map(move |i| {
        let at = (start + step * f64::from(i)).fract();
        ((at * pages as f64) as u64).min(pages.saturating_sub(1))
    })
}

/// The next page that has data; none if that would be beyond the last whole one.
fn data_at(file: &OwnedFd, from: u64) -> Result<Option<u64>, Errno> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    let data = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(at) => at,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that does not say has data everywhere.
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
    fn a_little_is_read_of_what_is_there_and_nothing_of_holes() {
        // Beside the sources: a directory for temporary files may be in memory.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::write(dir.path().join("small"), [1; 4096]).unwrap();
        let hole = fs::File::create(dir.path().join("hole")).unwrap();
        hole.set_len(64 << 20).unwrap();
        let none = "the directory has no file of at least 1 MiB";
        assert_eq!(probe(dir.path()).unwrap_err(), none);
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("link")).unwrap();
        assert_eq!(probe(dir.path()).unwrap_err(), none);
        fs::write(dir.path().join("image"), vec![1; 4 << 20]).unwrap();
        let probed = probe(dir.path()).unwrap();
        assert_eq!(probed.reads, READS);
        assert!(probed.median_us > 0.0, "{probed:?}");
        assert!(
            probe(&dir.path().join("gone"))
                .unwrap_err()
                .starts_with("cannot list the directory")
        );
    }

    #[test]
    fn results_that_a_device_cannot_have_are_refused() {
        let probed = |median_us| Probed {
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
        let why = checked(probed(1.0), None).unwrap_err();
        assert!(
            why.starts_with("refused an impossible result: 64 reads of 4 KiB took 1.0 µs each"),
            "{why}"
        );
        assert!(checked(probed(1.0), Some(virtio)).is_err());
        assert_eq!(checked(probed(90.0), Some(virtio)), Ok(probed(90.0)));
        // The bus alone needs 7 µs.
        assert!(checked(probed(10.0), Some(sata)).is_err());
        assert_eq!(checked(probed(13.0), Some(sata)), Ok(probed(13.0)));
    }

    #[test]
    fn a_file_system_in_memory_is_refused() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        fs::write(dir.path().join("image"), vec![1; 4 << 20]).unwrap();
        let why = probe(dir.path()).unwrap_err();
        // Kernels before 6.6 have no direct I/O there.
        let refused = ["is in memory", "with direct I/O"];
        assert!(refused.iter().any(|w| why.contains(w)), "{why}");
    }

    #[test]
    fn places_are_in_the_file_and_spread_over_it() {
        let mut all: Vec<u64> = places(1000).take(64).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 60 && all.iter().all(|p| *p < 1000), "{all:?}");
        assert!(all[0] < 100 && all[all.len() - 1] > 900, "{all:?}");
        assert!(places(1).all(|p| p == 0));
    }
}
