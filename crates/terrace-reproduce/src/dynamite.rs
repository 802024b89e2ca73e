//! `terrace reproduce dynamite`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use reproduce::dynamite::{
    Outcome, RecordedVolume, Setup, Study, Variant, document, recorded_volumes,
};
use runner::jobs;

use crate::{Output, check_report, hand_over};

/// Where the repository's own recordings are, from its root.
const OWN_TRACES: &str = "traces/captured";
/// A public one: two hours of a production disk, beside the repository.
const PUBLIC_TRACE: &str = "../shared/traces/cloudphysics_sample/cloudPhysicsIO.vscsi.xz";
/// Most requests of a recording that are taken. Protects memory: each volume's are kept.
const REQUESTS_MAX: u64 = 20_000_000;

/// What to run and where the results go.
#[derive(Debug, Args)]
pub struct DynamiteArgs {
    /// The first seed, of loads and service times
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    seed: u64,
    /// Seeds, from that one on; the whole is run with each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// A recording whose volumes are tried as well, each beside a random reader; repeatable [default: the recordings in traces/captured, and cloudphysics_sample of ../shared/traces, if they are there]
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Only these recordings, not the case study itself
    #[arg(long, requires = "traces")]
    traces_only: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Write a self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &DynamiteArgs) -> anyhow::Result<ExitCode> {
    check_report(args.report.as_deref())?;
    let setup = Setup::new(args.seed, args.seeds);
    let volumes = volumes(&args.traces)?;
    let started = Instant::now();
    let studies = if args.traces_only {
        Vec::new()
    } else {
        case_studies(&setup)?
    };
    let seeds = setup.seeds.clone();
    let recorded = jobs::side_by_side(&volumes, |v: &RecordedVolume| v.run(&seeds));
    let outcome = Outcome::new(env!("CARGO_PKG_VERSION"), setup, &studies, recorded);
    let _ = writeln!(
        io::stderr(),
        "{} seeds, {} variants each, {} recorded volumes, {:.1} s",
        seeds.len(),
        studies.first().map_or(0, |s| s.runs.len()),
        volumes.len(),
        started.elapsed().as_secs_f64()
    );
    hand_over(
        &outcome,
        document(&outcome),
        args.output,
        args.report.as_deref(),
    )
}

fn case_studies(setup: &Setup) -> anyhow::Result<Vec<Study>> {
    let with_each = |variants: &[Variant]| -> Vec<(usize, Variant)> {
        let seeds = 0..setup.seeds.len();
        seeds
            .flat_map(|s| variants.iter().map(move |v| (s, *v)))
            .collect()
    };
    let first = jobs::side_by_side(&with_each(&Variant::FIRST), |(s, v)| {
        setup.run(*v, setup.seeds[*s])
    });
    let mut studies: Vec<Study> = first
        .chunks(Variant::FIRST.len())
        .zip(&setup.seeds)
        .map(|(runs, seed)| Study {
            seed: *seed,
            runs: runs.to_vec(),
        })
        .collect();
    let co_located = studies[0]
        .runs
        .iter()
        .position(|r| r.variant == Variant::CoLocated)
        .context("the co-located variant was not run")?;
    let ahead = jobs::side_by_side(&with_each(&Variant::SECOND), |(s, v)| {
        setup.run_ahead(*v, setup.seeds[*s], &studies[*s].runs[co_located])
    });
    for (study, runs) in studies.iter_mut().zip(ahead.chunks(Variant::SECOND.len())) {
        study.runs.extend_from_slice(runs);
    }
    Ok(studies)
}

/// Those that were given, else the repository's own and a public one.
fn volumes(given: &[PathBuf]) -> anyhow::Result<Vec<RecordedVolume>> {
    let mut files = given.to_vec();
    if files.is_empty() {
        files = own_traces();
    }
    let mut volumes = Vec::new();
    for file in &files {
        let options = trace::ReadOptions {
            records_max: REQUESTS_MAX,
            ..trace::ReadOptions::default()
        };
        let loaded = trace::load(file, &options)
            .with_context(|| format!("cannot read the trace {}", file.display()))?;
        volumes.extend(recorded_volumes(&name(file), &loaded));
    }
    Ok(volumes)
}

/// In order of their names; none where the command runs elsewhere.
fn own_traces() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(OWN_TRACES) else {
        return Vec::new();
    };
    let files = entries.filter_map(|e| Some(e.ok()?.path()));
    let mut files: Vec<PathBuf> = files
        .filter(|p| p.to_string_lossy().ends_with(".csv.zst"))
        .collect();
    files.sort();
    let public = PathBuf::from(PUBLIC_TRACE);
    if public.is_file() {
        files.push(public);
    }
    files
}

/// A file's name without what comes after its first dot.
fn name(file: &Path) -> String {
    let whole = file.file_name().unwrap_or_default().to_string_lossy();
    whole.split('.').next().unwrap_or_default().into()
}
