//! Operations of the keeper on a device: space for slots, zeroing of freed slots, superblocks, and a flush of all
//! data. The wait for each is limited to the time that other requests can wait.

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
use crate::error::DatapathError;
use crate::helper_thread::{Outcome, WorkFlag, at_once};
use crate::keeper::retried;

/// Reason why slots were not zeroed.
#[derive(Debug, Clone, Error)]
#[error("{why}")]
pub struct ZeroError {
    /// Message for the operator.
    pub why: String,
    /// True if a flush has failed or may have failed: earlier writes of guests may be lost, and no other flush will
    /// report it.
    pub flush: bool,
    /// True if the zeroing may still happen at any time. The slots are not assigned before the next start, or before
    /// [`SlotSpace::zeroed_late`] reports its end.
    pub late: bool,
}

/// Slots whose zeroing has ended, with the result.
pub type ZeroResult = (Vec<u32>, Result<(), ZeroError>);

/// Result of an allocation of a slot's space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Allocated, or unknown until a write.
    Held,
    None,
    /// The device did not respond in time.
    NotInTime,
}

/// Device as the keeper uses it. The crash tests have simulated ones.
pub trait SlotSpace: Sized {
    /// Zeroes slots of `extent` bytes durably.
    ///
    /// # Errors
    /// [`ZeroError`]; the content of the slots is then unknown.
    fn zero(&self, slots: &[u32], extent: Bytes) -> Result<(), ZeroError>;

    /// Returns true while a zeroing continues after its time limit.
    fn is_zeroing(&self) -> bool;

    /// Returns the result of a zeroing that ended after its time limit.
    fn zeroed_late(&self) -> Option<ZeroResult>;

    /// Returns true if no earlier allocation is still in progress.
    fn may_hold(&self) -> bool;

    /// Allocates a slot's space in the file system, so later writes do not fail for lack of space.
    fn hold(&self, slot: u32, extent: Bytes) -> Space;

    /// Reads the superblock: the later one of the two.
    ///
    /// # Errors
    /// [`DatapathError`]: the superblock cannot be read or is invalid.
    fn read_superblock(&self) -> Result<Superblock, DatapathError>;

    /// Writes both superblocks durably, one after the other ([`Superblock::writes`]). Writes
    /// nothing if another program has changed them since this process last read or wrote them.
    ///
    /// # Errors
    /// [`StampError`]. After an error of the system each place may hold the old or the new
    /// superblock.
    fn write_superblock(&self, superblock: &Superblock) -> Result<(), StampError>;

    /// Makes all writes durable.
    ///
    /// # Errors
    /// Those of a flush.
    fn flush_all(&self) -> io::Result<()>;

    /// Releases the lock of the device: other processes may use it, even if parts of this handle are still being
    /// closed.
    fn release(&self) {}

    /// Claims remote devices in parallel; other devices need no claim. Returns the devices that
    /// could not be claimed, with the reasons.
    fn claim_each(_: Vec<(DeviceId, Arc<Self>)>, _: &Arc<Claimant>) -> Vec<(DeviceId, Refusal)> {
        vec![]
    }

    /// Releases remote devices for other servers.
    fn unclaim_each(_: Vec<Arc<Self>>) {}

    /// Calls [`SlotSpace::flush_all`] for several devices.
    fn flush_each(all: Vec<(DeviceId, Arc<Self>)>) -> Vec<(DeviceId, io::Result<()>)> {
        let one = |(id, device): (DeviceId, Arc<Self>)| (id, device.flush_all());
        all.into_iter().map(one).collect()
    }

    /// Calls [`SlotSpace::write_superblock`] for several devices.
    fn write_superblocks(
        all: Vec<(DeviceId, Arc<Self>, Superblock)>,
    ) -> Vec<(DeviceId, Result<(), StampError>)> {
        let one = |(id, device, block): (DeviceId, Arc<Self>, Superblock)| {
            (id, device.write_superblock(&block))
        };
        all.into_iter().map(one).collect()
    }
}

/// Time limit to write a superblock; a device that exceeds it is lost. Requests wait meanwhile, for at most a third
/// of their own time limit. A busy disk may need seconds for a durable write.
pub(crate) const STAMP_TIME: Duration = Duration::from_secs(10);

/// Time limit to flush a device at the stop. A device that exceeds it gets no record of an orderly stop.
pub(crate) const FLUSH_TIME: Duration = Duration::from_secs(60);

/// Time limit of a claim: three intervals of heartbeats, and slow connections.
const CLAIM_TIME: Duration = Duration::from_secs(30);

/// Time limit to allocate space for a slot; otherwise the slot is not used. Other requests wait for the keeper
/// meanwhile.
const HOLD_TIME: Duration = Duration::from_secs(1);

/// Longest wait for a zeroing, because other requests wait for the keeper meanwhile. Most disks need less for a
/// batch. A busy disk that needs more loses nothing, because the end is received later.
const ZERO_TIME: Duration = Duration::from_secs(2);

/// Time after which a zeroing counts as hanging; equals the time limit of an I/O.
pub(super) const ZERO_HANGS: Duration = Duration::from_secs(30);

/// Slots whose zeroing has exceeded the longest wait.
#[derive(Debug)]
pub(super) struct LateZeroing {
    slots: Vec<u32>,
    end: Receiver<Result<(), ZeroFailed>>,
}

/// Reason why slots were not zeroed, with the error of the system if it has one.
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
        let work =
            move |wanted: &WorkFlag| zero_slots(&name, &medium, &lease, &all, extent, wanted);
        match self.zeroer.within(ZERO_TIME, work) {
            Outcome::Done(result) => self.zeroed(result),
            Outcome::Late(end) => {
                self.failed("zero", Errno::TIMEDOUT.raw_os_error());
                let slots = slots.to_vec();
                let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
                *late = Some(LateZeroing { slots, end });
                fail("the device does not respond", true)
            }
            Outcome::NotBegun => fail("the request could not be started", false),
        }
    }

    fn is_zeroing(&self) -> bool {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.is_some()
    }

    fn zeroed_late(&self) -> Option<ZeroResult> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match late.as_ref()?.end.try_recv() {
            Ok(result) => self.zeroed(result),
            Err(TryRecvError::Empty) => return None,
            // The job panicked: the state of the slots is unknown.
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
            move |_: &WorkFlag| fallocate(&*file, FallocateFlags::KEEP_SIZE, offset, extent.0);
        let failed = |errno: Errno| self.failed("allocate", errno.raw_os_error());
        match self.holder.within(HOLD_TIME, allocate) {
            Outcome::Done(Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG))) => {
                failed(e);
                Space::None
            }
            // Some file systems cannot allocate; a lack of space then appears at a write.
            Outcome::Done(_) => Space::Held,
            Outcome::Late(_) => {
                failed(Errno::TIMEDOUT);
                Space::NotInTime
            }
            Outcome::NotBegun => Space::NotInTime,
        }
    }

    fn read_superblock(&self) -> Result<Superblock, DatapathError> {
        let head = self.read_bytes(0, SUPERBLOCKS_BYTES, client::QUICK_TIME);
        let head = head.map_err(DatapathError::system("read", &"its superblock"))?;
        let found = Superblock::decode_both(&head).map_err(DatapathError::failed)?;
        self.expect(head);
        Ok(found)
    }

    fn write_superblock(&self, superblock: &Superblock) -> Result<(), StampError> {
        // A transient error does not make it a lost device.
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
        // A job that hangs may still write. The lock then ends with its opening, not earlier.
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
    /// Counts a failed zeroing.
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

/// Zeroes slots durably, until it is cancelled.
fn zero_slots(
    name: &str,
    medium: &Medium,
    lease: &Lease,
    slots: &[u32],
    extent: Bytes,
    wanted: &WorkFlag,
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
                // The server may still carry out the requests, and does not report when.
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
            // The kernel reports a failed flush once to each opening. A separate opening leaves the report for
            // guests' flushes.
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

/// Zeroes a range and frees its space if possible; otherwise writes zeroes.
fn zero_range(file: &File, offset: u64, length: u64, wanted: &WorkFlag) -> io::Result<()> {
    /// Bytes zeroed at once: the file system locks the file meanwhile, and guests' writes wait.
    const AT_ONCE: u64 = 128 << 10;
    /// Zeroing takes one in this many parts of the time, so it hardly slows the guests of the same file.
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
