//! What other threads ask of a worker.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use model::{ExtentRanges, IoFailure};
use nbd::{ServerHandshake, Session};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};
use volume::{Others, Slack, VolumeMap};

use crate::client::Connected;
use crate::device::Device;
use crate::engine::{
    Engine, EngineLimits, Failure, Fault, MoveEnd, MoveOrder, MoveStatus, StopReason, StoreReply,
};
use crate::keeper::errno_name;
use crate::objective::SharedObjective;
use crate::stages::{Call, Served, Stages, StagesSetup, StagesStatus};
use crate::tls::Channel;

use super::answers::Segment;
use super::cache_parts::ShareOf;
use super::holds::{Held, HoldRefusal};
use super::mirrors::{LastMirror, Mirroring};
use super::second::SecondSetup;
use super::volumes::{LiveVolume, Took};
use super::{
    CacheSample, HandedConnection, HandedWork, Inbox, RingOrder, Stillness, Worker, WorkerSamples,
};

/// A volume to serve.
#[derive(Debug)]
pub struct VolumeSetup {
    /// Its number.
    pub id: VolumeId,
    pub name: String,
    /// Its service class.
    pub class: String,
    /// Where its extents are.
    pub map: VolumeMap,
    pub limits: EngineLimits,
    /// A move to go on with.
    pub resume: Option<MoveOrder>,
    /// The most that copies from the source of its import may take, if it has one; 0 is no limit.
    pub import: Option<BytesPerSec>,
    /// What its stages begin with.
    pub stages: StagesSetup,
    /// Its latency objective.
    pub objective: Arc<SharedObjective>,
    /// The bytes whose pages may be cached, from its beginning; none where they may not.
    pub cached: Option<Bytes>,
    /// Devices that are lost, and whether what was written to them and not flushed may be.
    pub lost: Vec<(DeviceId, bool)>,
}

/// Something to do.
#[derive(Debug)]
pub enum Message {
    /// The other workers, in order.
    Peers(Vec<Inbox>),
    /// A socket was accepted.
    Accepted(OwnedFd),
    /// A client has proved who it is, and goes on with the handshake inside TLS.
    Secured {
        socket: OwnedFd,
        /// The handshake so far.
        handshake: Box<ServerHandshake>,
        /// Its session.
        tls: Box<Channel>,
    },
    /// Another worker made this connection's handshake.
    TakeOver {
        socket: OwnedFd,
        /// Its TLS session, if it has one.
        tls: Option<Box<Channel>>,
        /// What was agreed.
        session: Box<Session>,
        volume: VolumeId,
        /// Bytes received after the handshake.
        rest: Vec<u8>,
        /// What could not be sent yet.
        unsent: Vec<Segment>,
    },
    /// Serve a volume.
    Attach(Box<VolumeSetup>),
    /// Stop serving a volume; answers when nothing is in flight.
    Detach(VolumeId, OfGuests, Sender<Detached>),
    /// A device that volumes may be on: a new one, or one that is back.
    Device(Arc<Device>),
    /// A device that cannot be used any more. Guests are to be told that what they had not flushed there may be lost.
    DeviceLost(Arc<Device>),
    /// The cache has this second level from now on, or none.
    UseSecond(Option<Box<SecondSetup>>, Sender<Result<(), String>>),
    /// Such a share of the cache is whose from now on, or none; what it was before.
    Share(ShareOf, Option<f64>, Sender<Result<Option<f64>, String>>),
    /// A source to which a connection ended is what it was.
    SourceIsTheSame(DeviceId),
    /// The store answers.
    Store(VolumeId, StoreReply),
    /// A flush of a device failed for somebody else.
    FlushFailed(Failure),
    /// A remote device is connected again.
    Reconnected(usize, Result<Box<Connected>, String>),
    /// A guest that has rings wants something.
    Ring(RingOrder),
    /// Something to do at a volume's stages.
    AtStages(VolumeId, Call),
    /// Bring a volume to rest; told the number of this rest when it is, and all that was answered is durable. It stays so until
    /// [`Message::GoOn`].
    Rest(VolumeId, Sender<Result<u32, Fault>>),
    /// A volume that is at rest goes on; if that is said, its slots are others' too.
    GoOn(VolumeId, u32, bool),
    /// Let nobody in who may write a volume, while none such is there; to be sent again until nothing is under way any more.
    Hold(VolumeId, Sender<Result<Held, HoldRefusal>>),
    /// Let everybody in again, once those who have read it are cut off.
    Release(VolumeId, Sender<()>),
    /// Moves of all volumes wait when their batches have ended, or go on.
    HoldMoves(bool),
    /// Takes no new requests of guests, or takes them again.
    BeStill(bool),
    HowStill(Sender<Stillness>),
    /// Everything that another process has to know of volumes, and of the connections whose requests it can go on with.
    HandOver(Sender<HandedWork>),
    /// A connection that the process before this one has handed over.
    Handed(Box<HandedConnection>),
    /// A volume that was asked to come to rest goes on, whether it has.
    NoRest(VolumeId),
    /// A question about a volume.
    Ask(VolumeId, Question, Sender<Result<Answer, String>>),
    /// How are all volumes? The time is when that was asked, in nanoseconds.
    Samples(u64, Sender<WorkerSamples>),
    /// End.
    Stop,
}

/// Which connections of guests may be cut when a volume's service ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfGuests {
    /// None: while there is one, the volume stays.
    None,
    All,
}

/// How many connections were cut when a volume's service ended, or why it goes on.
pub type Detached = Result<usize, DetachRefusal>;

/// Why a volume's service goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachRefusal {
    /// Guests have so many connections.
    Connected(usize),
    /// It is being moved.
    Moving,
    /// Somebody else is ending it.
    Ending,
}

/// A question about a volume, or an order.
#[derive(Debug)]
pub enum Question {
    /// How is it?
    Status,
    /// How many bytes would this move copy?
    Elsewhere(MoveOrder),
    Move(MoveOrder),
    /// Give its move up.
    CancelMove,
    /// Keep second copies of extents, for so long or until they are given up.
    Mirror(MoveOrder, Option<Nanos>),
    /// Keep those that were made by such an order for so long still.
    RenewMirror(MoveOrder, Nanos),
    /// Give those up that are kept for a time.
    StopLentMirror,
    /// Give those up; why, as an operator is told.
    StopMirror(Option<&'static str>),
    /// It is larger from now on, for guests that are told so; that is when what is new of its last extent is durably zero, which is told: what
    /// a slot has behind the end of its volume is anything.
    Grow {
        /// The size that guests know.
        from: Bytes,
        /// Its size.
        to: Bytes,
        /// What becomes of the zeroes.
        zeroed: Sender<Result<(), Fault>>,
    },
    /// It has another name from now on.
    Rename(String),
    /// It has so much of the worker's cache for itself; none is what is shared.
    ShareCache(Option<Bytes>),
    /// It is of another class from now on.
    OfClass(String),
    /// It has so much of it for a time, in place of that; none ends it.
    LendCache(Option<Bytes>, Nanos),
}

#[derive(Debug)]
pub enum Answer {
    Done,
    /// How the volume is.
    Status(Box<VolumeStatus>),
    Bytes(Bytes),
}

/// How a volume is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Bytes by device, in order of devices.
    pub placed: Vec<(u16, u64)>,
    pub connections: usize,
    /// Requests in flight or waiting.
    pub outstanding: usize,
    #[serde(flatten)]
    pub stages: StagesStatus,
    /// The move under way.
    pub moving: Option<Moving>,
    /// How the last move ended.
    pub last_move: Option<LastMove>,
    /// What of it has a second copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirroring>,
    /// How the last mirror ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_mirror: Option<LastMirror>,
    /// Remote devices that are not connected now, by number.
    pub away: Vec<u16>,
    /// Its cache, if it is cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSample>,
    /// Why its import does not go on, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_waits: Option<String>,
}

/// How a move ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum LastMove {
    /// Everything is on the target.
    Done {
        /// Bytes copied, those copied again included.
        copied: Bytes,
    },
    /// Given up; what was switched stays where it is.
    Stopped {
        /// Why; names the I/O that failed, too.
        why: String,
        copied: Bytes,
        /// The I/O that failed, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<IoFailure>,
    },
}

/// A move under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moving {
    /// The target.
    pub to: u16,
    /// The extents that move; none is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    pub copied: Bytes,
    /// Bytes not on the target yet.
    pub left: Bytes,
    /// Bandwidth that it may take now.
    pub rate: BytesPerSec,
    pub phase: Cow<'static, str>,
}

impl From<MoveStatus> for Moving {
    fn from(status: MoveStatus) -> Self {
        Self {
            to: status.to.0,
            extents: status.extents,
            copied: status.copied,
            left: status.left,
            rate: status.rate,
            phase: Cow::Borrowed(status.phase),
        }
    }
}

impl Worker {
    pub(super) fn message(&mut self, message: Message) {
        match message {
            Message::Peers(peers) => self.peers = peers,
            Message::Accepted(socket) => self.welcome(socket),
            Message::Secured {
                socket,
                handshake,
                tls,
            } => self.welcome_secured(socket, handshake, tls),
            Message::TakeOver {
                socket,
                tls,
                session,
                volume,
                rest,
                unsent,
            } => {
                let served = self
                    .volumes
                    .get(volume.index())
                    .is_some_and(|v| v.as_ref().is_some_and(|v| v.detached.is_none()));
                if served && self.admits(volume, &session) {
                    self.take_over(socket, tls, session, volume.0, &rest, unsent);
                } else {
                    let open = &self.shared.connections;
                    open.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                }
            }
            Message::Attach(setup) => self.attach(*setup),
            Message::Detach(volume, guests, answer) => self.detach(volume, guests, answer),
            Message::Device(device) => {
                self.drop_remote(device.id);
                self.add_remote(&device);
                for live in self.volumes.iter_mut().flatten() {
                    live.engine.device_back(device.id);
                }
                self.forget_cached(None);
                self.use_device(device);
            }
            Message::UseSecond(setup, answer) => {
                let used = self.use_second(setup.map(|s| *s));
                let _ = answer.send(used); // whoever asked may have gone
            }
            Message::Share(of, share, answer) => {
                let shared = self.set_share(&of, share);
                let _ = answer.send(shared); // likewise
            }
            Message::SourceIsTheSame(device) => self.source_is_the_same(device),
            Message::DeviceLost(device) => {
                self.drop_remote(device.id);
                for live in self.volumes.iter_mut().flatten() {
                    live.engine.device_lost(device.id, true);
                }
                self.forget_cached(None);
                self.use_device(device);
            }
            Message::Store(volume, reply) => {
                if let Some(live) = self.volumes[volume.index()].as_mut() {
                    live.engine.store_done(self.now_ns, reply);
                    if !live.engine.copies_up() {
                        live.copies_up.clear(); // the store is told of each that ends
                    }
                    self.carry_out(volume.0);
                }
            }
            Message::FlushFailed(failure) => {
                for live in self.volumes.iter_mut().flatten() {
                    live.engine.flush_failed_elsewhere(failure);
                }
                self.forget_cached(None);
            }
            Message::Ring(order) => self.ring_order(order),
            Message::Reconnected(remote, connected) => self.reconnected(remote, connected),
            Message::AtStages(volume, call) => {
                let live = self.volumes.get_mut(volume.index());
                let live = live.and_then(Option::as_mut);
                call.make(live.map(|live| Served {
                    stages: &mut live.stages,
                    map: live.engine.map(),
                    name: &live.name,
                    now_ns: self.now_ns,
                }));
            }
            Message::Rest(volume, answer) => self.rest(volume, answer),
            Message::GoOn(volume, rest, shared) => self.go_on(volume, rest, shared),
            Message::Hold(volume, answer) => self.hold(volume, &answer),
            Message::Release(volume, answer) => self.release(volume, &answer),
            Message::NoRest(volume) => self.no_rest(volume),
            Message::HoldMoves(held) => self.hold_moves(held),
            Message::BeStill(still) => self.be_still(still),
            Message::HowStill(sender) => {
                let _ = sender.send(self.how_still()); // whoever asked may have gone
            }
            Message::HandOver(sender) => {
                let _ = sender.send(self.hand_over()); // likewise
            }
            Message::Handed(connection) => self.take_handed(*connection),
            Message::Ask(volume, question, sender) => {
                let answer = self.ask(volume, question);
                let _ = sender.send(answer); // whoever asked may have gone
            }
            Message::Samples(at_ns, sender) => {
                let _ = sender.send(self.samples(at_ns)); // likewise
            }
            Message::Stop => self.stopping = true,
        }
    }

    fn attach(&mut self, setup: VolumeSetup) {
        let index = setup.id.index();
        if self.volumes.len() <= index {
            self.volumes.resize_with(index + 1, || None);
        }
        let stages = Stages::new(setup.stages, &setup.map, self.now_ns);
        let mut engine = Engine::new(setup.map, setup.limits);
        for (device, unflushed) in setup.lost {
            engine.device_lost(device, unflushed);
        }
        if let Some(bandwidth) = setup.import {
            engine.set_import_bandwidth(Some(bandwidth).filter(|b| b.0 > 0));
            engine.wake(self.now_ns);
        }
        if let Some(order) = setup.resume {
            engine
                .start_move(self.now_ns, order, Others::UNKNOWN)
                .expect("it has just come");
        }
        let cached = self.cache.as_mut().zip(setup.cached);
        let cached = cached.and_then(|(cache, size)| cache.begin(&setup.name, size, &self.second));
        self.volumes[index] = Some(LiveVolume {
            id: setup.id,
            name: setup.name,
            class: setup.class,
            engine,
            stages,
            objective: setup.objective,
            slack: Slack::Unbound,
            copy: None,
            copies_up: BTreeMap::new(),
            resting: None,
            held: false,
            took: Took::default(),
            last_move: None,
            last_mirror: None,
            mirror_until_ns: None,
            cached,
            detached: None,
        });
        self.begin_parts(setup.id.0);
        self.carry_out(setup.id.0);
    }

    /// Ends a volume's service. Connections are counted and cut here, on the thread that every one of the volume's comes
    /// to: none can come between the count and the end.
    fn detach(&mut self, volume: VolumeId, guests: OfGuests, answer: Sender<Detached>) {
        let (connections, rings) = (self.connections_of(volume.0), self.ring_guests_of(volume.0));
        let open = connections.len() + rings.len();
        let Some(live) = self
            .volumes
            .get_mut(volume.index())
            .and_then(Option::as_mut)
        else {
            let _ = answer.send(Ok(0));
            return;
        };
        let refusal = if live.detached.is_some() {
            Some(DetachRefusal::Ending)
        } else if live.engine.move_status().is_some() {
            Some(DetachRefusal::Moving)
        } else if guests == OfGuests::None && open > 0 {
            Some(DetachRefusal::Connected(open))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let _ = answer.send(Err(refusal));
            return;
        }
        live.detached = Some((answer, open));
        let why = StopReason::MadeWay("the end of serving the volume");
        live.engine.stop_mirror(self.now_ns, why);
        live.engine.stop_import(self.now_ns);
        self.carry_out(volume.0);
        for connection in connections {
            self.close(connection);
        }
        for guest in rings {
            self.end_ring_guest(guest);
        }
        self.submit_throttled(Some(volume.0));
        self.detach_if_over(volume.0);
    }

    /// Lets a volume go that was to be detached, once nothing is in flight.
    pub(super) fn detach_if_over(&mut self, volume: u32) {
        let slot = &mut self.volumes[volume as usize];
        let over = slot
            .as_ref()
            .is_some_and(|v| v.detached.is_some() && v.engine.at_rest());
        if !over {
            return;
        }
        let in_timers = self.timers.any_of(volume) || self.second.any_of(volume);
        let Some(mut live) = slot.take_if(|_| !in_timers) else {
            return;
        };
        self.end_cache(&mut live);
        self.settle_classes();
        if let Some((answer, connections)) = live.detached {
            let _ = answer.send(Ok(connections));
        }
    }

    fn ask(&mut self, volume: VolumeId, question: Question) -> Result<Answer, String> {
        let now_ns = self.now_ns;
        let rings = self.ring_guests_of(volume.0).len();
        let connections = self.connections_of(volume.0).len() + rings;
        let away = self.remotes_away();
        let waits = self.import_waits(volume);
        let live = self
            .volumes
            .get_mut(volume.index())
            .and_then(Option::as_mut);
        let live = live.ok_or("the volume is not served")?;
        match question {
            Question::Status => {
                let how = status(live, now_ns, connections, away, waits);
                let live = self.volumes[volume.index()].as_ref();
                Ok(Answer::Status(Box::new(VolumeStatus {
                    cache: live.and_then(|live| self.cache_sample(live)),
                    mirror: live.and_then(|live| self.mirroring(live)),
                    ..how
                })))
            }
            Question::Elsewhere(order) => {
                let map = live.engine.map();
                outside(&order, map)?;
                Ok(Answer::Bytes(map.bytes_not_on(order.selection(), order.to)))
            }
            Question::Move(order) => {
                outside(&order, live.engine.map())?;
                let others = self.others(volume.index(), order.to);
                let live = self.volumes[volume.index()].as_mut();
                let live = live.expect("it was just looked at");
                let to = self.devices.get(order.to.index());
                let device = to.and_then(Option::as_ref).map(|d| d.name.as_str());
                let started = live.engine.start_move(now_ns, order, others);
                started.map_err(|s| format!("the volume is already moving ({} left)", s.left))?;
                info!(volume = live.name, device, "move started");
                self.carry_out(volume.0);
                Ok(Answer::Done)
            }
            Question::CancelMove => {
                if !live.engine.cancel_move(now_ns) {
                    return Err("the volume is not moving".into());
                }
                self.carry_out(volume.0);
                Ok(Answer::Done)
            }
            Question::Mirror(order, lasting) => {
                self.start_mirror(volume, order, lasting)?;
                Ok(Answer::Done)
            }
            Question::RenewMirror(order, lasting) => {
                self.renew_mirror(volume, &order, lasting)?;
                Ok(Answer::Done)
            }
            Question::StopLentMirror => {
                self.stop_lent_mirror(volume)?;
                Ok(Answer::Done)
            }
            Question::StopMirror(way) => {
                let why = way.map_or(StopReason::Cancelled, StopReason::MadeWay);
                self.stop_mirror(volume, why)?;
                Ok(Answer::Done)
            }
            Question::ShareCache(part) => {
                let lent = self.share_cache(volume.0, part)?;
                Ok(lent.map_or(Answer::Done, Answer::Bytes))
            }
            Question::LendCache(part, lasting) => {
                self.lend_cache(volume.0, part, lasting)?;
                Ok(Answer::Done)
            }
            Question::OfClass(class) => {
                live.class = class;
                self.settle_classes();
                Ok(Answer::Done)
            }
            Question::Rename(name) => {
                let before = std::mem::replace(&mut live.name, name.clone());
                self.share_renamed(&before, &name);
                Ok(Answer::Done)
            }
            Question::Grow { from, to, zeroed } => {
                if !live.engine.grow(to) {
                    return Err(
                        "the volume is moving, mirrored or imported: resize it when this has finished"
                            .into(),
                    );
                }
                live.stages.grew(live.engine.map(), now_ns);
                let rest = live.engine.map().rest_of_extent(from);
                self.cached_grew(volume.0);
                match rest.0 {
                    0 => drop(zeroed.send(Ok(()))),
                    length => self.zero_for(volume.0, from.0, length, zeroed),
                }
                Ok(Answer::Done)
            }
        }
    }

    pub(super) fn move_ended(&mut self, volume: u32, end: MoveEnd) {
        let end = match end {
            MoveEnd::Done { copied } => LastMove::Done { copied },
            MoveEnd::Stopped { why, copied } => {
                let failed = why.failure().map(|failure| self.failed_io(failure));
                let why = match &failed {
                    Some(io) => format!("{why} ({io})"),
                    None => why.to_string(),
                };
                LastMove::Stopped {
                    why,
                    copied,
                    failed,
                }
            }
        };
        let live = self.volumes[volume as usize].as_mut().expect("it moved");
        let volume = live.name.as_str();
        match &end {
            LastMove::Done { copied } => info!(volume, %copied, "move finished"),
            LastMove::Stopped {
                why,
                copied,
                failed,
            } => {
                let device = failed.as_ref().map(|f| f.device.as_str());
                let errno = failed.as_ref().map(|f| f.errno.as_str());
                warn!(volume, device, errno, %copied, why, "move stopped");
            }
        }
        (live.last_move, live.copy) = (Some(end), None);
    }

    /// A failure as people are told of it.
    pub(super) fn failed_io(&self, failure: Failure) -> IoFailure {
        let known = self.devices[failure.device.index()].as_ref();
        IoFailure {
            device: known.expect("places are on known devices").name.clone(),
            op: failure.kind.name().into(),
            errno: errno_name(failure.errno),
        }
    }

    /// Why the import of a volume does not go on.
    fn import_waits(&self, volume: VolumeId) -> Option<String> {
        let live = self.volumes.get(volume.index())?.as_ref()?;
        Some(match live.engine.import_status()?.problem? {
            Fault::Device(failure) => {
                let IoFailure { device, op, errno } = self.failed_io(failure);
                format!("{op} on {device} failed: {errno}")
            }
            fault => fault.to_string(),
        })
    }

    /// Tells everybody with data on a device that one of its flushes failed.
    pub(super) fn flush_failed(&mut self, volume: u32, failure: Failure) {
        for (index, live) in self.volumes.iter_mut().enumerate() {
            if let Some(live) = live
                && index as u32 != volume
            {
                live.engine.flush_failed_elsewhere(failure);
            }
        }
        self.forget_cached(None);
        for (index, peer) in self.peers.iter().enumerate() {
            if index != self.index {
                peer.send(Message::FlushFailed(failure));
            }
        }
    }

    pub(super) fn connections_of(&self, volume: u32) -> Vec<u32> {
        let of = |c: &super::guests::Connection| matches!(c.stage, super::guests::Stage::Serving { volume: v, .. } if v == volume);
        let all = self.connections.iter().filter(|(_, c)| of(c));
        all.map(|(i, _)| i as u32).collect()
    }
}

/// Refuses a move of extents that the volume does not have.
pub(super) fn outside(order: &MoveOrder, map: &VolumeMap) -> Result<(), String> {
    let last = order.extents.as_ref().and_then(ExtentRanges::last);
    match last.filter(|last| *last as usize >= map.extents()) {
        None => Ok(()),
        Some(extent) => Err(format!(
            "extent {extent} does not exist: the volume has {} extents, numbered from 0",
            map.extents()
        )),
    }
}

fn status(
    live: &LiveVolume,
    now_ns: u64,
    connections: usize,
    away: Vec<u16>,
    import_waits: Option<String>,
) -> VolumeStatus {
    let map = live.engine.map();
    let placed = map.holders().iter();
    VolumeStatus {
        placed: placed
            .map(|(d, n)| (d.0, u64::from(*n) * map.extent_bytes().0))
            .collect(),
        connections,
        outstanding: live.engine.outstanding(),
        stages: live.stages.status(now_ns),
        moving: live.engine.move_status().map(Moving::from),
        last_move: live.last_move.clone(),
        mirror: None,
        last_mirror: live.last_mirror.clone(),
        cache: None,
        away,
        import_waits,
    }
}
