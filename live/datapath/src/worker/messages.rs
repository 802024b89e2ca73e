//! Messages of other threads to a worker.

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
use volume::{NeighborSlack, Slack, VolumeMap};

use crate::client::{ClientConnection, ClientError};
use crate::device::Device;
use crate::engine::{
    Engine, EngineLimits, Failure, Fault, MoveEnd, MoveOrder, MoveStatus, StopReason, StoreReply,
};
use crate::error::{DatapathError, Result};
use crate::keeper::errno_name;
use crate::objective::SharedObjective;
use crate::stages::{Call, StageVolume, Stages, StagesSetup, StagesStatus};
use crate::tls::Channel;

use super::answers::Segment;
use super::cache_parts::ShareOf;
use super::holds::{HoldRefusal, HoldState};
use super::mirrors::{LastMirror, MirrorProgress};
use super::second::SecondSetup;
use super::volumes::{DeviceTimes, LiveVolume};
use super::{
    CacheSample, HandedConnection, HandedWork, Inbox, RingOrder, Stillness, Worker, WorkerSamples,
};

/// Volume to serve.
#[derive(Debug)]
pub struct VolumeSetup {
    /// Number of the volume.
    pub id: VolumeId,
    pub name: String,
    /// Service class.
    pub class: String,
    /// Places of its extents.
    pub map: VolumeMap,
    pub limits: EngineLimits,
    /// Move to continue.
    pub resume: Option<MoveOrder>,
    /// Rate limit of copies from the source of its import, 0 for no limit; none without an import.
    pub import: Option<BytesPerSec>,
    /// Initial settings of its stages.
    pub stages: StagesSetup,
    /// Latency objective.
    pub objective: Arc<SharedObjective>,
    /// Number of bytes from the start of the volume whose pages may be cached; none if the volume is not cached.
    pub cached: Option<Bytes>,
    /// Lost devices; true if they may have lost writes that were not flushed.
    pub lost: Vec<(DeviceId, bool)>,
}

/// Message to a worker.
#[derive(Debug)]
pub enum Message {
    /// All workers, in order.
    Peers(Vec<Inbox>),
    /// Accepted connection.
    Accepted(OwnedFd),
    /// Client that TLS has authenticated. Its handshake continues inside TLS.
    Secured {
        socket: OwnedFd,
        /// State of the NBD handshake.
        handshake: Box<ServerHandshake>,
        /// TLS session.
        tls: Box<Channel>,
    },
    /// Connection whose handshake another worker has done.
    TakeOver {
        socket: OwnedFd,
        /// TLS session, if the connection is encrypted.
        tls: Option<Box<Channel>>,
        /// Negotiated session.
        session: Box<Session>,
        volume: VolumeId,
        /// Bytes received after the handshake.
        rest: Vec<u8>,
        /// Segments that are not sent yet.
        unsent: Vec<Segment>,
    },
    /// Starts to serve a volume.
    Attach(Box<VolumeSetup>),
    /// Stops serving a volume. The answer follows when no request is in flight.
    Detach(VolumeId, OfGuests, Sender<DetachResult>),
    /// Device for volumes: a new one, or one that has returned.
    Device(Arc<Device>),
    /// Device that cannot be used any more. Guests with unflushed writes to it get an error at their next flush.
    DeviceLost(Arc<Device>),
    /// Sets the L2 cache, or removes it.
    UseSecond(Option<Box<SecondSetup>>, Sender<Result<()>>),
    /// Sets or removes the share of a class or a volume in the cache. The answer is the share before.
    Share(ShareOf, Option<f64>, Sender<Result<Option<f64>>>),
    /// A source that was reconnected has the same content as before.
    SourceIsTheSame(DeviceId),
    /// Reply of the keeper.
    Store(VolumeId, StoreReply),
    /// A flush of a device has failed for a volume of another worker.
    FlushFailed(Failure),
    /// Result of a reconnection to a remote device.
    Reconnected(usize, Result<Box<ClientConnection>, ClientError>),
    /// Order for a guest with rings.
    Ring(RingOrder),
    /// Call on the stages of a volume.
    AtStages(VolumeId, Call),
    /// Brings a volume to rest: no changes are in flight, and all acknowledged writes are durable. The answer is the number
    /// of this rest, which lasts until [`Message::GoOn`].
    Rest(VolumeId, Sender<Result<u32, Fault>>),
    /// Ends the rest of a volume with the number of the rest. If the flag is true, its slots are shared with a snapshot
    /// from now on.
    GoOn(VolumeId, u32, bool),
    /// Holds a volume without writers: it accepts no new writers. The caller repeats the message until no request is in
    /// flight.
    Hold(VolumeId, Sender<Result<HoldState, HoldRefusal>>),
    /// Releases a held volume: disconnects its readers, and accepts all clients again.
    Release(VolumeId, Sender<()>),
    /// Suspends the moves of all volumes at the end of their batches, or continues them.
    HoldMoves(bool),
    /// Stops taking new requests of guests, or continues.
    BeStill(bool),
    HowStill(Sender<Stillness>),
    /// Asks for the state of volumes and of the connections that another process can continue.
    HandOver(Sender<HandedWork>),
    /// Connection that the previous process has handed over.
    Handed(Box<HandedConnection>),
    /// Ends the rest of a volume, or the attempt to bring it to rest.
    NoRest(VolumeId),
    /// Request about a volume.
    Ask(VolumeId, Question, Sender<Result<Answer>>),
    /// Asks for measurements of all volumes, with the time of the request in nanoseconds.
    Samples(u64, Sender<WorkerSamples>),
    /// Ends the worker.
    Stop,
}

/// Connections of guests that may be cut when a volume's service ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfGuests {
    /// None: an open connection keeps the volume in service.
    None,
    All,
}

/// Number of connections that were cut when a volume's service ended, or the reason why it has not ended.
pub type DetachResult = Result<usize, DetachRefusal>;

/// Reason why a volume stays in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachRefusal {
    /// Guests have this number of connections.
    Connected(usize),
    /// The volume is being moved.
    Moving,
    /// Another caller is already ending its service.
    Ending,
}

/// Question about a volume, or an order.
#[derive(Debug)]
pub enum Question {
    /// Asks for the state.
    Status,
    /// Asks for the number of bytes that a move would copy.
    Elsewhere(MoveOrder),
    Move(MoveOrder),
    /// Cancels the move.
    CancelMove,
    /// Keeps second copies of extents, for a limited time or until they are stopped.
    Mirror(MoveOrder, Option<Nanos>),
    /// Extends the time of second copies that were made by the same order.
    RenewMirror(MoveOrder, Nanos),
    /// Stops second copies that have a time limit.
    StopLentMirror,
    /// Stops second copies; with the reason for the operator.
    StopMirror(Option<&'static str>),
    /// Grows the volume. Guests see the new size when the new part of its last extent is durably zero, because the rest of
    /// a slot can contain old data.
    Grow {
        /// Size that guests see.
        from: Bytes,
        /// New size.
        to: Bytes,
        /// Receiver of the result of zeroing.
        zeroed: Sender<Result<(), Fault>>,
    },
    /// Renames the volume.
    Rename(String),
    /// Gives the volume a part of the worker's cache; none for the common part.
    ShareCache(Option<Bytes>),
    /// Changes the service class.
    OfClass(String),
    /// Lends the volume a part of the cache for a limited time, in place of its other part; none ends it.
    LendCache(Option<Bytes>, Nanos),
}

#[derive(Debug)]
pub enum Answer {
    Done,
    /// State of the volume.
    Status(Box<VolumeStatus>),
    Bytes(Bytes),
}

/// State of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Bytes by device, in order of devices.
    pub placed: Vec<(u16, u64)>,
    pub connections: usize,
    /// Number of requests that are in flight or wait.
    pub outstanding: usize,
    #[serde(flatten)]
    pub stages: StagesStatus,
    /// Current move.
    pub moving: Option<MoveProgress>,
    /// End of the last move.
    pub last_move: Option<LastMove>,
    /// Second copies of extents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorProgress>,
    /// End of the last mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_mirror: Option<LastMirror>,
    /// Numbers of remote devices that are disconnected.
    pub away: Vec<u16>,
    /// Cache of the volume, if it is cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSample>,
    /// Reason why its import does not progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_waits: Option<String>,
}

/// End of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case")]
pub enum LastMove {
    /// All data is on the target.
    Done {
        /// Number of copied bytes, including repeated copies.
        copied: Bytes,
    },
    /// Cancelled or failed; batches that were switched stay on the target.
    Stopped {
        /// Reason; includes the failed I/O.
        why: String,
        copied: Bytes,
        /// Failed I/O, if one is the cause.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<IoFailure>,
    },
}

/// Current move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveProgress {
    /// Number of the target device.
    pub to: u16,
    /// Extents that move; none for the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    pub copied: Bytes,
    /// Number of bytes that are not on the target yet.
    pub left: Bytes,
    /// Present limit of its bandwidth.
    pub rate: BytesPerSec,
    pub phase: Cow<'static, str>,
}

impl From<MoveStatus> for MoveProgress {
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
                let _ = answer.send(used); // the caller may have ended
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
                        live.copies_up.clear(); // each copy-up ends with a message to the keeper
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
                call.make(live.map(|live| StageVolume {
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
                let _ = sender.send(self.how_still()); // the caller may have ended
            }
            Message::HandOver(sender) => {
                let _ = sender.send(self.hand_over()); // likewise
            }
            Message::Handed(connection) => self.take_handed(*connection),
            Message::Ask(volume, question, sender) => {
                let answer = self.ask(volume, question);
                let _ = sender.send(answer); // the caller may have ended
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
                .start_move(self.now_ns, order, NeighborSlack::UNKNOWN)
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
            took: DeviceTimes::default(),
            last_move: None,
            last_mirror: None,
            mirror_until_ns: None,
            cached,
            detached: None,
        });
        self.begin_parts(setup.id.0);
        self.carry_out(setup.id.0);
    }

    /// Ends a volume's service. Connections are counted and cut here, on the thread to which all connections of the volume
    /// come. None can arrive between the count and the end.
    fn detach(&mut self, volume: VolumeId, guests: OfGuests, answer: Sender<DetachResult>) {
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

    /// Removes a volume that is to be detached, once nothing is in flight.
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

    fn ask(&mut self, volume: VolumeId, question: Question) -> Result<Answer> {
        let now_ns = self.now_ns;
        let rings = self.ring_guests_of(volume.0).len();
        let connections = self.connections_of(volume.0).len() + rings;
        let away = self.remotes_away();
        let waits = self.import_waits(volume);
        let live = self
            .volumes
            .get_mut(volume.index())
            .and_then(Option::as_mut);
        let not_served = || DatapathError::NotServed("the volume is not served".into());
        let live = live.ok_or_else(not_served)?;
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
                started.map_err(|s| {
                    DatapathError::Busy(format!("the volume is already moving ({} left)", s.left))
                })?;
                info!(volume = live.name, device, "move started");
                self.carry_out(volume.0);
                Ok(Answer::Done)
            }
            Question::CancelMove => {
                if !live.engine.cancel_move(now_ns) {
                    return Err(DatapathError::Refused("the volume is not moving".into()));
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
                    return Err(DatapathError::Busy("the volume is moving, mirrored or imported: resize it when this has finished"
                            .into()));
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

    /// Returns a failure with names instead of numbers, for people.
    pub(super) fn failed_io(&self, failure: Failure) -> IoFailure {
        let known = self.devices[failure.device.index()].as_ref();
        IoFailure {
            device: known.expect("places are on known devices").name.clone(),
            op: failure.kind.name().into(),
            errno: errno_name(failure.errno),
        }
    }

    /// Returns the reason why the import of a volume does not progress.
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

    /// Reports a failed flush of a device to all other volumes, on all workers.
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
pub(super) fn outside(order: &MoveOrder, map: &VolumeMap) -> Result<()> {
    let last = order.extents.as_ref().and_then(ExtentRanges::last);
    match last.filter(|last| *last as usize >= map.extents()) {
        None => Ok(()),
        Some(extent) => Err(DatapathError::Refused(format!(
            "extent {extent} does not exist: the volume has {} extents, numbered from 0",
            map.extents()
        ))),
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
        moving: live.engine.move_status().map(MoveProgress::from),
        last_move: live.last_move.clone(),
        mirror: None,
        last_mirror: live.last_mirror.clone(),
        cache: None,
        away,
        import_waits,
    }
}
