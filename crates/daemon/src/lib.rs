//! What `terrace serve` runs: an array's data path, its agent and a controller with its store, in one process.
//!
//! ```text
//!  guests ══NBD══▶ data path ◀──control socket── agent ──unix socket, HTTP──▶ controller ─▶ store
//!                                                                               ▲
//!                                                        people: CLI, page ─────┘
//! ```
//!
//! The parts talk to each other as they would over a network: putting them on several hosts is a matter of configuration. What
//! ends one of them ends all: a process that serves guests and no longer decides would look well and be ill.

mod array;
mod clock;
mod error;
mod recording;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent::{
    AgentSettings, HostOf, LendSettings, MachinesSettings, Moving, RunningAgent, TierOf,
    check_tiers,
};
use client::{Address, Client, TlsTrust};
use controller::{
    Certificate, ControllerServer, Fresh, Limits, Reloader, Running, ServerSettings, TcpSettings,
};
use datapath::{AcceptLoss, Handover};
use manager::managed::Managed;
use manager::question::{Actor, Answer, Question};
use manager::service::Service;
use manager::settings::{ControllerConfig, DiskClassConfig, ManagerConfig, Serve, Settings};
use manager::store::Tidied;
use manager::view::CountersView;
use store::{Retention, SqliteStore};
use tracing::warn;
use units::Nanos;

pub use array::{ServedArray, Start, cache_settings};
pub use clock::ControllerClock;
pub use error::DaemonError;

/// The socket of a controller in its state directory.
pub const CONTROLLER_SOCKET: &str = "controller.sock";

/// Where it is written what becomes of disks that move, in a controller's state directory.
const LIBVIRT_MOVES_DIR: &str = "libvirt-moves";
const QEMU_MOVES_DIR: &str = "qemu-moves";
/// The store in a controller's state directory.
pub const STORE_FILE: &str = "terrace.db";

/// Time between two rounds of rolling up and forgetting, while there is more to do and when there is not.
const TIDY_MORE: Duration = Duration::from_secs(1);
const TIDY: Duration = Duration::from_secs(60);

/// A process that was taken over from lets go of the store within this time.
const LET_GO: Duration = Duration::from_secs(10);

/// Everything, running.
pub struct Daemon {
    // In the order in which they end: nobody is asked by a part that has ended before it.
    agent: Option<RunningAgent>,
    controller: Running,
    managed: Arc<Mutex<Managed<SqliteStore>>>,
    clock: ControllerClock,
    array: Option<ServedArray>,
    socket: PathBuf,
    tidy_at: Instant,
}

impl Daemon {
    /// Starts everything that a configuration names; its paths are taken from `base`.
    ///
    /// # Errors
    /// [`DaemonError`]: nothing runs then.
    pub fn start(settings: Settings, base: &Path) -> Result<Self, DaemonError> {
        Self::start_from(
            settings,
            base,
            None,
            Start::Accepting(&AcceptLoss::default()),
        )
    }

    /// Likewise, with what reads the configuration anew when somebody asks for that, and how the array comes to be served.
    ///
    /// # Errors
    /// [`DaemonError`]: nothing runs then.
    pub fn start_from(
        settings: Settings,
        base: &Path,
        read: Option<ReadSettings>,
        start: Start<'_>,
    ) -> Result<Self, DaemonError> {
        let words = settings.words.controller.clone();
        let array_words = settings.words.array.clone();
        let host = host_of(&settings.words, base)?;
        let lend = lend_of(&settings.words, base)?;
        let state = base.join(&words.state);
        let socket = words
            .socket
            .as_ref()
            .map_or_else(|| state.join(CONTROLLER_SOCKET), |s| base.join(s));
        let policy = settings.array_policy();
        let here = array_words.filter(|words| words.serve == Serve::Here);
        // What is taken over comes first: guests wait for it, and the store is let go of when the other process has ended.
        let mut array = None;
        if let (Some(here), Start::TakeOver) = (&here, start) {
            // What is wrong with the rest is told before that, as far as it can be seen while another process has it.
            if let Some(tcp) = tcp(&words, base, &state)? {
                tcp.check()?;
            }
            can_be_written(&state)?;
            if let Some(file) = words.record.as_ref().map(|f| base.join(f)) {
                can_be_written(file.parent().unwrap_or(base))?;
            }
            array = Some(ServedArray::start(here, base, start, &policy)?);
        }
        // The store first: two controllers on one store must not get any further than this.
        let retention = Retention {
            raw: words.raw,
            rolled: words.rolled,
            ..Retention::default()
        };
        let store = open_store(&state.join(STORE_FILE), retention, array.is_some())?;
        let unix_ms = clock::unix_ms();
        let mut managed = Managed::new(settings, store, unix_ms)?;
        if let Some(file) = &words.record {
            managed.record(recording::to_file(&base.join(file))?)?;
        }
        let clock = ControllerClock::starting_at(managed.time());
        let managed = Arc::new(Mutex::new(managed));
        if let (None, Some(here)) = (&array, &here) {
            array = Some(ServedArray::start(here, base, start, &policy)?);
        }
        let server = ServerSettings {
            socket: socket.clone(),
            tcp: tcp(&words, base, &state)?,
            limits: Limits::default(),
            reload: read.map(|read| reloader(read, base.into(), state.clone())),
        };
        let controller = ControllerServer::start(managed.clone(), clock.shared(), server)?;
        let agent = match host {
            None => None,
            Some((host, of)) => {
                let address = Address::Unix(socket.clone());
                let controller = Client::new(address, None, TlsTrust::Nothing)?;
                Some(RunningAgent::start(AgentSettings {
                    host,
                    of,
                    controller,
                    lend,
                })?)
            }
        };
        if let Some(array) = &array {
            array.started();
        }
        Ok(Self {
            agent,
            controller,
            managed,
            clock,
            array,
            socket,
            tidy_at: Instant::now() + TIDY,
        })
    }

    /// To be called about ten times a second.
    ///
    /// # Errors
    /// A part that has ended unexpectedly: the daemon should end too.
    pub fn tick(&mut self) -> Result<(), DaemonError> {
        if let Some(array) = &mut self.array {
            if !array.tick() {
                return Err(DaemonError::Ended("a worker of the data path"));
            }
            // While the controller decides, the next time will do.
            if let Ok(managed) = self.managed.try_lock() {
                array.allow(&managed.settings().array_policy())?;
            }
        }
        if !self.controller.healthy() {
            return Err(DaemonError::Ended("the controller's server"));
        }
        if self.managed.is_poisoned() {
            return Err(DaemonError::Ended("the controller"));
        }
        if Instant::now() >= self.tidy_at {
            let mut managed = self.managed.lock().unwrap_or_else(PoisonError::into_inner);
            let tidied = managed.tidy(self.clock.now());
            if let Err(why) = &tidied {
                warn!(%why, "the store was not tidied");
            }
            let more = tidied == Ok(Tidied::Some);
            self.tidy_at = Instant::now() + if more { TIDY_MORE } else { TIDY };
        }
        Ok(())
    }

    /// Reads the configuration anew, as if `actor` had asked for it; what has changed.
    ///
    /// # Errors
    /// What is wrong, with file, line and key: then everything is as it was.
    pub fn reload(&self, actor: &str) -> Result<String, String> {
        self.controller.reload(actor)
    }

    /// Why the agent does not report, as long as it does not.
    pub fn agent_trouble(&self) -> Option<String> {
        self.agent.as_ref().and_then(RunningAgent::trouble)
    }

    /// Totals since it was started; none while the store fails.
    pub fn counters(&self) -> Option<CountersView> {
        let mut managed = self.managed.lock().unwrap_or_else(PoisonError::into_inner);
        let actor = Actor("daemon".into());
        match managed.ask(self.clock.now(), &actor, Question::Counters) {
            Ok(Answer::Counters(counters)) => Some(*counters),
            _ => None,
        }
    }

    /// The array that is served here.
    pub fn array(&self) -> Option<&ServedArray> {
        self.array.as_ref()
    }

    /// The controller's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The controller's server.
    pub fn controller(&self) -> &Running {
        &self.controller
    }

    /// Stops agent, controller and array in order, and calls `step` with the name of each step before it. Acknowledged writes are safe. A move
    /// under way continues at the next start. If another process has taken the array over, this touches nothing and returns that hand-over.
    ///
    /// # Errors
    /// The array does not stop in order, and its next start treats it as after a crash. All other parts have ended.
    pub fn stop(self, step: &dyn Fn(&'static str)) -> Result<Handover, DaemonError> {
        if let Some(array) = &self.array {
            step("handing the array over");
            let handover = array.ends();
            if handover != Handover::Ending {
                std::mem::forget(self);
                return Ok(handover);
            }
        }
        if let Some(agent) = self.agent {
            step("stopping the agent");
            agent.stop();
        }
        step("stopping the controller");
        self.controller.stop();
        step("stopping the array");
        let stopped = self.array.map_or(Ok(Handover::Ending), ServedArray::stop);
        step("closing the store");
        drop(self.managed);
        Ok(stopped?)
    }
}

/// Whether files can be made in a directory.
fn can_be_written(dir: &Path) -> Result<(), DaemonError> {
    let probe = dir.join(format!(".terrace-{}", std::process::id()));
    let made = std::fs::File::create(&probe).and_then(|_| std::fs::remove_file(&probe));
    made.map_err(|source| DaemonError::Directory {
        dir: dir.into(),
        source,
    })
}

/// Opens the store; one that the process that was taken over from has still is waited for, which is ending.
fn open_store(path: &Path, retention: Retention, taken: bool) -> Result<SqliteStore, DaemonError> {
    let until = Instant::now() + LET_GO;
    loop {
        match SqliteStore::open(path, retention) {
            Err(_) if taken && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return Ok(opened?),
        }
    }
}

/// The host that a configuration names, and what is looked after there.
fn host_of(words: &ManagerConfig, base: &Path) -> Result<Option<(String, HostOf)>, DaemonError> {
    if let Some(array) = &words.array {
        let control = base.join(&array.dir);
        let control = control.join(datapath::control::CONTROL_SOCKET);
        return Ok(Some((array.host.clone(), HostOf::Array(control))));
    }
    let tier = |t: &config::TierConfig| {
        let places = t.pools.iter().map(|p| p.parse());
        let places: Result<_, String> = places.collect();
        let key = "tiers.pools";
        Ok::<_, DaemonError>(TierOf {
            name: t.name.clone(),
            places: places.map_err(|why| DaemonError::Config { key, why })?,
            format: t.format.map(|f| f.name().into()),
            overwrite: t.overwrite,
        })
    };
    let settings = |classes: &[DiskClassConfig], moves: bool, keep_source: Nanos, dir: &str| {
        let classes = classes.iter();
        Ok::<_, DaemonError>(MachinesSettings {
            tiers: words.tiers.iter().map(tier).collect::<Result<_, _>>()?,
            classes: classes
                .map(|c| (c.disks.clone(), c.class.clone()))
                .collect(),
            moving: moves.then(|| Moving {
                dir: base.join(&words.controller.state).join(dir),
                keep_source: Duration::from_nanos(keep_source.0),
            }),
            latency_histograms: words.libvirt.as_ref().is_some_and(|l| l.latency_histograms),
        })
    };
    if let Some(of) = &words.libvirt {
        let settings = settings(&of.classes, of.moves, of.keep_source, LIBVIRT_MOVES_DIR)?;
        let host = HostOf::Libvirt(of.uri.clone(), settings);
        return Ok(Some((of.host.clone(), host)));
    }
    let Some(of) = &words.qemu else {
        return Ok(None);
    };
    let settings = settings(&of.classes, of.moves, of.keep_source, QEMU_MOVES_DIR)?;
    let key = "tiers.pools";
    check_tiers(&settings.tiers).map_err(|why| DaemonError::Config { key, why })?;
    let host = HostOf::Qemu(base.join(&of.sockets), settings);
    Ok(Some((of.host.clone(), host)))
}

/// What this host lends, by processes of this program.
fn lend_of(words: &ManagerConfig, base: &Path) -> Result<Option<LendSettings>, DaemonError> {
    let Some(lend) = &words.lend else {
        return Ok(None);
    };
    let program = std::env::current_exe().map_err(|e| DaemonError::Config {
        key: "lend",
        why: format!("needs this program, whose path is not known: {e}"),
    })?;
    let settings = LendSettings::new(lend, base, program);
    let settings = settings.map_err(|(key, why)| DaemonError::Config {
        key: "lend",
        why: format!("{key} {why}"),
    })?;
    Ok(Some(settings))
}

/// Reads a configuration anew, and says what is wrong with it: file, line, key.
pub type ReadSettings = Box<dyn Fn() -> Result<Settings, String> + Send + Sync>;

fn reloader(read: ReadSettings, base: PathBuf, state: PathBuf) -> Reloader {
    Reloader::new(move || {
        let settings = read()?;
        let tcp = tcp(&settings.words.controller, &base, &state).map_err(|e| e.to_string())?;
        Ok(Fresh { settings, tcp })
    })
}

/// Where people connect over TLS, if they may.
fn tcp(
    words: &ControllerConfig,
    base: &Path,
    state: &Path,
) -> Result<Option<TcpSettings>, DaemonError> {
    let Some(listen) = &words.listen else {
        return Ok(None);
    };
    let bad = |key: &'static str, why: String| DaemonError::Config { key, why };
    let listen = listen.parse().map_err(|_| {
        bad(
            "controller.listen",
            format!("{listen:?} is no address and port, such as \"127.0.0.1:9443\""),
        )
    })?;
    let tokens = words.tokens.as_ref().ok_or_else(|| {
        bad(
            "controller.tokens",
            "is needed to listen: whoever connects must say who they are".into(),
        )
    })?;
    let certificate = match (&words.certificate, &words.key) {
        (Some(certificate), Some(key)) => Certificate::Files {
            certificate: base.join(certificate),
            key: base.join(key),
        },
        (None, None) => Certificate::SelfSigned {
            directory: state.into(),
        },
        _ => {
            return Err(bad(
                "controller.certificate",
                "and controller.key belong together".into(),
            ));
        }
    };
    Ok(Some(TcpSettings {
        listen,
        tokens: base.join(tokens),
        certificate,
    }))
}
