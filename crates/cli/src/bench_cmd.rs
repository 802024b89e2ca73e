//! `terrace bench`: how good decisions are.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use decisions::Figures;

use crate::bench_run::{Asked, Suite, run_suite, save_suite};
use crate::live::message;
use runner::cells::Cells;

/// Seeds without `--seeds`: enough for an interval.
const SEEDS: &str = "1..5";

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Compare strategies with one another and with the best plan in hindsight, over a suite of scenarios
    ///
    /// V is the time in which volumes violate their objective, in seconds weighted by class. Ratios are against the
    /// rival with the lowest mean V of a scenario, with 95 % intervals (bootstrap over scenarios, then seeds).
    /// Results are kept in a directory and used again. Their names depend on all inputs of a run except the program:
    /// after a change to a strategy, name it with --again.
    Decisions(Box<DecisionsArgs>),
    /// Print tables of results as Markdown, from the files of `terrace bench decisions --figures`
    ///
    /// bench/figures.sh runs the comparisons again and writes docs/results/decisions.md.
    Figures(FiguresArgs),
}

#[derive(Debug, Args)]
pub struct FiguresArgs {
    /// Figures of a suite
    #[arg(value_name = "SUITE")]
    suite: PathBuf,
    /// Figures of random arrays
    #[arg(value_name = "RANDOM")]
    random: PathBuf,
}

#[derive(Debug, Args)]
pub struct DecisionsArgs {
    /// Directory of scenarios; its suite.toml has the default seeds and strategies
    #[arg(long, value_name = "DIR", default_value = "suites/decisions")]
    suite: PathBuf,
    /// Random arrays with these seeds instead of a suite, such as 1..20
    #[arg(long, value_name = "N,…", conflicts_with = "suite", value_parser = parse_seeds)]
    generated: Option<Seeds>,
    /// Only these scenarios of the suite
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Seeds, such as 1..20
    #[arg(long, value_name = "N,…", default_value = SEEDS, value_parser = parse_seeds)]
    seeds: Seeds,
    /// Strategies; the first is compared with the others, its rivals [default: those of suite.toml, or all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Parameters of strategies for all scenarios, before those of the suite: tables `[strategies.NAME]` as scenarios have them
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
    /// Compare a strategy with its variants in --parameters
    #[arg(long, value_name = "NAME", requires = "parameters", conflicts_with_all = ["strategies", "ablate", "html", "figures"])]
    variants_of: Option<String>,
    /// Compare `terrace` with variants of itself instead of rivals: each exchange rate at zero, half and twice its
    /// value, each part left out; with names, only variants whose names start with one of them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0.., conflicts_with_all = ["strategies", "html", "figures"])]
    ablate: Option<Vec<String>>,
    /// Candidates of the search in hindsight for each scenario and seed; 0 for none
    #[arg(long, value_name = "N", default_value_t = 60)]
    hindsight: u32,
    /// Directory for results
    #[arg(long, value_name = "DIR", default_value = "terrace-decisions")]
    out: PathBuf,
    /// Run these strategies again, even if the directory has their results
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    again: Vec<String>,
    /// Write the scenarios with their random values into this directory, and run nothing
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Also write an HTML page with all results
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also write the figures of the page of results: V, excess, moves and bytes of each run, and totals
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
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
struct Seeds {
    text: String,
    numbers: Vec<u64>,
}

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    let numbers = sim::sweep::parse_seeds(text)?;
    Ok(Seeds {
        text: text.into(),
        numbers,
    })
}

impl DecisionsArgs {
    /// The command that does the same, wherever results are kept.
    fn command(&self, strategies: &[String]) -> String {
        let mut words = vec!["terrace bench decisions".to_owned()];
        match &self.generated {
            Some(numbers) => words.push(format!("--generated {}", numbers.text)),
            None => words.push(format!(
                "--suite {} --seeds {}",
                self.suite.display(),
                self.seeds.text
            )),
        }
        if !self.scenarios.is_empty() {
            words.push(format!("--scenarios {}", self.scenarios.join(",")));
        }
        if let Some(path) = &self.parameters {
            words.push(format!("--parameters {}", path.display()));
        }
        words.push(format!("--strategies {}", strategies.join(",")));
        words.push(format!("--hindsight {}", self.hindsight));
        words.join(" ")
    }
}

/// Runs `terrace bench …`.
pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Decisions(args) => run_decisions(&args),
        BenchCommand::Figures(args) => print_figures(&args),
    }
}

fn print_figures(args: &FiguresArgs) -> anyhow::Result<ExitCode> {
    let read = |path: &PathBuf| -> anyhow::Result<Figures> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Figures::parse(&text).map_err(|why| anyhow!("{}: {why}", path.display()))
    };
    let of = report::DecisionFigures {
        suite: &read(&args.suite)?,
        random: &read(&args.random)?,
    };
    write!(io::stdout().lock(), "{}", report::decisions_markdown(of))?;
    Ok(ExitCode::SUCCESS)
}

fn run_decisions(args: &DecisionsArgs) -> anyhow::Result<ExitCode> {
    let suite = match &args.generated {
        Some(numbers) => Suite::generated(&numbers.numbers)?,
        None => Suite::read(&args.suite)?,
    };
    let mut suite = suite.only(&args.scenarios).map_err(|why| anyhow!(why))?;
    if let Some(path) = &args.parameters {
        suite.parameters(path)?;
    }
    let seeds = match &args.generated {
        // The number is the seed: another draw of a random array is another array.
        Some(_) => vec![1],
        None => args.seeds.numbers.clone(),
    };
    if let Some(dir) = &args.save {
        let written = save_suite(&suite, &seeds, dir)?;
        message(&format!("wrote {written} scenarios to {}", dir.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let of_variants = args.ablate.is_some() || args.variants_of.is_some();
    let strategies = match (&args.variants_of, &args.ablate) {
        (Some(name), _) => suite.variants_of(name)?,
        (None, Some(only)) => suite.variants(only)?,
        (None, None) if args.strategies.is_empty() => suite.strategies(),
        (None, None) => args.strategies.clone(),
    };
    if let Some(unknown) = args.again.iter().find(|a| !strategies.contains(a)) {
        return Err(anyhow!(
            "--again {unknown}: no strategy of this comparison has this name"
        ));
    }
    let command = args.command(&strategies);
    let cells = Cells::open(&args.out)?;
    let asked = Asked {
        strategies,
        seeds,
        // Variants are held against one another: nothing has to be known of what is best.
        candidates: if of_variants { 0 } else { args.hindsight },
        again: args.again.clone(),
    };
    let comparison = run_suite(&suite, &asked, &cells)?;
    if let Some(path) = &args.html {
        fs::write(path, report::decisions_page(&comparison))
            .with_context(|| format!("cannot write {}", path.display()))?;
        message(&format!("wrote {}", path.display()));
    }
    if let Some(path) = &args.figures {
        let figures = Figures::of(&comparison, command, suite.sources())
            .map_err(|why| anyhow!("--figures: {why}"))?;
        fs::write(path, figures.json()?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        message(&format!("wrote {}", path.display()));
    }
    let mut out = io::stdout().lock();
    if of_variants {
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
