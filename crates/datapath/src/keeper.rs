//! The array's keeper: the one thread that changes the map. Gives extents places, frees slots, makes switches durable.
//!
//! Requests that wait together become one durable commit. Slots that were given up are zeroed and flushed before they
//! are handed out again, in batches, when nothing else is to be done or when they are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use array::{
    ArrayError, Change, Copies, DeviceRecord, DeviceStamp, MapState, NotJoined, Slots, Stamp,
    Superblock, TierRecord, VolumeRecord,
};
use units::{DeviceId, VolumeId};

use crate::device::{Device, Refusal, SlotSpace};
use crate::engine::{Failure, Fault, StoreReply, StoreRequest};
use crate::worker::{Inbox, Message};
use commits::Held;
use places::Waiting;

/// Requests answered with one commit. Bounds the time that the first of them waits for the others' work.
const TOGETHER: usize = 256;

/// After the map could not be written it is left alone for so long: opening it again may take long, and a full disk stays full for a while.
const MAP_PAUSE: Duration = Duration::from_millis(500);

/// When nothing happens for so long, given-up slots are zeroed, which gives their space back.
const IDLE: Duration = Duration::from_millis(50);

/// Something to do.
pub enum ToKeeper {
    /// An engine's request.
    Store {
        /// The worker to answer.
        worker: usize,
        volume: VolumeId,
        /// What it wants.
        request: StoreRequest,
    },
    /// Anything else, done between requests.
    Do(Box<dyn FnOnce(&mut Keeper) + Send>),
    /// End.
    Stop,
}

impl std::fmt::Debug for ToKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ToKeeper::Store {
                volume, request, ..
            } => write!(f, "Store({volume:?}, {request:?})"),
            ToKeeper::Do(_) => write!(f, "Do"),
            ToKeeper::Stop => write!(f, "Stop"),
        }
    }
}

/// Answers to requests, each with the worker that waits for it.
type Answers = Vec<(usize, VolumeId, StoreReply)>;

/// Changes of a request, and its answer once they are durable.
struct Prepared {
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

/// A device that the array has and cannot use.
#[derive(Debug, Clone)]
pub struct LostDevice {
    pub why: String,
    /// What was written to it and not flushed may be lost, and its guests are to be told.
    pub unflushed: bool,
    /// It was lost while guests of this process used it. They were told so.
    pub in_use: bool,
    /// Another program has overwritten its superblock.
    pub overwritten: bool,
    /// Reason why it is not taken back without an operator's consent, though it works.
    pub refused: Option<NotJoined>,
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

/// The array and what is known of it in memory. `D` is a [`Device`], but in tests.
pub struct Keeper<D: SlotSpace = Device> {
    /// The durable map, in its copies.
    pub map: Copies,
    /// Free slots.
    pub slots: Slots,
    /// Devices that can be used.
    pub devices: BTreeMap<DeviceId, Arc<D>>,
    /// Devices that cannot.
    pub lost: BTreeMap<DeviceId, LostDevice>,
    pub records: BTreeMap<DeviceId, DeviceRecord>,
    /// Tiers, high end first.
    pub tiers: Vec<TierRecord>,
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    /// Workers to answer; none when nothing is served.
    pub workers: Vec<Inbox>,
    /// When zeroing slots of a device last failed.
    failed: BTreeMap<DeviceId, Instant>,
    /// When a device last did not answer in time, as space was to be taken on it.
    silent: BTreeMap<DeviceId, Instant>,
    /// Requests for places that cannot be given yet: devices do not answer, or the map cannot be changed now.
    waiting: Vec<Waiting>,
    /// What the store last failed with.
    pub store_error: Option<String>,
    /// Why the last commit was not made, until one is.
    pub map_failing: Option<String>,
    /// Devices of which a flush failed, that nobody was told of because there are no workers.
    pub lost_flushes: Vec<DeviceId>,
    /// Devices that were lost, that nobody was told of because there are no workers.
    pub newly_lost: Vec<DeviceId>,
    /// Superblocks of devices that can be used.
    superblocks: BTreeMap<DeviceId, Superblock>,
    /// Stamps that devices in use may carry, because writing them failed.
    uncertain: BTreeMap<DeviceId, BTreeSet<Stamp>>,
    host: Host,
    next_generation: u64,
    held: Option<Held>,
    /// The map is not asked before this: it failed, and opening it anew takes time.
    pause: Option<Instant>,
    /// Whether the array is open for guests.
    serves: bool,
    /// Whether guests may be in: the first membership of this process holds.
    guests: bool,
    /// Devices that were lost before guests were let in, and their superblocks from before.
    unstamped: BTreeMap<DeviceId, Superblock>,
    /// The map's view of the devices at the start: a device that was lost then is judged by it.
    at_start: (MapState, Vec<DeviceStamp>),
    /// What was used of devices that are lost, while somebody has it still.
    left: BTreeMap<DeviceId, Weak<D>>,
    /// True if a lost device carries, or may carry, the proposed stamp.
    spoiled: bool,
    /// Superblocks of a new generation that are being written.
    writing: Option<refresh::Writing>,
    /// The operator accepts that another copy of the map may have gone on alone, or may yet.
    accepts_map: bool,
    /// Why the map is only looked at.
    not_believed: Option<KeeperError>,
    /// Devices whose high-water mark is to rise to their last slot.
    distrusted: BTreeSet<DeviceId>,
    /// The stamp that this process has proposed last.
    proposed: Option<Stamp>,
    /// The array's directory.
    pub dir: Option<PathBuf>,
    watch: watch::Watch,
    /// Places of volumes that the process before this one has said, until something is changed.
    known: open::Places,
    /// Where volumes are imported from.
    sources: sources::Sources,
    /// Remote devices that could not be claimed, or that another server took over.
    not_owned: BTreeMap<DeviceId, Refusal>,
    /// What was said in the log.
    logged: log::Logged,
    /// Nothing is begun that nobody asked for: zeroing, looks at devices and sources. The array is about to be handed over.
    pub quiet: bool,
}

impl Keeper {
    /// Reads an array's map and opens its devices, as far as they can be.
    ///
    /// # Errors
    /// No copy of the map that can be believed, or one that contradicts itself.
    pub fn open(
        dir: &Path,
        found: Vec<FoundCopy>,
        accept: &AcceptLoss,
    ) -> Result<Self, KeeperError> {
        Self::open_with(found, Host::of(dir, accept), accept, open::open_at_once)
    }

    /// [`Keeper::open`], also of a map that cannot be believed: then nothing can be changed.
    ///
    /// # Errors
    /// No copy of the map that can be read, or one that contradicts itself.
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

    /// Why the map, which is only looked at, cannot be believed.
    pub fn not_believed(&self) -> Option<String> {
        self.not_believed.as_ref().map(|e| crate::text::explain(e))
    }

    /// Returns true if the volumes are those of a damaged map, which are read-only.
    pub fn is_salvaged(&self) -> bool {
        matches!(self.not_believed, Some(KeeperError::Salvaged))
    }

    /// Works until told to stop, or until nobody can ask any more.
    pub fn run(mut self, inbox: &Receiver<ToKeeper>) {
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
                    ToKeeper::Store {
                        worker,
                        volume,
                        request,
                    } => together.push((worker, volume, request)),
                    ToKeeper::Do(what) => {
                        self.serve(std::mem::take(&mut together));
                        what(&mut self);
                    }
                    ToKeeper::Stop => {
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

    /// Looks after what may have changed without anybody's asking.
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

    /// Tries again what waits for devices that did not answer, or for the map.
    fn serve_waiting(&mut self) {
        if !self.waiting.is_empty() && !self.is_paused() {
            let answers = self.place_waiting();
            self.answer(answers);
            self.pause_if_failing();
        }
    }

    /// Carries out requests with one commit, then answers them.
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
    /// Carries out requests with one commit; the answers, each with the worker that waits for it. Those of a commit that cannot be
    /// acknowledged yet come later, from [`Keeper::settle`].
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
            Prepared {
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
    fn make_prepared_durable(&mut self, prepared: Vec<Prepared>) -> Answers {
        let changes = |all: &[Prepared]| -> Vec<Change> {
            all.iter().flat_map(|p| p.changes.clone()).collect()
        };
        let answers =
            |all: Vec<Prepared>| -> Answers { all.into_iter().filter_map(|p| p.answer).collect() };
        let done = self.commit(&changes(&prepared));
        if !matches!(done, Err(ArrayError::NoSpace { .. })) {
            return self.answers_of(done, answers(prepared));
        }
        let (adding, others): (Vec<_>, Vec<_>) = prepared.into_iter().partition(|p| p.adds_records);
        let mut all = self.undone(answers(adding), Fault::NoSpace);
        all.extend(self.make_durable(&changes(&others), answers(others)));
        all
    }

    /// Whether the map is left alone. One that can be written again is not.
    fn is_paused(&self) -> bool {
        let not_over = |until| Instant::now() < until;
        self.map_failing.is_some() && self.pause.is_some_and(not_over)
    }

    fn pause_if_failing(&mut self) {
        if self.map_failing.is_some() {
            self.pause = Some(Instant::now() + MAP_PAUSE);
        }
    }

    /// [`Keeper::carry_out`], unless the map is left alone.
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

    /// What is answered to requests that are not even tried.
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
            // A guest's write waits for it, and would fail. The map may only be slow: it can wait for that too.
            StoreRequest::Place { extents, prefer } => {
                let one = Waiting::new(worker, volume, extents, prefer);
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
            // Its record stays, and the move goes on at the next start.
            StoreRequest::MoveOver => return None,
        };
        Some((worker, volume, reply))
    }

    /// The changes that a request needs, and the answer once they are durable; none where there is none, or not yet.
    fn prepare(
        &mut self,
        worker: usize,
        volume: VolumeId,
        request: StoreRequest,
        changes: &mut Vec<Change>,
    ) -> Option<StoreReply> {
        match request {
            StoreRequest::Place { extents, prefer } => {
                let one = Waiting::new(worker, volume, extents, prefer);
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

    /// The kernel tells of a failed flush once, and has told the keeper: the guests' next flushes must fail.
    fn tell_losses(&mut self) {
        if self.workers.is_empty() {
            return; // whoever drives the keeper asks
        }
        for device in std::mem::take(&mut self.lost_flushes) {
            self.tell(|| Message::FlushFailed(Failure::of_flush(device)));
        }
    }

    /// Guests must know that a device is lost.
    fn tell_lost(&mut self, id: DeviceId) {
        if self.workers.is_empty() {
            return self.newly_lost.push(id); // whoever drives the keeper asks
        }
        let device = Arc::new(Device::lost(id, self.records[&id].name.clone()));
        self.tell(|| Message::DeviceLost(device.clone()));
    }

    /// Says something to all workers.
    fn tell(&self, message: impl Fn() -> Message) {
        for worker in &self.workers {
            worker.send(message());
        }
    }
}

impl<D: SlotSpace> Drop for Keeper<D> {
    fn drop(&mut self) {
        // After an end without an orderly stop, writes may be under way: the claims stay.
        if !self.serves {
            self.unclaim();
        }
        self.devices.values().for_each(|d| d.release());
    }
}

/// Why an array cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Its map.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// There is no copy of the map that can be read.
    #[error("no copy of the map can be read: {whys}")]
    NoCopy { whys: String },
    /// None of the copies of the map can be believed.
    #[error(
        "{why}{whys}. Restore the right copy, or accept this one with `--accept-loss map`: {loss}"
    )]
    NotBelieved {
        #[source]
        why: array::NotChosen,
        /// What is the matter with the copies that cannot be read.
        whys: String,
        /// What may be lost.
        loss: String,
    },
    /// The map is damaged, and only its intact volumes are available.
    #[error(
        "the map is damaged, so its intact volumes are read-only: save them and import them into a new array"
    )]
    Salvaged,
    /// Two extents in one place, or the like: `terrace volume check` says more.
    #[error("the map is inconsistent: {0} (run `terrace volume check`)")]
    Slots(#[from] array::SlotsError),
    /// A device is in use elsewhere. Two writers would overwrite each other's data.
    #[error("{why}")]
    DeviceInUse {
        /// Which, and how that is known.
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
pub use open::{AcceptLoss, FoundCopy, Host, NotOpened, Opened, with_superblock};
pub(crate) use open::{open_one, retried, settle_direct};
pub(crate) use owners::claim_opened;
pub(crate) use problem::errno_name;
pub use second::HINT_FILE;

#[cfg(test)]
mod tests;
