//! Keeper of an array: the only thread that changes the map. It assigns places to extents, frees slots and makes
//! switches durable.
//!
//! Queued requests share one durable commit. Freed slots are zeroed and flushed before they are assigned again. This
//! happens in batches, when the keeper is idle or the slots are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use array::{
    ArrayError, Change, Copies, DeviceRecord, DeviceStamp, JoinError, MapState, Slots, Stamp,
    Superblock, TierRecord, VolumeRecord,
};
use units::{DeviceId, VolumeId};

use crate::device::{Device, Refusal, SlotSpace};
use crate::engine::{Failure, Fault, StoreReply, StoreRequest};
use crate::worker::{Inbox, Message};
use commits::PendingCommit;
use places::PendingPlaces;

/// Most requests in one commit. Bounds the time that the first request waits for the work of the others.
const TOGETHER: usize = 256;

/// Pause after a failed write of the map. Opening the map again may take long, and a full disk stays full for a
/// while.
const MAP_PAUSE: Duration = Duration::from_millis(500);

/// Idle time after which freed slots are zeroed, which returns their space to the file system.
const IDLE: Duration = Duration::from_millis(50);

/// Message to the keeper.
pub enum KeeperMessage {
    /// Request of an engine.
    Store {
        /// Worker that receives the reply.
        worker: usize,
        volume: VolumeId,
        /// Operation on the map.
        request: StoreRequest,
    },
    /// Any other work, executed between requests.
    Do(Box<dyn FnOnce(&mut Keeper) + Send>),
    /// Orderly end.
    Stop,
}

impl std::fmt::Debug for KeeperMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeeperMessage::Store {
                volume, request, ..
            } => write!(f, "Store({volume:?}, {request:?})"),
            KeeperMessage::Do(_) => write!(f, "Do"),
            KeeperMessage::Stop => write!(f, "Stop"),
        }
    }
}

/// Replies to requests, each with its worker and volume.
type Answers = Vec<(usize, VolumeId, StoreReply)>;

/// Changes of a request, and its reply once they are durable.
struct PreparedChanges {
    adds_records: bool,
    changes: Vec<Change>,
    answer: Option<(usize, VolumeId, StoreReply)>,
}

/// Returns true if a request adds records to the map: these fail if its file system is full.
fn adds_records(request: &StoreRequest) -> bool {
    match request {
        StoreRequest::Place { .. } | StoreRequest::CopyUp { .. } | StoreRequest::Arrive { .. } => {
            true
        }
        StoreRequest::Vacate { .. }
        | StoreRequest::Reserve { .. }
        | StoreRequest::Switch { .. }
        | StoreRequest::Unshare { .. }
        | StoreRequest::Gather { .. }
        | StoreRequest::Imported
        | StoreRequest::Free { .. }
        | StoreRequest::MoveOver => false,
    }
}

/// Device of the array that cannot be used.
#[derive(Debug, Clone)]
pub struct LostDevice {
    pub why: String,
    /// True if unflushed writes to the device may be lost, so its guests must get an error.
    pub unflushed: bool,
    /// True if the device was lost while guests of this process used it. Their requests failed.
    pub in_use: bool,
    /// True if another program has overwritten its superblock.
    pub overwritten: bool,
    /// Reason why it is not taken back without an operator's consent, though it works.
    pub refused: Option<JoinError>,
    pub since: Instant,
}

impl LostDevice {
    pub fn new(why: String, unflushed: bool) -> Self {
        Self {
            why,
            unflushed,
            in_use: false,
            overwritten: false,
            refused: None,
            since: Instant::now(),
        }
    }
}

/// The array and its state in memory. `D` is [`Device`] outside of tests.
pub struct Keeper<D: SlotSpace = Device> {
    /// Durable map, in its copies.
    pub map: Copies,
    /// Free slots.
    pub slots: Slots,
    /// Devices that can be used.
    pub devices: BTreeMap<DeviceId, Arc<D>>,
    /// Devices that cannot be used.
    pub lost: BTreeMap<DeviceId, LostDevice>,
    pub records: BTreeMap<DeviceId, DeviceRecord>,
    /// Tiers, high end first.
    pub tiers: Vec<TierRecord>,
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    /// Workers that receive replies; empty if nothing is served.
    pub workers: Vec<Inbox>,
    /// Time of the last failed zeroing of slots, by device.
    failed: BTreeMap<DeviceId, Instant>,
    /// Time at which a device last did not respond in time to an allocation of space.
    silent: BTreeMap<DeviceId, Instant>,
    /// Requests for places that cannot be assigned yet: devices do not respond, or the map cannot be changed now.
    waiting: Vec<PendingPlaces>,
    /// Last error of the store.
    pub store_error: Option<String>,
    /// Error of the last commit; `None` after a successful one.
    pub map_failing: Option<String>,
    /// Devices with a failed flush that was reported to nobody, because no workers exist.
    pub lost_flushes: Vec<DeviceId>,
    /// Lost devices that were reported to nobody, because no workers exist.
    pub newly_lost: Vec<DeviceId>,
    /// Superblocks of devices that can be used.
    superblocks: BTreeMap<DeviceId, Superblock>,
    /// Stamps that devices in use may carry, because writing them failed.
    uncertain: BTreeMap<DeviceId, BTreeSet<Stamp>>,
    host: Host,
    next_generation: u64,
    held: Option<PendingCommit>,
    /// End of the pause of the map after an error: opening it again takes time.
    pause: Option<Instant>,
    /// True while the array is open for guests.
    serves: bool,
    /// True once guests may connect: the first membership of this process is in effect.
    guests: bool,
    /// Devices that were lost before guests could connect, with their earlier superblocks.
    unstamped: BTreeMap<DeviceId, Superblock>,
    /// State of the map and of its devices at the start. Devices that were lost at that time are compared with it.
    at_start: (MapState, Vec<DeviceStamp>),
    /// Former handles of lost devices, while other parts still use them.
    left: BTreeMap<DeviceId, Weak<D>>,
    /// True if a lost device carries, or may carry, the proposed stamp.
    spoiled: bool,
    /// Superblocks of a new generation that are being written.
    writing: Option<refresh::SuperblockWrite>,
    /// True if the operator accepts that another copy of the map may have advanced alone, or may still do so.
    accepts_map: bool,
    /// Reason why the map is open for reading only.
    not_believed: Option<KeeperError>,
    /// Devices whose high-water mark must rise to their last slot.
    distrusted: BTreeSet<DeviceId>,
    /// Last stamp that this process proposed.
    proposed: Option<Stamp>,
    /// The array's directory.
    pub dir: Option<PathBuf>,
    watch: watch::Watch,
    /// Places of volumes that the previous process reported, valid until the first change.
    known: open::Places,
    /// Sources of imports.
    sources: sources::Sources,
    /// Remote devices that could not be claimed, or that another server took over.
    not_owned: BTreeMap<DeviceId, Refusal>,
    /// Messages that were logged.
    logged: log::LogState,
    /// True while the array is about to be handed over: no background work starts, such as zeroing or checks of
    /// devices and sources.
    pub quiet: bool,
}

impl Keeper {
    /// Reads an array's map and opens all usable devices.
    ///
    /// # Errors
    /// [`KeeperError`] if no copy of the map is trustworthy, or if the map contradicts itself.
    pub fn open(
        dir: &Path,
        found: Vec<FoundCopy>,
        accept: &AcceptLoss,
    ) -> Result<Self, KeeperError> {
        Self::open_with(found, Host::of(dir, accept), accept, open::open_at_once)
    }

    /// Like [`Keeper::open`], but also opens a map that is not trustworthy. Such an array cannot be changed.
    ///
    /// # Errors
    /// [`KeeperError`] if no copy of the map can be read, or if the map contradicts itself.
    pub fn look(
        dir: &Path,
        found: Vec<FoundCopy>,
        accept: &AcceptLoss,
    ) -> Result<Self, KeeperError> {
        Self::look_with(found, Host::of(dir, accept), accept, open::open_at_once)
    }

    /// Opens the intact volumes of a map whose copies are all damaged, read-only.
    ///
    /// # Errors
    /// Those of [`Keeper::open`].
    pub fn open_salvaged(dir: &Path, found: FoundCopy) -> Result<Self, KeeperError> {
        let host = Host::of(dir, &AcceptLoss::default());
        Self::open_salvaged_with(found, host, open::open_at_once)
    }

    /// Returns the reason why the map, open for reading only, is not trustworthy.
    pub fn not_believed(&self) -> Option<String> {
        self.not_believed.as_ref().map(|e| crate::text::explain(e))
    }

    /// Returns true if the volumes are those of a damaged map, which are read-only.
    pub fn is_salvaged(&self) -> bool {
        matches!(self.not_believed, Some(KeeperError::Salvaged))
    }

    /// Serves messages until [`KeeperMessage::Stop`], or until all senders are gone.
    pub fn run(mut self, inbox: &Receiver<KeeperMessage>) {
        // Zeroing slots must not take the processor from guests' requests.
        let _ = rustix::process::nice(10);
        loop {
            let first = match inbox.recv_timeout(IDLE) {
                Ok(message) => message,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if !self.quiet {
                        self.clean_a_little();
                    }
                    self.serve_waiting();
                    self.look_after_all();
                    continue;
                }
            };
            let mut together = vec![];
            let rest = inbox.try_iter().take(TOGETHER);
            for message in std::iter::once(first).chain(rest) {
                match message {
                    KeeperMessage::Store {
                        worker,
                        volume,
                        request,
                    } => together.push((worker, volume, request)),
                    KeeperMessage::Do(what) => {
                        self.serve(std::mem::take(&mut together));
                        what(&mut self);
                    }
                    KeeperMessage::Stop => {
                        self.serve(together);
                        self.close();
                        return;
                    }
                }
            }
            self.serve(together);
            self.serve_waiting();
            self.look_after_all();
        }
    }

    /// Does the periodic work that no message requests.
    fn look_after_all(&mut self) {
        match self.quiet {
            true => {
                let answers = self.settle();
                self.answer(answers);
            }
            false => {
                self.look_after();
                self.look_at_known_sources();
            }
        }
        self.log();
    }

    /// Retries requests that wait for unresponsive devices or for the map.
    fn serve_waiting(&mut self) {
        if !self.waiting.is_empty() && !self.is_paused() {
            let answers = self.place_waiting();
            self.answer(answers);
            self.pause_if_failing();
        }
    }

    /// Carries out requests in one commit, then replies.
    fn serve(&mut self, requests: Vec<(usize, VolumeId, StoreRequest)>) {
        let answers = self.carry_out_or_pause(requests);
        self.answer(answers);
    }

    fn answer(&self, answers: Vec<(usize, VolumeId, StoreReply)>) {
        for (worker, volume, reply) in answers {
            self.workers[worker].send(Message::Store(volume, reply));
        }
    }
}

impl<D: SlotSpace> Keeper<D> {
    /// Carries out requests in one commit. Returns the replies, each with its worker. If the commit cannot be
    /// acknowledged yet, its replies come later from [`Keeper::settle`].
    pub fn carry_out(
        &mut self,
        requests: Vec<(usize, VolumeId, StoreRequest)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        if self.held.is_some() {
            return self.refuse_all(requests);
        }
        let prepared = requests.into_iter().map(|(worker, volume, request)| {
            let (adds_records, mut changes) = (adds_records(&request), vec![]);
            let reply = self.prepare(worker, volume, request, &mut changes);
            PreparedChanges {
                adds_records,
                changes,
                answer: reply.map(|reply| (worker, volume, reply)),
            }
        });
        let prepared = prepared.collect();
        self.make_prepared_durable(prepared)
    }

    /// Makes the changes of requests durable in one commit. On a full file system it leaves out
    /// those that add records.
    fn make_prepared_durable(&mut self, prepared: Vec<PreparedChanges>) -> Answers {
        let changes = |all: &[PreparedChanges]| -> Vec<Change> {
            all.iter().flat_map(|p| p.changes.clone()).collect()
        };
        let answers = |all: Vec<PreparedChanges>| -> Answers {
            all.into_iter().filter_map(|p| p.answer).collect()
        };
        let done = self.commit(&changes(&prepared));
        if !matches!(done, Err(ArrayError::NoSpace { .. })) {
            return self.answers_of(done, answers(prepared));
        }
        let (adding, others): (Vec<_>, Vec<_>) = prepared.into_iter().partition(|p| p.adds_records);
        let mut all = self.undone(answers(adding), Fault::NoSpace);
        all.extend(self.make_durable(&changes(&others), answers(others)));
        all
    }

    /// Returns true during the pause after a failed write of the map.
    fn is_paused(&self) -> bool {
        let not_over = |until| Instant::now() < until;
        self.map_failing.is_some() && self.pause.is_some_and(not_over)
    }

    fn pause_if_failing(&mut self) {
        if self.map_failing.is_some() {
            self.pause = Some(Instant::now() + MAP_PAUSE);
        }
    }

    /// Like [`Keeper::carry_out`], but refuses requests while the map is paused.
    fn carry_out_or_pause(
        &mut self,
        requests: Vec<(usize, VolumeId, StoreRequest)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        if requests.is_empty() {
            return vec![];
        }
        if self.is_paused() {
            return self.refuse_all(requests);
        }
        let answers = self.carry_out(requests);
        self.pause_if_failing();
        answers
    }

    /// Returns the replies to requests that are not attempted.
    fn refuse_all(
        &mut self,
        requests: Vec<(usize, VolumeId, StoreRequest)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        let refused = requests.into_iter().filter_map(|r| self.refuse(r));
        refused.collect()
    }

    fn refuse(
        &mut self,
        (worker, volume, request): (usize, VolumeId, StoreRequest),
    ) -> Option<(usize, VolumeId, StoreReply)> {
        let fault = Fault::Io;
        let reply = match request {
            // A guest's write waits for this place and would fail. The map may only be slow, so the request waits for
            // it.
            StoreRequest::Place { extents, prefer } => {
                let one = PendingPlaces::new(worker, volume, extents, prefer);
                self.waiting.push(one);
                return None;
            }
            StoreRequest::Vacate { extents } => StoreReply::Vacated {
                extents,
                done: Err(fault),
            },
            StoreRequest::Reserve { .. } => StoreReply::Reserved(Err(fault)),
            StoreRequest::Switch { .. } => StoreReply::Switched(Err(fault)),
            StoreRequest::Unshare { extent, .. } => StoreReply::Unshared {
                extent,
                to: Err(fault),
            },
            StoreRequest::CopyUp { extent, .. } => StoreReply::CopiedUp {
                extent,
                done: Err(fault),
            },
            StoreRequest::Gather { .. } => StoreReply::Gathered(Err(fault)),
            StoreRequest::Arrive { group, .. } => StoreReply::Arrived {
                group,
                done: Err(fault),
            },
            StoreRequest::Imported => StoreReply::Imported(Err(fault)),
            StoreRequest::Free { slots } => {
                slots.into_iter().for_each(|s| self.slots.give_back(s));
                return None;
            }
            // The move's record stays, and the move continues at the next start.
            StoreRequest::MoveOver => return None,
        };
        Some((worker, volume, reply))
    }

    /// Adds the changes of a request to `changes`, and returns the reply for the time after their commit. `None` if
    /// the request has no reply or must wait.
    fn prepare(
        &mut self,
        worker: usize,
        volume: VolumeId,
        request: StoreRequest,
        changes: &mut Vec<Change>,
    ) -> Option<StoreReply> {
        match request {
            StoreRequest::Place { extents, prefer } => {
                let one = PendingPlaces::new(worker, volume, extents, prefer);
                self.place_or_wait(one, changes)
            }
            StoreRequest::Vacate { extents } => {
                for extent in &extents {
                    changes.push(Change::Vacate {
                        volume,
                        extent: *extent,
                    });
                }
                let done = Ok(());
                Some(StoreReply::Vacated { extents, done })
            }
            StoreRequest::Reserve { device, count } => {
                let slots = self.reserve(device, count, changes);
                Some(StoreReply::Reserved(slots))
            }
            StoreRequest::Switch { places } => {
                for (extent, at) in places {
                    changes.push(Change::Place { volume, extent, at });
                }
                Some(StoreReply::Switched(Ok(())))
            }
            StoreRequest::Unshare {
                extent,
                from,
                prefer,
            } => {
                let to = self.unshare(volume, from, prefer, changes);
                Some(StoreReply::Unshared { extent, to })
            }
            StoreRequest::CopyUp { extent, at } => {
                changes.push(Change::CopyUp { volume, extent, at });
                let done = Ok(());
                Some(StoreReply::CopiedUp { extent, done })
            }
            StoreRequest::Gather { count, prefer } => {
                let slots = self.gather(volume, count, prefer, changes);
                Some(StoreReply::Gathered(slots))
            }
            StoreRequest::Arrive { group, places } => {
                for (extent, at) in places {
                    changes.push(match at {
                        Some(at) => Change::CopyUp { volume, extent, at },
                        None => Change::Vacate { volume, extent },
                    });
                }
                let done = Ok(());
                Some(StoreReply::Arrived { group, done })
            }
            StoreRequest::Imported => {
                let done = self.without_source(volume);
                Some(StoreReply::Imported(done.map(|c| changes.extend(c))))
            }
            StoreRequest::Free { slots } => {
                for slot in slots {
                    self.slots.give_back(slot);
                }
                None
            }
            StoreRequest::MoveOver => {
                changes.push(Change::ClearMove(volume));
                None
            }
        }
    }

    /// Makes the next flushes of guests fail. The kernel reports a failed flush only once, and the keeper has
    /// received that report.
    fn tell_losses(&mut self) {
        if self.workers.is_empty() {
            return; // the driver of the keeper reads `lost_flushes`
        }
        for device in std::mem::take(&mut self.lost_flushes) {
            self.tell(|| Message::FlushFailed(Failure::of_flush(device)));
        }
    }

    /// Reports a lost device to the guests' workers.
    fn tell_lost(&mut self, id: DeviceId) {
        if self.workers.is_empty() {
            return self.newly_lost.push(id); // the driver of the keeper reads it
        }
        let device = Arc::new(Device::lost(id, self.records[&id].name.clone()));
        self.tell(|| Message::DeviceLost(device.clone()));
    }

    /// Sends a message to all workers.
    fn tell(&self, message: impl Fn() -> Message) {
        for worker in &self.workers {
            worker.send(message());
        }
    }
}

impl<D: SlotSpace> Drop for Keeper<D> {
    fn drop(&mut self) {
        // After an end without an orderly stop, writes may be in flight: the claims stay.
        if !self.serves {
            self.unclaim();
        }
        self.devices.values().for_each(|d| d.release());
    }
}

/// Reason why an array cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Error of the map.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// No copy of the map can be read.
    #[error("no copy of the map can be read: {whys}")]
    NoCopy { whys: String },
    /// No copy of the map is trustworthy.
    #[error(
        "{why}{whys}. Restore the right copy, or accept this one with `--accept-loss map`: {loss}"
    )]
    NotBelieved {
        #[source]
        why: array::MapChoiceError,
        /// Errors of the copies that cannot be read.
        whys: String,
        /// Data that may be lost.
        loss: String,
    },
    /// The map is damaged, and only its intact volumes are available.
    #[error(
        "the map is damaged, so its intact volumes are read-only: save them and import them into a new array"
    )]
    Salvaged,
    /// The map contradicts itself, for example by two extents in one place. `terrace volume check` reports details.
    #[error("the map is inconsistent: {0} (run `terrace volume check`)")]
    Slots(#[from] array::SlotsError),
    /// A device is in use elsewhere. Two writers would overwrite each other's data.
    #[error("{why}")]
    DeviceInUse {
        /// Device and evidence of its use.
        why: String,
    },
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    /// Another server uses a remote device or may use it.
    #[error("device {device:?}")]
    NotOwned {
        device: String,
        #[source]
        why: Refusal,
    },
}

mod commits;
pub(crate) mod handed;
mod log;
mod look;
mod members;
mod open;
mod owners;
mod places;
mod problem;
mod refresh;
mod second;
mod snapshots;
mod sources;
mod watch;

pub(crate) use open::Places;
pub use open::random;
pub use open::{AcceptLoss, FoundCopy, Host, OpenError, OpenResult, with_superblock};
pub(crate) use open::{open_one, retried, settle_direct};
pub(crate) use owners::claim_opened;
pub(crate) use problem::errno_name;
pub use second::HINT_FILE;

#[cfg(test)]
mod tests;
