//! `terrace bench`: how good decisions are.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};

use crate::bench_run::{Asked, Suite, run_suite, save_suite};
use crate::live::message;
use crate::sweep_cells::Cells;

/// Seeds without `--seeds`: enough for an interval.
const SEEDS: &str = "1..5";

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Hold strategies against one another, and against the best plan in hindsight, over a suite of scenarios
    ///
    /// V is the seconds in which volumes miss their objective, each times the weight of its class. Ratios are against the
    /// rival with the lowest mean V of a scenario, with 95 % intervals (bootstrap over scenarios, then seeds). Results are
    /// kept in a directory and used again; what a run depends on is in their names, but not the program: after a change to a
    /// strategy name it with --again.
    Decisions(Box<DecisionsArgs>),
}

#[derive(Debug, Args)]
pub struct DecisionsArgs {
    /// Directory of scenarios; seeds and strategies are those of its suite.toml where they are not given
    #[arg(long, value_name = "DIR", default_value = "suites/decisions")]
    suite: PathBuf,
    /// Random arrays of these numbers instead of a suite, such as 1..20
    #[arg(long, value_name = "N,…", conflicts_with = "suite", value_parser = parse_seeds)]
    generated: Option<Seeds>,
    /// Only these scenarios of the suite
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Seeds, such as 1..20
    #[arg(long, value_name = "N,…", default_value = SEEDS, value_parser = parse_seeds)]
    seeds: Seeds,
    /// Strategies; the first is the one that the others are rivals of [default: those of suite.toml, or all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Hold `terrace` against variants of itself instead of rivals: each exchange rate at nothing, half and twice its value, each part left
    /// out; with names, only variants whose names begin so
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0.., conflicts_with_all = ["strategies", "html"])]
    ablate: Option<Vec<String>>,
    /// Candidates of the search in hindsight for each scenario and seed; 0 for none
    #[arg(long, value_name = "N", default_value_t = 60)]
    hindsight: u32,
    /// Directory for results
    #[arg(long, value_name = "DIR", default_value = "terrace-decisions")]
    out: PathBuf,
    /// Run these strategies again, also what is in the directory
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    again: Vec<String>,
    /// Write the scenarios as seeds draw them into this directory, and run nothing
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Also write a page with all of it
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: BenchOutput,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchOutput {
    /// For people
    Table,
    /// For programs; the layout names its version
    Json,
}

/// Seeds as an argument.
#[derive(Debug, Clone)]
struct Seeds(Vec<u64>);

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    sim::sweep::parse_seeds(text).map(Seeds)
}

/// Runs `terrace bench …`.
pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
    let BenchCommand::Decisions(args) = command;
    let suite = match &args.generated {
        Some(Seeds(numbers)) => Suite::generated(numbers)?,
        None => Suite::read(&args.suite)?,
    };
    let mut suite = suite.only(&args.scenarios).map_err(|why| anyhow!(why))?;
    let seeds = match &args.generated {
        // The number is the seed: another draw of a random array is another array.
        Some(_) => vec![1],
        None => args.seeds.0.clone(),
    };
    if let Some(dir) = &args.save {
        let written = save_suite(&suite, &seeds, dir)?;
        message(&format!("{written} scenarios are in {}", dir.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let strategies = match (&args.ablate, args.strategies.is_empty()) {
        (Some(only), _) => suite.variants(only)?,
        (None, true) => suite.strategies(),
        (None, false) => args.strategies.clone(),
    };
    if let Some(unknown) = args.again.iter().find(|a| !strategies.contains(a)) {
        return Err(anyhow!("--again {unknown}: it is none of the strategies"));
    }
    let cells = Cells::open(&args.out)?;
    let asked = Asked {
        strategies,
        seeds,
        // Variants are held against one another: nothing has to be known of what is best.
        candidates: if args.ablate.is_some() {
            0
        } else {
            args.hindsight
        },
        again: args.again.clone(),
    };
    let comparison = run_suite(&suite, &asked, &cells)?;
    if let Some(path) = &args.html {
        fs::write(path, report::decisions_page(&comparison))
            .with_context(|| format!("cannot write {}", path.display()))?;
        message(&format!("{} is written", path.display()));
    }
    let mut out = io::stdout().lock();
    if args.ablate.is_some() {
        let ablation = decisions::ablation(&comparison);
        match args.output {
            BenchOutput::Table => write!(out, "{}", report::ablation(&ablation))?,
            BenchOutput::Json => {
                serde_json::to_writer_pretty(&mut out, &ablation)?;
                writeln!(out)?;
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    match args.output {
        BenchOutput::Table => write!(out, "{}", report::decisions(&comparison))?,
        BenchOutput::Json => {
            serde_json::to_writer_pretty(&mut out, &comparison)?;
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
