//! Periodic checks on helper threads: space in file systems, whether a device's file is still at its path, whether a
//! remote device responds and is the right one.
//!
//! ```text
//!   keeper, once a second ──▶ look ──begin──▶ helper thread: statvfs, stat, a read of the superblock
//!                              │  ◀── result, at any later time ──────┘
//!                              └─ last result, and the time since then
//! ```
//!
//! The keeper never waits for these checks: a silent network file system or server must not block it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use array::{DeviceKind, SUPERBLOCKS_BYTES};
use rustix::fs::statvfs;
use units::DeviceId;

use super::Keeper;
use crate::client::{self, ClientError};
use crate::device::{Device, Medium};
use crate::helper_thread::HelperThread;
use crate::text::explain;

/// Interval between checks of a file or a file system.
const NEAR: Duration = Duration::from_secs(1);

/// Interval between checks of a remote device, each with a new connection.
const FAR: Duration = Duration::from_secs(5);

/// Pause before an unexpected superblock is read again. It is shorter than [`PATIENCE`], the time limit of this
/// check. Usually the superblock was being written and is complete by then. Otherwise the next check finds it.
const REWRITTEN: Duration = Duration::from_secs(3);

/// Time without a response after which a device counts as unresponsive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Fault of a device in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeviceFault {
    /// The device does not respond.
    NoReply(String),
    /// Another device responds in its place.
    Another(String),
    /// The file of the device was deleted.
    Deleted(String),
    /// The file or block device is no longer at its path.
    Elsewhere(String),
}

/// Periodic checks.
#[derive(Default)]
pub(super) struct Looks {
    rooms: BTreeMap<PathBuf, Look<Option<(u64, u64)>>>,
    devices: BTreeMap<DeviceId, DeviceCheck>,
}

/// Device with its periodic check.
struct DeviceCheck {
    device: Weak<Device>,
    look: Look<Option<DeviceFault>>,
    /// Time of the last check without a fault.
    well: Instant,
}

/// Periodic check of one object.
struct Look<T> {
    helper: HelperThread,
    pending: Option<Receiver<T>>,
    seen: Option<T>,
    ended: Option<Instant>,
}

impl<T: Send + 'static> Look<T> {
    fn new() -> Self {
        Self {
            helper: HelperThread::default(),
            pending: None,
            seen: None,
            ended: None,
        }
    }

    /// Receives a result, and starts the next check if it is due. Returns true if a new result has arrived.
    fn turn(&mut self, every: Duration, how: impl FnOnce() -> T + Send + 'static) -> bool {
        let mut new = false;
        match self.pending.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return false,
            Some(Ok(seen)) => {
                (self.seen, self.ended, new) = (Some(seen), Some(Instant::now()), true);
            }
            Some(Err(TryRecvError::Disconnected)) | None => {}
        }
        self.pending = None;
        if self.ended.is_none_or(|at| at.elapsed() >= every) {
            self.pending = self.helper.begin(|_| how());
        }
        new
    }
}

impl Keeper {
    /// Runs the checks. The keeper calls it about once a second.
    pub(super) fn look_around(&mut self) {
        let files = self.records.values();
        let files =
            files.filter(|r| r.kind == DeviceKind::File && self.devices.contains_key(&r.id));
        let mut dirs: Vec<PathBuf> = files.map(|r| dir_of(&r.path)).collect();
        dirs.extend(self.map.health().iter().map(|h| dir_of(&h.1)));
        let looks = &mut self.watch.looks;
        looks.rooms.retain(|dir, _| dirs.contains(dir));
        for dir in dirs {
            let look = looks.rooms.entry(dir.clone()).or_insert_with(Look::new);
            look.turn(NEAR, move || room(&dir));
        }
        let same = |id: &DeviceId, l: &DeviceCheck| {
            let used = self.devices.get(id).map(Arc::as_ptr);
            used == Some(l.device.as_ptr())
        };
        looks.devices.retain(|id, looked| same(id, looked));
        for (id, device) in &self.devices {
            let looked = looks.devices.entry(*id).or_insert_with(|| DeviceCheck {
                device: Arc::downgrade(device),
                look: Look::new(),
                well: Instant::now(),
            });
            let (device, path) = (device.clone(), self.records[id].path.clone());
            let every = match device.medium {
                Medium::Nbd(..) => FAR,
                _ => NEAR,
            };
            let new = looked.look.turn(every, move || fault_of(&device, &path));
            if new && looked.look.seen == Some(None) {
                looked.well = Instant::now();
            }
        }
    }

    /// Returns the known fault of a device in use.
    pub(super) fn looked_at(&self, id: DeviceId) -> Option<DeviceFault> {
        let silent = |time: Duration| DeviceFault::NoReply(for_so_long(time, ""));
        let device = self.devices.get(&id)?;
        if let Some(time) = device.silent_for().filter(|t| *t >= PATIENCE) {
            return Some(silent(time));
        }
        let looked = self.watch.looks.devices.get(&id)?;
        let overdue = looked.look.helper.busy_for().filter(|t| *t >= PATIENCE);
        match looked.look.seen.clone().flatten() {
            Some(DeviceFault::NoReply(why)) => {
                let time = looked.well.elapsed();
                Some(DeviceFault::NoReply(for_so_long(
                    time,
                    &format!(" ({why})"),
                )))
            }
            None => overdue.map(silent),
            wrong => wrong,
        }
    }

    /// Returns true unless a device is known to be unresponsive or replaced.
    pub(crate) fn answers(&self, id: DeviceId) -> bool {
        !matches!(
            self.looked_at(id),
            Some(DeviceFault::NoReply(_) | DeviceFault::Another(_))
        )
    }

    /// Returns the bytes of a file system: free for this process, and total.
    pub(super) fn room(&self, dir: &Path) -> Option<(u64, u64)> {
        match self.serves {
            true => self.watch.looks.rooms.get(dir)?.seen?,
            // Only the command itself waits.
            false => room(dir),
        }
    }
}

fn for_so_long(time: Duration, why: &str) -> String {
    format!("no response for {} s{why}", time.as_secs())
}

fn room(dir: &Path) -> Option<(u64, u64)> {
    let stat = statvfs(dir).ok()?;
    Some((stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
}

/// Returns the directory of a file.
pub(super) fn dir_of(path: &str) -> PathBuf {
    let dir = Path::new(path).parent().filter(|d| *d != Path::new(""));
    dir.unwrap_or(Path::new(".")).to_owned()
}

fn fault_of(device: &Device, path: &str) -> Option<DeviceFault> {
    match &device.medium {
        Medium::File(file, _) => is_at(file, path).unwrap_or_else(|e| {
            let why = format!("cannot inspect {path}: {e}");
            Some(DeviceFault::NoReply(why))
        }),
        Medium::Nbd(uri) => is_right(device, uri),
        Medium::Lost => None,
    }
}

/// Checks that an open file is the one at its path.
fn is_at(file: &File, path: &str) -> io::Result<Option<DeviceFault>> {
    let open = file.metadata()?;
    let there = match std::fs::metadata(path) {
        Ok(there) => Some(there),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            None
        }
        Err(error) => return Err(error),
    };
    let which = |m: &std::fs::Metadata| match m.file_type().is_block_device() {
        // A device node may be created again.
        true => (true, 0, m.rdev()),
        false => (false, m.dev(), m.ino()),
    };
    let is_it = there.is_some_and(|there| which(&there) == which(&open));
    Ok(match (is_it, open.nlink()) {
        (true, _) => None,
        (false, 0) => Some(DeviceFault::Deleted(path.into())),
        (false, _) => Some(DeviceFault::Elsewhere(path.into())),
    })
}

/// Checks that a remote device responds with the expected superblock.
fn is_right(device: &Device, uri: &nbd::Uri) -> Option<DeviceFault> {
    let look = || {
        let length = SUPERBLOCKS_BYTES as u32;
        let found = client::read_within(uri, client::QUICK_TIME, 0, length)?;
        Ok(device.is_same(&found))
    };
    let mut right = look();
    if matches!(right, Ok(false)) {
        // The superblock may be in the middle of a write.
        std::thread::sleep(REWRITTEN);
        right = look();
    }
    match right {
        Ok(true) => None,
        Ok(false) => Some(DeviceFault::Another(
            "the device there has another superblock: it is another device, or an older copy of this one"
                .into(),
        )),
        Err(error @ ClientError::Failed { .. }) => Some(DeviceFault::Another(format!(
            "the device there has no superblock: {}",
            explain(&error)
        ))),
        Err(ClientError::Io { source, .. })
            if matches!(
                source.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Some(DeviceFault::NoReply(
                "it accepts connections, but does not respond".into(),
            ))
        }
        Err(error) => Some(DeviceFault::NoReply(explain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_or_deleted_file_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.extents");
        let name = path.display().to_string();
        let file = File::create(&path).unwrap();
        assert_eq!(is_at(&file, &name).unwrap(), None);
        let moved = dir.path().join("two");
        std::fs::rename(&path, &moved).unwrap();
        let elsewhere = Some(DeviceFault::Elsewhere(name.clone()));
        assert_eq!(is_at(&file, &name).unwrap(), elsewhere);
        // Another file at its path.
        File::create(&path).unwrap();
        assert_eq!(is_at(&file, &name).unwrap(), elsewhere);
        std::fs::rename(&moved, &path).unwrap();
        assert_eq!(is_at(&file, &name).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            is_at(&file, &name).unwrap(),
            Some(DeviceFault::Deleted(name))
        );
    }

    #[test]
    fn hanging_file_check_is_not_started_again() {
        let mut look = Look::new();
        let (go, gate) = std::sync::mpsc::channel::<()>();
        look.turn(Duration::ZERO, move || gate.recv().is_ok());
        for _ in 0..10 {
            assert!(!look.turn(Duration::ZERO, || panic!("it is busy")));
        }
        assert!(look.helper.busy_for().is_some());
        go.send(()).unwrap();
        while !look.turn(Duration::from_secs(60), || false) {
            std::thread::yield_now();
        }
        assert_eq!(look.seen, Some(true));
    }
}
