//! `terrace reproduce dynamite`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reproduce::dynamite::{
    Outcome, RecordedRow, RecordedRun, RecordedVolume, RunOf, Setup, Variant, VariantRun, document,
    recorded_volumes,
};

use serde_json::json;

use crate::{KeepArg, ResultsArg};

/// Directory of the repository's own recordings, relative to its root.
const OWN_TRACES: &str = "traces/captured";
/// Public recording: two hours of a production disk, in a directory next to the repository.
const PUBLIC_TRACE: &str = "../shared/traces/cloudphysics_sample/cloudPhysicsIO.vscsi.xz";
/// Largest number of requests that are read from a recording. It limits memory, because the requests of each volume are kept.
const REQUESTS_MAX: u64 = 20_000_000;

/// Arguments of `terrace reproduce dynamite`.
#[derive(Debug, Args)]
pub struct DynamiteArgs {
    /// First seed of loads and service times
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    seed: u64,
    /// Number of seeds; everything runs with each seed, and one seed gives no interval [default: 3, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: Option<u64>,
    /// Run only one seed, four variants up to the end of the peak, and the given recordings: a preview, not a result
    #[arg(long)]
    quick: bool,
    /// Recording whose volumes are also tested, each together with a random reader; repeatable [default: existing recordings in traces/captured, and ../shared/traces/cloudphysics_sample]
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Run only the recordings, not the case study
    #[arg(long, requires = "traces")]
    traces_only: bool,
    #[command(flatten)]
    keep: KeepArg,
    #[command(flatten)]
    results: ResultsArg,
}

/// Runs the command.
pub fn run(args: &DynamiteArgs) -> anyhow::Result<ExitCode> {
    args.results.check()?;
    let seeds = args.seeds.unwrap_or(if args.quick { 1 } else { 3 });
    let setup = Setup::new(args.seed, seeds, args.quick);
    let volumes = match args.quick && args.traces.is_empty() {
        true => Vec::new(),
        false => volumes(&args.traces)?,
    };
    let runs = match args.traces_only {
        true => Vec::new(),
        false => case_studies(&setup, &args.keep)?,
    };
    let recorded = recorded_rows(&setup, &volumes, &args.keep)?;
    let outcome = Outcome::new(env!("CARGO_PKG_VERSION"), setup, &runs, recorded);
    args.results.hand_over(&outcome, &document(&outcome))
}

fn case_studies(setup: &Setup, keep: &KeepArg) -> anyhow::Result<Vec<VariantRun>> {
    let identity = |run: &RunOf| json!(setup.identity(run));
    let first = setup.runs(false);
    let mut runs = keep.run("reproduce dynamite", &first, identity, |r| Ok(setup.run(r)))?;
    let ahead = setup.runs(true);
    let co_located = |seed: u64| {
        let is_co_located = |variant, of| variant == Variant::CoLocated && of == seed;
        let mut all = runs.iter();
        if let Some(run) = all.find(|r| is_co_located(r.variant, r.seed)) {
            return Ok(run.clone());
        }
        // A process that computes one cell has run nothing before.
        let lost = "the co-located variant was not run";
        let mut first = first.iter();
        let run = first.find(|r| is_co_located(r.variant, r.seed));
        keep.find(&identity(run.context(lost)?))?.context(lost)
    };
    let title = "reproduce dynamite, proactive";
    let told = keep.run(title, &ahead, identity, |r| {
        Ok(setup.run_ahead(r, &co_located(r.seed)?))
    })?;
    runs.extend(told);
    Ok(runs)
}

fn recorded_rows(
    setup: &Setup,
    volumes: &[RecordedVolume],
    keep: &KeepArg,
) -> anyhow::Result<Vec<RecordedRow>> {
    let with_each = |v| setup.seeds.iter().map(move |seed| (v, *seed));
    let all: Vec<(&RecordedVolume, u64)> = volumes.iter().flat_map(with_each).collect();
    let identity = |(volume, seed): &(&RecordedVolume, u64)| json!(volume.identity(*seed));
    let runs: Vec<RecordedRun> = keep.run(
        "reproduce dynamite, recordings",
        &all,
        identity,
        |(v, seed)| Ok(v.run(*seed)),
    )?;
    let of_each = volumes.iter().zip(runs.chunks(setup.seeds.len()));
    Ok(of_each.filter_map(|(v, runs)| v.row(runs)).collect())
}

/// Reads the volumes of the given recordings. Without any, reads the repository's own recordings and the public one.
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

/// Returns the repository's own recordings in order of their names, then the public one. Recordings that do not exist below the current
/// directory are left out.
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

/// Returns the name of a file up to its first dot.
fn name(file: &Path) -> String {
    let whole = file.file_name().unwrap_or_default().to_string_lossy();
    whole.split('.').next().unwrap_or_default().into()
}
