//! Run of the demonstration, from an empty directory to a table.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Address, Client, TlsTrust};
use daemon::Daemon;
use manager::settings::{ManagerConfig, Settings};
use manager::view::{EventView, JobView, OutcomeView, StatusView};
use units::Nanos;

use crate::array;
use crate::clients::{Guests, Times};
use crate::control::Controls;
use crate::error::DemoError;
use crate::loads::{CLASSES, LOADS};
use crate::tally::{ClassNumbers, Tally};

/// Interval of the daemon's ticks.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Time for the start of the guests' threads.
const HEAD_START: Duration = Duration::from_millis(500);

/// Number of rows in queries: more than a demonstration creates.
const ROWS: usize = 1000;

/// Number of migration epochs after the start, and after the change, from which placement is compared with the
/// objectives.
const ADAPTS_EPOCHS: u64 = 2;

/// Shortest and longest monitor epoch in seconds.
const MONITOR_S: (u64, u64) = (2, 20);

/// Settings of a demonstration.
#[derive(Debug, Clone)]
pub struct DemoSettings {
    /// Length of the load.
    pub seconds: u64,
    pub strategy: String,
    /// Seed of the guests.
    pub seed: u64,
}

/// Progress of a demonstration, for its observer.
#[derive(Debug)]
pub enum DemoEvent<'a> {
    /// A part is being prepared.
    Preparing(&'a str),
    /// The demonstration runs.
    Ready {
        page: String,
        /// SHA-256 of the page's self-signed certificate.
        fingerprint: String,
        /// Socket of the controller, for the CLI.
        socket: PathBuf,
    },
    /// Another second has passed.
    Second {
        /// Seconds since the begin of the load.
        passed: u64,
        /// Status of the manager.
        status: &'a StatusView,
    },
    /// The loads change now.
    Changed,
    /// An event of the manager.
    Event(&'a EventView),
}

/// Result of a demonstration.
#[derive(Debug, Clone)]
pub struct DemoResult {
    pub strategy: String,
    /// Length of the load.
    pub seconds: u64,
    /// Monitor and migration epoch.
    pub epochs: (Nanos, Nanos),
    /// Time after the start, and after the change, at which [`ClassNumbers::adapted`] begins.
    pub adapts: Nanos,
    /// Numbers by class, the most important first.
    pub classes: Vec<ClassNumbers>,
    /// Moves, in order.
    pub jobs: Vec<JobView>,
    /// Outcomes of moves with their predictions, in order.
    pub outcomes: Vec<OutcomeView>,
    /// Number of calibration sessions with results.
    pub calibrations: u64,
}

/// Prepared demonstration: an array with data in a temporary directory.
pub struct Demo {
    settings: DemoSettings,
    dir: tempfile::TempDir,
    epochs: (Nanos, Nanos),
}

/// Prepares, runs and ends a demonstration. `go_on` is called ten times a second and returns false to stop it.
///
/// # Errors
/// [`DemoError`].
pub fn run(
    settings: DemoSettings,
    on: &mut dyn FnMut(DemoEvent<'_>),
    go_on: &dyn Fn() -> bool,
) -> Result<DemoResult, DemoError> {
    let demo = Demo::prepare(settings, on)?;
    demo.run(on, go_on)
}

fn file(path: &Path) -> impl FnOnce(std::io::Error) -> DemoError + '_ {
    |source| DemoError::File {
        path: path.into(),
        source,
    }
}

/// Creates a random token for the page.
pub(crate) fn token(dir: &Path) -> Result<String, DemoError> {
    let mut random = [0; 24];
    let source = Path::new("/dev/urandom");
    let mut urandom = File::open(source).map_err(file(source))?;
    urandom.read_exact(&mut random).map_err(file(source))?;
    let secret: String = random.iter().map(|b| format!("{b:02x}")).collect();
    let path = dir.join("tokens");
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&path);
    let mut tokens = opened.map_err(file(&path))?;
    writeln!(tokens, "operate demo {secret}").map_err(file(&path))?;
    Ok(secret)
}

/// Returns the event of a running demonstration.
pub(crate) fn ready(daemon: &Daemon, secret: &str) -> DemoEvent<'static> {
    let page = daemon.page();
    let address = page.map(|(address, _)| address.to_string());
    let fingerprint = page.map(|(_, fingerprint)| fingerprint.to_string());
    DemoEvent::Ready {
        page: format!("https://{}/#token={secret}", address.unwrap_or_default()),
        fingerprint: fingerprint.unwrap_or_default(),
        socket: daemon.socket().into(),
    }
}

impl Demo {
    /// Creates the array and the configuration.
    ///
    /// # Errors
    /// [`DemoError`].
    pub fn prepare(
        settings: DemoSettings,
        on: &mut dyn FnMut(DemoEvent<'_>),
    ) -> Result<Self, DemoError> {
        on(DemoEvent::Preparing(
            "three emulated tiers and twelve volumes",
        ));
        let dir = tempfile::Builder::new()
            .prefix("terrace-demo-")
            .tempdir()
            .map_err(file(&std::env::temp_dir()))?;
        array::make(&dir.path().join("array"))?;
        let monitor = (settings.seconds / 36).clamp(MONITOR_S.0, MONITOR_S.1);
        let epochs = (Nanos::from_secs(monitor), Nanos::from_secs(3 * monitor));
        Ok(Self {
            settings,
            dir,
            epochs,
        })
    }

    /// Returns the configuration in the form of a file.
    fn config(&self) -> String {
        let mut text = format!(
            r#"strategy = "{}"
window = "1s"
[controller]
state = "state"
listen = "127.0.0.1:0"
tokens = "tokens"
[array]
dir = "array"
host = "demo"
[policy]
monitor_epoch = "{}"
migration_epoch = "{}"
hold = 1
cooldown = "{}"
margin = 0.1
copy_bandwidth = "96 MiB/s"
copy_share = 0.5
moves_per_epoch = 3
concurrent_moves_per_device = 2
[modes]
drain = "auto"
rules = "auto"
space = "auto"
latency = "auto"
[response]
modes = {{ throttle = "off" }}
[watch]
calibration_budget = 0.5
prediction_outcomes_min = 10
prediction_error_max = 1.0
[strategies.autotiering]
weight_space = 0.2
weight_migration = 0.05
[strategies.autotiering.calibration]
levels = 3
windows = 3
window = "500ms"
min_ios = 20
min_ios_low_rate = 8
window_max = "1500ms"
inject_max = "2ms"
"#,
            self.settings.strategy,
            self.epochs.0,
            self.epochs.1,
            Nanos(self.epochs.1.0 * 2),
        );
        for class in &CLASSES {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "[[classes]]\nname = \"{}\"\nweight = {:.1}\nlatency = \"{}ms\"\nstatistic = \"p99\"\n",
                class.name,
                class.weight,
                class.p99.as_millis()
            );
        }
        text
    }

    /// Runs the demonstration.
    ///
    /// # Errors
    /// [`DemoError`].
    pub fn run(
        self,
        on: &mut dyn FnMut(DemoEvent<'_>),
        go_on: &dyn Fn() -> bool,
    ) -> Result<DemoResult, DemoError> {
        let secret = token(self.dir.path())?;
        let (words, text) = config::read::<ManagerConfig>("the demonstration", &self.config())?;
        let settings = Settings::new(text, words)?;
        let mut daemon = Daemon::start(settings, self.dir.path())?;
        let controls = Controls::start(&self.dir.path().join("control"));
        let result = controls.and_then(|controls| {
            let result = self.with(&mut daemon, &controls, &secret, on, go_on);
            let stopped = controls.stop();
            let result = result?;
            stopped?;
            Ok(result)
        });
        let stopped = daemon.stop(&|_| ());
        let result = result?;
        stopped?;
        Ok(result)
    }

    fn with(
        &self,
        daemon: &mut Daemon,
        controls: &Controls,
        secret: &str,
        on: &mut dyn FnMut(DemoEvent<'_>),
        go_on: &dyn Fn() -> bool,
    ) -> Result<DemoResult, DemoError> {
        let array = daemon.array().expect("the configuration has one");
        let mut uris: Vec<nbd::Uri> = Vec::with_capacity(LOADS.len());
        for load in &LOADS {
            let found = array.uris().into_iter().find(|(name, _)| name == load.name);
            let (_, uri) = found.ok_or(DemoError::NotServed(load.name))?;
            uris.push(uri.parse()?);
        }
        on(DemoEvent::Preparing("data on all volumes"));
        fill(&uris, daemon)?;
        uris.extend_from_slice(controls.uris());
        let mut client = Client::new(
            Address::Unix(daemon.socket().into()),
            None,
            TlsTrust::Nothing,
        )?;
        on(ready(daemon, secret));
        let begin = Instant::now() + HEAD_START;
        let length = Duration::from_secs(self.settings.seconds);
        let times = Times {
            begin,
            change: begin + length / 2,
        };
        let adapts = Nanos(self.epochs.1.0 * ADAPTS_EPOCHS);
        let tally = Arc::new(Tally::new(length, Duration::from_nanos(adapts.0)));
        let guests =
            Guests::start(&uris, times, &tally, self.settings.seed).map_err(DemoError::Guests)?;
        let watched = self.watch(daemon, &mut client, times, on, go_on);
        guests.stop();
        watched?;
        let mut jobs = client.jobs(Some(ROWS))?;
        jobs.retain(|j| j.started_ns.is_some());
        jobs.sort_by_key(|j| (j.started_ns, j.job));
        let mut outcomes = client.outcomes(Some(ROWS))?;
        outcomes.sort_by_key(|o| (o.ended_ns, o.job));
        Ok(DemoResult {
            strategy: self.settings.strategy.clone(),
            seconds: self.settings.seconds,
            epochs: self.epochs,
            adapts,
            classes: tally.numbers(),
            jobs,
            outcomes,
            calibrations: daemon.counters().map_or(0, |c| c.calibrations),
        })
    }

    /// Ticks the daemon and reports progress until the end of the load.
    fn watch(
        &self,
        daemon: &mut Daemon,
        client: &mut Client,
        times: Times,
        on: &mut dyn FnMut(DemoEvent<'_>),
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), DemoError> {
        let (mut said, mut changed, mut after) = (None, false, None);
        loop {
            if !go_on() {
                return Err(DemoError::Stopped);
            }
            daemon.tick()?;
            let passed = times.begin.elapsed().as_secs();
            if said != Some(passed) {
                said = Some(passed);
                let status = client.status()?;
                on(DemoEvent::Second {
                    passed,
                    status: &status,
                });
                for event in client.events(after, Some(ROWS))? {
                    on(DemoEvent::Event(&event));
                    after = Some(event.id);
                }
            }
            if !changed && Instant::now() >= times.change {
                changed = true;
                on(DemoEvent::Changed);
            }
            if passed >= self.settings.seconds {
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
    }
}

/// Writes all volumes concurrently, because each waits for its own tier.
fn fill(uris: &[nbd::Uri], daemon: &mut Daemon) -> Result<(), DemoError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = LOADS
            .iter()
            .zip(uris)
            .map(|(load, uri)| scope.spawn(|| array::fill(uri, load.mib)))
            .collect();
        while threads.iter().any(|t| !t.is_finished()) {
            daemon.tick()?;
            std::thread::sleep(TICK);
        }
        for thread in threads {
            let dead = |_| Err(DemoError::refused("a thread that fills a volume has died"));
            thread.join().unwrap_or_else(dead)?;
        }
        Ok(())
    })
}
