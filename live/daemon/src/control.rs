//! The controller of this process, with its store, its server and the agent of this host, on a
//! thread of its own.
//!
//! ```text
//!   data path (main thread)        this thread                 each part
//!   ───────────────────────        ───────────                 ─────────
//!   asks for faults and policy ◀── round: every 100 ms ──▶ runs, or has a fault: tried again after 1, 2, … 60 s
//! ```
//!
//! Nothing that guests need waits for this thread: its disk may be full or hang, its files may be
//! damaged, and a panic ends a round. A part that does not run is a fault: in the log, in the
//! controller's own status, and in the status of the array of this process.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent::{AgentSettings, RunningAgent};
use client::{Address, Client, Fingerprint, TlsTrust};
use controller::{Limits, ReloadedConfig, Reloader, RunningServer, StartError};
use datapath::explain;
use manager::managed::ManagedController;
use manager::question::{Actor, Answer, Question, Refusal};
use manager::service::Service;
use manager::settings::{ArrayConfig, Settings};
use manager::store::{StoreError, TidyResult};
use manager::view::CountersView;
use manager::wire::ArrayPolicy;
use store::StoreFile;
use tracing::{error, info, warn};
use units::Nanos;

use crate::clock::{ControllerClock, unix_ms};
use crate::error::DaemonError;
use crate::words::{Words, host_of, lend_of, tcp};
use crate::{ReadSettings, python, recording};

/// Time between two rounds.
const ROUND: Duration = Duration::from_millis(100);

/// Time between two tries to start a part: it doubles from the first to the last. Protects the log,
/// and whatever the part waits for.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_LAST: Duration = Duration::from_secs(60);

/// Time between two rounds of rolling up and forgetting, while there is more to do and when there
/// is not.
const TIDY_MORE: Duration = Duration::from_secs(1);
const TIDY: Duration = Duration::from_secs(60);

/// A process that was taken over from lets go of the store within this time.
const LET_GO: Duration = Duration::from_secs(10);

/// Time limit for the end of the thread at a stop, above those of the agent and of the server
/// together. One that is still there then waits for a disk, and must not keep the array from being
/// stopped.
const STOP_WITHIN: Duration = Duration::from_secs(17);

/// State that the control thread shares with its owner.
#[derive(Default)]
struct SharedState {
    stop: AtomicBool,
    reload: AtomicBool,
    state: Mutex<State>,
    /// Every part was tried.
    tried: Condvar,
}

/// The state of all parts.
#[derive(Default)]
struct State {
    tried: bool,
    faults: Vec<Fault>,
    /// Another controller runs here.
    in_use: Option<String>,
    page: Option<(SocketAddr, Fingerprint)>,
    agent: Option<String>,
    policy: Option<ArrayPolicy>,
    managed: Option<(Arc<Mutex<ManagedController<StoreFile>>>, ControllerClock)>,
}

/// A part that does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub part: &'static str,
    /// The fault and its effect.
    pub what: String,
}

/// A controller that runs, as far as its parts do.
pub(crate) struct Control {
    shared: Arc<SharedState>,
    thread: Option<JoinHandle<()>>,
}

/// The inputs of a controller's start.
pub(crate) struct ControlSettings {
    /// The configuration, or why it cannot be used.
    pub(crate) settings: Result<Settings, DaemonError>,
    /// Directory that its paths are taken from.
    pub(crate) base: PathBuf,
    /// Its section on the array, which only a restart can change.
    pub(crate) array: Option<ArrayConfig>,
    pub(crate) read: Option<Arc<ReadSettings>>,
    /// True if the process before this one handed the array over and still has the store.
    pub(crate) takes_over: bool,
}

impl Control {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread.
    pub(crate) fn start(settings: ControlSettings) -> Result<Self, DaemonError> {
        let shared = Arc::new(SharedState::default());
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("terrace-control".into())
            .spawn(move || Parts::new(settings, of_thread).run())
            .map_err(DaemonError::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Waits until every part was tried, for a while; whether all were.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let waiting = self
            .shared
            .tried
            .wait_timeout_while(self.state(), time, |state| !state.tried);
        waiting.unwrap_or_else(PoisonError::into_inner).0.tried
    }

    pub(crate) fn was_tried(&self) -> bool {
        self.state().tried
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.state().faults.clone()
    }

    pub(crate) fn in_use(&self) -> Option<String> {
        self.state().in_use.clone()
    }

    pub(crate) fn page(&self) -> Option<(SocketAddr, Fingerprint)> {
        self.state().page
    }

    pub(crate) fn agent_problem(&self) -> Option<String> {
        self.state().agent.clone()
    }

    pub(crate) fn policy(&self) -> Option<ArrayPolicy> {
        self.state().policy.clone()
    }

    /// The core, to break it.
    #[cfg(test)]
    pub(crate) fn managed(&self) -> Arc<Mutex<ManagedController<StoreFile>>> {
        self.state().managed.clone().unwrap().0
    }

    pub(crate) fn counters(&self) -> Option<CountersView> {
        let (managed, clock) = self.state().managed.clone()?;
        let asked = lock(&managed).ask(clock.now(), &Actor("daemon".into()), Question::Counters);
        match asked {
            Ok(Answer::Counters(counters)) => Some(*counters),
            _ => None,
        }
    }

    /// Requests a reload of the configuration by the next round. The log has its result.
    pub(crate) fn reload(&self) {
        self.shared.reload.store(true, Ordering::Relaxed);
    }

    /// Stops all parts, for a while.
    pub(crate) fn stop(mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        match datapath::ended_by(&thread, Instant::now() + STOP_WITHIN) {
            true => drop(thread.join()),
            false => warn!("the controller did not stop in time: it waits for its disk"),
        }
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the controller, its state and the time of its next start.
struct Part {
    name: &'static str,
    /// The effect on guests and operators while it does not run.
    without: &'static str,
    runs: bool,
    fault: Option<String>,
    wait: Duration,
    next: Instant,
}

impl Part {
    fn new(name: &'static str, without: &'static str) -> Self {
        Self {
            name,
            without,
            runs: false,
            fault: None,
            wait: Duration::ZERO,
            next: Instant::now(),
        }
    }

    /// Tries to start it, if that is due.
    fn start<T>(&mut self, start: impl FnOnce() -> Result<T, DaemonError>) -> Option<T> {
        if self.runs || Instant::now() < self.next {
            return None;
        }
        match start() {
            Ok(started) => {
                if self.fault.take().is_some() {
                    info!(part = self.name, "started");
                }
                (self.runs, self.wait) = (true, Duration::ZERO);
                Some(started)
            }
            Err(why) => {
                self.failed(&explain(&why));
                None
            }
        }
    }

    fn failed(&mut self, why: &str) {
        let what = format!("{why}; {}; Terrace retries", self.without);
        if self.fault.as_ref() != Some(&what) {
            warn!(part = self.name, "{what}");
        }
        self.fault = Some(what);
        self.runs = false;
        self.wait = (self.wait * 2).clamp(WAIT_FIRST, WAIT_LAST);
        self.next = Instant::now() + self.wait;
    }

    /// Schedules the next attempt for now, because a dependency may have changed.
    fn soon(&mut self) {
        (self.wait, self.next) = (Duration::ZERO, Instant::now());
    }
}

/// Configuration, store, server and agent of a controller.
struct Parts {
    base: PathBuf,
    array: Option<ArrayConfig>,
    read: Option<Arc<ReadSettings>>,
    shared: Arc<SharedState>,
    settings: Option<Settings>,
    managed: Option<Arc<Mutex<ManagedController<StoreFile>>>>,
    takes_over: bool,
    clock: ControllerClock,
    running: Option<RunningServer>,
    running_agent: Option<RunningAgent>,
    configuration: Part,
    server: Part,
    socket: Part,
    port: Part,
    record: Part,
    agent: Part,
    store_fault: Option<String>,
    in_use: Option<String>,
    tidy_at: Instant,
}

impl Parts {
    fn new(of: ControlSettings, shared: Arc<SharedState>) -> Self {
        let mut configuration = Part::new("configuration", "no controller is running");
        let settings = match of.settings {
            Ok(settings) => Some(settings),
            Err(why) => {
                configuration.failed(&explain(&why));
                None
            }
        };
        Self {
            base: of.base,
            array: of.array,
            read: of.read,
            shared,
            settings,
            managed: None,
            takes_over: of.takes_over,
            clock: ControllerClock::starting_at(Nanos::ZERO),
            running: None,
            running_agent: None,
            configuration,
            server: Part::new("server", "the controller accepts no requests"),
            socket: Part::new(
                "socket",
                "commands and the agent cannot reach the controller",
            ),
            port: Part::new(
                "port",
                "the controller and its page cannot be reached over TLS",
            ),
            record: Part::new("recording", "the controller records nothing"),
            agent: Part::new(
                "agent",
                "this host sends no reports, and the controller makes no decisions for it",
            ),
            store_fault: None,
            in_use: None,
            tidy_at: Instant::now() + TIDY,
        }
    }

    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.round())) {
                error!(
                    why = panicked(&*panic),
                    "the supervision of the controller's parts panicked"
                );
                std::thread::park_timeout(WAIT_FIRST);
            }
            self.say();
            std::thread::park_timeout(ROUND);
        }
        // The agent ends first, because it sends requests to the controller.
        drop(self.running_agent.take());
        drop(self.running.take());
        self.shared.lock().managed = None;
    }

    fn round(&mut self) {
        if self.shared.reload.swap(false, Ordering::Relaxed) {
            self.reload();
        }
        self.read_configuration();
        let Some(managed) = self.managed() else {
            return;
        };
        self.mend(&managed);
        self.start_server(&managed);
        self.start_record(&managed);
        self.start_agent(&managed);
        self.tidy(&managed);
        self.tell(&managed);
    }

    /// Reads a configuration that could not be used.
    fn read_configuration(&mut self) {
        if self.settings.is_some() {
            return;
        }
        let Some(read) = self.read.clone() else {
            return;
        };
        let array = &self.array;
        let read = || {
            let settings = read()?;
            if settings.words.array != *array {
                let why = "[array] has changed, which needs a restart".into();
                return Err(DaemonError::Configuration(why));
            }
            Ok(settings)
        };
        if let Some(settings) = self.configuration.start(read) {
            self.settings = Some(settings);
        }
    }

    fn reload(&mut self) {
        for part in [
            &mut self.configuration,
            &mut self.port,
            &mut self.agent,
            &mut self.record,
        ] {
            part.soon();
        }
        if let Some(running) = &self.running {
            let _ = running.reload("SIGHUP"); // what came of it is in the log
        }
    }

    /// The core, made once there is a configuration.
    fn managed(&mut self) -> Option<Arc<Mutex<ManagedController<StoreFile>>>> {
        if let Some(managed) = &self.managed {
            return Some(managed.clone());
        }
        let settings = python::with_access(self.settings.clone()?);
        let words = Words::of(&settings, &self.base);
        let mut store = StoreFile::new(&words.store, words.retention);
        let until = Instant::now() + LET_GO;
        let is_in_use =
            |opened: Result<_, StoreError>| matches!(opened, Err(StoreError::InUse { .. }));
        while self.takes_over && Instant::now() < until && is_in_use(store.open().map(|_| ())) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let managed = ManagedController::new(settings, store, unix_ms(), datapath::random());
        self.clock = ControllerClock::starting_at(managed.time());
        let managed = Arc::new(Mutex::new(managed));
        self.managed = Some(managed.clone());
        Some(managed)
    }

    /// Records a panic of the core and lets the controller continue; restarts a server that has ended.
    fn mend(&mut self, managed: &Arc<Mutex<ManagedController<StoreFile>>>) {
        if managed.is_poisoned() {
            let mut broken = managed.lock().unwrap_or_else(PoisonError::into_inner);
            let why = "the controller panicked on a request: this is a bug in Terrace, and its log shows where";
            broken.broke_off(self.clock.now(), why);
            managed.clear_poison();
        }
        if self.running.as_ref().is_some_and(|r| !r.healthy()) {
            self.running = None;
            self.server
                .failed("the controller's server has ended unexpectedly");
            (self.socket.runs, self.port.runs) = (false, false);
        }
    }

    fn start_server(&mut self, managed: &Arc<Mutex<ManagedController<StoreFile>>>) {
        let service = managed.clone();
        let clock = self.clock.shared();
        let reload = self
            .read
            .clone()
            .map(|read| reloader(read, self.base.clone()));
        let start = || {
            Ok(RunningServer::start(
                service,
                clock,
                Limits::default(),
                reload,
            )?)
        };
        if let Some(running) = self.server.start(start) {
            self.running = Some(running);
        }
        let Some(running) = &mut self.running else {
            return;
        };
        let base = &self.base;
        let mut in_use = None;
        self.socket.start(|| {
            let path = Words::of(lock(managed).settings(), base).socket;
            running.listen_unix(&path).map_err(|why| {
                if matches!(why, StartError::SocketInUse(_)) {
                    in_use = Some(why.to_string());
                }
                DaemonError::from(why)
            })
        });
        if in_use.is_some() || self.socket.runs {
            self.in_use = in_use;
        }
        self.port.start(|| {
            let wanted = tcp(&lock(managed).settings().words.controller, base)?;
            Ok(wanted.map_or(Ok(()), |tcp| running.listen_tls(&tcp))?)
        });
    }

    fn start_record(&mut self, managed: &Arc<Mutex<ManagedController<StoreFile>>>) {
        let base = &self.base;
        self.record.start(|| {
            let mut managed = lock(managed);
            if let Some(file) = managed.settings().words.controller.record.clone() {
                managed.record(recording::to_file(&base.join(file))?)?;
            }
            Ok(())
        });
    }

    fn start_agent(&mut self, managed: &Mutex<ManagedController<StoreFile>>) {
        let base = &self.base;
        let started = self.agent.start(|| {
            let settings = lock(managed).settings().clone();
            let Some((host, of)) = host_of(&settings.words, base)? else {
                return Ok(None);
            };
            let address = Address::Unix(Words::of(&settings, base).socket);
            Ok(Some(RunningAgent::start(AgentSettings {
                host,
                of,
                controller: Client::new(address, None, TlsTrust::Nothing)?,
                lend: lend_of(&settings.words, base)?,
            })?))
        });
        if let Some(agent) = started {
            self.running_agent = agent;
        }
    }

    fn tidy(&mut self, managed: &Mutex<ManagedController<StoreFile>>) {
        if Instant::now() < self.tidy_at {
            return;
        }
        let tidied = lock(managed).tidy(self.clock.now());
        if let Err(why) = &tidied {
            warn!(%why, "cannot clean up the store");
        }
        let more = tidied == Ok(TidyResult::Some);
        self.tidy_at = Instant::now() + if more { TIDY_MORE } else { TIDY };
    }

    /// Passes the failed parts to the core, and takes the core's messages to the array.
    fn tell(&mut self, managed: &Mutex<ManagedController<StoreFile>>) {
        let mut managed = lock(managed);
        let parts = self.parts().into_iter();
        managed.set_faults(parts.filter_map(|p| Some((p.name, p.fault.as_deref()?))));
        let fault = managed.failure().map(str::to_owned);
        if fault != self.store_fault {
            match &fault {
                Some(why) => warn!("{why}"),
                None => info!("the store works again: decisions continue"),
            }
        }
        if managed.is_in_use() {
            self.in_use.clone_from(&fault);
        }
        self.store_fault = fault;
        self.shared.lock().policy = Some(managed.settings().array_policy());
    }

    fn parts(&self) -> [&Part; 6] {
        [
            &self.configuration,
            &self.server,
            &self.socket,
            &self.port,
            &self.record,
            &self.agent,
        ]
    }

    fn say(&self) {
        let parts = self.parts().into_iter();
        let faults = parts.filter_map(|p| {
            let what = p.fault.clone()?;
            Some(Fault { part: p.name, what })
        });
        let store = self.store_fault.iter().map(|what| Fault {
            part: "store",
            what: what.clone(),
        });
        let faults: Vec<Fault> = store.chain(faults).collect();
        let running = self.running.as_ref();
        let mut state = self.shared.lock();
        state.faults = faults;
        state.in_use.clone_from(&self.in_use);
        state.page = running.and_then(|r| r.address().zip(r.fingerprint()));
        state.agent = self.running_agent.as_ref().and_then(RunningAgent::problem);
        state.managed = self.managed.clone().map(|m| (m, self.clock));
        if !state.tried {
            state.tried = true;
            self.shared.tried.notify_all();
        }
    }
}

fn lock(
    managed: &Mutex<ManagedController<StoreFile>>,
) -> MutexGuard<'_, ManagedController<StoreFile>> {
    managed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of a panic.
fn panicked(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no reason given")
}

fn reloader(read: Arc<ReadSettings>, base: PathBuf) -> Reloader {
    Reloader::new(move || {
        let invalid = |e: DaemonError| Refusal::Invalid(explain(&e));
        let settings = python::with_access(read().map_err(invalid)?);
        let tcp = tcp(&settings.words.controller, &base).map_err(invalid)?;
        Ok(ReloadedConfig { settings, tcp })
    })
}
