//! Process of `terrace serve`: an array's data path, its agent, and a controller with its store.
//!
//! ```text
//!  guests ══NBD══▶ data path ◀──control socket── agent ──unix socket, HTTP──▶ controller ─▶ store
//!                                                                               ▲
//!                                                        people: CLI, page ─────┘
//! ```
//!
//! The parts talk to each other as they would over a network: putting them on several hosts is a
//! matter of configuration. The data path comes first, and nothing else ends it: a controller that
//! cannot run, or that ends, is a problem of the array's status and is tried again (`control`).
//! `check` looks at a configuration with the functions that the parts are started by.

mod array;
mod check;
mod clock;
mod control;
mod error;
mod python;
mod recording;
#[cfg(test)]
mod tests;
mod words;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Fingerprint;
use datapath::{AcceptLoss, Handover};
use manager::settings::{ArrayConfig, Serve, Settings};
use manager::view::CountersView;
use tracing::warn;

pub use array::{ServedArray, Start, cache_settings};
pub use check::{Finding, check, check_platform};
pub use clock::ControllerClock;
pub use control::Fault;
pub use error::DaemonError;

use control::{Control, ControlSettings};
use words::Words;

/// The socket of a controller in its state directory.
pub const CONTROLLER_SOCKET: &str = "controller.sock";

/// The store in a controller's state directory.
pub const STORE_FILE: &str = "terrace.db";

/// A controller's parts are tried within this time, unless a disk hangs.
pub const TRIED_WITHIN: Duration = Duration::from_secs(30);

/// Everything, running.
pub struct Daemon {
    control: Control,
    array: Option<ServedArray>,
    /// True once the array knows that every part of this process has started.
    started: bool,
    socket: PathBuf,
    /// The faults of the controller that the array lists now.
    faults: Vec<Fault>,
    /// Why the array did not take the policy.
    not_allowed: Option<String>,
}

/// A configuration as far as it can be used.
pub struct LoadedConfig {
    /// The whole configuration; only its section on the array if another section is wrong.
    pub settings: Settings,
    /// Why there can be no controller.
    pub fault: Option<String>,
}

/// Function that reads the configuration again. Its error names file, line and key.
pub type ReadSettings = Box<dyn Fn() -> Result<Settings, DaemonError> + Send + Sync>;

impl Daemon {
    /// Starts everything that a configuration names, and waits for it; its paths are taken from
    /// `base`.
    ///
    /// # Errors
    /// [`DaemonError`], also of a part that does not run: nothing runs then.
    pub fn start(settings: Settings, base: &Path) -> Result<Self, DaemonError> {
        let configured = LoadedConfig {
            settings,
            fault: None,
        };
        let accept = AcceptLoss::default();
        let mut daemon = Self::start_from(configured, base, None, Start::Accepting(&accept))?;
        daemon.control.wait(TRIED_WITHIN);
        daemon.tell_array();
        match daemon.faults().first() {
            None => Ok(daemon),
            Some(fault) => {
                let why = fault.what.clone();
                if let Err(why) = daemon.stop(&|_| ()) {
                    warn!(%why, "the array did not stop cleanly");
                }
                Err(DaemonError::Part(why))
            }
        }
    }

    /// Starts to serve the array, then the other parts, without waiting for those. `read` reads the
    /// configuration again for a reload; `start` is the kind of start of the array.
    ///
    /// # Errors
    /// [`DaemonError`], when the array cannot be served: nothing runs then.
    pub fn start_from(
        configured: LoadedConfig,
        base: &Path,
        read: Option<ReadSettings>,
        start: Start<'_>,
    ) -> Result<Self, DaemonError> {
        let LoadedConfig { settings, fault } = configured;
        let socket = Words::of(&settings, base).socket;
        let here = served_here(&settings).cloned();
        let takes_over = matches!(start, Start::TakeOver);
        if takes_over {
            // The other process still serves the array, and continues if this process refuses.
            let wrong = || check::of_controller(&settings, base).into_iter().next();
            if let Some(why) = fault.clone().or_else(wrong) {
                return Err(DaemonError::Part(why));
            }
        }
        // Without a valid configuration, classes and bounds are unknown, and the array starts without them.
        let policy = fault.is_none().then(|| settings.array_policy());
        let array = match &here {
            Some(words) => Some(ServedArray::start(words, base, start, policy.as_ref())?),
            None => None,
        };
        let control = Control::start(ControlSettings {
            array: settings.words.array.clone(),
            settings: match fault {
                Some(why) => Err(DaemonError::Configuration(why)),
                None => Ok(settings),
            },
            base: base.into(),
            read: read.map(Arc::new),
            takes_over,
        })?;
        Ok(Self {
            control,
            array,
            started: false,
            socket,
            faults: vec![],
            not_allowed: None,
        })
    }

    /// Returns true once every part of the controller has been started at least once.
    pub fn controller_was_tried(&self) -> bool {
        self.control.was_tried()
    }

    /// Another controller that runs here, where nothing else is left to do.
    pub fn another_controller(&self) -> Option<String> {
        let other = self.control.in_use();
        other.filter(|_| self.array.is_none())
    }

    /// Parts of the controller that do not run.
    pub fn faults(&self) -> Vec<Fault> {
        self.control.faults()
    }

    /// To be called about ten times a second.
    ///
    /// # Errors
    /// The data path has ended unexpectedly: the daemon should end too.
    pub fn tick(&mut self) -> Result<(), DaemonError> {
        if let Some(array) = &mut self.array
            && !array.tick()
        {
            return Err(DaemonError::Ended("a worker of the data path"));
        }
        self.tell_array();
        Ok(())
    }

    /// Passes the faults of the controller and its policy to the array.
    fn tell_array(&mut self) {
        let Some(array) = &mut self.array else {
            return;
        };
        if !self.started && self.control.was_tried() {
            array.started();
            self.started = true;
        }
        let faults = self.control.faults();
        if faults != self.faults {
            array.report_controller(&faults);
            self.faults = faults;
        }
        if let Some(policy) = self.control.policy() {
            let refused = array.allow(&policy).err().map(|e| e.to_string());
            if let Some(why) = refused.as_ref().filter(|_| refused != self.not_allowed) {
                warn!(why, "the array rejected the policy");
            }
            self.not_allowed = refused;
        }
    }

    /// Requests a reload of the configuration. The log has its result.
    pub fn reload(&self) {
        self.control.reload();
    }

    /// Why the agent does not report, as long as it does not.
    pub fn agent_problem(&self) -> Option<String> {
        self.control.agent_problem()
    }

    /// Totals since it was started; none while there is no controller.
    pub fn counters(&self) -> Option<CountersView> {
        self.control.counters()
    }

    /// The array that is served here.
    pub fn array(&self) -> Option<&ServedArray> {
        self.array.as_ref()
    }

    /// The controller's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where people connect to the controller over TLS, and its certificate.
    pub fn page(&self) -> Option<(SocketAddr, Fingerprint)> {
        self.control.page()
    }

    /// Stops agent, controller and array in order, and calls `step` with the name of each step before it. Acknowledged writes are safe. A move
    /// under way continues at the next start. If another process has taken the array over, this touches nothing and returns that hand-over.
    ///
    /// # Errors
    /// The array does not stop in order, and its next start treats it as after a crash. All other parts have ended.
    pub fn stop(self, step: &dyn Fn(&'static str)) -> Result<Handover, DaemonError> {
        if let Some(array) = &self.array {
            step("handing over the array");
            let handover = array.ends();
            if handover != Handover::Ending {
                std::mem::forget(self);
                return Ok(handover);
            }
        }
        step("stopping the controller and its agent");
        self.control.stop();
        step("stopping the array");
        let stopped = self.array.map_or(Ok(Handover::Ending), ServedArray::stop);
        Ok(stopped?)
    }
}

/// The array that a configuration has this process serve.
fn served_here(settings: &Settings) -> Option<&ArrayConfig> {
    let array = settings.words.array.as_ref();
    array.filter(|words| words.serve == Serve::Here)
}
