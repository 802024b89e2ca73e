//! A device is one process's at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use array::DeviceRecord;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::DeviceError;

/// How long somebody else's lock on a device is waited for.
const LOCK_TIME: Duration = Duration::from_secs(3);

/// Whoever has an array has its devices alone: the map can be lost or restored under a server, the devices say that it is there. The
/// system looks at block devices now and then, under such a lock too: that is waited for. Within a process a device may be open more than
/// once, when it is tried: all share the lock of the first. The file that has it.
pub(super) fn lock(file: &Arc<File>, record: &DeviceRecord) -> Result<Arc<File>, DeviceError> {
    static LOCKS: Mutex<BTreeMap<(u64, u64), Weak<File>>> = Mutex::new(BTreeMap::new());
    let own = match file.metadata() {
        Ok(meta) => (meta.dev(), meta.ino()),
        Err(_) => return Ok(file.clone()),
    };
    let shared = {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        let first = locks.get(&own).and_then(Weak::upgrade);
        let shared = first.unwrap_or_else(|| file.clone());
        locks.insert(own, Arc::downgrade(&shared));
        shared
    };
    let until = Instant::now() + LOCK_TIME;
    loop {
        match flock(&*shared, FlockOperation::NonBlockingLockExclusive) {
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
            Ok(()) | Err(_) => return Ok(shared),
        }
    }
}
