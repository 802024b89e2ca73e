//! `terrace sim …`: run scenarios, compare strategies, keep a record that `terrace why` can read.

use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use planner::assign::Problem;
use planner::horizon::Horizon;
use runner::jobs::{self, Job};
use serde::Serialize;
use sim::counting::CountingResult;
use sim::optimum::{self, ExactHorizon, Loads, Optimality};
use sim::{RunOptions, RunResult, ScenarioFile};
use tables::RecordBatch;

use crate::cache_cmd;
use crate::counting;
use crate::file_kind::{FileKind, with_kind};
use crate::live::OutputArg;
use crate::record;
use crate::sim_lists;
use crate::sim_plan;
use crate::sim_replay;
use crate::ssd_cmd;
use crate::sweep_cmd;
use crate::table_files::ParquetArg;
use crate::trace_cmd::Output;
use runner::inputs::{self, LoadedScenario};
use runner::strategies::ByName;
use runner::sweeps::Strategies;

/// `terrace sim …`
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run scenarios under one strategy each
    Run {
        #[command(flatten)]
        what: SimArgs,
        /// Strategy instead of the scenario's own; FILE.py:CLASS for one in Python
        #[arg(long, value_name = "NAME")]
        strategy: Option<String>,
        /// Also write every simulated request to this file (.parquet, .csv or .csv.zst; one scenario only)
        #[arg(long, value_name = "FILE")]
        requests: Option<PathBuf>,
    },
    /// Run scenarios under several strategies and compare them
    Compare {
        #[command(flatten)]
        what: SimArgs,
        /// Strategies instead of the scenario's own list; FILE.py:CLASS for one in Python
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        strategies: Vec<String>,
        /// Do not search for the best possible decisions
        #[arg(long)]
        no_optimum: bool,
        /// Compute the exact optimum where the solver finishes (needs a build with --features exact)
        #[arg(long, conflicts_with = "no_optimum")]
        exact: bool,
    },
    /// Run a scenario with all combinations of values, strategies and seeds
    #[command(after_help = sweep_cmd::EXAMPLES)]
    Sweep(sweep_cmd::SweepArgs),
    /// Hits and misses of caches over traces, by policy and size
    #[command(after_help = cache_cmd::EXAMPLES)]
    Cache(cache_cmd::CacheArgs),
    /// Repeat the decision of a live controller from the output of `terrace export facts`
    Plan(sim_plan::PlanArgs),
    /// Replay the recording of a live controller, and compare the plans
    Replay(sim_replay::ReplayArgs),
    /// Run tenants on one simulated SSD: write amplification, collected pages by tenant, latencies, wear
    #[command(after_help = ssd_cmd::EXAMPLES)]
    Ssd(Box<ssd_cmd::SsdArgs>),
    /// List the strategies
    Strategies {
        #[command(flatten)]
        output: OutputArg,
    },
    /// List the device presets, the client presets and the SSDs
    Presets {
        #[command(flatten)]
        output: OutputArg,
    },
}

/// What to run and where the results go.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// Scenario files
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Seed instead of the scenario's own
    #[arg(long)]
    seed: Option<u64>,
    /// Put results over time and all decisions into the JSON output too
    #[arg(long)]
    full: bool,
    /// Write a self-contained HTML page with charts (one scenario only)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    parquet: ParquetArg,
    /// Directory for the records of runs (input of `terrace why`)
    #[arg(long, value_name = "DIR", default_value = record::DEFAULT_DIR)]
    out: PathBuf,
    /// Keep no record
    #[arg(long)]
    no_record: bool,
}

/// All results of a command.
#[derive(Serialize)]
struct Results<'a> {
    schema: &'static str,
    runs: &'a [RunResult],
    /// By scenario, how far from the best possible everybody was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    optimality: Vec<Optimality>,
    /// Scenarios that were evaluated by counting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counted: Vec<CountingResult>,
}

/// Whether the best possible is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Best {
    Unknown,
    Bounded,
    Exact,
}

/// Runs `terrace sim …`.
pub fn run(command: SimCommand) -> anyhow::Result<ExitCode> {
    match command {
        SimCommand::Run {
            what,
            strategy,
            requests,
        } => simulate(&what, Best::Unknown, requests.as_deref(), |s| {
            vec![
                strategy
                    .clone()
                    .unwrap_or_else(|| s.scenario.strategy.clone()),
            ]
        }),
        SimCommand::Compare {
            what,
            strategies,
            no_optimum,
            exact,
        } => {
            let best = match (no_optimum, exact) {
                (true, _) => Best::Unknown,
                (false, false) => Best::Bounded,
                (false, true) => Best::Exact,
            };
            simulate(&what, best, None, |s| {
                if strategies.is_empty() {
                    s.scenario.compare.clone()
                } else {
                    strategies.clone()
                }
            })
        }
        SimCommand::Sweep(args) => sweep_cmd::run(&args),
        SimCommand::Cache(args) => cache_cmd::run(&args),
        SimCommand::Plan(args) => sim_plan::run(&args),
        SimCommand::Replay(args) => sim_replay::run(&args),
        SimCommand::Ssd(args) => ssd_cmd::run(&args),
        SimCommand::Strategies { output } => sim_lists::strategies(&output),
        SimCommand::Presets { output } => sim_lists::presets(&output),
    }
}

fn simulate(
    what: &SimArgs,
    best: Best,
    requests: Option<&Path>,
    strategies_of: impl Fn(&ScenarioFile) -> Vec<String>,
) -> anyhow::Result<ExitCode> {
    for (option, given) in [
        ("--report", what.report.is_some()),
        ("--requests", requests.is_some()),
    ] {
        if given && what.scenarios.len() > 1 {
            anyhow::bail!(
                "{option} needs exactly one scenario, not {}",
                what.scenarios.len()
            );
        }
    }
    // Better now than after the simulation.
    let page_dir = what.report.as_deref().and_then(Path::parent);
    if let Some(dir) = page_dir.filter(|d| !d.as_os_str().is_empty() && !d.is_dir()) {
        anyhow::bail!("--report: directory {} does not exist", dir.display());
    }
    if best == Best::Exact && !cfg!(feature = "exact") {
        anyhow::bail!("--exact needs a build with --features exact");
    }
    let mut all = Vec::new();
    let mut optimality = Vec::new();
    let mut counted = Vec::new();
    for path in &what.scenarios {
        let mut file = read_scenario(path)?;
        if let Some(missing) = missing_requirement(path, &file) {
            writeln!(io::stderr(), "{}: skipped: no {missing}", path.display())?;
            continue;
        }
        if let Some(seed) = what.seed {
            file.scenario.seed = seed;
        }
        let strategies = strategies_of(&file);
        if file.scenario.counting.is_some() {
            if what.report.is_some() {
                anyhow::bail!(
                    "--report: {} is evaluated by counting and has no page",
                    path.display()
                );
            }
            if requests.is_some() {
                anyhow::bail!(
                    "--requests: {} is evaluated by counting and has no simulated requests",
                    path.display()
                );
            }
            let result = counting::evaluate(path, &file, &strategies)?;
            if what.output == Output::Table {
                counting::print(&result)?;
            }
            counted.push(result);
            continue;
        }
        // Faults in names and parameters before any work is done.
        check_strategies(&file)?;
        let source = ByName::default();
        for name in &strategies {
            source.identity(&file, name)?;
        }
        let loaded = inputs::load(path, &file)?;
        let mut best = best;
        if best != Best::Unknown
            && let Some(why) = optimum::why_unknown(&loaded.model)
        {
            let of = path.display();
            let _ = writeln!(
                io::stderr(),
                "{of}: the best possible result is unknown: {why}"
            );
            best = Best::Unknown;
        }
        let (results, optimum) =
            run_scenario(&file, &loaded, &source, &strategies, best, requests)?;
        if !what.no_record {
            let dir = record::write(&what.out, &file, &results)?;
            let _ = writeln!(io::stderr(), "recorded in {}", dir.display());
        }
        if what.output == Output::Table {
            print_tables(&file, &results, optimum.as_ref())?;
        }
        if let Some(page) = &what.report {
            fs::write(page, report::page(&results, &file.scenario.name))
                .with_context(|| format!("cannot write {}", page.display()))?;
            let _ = writeln!(io::stderr(), "report written to {}", page.display());
        }
        if let Some(file) = requests {
            let _ = writeln!(io::stderr(), "requests written to {}", file.display());
        }
        all.extend(results);
        optimality.extend(optimum.map(|o| (file.scenario.name.clone(), o)));
    }
    what.parquet
        .write(|| tables_of(&all, &optimality, &counted))?;
    let mut out = io::stdout().lock();
    match what.output {
        Output::Table => {}
        Output::Json => {
            if !what.full {
                for r in &mut all {
                    (r.series, r.decisions) = (None, None);
                }
            }
            let results = Results {
                schema: "terrace.sim.results/1",
                runs: &all,
                optimality: optimality.into_iter().map(|(_, o)| o).collect(),
                counted,
            };
            serde_json::to_writer_pretty(&mut out, &results)?;
            writeln!(out)?;
        }
        Output::Csv => {
            if counted.is_empty() || !all.is_empty() {
                write!(out, "{}", report::csv(&all))?;
            }
            for result in &counted {
                write!(out, "{}", report::counting_csv(result))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the tables of all results by name. A table without rows is among them, so that it replaces that of an earlier run.
fn tables_of(
    runs: &[RunResult],
    optimality: &[(String, Optimality)],
    counted: &[CountingResult],
) -> Vec<(&'static str, RecordBatch)> {
    let mut all = tables::RUN_TABLES
        .map(|(name, of)| (name, of(runs)))
        .to_vec();
    all.push(("optimality", tables::optimality(optimality)));
    all.push(("counted", tables::counted(counted)));
    all
}

/// The strategies' runs, and how far they are from the best possible.
fn run_scenario(
    file: &ScenarioFile,
    loaded: &LoadedScenario,
    source: &ByName,
    strategies: &[String],
    best: Best,
    requests: Option<&Path>,
) -> anyhow::Result<(Vec<RunResult>, Option<Optimality>)> {
    let LoadedScenario { model, traces, .. } = loaded;
    let options = RunOptions {
        series: true,
        decisions: true,
        optimum: (best == Best::Exact).then_some(exact_assignment),
    };
    let jobs: Vec<Job<'_>> = strategies
        .iter()
        .map(|strategy| Job {
            file,
            model,
            strategy: strategy.clone(),
            strategies: source,
            traces,
            options,
            requests,
        })
        .collect();
    let results = jobs::run_all(&file.scenario.name, &jobs)?;
    if best == Best::Unknown {
        return Ok((results, None));
    }
    let tiers: Vec<_> = model.topology.tier_ids().collect();
    let loads = Loads::new(jobs::side_by_side(&tiers, |tier| {
        sim::solo_loads(model, *tier)
    }));
    let objective = optimum::objective(file)?;
    let exact = (best == Best::Exact).then_some(exact_horizon as ExactHorizon);
    let found = optimum::optimality(model, &objective, &loads, &results, exact);
    Ok((results, Some(found)))
}

#[cfg(feature = "exact")]
fn exact_assignment(problem: &Problem) -> Option<i64> {
    let found = exact::assignment(problem).ok()?;
    (found.gap <= EXACT_GAP).then_some(found.solution.value)
}

#[cfg(feature = "exact")]
fn exact_horizon(horizon: &Horizon) -> Option<(i64, i64)> {
    let found = exact::horizon(horizon).ok()?;
    let value = found.solution.value;
    let most = value as f64 + (value.abs() as f64) * found.gap;
    Some((value, most.ceil() as i64))
}

/// A solution with a larger gap is not called the optimum.
#[cfg(feature = "exact")]
const EXACT_GAP: f64 = 1e-4;

#[cfg(not(feature = "exact"))]
fn exact_assignment(_: &Problem) -> Option<i64> {
    None
}

#[cfg(not(feature = "exact"))]
fn exact_horizon(_: &Horizon) -> Option<(i64, i64)> {
    None
}

fn print_tables(
    file: &ScenarioFile,
    results: &[RunResult],
    optimum: Option<&Optimality>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let s = &file.scenario;
    writeln!(
        out,
        "scenario {}{}{}",
        s.name,
        if s.about.is_empty() { "" } else { ": " },
        s.about
    )?;
    writeln!(out)?;
    writeln!(out, "{}", report::summary(results))?;
    for (title, kind) in [
        ("by class", sim::GroupKind::Class),
        ("by tier", sim::GroupKind::Tier),
    ] {
        writeln!(out, "{title}")?;
        writeln!(out, "{}", report::by_group(results, kind))?;
    }
    if let Some(optimum) = optimum {
        writeln!(out, "{}", report::optimality(optimum))?;
    }
    if let Some(cache) = report::cache(results) {
        writeln!(out, "cache")?;
        writeln!(out, "{cache}")?;
    }
    if let Some(mirrors) = report::mirrors(results) {
        writeln!(out, "mirrored extents")?;
        writeln!(out, "{mirrors}")?;
    }
    if let Some(response) = report::response(results) {
        writeln!(out, "remedies for SLO violations")?;
        writeln!(out, "{response}")?;
    }
    if let Some(wear) = report::wear(results) {
        writeln!(out, "wear, devices with flash inside")?;
        writeln!(out, "{wear}")?;
    }
    for r in results.iter().filter(|r| !r.move_log.is_empty()) {
        writeln!(out, "moves of {}", r.manifest.strategy)?;
        writeln!(out, "{}", report::moves(r))?;
    }
    for r in results.iter().filter(|r| !r.events.is_empty()) {
        writeln!(out, "events under {}", r.manifest.strategy)?;
        writeln!(out, "{}", report::events(r))?;
    }
    Ok(())
}

/// Reads and checks a scenario file.
pub fn read_scenario(path: &Path) -> anyhow::Result<ScenarioFile> {
    parse_scenario(path).map_err(|e| with_kind(path, &[FileKind::Scenario], e))
}

fn parse_scenario(path: &Path) -> anyhow::Result<ScenarioFile> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(ScenarioFile::parse(&path.display().to_string(), &text)?)
}

/// The directory that the scenario is skipped without, if it is not there.
pub fn missing_requirement(path: &Path, file: &ScenarioFile) -> Option<String> {
    let needed = file.scenario.requires.as_ref()?;
    let from = path.parent().unwrap_or(Path::new("."));
    let full = from.join(needed);
    // As one would type it: without the detour over the scenario's directory.
    let mut shown = PathBuf::new();
    for part in full.components() {
        match part {
            Component::ParentDir if shown.file_name().is_some() => {
                shown.pop();
            }
            other => shown.push(other),
        }
    }
    (!full.is_dir()).then(|| shown.display().to_string())
}

/// Builds every strategy that the scenario names, and drops it again.
pub fn check_strategies(file: &ScenarioFile) -> anyhow::Result<()> {
    let s = &file.scenario;
    if s.counting.is_some() {
        return Ok(file.check_methods(&s.compare)?);
    }
    for name in s
        .compare
        .iter()
        .chain([&s.strategy])
        .chain(s.strategies.keys())
    {
        file.strategy(name)?;
    }
    Ok(())
}
