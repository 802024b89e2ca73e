//! `terrace reproduce priority-lru`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use reproduce::priority_lru::{
    Intensity, Job, Load, Outcome, Recording, Role, Scale, Setup, Sources, document,
};
use serde_json::json;
use trace::ReadOptions;
use trace::measurements::{MEASUREMENT_SLOT, Measurements};

use crate::{KeepArg, ResultsArg};

/// Known recordings, as paths in a directory of traces, with their roles: first the repository's own, then public ones.
const RECORDINGS: [(&str, Role); 16] = [
    ("pg-data.csv.zst", Role::Transactions),
    ("sqlite.csv.zst", Role::Transactions),
    ("redis.csv.zst", Role::Transactions),
    ("rocksdb.csv.zst", Role::Files),
    ("src-tree.csv.zst", Role::Files),
    ("pg-wal.csv.zst", Role::Scans),
    ("backup.csv.zst", Role::Scans),
    (
        "cloudphysics_sample/cloudPhysicsIO.vscsi.xz",
        Role::Transactions,
    ),
    ("arc_lis/OLTP.lis.zst", Role::Transactions),
    (
        "ms_ssd_bench/ssd-postmark-aligned.trace.xz",
        Role::Transactions,
    ),
    ("ms_dtrs/DTRS1K.trace.xz", Role::Scans),
    (
        "hadoop6_blktrace/hadoop_issue.nodes2-3-6.csv.xz",
        Role::Scans,
    ),
    ("ms_ssd_bench/pcmark.xz", Role::Files),
    ("diskmon_pc/mayun.txt.xz", Role::Files),
    ("arc_lis/P2.lis.zst", Role::Files),
    ("arc_lis/P3.lis.zst", Role::Files),
];
/// File of measured intensities in the same directory.
const INTENSITIES: &str = "cloudphysics_features/vm_halfhour_4k.dev.csv.xz";
/// Number of half hours in a day. Shorter measurements are left out.
const DAY: usize = 48;

/// Arguments of `terrace reproduce priority-lru`.
#[derive(Debug, Args)]
pub struct PriorityLruArgs {
    /// Directory of the recordings for the customers: the repository's recordings, or a collection of public traces
    /// (cloudphysics_sample, arc_lis, …) with measured intensities (cloudphysics_features)
    #[arg(long, value_name = "DIR", default_value = "traces/captured")]
    traces: PathBuf,
    /// Number of hours to simulate; the first two are not measured
    #[arg(long, value_name = "N", default_value_t = 24)]
    hours: u32,
    /// Number of seeds; each seed generates its own volumes, classes, sizes and arrivals [default: 5, quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    seed: u64,
    /// Load of the customers: by the busiest half hour, or matched to the published response times of their classes
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [LoadArg::AsDrawn, LoadArg::Matched])]
    load: Vec<LoadArg>,
    /// Run only four hours of five minutes: a preview, not a result
    #[arg(long, conflicts_with = "hours")]
    quick: bool,
    #[command(flatten)]
    keep: KeepArg,
    #[command(flatten)]
    results: ResultsArg,
}

/// Method that sets the load of the customers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadArg {
    AsDrawn,
    Matched,
}

const FULL_SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 2;
const FULL_MATCH_RUNS: u32 = 9;
const QUICK: Scale = Scale {
    hours: 4,
    hour_s: 300,
    match_runs: 5,
};

/// Runs the command.
pub fn run(args: &PriorityLruArgs) -> anyhow::Result<ExitCode> {
    args.results.check()?;
    let full = Scale {
        hours: args.hours,
        hour_s: 3600,
        match_runs: FULL_MATCH_RUNS,
    };
    let (scale, seeds) = match args.quick {
        true => (QUICK, QUICK_SEEDS),
        false => (full, FULL_SEEDS),
    };
    let seeds = args.seed..args.seed + args.seeds.unwrap_or(seeds);
    let mut loads = Vec::new();
    for load in &args.load {
        let load = match load {
            LoadArg::AsDrawn => Load::AsDrawn,
            LoadArg::Matched => Load::Matched,
        };
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    let setup = Setup::new(sources(&args.traces)?, seeds.collect(), loads, scale)?;
    let title = "reproduce priority-lru";
    let identity = |job: &Job| json!([title, job]);
    let work = |job: &Job| Ok(job.run()?);
    let results = args.keep.run(title, &setup.jobs(), identity, work)?;
    let outcome = Outcome::new(env!("CARGO_PKG_VERSION"), setup, results);
    args.results.hand_over(&outcome, &document(&outcome))
}

/// Reads the known recordings and the intensities of a directory.
fn sources(dir: &Path) -> anyhow::Result<Sources> {
    let mut recordings = Vec::new();
    for (file, role) in RECORDINGS {
        let path = dir.join(file);
        if path.is_file() {
            recordings.push(recording(&path, file, role)?);
        }
    }
    anyhow::ensure!(
        !recordings.is_empty(),
        "--traces {}: no known recording found, such as {} or {}; the repository has recordings in traces/captured",
        dir.display(),
        RECORDINGS[0].0,
        RECORDINGS[7].0
    );
    let path = dir.join(INTENSITIES);
    let intensities = if path.is_file() {
        intensities(&path)?
    } else {
        vec![]
    };
    let names: Vec<&str> = recordings
        .iter()
        .map(|r: &Recording| r.name.as_str())
        .collect();
    let about = format!(
        "{}; intensities {}",
        names.join(", "),
        if intensities.is_empty() {
            "random".into()
        } else {
            format!("of {} measured disks", intensities.len())
        }
    );
    Ok(Sources {
        about,
        recordings,
        intensities,
    })
}

fn recording(path: &Path, name: &str, role: Role) -> anyhow::Result<Recording> {
    let trace = trace::load(path, &ReadOptions::default())?;
    let records = trace.records().iter();
    // The volumes of a recording share one address space: each volume has its own range of 2^44 bytes.
    let request = |r: &trace::Record| {
        let offset = (u64::from(r.volume()) << 44) + (r.offset_bytes & ((1 << 44) - 1));
        (r.op(), offset, u64::from(r.length_bytes))
    };
    Ok(Recording {
        name: name.into(),
        role,
        requests: records.map(request).collect(),
    })
}

fn intensities(path: &Path) -> anyhow::Result<Vec<Intensity>> {
    let measured = Measurements::read(path)?;
    let seconds = MEASUREMENT_SLOT.as_secs_f64();
    let volumes = measured.volumes.iter().map(|v| Intensity {
        name: v.name.clone(),
        rates: v
            .intervals
            .iter()
            .map(|i| ((i.read_pages + i.write_pages) as f64 / seconds) as f32)
            .collect(),
    });
    Ok(volumes.filter(|i| i.rates.len() >= DAY).collect())
}
