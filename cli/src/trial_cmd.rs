//! `terrace trial`: moves that Terrace would recommend on a host of virtual machines, without a configuration and without a change.

pub mod configuration;
pub mod host;
mod tiers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent::{PlacesOf, TierOf};
use anyhow::{Context, bail};
use clap::Args;
use client::{Address, Client, TlsTrust};
use config::Text;
use daemon::Daemon;
use manager::settings::Settings;
use report::live::{self, TopOrder};
use report::trial::{DiskSeen, Trial as Found, TrialTier, gain, seen};
use units::Nanos;

use crate::live::{Go, OutputArg, Stop, explained, message};
use host::HostArgs;

const SHORTEST: Nanos = Nanos::from_secs(60);
/// Longest time to wait for a plan after the end of the observation.
const GRACE: Duration = Duration::from_secs(15);
/// Interval of ticks of the daemon.
const TICK: Duration = Duration::from_millis(100);
/// Interval of messages about the remaining time.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// `terrace trial`
#[derive(Debug, Args)]
pub struct Trial {
    #[command(flatten)]
    host: HostArgs,
    /// Length of the observation, at least 1m
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = parse_time)]
    time: Nanos,
    /// Write the findings as one HTML page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

fn parse_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(time) if time < SHORTEST => Err(format!("must be at least {SHORTEST}")),
        Ok(time) => Ok(time),
        Err(e) => Err(e.to_string()),
    }
}

/// Runs `terrace trial`.
pub fn run(what: &Trial) -> anyhow::Result<ExitCode> {
    // An unusable file is reported at once, not after the observation.
    check_report(what.report.as_deref())?;
    let stop = Stop::listen()?;
    let dir = tempfile::Builder::new()
        .prefix("terrace-trial-")
        .tempdir()?;
    let mut chosen = what.host.choose(&dir.path().join("sockets"))?;
    let words = configuration::of_trial(&chosen, what.time, what.host.latency);
    let settings = Settings::new(Text::default(), words)?;
    let mut daemon = Daemon::start(settings, dir.path()).map_err(explained)?;
    let looked = look(what, &mut daemon, &stop);
    let found = looked.and_then(|seconds| found(what, &daemon, &chosen.tiers, seconds));
    let stopped = daemon.stop(&|_| ());
    let mut found = found?;
    found.host.clone_from(&chosen.host.title);
    // Disks that are not volumes are not reported to the controller, so the survey lists them. The sessions with QEMU have ended by now.
    let of: Vec<TierOf> = chosen.tiers.iter().map(as_directories).collect();
    match chosen.host.survey.left_out(&of) {
        Ok(left_out) => found.left_out = left_out,
        Err(why) => message(&format!("disks that were not inspected are unknown: {why}")),
    }
    what.output.print("terrace.trial/1", &found, Found::text)?;
    if let Some(path) = &what.report {
        write(path, &found.page())?;
    }
    stopped.map_err(explained)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an error if the directory of the report does not exist.
fn check_report(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        bail!(
            "cannot write {}: directory {} does not exist",
            path.display(),
            parent.display()
        );
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn client(daemon: &Daemon) -> anyhow::Result<Client> {
    let address = Address::Unix(daemon.socket().to_owned());
    Ok(Client::new(address, None, TlsTrust::Nothing)?)
}

/// Observes for the given time, or until a stop order. Returns the length of the observation in seconds.
fn look(what: &Trial, daemon: &mut Daemon, stop: &Stop) -> anyhow::Result<u64> {
    let began = Instant::now();
    let time = Duration::from_nanos(what.time.0);
    let mut client = client(daemon)?;
    let mut reported = began;
    message(&format!(
        "observing for {}; Ctrl-C ends the observation earlier",
        what.time
    ));
    while stop.sleep(TICK) == Go::On {
        daemon.tick().map_err(explained)?;
        if let Some(why) = daemon.agent_problem().filter(|_| began.elapsed() > GRACE) {
            bail!("{why}");
        }
        let over = began.elapsed() >= time;
        if over && (client.plan(None).is_ok() || began.elapsed() > time + GRACE) {
            break;
        }
        if reported.elapsed() >= TELL_EVERY && !over {
            reported = Instant::now();
            let left = time.saturating_sub(began.elapsed()).as_secs();
            message(&format!("{left} s to go"));
        }
    }
    Ok(began.elapsed().as_secs())
}

fn found(
    what: &Trial,
    daemon: &Daemon,
    tiers: &[TrialTier],
    seconds: u64,
) -> anyhow::Result<Found> {
    let mut client = client(daemon)?;
    let plan = client.plan(None).ok();
    let mut volumes = client.volumes()?;
    live::in_order(&mut volumes, TopOrder::Iops);
    let latency_us = what.host.latency.as_micros_f64();
    let mut disks: Vec<DiskSeen> = vec![];
    for v in &volumes {
        let all = Nanos::from_secs(seconds + GRACE.as_secs());
        disks.push(seen(
            &v.name,
            &v.tier,
            &client.history(&v.name, all)?,
            latency_us,
        ));
    }
    let rate = |d: &DiskSeen| d.reads_per_s + d.writes_per_s;
    disks.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let gain = plan.as_ref().and_then(|p| gain(p, &disks, latency_us));
    let fixed = volumes.iter().filter_map(|v| {
        let bound = v.bound.as_ref().filter(|b| !b.by_hand)?;
        Some((v.name.clone(), bound.why.clone()))
    });
    let fixed = fixed.collect();
    let moves = plan.iter().flat_map(|p| &p.moves);
    let commands = moves
        .clone()
        .filter_map(|m| Some((m.volume.clone(), m.command.clone()?)));
    let no_commands = moves.filter_map(|m| Some((m.volume.clone(), m.no_command.clone()?)));
    Ok(Found {
        seconds,
        latency_us,
        host: String::new(),
        commands: commands.collect(),
        no_commands: no_commands.collect(),
        tiers: tiers.to_vec(),
        tiers_now: client.tiers()?,
        volumes,
        gain,
        disks,
        plan,
        fixed,
        left_out: vec![],
    })
}

fn as_directories(tier: &TrialTier) -> TierOf {
    let places = tier
        .places
        .iter()
        .map(|(_, path)| path.parse().unwrap_or(PlacesOf::Directory(path.clone())));
    TierOf {
        name: tier.name.clone(),
        places: places.collect(),
        format: None,
        overwrite: false,
        capacity: None,
    }
}
