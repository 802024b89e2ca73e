//! Devices of the tiers, as workers see them: an open file or block device, or a remote export, with an emulated latency
//! if the array says so.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use algo::{DeviceModel, mix};
use array::{ArrayId, DATA_START, DeviceKind, DeviceRecord, SUPERBLOCKS_BYTES, Stamp, Superblock};
use model::Op;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use thiserror::Error;
use units::{Bytes, DeviceId};

use crate::hand::{Hand, Outcome, Wanted};
use crate::{client, clock};

/// Why a device cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The operating system refused.
    #[error("device {name:?}: cannot {what} {path}")]
    System {
        /// The device.
        name: String,
        /// The attempt.
        what: &'static str,
        /// Its path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error("device {name:?} ({path}) is in use by another process")]
    InUse {
        /// The device.
        name: String,
        /// Its path.
        path: String,
    },
    /// It is another one than the array's.
    #[error("device {name:?} ({path}): {why}")]
    Wrong {
        /// The device.
        name: String,
        /// Its path.
        path: String,
        /// What is wrong.
        why: String,
    },
}

/// Where a device's bytes are.
#[derive(Debug, Clone)]
pub enum Medium {
    /// A file or block device; slots begin at [`DATA_START`].
    File(Arc<File>, Backing),
    /// A remote export, and where its slots begin.
    Nbd(nbd::Uri, u64),
    /// It cannot be reached, or is not the array's: reads and writes fail at once.
    Lost,
}

/// What is behind a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Memory: reading and writing it is a copy, and never waits for a device.
    Memory,
    /// Anything else.
    Storage,
}

/// Whether a directory is on a file system in memory.
pub fn is_in_memory(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|dir| Backing::of(&dir) == Backing::Memory)
}

impl Backing {
    fn of(file: &File) -> Self {
        /// Filesystem types of tmpfs and ramfs.
        const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
        match rustix::fs::fstatfs(file) {
            Ok(stat) if IN_MEMORY.contains(&(stat.f_type as u64)) => Backing::Memory,
            _ => Backing::Storage,
        }
    }
}

/// One device.
#[derive(Debug)]
pub struct Device {
    /// Its number.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// Where its bytes are.
    pub medium: Medium,
    /// The file with this process's lock on it.
    locked: Option<Arc<File>>,
    emulated: Option<Mutex<DeviceModel>>,
    requests: AtomicU64,
    since_ns: u64,
    done: Done,
    errors: Mutex<Errors>,
    /// Number of errors, to see at a glance that there are more.
    failures: AtomicU64,
    /// What was last written as its superblock: a remote device must have it whenever it is connected to.
    superblock: Mutex<Option<Superblock>>,
    /// Takes space for slots.
    holder: Hand,
    /// Zeroes slots. Another hand than the one that takes space: zeroing waits for a flush, which may take long on a disk that works.
    zeroer: Hand,
    /// Zeroing that was not over in time, its end not yet heard of.
    late: Mutex<Option<Late>>,
}

/// Slots that are being zeroed longer than anybody waited.
#[derive(Debug)]
struct Late {
    slots: Vec<u32>,
    end: Receiver<Result<(), ZeroFailed>>,
}

/// Why slots could not be zeroed, with the errno if it has one.
type ZeroFailed = (ZeroError, Option<i32>);

/// Requests that failed in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// What was asked for.
    pub op: &'static str,
    /// How it failed.
    pub errno: i32,
    /// How often, since the device was opened.
    pub count: u64,
    /// When it last did.
    pub last: Instant,
}

/// Errors by kind and errno: how many, and when the last one was.
type Errors = BTreeMap<(&'static str, i32), (u64, Instant)>;

/// I/Os that workers have completed. Each counter by itself is exact; together they are of nearly the same moment.
#[derive(Debug, Default)]
struct Done {
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
}

/// What a device has done, for guests and for moves, since this process opened it. What failed does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCounts {
    /// When the counters began, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    /// Reads.
    pub reads: u64,
    /// Writes; trims, zeroes and flushes too, without bytes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time that an emulated device has been asked to be busy, in nanoseconds: it may lie ahead by what is in flight. A
    /// real device does not say.
    pub busy_ns: Option<u64>,
}

impl Device {
    /// Prepares a new device: creates its file at full (sparse) size and writes its superblock, durably.
    ///
    /// # Errors
    /// [`DeviceError`]. Of a file that could not be prepared nothing is left.
    pub fn format(id: ArrayId, extent: Bytes, record: &DeviceRecord) -> Result<(), DeviceError> {
        let failed = |what| system(record, what);
        let superblock = superblock_of(id, extent, record);
        if record.kind.is_remote() {
            let device = Self::open(extent, record)?;
            return device
                .write_superblock(&superblock)
                .map_err(failed("write"));
        }
        let is_file = record.kind == DeviceKind::File;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(is_file)
            // Guests' data is nobody else's.
            .mode(0o600)
            .open(&record.path)
            .map_err(failed("create"))?;
        let prepare = || -> Result<(), DeviceError> {
            if is_file {
                let bytes = DATA_START + u64::from(record.slots) * extent.0;
                file.set_len(bytes).map_err(failed("size"))?;
            }
            write_superblocks(&file, &superblock).map_err(failed("write"))?;
            file.sync_all().map_err(failed("flush"))?;
            if is_file && let Some(parent) = Path::new(&record.path).parent() {
                let parent = File::open(parent).map_err(failed("open the directory of"))?;
                parent
                    .sync_all()
                    .map_err(failed("flush the directory of"))?;
            }
            Ok(())
        };
        prepare().inspect_err(|_| {
            if is_file {
                let _ = std::fs::remove_file(&record.path);
            }
        })
    }

    /// Makes a device that left the array nobody's: its file is removed, the superblocks of others are zeroed.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn disown(&self, record: &DeviceRecord) -> Result<(), DeviceError> {
        let failed = |what| system(record, what);
        match (&self.medium, record.kind) {
            (Medium::File(..), DeviceKind::File) => {
                std::fs::remove_file(&record.path).map_err(failed("remove"))
            }
            (Medium::File(file, _), _) => {
                file.write_all_at(&[0; SUPERBLOCKS_BYTES], 0)
                    .map_err(failed("clear the superblock of"))?;
                file.sync_all().map_err(failed("flush"))
            }
            (Medium::Nbd(uri, start), _) if *start > 0 => {
                client::write_durably(uri, 0, &[0; SUPERBLOCKS_BYTES])
                    .map_err(io::Error::other)
                    .map_err(failed("clear the superblock of"))
            }
            _ => Ok(()),
        }
    }

    /// Opens a device. Whether it is the right one, its superblock says ([`SlotSpace::read_superblock`]).
    ///
    /// # Errors
    /// [`DeviceError`], also of one that is too small.
    pub fn open(extent: Bytes, record: &DeviceRecord) -> Result<Self, DeviceError> {
        let failed = |what| system(record, what);
        let wrong = |why: String| DeviceError::Wrong {
            name: record.name.clone(),
            path: record.path.clone(),
            why,
        };
        let mut locked = None;
        let medium = match record.kind {
            DeviceKind::Nbd | DeviceKind::BareNbd => {
                let uri: Result<nbd::Uri, _> = record.path.parse();
                let uri = uri.map_err(|e| wrong(e.to_string()))?;
                Medium::Nbd(uri, record.kind.data_start())
            }
            DeviceKind::File | DeviceKind::Block => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&record.path)
                    .map_err(failed("open"))?;
                let file = Arc::new(file);
                locked = Some(lock(&file, record)?);
                let need = DATA_START + u64::from(record.slots) * extent.0;
                let have = file_bytes(&file).map_err(failed("measure"))?;
                if have < need {
                    return Err(wrong(format!(
                        "it has {} and should have {}",
                        Bytes(have),
                        Bytes(need)
                    )));
                }
                let backing = Backing::of(&file);
                Medium::File(file, backing)
            }
            DeviceKind::Gone => Medium::Lost,
        };
        let emulated = record
            .emulate
            .as_ref()
            .map(|s| Mutex::new(DeviceModel::new(s)));
        Ok(Self {
            locked,
            ..Self::with(record.id, record.name.clone(), medium, emulated)
        })
    }

    /// One that cannot be used.
    pub fn lost(id: DeviceId, name: String) -> Self {
        Self::with(id, name, Medium::Lost, None)
    }

    /// A remote export that belongs to no array.
    pub fn remote(name: String, uri: nbd::Uri) -> Self {
        Self::with(DeviceId(0), name, Medium::Nbd(uri, 0), None)
    }

    fn with(
        id: DeviceId,
        name: String,
        medium: Medium,
        emulated: Option<Mutex<DeviceModel>>,
    ) -> Self {
        Self {
            id,
            name,
            medium,
            locked: None,
            emulated,
            requests: AtomicU64::new(0),
            since_ns: clock::now_ns(),
            done: Done::default(),
            errors: Mutex::default(),
            failures: AtomicU64::new(0),
            superblock: Mutex::default(),
            holder: Hand::default(),
            zeroer: Hand::default(),
            late: Mutex::default(),
        }
    }

    /// Counts a request that failed.
    pub fn failed(&self, op: &'static str, errno: i32) {
        let now = Instant::now();
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, last) = errors.entry((op, errno)).or_insert((0, now));
        (*count, *last) = (*count + 1, now);
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that failed, by kind and errno.
    pub fn errors(&self) -> Vec<Failed> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |((op, errno), (count, last)): (&(&'static str, i32), &(u64, Instant))| Failed {
            op,
            errno: *errno,
            count: *count,
            last: *last,
        };
        errors.iter().map(one).collect()
    }

    /// For how long the keeper's requests to it have not been answered. Zeroing may take long on a busy disk.
    pub fn silent_for(&self) -> Option<Duration> {
        let zeroing = self.zeroer.busy_for().filter(|t| *t >= ZERO_HANGS);
        self.holder.busy_for().max(zeroing)
    }

    /// How many requests failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether what was read from a remote device is the superblock that it must have.
    pub fn is_same(&self, found: &[u8]) -> bool {
        let expected = *self
            .superblock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match expected {
            None => true,
            Some(e) => Superblock::decode_both(found)
                .is_ok_and(|f| f.is_of(e.array, e.device, e.extent, e.slots) && f.stamp == e.stamp),
        }
    }

    /// Counts a request that is done.
    #[inline]
    pub fn completed(&self, op: Op, bytes: u64) {
        let one = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        match op {
            Op::Read => {
                one(&self.done.reads, 1);
                one(&self.done.read_bytes, bytes);
            }
            Op::Write => {
                one(&self.done.writes, 1);
                one(&self.done.write_bytes, bytes);
            }
            Op::Trim | Op::Flush => {
                one(&self.done.writes, 1);
            }
        }
    }

    /// What was done up to now.
    pub fn counts(&self) -> DeviceCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let busy_ns = |emulated: &Mutex<DeviceModel>| {
            let device = emulated.lock().unwrap_or_else(PoisonError::into_inner);
            device.counters().busy_ns as u64
        };
        DeviceCounts {
            since_ns: self.since_ns,
            reads: read(&self.done.reads),
            writes: read(&self.done.writes),
            read_bytes: read(&self.done.read_bytes),
            write_bytes: read(&self.done.write_bytes),
            busy_ns: self.emulated.as_ref().map(busy_ns),
        }
    }

    /// When an emulated device would be done with a request; 0 on a real one.
    #[inline]
    pub fn done_at(&self, now_ns: u64, op: Op, bytes: u64) -> u64 {
        let Some(emulated) = &self.emulated else {
            return 0;
        };
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let bits = mix(u64::from(self.id.0), number);
        let mut device = emulated.lock().unwrap_or_else(PoisonError::into_inner);
        device.submit(now_ns, op, bytes, bits)
    }
}

/// Why slots could not be zeroed.
#[derive(Debug, Clone, Error)]
#[error("{why}")]
pub struct ZeroError {
    /// Why, in words.
    pub why: String,
    /// A flush has failed, or may have: what guests wrote before it may be lost, and no other flush will say so.
    pub flush: bool,
    /// It may happen yet, at any time: nobody gets the slots before the next start, or before [`SlotSpace::zeroed_late`] says that it has.
    pub late: bool,
}

/// Slots of which the zeroing is over, and how it went.
pub type Zeroed = (Vec<u32>, Result<(), ZeroError>);

/// Whether there is space for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// It was taken, or a write will find out.
    Held,
    /// There is none.
    None,
    /// The device has not answered in time.
    NotInTime,
}

/// What the keeper needs of a device. The crash tests have simulated ones.
pub trait SlotSpace: Sized {
    /// Makes slots of `extent` bytes read as zeroes, durably.
    ///
    /// # Errors
    /// The slots hold anything then.
    fn zero(&self, slots: &[u32], extent: Bytes) -> Result<(), ZeroError>;

    /// Whether zeroing goes on that was not over in time.
    fn is_zeroing(&self) -> bool;

    /// Zeroing that was not over in time, and is since.
    fn zeroed_late(&self) -> Option<Zeroed>;

    /// Whether nothing that it was asked to hold keeps it.
    fn may_hold(&self) -> bool;

    /// Takes a slot's space from whatever gives it, so that a write does not find that there is none.
    fn hold(&self, slot: u32, extent: Bytes) -> Space;

    /// Its superblock: the later one of the two.
    ///
    /// # Errors
    /// What keeps it from being read, or being one.
    fn read_superblock(&self) -> Result<Superblock, String>;

    /// Writes both superblocks, durably, one after the other; as [`Superblock::places_to_write`] says.
    ///
    /// # Errors
    /// Either of them may be there then.
    fn write_superblock(&self, superblock: &Superblock) -> io::Result<()>;

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// As a flush.
    fn flush_all(&self) -> io::Result<()>;

    /// Nobody uses it any more: others may, even if something of it is still being closed.
    fn release(&self) {}

    /// [`SlotSpace::flush_all`] of several devices.
    fn flush_each(all: Vec<(DeviceId, Arc<Self>)>) -> Vec<(DeviceId, io::Result<()>)> {
        let one = |(id, device): (DeviceId, Arc<Self>)| (id, device.flush_all());
        all.into_iter().map(one).collect()
    }

    /// [`SlotSpace::write_superblock`] of several devices.
    fn write_superblocks(
        all: Vec<(DeviceId, Arc<Self>, Superblock)>,
    ) -> Vec<(DeviceId, io::Result<()>)> {
        let one = |(id, device, block): (DeviceId, Arc<Self>, Superblock)| {
            (id, device.write_superblock(&block))
        };
        all.into_iter().map(one).collect()
    }
}

/// How long somebody else's lock on a device is waited for.
const LOCK_TIME: Duration = Duration::from_secs(3);

/// A superblock that is not written in this time makes its device one that is lost: others wait meanwhile.
pub(crate) const STAMP_TIME: Duration = Duration::from_secs(3);

/// A device of which everything is not flushed in this time, at the end, is not said to be.
const FLUSH_TIME: Duration = Duration::from_secs(60);

/// Space for a slot is there in this time, or the slot is not taken: others wait for the keeper meanwhile.
const HOLD_TIME: Duration = Duration::from_secs(1);

/// Zeroing is waited for no longer: others wait for the keeper meanwhile. Most disks need less for a batch; nothing is lost where one that
/// is busy needs more, since its end is heard of.
const ZERO_TIME: Duration = Duration::from_secs(2);

/// Zeroing that takes longer does not go on: as long as an I/O may take.
const ZERO_HANGS: Duration = Duration::from_secs(30);

impl SlotSpace for Device {
    fn zero(&self, slots: &[u32], extent: Bytes) -> Result<(), ZeroError> {
        let fail = |why: &str, late| {
            let why = format!("device {:?}: cannot zero: {why}", self.name);
            let flush = false;
            Err(ZeroError { why, flush, late })
        };
        if self.is_zeroing() {
            return fail("it still does so", false);
        }
        let all = slots.to_vec();
        let (name, medium) = (self.name.clone(), self.medium.clone());
        let work = move |wanted: &Wanted| zero_slots(&name, &medium, &all, extent, wanted);
        match self.zeroer.within(ZERO_TIME, work) {
            Outcome::Done(result) => self.zeroed(result),
            Outcome::Late(end) => {
                self.failed("zero", Errno::TIMEDOUT.raw_os_error());
                let slots = slots.to_vec();
                let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
                *late = Some(Late { slots, end });
                fail("it does not answer", true)
            }
            Outcome::NotBegun => fail("it cannot be asked", false),
        }
    }

    fn is_zeroing(&self) -> bool {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.is_some()
    }

    fn zeroed_late(&self) -> Option<Zeroed> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match late.as_ref()?.end.try_recv() {
            Ok(result) => self.zeroed(result),
            Err(TryRecvError::Empty) => return None,
            // It panicked: nothing is known of them.
            Err(TryRecvError::Disconnected) => {
                *late = None;
                return None;
            }
        };
        late.take().map(|l| (l.slots, result))
    }

    fn may_hold(&self) -> bool {
        self.holder.busy_for().is_none()
    }

    fn hold(&self, slot: u32, extent: Bytes) -> Space {
        let Medium::File(file, _) = &self.medium else {
            return Space::Held;
        };
        let file = file.clone();
        let offset = DATA_START + u64::from(slot) * extent.0;
        let allocate =
            move |_: &Wanted| fallocate(&*file, FallocateFlags::KEEP_SIZE, offset, extent.0);
        let failed = |errno: Errno| self.failed("allocate", errno.raw_os_error());
        match self.holder.within(HOLD_TIME, allocate) {
            Outcome::Done(Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG))) => {
                failed(e);
                Space::None
            }
            // Not every filesystem can; then a write finds out.
            Outcome::Done(_) => Space::Held,
            Outcome::Late(_) => {
                failed(Errno::TIMEDOUT);
                Space::NotInTime
            }
            Outcome::NotBegun => Space::NotInTime,
        }
    }

    fn read_superblock(&self) -> Result<Superblock, String> {
        let mut head = vec![0; SUPERBLOCKS_BYTES];
        match &self.medium {
            Medium::File(file, _) => {
                let read = file.read_exact_at(&mut head, 0);
                read.map_err(|e| format!("cannot read its superblock: {e}"))?;
            }
            Medium::Nbd(uri, _) => {
                head = client::read_quickly(uri, 0, SUPERBLOCKS_BYTES as u32)
                    .map_err(|e| crate::text::explain(&e))?;
            }
            Medium::Lost => return Err("it is lost".into()),
        }
        let found = Superblock::decode_both(&head).map_err(|e| e.to_string())?;
        *self
            .superblock
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(found)
    }

    fn write_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        match &self.medium {
            Medium::File(file, _) => write_superblocks(file, superblock)?,
            Medium::Nbd(uri, _) => {
                let there = client::read_quickly(uri, 0, SUPERBLOCKS_BYTES as u32);
                for at in superblock.places_to_write(&there.map_err(io::Error::other)?) {
                    let written = client::write_durably(uri, *at, &superblock.encode());
                    written.map_err(io::Error::other)?;
                }
            }
            Medium::Lost => return Err(Errno::IO.into()),
        }
        *self
            .superblock
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(*superblock);
        Ok(())
    }

    fn flush_all(&self) -> io::Result<()> {
        match &self.medium {
            Medium::File(file, _) => file.sync_data(),
            Medium::Nbd(uri, _) => client::flush(uri).map_err(io::Error::other),
            Medium::Lost => Err(Errno::IO.into()),
        }
    }

    fn release(&self) {
        // What hangs may be written yet: then the lock ends with it, and not before.
        let hangs = self.holder.busy_for().is_some() || self.zeroer.busy_for().is_some();
        if let Some(locked) = self.locked.as_ref().filter(|_| !hangs) {
            let _ = flock(&**locked, FlockOperation::Unlock);
        }
    }

    fn flush_each(all: Vec<(DeviceId, Arc<Self>)>) -> Vec<(DeviceId, io::Result<()>)> {
        let (ids, work) = all
            .into_iter()
            .map(|(id, d)| (id, move || d.flush_all()))
            .unzip();
        settled(ids, at_once(work, FLUSH_TIME))
    }

    fn write_superblocks(
        all: Vec<(DeviceId, Arc<Self>, Superblock)>,
    ) -> Vec<(DeviceId, io::Result<()>)> {
        let one = |(id, device, block): (DeviceId, Arc<Self>, Superblock)| {
            (id, move || device.write_superblock(&block))
        };
        let (ids, work) = all.into_iter().map(one).unzip();
        settled(ids, at_once(work, STAMP_TIME))
    }
}

fn settled(
    ids: Vec<DeviceId>,
    results: Vec<io::Result<io::Result<()>>>,
) -> Vec<(DeviceId, io::Result<()>)> {
    let results = results.into_iter().map(io::Result::flatten);
    ids.into_iter().zip(results).collect()
}

/// Does things at the same time, each in a thread: one that hangs keeps nobody. An error of those that are not over in time.
pub(crate) fn at_once<R: Send + 'static>(
    work: Vec<impl FnOnce() -> R + Send + 'static>,
    time: Duration,
) -> Vec<io::Result<R>> {
    let (sender, done) = channel();
    let mut results = vec![];
    for (i, work) in work.into_iter().enumerate() {
        let sender = sender.clone();
        let spawned = std::thread::Builder::new()
            .name("terrace-devices".into())
            .spawn(move || drop(sender.send((i, work()))));
        results.push(Err(match spawned {
            Ok(_) => io::ErrorKind::TimedOut.into(),
            Err(error) => error,
        }));
    }
    drop(sender);
    let until = Instant::now() + time;
    while let Ok((i, result)) = done.recv_timeout(until.saturating_duration_since(Instant::now())) {
        results[i] = Ok(result);
    }
    results
}

impl Device {
    /// Counts what failed.
    fn zeroed(&self, result: Result<(), ZeroFailed>) -> Result<(), ZeroError> {
        result.map_err(|(error, errno)| {
            if let Some(errno) = errno {
                self.failed("zero", errno);
            }
            error
        })
    }
}

/// Zeroes slots, durably, while that is wanted.
fn zero_slots(
    name: &str,
    medium: &Medium,
    slots: &[u32],
    extent: Bytes,
    wanted: &Wanted,
) -> Result<(), ZeroFailed> {
    match medium {
        Medium::Nbd(uri, start) => {
            let at = |slot: &u32| (start + u64::from(*slot) * extent.0, extent.0 as u32);
            let ranges: Vec<(u64, u32)> = slots.iter().map(at).collect();
            client::zero(uri, &ranges).map_err(|e| {
                // The server may carry them out yet, and nobody will say when.
                let (why, flush, late) = (e.to_string(), true, true);
                (ZeroError { why, flush, late }, None)
            })
        }
        Medium::File(file, _) => {
            let fail = |flush: bool| {
                move |e: io::Error| {
                    let why = format!("device {name:?}: cannot zero: {e}");
                    let late = false;
                    (ZeroError { why, flush, late }, e.raw_os_error())
                }
            };
            // The kernel tells of a failed flush once to everybody who has the file open: what this one hears of, however late, the
            // guests' flushes hear of too.
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            let own = OpenOptions::new().read(true).write(true).open(own);
            let own = own.map_err(fail(false))?;
            for slot in slots {
                let offset = DATA_START + u64::from(*slot) * extent.0;
                zero_range(&own, offset, extent.0, wanted).map_err(fail(false))?;
            }
            own.sync_data().map_err(fail(true))
        }
        Medium::Lost => {
            let why = format!("device {name:?} is lost");
            let (flush, late) = (false, false);
            Err((ZeroError { why, flush, late }, None))
        }
    }
}

fn write_superblocks(file: &File, superblock: &Superblock) -> io::Result<()> {
    let mut there = [0; SUPERBLOCKS_BYTES];
    file.read_at(&mut there, 0)?; // a new file has none
    for at in superblock.places_to_write(&there) {
        file.write_all_at(&superblock.encode(), *at)?;
        file.sync_data()?;
    }
    Ok(())
}

/// Makes a range read as zeroes and gives its space back, where the system can; else writes zeroes.
fn zero_range(file: &File, offset: u64, length: u64, wanted: &Wanted) -> io::Result<()> {
    /// Bytes zeroed at once: the filesystem locks the file meanwhile, and guests' writes wait.
    const AT_ONCE: u64 = 128 << 10;
    /// Zeroing takes one part in so many of the time, so that the guests that use the same file hardly notice.
    const ONE_IN: u32 = 4;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut at = 0;
    while at < length {
        if !wanted.still() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let now = (length - at).min(AT_ONCE);
        let started = Instant::now();
        match fallocate(file, punch, offset + at, now) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV) => {
                file.write_all_at(&vec![0; now as usize], offset + at)?;
            }
            Err(e) => return Err(e.into()),
        }
        std::thread::sleep(started.elapsed() * (ONE_IN - 1));
        at += now;
    }
    Ok(())
}

/// The superblock of a device that was never part of a membership.
pub fn superblock_of(array: ArrayId, extent: Bytes, record: &DeviceRecord) -> Superblock {
    Superblock {
        array,
        device: record.id,
        extent,
        slots: record.slots,
        stamp: Stamp::NONE,
        flushed: true,
        boot: 0,
        commits: 0,
    }
}

/// Whoever has an array has its devices alone: the map can be lost or restored under a server, the devices say that it is there. The
/// system looks at block devices now and then, under such a lock too: that is waited for. Within a process a device may be open more than
/// once, when it is tried: all share the lock of the first. The file that has it.
fn lock(file: &Arc<File>, record: &DeviceRecord) -> Result<Arc<File>, DeviceError> {
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

fn system(
    record: &DeviceRecord,
    what: &'static str,
) -> impl FnOnce(io::Error) -> DeviceError + use<> {
    let (name, path) = (record.name.clone(), record.path.clone());
    move |source| DeviceError::System {
        name,
        what,
        path,
        source,
    }
}

/// Size of a file or a block device.
pub fn file_bytes(mut file: &File) -> io::Result<u64> {
    use io::{Seek, SeekFrom};
    let meta = file.metadata()?;
    if meta.file_type().is_block_device() {
        return file.seek(SeekFrom::End(0));
    }
    Ok(meta.len())
}
