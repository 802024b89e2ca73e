//! A served array is handed to another process, with the connections of its guests.
//!
//! ```text
//!   may it be? ─▶ moves end their batches ─▶ flushed ─▶ (the other one: "begin") ─▶ nobody asks, nobody is let in, nothing is read
//!                                                                                          │
//!        guests are served all the time up to here                                         ▼
//!                                             answered ◀── what is in flight ends; volumes come to rest, all durable
//!                                                │
//!      as before ◀──── not in time ──────────────┤
//!          ▲                                     ▼
//!          ├────── it has ended, and the ── map closed, "go" ──"taken"──▶ this process ends, and touches nothing
//!          │       map is as it was              │
//!          └─────────────────────────────────────┤
//!                                                └── it has ended, and the map has changed ──▶ likewise, with an error
//! ```
//!
//! From "go" on this process writes nothing, to no device and not to the map, unless the other one has ended and the map is what it was.

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
use super::{ControlServer, Result, home_of};
use crate::engine::Fault;
use crate::helper_thread::at_once;
use crate::keeper::handed::openings_of;
use crate::takeover::state::{LimitsOf, TierOf, VolumeOf, Wishes};
use crate::takeover::wire::{FORMAT, Tag, WISHES_MAX, hear};
use crate::takeover::{Alone, Handover, Listeners};
use crate::worker::{HandedWork, Inbox, Message, Stillness};
use give::{GIVE, Given, Parts, give};

/// A server that is starting has started within this time, or is not ready to be taken over.
const STARTED: Duration = Duration::from_secs(10);

/// A worker says how it is within this time, while guests are served.
const ASKED: Duration = Duration::from_secs(5);

/// Batches of moves end within this time. Guests are served meanwhile.
const MOVES: Duration = Duration::from_secs(10);

/// What guests have written and not flushed is flushed within this time. They are served meanwhile.
const FLUSHED: Duration = Duration::from_secs(30);

/// The other process begins within this time. Guests are served meanwhile.
const BEGIN: Duration = Duration::from_secs(30);

/// Orders of operators that are being carried out have so long to end. Guests are served meanwhile.
const ORDERS: Duration = Duration::from_secs(1);

/// All that is in flight ends, and is durable, within this time: guests wait.
const DRAIN: Duration = Duration::from_millis(200);

/// While it waits for that, this process looks so often whether it is to end.
const LISTEN: Duration = Duration::from_millis(200);

/// Whoever is connecting meanwhile has so long to be done with it.
const NEGOTIATE: Duration = Duration::from_millis(30);

/// Between two looks at what has to end.
const LOOK: Duration = Duration::from_millis(1);

/// A server that could hand over at once.
pub(crate) struct Prepared<'a> {
    _alone: Alone<'a>,
    control_server: &'a ControlServer,
    workers: Vec<Inbox>,
    listeners: Arc<Listeners>,
}

/// Guests' requests wait where they are.
struct Stopped<'a> {
    control_server: &'a ControlServer,
    workers: &'a [Inbox],
    listeners: &'a Listeners,
    /// Volumes that were asked to come to rest.
    resting: Vec<VolumeId>,
    since: Instant,
}

impl ControlServer {
    /// Makes ready to hand the array to another process, as far as guests do not notice.
    ///
    /// # Errors
    /// Why it cannot be handed over.
    pub(crate) fn prepare_to_hand(&self, format: u32) -> Result<Prepared<'_>> {
        self.gate.wait_for_start(STARTED);
        if format != FORMAT {
            return Err(format!(
                "this server hands over in format {FORMAT}, not {format}: stop it, and start the other version"
            ));
        }
        let server = self.server.as_ref().ok_or("the array is not served")?;
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let (workers, listeners) = (server.workers.clone(), server.listeners.clone());
        drop(server);
        self.may_be_handed()?;
        let alone = self
            .gate
            .alone()
            .ok_or("another process is already taking over the array")?;
        for worker in &workers {
            worker.send(Message::HoldMoves(true));
        }
        let prepared = Prepared {
            _alone: alone,
            control_server: self,
            workers,
            listeners,
        };
        let until = Instant::now() + MOVES;
        while let Some(volume) = prepared.stillness()?.moving {
            prepared.may_go_on()?;
            if Instant::now() > until {
                return Err(format!("the move of volume {volume} did not pause in time"));
            }
            std::thread::sleep(LOOK);
        }
        self.flush_beside()?;
        prepared.may_go_on()?;
        Ok(prepared)
    }

    fn may_be_handed(&self) -> Result<()> {
        if let Some(why) = self.gate.why_not() {
            return Err(why.into());
        }
        let why = self.with_keeper(|keeper| keeper.why_not_handed())?;
        why.map_or(Ok(()), Err)?;
        self.nothing_held()
    }

    /// A hold is a connection's with this process: another one would not know of it.
    fn nothing_held(&self) -> Result<()> {
        let Some(id) = self.changing.any() else {
            return Ok(());
        };
        let name = self.with_keeper(move |k| k.volumes.get(&id).map(|v| v.name.clone()))?;
        let name = name.unwrap_or_default();
        Err(format!(
            "volume {name:?} is being saved or changed by another command"
        ))
    }

    /// Makes durable what guests have written, so that there is little to be when they wait for it. What fails here the guests' own flushes
    /// are told of as well: this one is by files of its own.
    fn flush_beside(&self) -> Result<()> {
        let files = self.with_keeper(|keeper| openings_of(&keeper.handed_devices()))?;
        let flush = |file: io::Result<std::fs::File>| move || file.and_then(|f| f.sync_data());
        let flushed = at_once(files.into_iter().map(flush).collect(), FLUSHED);
        for flushed in flushed {
            let flushed = flushed.map_err(|_| "a device was not flushed in time".to_string())?;
            flushed.map_err(|why| format!("a device cannot be flushed: {why}"))?;
        }
        Ok(())
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.send(Message::HoldMoves(false));
        }
        let _ = self
            .control_server
            .with_keeper(|keeper| keeper.quiet = false); // it may have ended
    }
}

impl Prepared<'_> {
    /// All workers together.
    fn stillness(&self) -> Result<Stillness> {
        stillness(&self.workers, Instant::now() + ASKED)
    }

    /// Hands over. If this returns, the array was not, for this reason, and its guests are served as before.
    pub(crate) fn hand_over(&self, socket: &mut UnixStream) -> String {
        match self.try_to(socket) {
            Ok(never) => match never {},
            Err(why) => why,
        }
    }

    /// Waits until the other process begins; what it says by that.
    fn begin(&self, socket: &mut UnixStream) -> Result<Vec<u8>> {
        let until = Instant::now() + BEGIN;
        loop {
            self.may_go_on()?;
            match hear(socket, LISTEN, WISHES_MAX) {
                Ok((Tag::Begin, wishes)) => return Ok(wishes),
                Ok((Tag::No, why)) => return Err(words(&why)),
                Err(why) if why.kind() == io::ErrorKind::TimedOut && Instant::now() < until => {}
                _ => return Err("the other process did not start the take-over".into()),
            }
        }
    }

    /// This process may be to end, and waits for this then.
    fn may_go_on(&self) -> Result<()> {
        self.control_server
            .gate
            .why_not()
            .map_or(Ok(()), |why| Err(why.into()))
    }

    /// Whether the other process will serve what this one does.
    fn wishes(&self, begin: &[u8]) -> Result<()> {
        let wishes: Wishes = serde_json::from_slice(begin)
            .map_err(|why| format!("invalid request of the other process: {why}"))?;
        let server = self
            .control_server
            .server
            .as_ref()
            .ok_or("the array is not served")?;
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
        // From here on the keeper has time for what is asked of it.
        self.control_server.with_keeper(|keeper| {
            keeper.quiet = true;
            keeper.finish_refresh();
        })?;
        self.control_server.gate.shut(ORDERS)?;
        let mut stopped = Stopped {
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
        let mut socket = socket.try_clone().map_err(super::text)?;
        let gate = self.control_server.gate.clone();
        // On the keeper's own thread: it does nothing else meanwhile, and nothing ever again if the other process has the array.
        let given = self.control_server.with_keeper(move |keeper| {
            match give(keeper, &mut socket, pid, &parts) {
                Given::NotTaken(why) => why,
                Given::Taken => end(|| {
                    let pid = pid.as_raw_nonzero().get().unsigned_abs();
                    gate.becomes(Handover::To(pid));
                }),
                Given::Lost(why) => {
                    error!(why, "this process ends without changes");
                    end(|| gate.becomes(Handover::Failed(why)))
                }
            }
        });
        match given {
            Ok(why) => Err(why),
            // The keeper is gone: nobody knows what the other process has.
            Err(why) => end(|| self.control_server.gate.becomes(Handover::Failed(why))),
        }
    }
}

/// There is nothing more for this thread to do in the life of the process.
fn end(say: impl FnOnce()) -> ! {
    say();
    loop {
        std::thread::park();
    }
}

/// The process at the other end, which is ended if that has to be.
fn peer(socket: &UnixStream) -> Result<Pid> {
    let peer = rustix::net::sockopt::socket_peercred(socket).map_err(super::text)?;
    let own = geteuid();
    match own.is_root() || own == peer.uid {
        true => Ok(peer.pid),
        false => Err(format!(
            "the process that wants to take over runs as another user ({}), so this process could not end it if it hangs",
            peer.uid.as_raw()
        )),
    }
}

fn words(why: &[u8]) -> String {
    String::from_utf8_lossy(why).into_owned()
}

/// What a worker answers.
fn answer<T>(answered: &Receiver<T>, until: Instant) -> Result<T> {
    let left = until.saturating_duration_since(Instant::now());
    let answer = answered.recv_timeout(left.max(LOOK));
    answer.map_err(|why| {
        let why = match why {
            RecvTimeoutError::Timeout => "a worker did not answer in time",
            RecvTimeoutError::Disconnected => "a worker has ended",
        };
        why.into()
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

impl Stopped<'_> {
    /// So long guests may be kept waiting for what is in flight.
    fn until(&self) -> Instant {
        self.since + DRAIN
    }

    /// Waits until nothing is in flight; how many connections cannot be handed over.
    fn drain(&mut self) -> Result<usize> {
        if !self.listeners.shut() {
            return Err("a connection of a guest was not accepted in time".into());
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
                return Err(format!("after {} ms, {busy}", DRAIN.as_millis()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Brings all volumes to rest: all that was answered is durable then.
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
                // Also of one that is not served any more.
                Ok(Ok(_) | Err(Fault::Shutdown)) => {}
                Ok(Err(fault)) => {
                    return Err(format!(
                        "cannot flush the writes of volume {}: {fault}",
                        volume.0
                    ));
                }
                Err(_) => {
                    return Err(format!(
                        "after {} ms the writes of volume {} were not flushed",
                        DRAIN.as_millis(),
                        volume.0
                    ));
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

impl Drop for Stopped<'_> {
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
    /// Sets what was set in the process before this one, before volumes are exported.
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
