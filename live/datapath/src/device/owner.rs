//! Ownership of remote devices: one server at a time writes to an export.
//!
//! ```text
//!  keeper ──claim──▶ Ownership ── thread: heartbeats (protocol) ──▶ claims on the device
//!                        │
//!                        └─ Lease: an atomic time ◀── checked before each remote write
//! ```
//!
//! Files and block devices have locks of the operating system instead (`lock.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use array::{ArrayId, SUPERBLOCKS_BYTES};
use rustix::time::{ClockId, clock_gettime};
use tracing::{error, info, warn};

use super::space::STAMP_TIME;
use super::superblocks::{Places, explains};
use crate::client::Client;
pub(super) use claim::CLAIMS;
use claim::{CLAIM_BYTES, CONTENDER_AT, Claim, ClaimContent, ClaimState, OWNER_AT};
use protocol::{Action, Event, Place, Protocol, Rights};

mod claim;
mod device;
mod home;
mod protocol;
mod refusal;

pub use refusal::Refusal;

/// Time limit of a request to the remote server. A heartbeat fails earlier, after
/// [`protocol::BEAT_LIMIT_NS`]. The connection stays open, as the server may be slow only briefly.
const REQUEST_TIME: Duration = Duration::from_secs(3);

/// Number of attempts to claim a device whose server does not answer in time.
const TRIES: u32 = 3;

/// Returns the time of the clock that also runs while the host sleeps, in nanoseconds.
#[inline]
fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Time until which this process may write to a device. Each write checks it, without a lock.
#[derive(Debug)]
pub(crate) struct Lease(AtomicU64);

impl Lease {
    /// Returns a lease without an end, for a device that needs no claim.
    pub fn unlimited() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// Returns a lease that has ended, for a device that is not claimed yet.
    pub fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns true if this process may write to the device now.
    #[inline]
    pub fn holds(&self) -> bool {
        let until_ns = self.0.load(Ordering::Acquire);
        until_ns == u64::MAX || boot_ns() < until_ns
    }

    /// Returns an error if the lease has ended.
    pub fn check(&self) -> io::Result<()> {
        match self.holds() {
            true => Ok(()),
            false => Err(io::Error::other(
                "this server cannot confirm that it owns the device: check the remote server and the network",
            )),
        }
    }

    /// Waits up to `time` for a lease.
    pub fn wait(&self, time: Duration) -> io::Result<()> {
        let until = std::time::Instant::now() + time;
        crate::server::poll_until(until, || self.holds().then_some(()));
        self.check()
    }

    pub fn is_unlimited(&self) -> bool {
        self.0.load(Ordering::Acquire) == u64::MAX
    }

    fn set(&self, until_ns: u64) {
        self.0.store(until_ns, Ordering::Release);
    }
}

/// Identity of this process in its claims of remote devices.
#[derive(Debug, Default)]
pub struct Claimant {
    /// Directory of the array; `None` in tests without one.
    dir: Option<PathBuf>,
    /// True if the operator states that the last owner of a device has ended.
    force: bool,
    /// Home and owner id, created when the first device is claimed.
    ids: OnceLock<(u128, u128)>,
}

impl Claimant {
    pub fn new(dir: Option<&Path>, force: bool) -> Self {
        Self {
            dir: dir.map(Path::to_owned),
            force,
            ids: OnceLock::new(),
        }
    }

    fn claim(&self, array: ArrayId) -> Claim {
        let (home, owner) = *self.ids.get_or_init(|| {
            let home = self.dir.as_deref().map(home::home_of);
            (home.unwrap_or_else(random), random())
        });
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        Claim {
            state: ClaimState::Claiming,
            array,
            home,
            owner,
            generation: 0,
            counter: 0,
            interval_ms: (protocol::INTERVAL_NS / 1_000_000) as u32,
            pid: std::process::id(),
            written_s: 0,
            host: host.map(|h| h.trim().to_owned()).unwrap_or_default(),
        }
    }
}

fn random() -> u128 {
    u128::from(crate::keeper::random()) << 64 | u128::from(crate::keeper::random())
}

/// State of the ownership of a device.
#[derive(Debug, Clone)]
pub(crate) enum OwnershipState {
    Confirmed,
    /// Time since the last confirmed heartbeat. Nothing is written until the next confirmed one.
    Paused(Duration),
    /// Another server took the device over.
    Lost(Refusal),
}

/// State that a device shares with the thread of its ownership.
#[derive(Debug)]
struct OwnerState {
    lease: Arc<Lease>,
    lost: Mutex<Option<Refusal>>,
}

/// Ownership of a device by this process, with the thread that sends heartbeats.
#[derive(Debug)]
pub(super) struct Ownership {
    shared: Arc<OwnerState>,
    /// Channel that ends the thread. If it is only dropped, the claim is not released.
    end: Sender<(End, Sender<()>)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// Other servers may own the device at once.
    Release,
    /// The device leaves the array, and its claims are erased.
    Clear,
}

/// Data that is needed to claim a device.
pub(super) struct ClaimRequest {
    pub name: String,
    pub uri: nbd::Uri,
    pub array: ArrayId,
    /// True to replace a claim without heartbeats.
    pub force: bool,
    /// True if the device is new: no claim is expected on it.
    pub new: bool,
    pub lease: Arc<Lease>,
    pub expected: Arc<Mutex<Places>>,
}

impl Ownership {
    /// Claims a device in at most [`TRIES`] attempts. An attempt takes up to three intervals of
    /// heartbeats. It does not wait if this array directory released the device and there is no
    /// contender.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn claim(device: ClaimRequest, claimant: &Claimant) -> Result<Self, Refusal> {
        let rights = Rights {
            force: claimant.force || device.force,
            new: device.new,
        };
        let mine = claimant.claim(device.array);
        let shared = Arc::new(OwnerState {
            lease: device.lease,
            lost: Mutex::default(),
        });
        let mut wire = Wire {
            uri: device.uri,
            expected: device.expected,
            client: None,
        };
        let mut tries = 0;
        let protocol = loop {
            tries += 1;
            let mut protocol = Protocol::new(mine.clone(), rights);
            match wire.until_owned(&mut protocol, &shared.lease) {
                Ok(()) => break protocol,
                Err(Refusal::NoReply) if tries < TRIES => {}
                Err(why) => {
                    wire.withdraw(&mine);
                    return Err(why);
                }
            }
        };
        let (end, ends) = channel();
        let thread = std::thread::Builder::new().name("terrace-owner".into());
        let keep = OwnershipThread {
            name: device.name,
            shared: shared.clone(),
            wire,
            protocol,
            ends,
        };
        let spawned = thread.spawn(move || keep.run());
        // Without the thread the lease ends by itself.
        spawned.map_err(|_| Refusal::NoReply)?;
        Ok(Self { shared, end })
    }

    pub fn state(&self) -> OwnershipState {
        let lost = self.shared.lost.lock();
        if let Some(why) = &*lost.unwrap_or_else(PoisonError::into_inner) {
            return OwnershipState::Lost(why.clone());
        }
        let until_ns = self.shared.lease.0.load(Ordering::Acquire);
        match boot_ns().checked_sub(until_ns) {
            None => OwnershipState::Confirmed,
            Some(ago_ns) => {
                OwnershipState::Paused(Duration::from_nanos(ago_ns + protocol::LEASE_NS))
            }
        }
    }

    /// Ends the ownership: from now on this process does not write to the device. Waits up to
    /// [`STAMP_TIME`] for the release of the claim.
    pub fn end(self, how: End) {
        self.shared.lease.set(0);
        let (done, over) = channel();
        if self.end.send((how, done)).is_ok() {
            let _ = over.recv_timeout(STAMP_TIME);
        }
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        self.shared.lease.set(0);
    }
}

/// Thread of an ownership.
struct OwnershipThread {
    name: String,
    shared: Arc<OwnerState>,
    wire: Wire,
    protocol: Protocol,
    ends: Receiver<(End, Sender<()>)>,
}

impl OwnershipThread {
    fn run(mut self) {
        let mut event = Event::Go;
        let mut confirmed = true;
        loop {
            let holds = self.shared.lease.holds();
            if holds != confirmed {
                confirmed = holds;
                let device = &self.name;
                match confirmed {
                    true => info!(
                        device,
                        "a heartbeat was confirmed: this server owns the device again"
                    ),
                    false => warn!(
                        device,
                        "this server cannot confirm that it owns the device: requests wait for a confirmed heartbeat"
                    ),
                }
            }
            let action = self.protocol.step(boot_ns(), event);
            event = match action {
                Action::Grant { until_ns } => {
                    self.shared.lease.set(until_ns);
                    Event::Go
                }
                Action::Refuse(why) => {
                    self.shared.lease.set(0);
                    error!(device = self.name, %why, "this server no longer owns the device");
                    let lost = self.shared.lost.lock();
                    *lost.unwrap_or_else(PoisonError::into_inner) = Some(why);
                    return;
                }
                Action::Sleep { until_ns } => match self.sleep(until_ns) {
                    true => Event::Go,
                    false => return,
                },
                action => self.wire.carry_out(action),
            };
            if let Ok(end) = self.ends.try_recv() {
                return self.end(end);
            }
        }
    }

    /// Sleeps. Returns false if the ownership ended or must end.
    fn sleep(&mut self, until_ns: u64) -> bool {
        let time = Duration::from_nanos(until_ns.saturating_sub(boot_ns()));
        match self.ends.recv_timeout(time) {
            Ok(end) => {
                self.end(end);
                false
            }
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => true,
        }
    }

    fn end(&mut self, (how, done): (End, Sender<()>)) {
        self.shared.lease.set(0);
        let mut released = self.protocol.mine().clone();
        let write = |place, claim| Action::Write {
            place,
            claim,
            durable: true,
        };
        let found = self.wire.carry_out(Action::Read(Place::Owner));
        let ours = |found: &ClaimContent| found.claim().is_some_and(|c| c.owner == released.owner);
        if matches!(&found, Event::Read(found) if ours(found)) {
            self.wire.carry_out(write(Place::Contender, None));
            released.state = ClaimState::Released;
            released.counter += 1;
            let claim = match how {
                End::Release => Some(released),
                End::Clear => None,
            };
            if self.wire.carry_out(write(Place::Owner, claim)) == Event::Failed {
                let device = &self.name;
                warn!(
                    device,
                    "cannot release the claim: the next start waits up to 6 s"
                );
            }
        }
        let _ = done.send(());
    }
}

/// Connection that carries the protocol's requests to the remote server.
struct Wire {
    uri: nbd::Uri,
    expected: Arc<Mutex<Places>>,
    client: Option<Client>,
}

impl Wire {
    /// Runs the protocol until it grants a lease.
    fn until_owned(&mut self, protocol: &mut Protocol, lease: &Lease) -> Result<(), Refusal> {
        let mut action = protocol.start(boot_ns());
        loop {
            let event = match action {
                Action::Grant { until_ns } => {
                    lease.set(until_ns);
                    return Ok(());
                }
                Action::Refuse(why) => return Err(why),
                Action::Sleep { until_ns } => {
                    let time = until_ns.saturating_sub(boot_ns());
                    std::thread::sleep(Duration::from_nanos(time));
                    Event::Go
                }
                action => self.carry_out(action),
            };
            action = protocol.step(boot_ns(), event);
        }
    }

    /// Removes the contender's claim of this server after a refusal.
    fn withdraw(&mut self, mine: &Claim) {
        let found = self.carry_out(Action::Read(Place::Contender));
        let ours = |found: &ClaimContent| found.claim().is_some_and(|c| c.owner == mine.owner);
        if matches!(&found, Event::Read(found) if ours(found)) {
            self.carry_out(Action::Write {
                place: Place::Contender,
                claim: None,
                durable: false,
            });
        }
    }

    fn carry_out(&mut self, action: Action) -> Event {
        let done = self.try_to(action);
        done.unwrap_or_else(|| {
            // A late reply on this connection would be taken for that of a later request.
            self.client = None;
            Event::Failed
        })
    }

    fn try_to(&mut self, action: Action) -> Option<Event> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let client = Client::connect(&self.uri).ok()?;
                client.limit(REQUEST_TIME).ok()?;
                client
            }
        };
        let at = |place| match place {
            Place::Owner => OWNER_AT,
            Place::Contender => CONTENDER_AT,
        };
        let event = match action {
            Action::Read(place) => {
                let bytes = client.read(at(place), CLAIM_BYTES as u32).ok()?;
                Event::Read(ClaimContent::decode(&bytes))
            }
            Action::Write {
                place,
                claim,
                durable,
            } => {
                let block = claim.map_or([0; CLAIM_BYTES], |mut claim| {
                    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                    claim.written_s = since.map_or(0, |s| s.as_secs());
                    claim.encode()
                });
                match durable {
                    true => client.write_through(at(place), &block).ok()?,
                    false => client.write(at(place), &block).ok()?,
                }
                Event::Written
            }
            Action::CompareSuperblock => {
                let bytes = client.read(0, SUPERBLOCKS_BYTES as u32).ok()?;
                let expected = self.expected.lock();
                let expected = expected.unwrap_or_else(PoisonError::into_inner);
                Event::Same(expected.is_empty() || explains(&expected, &bytes))
            }
            Action::Grant { .. } | Action::Sleep { .. } | Action::Refuse(_) => {
                unreachable!("these actions need no request")
            }
        };
        self.client = Some(client);
        Some(event)
    }
}
