//! `terrace sim sweep`: a scenario with all combinations of values, strategies and seeds.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use config::Axis;
use serde::Serialize;
use sim::sweep::{CellRow, DEFAULT_METRICS, Metric, Sweep, SweepError, SweepResult};

use crate::file_kind::{FileKind, with_kind};
use crate::live::message;
use crate::sim_cmd::{missing_requirement, read_scenario};
use crate::sweep_ray;
use crate::sweep_run::{self, CellMessages, Resume, SweepOutcome};
use crate::table_files::ParquetArg;
use runner::cells::Cells;
use runner::inputs::Inputs;
use runner::strategies::ByName;
use runner::sweeps::PreparedSweep;

/// Name and version of the layout of a line of `-o jsonl`.
const ROW_SCHEMA: &str = "terrace.sim.sweep.cell/1";

/// Shown below the options.
pub const EXAMPLES: &str = "\
Keys are the keys of the scenario file. Select elements of a list by number or name, or all by *:
  --set policy.migration_epoch=60s,2m,5m
  --set 'tiers[nvme].devices=1,2,4' --set 'clients[*].habits.outstanding=8,32'
  --set strategies.autotiering.aging=0.5,0.9 --strategies noop,autotiering --seeds 1..5

The same as a sweep file:
  scenario = \"table-v.toml\"          # from the file's directory
  strategies = [\"noop\", \"autotiering\"]
  seeds = \"1..5\"                     # or a list
  [grid]
  policy.migration_epoch = [\"60s\", \"2m\", \"5m\"]
  \"tiers[nvme].devices\" = [1, 2, 4]

Each result is saved in --out when its run ends. The same command again, or one with a larger grid,
runs only missing results.";

/// `terrace sim sweep`
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Scenario, or a sweep file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Values for a key of the scenario; repeatable [default: the sweep file's grid]
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = Axis::parse)]
    set: Vec<Axis>,
    /// Strategies; FILE.py:CLASS for one in Python [default: the sweep file's, or the scenario's own]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Seeds, such as 1..5 (five of them) or 1,7,9 [default: the sweep file's, or the scenario's own]
    #[arg(long, value_name = "SEEDS", value_parser = parse_seeds)]
    seeds: Option<SeedList>,
    /// Columns of each cell, such as iops, latency_read_p99_us or class[gold].slo_violation_s; an unknown name lists
    /// all [default: the sweep file's, or latency, rate, objectives and moves]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = Metric::parse)]
    metrics: Vec<Metric>,
    /// Directory for results; sweeps may share it, one at a time
    #[arg(long, value_name = "DIR", default_value = "terrace-sweep")]
    out: PathBuf,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: SweepOutput,
    #[command(flatten)]
    parquet: ParquetArg,
    /// Run everything again, even if the directory has its result
    #[arg(long)]
    fresh: bool,
    /// Run the cells on Ray: on this machine, or on the cluster at an address such as auto. Needs the Python package
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true)]
    ray: Option<Option<String>>,
    /// Print a line for each finished cell
    #[arg(short, long)]
    verbose: bool,
}

/// Seeds as an argument.
#[derive(Debug, Clone)]
struct SeedList(Vec<u64>);

fn parse_seeds(text: &str) -> Result<SeedList, SweepError> {
    sim::sweep::parse_seeds(text).map(SeedList)
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SweepOutput {
    /// For people; with several seeds, means over them
    Table,
    /// For programs: cells and means; the layout names its version
    Json,
    /// A line per cell
    Jsonl,
    /// A row per cell
    Csv,
}

/// A line of `-o jsonl`.
#[derive(Serialize)]
struct Row<'a> {
    schema: &'static str,
    #[serde(flatten)]
    cell: &'a CellRow,
}

/// Runs `terrace sim sweep`.
pub fn run(args: &SweepArgs) -> anyhow::Result<ExitCode> {
    let asked = SweepRequest::new(args)?;
    let file = read_scenario(&asked.scenario)?;
    if file.scenario.counting.is_some() {
        let why = "is evaluated by counting: sweep takes scenarios that are simulated";
        return Err(file.fault("counting", why).into());
    }
    if let Some(missing) = missing_requirement(&asked.scenario, &file) {
        message(&format!(
            "{}: skipped: no {missing}",
            asked.scenario.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let axes = asked.axes.clone();
    let sweep = Sweep::new(file, asked.axes, asked.strategies, asked.seeds)?;
    let strategies = ByName::default();
    let prepared = PreparedSweep::new(
        sweep,
        asked.scenario,
        asked.metrics,
        Inputs::default(),
        &strategies,
    )?;
    let cells = Cells::open(&args.out)?;
    let resume = if args.fresh {
        Resume::Ignore
    } else {
        Resume::Use
    };
    let tell = if args.verbose {
        CellMessages::Every
    } else {
        CellMessages::Faults
    };
    let ran = match &args.ray {
        None => sweep_run::run(
            &prepared,
            &strategies,
            &cells,
            resume,
            tell,
            &BTreeMap::new(),
        )?,
        Some(address) => {
            let address = address.as_deref();
            let how = (resume, tell);
            let on_ray = sweep_ray::run(&prepared, &axes, &args.out, how, address)?;
            let failed = &on_ray.failed;
            let ran = sweep_run::run(&prepared, &strategies, &cells, Resume::Use, tell, failed)?;
            SweepOutcome {
                kept: ran.kept.saturating_sub(on_ray.made),
                made: ran.made + on_ray.made,
                ..ran
            }
        }
    };
    let failed = ran.rows.iter().filter(|r| r.error.is_some()).count();
    message(&summary(&ran, failed, &args.out));
    let result = prepared.result(ran.rows);
    args.parquet.write(|| tables::sweep(&result).into())?;
    print(args.output, &result)?;
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// What the arguments and the sweep file come to.
struct SweepRequest {
    scenario: PathBuf,
    axes: Vec<Axis>,
    strategies: Vec<String>,
    seeds: Vec<u64>,
    metrics: Vec<Metric>,
}

impl SweepRequest {
    fn new(args: &SweepArgs) -> anyhow::Result<Self> {
        let path = &args.file;
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))
            .map_err(|e| with_kind(path, &[FileKind::Sweep, FileKind::Scenario], e))?;
        let mut asked = match config::root_keys(&text).iter().any(|k| k == "scenario") {
            true => Self::from_file(path, &text)?,
            false => Self {
                scenario: path.clone(),
                axes: vec![],
                strategies: vec![],
                seeds: vec![],
                metrics: vec![],
            },
        };
        for axis in &args.set {
            match asked.axes.iter_mut().find(|a| a.key == axis.key) {
                // The file's; what is given twice here is told like everything that is.
                Some(own) if args.set.iter().filter(|a| a.key == axis.key).count() == 1 => {
                    own.clone_from(axis);
                }
                _ => asked.axes.push(axis.clone()),
            }
        }
        if !args.strategies.is_empty() {
            asked.strategies.clone_from(&args.strategies);
        }
        if let Some(SeedList(seeds)) = &args.seeds {
            asked.seeds.clone_from(seeds);
        }
        if !args.metrics.is_empty() {
            asked.metrics.clone_from(&args.metrics);
        }
        if asked.metrics.is_empty() {
            let usual = DEFAULT_METRICS.iter().map(|m| Metric::parse(m));
            asked.metrics = usual.collect::<Result<_, _>>()?;
        }
        Ok(asked)
    }

    fn from_file(path: &Path, text: &str) -> anyhow::Result<Self> {
        let (words, axes, source) = sim::sweep::parse_sweep(&path.display().to_string(), text)?;
        let seeds = words.seeds.seeds();
        let metrics = words.metrics.iter().enumerate().map(|(i, name)| {
            let at = format!("metrics[{i}]");
            Metric::parse(name).map_err(|why| source.fault(&at, why))
        });
        Ok(Self {
            scenario: path
                .parent()
                .unwrap_or(Path::new("."))
                .join(&words.scenario),
            axes,
            seeds: seeds.map_err(|why| source.fault("seeds", why))?,
            metrics: metrics.collect::<Result<_, _>>()?,
            strategies: words.strategies,
        })
    }
}

fn summary(ran: &SweepOutcome, failed: usize, out: &Path) -> String {
    let shared = match ran.rows.len() - ran.kept - ran.made {
        0 => String::new(),
        n => format!(", {n} identical to others"),
    };
    let failed = match failed {
        0 => String::new(),
        n => format!(", {n} failed"),
    };
    format!(
        "{} {}: {} run, {} already available{shared}{failed}; results are in {}",
        ran.rows.len(),
        if ran.rows.len() == 1 { "cell" } else { "cells" },
        ran.made,
        ran.kept,
        out.display()
    )
}

fn print(output: SweepOutput, result: &SweepResult) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        SweepOutput::Table => write!(out, "{}", report::sweep(result))?,
        SweepOutput::Csv => write!(out, "{}", report::sweep_csv(result))?,
        SweepOutput::Json => {
            serde_json::to_writer_pretty(&mut out, result)?;
            writeln!(out)?;
        }
        SweepOutput::Jsonl => {
            for cell in &result.cells {
                let schema = ROW_SCHEMA;
                serde_json::to_writer(&mut out, &Row { schema, cell })?;
                writeln!(out)?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
