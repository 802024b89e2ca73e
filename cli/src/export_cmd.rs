//! `terrace volume export`: a server of an array without a controller.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use array::Health;
use cache::{PolicyKind, WriteMode};
use clap::{Args, ValueEnum};
use config::scenario::ArrayCacheConfig;
use daemon::cache_settings;
use datapath::{
    ArrayServer, Credentials, EngineLimits, IoChoice, Listen, ServerConfig, TakeOverConfig,
};
use manager::settings::POLL_MAX;
use serde::Serialize;
use units::{Bytes, Nanos};

use crate::live::{
    AcceptLossArg, ArrayArg, Go, OutputArg, SERVER_ENDS_WITHIN, SignalReceiver, Stop, explained,
    message, stopped_after, wrong_usage,
};
use crate::logging::LogArg;
use crate::notify::Notifier;
use crate::take_over::{SUCCESSOR, Successor, TakeOverArg, end_if_handed, end_when_handed};

/// Interval of ticks, in which the limits of tiers are divided between their volumes.
const TICK: Duration = Duration::from_millis(100);

/// Longest time to wait for connections to remote devices before guests can connect.
const REMOTES: Duration = Duration::from_secs(10);

/// `terrace volume export`
#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    array: ArrayArg,
    /// Volumes to serve; all of them, and those created later, if left out
    #[arg(value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Listening address for guests: unix:PATH, tcp:127.0.0.1:PORT or, with TLS, tcp:ADDRESS:PORT; may be given several times (default:
    /// unix:ARRAY/nbd.sock)
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Listen>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Let guests of this host connect by vhost-user too: at DIR/VOLUME.sock for each volume
    #[arg(long, value_name = "DIR")]
    vhost_user: Option<PathBuf>,
    #[command(flatten)]
    accept: AcceptLossArg,
    /// Serve the intact volumes of a damaged map, read-only
    #[arg(long, conflicts_with_all = ["accept", "vhost_user", "take_over"])]
    salvage: bool,
    #[command(flatten)]
    take_over: TakeOverArg,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    output: OutputArg,
}

/// What guests who come by TCP have to prove who they are by.
#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Require TLS of guests on TCP, with certificates: a directory with ca-cert.pem, server-cert.pem, server-key.pem
    /// and, if there is one, ca-crl.pem
    #[arg(long, value_name = "DIR", conflicts_with = "tls_psk")]
    tls_certificates: Option<PathBuf>,
    /// Require TLS of guests on TCP, with pre-shared keys: a file of lines USER:HEX-KEY
    #[arg(long, value_name = "FILE")]
    tls_psk: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the credentials, if any are given.
    ///
    /// # Errors
    /// The exit code, if a listening address requires TLS and no credentials are given.
    pub fn credentials(&self, listens: &[Listen]) -> Result<Option<Credentials>, ExitCode> {
        let wrong = |why: String| wrong_usage(&why);
        let given = Credentials::of(self.tls_certificates.clone(), self.tls_psk.clone());
        let given = given.map_err(|e| wrong(e.to_string()))?;
        if given.is_none() {
            for listen in listens {
                let allowed = listen.allowed_in_the_clear();
                allowed.map_err(|e| wrong(e.to_string()))?;
            }
        }
        Ok(given)
    }
}

/// How to serve.
#[derive(Debug, Args)]
pub struct ServingArgs {
    /// Worker threads (default: one per processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Method of I/O
    #[arg(long, value_enum, default_value = "auto")]
    io: IoArg,
    /// Maximum number of connections; further ones are closed at once
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Longest time that an idle worker polls before it sleeps, at queue depth 1; off, or a time
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = poll)]
    poll: Nanos,
    /// Size of a page cache in memory for the served volumes; no cache by default
    #[arg(long, value_name = "SIZE")]
    cache: Option<Bytes>,
    /// Size of a page of the cache, a power of two from 4 KiB to 256 KiB (default: 64 KiB)
    #[arg(long, value_name = "SIZE", requires = "cache")]
    cache_page: Option<Bytes>,
    /// Cache policy (default: lru): any of `terrace sim cache` except two-q, arc, lirs, s3-fifo and w-tinylfu
    #[arg(long, value_name = "POLICY", requires = "cache")]
    cache_policy: Option<PolicyKind>,
    /// Treatment of writes in the cache: write-through (default) or write-around
    #[arg(long, value_name = "HOW", requires = "cache", value_parser = cache_writes)]
    cache_writes: Option<WriteMode>,
    /// Time after which a request without reply from its device fails
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Nanos,
    /// Start without measurements
    #[arg(long)]
    no_measure: bool,
    #[command(flatten)]
    pub log: LogArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IoArg {
    /// io_uring where the kernel allows it, else threads
    Auto,
    /// io_uring or nothing
    IoUring,
    /// Threads
    Threads,
}

fn poll(text: &str) -> Result<Nanos, String> {
    if text == "off" {
        return Ok(Nanos::ZERO);
    }
    let time: Nanos = text.parse().map_err(|e| format!("{e}; or off"))?;
    match time <= POLL_MAX {
        true => Ok(time),
        false => Err(format!("at most {POLL_MAX}")),
    }
}

fn cache_writes(text: &str) -> Result<WriteMode, String> {
    match text {
        "write-through" => Ok(WriteMode::WriteThrough),
        "write-around" => Ok(WriteMode::WriteAround),
        _ => Err("write-through or write-around".into()),
    }
}

impl ServingArgs {
    /// Converts the arguments to the configuration of the server.
    pub fn config(&self) -> ServerConfig {
        let default = ServerConfig::default();
        ServerConfig {
            io: match self.io {
                IoArg::Auto => IoChoice::Auto,
                IoArg::IoUring => IoChoice::Ring,
                IoArg::Threads => IoChoice::Threads,
            },
            workers: self.workers.map_or(default.workers, usize::from),
            poll: Duration::from_nanos(self.poll.0),
            connections_max: self.max_connections as usize,
            limits: EngineLimits {
                timeout_ns: self.timeout.0,
                ..EngineLimits::default()
            },
            measured: !self.no_measure,
            cache: self.cache_words().as_ref().map(cache_settings),
            ..default
        }
    }

    /// Returns the configuration of the cache, if one is requested.
    fn cache_words(&self) -> Option<ArrayCacheConfig> {
        let words = ArrayCacheConfig::of(self.cache?);
        Some(ArrayCacheConfig {
            page: self.cache_page.unwrap_or(words.page),
            policy: self.cache_policy.unwrap_or(words.policy),
            writes: self.cache_writes.unwrap_or(words.writes),
            ..words
        })
    }

    /// Checks the arguments of the cache.
    ///
    /// # Errors
    /// The exit code, if they are invalid; the error is printed.
    pub fn check(&self) -> Result<(), ExitCode> {
        let fault = self.cache_words().and_then(|words| words.fault());
        fault.map_or(Ok(()), |(key, why)| {
            let flag = key
                .replace("array.cache.size", "array.cache")
                .replace("array.", "--");
            Err(wrong_usage(&format!("{}: {why}", flag.replace('.', "-"))))
        })
    }
}

/// Export with its URI, for output.
#[derive(Serialize)]
struct ExportUri<'a> {
    export: &'a str,
    uri: String,
}

/// Prints the address of an export. The parent process may wait for this line.
pub fn announce(output: &OutputArg, listen: &Listen, export: &str) -> anyhow::Result<()> {
    announce_uri(output, export, listen.uri(export))
}

fn announce_uri(output: &OutputArg, export: &str, uri: String) -> anyhow::Result<()> {
    output.print_next("terrace.export/1", &ExportUri { export, uri }, |a| {
        format!("{} {}\n", report::printable(a.export), a.uri)
    })
}

/// Returns the absolute path of a directory, for programs with another working directory.
fn reachable_dir(dir: PathBuf) -> PathBuf {
    std::path::absolute(&dir).unwrap_or(dir)
}

/// Makes the path of a socket absolute, for programs with another working directory. A path that would be too long for a socket is not
/// changed.
pub fn reachable(listen: Listen) -> Listen {
    match listen {
        Listen::Unix(path) => {
            let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
            let fits = absolute.as_os_str().len() < 108;
            Listen::Unix(if fits { absolute } else { path })
        }
        tcp => tcp,
    }
}

/// Runs `terrace volume export`.
pub fn run(export: Export) -> anyhow::Result<ExitCode> {
    let tls = match export.tls.credentials(&export.listen) {
        Ok(tls) => tls,
        Err(wrong) => return Ok(wrong),
    };
    // Before any thread starts: a thread that does not block the signal would end the process.
    let [wanted] = SignalReceiver::listen([SUCCESSOR])?;
    let mut successor = Successor::new(wanted);
    let stop = Stop::listen_within(SERVER_ENDS_WITHIN)?;
    let _logging = export.serving.log.begin();
    let notifier = Notifier::from_env();
    notifier.status("opening the array");
    if let Err(wrong) = export.serving.check() {
        return Ok(wrong);
    }
    let config = export.serving.config();
    let accept = export.accept.words();
    let dir = &export.array.array;
    let listens = export.listens();
    let serving = match export.take_over.wanted() {
        true => {
            let wanted = TakeOverConfig {
                listens: listens.clone(),
                tls,
                vhost_user: export.vhost_user.clone(),
                volumes: export.volumes.clone(),
            };
            ArrayServer::take_over(dir, config, wanted)
        }
        false => match export.salvage {
            true => ArrayServer::salvage(dir, config),
            false => ArrayServer::start_accepting(dir, config, &accept),
        }
        .and_then(|serving| {
            tls.map_or(Ok(()), |tls| serving.require_tls(tls))?;
            Ok(serving)
        }),
    };
    let mut serving = serving.map_err(explained)?;
    let mut pulse = serving.pulse();
    let watched = notifier.watch(move || pulse.beats());
    let notifier = watched.context("cannot watch the workers")?;
    end_when_handed(serving.lost(), &notifier).context("cannot wait for a successor")?;
    let ends = (&stop, &mut successor);
    let ended = serve(export, listens, &mut serving, ends, &notifier);
    notifier.stopping();
    stop.doing("stopping the array");
    let stopped = serving.stop();
    let stopped = stopped.map(|handover| end_if_handed(&handover, &notifier));
    stopped_after(ended.map(|()| ExitCode::SUCCESS), stopped)
}

impl Export {
    /// Returns the listening addresses for guests.
    fn listens(&self) -> Vec<Listen> {
        match self.listen.is_empty() {
            true => vec![reachable(Listen::Unix(default_socket(&self.array.array)))],
            false => self.listen.iter().cloned().map(reachable).collect(),
        }
    }
}

fn serve(
    export: Export,
    listens: Vec<Listen>,
    serving: &mut ArrayServer,
    (stop, successor): (&Stop, &mut Successor),
    notifier: &Notifier,
) -> anyhow::Result<()> {
    let names = chosen(serving, export.volumes)?;
    for name in &names {
        serving
            .control_server()
            .export(name)
            .map_err(|why| anyhow!(why))?;
    }
    // Guests that were taken over wait for this call.
    serving.let_in();
    serving.wait_for_the_other();
    if let Err(away) = serving.wait_for_remotes(REMOTES) {
        tracing::warn!("{away}");
    }
    if let Some(dir) = export.vhost_user {
        let dir = reachable_dir(dir);
        serving.listen_vhost_user(&dir).map_err(explained)?;
        for name in &names {
            if let Some(path) = serving.vhost_user_socket(name) {
                let uri = format!("vhost-user:{}", path.display());
                let said = announce_uri(&export.output, name, uri);
                export.take_over.said(said)?;
            }
        }
    }
    let mut places = vec![];
    for listen in listens {
        let bound = serving.listen(&listen).map_err(explained)?;
        for name in &names {
            let said = announce(&export.output, &bound, name);
            export.take_over.said(said)?;
        }
        places.push(bound.to_string());
    }
    serving.started();
    notifier.ready(&format!(
        "serving {} at {}",
        volumes(names.len()),
        places.join(", ")
    ));
    stop.doing("watching the array");
    while stop.sleep(TICK) == Go::On {
        successor.look();
        if !serving.tick() {
            bail!(
                "a worker has ended unexpectedly: acknowledged writes are safe; start the export again"
            );
        }
    }
    Ok(())
}

/// Formats a number of volumes.
pub fn volumes(n: usize) -> String {
    match n {
        1 => "1 volume".into(),
        n => format!("{n} volumes"),
    }
}

fn default_socket(array: &Path) -> PathBuf {
    array.join("nbd.sock")
}

/// Returns the volumes to serve: the named ones, else all intact ones.
fn chosen(serving: &ArrayServer, named: Vec<String>) -> anyhow::Result<Vec<String>> {
    if !named.is_empty() {
        return Ok(named);
    }
    let volumes = serving
        .control_server()
        .names()
        .map_err(|why| anyhow!(why))?;
    if volumes.is_empty() {
        message(
            "note: the array has no volume yet; `terrace volume create` creates one, and this server serves it at once",
        );
    }
    let (whole, damaged): (Vec<_>, Vec<_>) =
        volumes.into_iter().partition(|v| v.1 == Health::Whole);
    for (name, _) in damaged {
        message(&format!(
            "warning: volume {name:?} is damaged and not served: `terrace volume check` describes the damage"
        ));
    }
    Ok(whole.into_iter().map(|v| v.0).collect())
}
