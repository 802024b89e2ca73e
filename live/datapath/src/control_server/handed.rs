//! Take-over: a served array is handed to another process, with the connections of its guests.
//!
//! ```text
//!   possible? ─▶ moves end their batches ─▶ flushed ─▶ (the other one: "begin") ─▶ no requests, no new guests, nothing read
//!                                                                                          │
//!        guests are served all the time up to here                                         ▼
//!                                       reply ◀── requests in flight end; volumes come to rest, all writes durable
//!                                          │
//!      as before ◀──── not in time ────────┤
//!          ▲                               ▼
//!          ├────── it has ended, the ── map closed, "go" ──"taken"──▶ this process ends, and writes nothing
//!          │       map is unchanged        │
//!          └───────────────────────────────┤
//!                                          └── it has ended, and the map has changed ──▶ likewise, with an error
//! ```
//!
//! From "go" on this process writes neither to a device nor to the map, unless the other process has ended and the map is
//! unchanged.

mod give;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, geteuid};
use tracing::{error, warn};
use units::{TierId, VolumeId};

use super::limits::VolumeLimits;
use super::{ControlServer, DatapathError, Result, home_of};
use crate::engine::Fault;
use crate::helper_thread::at_once;
use crate::keeper::handed::openings_of;
use crate::takeover::state::{LimitsOf, TierOf, VolumeOf, Wishes};
use crate::takeover::wire::{FORMAT, Tag, WISHES_MAX, hear};
use crate::takeover::{HandOverGuard, Handover, Listeners};
use crate::worker::{HandedWork, Inbox, Message, Stillness};
use give::{GIVE, Parts, TakeOverResult, give};

/// Time limit for the start of a server that is still starting; after it, a take-over is refused.
const STARTED: Duration = Duration::from_secs(10);

/// Time limit for the report of a worker, while guests are served.
const ASKED: Duration = Duration::from_secs(5);

/// Time limit for the ends of batches of moves. Guests are served meanwhile.
const MOVES: Duration = Duration::from_secs(10);

/// Time limit for flushing unflushed writes of guests. Guests are served meanwhile.
const FLUSHED: Duration = Duration::from_secs(30);

/// Time limit for the start by the other process. Guests are served meanwhile.
const BEGIN: Duration = Duration::from_secs(30);

/// Time limit for the ends of operators' requests in progress. Guests are served meanwhile.
const ORDERS: Duration = Duration::from_secs(1);

/// Time limit for the ends of requests in flight and for the rest of volumes: guests wait.
const DRAIN: Duration = Duration::from_millis(200);

/// Interval at which this process checks for its own stop while it waits for the other process.
const LISTEN: Duration = Duration::from_millis(200);

/// Time limit for handshakes of guests' connections during the take-over.
const NEGOTIATE: Duration = Duration::from_millis(30);

/// Interval of checks for the end of operations.
const LOOK: Duration = Duration::from_millis(1);

/// Server that could hand over at once.
pub(crate) struct PreparedServer<'a> {
    _alone: HandOverGuard<'a>,
    control_server: &'a ControlServer,
    workers: Vec<Inbox>,
    listeners: Arc<Listeners>,
}

/// State in which requests of guests wait in their sockets and rings.
struct StoppedServer<'a> {
    control_server: &'a ControlServer,
    workers: &'a [Inbox],
    listeners: &'a Listeners,
    /// Volumes that were ordered to come to rest.
    resting: Vec<VolumeId>,
    since: Instant,
}

impl ControlServer {
    /// Prepares the take-over, as far as guests do not notice.
    ///
    /// # Errors
    /// [`DatapathError`]: the array cannot be handed over.
    pub(crate) fn prepare_to_hand(&self, format: u32) -> Result<PreparedServer<'_>> {
        self.gate.wait_for_start(STARTED);
        if format != FORMAT {
            return Err(DatapathError::Refused(format!(
                "this server hands over in format {FORMAT}, not {format}: stop it, and start the other version"
            )));
        }
        let server = self.server.as_ref().ok_or_else(array_not_served)?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let (workers, listeners) = (server.workers.clone(), server.listeners.clone());
        drop(server);
        self.may_be_handed()?;
        let alone = self.gate.alone().ok_or_else(|| {
            DatapathError::Busy("another process is already taking over the array".into())
        })?;
        for worker in &workers {
            worker.send(Message::HoldMoves(true));
        }
        let prepared = PreparedServer {
            _alone: alone,
            control_server: self,
            workers,
            listeners,
        };
        let until = Instant::now() + MOVES;
        while let Some(volume) = prepared.stillness()?.moving {
            prepared.may_go_on()?;
            if Instant::now() > until {
                return Err(DatapathError::Late(format!(
                    "the move of volume {volume} did not pause in time"
                )));
            }
            std::thread::sleep(LOOK);
        }
        self.flush_beside()?;
        prepared.may_go_on()?;
        Ok(prepared)
    }

    fn may_be_handed(&self) -> Result<()> {
        if let Some(why) = self.gate.why_not() {
            return Err(DatapathError::Busy(why.into()));
        }
        if let Some(why) = self.with_keeper(|keeper| keeper.why_not_handed())? {
            return Err(DatapathError::Refused(why));
        }
        self.nothing_held()
    }

    /// Refuses a take-over while a volume is held: the hold belongs to a connection of this process.
    fn nothing_held(&self) -> Result<()> {
        let Some(id) = self.changing.any() else {
            return Ok(());
        };
        let name = self.with_keeper(move |k| k.volumes.get(&id).map(|v| v.name.clone()))?;
        let name = name.unwrap_or_default();
        Err(DatapathError::Busy(format!(
            "volume {name:?} is being saved or changed by another command"
        )))
    }

    /// Flushes the writes of guests, so that little is left to flush while they wait. It uses separate open files, so a
    /// failure is also reported to the guests' own flushes.
    fn flush_beside(&self) -> Result<()> {
        let files = self.with_keeper(|keeper| openings_of(&keeper.handed_devices()))?;
        let flush = |file: io::Result<std::fs::File>| move || file.and_then(|f| f.sync_data());
        let flushed = at_once(files.into_iter().map(flush).collect(), FLUSHED);
        for flushed in flushed {
            let late = "a device was not flushed in time";
            let flushed = flushed.map_err(|_| DatapathError::Late(late.into()))?;
            flushed.map_err(|why| {
                DatapathError::Refused(format!("a device cannot be flushed: {why}"))
            })?;
        }
        Ok(())
    }
}

impl Drop for PreparedServer<'_> {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.send(Message::HoldMoves(false));
        }
        let _ = self
            .control_server
            .with_keeper(|keeper| keeper.quiet = false); // the keeper may have ended
    }
}

impl PreparedServer<'_> {
    /// Returns the progress of all workers together.
    fn stillness(&self) -> Result<Stillness> {
        stillness(&self.workers, Instant::now() + ASKED)
    }

    /// Hands over. If this returns, the take-over has failed for the returned reason, and the guests are served as before.
    pub(crate) fn hand_over(&self, socket: &mut UnixStream) -> DatapathError {
        match self.try_to(socket) {
            Ok(never) => match never {},
            Err(why) => why,
        }
    }

    /// Waits for the start by the other process, and returns its message.
    fn begin(&self, socket: &mut UnixStream) -> Result<Vec<u8>> {
        let until = Instant::now() + BEGIN;
        loop {
            self.may_go_on()?;
            match hear(socket, LISTEN, WISHES_MAX) {
                Ok((Tag::Begin, wishes)) => return Ok(wishes),
                Ok((Tag::No, why)) => return Err(DatapathError::Peer(words(&why))),
                Err(why) if why.kind() == io::ErrorKind::TimedOut && Instant::now() < until => {}
                _ => {
                    return Err(DatapathError::Late(
                        "the other process did not start the take-over".into(),
                    ));
                }
            }
        }
    }

    /// Checks that this process is not to stop: a stop waits for the take-over.
    fn may_go_on(&self) -> Result<()> {
        self.control_server
            .gate
            .why_not()
            .map_or(Ok(()), |why| Err(DatapathError::Busy(why.into())))
    }

    /// Checks that the other process will serve the same volumes and sockets.
    fn wishes(&self, begin: &[u8]) -> Result<()> {
        let wishes: Wishes = serde_json::from_slice(begin).map_err(|why| {
            DatapathError::Peer(format!("invalid request of the other process: {why}"))
        })?;
        let server = self
            .control_server
            .server
            .as_ref()
            .ok_or_else(array_not_served)?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let served = server.shared.registry.all();
        let there = Wishes {
            listeners: self
                .listeners
                .listening()
                .into_iter()
                .map(|l| l.name)
                .collect(),
            vhost_user: server.vhost_user_dir().map(Path::to_path_buf),
            volumes: served.into_iter().map(|(export, _)| export.name).collect(),
        };
        drop(server);
        wishes.are(there)
    }

    fn try_to(&self, socket: &mut UnixStream) -> Result<std::convert::Infallible> {
        let pid = peer(socket)?;
        let begin = self.begin(socket)?;
        self.wishes(&begin)?;
        self.control_server.flush_beside()?;
        self.may_go_on()?;
        // From here on the keeper starts no background work, and has time for requests.
        self.control_server.with_keeper(|keeper| {
            keeper.quiet = true;
            keeper.finish_refresh();
        })?;
        self.control_server.gate.shut(ORDERS)?;
        let mut stopped = StoppedServer {
            control_server: self.control_server,
            workers: &self.workers,
            listeners: &self.listeners,
            resting: vec![],
            since: Instant::now(),
        };
        self.control_server.nothing_held()?;
        let left = stopped.drain()?;
        stopped.rest()?;
        let drained_ms = stopped.since.elapsed().as_millis() as u64;
        let work = stopped.work()?;
        let (volumes, tiers) = self.control_server.limits_to_hand();
        let parts = Parts {
            listening: self.listeners.listening(),
            work,
            volumes,
            tiers,
            lease_until_ns: self.control_server.lease_to_hand(),
            left,
            since: stopped.since,
            drained_ms,
        };
        let mut socket = socket.try_clone().map_err(DatapathError::failed)?;
        let gate = self.control_server.gate.clone();
        // This runs on the keeper's thread, which does nothing else meanwhile. It never continues if the other process has
        // the array.
        let given = self.control_server.with_keeper(move |keeper| {
            match give(keeper, &mut socket, pid, &parts) {
                TakeOverResult::NotTaken(why) => why,
                TakeOverResult::Taken => end(|| {
                    let pid = pid.as_raw_nonzero().get().unsigned_abs();
                    gate.becomes(Handover::To(pid));
                }),
                TakeOverResult::Lost(why) => {
                    error!(why, "this process ends without changes");
                    end(|| gate.becomes(Handover::Failed(why)))
                }
            }
        });
        match given {
            Ok(why) => Err(why),
            // The keeper has ended, so the state of the other process is unknown.
            Err(why) => end(|| {
                let why = why.to_string();
                self.control_server.gate.becomes(Handover::Failed(why));
            }),
        }
    }
}

/// Parks this thread for the rest of the process's life.
fn end(say: impl FnOnce()) -> ! {
    say();
    loop {
        std::thread::park();
    }
}

/// Returns the process at the other end. It must be a process that this one can kill.
fn peer(socket: &UnixStream) -> Result<Pid> {
    let peer = rustix::net::sockopt::socket_peercred(socket).map_err(DatapathError::failed)?;
    let own = geteuid();
    match own.is_root() || own == peer.uid {
        true => Ok(peer.pid),
        false => Err(DatapathError::Refused(format!(
            "the process that wants to take over runs as another user ({}), so this process could not end it if it hangs",
            peer.uid.as_raw()
        ))),
    }
}

fn array_not_served() -> DatapathError {
    DatapathError::NotServed("the array is not served".into())
}

fn words(why: &[u8]) -> String {
    String::from_utf8_lossy(why).into_owned()
}

/// Waits for the answer of a worker.
fn answer<T>(answered: &Receiver<T>, until: Instant) -> Result<T> {
    let left = until.saturating_duration_since(Instant::now());
    let answer = answered.recv_timeout(left.max(LOOK));
    answer.map_err(|why| match why {
        RecvTimeoutError::Timeout => DatapathError::Late("a worker did not answer in time".into()),
        RecvTimeoutError::Disconnected => DatapathError::NotServed("a worker has ended".into()),
    })
}

fn stillness(workers: &[Inbox], until: Instant) -> Result<Stillness> {
    let mut all = Stillness::default();
    for worker in workers {
        let (still, answered) = channel();
        worker.send(Message::HowStill(still));
        let one = answer(&answered, until)?;
        all.busy = all.busy.or(one.busy);
        all.moving = all.moving.or(one.moving);
        all.negotiating += one.negotiating;
        all.left += one.left;
    }
    Ok(all)
}

impl StoppedServer<'_> {
    /// Returns the time until which guests may wait for requests in flight.
    fn until(&self) -> Instant {
        self.since + DRAIN
    }

    /// Waits until no request is in flight. Returns the number of connections that cannot be handed over.
    fn drain(&mut self) -> Result<usize> {
        if !self.listeners.shut() {
            return Err(DatapathError::Late(
                "a connection of a guest was not accepted in time".into(),
            ));
        }
        for worker in self.workers {
            worker.send(Message::BeStill(true));
        }
        loop {
            let now = stillness(self.workers, self.until())?;
            let passed = self.since.elapsed();
            if now.busy.is_none() && (now.negotiating == 0 || passed > NEGOTIATE) {
                return Ok(now.left + now.negotiating);
            }
            if passed > DRAIN {
                let busy = now.busy.unwrap_or_default();
                return Err(DatapathError::Late(format!(
                    "after {} ms, {busy}",
                    DRAIN.as_millis()
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Brings all volumes to rest: then all acknowledged writes are durable.
    fn rest(&mut self) -> Result<()> {
        let volumes = &self.control_server.volumes;
        let volumes = volumes.lock().unwrap_or_else(PoisonError::into_inner);
        self.resting = volumes.keys().copied().collect();
        drop(volumes);
        let ask = |volume: &VolumeId| {
            let (answer, answered) = channel();
            let worker = home_of(*volume, self.workers.len());
            self.workers[worker].send(Message::Rest(*volume, answer));
            answered
        };
        let asked: Vec<_> = self.resting.iter().map(ask).collect();
        for (volume, answered) in self.resting.iter().zip(asked) {
            let left = DRAIN.saturating_sub(self.since.elapsed());
            match answered.recv_timeout(left.max(LOOK)) {
                // A volume that is not served any more needs no rest.
                Ok(Ok(_) | Err(Fault::Shutdown)) => {}
                Ok(Err(fault)) => {
                    return Err(DatapathError::Refused(format!(
                        "cannot flush the writes of volume {}: {fault}",
                        volume.0
                    )));
                }
                Err(_) => {
                    return Err(DatapathError::Late(format!(
                        "after {} ms the writes of volume {} were not flushed",
                        DRAIN.as_millis(),
                        volume.0
                    )));
                }
            }
        }
        Ok(())
    }

    fn work(&self) -> Result<HandedWork> {
        let mut all = HandedWork::default();
        let ask = |worker: &Inbox| {
            let (work, answered) = channel();
            worker.send(Message::HandOver(work));
            answered
        };
        let asked: Vec<_> = self.workers.iter().map(ask).collect();
        for answered in asked {
            let work = answer(&answered, self.until() + GIVE)?;
            all.connections.extend(work.connections);
            all.places.extend(work.places);
        }
        Ok(all)
    }
}

impl Drop for StoppedServer<'_> {
    fn drop(&mut self) {
        for volume in &self.resting {
            let worker = home_of(*volume, self.workers.len());
            self.workers[worker].send(Message::NoRest(*volume));
        }
        for worker in self.workers {
            worker.send(Message::BeStill(false));
        }
        self.listeners.open();
        self.control_server.gate.becomes(Handover::None);
        let ms = self.since.elapsed().as_millis() as u64;
        warn!(
            ms,
            "the take-over failed; guests were paused and are served again"
        );
    }
}

impl ControlServer {
    /// Restores the settings of the previous process, before volumes are exported.
    pub(crate) fn set_handed(
        &self,
        volumes: Vec<VolumeOf>,
        tiers: Vec<TierOf>,
        lease_until_ns: Option<u64>,
    ) {
        self.set_handed_lease(lease_until_ns);
        let mut known = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        for of in volumes {
            let for_a_time = of.for_a_time.map(|(l, until_ns)| (l.limits(), until_ns));
            let limits = VolumeLimits {
                own: of.own.limits(),
                for_a_time,
                weight: of.weight,
                ..VolumeLimits::new()
            };
            known.insert(VolumeId(of.id), limits);
        }
        let mut known = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend(tiers.iter().map(|t| (TierId(t.id), t.limits.limits())));
    }

    fn limits_to_hand(&self) -> (Vec<VolumeOf>, Vec<TierOf>) {
        let volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let volumes = volumes.iter().map(|(id, v)| VolumeOf {
            id: id.0,
            own: LimitsOf::of(v.own),
            for_a_time: v
                .for_a_time
                .map(|(l, until_ns)| (LimitsOf::of(l), until_ns)),
            weight: v.weight,
        });
        let tiers = tiers.iter().map(|(id, limits)| TierOf {
            id: id.0,
            limits: LimitsOf::of(*limits),
        });
        (volumes.collect(), tiers.collect())
    }
}
