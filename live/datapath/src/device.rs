//! Devices of the tiers in the view of workers: an open file or block device, or a remote export.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use array::{ArrayId, DATA_START, DeviceKind, DeviceRecord, SUPERBLOCKS_BYTES, Stamp, Superblock};
use model::DirectIo;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags};
use units::{Bytes, DeviceId};

use crate::client::Client;
use crate::clock;
use crate::error::DatapathError;
use crate::helper_thread::HelperThread;
use crate::stages::DeviceStages;
use direct::DirectDecision;
use lock::{ClaimedFile, OpenPurpose, claim, open_plain};
use owner::Ownership;
use space::{LateZeroing, ZERO_HANGS};

mod contents;
mod counters;
mod direct;
mod error;
mod lock;
mod owner;
mod space;
mod superblocks;
mod users;

use counters::{CompletedIo, Errors};
pub use counters::{DeviceCounts, FailureCount};
pub use direct::DirectFile;
pub use error::DeviceError;
pub use lock::user_of_device;
pub use owner::{Claimant, Refusal};
pub(crate) use owner::{Lease, OwnershipState};
pub(crate) use space::{FLUSH_TIME, STAMP_TIME};
pub use space::{SlotSpace, Space, ZeroError, ZeroResult};
use superblocks::Places;
pub use superblocks::StampError;

/// Location of a device's bytes.
#[derive(Debug, Clone)]
pub enum Medium {
    /// File or block device; slots begin at [`DATA_START`].
    File(Arc<File>, Backing),
    /// Remote export.
    Nbd(nbd::Uri),
    /// Unreachable device, or one that does not belong to the array: reads and writes fail at once.
    Lost,
}

/// Storage behind a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Memory: I/O is a copy and never waits for a device.
    Memory,
    /// Any other storage.
    Storage,
}

/// Returns true if a directory is on a file system in memory.
pub fn is_in_memory(dir: &Path) -> bool {
    File::open(dir).is_ok_and(|dir| Backing::of(&dir) == Backing::Memory)
}

impl Backing {
    fn of(file: &File) -> Self {
        /// Filesystem types of tmpfs and ramfs.
        const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
        // Nodes of block devices are in memory, but the devices behind them are not.
        let is_block = |m: std::fs::Metadata| m.file_type().is_block_device();
        if file.metadata().is_ok_and(is_block) {
            return Backing::Storage;
        }
        match rustix::fs::fstatfs(file) {
            Ok(stat) if IN_MEMORY.contains(&(stat.f_type as u64)) => Backing::Memory,
            _ => Backing::Storage,
        }
    }
}

/// Creates a file without a name in a directory, fully allocated. It disappears with the process, even after a crash.
///
/// # Errors
/// [`DatapathError::System`]: the directory does not exist, its file system has no unnamed files or not enough space.
pub fn nameless_file(dir: &Path, size: Bytes) -> Result<File, DatapathError> {
    let shown = dir.display();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.map_err(DatapathError::system("create a file in", &shown))?);
    // Allocation now prevents a lack of space later.
    let allocated = fallocate(&file, FallocateFlags::empty(), 0, size.0);
    let space = format_args!("{size} in {shown}");
    allocated.map_err(DatapathError::system("allocate", &space))?;
    Ok(file)
}

/// Name of the source of an import in messages.
pub(crate) const SOURCE: &str = "source of an import";

#[derive(Debug)]
pub struct Device {
    /// Identifier of the device.
    pub id: DeviceId,
    pub name: String,
    /// Location of its bytes.
    pub medium: Medium,
    /// Offset of its data in the file or export: [`DATA_START`], or 0 without a superblock.
    pub(crate) start: u64,
    /// Expected size of an export that is the source of an import, checked at each connect.
    source_size: Option<Bytes>,
    /// A checked connection to the export of an import's source, for the worker. Its server may
    /// allow no second one.
    connection: Mutex<Option<Box<Client>>>,
    /// Size of memory or flash that is lent to another host.
    lent: Option<Bytes>,
    /// File with this process's lock and, for a block device, the exclusive claim.
    locked: Option<Arc<File>>,
    /// True while the lock still also belongs to the process that hands the device over, and that process may keep
    /// it. The lock is not released here then.
    borrowed: AtomicBool,
    /// Configured mode of direct I/O.
    wanted: DirectIo,
    /// Decision about direct I/O.
    settled: OnceLock<DirectDecision>,
    /// Stages that its I/O passes.
    pub(crate) stages: DeviceStages,
    since_ns: u64,
    done: CompletedIo,
    errors: Mutex<Errors>,
    /// Number of errors, for a cheap check for new ones.
    failures: AtomicU64,
    /// Expected contents of the superblock places: last read or written by this process, or being
    /// written. Empty before the first read.
    superblock_places: Arc<Mutex<Places>>,
    /// Serializes the writes of superblocks.
    stamping: Mutex<()>,
    /// Time until which this process may write to the device.
    pub(crate) lease: Arc<Lease>,
    /// Heartbeats of a claimed remote device.
    ownership: Mutex<Option<Ownership>>,
    /// Allocates space for slots.
    holder: HelperThread,
    /// Zeroes slots. Separate from `holder`, because zeroing waits for a flush, which may take long on a healthy
    /// disk.
    zeroer: HelperThread,
    /// Zeroing that exceeded its time limit and has not reported its end.
    late: Mutex<Option<LateZeroing>>,
}

/// Device in transfer from one process to another.
#[derive(Debug)]
pub struct HandedDevice {
    /// Identifier of the device.
    pub id: DeviceId,
    pub file: Arc<File>,
    /// File with the lock and the exclusive claim: `file` itself or an earlier opening.
    pub lock: Arc<File>,
    /// Decision for or against direct I/O with its reason, if it was made.
    pub direct: Option<(bool, String)>,
}

impl Device {
    /// Prepares a new device: claims it, creates its file at full (sparse) size and writes its
    /// superblock durably. Returns the device and the data that was destroyed, which requires
    /// `force`.
    ///
    /// # Errors
    /// [`DeviceError`], also if the device is in use or holds data. A file that was created is
    /// removed.
    pub fn format(
        id: ArrayId,
        extent: Bytes,
        record: &DeviceRecord,
        force: bool,
        claimant: &Claimant,
    ) -> Result<(Self, Vec<String>), DeviceError> {
        let created = match record.kind {
            DeviceKind::File => create_file(record)?,
            DeviceKind::Block | DeviceKind::Nbd | DeviceKind::Gone => None,
        };
        let is_new = created.is_some();
        let prepare = || -> Result<(Self, Vec<String>), DeviceError> {
            let failed = |what| system(record, what);
            let device = Self::of_record(record, OpenPurpose::New, created)?;
            let destroyed = match is_new {
                true => vec![],
                false => device.check_contents(record, force)?,
            };
            if let Medium::File(file, _) = &device.medium {
                if record.kind == DeviceKind::File {
                    let bytes = DATA_START + u64::from(record.slots) * extent.0;
                    let sized = file.set_len(0).and_then(|()| file.set_len(bytes));
                    sized.map_err(failed("size"))?;
                }
                large_enough(file, extent, record)?;
            }
            device.claim_new(id, record, force, claimant)?;
            let stamp = || -> Result<(), DeviceError> {
                if !destroyed.is_empty() && record.kind != DeviceKind::File {
                    contents::clear(&device).map_err(|why| wrong(record, why.to_string()))?;
                }
                let there = device.read_bytes(0, SUPERBLOCKS_BYTES, STAMP_TIME);
                device.expect(there.map_err(failed("read"))?);
                let stamped = device.stamp(&superblock_of(id, extent, record));
                stamped.map_err(|e| failed("write")(superblocks::io(e)))
            };
            stamp().inspect_err(|_| device.unclaim())?;
            if let Medium::File(file, _) = &device.medium {
                file.sync_all().map_err(failed("flush"))?;
            }
            if is_new && let Some(parent) = Path::new(&record.path).parent() {
                let parent = File::open(parent).map_err(failed("open the directory of"))?;
                parent
                    .sync_all()
                    .map_err(failed("flush the directory of"))?;
            }
            Ok((device, destroyed))
        };
        prepare().inspect_err(|_| {
            if is_new {
                let _ = std::fs::remove_file(&record.path);
            }
        })
    }

    /// Returns the data that formatting destroys. Fails if QEMU uses the device, or if it holds
    /// data and `force` is not set.
    fn check_contents(
        &self,
        record: &DeviceRecord,
        force: bool,
    ) -> Result<Vec<String>, DeviceError> {
        let (name, path) = (record.name.clone(), record.path.clone());
        let file = match &self.medium {
            Medium::File(file, _) => Some(file),
            Medium::Nbd(..) | Medium::Lost => None,
        };
        if let Some(by) = file.and_then(|f| crate::source::image_in_use(f)) {
            return Err(DeviceError::InUse { name, path, by });
        }
        let mut contents = contents::look(self).map_err(|why| wrong(record, why.to_string()))?;
        if let Some(file) = file {
            let bytes = file_bytes(file).map_err(system(record, "measure"))?;
            if record.kind == DeviceKind::File && bytes > 0 && contents.found.is_empty() {
                contents.found.push(format!("a file of {}", Bytes(bytes)));
            }
        }
        match contents.unknown {
            _ if force => {}
            _ if !contents.found.is_empty() => {
                let data = contents.found.join("; ");
                return Err(DeviceError::HoldsData { name, path, data });
            }
            Some(why) => return Err(DeviceError::NotProbed { name, path, why }),
            None => {}
        }
        Ok(contents.found)
    }

    /// Opens a device. The caller checks its superblock to identify it ([`SlotSpace::read_superblock`]).
    ///
    /// # Errors
    /// [`DeviceError`], also if the device is in use or too small.
    pub fn open(extent: Bytes, record: &DeviceRecord) -> Result<Self, DeviceError> {
        let device = Self::of_record(record, OpenPurpose::Known, None)?;
        if let Medium::File(file, _) = &device.medium {
            large_enough(file, extent, record)?;
        }
        Ok(device)
    }

    /// Opens and claims the file, block device or export of a record. `open` is its file if that is
    /// open already.
    fn of_record(
        record: &DeviceRecord,
        opening: OpenPurpose,
        open: Option<File>,
    ) -> Result<Self, DeviceError> {
        let mut locked = None;
        let medium = match record.kind {
            DeviceKind::Nbd => {
                let uri: Result<nbd::Uri, _> = record.path.parse();
                let uri = uri.map_err(|e| wrong(record, e.to_string()))?;
                Medium::Nbd(uri)
            }
            DeviceKind::File | DeviceKind::Block => {
                let file = open.map_or_else(|| open_plain(record), Ok)?;
                let claimed = claim(Arc::new(file), record, opening)?;
                locked = Some(claimed.locked);
                let backing = Backing::of(&claimed.file);
                Medium::File(claimed.file, backing)
            }
            DeviceKind::Gone => Medium::Lost,
        };
        // The export of a member is written only with a claim in its superblock's area.
        let lease = match medium {
            Medium::Nbd(_) => Lease::none(),
            Medium::File(..) | Medium::Lost => Lease::unlimited(),
        };
        Ok(Self {
            locked,
            lease: Arc::new(lease),
            wanted: record.direct,
            stages: DeviceStages::new(record),
            ..Self::with(record.id, record.name.clone(), medium)
        })
    }

    /// Adopts a device that another process has opened and locked.
    ///
    /// # Errors
    /// [`DeviceError`], also if the device is too small or not locked.
    pub fn from_handed(
        extent: Bytes,
        record: &DeviceRecord,
        handed: HandedDevice,
    ) -> Result<Self, DeviceError> {
        let HandedDevice {
            file, lock, direct, ..
        } = handed;
        // The device is already claimed. This registers its user for other checks in this process.
        let ClaimedFile { locked, .. } = claim(lock, record, OpenPurpose::Handed)?;
        large_enough(&file, extent, record)?;
        let backing = Backing::of(&file);
        let device = Self {
            locked: Some(locked),
            borrowed: AtomicBool::new(true),
            wanted: record.direct,
            stages: DeviceStages::new(record),
            ..Self::with(record.id, record.name.clone(), Medium::File(file, backing))
        };
        if let Some((direct, why)) = direct {
            device.settle_as(direct, why);
        }
        Ok(device)
    }

    /// Returns the parts that another process needs to adopt the device; `None` unless it is a file or block device.
    pub fn handed(&self) -> Option<HandedDevice> {
        let Medium::File(file, _) = &self.medium else {
            return None;
        };
        let direct = self.direct_why();
        Some(HandedDevice {
            id: self.id,
            file: file.clone(),
            lock: self.locked.clone()?,
            direct: direct.map(|(direct, why)| (direct, why.to_owned())),
        })
    }

    /// Returns true while a request of the keeper to the device is in progress.
    pub fn is_asked(&self) -> bool {
        let asked = self.holder.busy_for().is_some() || self.zeroer.busy_for().is_some();
        asked || self.is_zeroing()
    }

    /// Makes this process the only owner of the lock.
    pub fn now_owned(&self) {
        self.borrowed.store(false, Ordering::Release);
    }

    /// Creates a device that cannot be used.
    pub fn lost(id: DeviceId, name: String) -> Self {
        Self::with(id, name, Medium::Lost)
    }

    /// Creates the source of an import from a file or block device. Its data begins at byte 0.
    pub(crate) fn source_in(id: DeviceId, file: Arc<File>) -> Self {
        let backing = Backing::of(&file);
        Self {
            start: 0,
            ..Self::with(id, SOURCE.into(), Medium::File(file, backing))
        }
    }

    /// Creates the file of an L2 cache. Its data begins at byte 0, and it uses direct I/O if possible.
    pub(crate) fn second(id: DeviceId, name: String, file: File) -> Self {
        let backing = Backing::of(&file);
        let device = Self {
            start: 0,
            ..Self::with(id, name, Medium::File(Arc::new(file), backing))
        };
        device.settle_as(
            true,
            "the page cache would only duplicate the cache in memory".into(),
        );
        device
    }

    /// Creates memory, in the form of a file, that is lent to another host.
    pub(crate) fn lent_memory(file: File, size: Bytes) -> Self {
        Self {
            start: 0,
            lent: Some(size),
            ..Self::with(
                DeviceId(0),
                "memory".into(),
                Medium::File(Arc::new(file), Backing::Memory),
            )
        }
    }

    /// Creates a file on flash that is lent to another host. It uses direct I/O if possible.
    pub(crate) fn lent_flash(name: String, file: File, size: Bytes) -> Self {
        Self {
            lent: Some(size),
            ..Self::second(DeviceId(0), name, file)
        }
    }

    /// Creates the source of an import from an export.
    pub(crate) fn source_at(id: DeviceId, uri: nbd::Uri, size: Bytes) -> Self {
        Self {
            start: 0,
            source_size: Some(size),
            ..Self::with(id, SOURCE.into(), Medium::Nbd(uri))
        }
    }

    /// Stores a connection to the export for the worker that reads it first.
    pub(crate) fn keep_connection(&self, client: Client) {
        let mut kept = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = Some(Box::new(client));
    }

    /// Takes the stored connection.
    pub(crate) fn take_connection(&self) -> Option<Client> {
        let mut kept = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.take().map(|client| *client)
    }

    /// Size of memory or flash that is lent to another host.
    pub(crate) fn lent(&self) -> Option<Bytes> {
        self.lent
    }

    /// Returns true for an export that is the source of an import.
    pub(crate) fn is_source(&self) -> bool {
        self.source_size.is_some()
    }

    /// Returns true if an export of this size can be this device.
    pub(crate) fn may_have(&self, size: Bytes) -> bool {
        self.source_size.is_none_or(|wanted| wanted == size)
    }

    /// Creates a remote export that belongs to no array.
    pub fn remote(name: String, uri: nbd::Uri) -> Self {
        Self {
            start: 0,
            ..Self::with(DeviceId(0), name, Medium::Nbd(uri))
        }
    }

    fn with(id: DeviceId, name: String, medium: Medium) -> Self {
        Self {
            lease: Arc::new(Lease::unlimited()),
            ownership: Mutex::default(),
            id,
            name,
            medium,
            start: DATA_START,
            source_size: None,
            connection: Mutex::default(),
            lent: None,
            locked: None,
            borrowed: AtomicBool::new(false),
            wanted: DirectIo::Off,
            settled: OnceLock::new(),
            stages: DeviceStages::default(),
            since_ns: clock::now_ns(),
            done: CompletedIo::default(),
            errors: Mutex::default(),
            failures: AtomicU64::new(0),
            superblock_places: Arc::default(),
            stamping: Mutex::default(),
            holder: HelperThread::default(),
            zeroer: HelperThread::default(),
            late: Mutex::default(),
        }
    }

    /// Returns how long the keeper's requests to the device have been unanswered. Zeroing counts only after a longer
    /// time, because it is slow on a busy disk.
    pub fn silent_for(&self) -> Option<Duration> {
        let zeroing = self.zeroer.busy_for().filter(|t| *t >= ZERO_HANGS);
        self.holder.busy_for().max(zeroing)
    }
}

/// Opens a file again with further flags, independent of its present name.
pub(crate) fn reopened(file: &File, flags: OFlags) -> io::Result<File> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut options = File::options();
    let options = options.read(true).write(true);
    options.custom_flags(flags.bits() as i32).open(own)
}

/// Writes and flushes only these bytes. A flush of the whole file would include the guests' writes, and could exceed
/// every time limit.
fn write_durably(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let slices = [io::IoSlice::new(bytes)];
        match rustix::io::pwritev2(file, &slices, at, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => (bytes, at) = (&bytes[n..], at + n as u64),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                file.write_all_at(bytes, at)?;
                return file.sync_data();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the superblock of a device that was never part of a membership.
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

fn wrong(record: &DeviceRecord, why: String) -> DeviceError {
    DeviceError::Wrong {
        name: record.name.clone(),
        path: record.path.clone(),
        why,
    }
}

/// Creates the file of a new device; returns `None` if the file exists.
fn create_file(record: &DeviceRecord) -> Result<Option<File>, DeviceError> {
    let created = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        // Only the server's user may read the guests' data.
        .mode(0o600)
        .open(&record.path);
    match created {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let meta = std::fs::metadata(&record.path).map_err(system(record, "inspect"))?;
            match meta.is_file() {
                true => Ok(None),
                false => Err(wrong(
                    record,
                    "the path exists and is not a regular file".into(),
                )),
            }
        }
        Err(error) => Err(system(record, "create")(error)),
    }
}

/// Checks that a device is large enough for its slots.
fn large_enough(file: &File, extent: Bytes, record: &DeviceRecord) -> Result<(), DeviceError> {
    let need = DATA_START + u64::from(record.slots) * extent.0;
    let have = file_bytes(file).map_err(system(record, "measure"))?;
    match have < need {
        false => Ok(()),
        true => Err(wrong(
            record,
            format!("the size is {}, {} expected", Bytes(have), Bytes(need)),
        )),
    }
}

/// Returns the size of a file or a block device.
pub fn file_bytes(mut file: &File) -> io::Result<u64> {
    use io::{Seek, SeekFrom};
    let meta = file.metadata()?;
    if meta.file_type().is_block_device() {
        return file.seek(SeekFrom::End(0));
    }
    Ok(meta.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_device_is_storage_although_its_node_is_in_memory() {
        let of = |path: &str| File::open(path).ok().map(|file| Backing::of(&file));
        let disks = fs_blocks().filter_map(|name| of(&format!("/dev/{name}")));
        let disks: Vec<Backing> = disks.collect();
        if disks.is_empty() {
            return testkit::needs::skipped("a readable block device");
        }
        assert!(disks.iter().all(|b| *b == Backing::Storage));
    }

    fn fs_blocks() -> impl Iterator<Item = String> {
        let entries = std::fs::read_dir("/sys/block").into_iter().flatten();
        entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
    }
}
