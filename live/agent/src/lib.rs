//! Host side of the live manager: threads, the clock, the control socket of an array, libvirt or QEMU, and the HTTP
//! interface of a controller. [`manager::agent`] makes its decisions.
//!
//! ```text
//!   array ◀──control socket── poller ──messages──▶ transport ──HTTP──▶ controller
//!                               ▲                      │
//!                               └───────replies────────┘
//! ```
//!
//! There are two threads, because a controller that does not answer must not delay the supervision of the array.

mod array;
mod block_times;
mod controller;
mod error;
mod held;
mod host;
mod images;
mod kernel;
mod lending;
mod libvirt;
mod life;
mod machines;
mod moves;
mod nothing;
mod places;
mod platform;
mod probe;
mod process;
mod program;
mod proxmox;
mod qemu;
pub mod qualify;
mod storage;
mod survey;
mod throttles;
mod transport;
mod virsh;
mod yielding;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Address, Client};
use datapath::ended_by;
use manager::agent::{ActionError, Agent, AgentAction};
use tracing::{debug, info, warn};

pub use array::ServedArray;
pub use error::AgentError;
use error::system_error;
use held::SentOrders;
pub use host::Host;
pub use kernel::medium_of;
use lending::Donor;
pub use lending::LendSettings;
pub use machines::MachinesSettings;
pub use nothing::Nothing;
pub use places::{MoveSettings, PlacesOf, TierOf};
pub use platform::{KeyFault, PLATFORMS, Platform, check_platforms, config_schema, fill_platforms};
pub use probe::{ProbeResult, probe};
pub use survey::{Candidate, FoundPlace, Survey, SurveyRequest, SurveyResult, candidates};
use transport::{ControllerTransport, Reply};

/// Interval at which the array is read during moves and calibrations. At other times it is read at the end of each
/// window.
const BEAT: Duration = Duration::from_millis(250);

/// Shortest time between two readings: a window may be shorter than [`BEAT`].
const BEAT_MIN: Duration = Duration::from_millis(20);

/// Pause after the array has not answered.
const PAUSE: Duration = Duration::from_secs(1);

/// Time limit for the end of the agent's threads at a stop. A call to the array or to the controller may take minutes. The limit is below
/// `TimeoutStopSec=` of the agent's systemd unit (15 s), after which systemd kills the process.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Operation in the error of a failed start.
const START: &str = "cannot start an agent";

/// Settings of an agent: the host that it manages, and the controller to which it reports.
pub struct AgentSettings {
    /// Name of the host.
    pub host: String,
    /// Managed array or virtualization host.
    pub of: Box<dyn Host>,
    pub controller: Client,
    /// Memory and flash that the host lends to arrays of other hosts; `None` if it lends none.
    pub lend: Option<LendSettings>,
}

/// Running agent. Dropping it stops the agent; the array continues moves in progress.
pub struct RunningAgent {
    stop: Arc<AtomicBool>,
    problem: Problem,
    threads: Vec<JoinHandle<()>>,
}

/// Reason for which the agent does not report; `None` while it reports.
type Problem = Arc<Mutex<Option<String>>>;

/// Records the state, and logs it if it has changed.
fn say(problem: &Problem, text: Option<String>) {
    let mut said = problem.lock().unwrap_or_else(PoisonError::into_inner);
    if *said != text {
        match &text {
            Some(why) => warn!(why, "the agent cannot send its report"),
            None => info!("the agent sends its reports again"),
        }
        *said = text;
    }
}

impl RunningAgent {
    /// Starts an agent.
    ///
    /// # Errors
    /// [`AgentError::System`]: the system provides no thread.
    pub fn start(settings: AgentSettings) -> Result<Self, AgentError> {
        let AgentSettings {
            host,
            of,
            controller,
            lend,
        } = settings;
        let stop = Arc::new(AtomicBool::new(false));
        let problem: Problem = Arc::new(Mutex::new(Some("not registered yet".into())));
        let name = name_of(controller.address());
        let started = ControllerTransport::start(host, controller);
        let (transport, thread) = started.map_err(system_error(START))?;
        let (ended, said) = (stop.clone(), problem.clone());
        let poller = std::thread::Builder::new()
            .name("terrace-agent".into())
            .spawn(move || {
                let mut looked_after = ManagedHost {
                    array: of,
                    donor: lend.map(Donor::new),
                };
                look(&mut looked_after, &name, &transport, &ended, &said);
                looked_after.array.end();
            })
            .map_err(system_error(START))?;
        Ok(Self {
            stop,
            problem,
            threads: vec![poller, thread],
        })
    }

    /// Returns the reason for which the agent does not report; `None` while it reports.
    pub fn problem(&self) -> Option<String> {
        let problem = self.problem.lock();
        problem.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the agent and waits some seconds for its threads. A thread that has not ended by then is left behind. The
    /// array and the controller may still carry out its last request.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        let until = Instant::now() + STOP_WITHIN;
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if !ended_by(&thread, until) {
                let thread = thread.thread().name();
                warn!(
                    thread,
                    "the agent did not stop in time: it waits for the array or for the controller"
                );
                continue;
            }
            let _ = thread.join();
        }
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Number that differs in each life of an agent: wall-clock time in nanoseconds, combined with the process id.
fn session() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ns = since.map_or(0, |d| d.as_nanos() as u64);
    ns ^ (u64::from(std::process::id()) << 40)
}

/// Largest number of characters of an address that name a controller. An array accepts 255 bytes.
const NAME_CHARS_MAX: usize = 60;

/// Name of the controller at an address, for messages to the operator of another controller.
fn name_of(address: &Address) -> String {
    let text = match address {
        Address::Unix(path) => std::path::absolute(path).map(|p| p.display().to_string()),
        https => Ok(https.to_string()),
    };
    let text = text.unwrap_or_else(|_| address.to_string());
    let plain: Vec<char> = text.chars().filter(|c| !c.is_control()).collect();
    // The end of a long path is more informative than its beginning.
    let first = plain.len().saturating_sub(NAME_CHARS_MAX);
    plain[first..].iter().collect()
}

/// Managed host and its lending.
struct ManagedHost {
    array: Box<dyn Host>,
    donor: Option<Donor>,
}

impl ManagedHost {
    /// Starts the ordered lending processes and ends all others.
    fn lend(&mut self, now_ns: u64, agent: &mut Agent) {
        let Some(donor) = &mut self.donor else {
            return;
        };
        for action in agent.lend(now_ns, donor.look()) {
            donor.carry_out(action);
        }
        let warnings = donor.warnings().into_iter();
        warnings.for_each(|text| agent.add_warning(text));
    }
}

fn look(
    looked_after: &mut ManagedHost,
    name: &str,
    transport: &ControllerTransport,
    stop: &AtomicBool,
    problem: &Problem,
) {
    let began = Instant::now();
    let now = || began.elapsed().as_nanos() as u64;
    let mut agent = Agent::new(session(), env!("CARGO_PKG_VERSION"));
    let mut sent_ns = None;
    let mut held = SentOrders::default();
    while !stop.load(Ordering::Acquire) {
        let at_ns = now();
        // Lending continues while the array does not answer. The agent sends no report then, so processes that other
        // hosts use end with their lease.
        looked_after.lend(at_ns, &mut agent);
        let array = &mut *looked_after.array;
        let life: Vec<u64>;
        let looked = array.snapshot().and_then(|mut snapshot| {
            let wanted = agent.wanted_extents(at_ns, &snapshot);
            array.look_at_extents(wanted, &mut snapshot)?;
            let wanted = agent.wanted_reuse(at_ns, &snapshot);
            array.look_at_reuse(wanted, &mut snapshot)?;
            Ok(snapshot)
        });
        match looked {
            Ok(snapshot) => {
                life = snapshot.devices.iter().map(|d| d.since_ns).collect();
                held.claim(array, &mut agent, name, at_ns, &life);
                agent.beat(at_ns, snapshot);
                array
                    .warnings()
                    .into_iter()
                    .for_each(|r| agent.add_warning(r));
            }
            Err(why) => {
                let why = format!("{} does not respond: {why}", array.called());
                say(problem, Some(why.clone()));
                agent.add_warning(why);
                std::thread::park_timeout(PAUSE);
                continue;
            }
        }
        while let Some(action) = agent.poll_action() {
            let result = array.carry_out(&action);
            log(&action, &result);
            agent.done(&action, result);
        }
        let (objectives, until_ns) = agent.objectives();
        held.promise(array, objectives, at_ns, until_ns, &life);
        let policy = agent.policy().filter(|_| agent.holder().is_some());
        if let Some(why) = policy.and_then(|p| held.say(array, p, life)) {
            agent.add_warning(why);
        }
        // One message at a time. The agent replaces an unsent message by a newer one.
        if sent_ns.is_none()
            && let Some(message) = agent.poll_message()
        {
            sent_ns = Some(now());
            if transport.send(message).is_err() {
                return; // the transport ends only with this process
            }
        }
        wait(&mut agent, transport, &mut sent_ns, &now, stop, problem);
    }
}

/// Logs an action in one line. Actions that repeat during a calibration are logged at debug level.
fn log(action: &AgentAction, result: &Result<(), ActionError>) {
    let why = result.as_ref().err().map(|error| &error.why);
    match (action, why) {
        (AgentAction::StartMove(order), None) => {
            let (job, volume, device) = (order.job, &order.volume, &order.device);
            info!(job, volume, device, "started the move of a job");
        }
        (AgentAction::StartMove(order), Some(why)) => {
            let (job, volume, device) = (order.job, &order.volume, &order.device);
            warn!(job, volume, device, why, "cannot start the move of a job");
        }
        (AgentAction::CancelMove { volume }, None) => info!(volume, "cancelled a move"),
        (AgentAction::CancelMove { volume }, Some(why)) => {
            warn!(volume, why, "cannot cancel a move");
        }
        (AgentAction::Throttle { volume, to }, None) => {
            let limited = to.is_some();
            info!(volume, limited, "changed the limits of a volume");
        }
        (AgentAction::Throttle { volume, .. }, Some(why)) => {
            warn!(volume, why, "cannot change the limits of a volume");
        }
        (AgentAction::LendCache { volume, bytes, .. }, None) => {
            debug!(volume, bytes, "lent a part of the cache to a volume");
        }
        (AgentAction::LendCache { volume, .. }, Some(why)) => {
            warn!(
                volume,
                why, "cannot change the part of the cache of a volume"
            );
        }
        (AgentAction::Mirror { volume, device, .. }, None) => {
            debug!(volume, device, "ordered mirror");
        }
        (AgentAction::Mirror { volume, device, .. }, Some(why)) => {
            warn!(volume, device, why, "cannot start mirror");
        }
        (AgentAction::StopMirror { volume }, None) => info!(volume, "removed mirror"),
        (AgentAction::StopMirror { volume }, Some(why)) => {
            warn!(volume, why, "cannot remove mirror");
        }
        (
            AgentAction::UseNode {
                volume, server, at, ..
            },
            None,
        ) => {
            info!(
                volume,
                server, at, "set a cache node as the L2 cache of a volume"
            );
        }
        (
            AgentAction::UseNode {
                volume, server, at, ..
            },
            Some(why),
        ) => {
            warn!(
                volume,
                server, at, why, "cannot use a cache node as the L2 cache of a volume"
            );
        }
        (AgentAction::StopNode { id }, None) => {
            info!(id, "removed the cache node of a remedy")
        }
        (AgentAction::StopNode { .. }, Some(why)) => {
            warn!(why, "cannot remove the cache node of a remedy");
        }
        (AgentAction::Inject { volume, .. }, why) => debug!(volume, why, "latency was injected"),
    }
}

/// Waits for the next event: the end of a window or of a step, a reply of the controller, or the next reading of the
/// array.
fn wait(
    agent: &mut Agent,
    transport: &ControllerTransport,
    sent_ns: &mut Option<u64>,
    now: &impl Fn() -> u64,
    stop: &AtomicBool,
    problem: &Problem,
) {
    let due = Duration::from_nanos(agent.due_in_ns(now()));
    let longest = if agent.is_busy() { BEAT } else { due };
    let until = Instant::now() + due.min(longest).max(BEAT_MIN);
    while !stop.load(Ordering::Acquire) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let Some(reply) = transport.receive(left.min(BEAT)) else {
            continue;
        };
        let sent = sent_ns.take().unwrap_or_default();
        match reply {
            Reply::Welcome(welcome) => agent.welcomed(now(), welcome),
            Reply::Orders(orders) => {
                say(problem, None);
                agent.ordered(now(), sent, *orders);
            }
            Reply::Refused(refusal) => {
                say(problem, Some(refusal.to_string()));
                agent.refused(&refusal);
            }
            Reply::Lost(why) => say(problem, Some(why)),
        }
        return;
    }
}

#[cfg(test)]
mod toy;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use client::{Address, TlsTrust};

    use super::*;

    /// The controller accepts the connection and sends no answer. The call would last a minute.
    #[test]
    fn stop_does_not_wait_for_an_unresponsive_controller() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("controller.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let controller = Client::new(Address::Unix(socket), None, TlsTrust::Nothing).unwrap();
        let agent = RunningAgent::start(AgentSettings {
            host: "here".into(),
            of: Box::new(Nothing),
            controller,
            lend: None,
        });
        let agent = agent.unwrap();
        let (connection, _) = listener.accept().unwrap();
        let began = Instant::now();
        agent.stop();
        assert!(began.elapsed() < client::connection::ANSWER_TIME);
        drop(connection);
    }
}
