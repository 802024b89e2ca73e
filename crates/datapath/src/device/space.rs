//! What the keeper asks of a device: space for slots, zeroing of those that were given up, superblocks, and everything flushed. It waits for
//! none of that longer than others can wait for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use array::{DATA_START, SUPERBLOCKS_BYTES, Superblock};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::Errno;
use thiserror::Error;
use units::{Bytes, DeviceId};

use super::{Claimant, Device, Lease, Medium, Refusal, StampError, reopened};
use crate::client;
use crate::helper_thread::{Outcome, Wanted, at_once};
use crate::keeper::retried;
use crate::text::explain;

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

    /// Writes both superblocks durably, one after the other ([`Superblock::writes`]). Writes
    /// nothing if another program has changed them since this process last read or wrote them.
    ///
    /// # Errors
    /// [`StampError`]. After an error of the system each place may hold the old or the new
    /// superblock.
    fn write_superblock(&self, superblock: &Superblock) -> Result<(), StampError>;

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// As a flush.
    fn flush_all(&self) -> io::Result<()>;

    /// Nobody uses it any more: others may, even if something of it is still being closed.
    fn release(&self) {}

    /// Claims remote devices in parallel; other devices need no claim. Returns the devices that
    /// could not be claimed, with the reasons.
    fn claim_each(_: Vec<(DeviceId, Arc<Self>)>, _: &Arc<Claimant>) -> Vec<(DeviceId, Refusal)> {
        vec![]
    }

    /// Releases remote devices for other servers.
    fn unclaim_each(_: Vec<Arc<Self>>) {}

    /// [`SlotSpace::flush_all`] of several devices.
    fn flush_each(all: Vec<(DeviceId, Arc<Self>)>) -> Vec<(DeviceId, io::Result<()>)> {
        let one = |(id, device): (DeviceId, Arc<Self>)| (id, device.flush_all());
        all.into_iter().map(one).collect()
    }

    /// [`SlotSpace::write_superblock`] of several devices.
    fn write_superblocks(
        all: Vec<(DeviceId, Arc<Self>, Superblock)>,
    ) -> Vec<(DeviceId, Result<(), StampError>)> {
        let one = |(id, device, block): (DeviceId, Arc<Self>, Superblock)| {
            (id, device.write_superblock(&block))
        };
        all.into_iter().map(one).collect()
    }
}

/// A superblock that is not written in this time makes its device one that is lost. Others wait meanwhile, a third of what a request may take at most; and a disk
/// with much to do may well need seconds for a durable write.
pub(crate) const STAMP_TIME: Duration = Duration::from_secs(10);

/// A device of which everything is not flushed in this time, at the end, is not said to be.
pub(crate) const FLUSH_TIME: Duration = Duration::from_secs(60);

/// Time limit of a claim: three intervals of heartbeats, and slow connections.
const CLAIM_TIME: Duration = Duration::from_secs(30);

/// Space for a slot is there in this time, or the slot is not taken: others wait for the keeper meanwhile.
const HOLD_TIME: Duration = Duration::from_secs(1);

/// Zeroing is waited for no longer: others wait for the keeper meanwhile. Most disks need less for a batch; nothing is lost where one that
/// is busy needs more, since its end is heard of.
const ZERO_TIME: Duration = Duration::from_secs(2);

/// Zeroing that takes longer does not go on: as long as an I/O may take.
pub(super) const ZERO_HANGS: Duration = Duration::from_secs(30);

/// Slots that are being zeroed longer than anybody waited.
#[derive(Debug)]
pub(super) struct Late {
    slots: Vec<u32>,
    end: Receiver<Result<(), ZeroFailed>>,
}

/// Why slots could not be zeroed, with the errno if it has one.
type ZeroFailed = (ZeroError, Option<i32>);

impl SlotSpace for Device {
    fn zero(&self, slots: &[u32], extent: Bytes) -> Result<(), ZeroError> {
        let fail = |why: &str, late| {
            let why = format!("device {:?}: cannot zero slots: {why}", self.name);
            let flush = false;
            Err(ZeroError { why, flush, late })
        };
        if self.is_zeroing() {
            return fail("an earlier request to zero slots is still running", false);
        }
        let all = slots.to_vec();
        let (name, medium) = (self.name.clone(), self.medium.clone());
        let lease = self.lease.clone();
        let work = move |wanted: &Wanted| zero_slots(&name, &medium, &lease, &all, extent, wanted);
        match self.zeroer.within(ZERO_TIME, work) {
            Outcome::Done(result) => self.zeroed(result),
            Outcome::Late(end) => {
                self.failed("zero", Errno::TIMEDOUT.raw_os_error());
                let slots = slots.to_vec();
                let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
                *late = Some(Late { slots, end });
                fail("the device does not respond", true)
            }
            Outcome::NotBegun => fail("the request could not be started", false),
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
        let head = self.read_bytes(0, SUPERBLOCKS_BYTES, client::QUICK_TIME);
        let head = head.map_err(|e| format!("cannot read its superblock: {}", explain(&e)))?;
        let found = Superblock::decode_both(&head).map_err(|e| e.to_string())?;
        self.expect(head);
        Ok(found)
    }

    fn write_superblock(&self, superblock: &Superblock) -> Result<(), StampError> {
        // One error does not make it a lost device.
        let is_final = |error: &StampError| matches!(error, StampError::Overwritten { .. });
        retried(|| self.stamp(superblock), is_final)
    }

    fn flush_all(&self) -> io::Result<()> {
        match &self.medium {
            Medium::File(file, _) => file.sync_data(),
            Medium::Nbd(uri) => client::flush(uri).map_err(io::Error::other),
            Medium::Lost => Err(Errno::IO.into()),
        }
    }

    fn release(&self) {
        // What hangs may be written yet: then the lock ends with it, and not before.
        let hangs = self.holder.busy_for().is_some() || self.zeroer.busy_for().is_some();
        let borrowed = self.borrowed.load(Ordering::Acquire);
        if let Some(locked) = self.locked.as_ref().filter(|_| !hangs && !borrowed) {
            let _ = flock(&**locked, FlockOperation::Unlock);
        }
    }

    fn claim_each(
        all: Vec<(DeviceId, Arc<Self>)>,
        claimant: &Arc<Claimant>,
    ) -> Vec<(DeviceId, Refusal)> {
        let remote = |(_, device): &(_, Arc<Self>)| !device.lease.is_unlimited();
        let one = |(id, device): (DeviceId, Arc<Self>)| {
            let claimant = claimant.clone();
            (id, move || device.claim(&claimant))
        };
        let (ids, work): (Vec<_>, Vec<_>) = all.into_iter().filter(remote).map(one).unzip();
        let claimed = at_once(work, CLAIM_TIME).into_iter();
        let refused = |c: io::Result<Result<(), Refusal>>| match c {
            Ok(claimed) => claimed.err(),
            Err(_) => Some(Refusal::NoReply),
        };
        let all = ids.into_iter().zip(claimed.map(refused));
        all.filter_map(|(id, why)| Some((id, why?))).collect()
    }

    fn unclaim_each(all: Vec<Arc<Self>>) {
        let remote = all.into_iter().filter(|d| !d.lease.is_unlimited());
        let work = remote.map(|device| move || device.unclaim()).collect();
        at_once(work, STAMP_TIME);
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
    ) -> Vec<(DeviceId, Result<(), StampError>)> {
        let one = |(id, device, block): (DeviceId, Arc<Self>, Superblock)| {
            (id, move || device.write_superblock(&block))
        };
        let (ids, work) = all.into_iter().map(one).unzip();
        settled(ids, at_once(work, STAMP_TIME))
    }
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

fn settled<E: From<io::Error>>(
    ids: Vec<DeviceId>,
    results: Vec<io::Result<Result<(), E>>>,
) -> Vec<(DeviceId, Result<(), E>)> {
    let results = results
        .into_iter()
        .map(|r| r.unwrap_or_else(|e| Err(e.into())));
    ids.into_iter().zip(results).collect()
}

/// Zeroes slots, durably, while that is wanted.
fn zero_slots(
    name: &str,
    medium: &Medium,
    lease: &Lease,
    slots: &[u32],
    extent: Bytes,
    wanted: &Wanted,
) -> Result<(), ZeroFailed> {
    match medium {
        Medium::Nbd(uri) => {
            let at = |slot: &u32| (DATA_START + u64::from(*slot) * extent.0, extent.0 as u32);
            let ranges: Vec<(u64, u32)> = slots.iter().map(at).collect();
            lease.check().map_err(|e| {
                let why = format!("device {name:?}: cannot zero slots: {e}");
                let (flush, late) = (false, false);
                (ZeroError { why, flush, late }, None)
            })?;
            client::zero(uri, lease, &ranges).map_err(|e| {
                // The server may carry them out yet, and nobody will say when.
                let (why, flush, late) = (e.to_string(), true, true);
                (ZeroError { why, flush, late }, None)
            })
        }
        Medium::File(file, _) => {
            let fail = |flush: bool| {
                move |e: io::Error| {
                    let why = format!("device {name:?}: cannot zero slots: {e}");
                    let late = false;
                    (ZeroError { why, flush, late }, e.raw_os_error())
                }
            };
            // The kernel reports a failed flush once to each opening: guests' flushes must hear of it, too.
            let own = reopened(file, OFlags::empty()).map_err(fail(false))?;
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
