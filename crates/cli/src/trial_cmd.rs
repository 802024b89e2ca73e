//! `terrace trial`: what would be moved on a host of virtual machines, without a file to write and without touching anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent::{FoundPlace, Libvirt, PlacesOf, Stays, TierOf};
use anyhow::{anyhow, bail};
use clap::Args;
use client::{Address, Client, TlsTrust};
use config::{ClassConfig, ModesConfig, PolicyConfig, Text, TierConfig};
use daemon::Daemon;
use manager::settings::{
    ControllerConfig, DiskClassConfig, LibvirtConfig, ManagerConfig, Settings,
};
use manager::view::{PlanView, TierView, VolumeView};
use model::{Mode, SloStatistic};
use report::live::{self, TopOrder};
use serde::Serialize;
use units::Nanos;

use crate::live::{Go, OutputArg, Stop, explained, message};

/// Windows of a trial, and windows of a monitor epoch.
const WINDOWS: u64 = 60;
const WINDOWS_OF_EPOCH: u64 = 4;
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
    /// The hypervisor, such as qemu:///system; virsh's own default if left out
    #[arg(value_name = "URI")]
    uri: Option<String>,
    /// How long to look, at least 1m
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = parse_time)]
    time: Nanos,
    /// The mean latency that disks are to have at most
    #[arg(long, value_name = "TIME", default_value = "2ms")]
    latency: Nanos,
    /// A tier and the pools or directories that it is made of, high end first; guessed if left out
    #[arg(long = "tier", id = "tiers", value_name = "NAME=POOL,…")]
    tiers: Vec<TierOf>,
    /// What a tier's devices are like, a device preset (`terrace sim presets`); guessed if left out
    #[arg(long = "preset", id = "presets", value_name = "TIER=PRESET", value_parser = parse_preset)]
    presets: Vec<(String, String)>,
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

/// A tier as it is taken to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Tier {
    name: String,
    preset: String,
    /// Names of its pools and directories, and where they are.
    places: Vec<(String, String)>,
}

/// What a trial found.
#[derive(Serialize)]
struct Found {
    seconds: u64,
    latency_us: f64,
    tiers: Vec<Tier>,
    #[serde(skip)]
    tiers_now: Vec<TierView>,
    volumes: Vec<VolumeView>,
    plan: Option<PlanView>,
    /// Disks that could not be moved as they are, with the reason.
    fixed: Vec<Stays>,
    /// Disks that were not looked at, with the reason.
    left_out: Vec<Stays>,
    /// What moves a disk by hand, by volume; none where it cannot be moved as it is.
    commands: BTreeMap<String, String>,
}

/// Runs `terrace trial`.
pub fn run(what: &Trial) -> anyhow::Result<ExitCode> {
    let stop = Stop::listen()?;
    let mut host = Libvirt::new(what.uri.clone());
    let places = host
        .find_places()
        .map_err(|why| anyhow!("libvirt: {why}"))?;
    let tiers = match what.tiers.is_empty() {
        true => guessed(&places),
        false => as_said(&what.tiers, &places)?,
    };
    if tiers.is_empty() {
        bail!(
            "no pool of files and no image of a running domain was found: name the tiers with --tier NAME=DIRECTORY"
        );
    }
    let tiers = with_presets(tiers, &what.presets)?;
    for tier in &tiers {
        for (name, path) in &tier.places {
            message(&format!(
                "tier {}: {name} ({path}), taken for {}",
                tier.name, tier.preset
            ));
        }
    }
    if tiers.iter().map(|t| t.places.len()).sum::<usize>() < 2 {
        message("there is one place for images only: nothing can be moved, loads are shown");
    }
    let dir = tempfile::Builder::new()
        .prefix("terrace-trial-")
        .tempdir()?;
    let settings = Settings::new(Text::default(), configuration(what, &tiers))?;
    let mut daemon = Daemon::start(settings, dir.path()).map_err(explained)?;
    let looked = look(what, &mut daemon, &stop);
    let found = looked.and_then(|seconds| found(what, &daemon, tiers, seconds));
    daemon.stop();
    what.output.print("terrace.trial/1", &found?, lines)?;
    Ok(ExitCode::SUCCESS)
}

/// Places by what their devices are taken to be, one for each device: more than one would count its space twice.
fn guessed(places: &[FoundPlace]) -> Vec<Tier> {
    let mut tiers: Vec<(u8, Tier)> = vec![];
    let mut devices = vec![];
    for place in places {
        if devices.contains(&place.device) {
            message(&format!(
                "{} is on the file system of another one, and not looked at: say --tier to have it otherwise",
                place.name
            ));
            continue;
        }
        devices.push(place.device);
        let at = (place.name.clone(), place.path.clone());
        match tiers.iter_mut().find(|(rank, _)| *rank == place.guess.rank) {
            Some((_, tier)) => tier.places.push(at),
            None => tiers.push((
                place.guess.rank,
                Tier {
                    name: place.guess.preset.into(),
                    preset: place.guess.preset.into(),
                    places: vec![at],
                },
            )),
        }
    }
    tiers.into_iter().map(|(_, tier)| tier).collect()
}

/// Tiers as they were given, with what the kernel says of their first place.
fn as_said(tiers: &[TierOf], places: &[FoundPlace]) -> anyhow::Result<Vec<Tier>> {
    let place = |of: &PlacesOf| {
        let found = match of {
            PlacesOf::Pool(name) => places.iter().find(|p| p.name == *name),
            PlacesOf::Directory(path) => places.iter().find(|p| p.path == *path),
            PlacesOf::Export(_) => {
                return Err(anyhow!("a trial looks at pools and directories only"));
            }
        };
        match (of, found) {
            (_, Some(p)) => Ok((p.name.clone(), p.path.clone(), Some(p.guess.preset))),
            (PlacesOf::Directory(path), None) => Ok((path.clone(), path.clone(), None)),
            (_, None) => {
                let known: Vec<&str> = places.iter().map(|p| p.name.as_str()).collect();
                Err(anyhow!(
                    "there is no active pool of files {:?}; there are: {}",
                    of.to_string(),
                    known.join(", ")
                ))
            }
        }
    };
    let tier = |t: &TierOf| {
        let places: Vec<_> = t.places.iter().map(place).collect::<anyhow::Result<_>>()?;
        let preset = places.iter().find_map(|p| p.2).unwrap_or("sata-ssd");
        Ok(Tier {
            name: t.name.clone(),
            preset: preset.into(),
            places: places
                .into_iter()
                .map(|(name, path, _)| (name, path))
                .collect(),
        })
    };
    tiers.iter().map(tier).collect()
}

fn with_presets(mut tiers: Vec<Tier>, presets: &[(String, String)]) -> anyhow::Result<Vec<Tier>> {
    for (name, preset) in presets {
        let Some(tier) = tiers.iter_mut().find(|t| t.name == *name) else {
            let known: Vec<&str> = tiers.iter().map(|t| t.name.as_str()).collect();
            bail!(
                "--preset: there is no tier {name:?}; there are: {}",
                known.join(", ")
            );
        };
        tier.preset.clone_from(preset);
    }
    Ok(tiers)
}

/// A live configuration in which nothing is ever done without somebody saying so, and there is nobody to say so.
fn configuration(what: &Trial, tiers: &[Tier]) -> ManagerConfig {
    const CLASS: &str = "all";
    let window_s = (what.time.0 / 1_000_000_000 / WINDOWS).max(1);
    let tier = |t: &Tier| TierConfig {
        name: t.name.clone(),
        preset: Some(t.preset.clone()),
        // By directory: what a pool's name is may change.
        pools: t.places.iter().map(|(_, path)| path.clone()).collect(),
        ..TierConfig::default()
    };
    ManagerConfig {
        controller: ControllerConfig {
            state: "state".into(),
            ..ControllerConfig::default()
        },
        libvirt: Some(LibvirtConfig {
            uri: what.uri.clone(),
            host: "trial".into(),
            moves: false,
            keep_source: manager::settings::KEEP_SOURCE,
            latency_histograms: false,
            classes: vec![DiskClassConfig {
                disks: "*".into(),
                class: CLASS.into(),
            }],
        }),
        window: Nanos::from_secs(window_s),
        tiers: tiers.iter().map(tier).collect(),
        classes: vec![ClassConfig {
            name: CLASS.into(),
            weight: 1.0,
            latency: Some(what.latency),
            statistic: SloStatistic::Mean,
        }],
        policy: PolicyConfig {
            monitor_epoch: Some(Nanos::from_secs(window_s * WINDOWS_OF_EPOCH)),
            migration_epoch: Some(Nanos::from_secs(window_s * WINDOWS)),
            hold: Some(1),
            cooldown: Some(Nanos::ZERO),
            margin: Some(0.0),
            ..PolicyConfig::default()
        },
        modes: ModesConfig {
            drain: Mode::Recommend,
            rules: Mode::Recommend,
            space: Mode::Recommend,
            latency: Mode::Recommend,
        },
        ..ManagerConfig::default()
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
    let mut told = began;
    message(&format!(
        "looking for {}; Ctrl-C ends it earlier",
        what.time
    ));
    while stop.sleep(TICK) == Go::On {
        daemon.tick().map_err(explained)?;
        if let Some(why) = daemon.agent_trouble().filter(|_| began.elapsed() > GRACE) {
            bail!("{why}");
        }
        let over = began.elapsed() >= time;
        if over && (client.plan(None).is_ok() || began.elapsed() > time + GRACE) {
            break;
        }
        if told.elapsed() >= TELL_EVERY && !over {
            told = Instant::now();
            let left = time.saturating_sub(began.elapsed()).as_secs();
            message(&format!("{left} s to go"));
        }
    }
    Ok(began.elapsed().as_secs())
}

fn found(what: &Trial, daemon: &Daemon, tiers: Vec<Tier>, seconds: u64) -> anyhow::Result<Found> {
    let mut client = client(daemon)?;
    let plan = client.plan(None).ok();
    let mut volumes = client.volumes()?;
    live::in_order(&mut volumes, TopOrder::Iops);
    // Once more, for what is not reported.
    let of: Vec<TierOf> = tiers.iter().map(as_directories).collect();
    let stays = Libvirt::new(what.uri.clone()).stays(&of);
    let (fixed, left_out) = stays.map_err(|why| anyhow!("libvirt: {why}"))?;
    let moves = plan.iter().flat_map(|p| &p.moves);
    let movable = moves.filter(|m| fixed.iter().all(|f| f.0 != m.volume));
    let commands = movable.filter_map(|m| Some((m.volume.clone(), m.command.clone()?)));
    Ok(Found {
        seconds,
        latency_us: what.latency.as_micros_f64(),
        commands: commands.collect(),
        tiers,
        tiers_now: client.tiers()?,
        volumes,
        plan,
        fixed,
        left_out,
    })
}

fn as_directories(tier: &Tier) -> TierOf {
    let places = tier
        .places
        .iter()
        .map(|(_, path)| PlacesOf::Directory(path.clone()));
    TierOf {
        name: tier.name.clone(),
        places: places.collect(),
        format: None,
        overwrite: false,
    }
}

fn lines(found: &Found) -> String {
    let mut out = live::top(&found.tiers_now, &found.volumes, None);
    let latency = Nanos::from_micros_f64(found.latency_us);
    let Some(plan) = &found.plan else {
        let _ = writeln!(
            out,
            "\nno plan was made in {} s: it takes the whole time",
            found.seconds
        );
        return out;
    };
    let mean = |v: &&VolumeView| v.load.as_ref().and_then(|l| l.mean_us);
    let misses = |v: &&VolumeView| mean(v).is_some_and(|us| us > found.latency_us);
    let missing = found.volumes.iter().filter(misses).count();
    let _ = writeln!(
        out,
        "\n{missing} of {} disks had a mean latency above {latency} in the last window\n",
        found.volumes.len()
    );
    out += &live::recommended(plan);
    let mut stays = |what: &str, of: &[Stays]| {
        if !of.is_empty() {
            let _ = writeln!(out, "\n{what}");
        }
        for (disk, why) in of {
            let _ = writeln!(
                out,
                "  {}: {}",
                report::printable(disk),
                report::printable(why)
            );
        }
    };
    stays("disks that no command below moves", &found.fixed);
    stays("disks that were not looked at", &found.left_out);
    if !found.commands.is_empty() {
        out += "\nby hand, with a look at what is there first\n";
        for command in found.commands.values() {
            let _ = writeln!(out, "  {}", report::printable(command));
        }
    }
    out + "\nnothing was changed; libvirt was asked for reading only\n"
}
