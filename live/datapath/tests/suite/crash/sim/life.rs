//! One life of the process: from the start to its end by a crash, or to a state without work.
//!
//! ```text
//!   guests ─▶ engine ─▶ I/O:   executed (in pieces, at any time) ─▶ delivered (any time later) ─▶ engine
//!     ▲          │  ▲
//!     └ replies ─┘  └── store: queued ─▶ carried out by the keeper, some together ─▶ replies, in order, later
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use algo::Rng;
use array::{CopyHealth, CopyId, CopyPlace};
use crashdisk::CrashDisk;
use datapath::device::SlotSpace;
use datapath::direct::{Alignment, BufferedPart, ChangeQueue};
use datapath::engine::{DeviceRequest, Effect, Engine, Failure, Fault, StoreReply, StoreRequest};
use datapath::keeper::{AcceptLoss, FoundCopy, Host, Keeper, KeeperError, with_superblock};
use units::{Bytes, DeviceId, VolumeId};
use volume::{NeighborSlack, VolumeMap};

use super::Tally;
use super::cached::SimCache;
use super::copies::SimPlace;
use super::device::SimDevice;
use super::guest::PendingRequest;
use super::oracle::Oracle;
use super::plan::{Faults, Plan, TIMEOUT_NS};
use super::rings::{LiveRing, RingGuest};
use super::snapshots::ExpectedSnapshot;
use super::stays::Stays;

/// Creates the engine of a volume at the start.
pub(super) fn engine_of(map: VolumeMap, plan: &Plan, keeper: &Keeper<SimDevice>) -> Engine<u64> {
    let mut engine = Engine::new(map, plan.limits);
    for (id, lost) in &keeper.lost {
        engine.device_lost(*id, lost.unflushed);
    }
    engine
}

/// Event at a simulated time.
#[derive(Debug)]
pub enum Event {
    /// A guest sends a request.
    Guest(usize),
    /// A device executes a piece of an I/O.
    Execute(u32, usize),
    /// The process receives the completion of an I/O.
    Deliver(u32),
    /// The keeper takes queued requests.
    Keeper,
    /// The reply of the store arrives.
    Answer(usize, StoreReply),
    /// Timer of an engine.
    Wake(usize),
    /// Periodic work.
    Tick,
    /// The keeper is idle.
    Idle,
    /// Requests are taken from a ring.
    Take(usize),
    /// Replies become visible to the guest of a ring.
    Publish(usize),
    Look(usize),
    /// An operator sends an order.
    Order(usize),
    /// A device that was missing at the start is back.
    Back(usize),
    /// A snapshot is taken of a volume without requests in flight.
    Keep(usize),
}

/// I/O on a device.
#[derive(Debug)]
pub struct SimIo {
    pub(super) volume: usize,
    pub(super) request: DeviceRequest,
    /// `None` if the device is lost.
    pub(super) device: Option<Arc<SimDevice>>,
    /// Guest's request and its buffer version, if the I/O is a part of one.
    pub(super) asked: Option<(u64, u32)>,
    pub(super) bytes: Vec<u8>,
    /// Ranges that are executed separately, with `true` for the executed ones.
    pub(super) pieces: Vec<(u64, u64, bool)>,
    /// Bytes of earlier steps: steps of direct I/O are sequential.
    pub(super) done: u64,
    /// Number of the device's opening that it uses.
    pub(super) opening: u32,
    /// Buffer of the step, if it uses one.
    pub(super) by_buffer: Option<ByBuffer>,
    /// Number in the queue of changes.
    pub(super) ordered: Option<u32>,
    pub(super) result: Result<(), Fault>,
}

/// Buffer of a step of direct I/O.
#[derive(Debug)]
pub struct ByBuffer {
    pub(super) step: BufferedPart,
    pub(super) bytes: Vec<u8>,
    /// True if the buffer has data to write; false if it is to be read.
    pub(super) writing: bool,
    /// True if the buffer was read and changed, and is written next.
    pub(super) to_write: bool,
}

/// Reason why a process did not start.
#[derive(Debug)]
pub enum StartError {
    /// The found state is not trusted.
    Refused(String),
    /// A copy of the map would have to continue alone, and too few devices are present.
    TooFew,
    /// The start failed although it should have succeeded.
    Wrong(String),
}

/// The process and its environment.
pub struct Life<'a> {
    pub(super) plan: &'a Plan,
    pub(super) faults: Faults,
    pub(super) rng: Rng,
    pub(super) now_ns: u64,
    pub(super) keeper: Keeper<SimDevice>,
    pub(super) places: [SimPlace; 2],
    /// Devices of the engines; `None` for a lost one.
    pub(super) devices: Vec<Option<Arc<SimDevice>>>,
    /// Disks of present devices, lost or not.
    disks: Vec<Option<CrashDisk>>,
    /// Right disks, which may come back in place of a wrong or missing one.
    right: Vec<CrashDisk>,
    /// Devices whose right disk came back.
    pub(super) came_back: Vec<bool>,
    /// Devices that were part of the array at any time.
    pub(super) taken: Vec<bool>,
    pub(super) engines: Vec<Engine<u64>>,
    /// Page cache in memory, if the plan has one.
    pub(super) cache: Option<SimCache>,
    pub(super) oracles: &'a mut Vec<Oracle>,
    /// Guests with rings, by volume.
    pub(super) rings: &'a mut Vec<Option<RingGuest>>,
    pub(super) live_rings: Vec<Option<LiveRing>>,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    pub(super) next_event: u64,
    pub(super) ios: BTreeMap<u32, SimIo>,
    pub(super) next_io: u32,
    /// Alignment of devices with direct I/O, and the number of each device's opening.
    pub(super) direct: Vec<Option<Alignment>>,
    pub(super) openings: Vec<u32>,
    /// Order of changes by direct I/O.
    pub(super) order: ChangeQueue,
    /// Volumes in growth: sizes before and after.
    pub(super) growing: Vec<Option<(Bytes, Bytes)>>,
    /// I/Os by their numbers in `order`.
    pub(super) numbers: Vec<Option<u32>>,
    pub(super) asked: BTreeMap<u64, PendingRequest>,
    pub(super) next_op: &'a mut u64,
    /// Number of guest requests still to come.
    pub(super) to_come: u64,
    /// Buffers of the moves.
    pub(super) copies: Vec<Vec<u8>>,
    /// Buffers for extents that get private slots, by volume and number.
    pub(super) copies_up: BTreeMap<(usize, u32), Vec<u8>>,
    /// Content of snapshots.
    pub(super) snapshots: &'a mut Vec<ExpectedSnapshot>,
    /// Volume whose restoration from a snapshot is in doubt.
    pub(super) in_doubt: Option<usize>,
    /// Extents that running moves must not touch, by volume.
    pub(super) stays: Vec<Option<Stays>>,
    store_queue: VecDeque<(usize, VolumeId, StoreRequest)>,
    keeper_called: bool,
    /// Arrival time of the last reply of the store, by volume: replies keep their order.
    answers_ns: Vec<u64>,
    /// Number of replies that the store owes.
    pub(super) store_owes: u64,
    /// True if errors of the map's disk are expected and do not end the test.
    pub(super) store_dies: bool,
    /// True if a device that has been lost since had lost data.
    pub(super) lossy: bool,
    /// True once a disk has stopped: no further event happens.
    pub(super) crashed: bool,
    /// True if slots may be unusable until the next start.
    pub(super) leaks: bool,
    pub(super) tally: &'a mut Tally,
}

impl<'a> Life<'a> {
    /// Starts the process on the found disks.
    #[allow(clippy::too_many_arguments)]
    pub fn start(
        plan: &'a Plan,
        faults: Faults,
        mut rng: Rng,
        places: [SimPlace; 2],
        disks: Vec<Option<CrashDisk>>,
        right: Vec<CrashDisk>,
        boot: u128,
        accept: &AcceptLoss,
        oracles: &'a mut Vec<Oracle>,
        rings: &'a mut Vec<Option<RingGuest>>,
        snapshots: &'a mut Vec<ExpectedSnapshot>,
        next_op: &'a mut u64,
        tally: &'a mut Tally,
    ) -> Result<Self, StartError> {
        let wrong = |e: &dyn std::fmt::Display| StartError::Wrong(format!("start: {e}"));
        let seed = rng.next_u64();
        let device = |i: usize, disk: &CrashDisk| {
            SimDevice::new(disk.clone(), plan.devices[i].slots, seed ^ i as u64, faults)
        };
        let open = |_: units::Bytes, records: &[array::DeviceRecord]| {
            let one = |record: &array::DeviceRecord| {
                let i = record.id.index();
                let disk = disks[i].as_ref().ok_or("simulated: it is missing")?;
                with_superblock(device(i, disk))
            };
            records.iter().map(one).collect()
        };
        if tally.trace {
            // Copies of the disks: opening a map writes to it and counts as a write.
            for place in &places {
                let disk = place.disk().map(|d| d.killed());
                let state = SimPlace::new("looked at", disk)
                    .open()
                    .and_then(|a| a.state());
                eprintln!("  {}: {state:?}", place.name());
            }
            for (i, disk) in disks.iter().enumerate() {
                let found = disk
                    .as_ref()
                    .map(|d| device(i, &d.killed()).read_superblock());
                eprintln!("  device {i}: {found:?}");
            }
        }
        let copies = CopyId::ALL
            .into_iter()
            .filter(|c| plan.second || *c == CopyId::First);
        let found = copies.map(|copy| FoundCopy {
            copy,
            array: places[copy.index()].look(),
            place: Box::new(places[copy.index()].clone()),
        });
        let mut nonces = Rng::new(seed, 0x4e);
        let host = Host {
            boot,
            nonce: Box::new(move || nonces.next_u64()),
            claimant: Arc::default(),
        };
        let keeper = Keeper::open_with(found.collect(), host, accept, open);
        let mut keeper = keeper.map_err(|e| match e {
            KeeperError::NoCopy { .. } | KeeperError::NotBelieved { .. } => {
                StartError::Refused(e.to_string())
            }
            other => wrong(&other),
        })?;
        let report = keeper.map.check().map_err(|e| wrong(&e))?;
        if !report.is_clean() {
            let what = format!("the map does not fit together: {report:?}");
            return Err(StartError::Wrong(what));
        }
        let there = |i: u16| keeper.devices.contains_key(&DeviceId(i));
        let taken: Vec<bool> = (0..plan.devices.len() as u16).map(there).collect();
        let before: Vec<Arc<SimDevice>> = keeper.devices.values().cloned().collect();
        // Guarantees from before the admission of guests must also hold if the start ends in a crash.
        if faults.stamps {
            for disk in disks.iter().flatten() {
                disk.fail_after(rng.below(3) / 2);
            }
        } else if faults.io > 0 && rng.below(6) == 0 {
            let any = places
                .iter()
                .filter_map(SimPlace::disk)
                .chain(disks.iter().flatten().cloned());
            let any: Vec<CrashDisk> = any.collect();
            let which = rng.below(any.len() as u64) as usize;
            any[which].fail_after(rng.below(30));
        }
        let served = keeper.begin_serving().map_err(|e| e.to_string());
        let stopped = |d: &CrashDisk| d.stopped();
        let crashed = places
            .iter()
            .filter_map(SimPlace::disk)
            .any(|d| stopped(&d))
            || disks.iter().flatten().any(stopped);
        if !crashed
            && served
                .as_ref()
                .is_err_and(|why| why.contains("can record that"))
        {
            // The process ends, and with it the planned failures.
            let all = places.iter().filter_map(SimPlace::disk);
            all.chain(disks.iter().flatten().cloned())
                .for_each(|d| d.fail_no_more());
            return Err(StartError::TooFew);
        }
        if let Err(why) = &served
            && !crashed
            && faults.io + faults.flush + faults.write_back == 0
        {
            return Err(StartError::Wrong(format!("cannot serve: {why}")));
        }
        let crashed = crashed || served.is_err();
        keeper.newly_lost.clear();
        let lossy = before.iter().any(|d| d.lossy.load(Ordering::Relaxed));
        let devices =
            (0..plan.devices.len() as u16).map(|i| keeper.devices.get(&DeviceId(i)).cloned());
        let mut devices: Vec<Option<Arc<SimDevice>>> = devices.collect();
        let mut sources_away = vec![];
        for (volume, source) in plan.sources.iter().enumerate() {
            let size = plan.volumes[volume];
            let imports = keeper.volumes[&VolumeId(volume as u32)].source.is_some();
            let away = faults.io > 0 && imports && rng.below(5) == 0;
            tally.source_away += u64::from(away);
            if away {
                sources_away.push(volume);
            }
            let seed = seed ^ 0x50 ^ volume as u64;
            let source = source.as_ref().filter(|_| imports && !away);
            devices.push(source.map(|s| s.device(volume, size, seed, faults)));
        }
        let mut engines = vec![];
        for i in 0..plan.volumes.len() {
            // The volume may have grown.
            let size = &keeper.volumes[&VolumeId(i as u32)].size.0;
            let map = match keeper.volume_map(&keeper.volumes[&VolumeId(i as u32)]) {
                Ok(map) => map,
                // The disk has stopped, and so has the process.
                Err(_) if crashed => VolumeMap::at(
                    units::Bytes(*size),
                    keeper.map.extent(),
                    vec![None; size.div_ceil(super::plan::EXTENT) as usize],
                ),
                Err(error) => return Err(wrong(&error)),
            };
            let mut engine = engine_of(map, plan, &keeper);
            if let Some(source) = &plan.sources[i] {
                engine.set_import_bandwidth(source.bandwidth);
            }
            if sources_away.contains(&i) {
                engine.device_lost(super::sources::number(i), false);
            }
            engines.push(engine);
        }
        tally.lost_at_start += keeper.lost.len() as u64;
        let lost = keeper.lost.values();
        tally.unflushed += lost
            .clone()
            .filter(|l| l.why.contains("may not have been flushed"))
            .count() as u64;
        tally.old_devices += lost.filter(|l| l.why.contains("of generation")).count() as u64;
        let members = keeper.map.members();
        tally.second_alone += u64::from(!members.first);
        tally.first_alone += u64::from(plan.second && !members.second);
        let moves = match keeper.map.moves() {
            Err(_) if crashed => vec![],
            moves => moves.map_err(|e| wrong(&e))?,
        };
        let n = engines.len();
        let mut life = Self {
            plan,
            faults,
            rng,
            now_ns: 1,
            keeper,
            places,
            taken,
            devices,
            came_back: vec![false; disks.len()],
            disks,
            right,
            cache: plan.cache.as_ref().map(|settings| {
                let sizes = engines.iter().map(|e| e.map().size().0);
                SimCache::new(settings, sizes)
            }),
            engines,
            oracles,
            live_rings: rings.iter().map(|_| None).collect(),
            rings,
            events: BTreeMap::new(),
            next_event: 0,
            ios: BTreeMap::new(),
            next_io: 0,
            direct: plan
                .devices
                .iter()
                .map(|d| d.direct)
                .chain(plan.sources.iter().map(|_| None))
                .collect(),
            openings: vec![0; plan.devices.len() + n],
            growing: vec![None; n],
            order: ChangeQueue::default(),
            numbers: vec![],
            asked: BTreeMap::new(),
            next_op,
            to_come: plan.requests,
            copies: vec![vec![]; n],
            copies_up: BTreeMap::new(),
            snapshots,
            in_doubt: None,
            stays: vec![None; n],
            store_queue: VecDeque::new(),
            keeper_called: false,
            answers_ns: vec![0; n],
            store_owes: 0,
            store_dies: false,
            lossy,
            crashed,
            leaks: crashed,
            tally,
        };
        if crashed {
            life.tally.in_start += 1;
            return Ok(life);
        }
        for device in 0..plan.devices.len() {
            life.reopen(device);
        }
        life.after(TIMEOUT_NS / 3, Event::Tick);
        for record in moves {
            let order = record.order();
            let started = life.engines[record.volume.index()].start_move(
                1,
                order.clone(),
                NeighborSlack::UNKNOWN,
            );
            started.map_err(|_| wrong(&"a move is there before it was resumed"))?;
            life.tally.resumed += 1;
            life.tally.resumed_of_extents += u64::from(record.extents.is_some());
            life.watch_move(record.volume.index(), &order);
            life.settle(record.volume.index()).map_err(|e| wrong(&e))?;
        }
        for volume in 0..n {
            life.engines[volume].wake(1);
            life.settle(volume).map_err(|e| wrong(&e))?;
        }
        Ok(life)
    }

    /// Returns the lost device that has a sector of a volume.
    pub(super) fn lost_under(&self, volume: usize, sector: usize) -> Option<usize> {
        let extent = sector * super::oracle::SECTOR / super::plan::EXTENT as usize;
        let device = self.engines[volume].map().location(extent)?.device.index();
        self.devices[device].is_none().then_some(device)
    }

    /// Reads the volumes without the engines: the state after a crash.
    pub fn contents(&self) -> Result<Vec<Vec<u8>>, String> {
        let extent = super::plan::EXTENT;
        let mut all = vec![];
        for engine in &self.engines {
            let map = engine.map();
            let mut bytes = vec![0; map.size().0 as usize];
            for (e, part) in bytes.chunks_mut(extent as usize).enumerate() {
                if let Some(at) = map.location(e)
                    && let Some(device) = &self.devices[at.device.index()]
                {
                    let disk = &device.disk;
                    disk.read(u64::from(at.slot) * extent, part)
                        .map_err(|e| e.to_string())?;
                }
            }
            all.push(bytes);
        }
        Ok(all)
    }

    /// Starts the guests and the operator.
    pub fn open_for_guests(&mut self) {
        self.begin_rings();
        for volume in 0..self.engines.len() {
            self.after(1, Event::Guest(volume));
            let order_ns = self.some(self.plan.order_ns);
            self.after(order_ns, Event::Order(volume));
        }
        self.after(1_000_000, Event::Idle);
        for i in 0..self.plan.devices.len() {
            if self.devices[i].is_none() && self.rng.below(2) == 0 {
                let wait_ns = self.some(50_000_000);
                self.after(wait_ns, Event::Back(i));
            }
        }
    }

    pub(super) fn after(&mut self, ns: u64, event: Event) {
        self.next_event += 1;
        let key = (self.now_ns + ns, self.next_event);
        self.events.insert(key, event);
    }

    /// Returns a random time around a mean.
    pub(super) fn some(&mut self, mean_ns: u64) -> u64 {
        1 + self.rng.below(2 * mean_ns)
    }

    pub(super) fn chance(&mut self, of_thousand: u64) -> bool {
        of_thousand > 0 && self.rng.below(1000) < of_thousand
    }

    /// Executes the next event; false if there is none.
    pub fn step(&mut self) -> Result<bool, String> {
        let Some(((at_ns, _), event)) = self.events.pop_first() else {
            return Ok(false);
        };
        self.now_ns = at_ns;
        self.tally.events += 1;
        if self.tally.trace {
            eprintln!("{at_ns:>12} {event:?}");
        }
        match event {
            Event::Guest(volume) => self.ask(volume)?,
            Event::Execute(io, piece) => self.execute(io, piece),
            Event::Deliver(io) => self.deliver(io)?,
            Event::Keeper => self.keep()?,
            Event::Answer(volume, reply) => {
                self.store_owes -= 1;
                self.engines[volume].store_done(at_ns, reply);
                self.settle(volume)?;
            }
            Event::Wake(volume) => {
                self.engines[volume].wake(at_ns);
                self.settle(volume)?;
            }
            Event::Tick => {
                for volume in 0..self.engines.len() {
                    self.engines[volume].tick(at_ns);
                    self.settle(volume)?;
                }
                self.after(TIMEOUT_NS / 3, Event::Tick);
            }
            Event::Idle => {
                if self.rng.below(4) == 0 {
                    self.keeper.clean_a_little();
                    let answers = self.keeper.place_waiting();
                    self.look_at_disks();
                    self.tell_failures();
                    if !self.crashed {
                        self.deliver_answers(answers);
                    }
                }
                if self.rng.below(2) == 0 {
                    let answers = self.keeper.settle();
                    self.tally.settled += answers.len() as u64;
                    let begin = self.rng.below(3) == 0;
                    let health = self.keeper.map.health().into_iter();
                    let anew = health.filter(|h| matches!(h.2, CopyHealth::Rebuilding { .. }));
                    let anew: Vec<CopyId> = anew.map(|h| h.0).collect();
                    self.keeper.look_at_copies(begin);
                    let is_member = |c: &&CopyId| self.keeper.map.members().contains(**c);
                    self.tally.copies_anew += anew.iter().filter(is_member).count() as u64;
                    self.look_at_disks();
                    self.tell_failures();
                    if !self.crashed {
                        self.deliver_answers(answers);
                    }
                }
                if self.rng.below(8) == 0 {
                    // If the map cannot be written now, the next commit reports it.
                    let _ = self.keeper.refresh();
                    self.look_at_disks();
                    self.tell_failures();
                }
                let idle_ns = self.some(20_000_000);
                self.after(idle_ns, Event::Idle);
            }
            Event::Take(volume) => self.take(volume)?,
            Event::Publish(volume) => self.publish(volume),
            Event::Look(volume) => self.look(volume)?,
            Event::Order(volume) => self.order(volume)?,
            Event::Back(device) => self.come_back(device)?,
            Event::Keep(volume) => self.take_snapshot(volume)?,
        }
        Ok(!self.crashed)
    }

    /// Carries out the effects of an engine.
    pub(super) fn settle(&mut self, volume: usize) -> Result<(), String> {
        let mut effects = vec![];
        loop {
            self.engines[volume].take_effects(&mut effects);
            if let Some(stays) = &mut self.stays[volume] {
                stays.look(self.engines[volume].map())?;
            }
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects.drain(..) {
                if self.tally.trace {
                    eprintln!("{:>12}   volume {volume}: {effect:?}", "");
                }
                match effect {
                    Effect::Io(request) => self.start_io(volume, request),
                    Effect::Reply {
                        guest,
                        result,
                        gaps,
                        ..
                    } => {
                        self.engine_replied(volume, guest, result, &gaps)?;
                    }
                    Effect::Store(request) => {
                        let copied_up = matches!(request, StoreRequest::CopyUp { .. });
                        self.tally.copied_up += u64::from(copied_up);
                        if let StoreRequest::Arrive { places, .. } = &request {
                            self.tally.arrived += places.len() as u64;
                        }
                        self.tally.imported += u64::from(request == StoreRequest::Imported);
                        let answers =
                            !matches!(request, StoreRequest::Free { .. } | StoreRequest::MoveOver);
                        self.store_owes += u64::from(answers);
                        self.store_queue
                            .push_back((volume, VolumeId(volume as u32), request));
                        self.call_keeper();
                    }
                    Effect::Wake(at_ns) => {
                        self.after(at_ns.saturating_sub(self.now_ns), Event::Wake(volume));
                    }
                    Effect::AtRest(result) => {
                        self.at_rest(volume, result)?;
                        if self.crashed {
                            return Ok(());
                        }
                    }
                    Effect::MoveEnded(end) => {
                        let stays = self.stays[volume].take().expect("it was begun");
                        stays.ended(&end, self.engines[volume].map())?;
                        self.tally.ended(&end);
                    }
                    Effect::MirrorEnded(end) => self.tally.mirror_ended(&end),
                    Effect::Again { guest, request } => {
                        self.tally.mirror_again += 1;
                        self.disown(guest);
                        self.engines[volume].submit(self.now_ns, guest, request);
                    }
                }
            }
        }
    }

    /// Detaches the I/O of a guest's request from the request's memory.
    pub(super) fn disown(&mut self, op: u64) {
        let own = self
            .ios
            .values_mut()
            .filter(|io| io.asked.is_some_and(|a| a.0 == op));
        own.for_each(|io| io.asked = None);
    }

    fn call_keeper(&mut self) {
        if !self.keeper_called && !self.store_queue.is_empty() {
            self.keeper_called = true;
            let wait_ns = self.some(self.plan.store_ns);
            self.after(wait_ns, Event::Keeper);
        }
    }

    /// Lets the keeper take some of the queued requests.
    fn keep(&mut self) -> Result<(), String> {
        self.keeper_called = false;
        let count = 1 + self.rng.below(self.store_queue.len() as u64) as usize;
        let together: Vec<_> = self.store_queue.drain(..count).collect();
        if self.chance(self.faults.commit) {
            self.tally.commits_failed += 1;
            let both = self.rng.below(3) == 0;
            let which = self.rng.below(2) as usize;
            for i in 0..2 {
                if let Some(disk) = self.places[i].disk().filter(|_| both || i == which) {
                    // The commit may be durable although it fails.
                    disk.fail_once_after(self.rng.below(12), self.rng.below(2) == 0);
                }
            }
        }
        let answers = self.keeper.carry_out(together);
        self.look_at_disks();
        self.tell_failures();
        if self.crashed {
            return Ok(());
        }
        if let Some(why) = self.keeper.store_error.take()
            && !self.store_dies
            && why.contains("of the commit is refused")
        {
            return Err(format!("the map refuses the keeper's changes: {why}"));
        }
        self.deliver_answers(answers);
        self.call_keeper();
        Ok(())
    }

    /// Schedules the later arrival of replies of the store.
    fn deliver_answers(&mut self, answers: Vec<(usize, VolumeId, StoreReply)>) {
        for (volume, _, reply) in answers {
            let long = self.faults.hang > 0 && self.rng.below(200) == 0;
            let wait_ns = if long {
                TIMEOUT_NS * 2
            } else {
                self.plan.io_ns
            };
            let at_ns = self.now_ns + self.some(wait_ns);
            let at_ns = at_ns.max(self.answers_ns[volume]);
            self.answers_ns[volume] = at_ns;
            self.after(at_ns - self.now_ns, Event::Answer(volume, reply));
        }
    }

    /// Brings a missing device back. It is used if it belongs to the array, and then must have the expected content.
    fn come_back(&mut self, i: usize) -> Result<(), String> {
        if self.devices[i].is_some() {
            return Ok(());
        }
        // A device that was once used stays the device, even if it has been lost since.
        let found = self.disks[i].clone().filter(|_| self.taken[i]);
        self.came_back[i] |= found.is_none();
        let disk = found.unwrap_or_else(|| self.right[i].clone());
        self.disks[i] = Some(disk.clone());
        let id = DeviceId(i as u16);
        let seed = self.rng.next_u64();
        let device = SimDevice::new(disk, self.plan.devices[i].slots, seed, self.faults);
        let opened = with_superblock(device);
        let joined = opened.and_then(|opened| {
            Ok(self
                .keeper
                .join(id, opened, false)
                .map_err(|e| e.to_string())?)
        });
        self.taken[i] |= joined.is_ok();
        self.look_at_disks();
        self.tell_failures();
        if joined.is_err() || self.crashed {
            return Ok(());
        }
        self.tally.back += 1;
        let device = self.keeper.devices.get(&id).cloned();
        let Some(device) = device else { return Ok(()) };
        self.devices[i] = Some(device.clone());
        self.reopen(i);
        self.forget_cached();
        let extent = super::plan::EXTENT;
        for (engine, oracle) in self.engines.iter_mut().zip(self.oracles.iter_mut()) {
            engine.device_back(id);
            let map = engine.map();
            for e in 0..map.extents() {
                let Some(at) = map.location(e).filter(|at| at.device == id) else {
                    continue;
                };
                let size = map.bytes_of(e).0 as usize;
                let mut bytes = vec![0; size];
                let read = device.disk.read(u64::from(at.slot) * extent, &mut bytes);
                read.map_err(|e| e.to_string())?;
                let first = e * extent as usize / super::oracle::SECTOR;
                for (n, sector) in bytes.chunks(super::oracle::SECTOR).enumerate() {
                    oracle.back(first + n, sector)?;
                }
            }
        }
        Ok(())
    }

    /// Returns true if the store has no work and owes no reply.
    pub(super) fn store_idle(&self) -> bool {
        self.store_queue.is_empty() && self.store_owes == 0
    }

    /// Checks whether a disk has reached the moment at which it stops.
    pub(super) fn look_at_disks(&mut self) {
        let dead = self
            .places
            .iter()
            .filter_map(SimPlace::disk)
            .any(|d| d.stopped());
        self.leaks |= dead;
        self.crashed |= dead && !self.store_dies;
        self.crashed |= self.disks.iter().flatten().any(CrashDisk::stopped);
    }

    /// Reports losses of the keeper's failed flushes to all engines.
    pub(super) fn tell_failures(&mut self) {
        for device in std::mem::take(&mut self.keeper.lost_flushes) {
            self.tally.losses += 1;
            for engine in &mut self.engines {
                engine.flush_failed_elsewhere(Failure::of_flush(device));
            }
            self.forget_cached();
        }
        for device in std::mem::take(&mut self.keeper.newly_lost) {
            self.tally.lost += 1;
            let gone = self.devices[device.index()].take();
            self.reopen(device.index());
            self.lossy |= gone.is_some_and(|d| d.lossy.load(Ordering::Relaxed));
            for engine in &mut self.engines {
                engine.device_lost(device, true);
            }
            self.forget_cached();
        }
    }
}
