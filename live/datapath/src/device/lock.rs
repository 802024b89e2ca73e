//! Exclusive use of a device: one process at a time, after the direct writes of the previous
//! process.
//!
//! ```text
//!   file:          plain opening ─▶ flock
//!   block device:  plain opening ─▶ O_EXCL opening, which replaces it ─▶ flock
//! ```
//!
//! A process has one locked opening of a device. For a block device that opening is exclusive
//! (`O_EXCL`). While it is open, `mount`, `mkfs`, `swapon`, LVM and the like fail with EBUSY. While
//! one of these uses the device, the opening fails with EBUSY. All further openings are plain and
//! share the lock. The lock and the exclusive claim belong to the open file description, so a
//! take-over passes that very descriptor to the next process.
//!
//! A killed process leaves direct writes in flight. They end when the device completes them, and
//! could overwrite data of the next process. Each such write keeps its opening alive, and with it
//! the lock of that opening.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use array::{DeviceKind, DeviceRecord};
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;

use super::{DeviceError, reopened, system, users};

/// Time to wait for the lock or the exclusive claim of another process. The system takes either for
/// a moment when it inspects a block device.
const LOCK_TIME: Duration = Duration::from_secs(3);

/// Time between two attempts to get a lock or a claim.
const PAUSE: Duration = Duration::from_millis(20);

/// Byte of a device's file that openings for direct I/O lock for reading.
const DIRECT_BYTE: i64 = 0;

/// Time to wait for direct writes of a process that has ended. A start may spend ten seconds on the
/// opening of a device.
const END_TIME: Duration = Duration::from_secs(6);

/// Purpose of an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenPurpose {
    /// The device is about to be formatted: neither this process nor another one may use it.
    New,
    /// The device belongs to an array, and this process may have opened it already.
    Known,
    /// Another process opened, locked and claimed the device and hands it over.
    Handed,
}

/// Opening of a device that this process may use.
#[derive(Debug)]
pub(super) struct ClaimedFile {
    /// The opening for I/O.
    pub file: Arc<File>,
    /// The opening with the lock and, for a block device, the exclusive claim. May equal `file`.
    pub locked: Arc<File>,
}

/// State that all openings of a device in this process share.
#[derive(Default)]
struct LockState {
    /// The locked opening.
    locked: Mutex<Weak<File>>,
    /// True if no write of an earlier process is in flight.
    ended: AtomicBool,
}

/// Identity of a file, or of a block device under any of its nodes.
type Key = (bool, u64, u64);

/// Opens the file of a device for reading and writing, without a claim.
pub(super) fn open_plain(record: &DeviceRecord) -> Result<File, DeviceError> {
    let opened = OpenOptions::new().read(true).write(true).open(&record.path);
    opened.map_err(|error| {
        let busy = error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
        match std::fs::metadata(&record.path) {
            // Linux may be built to refuse writes to mounted devices.
            Ok(meta) if busy && record.kind == DeviceKind::Block => {
                let by = user_of(meta.rdev()).unwrap_or_else(|| EXCLUSIVE.into());
                in_use(record, by)
            }
            _ => system(record, "open")(error),
        }
    })
}

/// Locks an opening and, for a block device, claims the device exclusively.
///
/// # Errors
/// [`DeviceError::InUse`] with the user, [`DeviceError::UnderWay`], and errors of the system.
pub(super) fn claim(
    file: Arc<File>,
    record: &DeviceRecord,
    opening: OpenPurpose,
) -> Result<ClaimedFile, DeviceError> {
    let until = Instant::now() + LOCK_TIME;
    let meta = file.metadata().map_err(system(record, "inspect"))?;
    let is_block = meta.file_type().is_block_device();
    let key = match is_block {
        true => (true, meta.rdev(), 0),
        false => (false, meta.dev(), meta.ino()),
    };
    let shared = shared(key);
    // Other openings of this device wait here and then share the lock.
    let mut first = shared.locked.lock().unwrap_or_else(PoisonError::into_inner);
    while opening == OpenPurpose::New && first.strong_count() > 0 {
        if Instant::now() >= until {
            return Err(in_use(record, "this process has already opened it".into()));
        }
        std::thread::sleep(PAUSE);
    }
    let claimed = match first.upgrade() {
        Some(locked) => ClaimedFile { file, locked },
        None => {
            shared.ended.store(false, Ordering::Release);
            let file = match is_block && opening != OpenPurpose::Handed {
                true => Arc::new(open_exclusively(&file, until, record)?),
                false => file,
            };
            let locked = file.clone();
            ClaimedFile { file, locked }
        }
    };
    *first = Arc::downgrade(&claimed.locked);
    drop(first);
    take(&claimed.locked, until, record)?;
    // Workers track the writes of this process. Only writes of earlier processes are waited for.
    if opening != OpenPurpose::Handed && !shared.ended.load(Ordering::Acquire) {
        wait_for_writes(&claimed.file, Instant::now() + END_TIME, record)?;
    }
    shared.ended.store(true, Ordering::Release);
    Ok(claimed)
}

/// Returns the state of a device that is open in this process, or a new one.
fn shared(key: Key) -> Arc<LockState> {
    static ALL: Mutex<BTreeMap<Key, Arc<LockState>>> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, shared| {
        // A thread that opens the device may hold this mutex for seconds.
        let used = || shared.locked.lock().is_ok_and(|l| l.strong_count() > 0);
        Arc::strong_count(shared) > 1 || used()
    });
    all.entry(key).or_default().clone()
}

const EXCLUSIVE: &str = "another process has it open exclusively";

/// Opens a block device again, with the exclusive claim. EBUSY means that the device is in use.
fn open_exclusively(
    plain: &File,
    until: Instant,
    record: &DeviceRecord,
) -> Result<File, DeviceError> {
    loop {
        let error = match reopened(plain, OFlags::EXCL) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        if error.raw_os_error() != Some(Errno::BUSY.raw_os_error()) {
            return Err(system(record, "open exclusively")(error));
        }
        let meta = plain.metadata().map_err(system(record, "inspect"))?;
        if let Some(by) = user_of(meta.rdev()) {
            return Err(in_use(record, by));
        }
        if Instant::now() >= until {
            let by = match crate::source::users(plain) {
                users if users.is_empty() => EXCLUSIVE.into(),
                users => format!("{EXCLUSIVE} (open in: {})", users.join("; ")),
            };
            return Err(in_use(record, by));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the user of a block device that this process has not opened; `None` if it is unused, as far as this
/// process can see. The opening changes nothing on the device.
///
/// # Errors
/// The device cannot be opened.
pub fn user_of_device(path: &Path) -> std::io::Result<Option<String>> {
    let plain = File::open(path)?;
    let exclusive = OFlags::EXCL.bits() as i32;
    let until = Instant::now() + LOCK_TIME;
    loop {
        let user = match OpenOptions::new()
            .read(true)
            .custom_flags(exclusive)
            .open(path)
        {
            Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                let user = user_of(plain.metadata()?.rdev());
                Some(user.unwrap_or_else(|| EXCLUSIVE.into()))
            }
            Err(e) => return Err(e),
            Ok(_) => None,
        };
        let user = user.or_else(|| crate::source::image_in_use(&plain));
        let user = user.or_else(|| crate::source::users(&plain).into_iter().next());
        // The system inspects a device for a moment when it appears or changes.
        if user.is_none() || Instant::now() >= until {
            return Ok(user);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Names the mount, swap space or device that uses a block device.
fn user_of(rdev: u64) -> Option<String> {
    let number = (major(rdev), minor(rdev));
    users::user_of(Path::new("/proc"), Path::new("/sys"), number)
}

fn in_use(record: &DeviceRecord, by: String) -> DeviceError {
    DeviceError::InUse {
        name: record.name.clone(),
        path: record.path.clone(),
        by,
    }
}

fn take(file: &File, until: Instant, record: &DeviceRecord) -> Result<(), DeviceError> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => {
                let by = "another process has locked it, probably a server of its array";
                return Err(in_use(record, by.into()));
            }
            // Some file systems have no locks: the lock of the map must suffice there.
            Ok(()) | Err(_) => return Ok(()),
        }
    }
}

/// Waits until the direct writes of other processes have ended.
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
    // Without support for these locks, no process has one.
    looked.is_ok() && found.l_type != libc::F_UNLCK as i16
}

/// Marks an opening for direct I/O. The next process that opens the device waits for its requests, also after a crash
/// of this one.
pub(super) fn mark_direct(opening: &File) {
    let lock = direct_byte(libc::F_RDLCK);
    if let Err(why) = fcntl(opening.as_fd(), FcntlArg::F_OFD_SETLK(&lock)) {
        tracing::info!(%why, "the file system does not support locks: if this server is killed, its successor cannot wait for the writes in flight");
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

    /// Opens a device with direct I/O, if the file system supports it.
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
    fn device_is_not_reopened_before_requests_in_flight_have_ended() {
        let dir = tempfile::tempdir().unwrap();
        let record = record(&dir);
        let device = opened(&record).unwrap();
        // A request in flight keeps its opening alive, but no other part of the process.
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
