//! The array's keeper: the one thread that changes the map. Gives extents places, frees slots, makes switches durable.
//!
//! Requests that wait together become one durable commit. Slots that were given up are zeroed and flushed before they
//! are handed out again, in batches, when nothing else is to be done or when they are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use array::{
    ArrayError, Change, CommitError, Copies, DeviceKind, DeviceRecord, Slots, Stamp, Superblock,
    TierRecord, VolumeRecord,
};
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use crate::device::{Device, SlotSpace, Space, ZeroError};
use crate::engine::{Fault, StoreReply, StoreRequest};
use crate::worker::{Inbox, Message};

/// Requests answered with one commit. Bounds the time that the first of them waits for the others' work.
const TOGETHER: usize = 256;

/// Slots zeroed and flushed at once.
const CLEAN_AT_ONCE: usize = 64;

/// Bytes zeroed and flushed at once, if that is more than one slot: somebody may wait for the first of them.
const CLEAN_BYTES: u64 = 64 << 20;

/// Slots zeroed in one idle moment. Bounds how long a request may have to wait behind them.
const CLEAN_WHEN_IDLE: usize = 8;

/// A device that failed to zero slots, or did not answer, is not asked for new ones for so long: others wait for the keeper meanwhile.
const SPARE_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// New extents wait so long for a device that does not answer, where no other has room; as long as an I/O on it would.
const PLACE_TIME: Duration = Duration::from_secs(30);

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
        /// The volume.
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

/// A device that the array has and cannot use.
#[derive(Debug, Clone)]
pub struct LostDevice {
    /// Why.
    pub why: String,
    /// What was written to it and not flushed may be lost, and its guests are to be told.
    pub unflushed: bool,
    /// It was lost while this process used it: its guests were told so, and it is not taken back without an operator's word.
    pub in_use: bool,
}

/// A commit that is not acknowledged yet: it is not known whether it is durable, or a copy of the map was dropped and the membership
/// without it does not hold yet.
struct Held {
    /// None while it is not known.
    durable: Option<bool>,
    changes: Vec<Change>,
    answers: Vec<(usize, VolumeId, StoreReply)>,
}

/// A request for places that no device could be found for in time.
struct Waiting {
    since: Instant,
    worker: usize,
    volume: VolumeId,
    extents: Vec<u32>,
    prefer: Option<DeviceId>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPlace {
    /// No device has room.
    Full,
    /// Those that may have do not answer.
    NotInTime,
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
    /// Their records.
    pub records: BTreeMap<DeviceId, DeviceRecord>,
    /// Tiers, high end first.
    pub tiers: Vec<TierRecord>,
    /// Volumes.
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    /// Workers to answer; none when nothing is served.
    pub workers: Vec<Inbox>,
    /// When zeroing slots of a device last failed.
    failed: BTreeMap<DeviceId, Instant>,
    /// When a device last did not answer in time, as space was to be taken on it.
    silent: BTreeMap<DeviceId, Instant>,
    /// Requests for places on devices that do not answer.
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
    /// What was used of devices that are lost, while somebody has it still.
    left: BTreeMap<DeviceId, Weak<D>>,
    /// A device was lost that carries the stamp that is proposed.
    spoiled: bool,
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
}

impl Keeper {
    /// Reads an array's map and opens its devices, as far as they can be.
    ///
    /// # Errors
    /// No copy of the map that can be believed, or one that contradicts itself.
    pub fn open(found: Vec<FoundCopy>, accept: &AcceptLoss) -> Result<Self, KeeperError> {
        Self::open_with(found, Host::this(), accept, members::open_at_once)
    }

    /// [`Keeper::open`], also of a map that cannot be believed: then nothing can be changed.
    ///
    /// # Errors
    /// No copy of the map that can be read, or one that contradicts itself.
    pub fn look(found: Vec<FoundCopy>, accept: &AcceptLoss) -> Result<Self, KeeperError> {
        Self::look_with(found, Host::this(), accept, members::open_at_once)
    }

    /// Why the map, which is only looked at, cannot be believed.
    pub fn not_believed(&self) -> Option<String> {
        self.not_believed.as_ref().map(|e| crate::text::explain(e))
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
                    self.clean_a_little();
                    self.serve_waiting();
                    self.look_after();
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
            self.look_after();
        }
    }

    /// Tries again what waits for devices that did not answer.
    fn serve_waiting(&mut self) {
        if !self.waiting.is_empty() {
            let answers = self.place_waiting();
            self.answer(answers);
        }
    }

    /// Carries out requests with one commit, then answers them.
    fn serve(&mut self, requests: Vec<(usize, VolumeId, StoreRequest)>) {
        let paused = self.pause.is_some_and(|until| Instant::now() < until);
        let answers = match paused {
            true => requests
                .into_iter()
                .filter_map(|r| self.refuse(r))
                .collect(),
            false => self.carry_out(requests),
        };
        self.answer(answers);
        if self.map_failing.is_some() && !paused {
            self.pause = Some(Instant::now() + MAP_PAUSE);
        }
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
            return requests
                .into_iter()
                .filter_map(|r| self.refuse(r))
                .collect();
        }
        let mut changes = vec![];
        let mut answers = vec![];
        for (worker, volume, request) in requests {
            if let Some(reply) = self.prepare(worker, volume, request, &mut changes) {
                answers.push((worker, volume, reply));
            }
        }
        self.make_durable(&changes, answers)
    }

    /// The answers that may be given once changes are made.
    fn make_durable(
        &mut self,
        changes: &[Change],
        answers: Vec<(usize, VolumeId, StoreReply)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        let done = self.commit(changes).is_ok();
        match &mut self.held {
            Some(held) => {
                held.answers = answers;
                vec![]
            }
            None if done => answers,
            None => self.undone(answers),
        }
    }

    /// Tries again what waits for devices that did not answer; the answers of those that need not wait any longer. To be called often.
    pub fn place_waiting(&mut self) -> Vec<(usize, VolumeId, StoreReply)> {
        if self.held.is_some() {
            return vec![];
        }
        let (mut changes, mut answers) = (vec![], vec![]);
        for one in std::mem::take(&mut self.waiting) {
            if !self.volumes.contains_key(&one.volume) {
                continue; // deleted: nobody waits
            }
            let (worker, volume) = (one.worker, one.volume);
            let reply = self.place_or_wait(one, &mut changes);
            answers.extend(reply.map(|r| (worker, volume, r)));
        }
        self.make_durable(&changes, answers)
    }

    /// The answer to a request for places; none if it has to wait.
    fn place_or_wait(&mut self, one: Waiting, changes: &mut Vec<Change>) -> Option<StoreReply> {
        let places = match self.place_all(one.volume, one.extents.len(), one.prefer, changes) {
            Err(NoPlace::NotInTime) if one.since.elapsed() < PLACE_TIME => {
                self.waiting.push(one);
                return None;
            }
            Err(NoPlace::NotInTime) => Err(Fault::Io),
            Err(NoPlace::Full) => Err(Fault::NoSpace),
            Ok(places) => Ok(places),
        };
        let (volume, extents) = (one.volume, one.extents);
        for (extent, at) in extents.iter().zip(places.iter().flatten()) {
            changes.push(Change::Place {
                volume,
                extent: *extent,
                at: *at,
            });
        }
        Some(StoreReply::Placed { extents, places })
    }

    /// What is answered to a request that is not even tried.
    fn refuse(
        &mut self,
        (worker, volume, request): (usize, VolumeId, StoreRequest),
    ) -> Option<(usize, VolumeId, StoreReply)> {
        let fault = Fault::Io;
        let reply = match request {
            StoreRequest::Place { extents, .. } => StoreReply::Placed {
                extents,
                places: Err(fault),
            },
            StoreRequest::Vacate { extents } => StoreReply::Vacated {
                extents,
                done: Err(fault),
            },
            StoreRequest::Reserve { .. } => StoreReply::Reserved(Err(fault)),
            StoreRequest::Switch { .. } => StoreReply::Switched(Err(fault)),
            StoreRequest::Free { slots } => {
                slots.into_iter().for_each(|s| self.slots.give_back(s));
                return None;
            }
            // Its record stays, and the move goes on at the next start.
            StoreRequest::MoveOver => return None,
        };
        Some((worker, volume, reply))
    }

    /// Answers of a commit that certainly was not made: slots that were taken for it are free again.
    fn undone(
        &mut self,
        answers: Vec<(usize, VolumeId, StoreReply)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        let failed = answers.into_iter().map(|(worker, volume, reply)| {
            let taken = match &reply {
                StoreReply::Placed { places, .. } => places.as_ref().ok(),
                StoreReply::Reserved(slots) => slots.as_ref().ok(),
                StoreReply::Vacated { .. } | StoreReply::Switched(_) => None,
            };
            for slot in taken.into_iter().flatten() {
                self.slots.give_back(*slot);
            }
            (worker, volume, failed(reply))
        });
        failed.collect()
    }

    /// Makes changes durable in every copy of the map that is a member.
    ///
    /// # Errors
    /// When they are not, or when that is not known or cannot be acknowledged yet: [`Keeper::settle`] goes on with that.
    pub fn commit(&mut self, changes: &[Change]) -> Result<(), ArrayError> {
        if changes.is_empty() {
            return Ok(());
        }
        let done = self.try_commit(changes);
        match &done {
            Ok(()) => {
                self.map_failing = None;
                self.remember_marks(changes);
            }
            Err(error @ ArrayError::Refused { .. }) => self.store_error = Some(error.to_string()),
            Err(error) => {
                let why = crate::text::explain(error);
                self.store_error = Some(why.clone());
                self.map_failing = Some(why);
            }
        }
        done
    }

    /// Whether there is a commit that may be durable, or is and cannot be acknowledged yet.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn try_commit(&mut self, changes: &[Change]) -> Result<(), ArrayError> {
        self.check_believed()?;
        if self.held.is_some() {
            return Err(ArrayError::Away {
                why: "it is not known yet whether an earlier change is durable".into(),
            });
        }
        if !self.map.confirmed() {
            self.renew()?;
        }
        let held = |changes: &[Change], durable| Held {
            durable,
            changes: changes.to_vec(),
            answers: vec![],
        };
        match self.map.commit(changes) {
            Ok(()) if self.map.confirmed() => Ok(()),
            // A copy was dropped: nothing is acknowledged before the others know.
            Ok(()) => self
                .renew()
                .inspect_err(|_| self.held = Some(held(changes, Some(true)))),
            Err(error) => {
                if matches!(error, CommitError::InDoubt(_)) {
                    self.held = Some(held(changes, None));
                }
                Err(error.into_error())
            }
        }
    }

    /// Tries to come to an end with a commit that could not be acknowledged; the answers of those who wait for it.
    pub fn settle(&mut self) -> Vec<(usize, VolumeId, StoreReply)> {
        // Nothing is committed while something is in doubt: what is, is what is held, if that is.
        if self.map.in_doubt() {
            let Some(durable) = self.map.resolve() else {
                return vec![];
            };
            if let Some(held) = &mut self.held {
                held.durable.get_or_insert(durable);
            }
        }
        if let Some(Held { answers, .. }) = self.held.take_if(|h| h.durable == Some(false)) {
            self.read_records();
            return self.undone(answers);
        }
        if !self.map.confirmed() && self.renew().is_err() {
            return vec![];
        }
        let Some(Held {
            changes, answers, ..
        }) = self.held.take()
        else {
            return vec![];
        };
        self.map_failing = None;
        self.read_records();
        self.remember_marks(&changes);
        answers
    }

    /// What an operator changed may be durable though they were told that it is not known.
    fn read_records(&mut self) {
        if let (Ok(tiers), Ok(devices), Ok(volumes)) =
            (self.map.tiers(), self.map.devices(), self.map.volumes())
        {
            self.tiers = tiers;
            self.volumes = volumes.into_iter().map(|v| (v.id, v)).collect();
            for device in devices {
                match self.records.get_mut(&device.id) {
                    Some(known) => *known = device,
                    // It was being added: it is taken as one that was away.
                    None => {
                        self.slots.add_device(&device);
                        let lost = LostDevice {
                            why: "it was added, and is not in use yet".into(),
                            unflushed: false,
                            in_use: false,
                        };
                        self.lost.insert(device.id, lost);
                        self.records.insert(device.id, device);
                    }
                }
            }
        }
    }

    fn remember_marks(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::HighWater { device, slots } = change
                && let Some(record) = self.records.get_mut(device)
            {
                record.high_water = record.high_water.max(*slots);
            }
        }
    }

    /// What makes a slot one that may be written. A slot that was taken and given back unused is not new to [`Slots`] any
    /// more, and its mark may not be durable all the same: what counts is the mark that is.
    fn mark_for(&self, at: Location) -> Option<Change> {
        (at.slot >= self.records[&at.device].high_water).then_some(Change::HighWater {
            device: at.device,
            slots: at.slot + 1,
        })
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
                let since = Instant::now();
                let one = Waiting {
                    since,
                    worker,
                    volume,
                    extents,
                    prefer,
                };
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

    fn place_all(
        &mut self,
        volume: VolumeId,
        count: usize,
        prefer: Option<DeviceId>,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, NoPlace> {
        let home = self.volumes.get(&volume).map_or(TierId(0), |v| v.home);
        let before = changes.len();
        let mut places = vec![];
        for _ in 0..count {
            match self.place_one(home, prefer, changes) {
                Ok(place) => places.push(place),
                Err(why) => {
                    // They were never written: they are as they were.
                    places.into_iter().for_each(|p| self.slots.give_back(p));
                    changes.truncate(before);
                    return Err(why);
                }
            }
        }
        Ok(places)
    }

    /// Devices to try for a new extent: the preferred one, the home tier, the tiers below it, those above it from the
    /// nearest on; within a tier the one with most room.
    fn candidates(&self, home: TierId, prefer: Option<DeviceId>) -> Vec<DeviceId> {
        let mut tiers: Vec<TierId> = self.tiers.iter().map(|t| t.id).collect();
        tiers.sort_by_key(|t| (*t < home, t.0.abs_diff(home.0)));
        let mut all: Vec<DeviceId> = prefer.into_iter().collect();
        all.retain(|d| self.devices.contains_key(d));
        for tier in tiers {
            let of_tier = self.records.values().filter(|d| d.tier == tier);
            let usable = of_tier.filter(|d| self.devices.contains_key(&d.id));
            let mut devices: Vec<DeviceId> = usable.map(|d| d.id).collect();
            devices.sort_by_key(|d| (u32::MAX - self.slots.free(*d), *d));
            all.extend(devices);
        }
        all
    }

    /// A place for a new extent. Devices that did not answer lately are tried only if no other has room.
    fn place_one(
        &mut self,
        home: TierId,
        prefer: Option<DeviceId>,
        changes: &mut Vec<Change>,
    ) -> Result<Location, NoPlace> {
        let lately = |at: &Instant| at.elapsed() < SPARE_AFTER_FAILURE;
        let silent = |d: &DeviceId| self.silent.get(d).is_some_and(lately);
        let all = self.candidates(home, prefer).into_iter();
        let (last, first): (Vec<_>, Vec<_>) = all.partition(silent);
        let mut none = NoPlace::Full;
        for device in first.into_iter().chain(last) {
            match self.place_on(device) {
                Ok(at) => {
                    changes.extend(self.mark_for(at));
                    return Ok(at);
                }
                Err(NoPlace::NotInTime) => none = NoPlace::NotInTime,
                Err(NoPlace::Full) => {}
            }
        }
        Err(none)
    }

    fn place_on(&mut self, device: DeviceId) -> Result<Location, NoPlace> {
        // No slot is taken for nothing: one that was never used is dirty then.
        if !self.devices[&device].may_hold() {
            return Err(NoPlace::NotInTime);
        }
        if self.slots.clean_left(device) == 0 {
            self.clean(device, CLEAN_AT_ONCE)?;
        }
        let taken = self.slots.take_clean(device).ok_or(NoPlace::Full)?;
        let slot = taken.slot;
        let at = Location { device, slot };
        let space = self.hold_space(at);
        if space != Space::Held {
            self.slots.give_back(at);
        }
        match space {
            Space::Held => {
                self.silent.remove(&device);
                Ok(at)
            }
            Space::None => Err(NoPlace::Full),
            Space::NotInTime => {
                self.silent.insert(device, Instant::now());
                Err(NoPlace::NotInTime)
            }
        }
    }

    fn reserve(
        &mut self,
        device: DeviceId,
        count: usize,
        changes: &mut Vec<Change>,
    ) -> Result<Vec<Location>, Fault> {
        if !self.devices.contains_key(&device) {
            return Err(Fault::Lost);
        }
        let mut places = vec![];
        for _ in 0..count {
            let taken = self.slots.take_any(device);
            let at = taken.map(|t| Location {
                device,
                slot: t.slot,
            });
            match at {
                // A full filesystem fails the copy, which harms nobody.
                Some(at) => places.push(at),
                at => {
                    places
                        .into_iter()
                        .chain(at)
                        .for_each(|p| self.slots.give_back(p));
                    return Err(Fault::NoSpace);
                }
            }
        }
        let highest = places.iter().max();
        changes.extend(highest.and_then(|at| self.mark_for(*at)));
        Ok(places)
    }

    /// Takes a slot's space from the filesystem now, so that a full one is found here and not in the middle of a write.
    fn hold_space(&self, at: Location) -> Space {
        match self.records[&at.device].kind {
            DeviceKind::File => self.devices[&at.device].hold(at.slot, self.map.extent()),
            _ => Space::Held,
        }
    }

    /// What the keeper does when nothing is to be done: zeroes some given-up slots.
    pub fn clean_a_little(&mut self) {
        let all: Vec<DeviceId> = self.devices.keys().copied().collect();
        for device in all {
            self.hear_of_zeroing(device);
            // A remote device is asked only when its slots are needed: it may take long to answer.
            if !self.records[&device].kind.is_remote() {
                let _ = self.clean(device, CLEAN_WHEN_IDLE);
            }
        }
    }

    /// Zeroing that was not over in time may be now.
    fn hear_of_zeroing(&mut self, device: DeviceId) {
        while let Some((slots, result)) = self.devices[&device].zeroed_late() {
            self.failed.remove(&device);
            self.zeroed(device, &slots, result);
        }
    }

    /// Zeroes given-up slots of a device and flushes it; an error if there are no clean ones then.
    fn clean(&mut self, device: DeviceId, most: usize) -> Result<(), NoPlace> {
        self.hear_of_zeroing(device);
        let recently = |at: &Instant| at.elapsed() < SPARE_AFTER_FAILURE;
        let extent = self.map.extent();
        let most = most.min((CLEAN_BYTES / extent.0).max(1) as usize);
        let spared = self.failed.get(&device).is_some_and(recently);
        let dirty = match spared || self.devices[&device].is_zeroing() {
            true => vec![],
            false => self.slots.to_clean(device, most),
        };
        if !dirty.is_empty() {
            let result = self.devices[&device].zero(&dirty, extent);
            self.zeroed(device, &dirty, result);
        }
        match self.slots.clean_left(device) {
            0 if self.devices[&device].is_zeroing() => Err(NoPlace::NotInTime),
            0 => Err(NoPlace::Full),
            _ => Ok(()),
        }
    }

    /// Zeroing of slots is over, or goes on without anybody.
    fn zeroed(&mut self, device: DeviceId, slots: &[u32], result: Result<(), ZeroError>) {
        let Err(error) = result else {
            return self.slots.cleaned(device, slots);
        };
        if error.flush {
            self.lost_flushes.push(device);
            self.tell_losses();
        }
        self.store_error = Some(error.why);
        self.failed.insert(device, Instant::now());
        if !error.late {
            self.slots.not_cleaned(device, slots);
        }
    }

    /// The kernel tells of a failed flush once, and has told the keeper: the guests' next flushes must fail.
    fn tell_losses(&mut self) {
        if self.workers.is_empty() {
            return; // whoever drives the keeper asks
        }
        for device in self.lost_flushes.drain(..) {
            for worker in &self.workers {
                worker.send(Message::FlushFailed(device));
            }
        }
    }

    /// Guests must know that a device is lost.
    fn tell_lost(&mut self, id: DeviceId) {
        if self.workers.is_empty() {
            return self.newly_lost.push(id); // whoever drives the keeper asks
        }
        let device = Arc::new(Device::lost(id, self.records[&id].name.clone()));
        for worker in &self.workers {
            worker.send(Message::DeviceLost(device.clone()));
        }
    }

    /// Space of a tier: used and total bytes.
    pub fn space(&self, tier: TierId) -> (Bytes, Bytes) {
        let extent = self.map.extent().0;
        let of_tier = self.records.values().filter(|d| d.tier == tier);
        let of_tier = of_tier.filter(|d| d.kind != DeviceKind::Gone);
        let (mut used, mut total) = (0, 0);
        for device in of_tier {
            let slots = u64::from(self.slots.total(device.id));
            total += slots * extent;
            used += (slots - u64::from(self.slots.free(device.id))) * extent;
        }
        (Bytes(used), Bytes(total))
    }
}

impl<D: SlotSpace> Drop for Keeper<D> {
    fn drop(&mut self) {
        self.devices.values().for_each(|d| d.release());
    }
}

/// What is answered when the commit failed.
fn failed(reply: StoreReply) -> StoreReply {
    let fault = Fault::Io;
    match reply {
        StoreReply::Placed { extents, places } => StoreReply::Placed {
            extents,
            places: Err(places.err().unwrap_or(fault)),
        },
        StoreReply::Vacated { extents, .. } => StoreReply::Vacated {
            extents,
            done: Err(fault),
        },
        StoreReply::Reserved(slots) => StoreReply::Reserved(Err(slots.err().unwrap_or(fault))),
        StoreReply::Switched(_) => StoreReply::Switched(Err(fault)),
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
    NoCopy {
        /// Why, of each.
        whys: String,
    },
    /// None of the copies of the map can be believed.
    #[error(
        "{why}{whys}. Put the right one back; or start with it all the same, with `--accept-loss map`: {loss}"
    )]
    NotBelieved {
        /// Why.
        #[source]
        why: array::NotChosen,
        /// What is the matter with the copies that cannot be read.
        whys: String,
        /// What may be lost.
        loss: String,
    },
    /// Two extents in one place, or the like: `terrace volume check` says more.
    #[error("the map contradicts itself: {0} (run `terrace volume check`)")]
    Slots(#[from] array::SlotsError),
    /// Another process uses a device: two that change one array would overwrite each other's data.
    #[error("{why}: the array is served by another process, or was until a moment ago")]
    DeviceInUse {
        /// Which, and how that is known.
        why: String,
    },
    /// A device.
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
}

mod look;
mod members;
mod second;
mod trouble;
mod watch;

pub(crate) use members::open_one;
pub use members::{AcceptLoss, FoundCopy, Host, NotOpened, Opened, with_superblock};
pub use second::HINT_FILE;
pub(crate) use trouble::errno_name;

#[cfg(test)]
mod tests;
