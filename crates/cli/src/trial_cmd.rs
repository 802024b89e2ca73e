//! `terrace trial`: what would be moved on a host of virtual machines, without a file to write and without touching anything.

mod configuration;
mod tiers;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent::{Libvirt, PlacesOf, TierOf};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use client::{Address, Client, TlsTrust};
use config::Text;
use daemon::Daemon;
use manager::settings::Settings;
use report::live::{self, TopOrder};
use report::trial::{DiskSeen, Trial as Found, TrialTier, gain, seen};
use units::Nanos;

use crate::live::{Go, OutputArg, Stop, explained, message};
use tiers::{Reading, as_said, guessed, with_presets};

const SHORTEST: Nanos = Nanos::from_secs(60);
/// How long a plan may take to be there when the time is over.
const GRACE: Duration = Duration::from_secs(15);
/// The daemon is ticked this often.
const TICK: Duration = Duration::from_millis(100);
/// It is told this often how long it goes on.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// `terrace trial`
#[derive(Debug, Args)]
pub struct Trial {
    /// The hypervisor, such as qemu:///system; by default that of virsh
    #[arg(value_name = "URI")]
    uri: Option<String>,
    /// Length of the observation, at least 1m
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = parse_time)]
    time: Nanos,
    /// Objective: highest mean latency of the disks
    #[arg(long, value_name = "TIME", default_value = "2ms")]
    latency: Nanos,
    /// A tier and its pools or directories, fastest first; by default guessed
    #[arg(long = "tier", id = "tiers", value_name = "NAME=POOL,…")]
    tiers: Vec<TierOf>,
    /// Device preset of a tier (`terrace sim presets`); guessed by default
    #[arg(long = "preset", id = "presets", value_name = "TIER=PRESET", value_parser = parse_preset)]
    presets: Vec<(String, String)>,
    /// Measure each pool with at most 64 reads of 4 KiB in at most 2 s from its largest file
    #[arg(long)]
    probe: bool,
    /// Write the findings as one HTML page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a configuration for `terrace serve` with these tiers, which only recommends moves; FILE must not exist
    #[arg(long, value_name = "FILE")]
    write_config: Option<PathBuf>,
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

fn parse_preset(text: &str) -> Result<(String, String), String> {
    let both = text
        .split_once('=')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty());
    let (tier, preset) = both.ok_or_else(|| format!("{text:?} is not TIER=PRESET"))?;
    Ok((tier.into(), preset.into()))
}

/// Runs `terrace trial`.
pub fn run(what: &Trial) -> anyhow::Result<ExitCode> {
    // Nobody waits five minutes to be told that.
    check_files(what)?;
    let stop = Stop::listen()?;
    let mut host = Libvirt::new(what.uri.clone());
    let places = host
        .find_places()
        .map_err(|why| anyhow!("libvirt: {why}"))?;
    let reading = match what.probe {
        true => Reading::ALittle,
        false => Reading::Off,
    };
    let tiers = match what.tiers.is_empty() {
        true => guessed(&places, reading),
        false => as_said(&what.tiers, &places, reading)?,
    };
    if tiers.is_empty() {
        bail!(
            "no pool of files and no image of a running domain was found: name the tiers with --tier NAME=DIRECTORY"
        );
    }
    let tiers = with_presets(tiers, &what.presets)?;
    tell(&tiers);
    let dir = tempfile::Builder::new()
        .prefix("terrace-trial-")
        .tempdir()?;
    let words = configuration::of_trial(what.uri.as_ref(), what.time, what.latency, &tiers);
    let settings = Settings::new(Text::default(), words)?;
    let mut daemon = Daemon::start(settings, dir.path()).map_err(explained)?;
    let looked = look(what, &mut daemon, &stop);
    let found = looked.and_then(|seconds| found(what, &daemon, tiers, seconds));
    let stopped = daemon.stop(&|_| ());
    let found = found?;
    // First what cannot go wrong: it took minutes.
    what.output.print("terrace.trial/1", &found, Found::text)?;
    if let Some(path) = &what.write_config {
        write(path, &found.config, OpenOptions::new().create_new(true))?;
    }
    if let Some(path) = &what.report {
        let mut replace = OpenOptions::new();
        write(path, &found.page(), replace.create(true).truncate(true))?;
    }
    stopped.map_err(explained)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether what is to be written can be, as far as that is seen without writing anything.
fn check_files(what: &Trial) -> anyhow::Result<()> {
    for path in what.report.iter().chain(&what.write_config) {
        let mut parent = path.parent().unwrap_or(Path::new(""));
        if parent.as_os_str().is_empty() {
            parent = Path::new(".");
        }
        if !parent.is_dir() {
            bail!(
                "cannot write {}: directory {} does not exist",
                path.display(),
                parent.display()
            );
        }
    }
    if let Some(path) = what.write_config.as_ref().filter(|p| p.exists()) {
        bail!(
            "{} already exists: name another file with --write-config",
            path.display()
        );
    }
    Ok(())
}

fn write(path: &Path, text: &str, how: &mut OpenOptions) -> anyhow::Result<()> {
    let file = how.write(true).open(path);
    let written = file.and_then(|mut f| f.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// What the tiers are taken to be, while there is still time to say otherwise.
fn tell(tiers: &[TrialTier]) {
    for tier in tiers {
        for ((name, path), seen) in tier.places.iter().zip(&tier.found) {
            let device = seen.device.as_deref().unwrap_or("not inspected");
            let read = match (seen.read_us, &seen.not_read) {
                (Some(us), _) => format!(", {us:.0} µs a read"),
                (None, Some(why)) => format!(", not probed: {why}"),
                (None, None) => String::new(),
            };
            message(&format!(
                "tier {}: {name} ({path}; {device}{read}), assumed to be {}",
                tier.name, tier.preset
            ));
        }
    }
    if tiers.iter().map(|t| t.places.len()).sum::<usize>() < 2 {
        message(
            "only one pool or directory was found: no move is possible, the trial shows loads only",
        );
    }
}

fn client(daemon: &Daemon) -> anyhow::Result<Client> {
    let address = Address::Unix(daemon.socket().to_owned());
    Ok(Client::new(address, None, TlsTrust::Nothing)?)
}

/// Looks for as long as was said, or until told to stop; for how many seconds.
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
    tiers: Vec<TrialTier>,
    seconds: u64,
) -> anyhow::Result<Found> {
    let mut client = client(daemon)?;
    let plan = client.plan(None).ok();
    let mut volumes = client.volumes()?;
    live::in_order(&mut volumes, TopOrder::Iops);
    let latency_us = what.latency.as_micros_f64();
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
    // Once more, for what is not reported.
    let of: Vec<TierOf> = tiers.iter().map(as_directories).collect();
    let left_out = Libvirt::new(what.uri.clone()).left_out(&of);
    let left_out = left_out.map_err(|why| anyhow!("libvirt: {why}"))?;
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
    let file = what.write_config.as_ref();
    Ok(Found {
        seconds,
        latency_us,
        uri: what.uri.clone(),
        commands: commands.collect(),
        no_commands: no_commands.collect(),
        config: configuration::for_keeps(what.uri.as_ref(), what.latency, &tiers),
        config_file: file.map(|path| path.display().to_string()),
        tiers,
        tiers_now: client.tiers()?,
        volumes,
        gain,
        disks,
        plan,
        fixed,
        left_out,
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
