//! `terrace sim …`: run scenarios, compare strategies, keep a record that `terrace why` can read.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Serialize;
use sim::{Manifest, Model, RunOptions, RunProgress, RunResult, ScenarioFile, TraceHash};
use trace::measurements::Measurements;
use trace::{LoadedTrace, ReadOptions};
use xxhash_rust::xxh3::xxh3_64;

use crate::progress::SimBar;
use crate::record;
use crate::trace_cmd::Output;

/// `terrace sim …`
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run scenarios under one strategy each
    Run {
        #[command(flatten)]
        what: What,
        /// Strategy instead of the scenario's own
        #[arg(long, value_name = "NAME")]
        strategy: Option<String>,
    },
    /// Run scenarios under several strategies and compare them
    Compare {
        #[command(flatten)]
        what: What,
        /// Strategies instead of the scenario's own list
        #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
        strategies: Vec<String>,
    },
    /// List the strategies
    Strategies,
    /// List the device presets and the client presets
    Presets,
}

/// What to run and where the results go.
#[derive(Debug, Args)]
pub struct What {
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
    /// Directory for the records of runs, which `terrace why` reads
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
}

/// Runs `terrace sim …`.
pub fn run(command: SimCommand) -> anyhow::Result<ExitCode> {
    match command {
        SimCommand::Run { what, strategy } => simulate(&what, |s| {
            vec![
                strategy
                    .clone()
                    .unwrap_or_else(|| s.scenario.strategy.clone()),
            ]
        }),
        SimCommand::Compare { what, strategies } => simulate(&what, |s| {
            if strategies.is_empty() {
                s.scenario.compare.clone()
            } else {
                strategies.clone()
            }
        }),
        SimCommand::Strategies => {
            let mut out = io::stdout().lock();
            for entry in planner::REGISTRY {
                writeln!(out, "{:<14}{}", entry.name, entry.summary)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        SimCommand::Presets => {
            let mut out = io::stdout().lock();
            writeln!(out, "devices:")?;
            for p in model::PRESETS {
                writeln!(out, "  {:<18}{}", p.name, p.source)?;
            }
            writeln!(out, "clients (paper 0, Table V):")?;
            for p in trace::CLIENT_PRESETS {
                writeln!(
                    out,
                    "  {:<18}{:<7} {} ({:.0} IOPS)",
                    p.name, p.load, p.stands_for, p.iops
                )?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn simulate(
    what: &What,
    strategies_of: impl Fn(&ScenarioFile) -> Vec<String>,
) -> anyhow::Result<ExitCode> {
    if what.report.is_some() && what.scenarios.len() > 1 {
        anyhow::bail!(
            "--report takes one scenario, {} were given",
            what.scenarios.len()
        );
    }
    // Better now than after the simulation.
    let page_dir = what.report.as_deref().and_then(Path::parent);
    if let Some(dir) = page_dir.filter(|d| !d.as_os_str().is_empty() && !d.is_dir()) {
        anyhow::bail!("--report: there is no directory {}", dir.display());
    }
    let mut all = Vec::new();
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
        // Faults in names and parameters before any work is done.
        check_strategies(&file)?;
        for name in &strategies {
            file.strategy(name)?;
        }
        let (model, traces) = load(path, &file)?;
        let results = run_all(&file, &model, &traces, &strategies)?;
        if !what.no_record {
            let dir = record::write(&what.out, &file, &results)?;
            let _ = writeln!(io::stderr(), "recorded in {}", dir.display());
        }
        if what.output == Output::Table {
            print_tables(&file, &results)?;
        }
        if let Some(page) = &what.report {
            fs::write(page, report::page(&results, &file.scenario.name))
                .with_context(|| format!("cannot write {}", page.display()))?;
            let _ = writeln!(io::stderr(), "report written to {}", page.display());
        }
        all.extend(results);
    }
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
            };
            serde_json::to_writer_pretty(&mut out, &results)?;
            writeln!(out)?;
        }
        Output::Csv => write!(out, "{}", report::csv(&all))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_tables(file: &ScenarioFile, results: &[RunResult]) -> io::Result<()> {
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
    for r in results.iter().filter(|r| !r.move_log.is_empty()) {
        writeln!(out, "moves of {}", r.manifest.strategy)?;
        writeln!(out, "{}", report::moves(r))?;
    }
    Ok(())
}

/// Reads and checks a scenario file.
pub fn read_scenario(path: &Path) -> anyhow::Result<ScenarioFile> {
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

/// Loads a scenario's traces and builds its model.
pub fn load(path: &Path, file: &ScenarioFile) -> anyhow::Result<(Model, Vec<TraceHash>)> {
    let base = path.parent().unwrap_or(Path::new("."));
    let mut file = file.clone();
    for i in 0..file.scenario.measurements.len() {
        let from = base.join(&file.scenario.measurements[i].file);
        let measurements = Measurements::read(&from)
            .map_err(|e| file.fault(&format!("measurements[{i}].file"), e.to_string()))?;
        file.generate(i, &measurements)?;
    }
    let file = &file;
    let mut loaded: BTreeMap<(PathBuf, Option<String>), Arc<LoadedTrace>> = BTreeMap::new();
    let (mut traces, mut hashes) = (Vec::new(), Vec::new());
    for (i, config) in file.scenario.traces.iter().enumerate() {
        let at = |e: String| file.fault(&format!("traces[{i}].file"), e);
        let key = (base.join(&config.file), config.format.clone());
        let trace = match loaded.get(&key) {
            Some(trace) => Arc::clone(trace),
            None => {
                let format = config
                    .format
                    .as_deref()
                    .map(str::parse)
                    .transpose()
                    .map_err(|e: String| file.fault(&format!("traces[{i}].format"), e))?;
                let options = ReadOptions {
                    format,
                    ..ReadOptions::default()
                };
                let trace = trace::load(&key.0, &options).map_err(|e| at(e.to_string()))?;
                if let Some(why) = &trace.format_assumed {
                    return Err(at(format!("{why}; name it: format = \"{}\"", trace.format)).into());
                }
                Arc::new(trace)
            }
        };
        loaded.insert(key, Arc::clone(&trace));
        hashes.push(TraceHash {
            file: config.file.clone(),
            xxh3: trace.content_hash.clone(),
            requests: trace.records().len() as u64,
        });
        traces.push(trace);
    }
    Ok((file.build(traces)?, hashes))
}

/// Builds every strategy that the scenario names, and drops it again.
pub fn check_strategies(file: &ScenarioFile) -> anyhow::Result<()> {
    let s = &file.scenario;
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

/// One thread per run: they share nothing but the model.
fn run_all(
    file: &ScenarioFile,
    model: &Model,
    traces: &[TraceHash],
    strategies: &[String],
) -> anyhow::Result<Vec<RunResult>> {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(strategies.len().max(1));
    let (send, progress) = mpsc::channel::<(usize, RunProgress)>();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let run_one =
        |i: usize, send: &mpsc::Sender<(usize, RunProgress)>| -> anyhow::Result<RunResult> {
            let name = &strategies[i];
            let strategy = file.strategy(name)?;
            let manifest = Manifest {
                version: env!("CARGO_PKG_VERSION").into(),
                scenario: file.scenario.name.clone(),
                scenario_xxh3: format!("{:016x}", xxh3_64(file.text.as_bytes())),
                traces: traces.to_vec(),
                strategy: name.clone(),
                strategy_config: file
                    .scenario
                    .strategies
                    .get(name)
                    .cloned()
                    .unwrap_or_default(),
                seed: model.seed,
                duration_s: model.duration.as_secs_f64(),
                warmup_s: model.warmup.as_secs_f64(),
            };
            let options = RunOptions {
                series: true,
                decisions: true,
            };
            let mut report = |p: RunProgress| {
                let _ = send.send((i, p)); // nobody listens any more: no reason to stop
            };
            Ok(sim::run(model, &*strategy, manifest, options, &mut report)?)
        };
    let mut results: Vec<Option<anyhow::Result<RunResult>>> =
        (0..strategies.len()).map(|_| None).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (send, next, run_one) = (send.clone(), &next, &run_one);
                scope.spawn(move || {
                    let mut done = Vec::new();
                    loop {
                        let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        if i >= strategies.len() {
                            return done;
                        }
                        done.push((i, run_one(i, &send)));
                    }
                })
            })
            .collect();
        drop(send);
        let mut bar = SimBar::new(&file.scenario.name, strategies.len());
        for (i, p) in progress {
            bar.update(i, &p);
        }
        drop(bar);
        for worker in workers {
            for (i, result) in worker.join().expect("a run does not panic") {
                results[i] = Some(result);
            }
        }
    });
    results
        .into_iter()
        .map(|r| r.expect("every run was started"))
        .collect()
}
