//! Violation of an objective: a database whose neighbour on the same disk is loud for a while, and the manager's
//! response.
//!
//! ```text
//!  orders  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   one request at a time, with an objective
//!  batch            ████▃▃▃▃▃▃▃▃▃▃▃▃▃                  sixteen at once; held from when that breaks it
//! ```
//!
//! Time is scaled down: windows of a second instead of ten, and five of six that miss are a violation instead of 43 of 44.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use algo::Rng;
use client::{Address, Client, TlsTrust};
use daemon::Daemon;
use datapath::control_server::{ControlRequest, NewDevice, NewSource};
use datapath::{Reach, add_device};
use manager::settings::{ManagerConfig, Settings};
use manager::view::{EventKind, ResponseView};
use model::DirectIo;
use serde::Serialize;
use units::Bytes;

use crate::array;
use crate::error::DemoError;
use crate::run::{DemoEvent, TICK, ready, token};

/// Volumes with their classes.
const VOLUMES: [(&str, Option<&str>); 2] = [("orders", Some("gold")), ("batch", None)];
const SIZE_MIB: u64 = 24;
const PAGE: u64 = 4096;
/// Disk with 177 requests per second.
const DISK: &str = "disk-15k";
const BATCH_DEPTH: u64 = 16;
const THINKS: Duration = Duration::from_millis(20);

/// Shares of the time between which the neighbour is loud.
const LOUD: (f64, f64) = (0.2, 0.7);

/// Seconds after an order until its effect: it starts in the second window.
const SETTLES_S: usize = 2;

const CONFIG: &str = r#"strategy = "noop"
window = "1s"
[controller]
state = "state"
listen = "127.0.0.1:0"
tokens = "tokens"
[array]
dir = "array"
host = "demo"
[[classes]]
name = "gold"
latency = "50ms"
statistic = "mean"
[response]
modes = { throttle = "auto" }
[response.workflow]
detect = { samples = 6, violating_min = 5, clear_below = 0.3 }
release = { samples = 5, cooldown = "30s" }
settle = "5s"
look_again = "5s"
patience = 0.1
"#;

/// Result of the demonstration.
#[derive(Debug, Clone, Serialize)]
pub struct ViolationResult {
    /// Length of the load.
    pub seconds: u64,
    /// Objective: mean latency in milliseconds.
    pub objective_ms: f64,
    /// Seconds between which the neighbour was loud.
    pub loud_s: (u64, u64),
    /// Second in which the neighbour was first throttled; `None` if it was not.
    pub held_s: Option<u64>,
    /// Second in which the throttle ended; `None` if it did not.
    pub let_go_s: Option<u64>,
    /// Mean latency of the database by second, in milliseconds, as its guest measured it; `None` without an answer.
    pub latency_ms: Vec<Option<f64>>,
    /// Responses of the manager, oldest first.
    pub responses: Vec<ResponseView>,
}

/// Stretch of the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ViolationStretch {
    pub name: &'static str,
    pub from_s: u64,
    pub to_s: u64,
    /// Mean of the means of its seconds; `None` without any.
    pub latency_ms: Option<f64>,
}

impl ViolationResult {
    /// Returns the stretches before the neighbour is loud, until it is throttled, while it is throttled, and
    /// afterwards.
    pub fn stretches(&self) -> Vec<ViolationStretch> {
        let (loud, quiet) = self.loud_s;
        let held = self.held_s.unwrap_or(quiet).min(quiet);
        let settled = (held + SETTLES_S as u64).min(quiet);
        let of = |name, from_s: u64, to_s: u64| {
            let all = self.latency_ms.iter().enumerate();
            let own = all.filter(|(s, _)| (from_s..to_s).contains(&(*s as u64)));
            let own: Vec<f64> = own.filter_map(|(_, ms)| *ms).collect();
            ViolationStretch {
                name,
                from_s,
                to_s,
                latency_ms: (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64),
            }
        };
        vec![
            of("the neighbour is quiet", 0, loud),
            of("it is loud, and nothing is done", loud, held),
            of("it is held", settled, quiet),
            of("it is quiet again", quiet + 1, self.seconds),
        ]
    }
}

/// Latencies by second: their sum in nanoseconds, and their number.
type Seconds = Arc<Mutex<Vec<(u64, u64)>>>;

struct Guests {
    over: Arc<AtomicBool>,
    loud: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Guests {
    fn start(
        uris: &[nbd::Uri],
        begin: Instant,
        seed: u64,
        seen: &Seconds,
    ) -> Result<Self, DemoError> {
        let mut guests = Self {
            over: Arc::default(),
            loud: Arc::default(),
            failed: Arc::default(),
            threads: vec![],
        };
        for number in 0..=BATCH_DEPTH {
            let is_batch = number > 0;
            let uri = uris[usize::from(is_batch)].clone();
            let (over, loud) = (guests.over.clone(), guests.loud.clone());
            let (failed, seen) = (guests.failed.clone(), seen.clone());
            let thread = std::thread::Builder::new().name(format!("guest-{number}"));
            let runs = move || {
                let mut rng = Rng::new(seed, number);
                let mut ask = || -> Result<(), datapath::ClientError> {
                    let mut client = datapath::Client::connect(&uri)?;
                    while !over.load(Ordering::Acquire) {
                        if is_batch && !loud.load(Ordering::Acquire) {
                            std::thread::sleep(THINKS);
                            continue;
                        }
                        let page = rng.below(SIZE_MIB * (1 << 20) / PAGE);
                        let sent = Instant::now();
                        client.read(page * PAGE, PAGE as u32)?;
                        if !is_batch {
                            let at_s = begin.elapsed().as_secs() as usize;
                            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                            if let Some(second) = seen.get_mut(at_s) {
                                second.0 += sent.elapsed().as_nanos() as u64;
                                second.1 += 1;
                            }
                            drop(seen);
                            std::thread::sleep(THINKS);
                        }
                    }
                    client.disconnect()
                };
                if ask().is_err() {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            };
            guests
                .threads
                .push(thread.spawn(runs).map_err(DemoError::Guests)?);
        }
        Ok(guests)
    }

    fn stop(self) -> Result<(), DemoError> {
        self.over.store(true, Ordering::Release);
        for thread in self.threads {
            let _ = thread.join();
        }
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            n => Err(DemoError::GuestErrors(n)),
        }
    }
}

fn make(dir: &Path) -> Result<(), DemoError> {
    let backing = dir.with_extension("disks");
    array::make_directory(&backing)?;
    let device = NewDevice {
        tier: "disks".into(),
        source: NewSource::Dir(backing),
        size: Some(Bytes::mib(4 * SIZE_MIB)),
        emulate: model::preset(DISK).map(|p| p.spec()),
        direct: DirectIo::Off,
        force: false,
        thin: true,
    };
    add_device(dir, Some(Bytes::mib(1)), device).map_err(DemoError::of_array)?;
    let reach = Reach::find(dir).map_err(DemoError::of_array)?;
    for (name, class) in VOLUMES {
        let create = ControlRequest::Create {
            volume: name.into(),
            size: Bytes::mib(SIZE_MIB),
            tier: "disks".into(),
            class: class.map(Into::into),
        };
        reach.ask(create).map_err(DemoError::of_array)?;
    }
    Ok(())
}

/// Runs the demonstration for a number of seconds. `go_on` is called ten times a second and returns false to stop it.
///
/// # Errors
/// [`DemoError`].
pub fn violation(
    seconds: u64,
    seed: u64,
    on: &mut dyn FnMut(DemoEvent<'_>),
    go_on: &dyn Fn() -> bool,
) -> Result<ViolationResult, DemoError> {
    on(DemoEvent::Preparing("an emulated disk with two volumes"));
    let dir = tempfile::Builder::new().prefix("terrace-demo-").tempdir();
    let dir = dir.map_err(|source| DemoError::File {
        path: std::env::temp_dir(),
        source,
    })?;
    make(&dir.path().join("array"))?;
    let secret = token(dir.path())?;
    let (words, text) = config::read::<ManagerConfig>("the demonstration", CONFIG)?;
    let mut daemon = Daemon::start(Settings::new(text, words)?, dir.path())?;
    let result = with(&mut daemon, (seconds, seed), &secret, on, go_on);
    let stopped = daemon.stop(&|_| ());
    let result = result?;
    stopped?;
    Ok(result)
}

fn with(
    daemon: &mut Daemon,
    (seconds, seed): (u64, u64),
    secret: &str,
    on: &mut dyn FnMut(DemoEvent<'_>),
    go_on: &dyn Fn() -> bool,
) -> Result<ViolationResult, DemoError> {
    let exports = daemon.array().expect("the configuration has one").uris();
    let mut uris: Vec<nbd::Uri> = vec![];
    for (volume, _) in VOLUMES {
        let found = exports.iter().find(|(name, _)| name == volume);
        let (_, uri) = found.ok_or(DemoError::NotServed(volume))?;
        uris.push(uri.parse()?);
    }
    for uri in &uris {
        array::fill(uri, SIZE_MIB)?;
    }
    let address = Address::Unix(daemon.socket().into());
    let mut client = Client::new(address, None, TlsTrust::Nothing)?;
    on(ready(daemon, secret));
    let seen: Seconds = Arc::new(Mutex::new(vec![(0, 0); seconds as usize]));
    let begin = Instant::now();
    let guests = Guests::start(&uris, begin, seed, &seen)?;
    let at = |share: f64| (share * seconds as f64) as u64;
    let loud_s = (at(LOUD.0), at(LOUD.1));
    let (mut held_s, mut let_go_s, mut said, mut after) = (None, None, None, None);
    let watched = loop {
        if !go_on() {
            break Err(DemoError::Stopped);
        }
        daemon.tick()?;
        let passed = begin.elapsed().as_secs();
        let loud = (loud_s.0..loud_s.1).contains(&passed);
        if guests.loud.swap(loud, Ordering::AcqRel) != loud {
            on(DemoEvent::Changed);
        }
        if said != Some(passed) {
            said = Some(passed);
            let status = client.status()?;
            on(DemoEvent::Second {
                passed,
                status: &status,
            });
            if status.held > 0 {
                held_s.get_or_insert(passed);
            } else if held_s.is_some() {
                let_go_s.get_or_insert(passed);
            }
            for event in client.events(after, Some(1000))? {
                after = Some(event.id);
                if event.kind == EventKind::Response {
                    on(DemoEvent::Event(&event));
                }
            }
        }
        if passed >= seconds {
            break Ok(());
        }
        std::thread::sleep(TICK);
    };
    let ended = guests.stop();
    watched?;
    ended?;
    let mut responses = client.responses(None)?;
    responses.reverse();
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let mean = |(sum, n): &(u64, u64)| (*n > 0).then(|| *sum as f64 / *n as f64 / 1e6);
    Ok(ViolationResult {
        seconds,
        objective_ms: 50.0,
        loud_s,
        held_s,
        let_go_s,
        latency_ms: seen.iter().map(mean).collect(),
        responses,
    })
}
