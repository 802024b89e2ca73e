//! `terrace serve` and `terrace agent`: the server processes of the live manager.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent::{
    AgentSettings, Host, LendSettings, MachinesSettings, MoveSettings, Nothing, Platform,
    RunningAgent, TierOf,
};
use anyhow::{Context, anyhow};
use clap::{ArgGroup, Args};
use client::Address;
use config::LendConfig;
use daemon::{Daemon, DaemonError, LoadedConfig, ServedArray, Start, TRIED_WITHIN};
use datapath::Pulse;
use manager::settings::{ManagerConfig, Serve as ServedBy, Settings};
use serde::Serialize;
use serde_json::json;
use units::Bytes;

use crate::asking::Credentials;
use crate::export_cmd::volumes;
use crate::file_kind::{FileKind, with_kind};
use crate::live::{
    AGENT_ENDS_WITHIN, AcceptLossArg, Go, HANGUP, OutputArg, SERVER_ENDS_WITHIN, SignalReceiver,
    Stop, absolute, explained, stopped_after,
};
use crate::logging::LogArg;
use crate::notify::Notifier;
use crate::take_over::{SUCCESSOR, Successor, TakeOverArg, end_if_handed, end_when_handed};

/// Interval of ticks of the daemon.
const TICK: Duration = Duration::from_millis(100);

/// `terrace serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file; `terrace config check` checks it without starting anything
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    accept: AcceptLossArg,
    #[command(flatten)]
    take_over: TakeOverArg,
    #[command(flatten)]
    log: LogArg,
    #[command(flatten)]
    output: OutputArg,
}

/// `terrace agent`
#[derive(Debug, Args)]
pub struct Agent {
    /// Directory of the array, which `terrace volume export` serves
    #[arg(
        long,
        value_name = "DIR",
        env = "TERRACE_ARRAY",
        default_value = "terrace-array"
    )]
    array: PathBuf,
    /// Manage the virtual machines of libvirt instead, at this URI or virsh's own default
    #[arg(long, value_name = "URI", num_args = 0..=1, conflicts_with = "array", requires = "tiers")]
    libvirt: Option<Option<String>>,
    /// Manage the virtual machines of plain QEMU instead, through the QMP sockets NAME.qmp or NAME.sock in this
    /// directory; no other program may use them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["array", "libvirt"], requires = "tiers")]
    qemu: Option<PathBuf>,
    /// Manage no volumes: the host only lends memory or flash
    #[arg(long, conflicts_with_all = ["array", "libvirt", "qemu"], requires = "lends")]
    lend_only: bool,
    /// With --libvirt or --qemu: a tier and its pools, directories or exports, fastest first
    #[arg(long = "tier", id = "tiers", value_name = "NAME=POOL,…")]
    tiers: Vec<TierOf>,
    /// With --libvirt or --qemu: service class of matching disks (DOMAIN:TARGET, * matches any text); the first match
    /// counts
    #[arg(long = "class", id = "classes", value_name = "DISKS=CLASS", value_parser = disks_of_class, requires = "tiers")]
    classes: Vec<(String, String)>,
    /// With --libvirt or --qemu: move disks, and keep the state of moves in this persistent directory; without it,
    /// moves are only recommended
    #[arg(long, value_name = "DIR", requires = "tiers")]
    moves: Option<PathBuf>,
    /// With --moves: time for which the old image of a moved disk is kept
    #[arg(long, value_name = "TIME", default_value = "1d", requires = "moves")]
    keep_source: units::Nanos,
    /// With --libvirt: enable latency histograms in QEMU for percentiles; libvirt then marks the domains as tainted (`custom-monitor`)
    #[arg(long, requires = "libvirt")]
    latency_histograms: bool,
    /// This host's name
    #[arg(long, value_name = "NAME")]
    host: String,
    /// The controller: https://HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", env = "TERRACE_CONTROLLER")]
    controller: Address,
    #[command(flatten)]
    credentials: Credentials,
    #[command(flatten)]
    lend: LendArgs,
    #[command(flatten)]
    log: LogArg,
}

/// What a host lends: `[lend]` of a configuration.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("lends").multiple(true))]
struct LendArgs {
    /// Amount of memory to lend to the caches of other hosts, on request of their controller
    #[arg(
        long = "lend",
        value_name = "SIZE",
        requires = "lend_listen",
        group = "lends"
    )]
    memory: Option<Bytes>,
    /// Amount of flash to lend, with or without memory
    #[arg(
        long = "lend-flash",
        value_name = "SIZE",
        requires_all = ["lend_listen", "flash_dir"],
        group = "lends"
    )]
    flash: Option<Bytes>,
    /// With --lend-flash: the directory for it; its files are unnamed and vanish with the process
    #[arg(long = "lend-flash-dir", value_name = "DIR", requires = "flash")]
    flash_dir: Option<String>,
    /// With --lend or --lend-flash: listening address for those hosts: tcp:ADDRESS at ports that the system chooses,
    /// tcp:ADDRESS:FIRST-LAST at ports of that range, or unix:DIR
    #[arg(
        long = "lend-listen",
        id = "lend_listen",
        value_name = "ADDRESS",
        requires = "lends"
    )]
    listen: Option<String>,
    /// With --lend-listen: require TLS with certificates (required beyond loopback): a directory with ca-cert.pem, server-cert.pem, server-key.pem and,
    /// if there is one, ca-crl.pem
    #[arg(long = "lend-tls-certificates", value_name = "DIR", requires = "lends")]
    tls_certificates: Option<String>,
    /// With --lend-tls-certificates: the directory of the client certificates on those hosts; the same path by default
    #[arg(
        long = "lend-client-certificates",
        value_name = "DIR",
        requires = "lends"
    )]
    client_certificates: Option<String>,
}

impl LendArgs {
    fn settings(self) -> anyhow::Result<Option<LendSettings>> {
        let Some(listen) = self.listen else {
            return Ok(None);
        };
        let words = LendConfig {
            memory: self.memory,
            flash: self.flash,
            flash_dir: self.flash_dir,
            listen,
            tls_certificates: self.tls_certificates,
            client_certificates: self.client_certificates,
        };
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let here = std::env::current_dir().context("cannot find the current directory")?;
        let settings = LendSettings::new(&words, &here, program);
        let option = |key| match key {
            "memory" => "--lend".into(),
            key => format!("--lend-{}", key.replace('_', "-")),
        };
        let settings = settings.map_err(|(key, why)| anyhow!("{}: {why}", option(key)))?;
        Ok(Some(settings))
    }
}

fn disks_of_class(text: &str) -> Result<(String, String), String> {
    let both = text
        .rsplit_once('=')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty());
    let both = both.ok_or_else(|| format!("{text:?} is not DISKS=CLASS, such as web:*=gold"))?;
    Ok((both.0.into(), both.1.into()))
}

/// Reads a live configuration. Its paths are relative to its directory.
pub fn read_config(path: &Path) -> anyhow::Result<Settings> {
    parse_config(path).map_err(|e| with_kind(path, &[FileKind::LiveConfiguration], e))
}

fn parse_config(path: &Path) -> anyhow::Result<Settings> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let (words, text) = config::read::<ManagerConfig>(&name, &text)?;
    agent::check_platforms(&words, &text)?;
    Ok(Settings::new(text, words)?)
}

/// Reads a live configuration. If only parts other than the array that is served here are invalid, returns the settings of the array
/// together with the error: volumes can be served without a controller, but not without an array.
fn configured(path: &Path) -> anyhow::Result<LoadedConfig> {
    match read_config(path) {
        Ok(settings) => Ok(LoadedConfig {
            settings,
            fault: None,
        }),
        Err(why) => {
            let settings = array_alone(path).ok_or_else(|| anyhow!("{why:#}"))?;
            let fault = Some(format!("{why:#}"));
            Ok(LoadedConfig { settings, fault })
        }
    }
}

fn array_alone(path: &Path) -> Option<Settings> {
    let text = fs::read_to_string(path).ok()?;
    let name = path.display().to_string();
    let kept: [&[&str]; 2] = [&["array", "classes"], &["array"]];
    let found = kept.into_iter().find_map(|keys| {
        let part = config::only(&text, keys)?;
        let (words, text) = config::read::<ManagerConfig>(&name, &part).ok()?;
        Settings::new(text, words).ok()
    })?;
    let array = found.words.array.as_ref()?;
    (array.serve == ServedBy::Here).then_some(found)
}

/// Runs `terrace serve`.
pub fn serve(what: &Serve) -> anyhow::Result<ExitCode> {
    // Before any thread starts: a thread that does not block the signals would end the process.
    let [hangup, wanted] = SignalReceiver::listen([HANGUP, SUCCESSOR])?;
    let mut successor = Successor::new(wanted);
    let stop = Stop::listen_within(SERVER_ENDS_WITHIN)?;
    let _logging = what.log.begin();
    let notifier = Notifier::from_env();
    notifier.status("opening the array and the controller");
    let configured = configured(&what.config)?;
    let path = absolute(&what.config)?;
    let base = path
        .parent()
        .ok_or_else(|| anyhow!("{} is not a file", path.display()))?;
    let file = what.config.clone();
    let read = Box::new(move || {
        read_config(&file).map_err(|e| DaemonError::Configuration(format!("{e:#}")))
    });
    let accept = what.accept.words();
    let start = match what.take_over.wanted() {
        true => Start::TakeOver,
        false => Start::Accepting(&accept),
    };
    let mut daemon = Daemon::start_from(configured, base, Some(read), start).map_err(explained)?;
    // A process without an array has no workers that can hang.
    let mut pulse = daemon.array().map(ServedArray::pulse);
    let watched = notifier.watch(move || pulse.as_mut().is_none_or(Pulse::beats));
    let notifier = watched.context("cannot watch the workers")?;
    if let Some(array) = daemon.array() {
        end_when_handed(array.lost(), &notifier).context("cannot wait for a successor")?;
    }
    let done = run(what, &mut daemon, &notifier, &stop, &hangup, &mut successor);
    notifier.stopping();
    let stopped = daemon.stop(&|step| stop.doing(step));
    let stopped = stopped.map(|handover| end_if_handed(&handover, &notifier));
    stopped_after(done.map(|()| ExitCode::SUCCESS), stopped)
}

/// Runs the daemon until a stop order. Reports the volumes to the service manager at once, and prints all addresses when they are known.
fn run(
    what: &Serve,
    daemon: &mut Daemon,
    notifier: &Notifier,
    stop: &Stop,
    hangup: &SignalReceiver,
    successor: &mut Successor,
) -> anyhow::Result<()> {
    let (began, mut is_announced) = (Instant::now(), false);
    let mut said = status(daemon);
    if daemon.array().is_some() {
        notifier.ready(&said);
    }
    stop.doing("watching the array and the controller");
    loop {
        daemon.tick().map_err(explained)?;
        let is_known = daemon.controller_was_tried() || began.elapsed() > TRIED_WITHIN;
        if is_known && !is_announced {
            if let Some(why) = daemon.another_controller() {
                return Err(anyhow!(why));
            }
            what.take_over.said(announce(daemon, &what.output))?;
            if daemon.array().is_none() {
                notifier.ready(&status(daemon));
            }
        }
        is_announced |= is_known;
        let now = status(daemon);
        if now != said {
            notifier.status(&now);
            said = now;
        }
        let pause = if is_announced { TICK } else { TICK / 10 };
        if stop.sleep(pause) == Go::Stop {
            return Ok(());
        }
        successor.look();
        if hangup.came() {
            daemon.reload();
        }
    }
}

/// Returns a short status of the daemon.
fn status(daemon: &Daemon) -> String {
    let faults = daemon.faults();
    let controller = match &faults[..] {
        _ if !daemon.controller_was_tried() => "the controller is starting".into(),
        [] => format!("controller at unix:{}", daemon.socket().display()),
        [fault, ..] => format!(
            "{} of the controller is not running: {}",
            fault.part, fault.what
        ),
    };
    match daemon.array() {
        None => controller,
        Some(array) => format!("serving {}; {controller}", volumes(array.volumes().len())),
    }
}

/// Addresses of volumes, controller and web page, for output.
#[derive(Serialize)]
struct Places {
    volumes: Vec<VolumePlace>,
    controller: String,
    page: Option<PagePlace>,
}

#[derive(Serialize)]
struct VolumePlace {
    volume: String,
    uri: String,
}

#[derive(Serialize)]
struct PagePlace {
    url: String,
    fingerprint: String,
}

/// Prints all addresses. The parent process may wait for the line `ready`, or for the line of JSON.
fn announce(daemon: &Daemon, output: &OutputArg) -> anyhow::Result<()> {
    let mut volumes = vec![];
    if let Some(array) = daemon.array() {
        let uris = array.uris().into_iter();
        volumes.extend(uris.map(|(volume, uri)| VolumePlace { volume, uri }));
    }
    let page = daemon.page().map(|(address, fingerprint)| PagePlace {
        url: format!("https://{address}/"),
        fingerprint: fingerprint.to_string(),
    });
    let places = Places {
        volumes,
        controller: format!("unix:{}", daemon.socket().display()),
        page,
    };
    output.print_next("terrace.serve/1", &places, lines)
}

fn lines(places: &Places) -> String {
    let volumes = places.volumes.iter();
    let mut out: String = volumes
        .map(|v| format!("volume {} {}\n", report::printable(&v.volume), v.uri))
        .collect();
    out += &format!("controller {}\n", places.controller);
    if let Some(page) = &places.page {
        out += &format!("page {} {}\n", page.url, page.fingerprint);
    }
    out + "ready\n"
}

fn reporting(problem: Option<&str>) -> String {
    problem.map_or_else(|| "reporting".into(), |why| format!("not reporting: {why}"))
}

/// Runs `terrace agent`.
pub fn agent(what: Agent) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen_within(AGENT_ENDS_WITHIN)?;
    let _logging = what.log.begin();
    let notifier = Notifier::from_env();
    let controller = what.credentials.client(what.controller)?;
    let moving = what.moves.map(|dir| MoveSettings {
        dir,
        keep_source: Duration::from_nanos(what.keep_source.0),
    });
    let settings = MachinesSettings {
        tiers: what.tiers,
        classes: what.classes,
        moving,
    };
    let machines = match (what.libvirt, what.qemu) {
        (Some(uri), _) => {
            let histograms = what.latency_histograms;
            Some((
                "libvirt",
                json!({ "uri": uri, "latency_histograms": histograms }),
            ))
        }
        (None, Some(sockets)) => Some(("qemu", json!({ "sockets": sockets }))),
        (None, None) => None,
    };
    let of: Box<dyn Host> = match machines {
        Some((name, table)) => {
            let platform = Platform::find(name).expect("it is registered");
            let here = std::env::current_dir().context("cannot find the current directory")?;
            let opened = platform.open(&table, &here, settings);
            opened.map_err(|(_, why)| anyhow!(why))?
        }
        None if what.lend_only => Box::new(Nothing),
        None if !settings.tiers.is_empty() => {
            return Err(anyhow!(
                "--tier is for hosts of virtual machines: add --libvirt or --qemu"
            ));
        }
        None => {
            let control = what.array.join(datapath::control::CONTROL_SOCKET);
            Box::new(agent::ServedArray::new(control))
        }
    };
    let running = RunningAgent::start(AgentSettings {
        host: what.host,
        of,
        controller,
        lend: what.lend.settings()?,
    })
    .map_err(explained)?;
    // The agent is ready even if it still waits for another process; its status names the process.
    let mut said = running.problem();
    notifier.ready(&reporting(said.as_deref()));
    stop.doing("watching the agent");
    while stop.sleep(TICK) == Go::On {
        let now = running.problem();
        if now != said {
            notifier.status(&reporting(now.as_deref()));
            said = now;
        }
    }
    notifier.stopping();
    stop.doing("stopping the agent");
    running.stop();
    Ok(ExitCode::SUCCESS)
}
