//! A device is one process's at a time, and what the last one still has under way ends first.
//!
//! A process that is killed leaves direct writes under way: they end when the device is done with them, and may overwrite what the next process
//! has written meanwhile. Each of them keeps its opening alive, and with it the lock that the opening has.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use array::DeviceRecord;
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::DeviceError;

/// How long somebody else's lock on a device is waited for.
const LOCK_TIME: Duration = Duration::from_secs(3);

/// The byte of a device's file that openings for direct I/O have a lock for reading on.
const DIRECT_BYTE: i64 = 0;

/// How long it is waited for what a process that has ended has under way there; opening a device may take ten seconds at a start.
const END_TIME: Duration = Duration::from_secs(6);

/// A device's file that is open in this process.
struct Opened {
    /// The one with the lock.
    first: Weak<File>,
    /// Nothing of an earlier process is under way there.
    ended: Arc<AtomicBool>,
}

/// Whoever has an array has its devices alone: the map can be lost or restored under a server, the devices say that it is there. The
/// system looks at block devices now and then, under such a lock too: that is waited for. Within a process a device may be open more than
/// once, when it is tried: all share the lock of the first. The file that has it.
///
/// One that another process hands over is used by that one still, or has been until now, and nothing of it is in flight.
pub(super) fn lock(
    file: &Arc<File>,
    record: &DeviceRecord,
    handed: bool,
) -> Result<Arc<File>, DeviceError> {
    static LOCKS: Mutex<BTreeMap<(u64, u64), Opened>> = Mutex::new(BTreeMap::new());
    let own = match file.metadata() {
        Ok(meta) => (meta.dev(), meta.ino()),
        Err(_) => return Ok(file.clone()),
    };
    let (shared, ended) = {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, opened| opened.first.strong_count() > 0);
        let opened = locks.entry(own).or_insert_with(|| Opened {
            first: Arc::downgrade(file),
            ended: Arc::new(AtomicBool::new(false)),
        });
        let shared = opened.first.upgrade().unwrap_or_else(|| file.clone());
        opened.first = Arc::downgrade(&shared);
        (shared, opened.ended.clone())
    };
    take(&shared, Instant::now() + LOCK_TIME, record)?;
    // What this process has under way there itself is the workers' to know.
    if !handed && !ended.load(Ordering::Acquire) {
        wait_for_writes(file, Instant::now() + END_TIME, record)?;
    }
    ended.store(true, Ordering::Release);
    Ok(shared)
}

fn take(file: &File, until: Instant, record: &DeviceRecord) -> Result<(), DeviceError> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::AGAIN) => {
                return Err(DeviceError::InUse {
                    name: record.name.clone(),
                    path: record.path.clone(),
                });
            }
            // Not every file system has locks: there the map's own has to do.
            Ok(()) | Err(_) => return Ok(()),
        }
    }
}

/// Waits until what another process had under way past the page cache has ended.
fn wait_for_writes(file: &File, until: Instant, record: &DeviceRecord) -> Result<(), DeviceError> {
    while has_direct_openings(file) {
        if Instant::now() >= until {
            return Err(DeviceError::UnderWay {
                name: record.name.clone(),
                path: record.path.clone(),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn has_direct_openings(file: &File) -> bool {
    let mut found = direct_byte(libc::F_WRLCK);
    let looked = fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut found));
    // Where there are no such locks, nobody has one.
    looked.is_ok() && found.l_type != libc::F_UNLCK as i16
}

/// Marks an opening for direct I/O: whoever opens the device next waits for its requests, whatever becomes of this process.
pub(super) fn mark_direct(opening: &File) {
    let lock = direct_byte(libc::F_RDLCK);
    if let Err(why) = fcntl(opening.as_fd(), FcntlArg::F_OFD_SETLK(&lock)) {
        tracing::info!(%why, "its file system has no locks: a server that is started after this one was killed cannot wait for what it had under way");
    }
}

fn direct_byte(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: DIRECT_BYTE,
        l_len: 1,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, DeviceError};
    use array::DeviceKind;
    use model::DirectIo;
    use units::{Bytes, DeviceId, TierId};

    /// An opened device whose direct I/O is on, where the file system has that.
    fn opened(record: &DeviceRecord) -> Result<Device, DeviceError> {
        let device = Device::open(EXTENT, record)?;
        device.settle_direct();
        Ok(device)
    }

    const EXTENT: Bytes = Bytes(1 << 20);

    fn record(dir: &tempfile::TempDir) -> DeviceRecord {
        let path = dir.path().join("device");
        let file = File::create(&path).unwrap();
        file.set_len(array::DATA_START + EXTENT.0).unwrap();
        DeviceRecord {
            id: DeviceId(0),
            tier: TierId(0),
            name: "slow-0".into(),
            kind: DeviceKind::File,
            path: path.to_str().unwrap().into(),
            slots: 1,
            high_water: 0,
            emulate: None,
            direct: DirectIo::On,
        }
    }

    #[test]
    fn the_next_process_waits_for_what_the_last_one_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let record = record(&dir);
        let device = opened(&record).unwrap();
        // A request that is under way keeps its opening alive, and nothing else of the process.
        let Some(request) = device.direct().map(|d| d.file.clone()) else {
            return testkit::needs::skipped("a file system with direct I/O for temporary files");
        };
        drop(device);
        let refused = opened(&record).unwrap_err();
        assert!(matches!(refused, DeviceError::UnderWay { .. }), "{refused}");
        let began = Instant::now();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(request);
        });
        opened(&record).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(200));
        ends.join().unwrap();
    }
}
