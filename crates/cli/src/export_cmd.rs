//! `terrace volume export`: the server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use datapath::desk::{Ask, Told, VolumeInfo};
use datapath::{Credentials, EngineLimits, IoChoice, Listen, ServerConfig, Serving};
use manager::settings::POLL_MAX;
use serde::Serialize;
use units::Nanos;

use crate::live::{
    AcceptLossArg, ArrayArg, Go, OutputArg, Stop, explained, message, unexpected, wrong_usage,
};
use crate::logging::LogArg;
use crate::notify::Notifier;

/// What tiers' volumes share is divided this often.
const TICK: Duration = Duration::from_millis(100);

/// Guests are let in when remote devices are connected, or after this time.
const REMOTES: Duration = Duration::from_secs(10);

/// `terrace volume export`
#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    array: ArrayArg,
    /// Volumes to serve; all of them, and those created later, if left out
    #[arg(value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Where guests connect: unix:PATH, tcp:127.0.0.1:PORT or, with TLS, tcp:ADDRESS:PORT; may be given several times (default:
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
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    output: OutputArg,
}

/// What guests who come by TCP have to prove who they are by.
#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Require TLS of guests by TCP, with certificates: a directory with ca-cert.pem, server-cert.pem, server-key.pem and, if there is
    /// one, ca-crl.pem
    #[arg(long, value_name = "DIR", conflicts_with = "tls_psk")]
    tls_certificates: Option<PathBuf>,
    /// Require TLS of guests by TCP, with pre-shared keys: a file of lines USER:HEX-KEY
    #[arg(long, value_name = "FILE")]
    tls_psk: Option<PathBuf>,
}

impl TlsArgs {
    /// What they named, if anything.
    ///
    /// # Errors
    /// The exit code, when guests are to come where they may not without TLS.
    pub fn credentials(&self, listens: &[Listen]) -> Result<Option<Credentials>, ExitCode> {
        let wrong = |why: String| wrong_usage(&why);
        let given = Credentials::of(self.tls_certificates.clone(), self.tls_psk.clone());
        let given = given.map_err(wrong)?;
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
    /// Threads that serve (default: one per processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// How to do I/O
    #[arg(long, value_enum, default_value = "auto")]
    io: IoArg,
    /// Connections at the same time; more are closed at once
    #[arg(long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// A worker with nothing to do looks for so long at most before it sleeps, where requests come one by one; off, or a time
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = poll)]
    poll: Nanos,
    /// A request that a device does not answer in this time fails
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Nanos,
    /// Do not measure from the start
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

impl ServingArgs {
    /// As the server wants it.
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
        }
    }
}

/// An export, and where guests find it.
#[derive(Serialize)]
struct Announced<'a> {
    export: &'a str,
    uri: String,
}

/// Says where an export is; whoever started this may wait for the line.
pub fn announce(output: &OutputArg, listen: &Listen, export: &str) -> anyhow::Result<()> {
    announce_uri(output, export, listen.uri(export))
}

fn announce_uri(output: &OutputArg, export: &str, uri: String) -> anyhow::Result<()> {
    output.print_next("terrace.export/1", &Announced { export, uri }, |a| {
        format!("{} {}\n", report::printable(a.export), a.uri)
    })
}

/// A directory that other programs, which run elsewhere, understand too.
fn reachable_dir(dir: PathBuf) -> PathBuf {
    std::path::absolute(&dir).unwrap_or(dir)
}

/// A socket's path that other programs, which run elsewhere, understand too; as it is if that is too long for a socket.
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
    let stop = Stop::listen()?;
    let _logging = export.serving.log.begin();
    let notifier = Notifier::from_env();
    notifier.status("opening the array");
    let config = export.serving.config();
    let accept = export.accept.words();
    let mut serving =
        Serving::start_accepting(&export.array.array, config, &accept).map_err(explained)?;
    let mut pulse = serving.pulse();
    let watched = notifier.watch(move || pulse.beats());
    let notifier = watched.context("cannot watch the workers")?;
    let ended = secure(&serving, tls);
    let ended = ended.and_then(|()| serve(export, &mut serving, &stop, &notifier));
    notifier.stopping();
    serving.stop();
    ended.map(|()| ExitCode::SUCCESS)
}

fn secure(serving: &Serving, tls: Option<Credentials>) -> anyhow::Result<()> {
    match tls {
        Some(credentials) => serving.require_tls(credentials).map_err(explained),
        None => Ok(()),
    }
}

fn serve(
    export: Export,
    serving: &mut Serving,
    stop: &Stop,
    notifier: &Notifier,
) -> anyhow::Result<()> {
    let names = chosen(serving, export.volumes)?;
    for name in &names {
        serving.desk().export(name).map_err(|why| anyhow!(why))?;
    }
    if let Err(away) = serving.wait_for_remotes(REMOTES) {
        tracing::warn!("{away}");
    }
    if let Some(dir) = export.vhost_user {
        let dir = reachable_dir(dir);
        serving.listen_vhost_user(&dir).map_err(explained)?;
        for name in &names {
            if let Some(path) = serving.vhost_user_socket(name) {
                let uri = format!("vhost-user:{}", path.display());
                announce_uri(&export.output, name, uri)?;
            }
        }
    }
    let listens = match export.listen {
        given if given.is_empty() => vec![Listen::Unix(default_socket(&export.array.array))],
        given => given,
    };
    let mut places = vec![];
    for listen in listens {
        let bound = serving.listen(&reachable(listen)).map_err(explained)?;
        for name in &names {
            announce(&export.output, &bound, name)?;
        }
        places.push(bound.to_string());
    }
    notifier.ready(&format!(
        "serving {} at {}",
        volumes(names.len()),
        places.join(", ")
    ));
    while stop.sleep(TICK) == Go::On {
        if !serving.tick() {
            bail!(
                "a worker has ended unexpectedly: what was answered is safe; start the export again"
            );
        }
    }
    Ok(())
}

/// So many volumes, in words.
pub fn volumes(n: usize) -> String {
    match n {
        1 => "1 volume".into(),
        n => format!("{n} volumes"),
    }
}

fn default_socket(array: &Path) -> PathBuf {
    array.join("nbd.sock")
}

/// Volumes that are to be served: those named, or all that are whole.
fn chosen(serving: &Serving, named: Vec<String>) -> anyhow::Result<Vec<String>> {
    if !named.is_empty() {
        return Ok(named);
    }
    let told = serving.desk().ask(Ask::Volumes);
    let Told::Volumes { volumes } = told.map_err(|why| anyhow!(why))? else {
        return Err(unexpected());
    };
    if volumes.is_empty() {
        message(
            "note: there is no volume yet: `terrace volume create` makes one, and it is served at once",
        );
    }
    let (whole, damaged): (Vec<VolumeInfo>, Vec<VolumeInfo>) =
        volumes.into_iter().partition(|v| v.healthy);
    for volume in damaged {
        message(&format!(
            "warning: volume {:?} is damaged and not served: `terrace volume check` says how",
            volume.name
        ));
    }
    Ok(whole.into_iter().map(|v| v.name).collect())
}
