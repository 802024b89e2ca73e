//! What is looked at all the time, by threads of their own: room in file systems, whether the file of a device is where it was, whether a
//! remote device answers and is the right one.
//!
//! ```text
//!   keeper, once a second ──▶ look ──begin──▶ helper thread: statvfs, stat, a read of the superblock
//!                              │  ◀── what it saw, whenever that is ──┘
//!                              └─ what it saw last, and since when it has seen nothing
//! ```
//!
//! The keeper never waits for any of it: a network file system, or a server, that is silent must not keep it.

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

/// Time between two looks at a file or a file system.
const NEAR: Duration = Duration::from_secs(1);

/// Time between two looks at a remote device: each makes a connection.
const FAR: Duration = Duration::from_secs(5);

/// A superblock that is not what it must be is looked at again after so long: less than [`PATIENCE`], by which this look is judged itself. Mostly it is written
/// by then; where not, the next look finds it.
const REWRITTEN: Duration = Duration::from_secs(3);

/// A device that lets us wait longer does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is wrong with a device that is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It does not answer.
    NoReply(String),
    /// Another device answers in its place.
    Another(String),
    /// Its file was deleted.
    Deleted(String),
    /// Its file, or block device, is not at its path any more.
    Elsewhere(String),
}

/// Looks that go on.
#[derive(Default)]
pub(super) struct Looks {
    rooms: BTreeMap<PathBuf, Look<Option<(u64, u64)>>>,
    devices: BTreeMap<DeviceId, Looked>,
}

/// A device that is looked at.
struct Looked {
    device: Weak<Device>,
    look: Look<Option<Wrong>>,
    /// When nothing was wrong last.
    well: Instant,
}

/// One thing that is looked at again and again.
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

    /// Takes what was seen, and looks again if it is time; whether something new was seen.
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
    /// To be called about once a second.
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
        let same = |id: &DeviceId, l: &Looked| {
            let used = self.devices.get(id).map(Arc::as_ptr);
            used == Some(l.device.as_ptr())
        };
        looks.devices.retain(|id, looked| same(id, looked));
        for (id, device) in &self.devices {
            let looked = looks.devices.entry(*id).or_insert_with(|| Looked {
                device: Arc::downgrade(device),
                look: Look::new(),
                well: Instant::now(),
            });
            let (device, path) = (device.clone(), self.records[id].path.clone());
            let every = match device.medium {
                Medium::Nbd(..) => FAR,
                _ => NEAR,
            };
            let new = looked
                .look
                .turn(every, move || what_is_wrong(&device, &path));
            if new && looked.look.seen == Some(None) {
                looked.well = Instant::now();
            }
        }
    }

    /// What is wrong with a device in use, as far as is known.
    pub(super) fn looked_at(&self, id: DeviceId) -> Option<Wrong> {
        let silent = |time: Duration| Wrong::NoReply(for_so_long(time, ""));
        let device = self.devices.get(&id)?;
        if let Some(time) = device.silent_for().filter(|t| *t >= PATIENCE) {
            return Some(silent(time));
        }
        let looked = self.watch.looks.devices.get(&id)?;
        let overdue = looked.look.helper.busy_for().filter(|t| *t >= PATIENCE);
        match looked.look.seen.clone().flatten() {
            Some(Wrong::NoReply(why)) => {
                let time = looked.well.elapsed();
                Some(Wrong::NoReply(for_so_long(time, &format!(" ({why})"))))
            }
            None => overdue.map(silent),
            wrong => wrong,
        }
    }

    /// Whether a device answers, and is the right one, as far as is known.
    pub(crate) fn answers(&self, id: DeviceId) -> bool {
        !matches!(
            self.looked_at(id),
            Some(Wrong::NoReply(_) | Wrong::Another(_))
        )
    }

    /// Bytes that are free for us in a file system, and all of it.
    pub(super) fn room(&self, dir: &Path) -> Option<(u64, u64)> {
        match self.serves {
            true => self.watch.looks.rooms.get(dir)?.seen?,
            // Nobody waits but the one who asks.
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

/// The directory of a file.
pub(super) fn dir_of(path: &str) -> PathBuf {
    let dir = Path::new(path).parent().filter(|d| *d != Path::new(""));
    dir.unwrap_or(Path::new(".")).to_owned()
}

fn what_is_wrong(device: &Device, path: &str) -> Option<Wrong> {
    match &device.medium {
        Medium::File(file, _) => is_at(file, path).unwrap_or_else(|e| {
            let why = format!("cannot inspect {path}: {e}");
            Some(Wrong::NoReply(why))
        }),
        Medium::Nbd(uri) => is_right(device, uri),
        Medium::Lost => None,
    }
}

/// Whether a file that is open is the one at its path.
fn is_at(file: &File, path: &str) -> io::Result<Option<Wrong>> {
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
        // A device node may be made anew.
        true => (true, 0, m.rdev()),
        false => (false, m.dev(), m.ino()),
    };
    let is_it = there.is_some_and(|there| which(&there) == which(&open));
    Ok(match (is_it, open.nlink()) {
        (true, _) => None,
        (false, 0) => Some(Wrong::Deleted(path.into())),
        (false, _) => Some(Wrong::Elsewhere(path.into())),
    })
}

/// Whether a remote device answers with the superblock that it must have.
fn is_right(device: &Device, uri: &nbd::Uri) -> Option<Wrong> {
    let look = || {
        let length = SUPERBLOCKS_BYTES as u32;
        let found = client::read_within(uri, client::QUICK_TIME, 0, length)?;
        Ok(device.is_same(&found))
    };
    let mut right = look();
    if matches!(right, Ok(false)) {
        // It may be being written at this moment.
        std::thread::sleep(REWRITTEN);
        right = look();
    }
    match right {
        Ok(true) => None,
        Ok(false) => Some(Wrong::Another(
            "the device there has another superblock: it is another device, or an older copy of this one"
                .into(),
        )),
        Err(error @ ClientError::Failed { .. }) => Some(Wrong::Another(format!(
            "the device there has no superblock: {}",
            explain(&error)
        ))),
        Err(ClientError::Io { source, .. })
            if matches!(
                source.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Some(Wrong::NoReply(
                "it accepts connections, but does not respond".into(),
            ))
        }
        Err(error) => Some(Wrong::NoReply(explain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_at_its_path_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one.extents");
        let name = path.display().to_string();
        let file = File::create(&path).unwrap();
        assert_eq!(is_at(&file, &name).unwrap(), None);
        let moved = dir.path().join("two");
        std::fs::rename(&path, &moved).unwrap();
        let elsewhere = Some(Wrong::Elsewhere(name.clone()));
        assert_eq!(is_at(&file, &name).unwrap(), elsewhere);
        // Another file in its place.
        File::create(&path).unwrap();
        assert_eq!(is_at(&file, &name).unwrap(), elsewhere);
        std::fs::rename(&moved, &path).unwrap();
        assert_eq!(is_at(&file, &name).unwrap(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(is_at(&file, &name).unwrap(), Some(Wrong::Deleted(name)));
    }

    #[test]
    fn a_look_that_hangs_is_not_begun_again() {
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
