//! Devices of the tiers, as workers see them: an open file or block device, or a remote export, with an emulated latency
//! if the array says so.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use algo::{DeviceModel, mix};
use array::{Array, DATA_START, DeviceKind, DeviceRecord, Superblock};
use model::Op;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use thiserror::Error;
use units::{Bytes, DeviceId};

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
        source: std::io::Error,
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
    /// A remote export; slots begin at its start.
    Nbd(nbd::Uri),
}

/// What is behind a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Memory: reading and writing it is a copy, and never waits for a device.
    Memory,
    /// Anything else.
    Storage,
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
    emulated: Option<Mutex<DeviceModel>>,
    requests: AtomicU64,
    since_ns: u64,
    done: Done,
}

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
    pub fn format(array: &Array, record: &DeviceRecord) -> Result<(), DeviceError> {
        if record.kind == DeviceKind::Nbd {
            return Ok(());
        }
        let failed = |what| {
            move |source| DeviceError::System {
                name: record.name.clone(),
                what,
                path: record.path.clone(),
                source,
            }
        };
        let is_file = record.kind == DeviceKind::File;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(is_file)
            // Guests' data is nobody else's.
            .mode(0o600)
            .open(&record.path)
            .map_err(failed("create"))?;
        if is_file {
            let bytes = DATA_START + u64::from(record.slots) * array.extent().0;
            file.set_len(bytes).map_err(failed("size"))?;
        }
        let superblock = superblock_of(array, record).encode();
        file.write_all_at(&superblock, 0).map_err(failed("write"))?;
        file.sync_all().map_err(failed("flush"))?;
        if is_file && let Some(parent) = Path::new(&record.path).parent() {
            let parent = File::open(parent).map_err(failed("open the directory of"))?;
            parent
                .sync_all()
                .map_err(failed("flush the directory of"))?;
        }
        Ok(())
    }

    /// Opens a device of the array and checks that it is the right one.
    pub fn open(array: &Array, record: &DeviceRecord) -> Result<Self, DeviceError> {
        let failed = |what| {
            move |source| DeviceError::System {
                name: record.name.clone(),
                what,
                path: record.path.clone(),
                source,
            }
        };
        let wrong = |why: String| DeviceError::Wrong {
            name: record.name.clone(),
            path: record.path.clone(),
            why,
        };
        let medium = match record.kind {
            DeviceKind::Nbd => {
                let uri: Result<nbd::Uri, _> = record.path.parse();
                Medium::Nbd(uri.map_err(|e| wrong(e.to_string()))?)
            }
            DeviceKind::File | DeviceKind::Block => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&record.path)
                    .map_err(failed("open"))?;
                let mut head = [0; array::SUPERBLOCK_BYTES];
                file.read_exact_at(&mut head, 0)
                    .map_err(failed("read the superblock of"))?;
                let found = Superblock::decode(&head).map_err(|e| wrong(e.to_string()))?;
                if found != superblock_of(array, record) {
                    return Err(wrong(format!(
                        "its superblock says device {} of array {} with {} slots of {}, not the device of this name",
                        found.device.0, found.array, found.slots, found.extent
                    )));
                }
                let need = DATA_START + u64::from(record.slots) * array.extent().0;
                let have = file_bytes(&file).map_err(failed("measure"))?;
                if have < need {
                    return Err(wrong(format!(
                        "it has {} and should have {}",
                        Bytes(have),
                        Bytes(need)
                    )));
                }
                let backing = Backing::of(&file);
                Medium::File(Arc::new(file), backing)
            }
        };
        let emulated = record
            .emulate
            .as_ref()
            .map(|s| Mutex::new(DeviceModel::new(s)));
        Ok(Self::with(record.id, record.name.clone(), medium, emulated))
    }

    /// A remote export that belongs to no array.
    pub fn remote(name: String, uri: nbd::Uri) -> Self {
        Self::with(DeviceId(0), name, Medium::Nbd(uri), None)
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
            emulated,
            requests: AtomicU64::new(0),
            since_ns: clock::now_ns(),
            done: Done::default(),
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
}

/// What the keeper needs of a device. The crash tests have simulated ones.
pub trait SlotSpace {
    /// Makes slots of `extent` bytes read as zeroes, durably.
    ///
    /// # Errors
    /// The slots hold anything then.
    fn zero(&self, slots: &[u32], extent: Bytes) -> Result<(), ZeroError>;

    /// Takes a slot's space from whatever gives it, so that a write does not find that there is none; whether there is.
    fn hold(&self, slot: u32, extent: Bytes) -> bool;
}

impl SlotSpace for Device {
    fn zero(&self, slots: &[u32], extent: Bytes) -> Result<(), ZeroError> {
        match &self.medium {
            Medium::Nbd(uri) => {
                let at = |slot: &u32| (u64::from(*slot) * extent.0, extent.0 as u32);
                let ranges: Vec<(u64, u32)> = slots.iter().map(at).collect();
                client::zero(uri, &ranges).map_err(|e| ZeroError {
                    why: e.to_string(),
                    flush: true,
                })
            }
            Medium::File(file, _) => {
                let fail = |flush: bool| {
                    move |e: std::io::Error| ZeroError {
                        why: format!("device {:?}: cannot zero: {e}", self.name),
                        flush,
                    }
                };
                for slot in slots {
                    let offset = DATA_START + u64::from(*slot) * extent.0;
                    zero_range(file, offset, extent.0).map_err(fail(false))?;
                }
                file.sync_data().map_err(fail(true))
            }
        }
    }

    fn hold(&self, slot: u32, extent: Bytes) -> bool {
        let Medium::File(file, _) = &self.medium else {
            return true;
        };
        let offset = DATA_START + u64::from(slot) * extent.0;
        match fallocate(&**file, FallocateFlags::KEEP_SIZE, offset, extent.0) {
            Ok(()) => true,
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => false,
            // Not every filesystem can; then a write finds out.
            Err(_) => true,
        }
    }
}

/// Makes a range read as zeroes and gives its space back, where the system can; else writes zeroes.
fn zero_range(file: &File, offset: u64, length: u64) -> std::io::Result<()> {
    /// Bytes zeroed at once: the filesystem locks the file meanwhile, and guests' writes wait.
    const AT_ONCE: u64 = 128 << 10;
    /// Zeroing takes one part in so many of the time, so that the guests that use the same file hardly notice.
    const ONE_IN: u32 = 4;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut at = 0;
    while at < length {
        let now = (length - at).min(AT_ONCE);
        let started = std::time::Instant::now();
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

fn superblock_of(array: &Array, record: &DeviceRecord) -> Superblock {
    Superblock {
        array: array.id(),
        device: record.id,
        extent: array.extent(),
        slots: record.slots,
    }
}

/// Size of a file or a block device.
pub fn file_bytes(mut file: &File) -> std::io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let meta = file.metadata()?;
    if meta.file_type().is_block_device() {
        return file.seek(SeekFrom::End(0));
    }
    Ok(meta.len())
}
