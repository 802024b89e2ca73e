//! `terrace bench`: how good decisions are.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use decisions::{CANDIDATES_MIN, Comparison, ContestRules, FRESH_MIN, Figures, KnownPlans};

use crate::bench_moves::{MovesAsked, leave_out, text};
use crate::bench_run::{BenchRequest, Part, Suite, freeze, run_suite, save_suite};
use crate::live::message;
use crate::table_files::ParquetArg;
use planner::hosted::is_python;
use runner::cells::Cells;
use runner::ray::RayArg;
use runner::strategies::ByName;
use units::counted;

/// Seeds without `--seeds`: enough for an interval.
const SEEDS: &str = "1..5";

/// Inputs of the placement contest, besides [`SEEDS`]: suite, parameters, rivals, and scenarios that need traces from elsewhere
/// (docs/guides/placement-contest.md).
const CONTEST_SUITE: &str = "suites/decisions";
const CONTEST_PARAMETERS: &str = "bench/rivals-best.toml";
const CONTEST_RIVALS: [&str; 5] = ["noop", "static", "idt", "edt", "autotiering"];
const NOT_IN_CONTEST: [&str; 2] = ["production", "production-pressed"];

/// Number of differences that `--check` prints; a result of another version differs everywhere.
const DIFFERENCES_SHOWN: usize = 20;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Compare strategies with one another and with the best plan in hindsight, over a suite of scenarios
    ///
    /// V is the time in which volumes violate their objective, in seconds weighted by class. Ratios are against the
    /// rival with the lowest mean V of a scenario, with 95 % intervals (bootstrap over scenarios, then seeds).
    /// Results are kept in a directory and used again. Their names depend on all inputs of a run except the program:
    /// after a change to a strategy, name it with --again.
    Decisions(Box<DecisionsArgs>),
    /// Repeat runs of a strategy without one of their moves, and count moves that harm a volume
    ///
    /// A move harms if, without it, the mean latency of any volume with at least 1,000 requests is more than 10 %
    /// lower. All other moves of the run start as they did. Moves that empty a tier by order are left out of
    /// the sample. Nothing is stored.
    Moves(Box<MovesArgs>),
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

/// Scenarios, seeds and parameters of the runs.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// Directory of scenarios; its suite.toml has the default strategies and the names of the guards
    #[arg(long, value_name = "DIR", default_value = CONTEST_SUITE)]
    suite: PathBuf,
    /// Random arrays with these numbers instead of a suite, such as 1..20
    #[arg(long, value_name = "N,…", conflicts_with = "suite", value_parser = parse_seeds)]
    generated: Option<Seeds>,
    /// Random arrays drawn from the hash of this commit instead of a suite: a full hash, or a revision that
    /// `git rev-parse` knows
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["suite", "generated"])]
    fresh: Option<String>,
    /// Number of arrays of --fresh, at least 40
    #[arg(long, value_name = "N", default_value_t = FRESH_MIN, requires = "fresh")]
    arrays: usize,
    /// Only these scenarios of the suite
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Seeds, such as 1..20
    #[arg(long, value_name = "N,…", default_value = SEEDS, value_parser = parse_seeds)]
    seeds: Seeds,
    /// Parameters of strategies for all scenarios, before those of the suite: tables `[strategies.NAME]` as scenarios have them
    #[arg(long, value_name = "FILE")]
    parameters: Option<PathBuf>,
}

/// A suite with the hash of the commit that it was drawn from, if it was.
struct Source {
    suite: Suite,
    commit: Option<String>,
}

impl SourceArgs {
    fn read(&self) -> anyhow::Result<Source> {
        if self.arrays < FRESH_MIN {
            bail!("--arrays {}: at least {FRESH_MIN} are needed", self.arrays);
        }
        let commit = self.fresh.as_deref().map(full_hash).transpose()?;
        let suite = match (&commit, &self.generated) {
            (Some(commit), _) => Suite::fresh(commit, self.arrays)?,
            (None, Some(numbers)) => Suite::generated(&numbers.numbers)?,
            (None, None) => Suite::read(&self.suite)?,
        };
        let mut suite = suite.only(&self.scenarios).map_err(|why| anyhow!(why))?;
        if let Some(path) = &self.parameters {
            suite.parameters(path)?;
        }
        Ok(Source { suite, commit })
    }

    /// The words of a command that runs the same.
    fn words(&self, commit: Option<&str>) -> Vec<String> {
        let mut words = vec![match (commit, &self.generated) {
            (Some(commit), _) => format!("--fresh {commit} --arrays {}", self.arrays),
            (None, Some(numbers)) => format!("--generated {}", numbers.text),
            (None, None) => format!("--suite {}", self.suite.display()),
        }];
        words.push(format!("--seeds {}", self.seeds.text));
        if !self.scenarios.is_empty() {
            words.push(format!("--scenarios {}", self.scenarios.join(",")));
        }
        if let Some(path) = &self.parameters {
            words.push(format!("--parameters {}", path.display()));
        }
        words
    }
}

/// The hash of a commit: a full one as it is, anything else as git resolves it.
fn full_hash(commit: &str) -> anyhow::Result<String> {
    if decisions::fresh_numbers(commit, 0).is_ok() {
        return Ok(commit.to_ascii_lowercase());
    }
    let revision = format!("{commit}^{{commit}}");
    let git = Command::new("git")
        .args(["rev-parse", "--verify", "--end-of-options", &revision])
        .output()
        .with_context(|| format!("--fresh {commit}: cannot run git; give the full hash"))?;
    if !git.status.success() {
        let why = String::from_utf8_lossy(&git.stderr);
        bail!("--fresh {commit}: {}; give the full hash", why.trim());
    }
    Ok(String::from_utf8_lossy(&git.stdout).trim().to_owned())
}

#[derive(Debug, Args)]
pub struct MovesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// The strategy; FILE.py:CLASS for one in Python
    #[arg(long, value_name = "NAME", default_value = planner::DEFAULT_STRATEGY)]
    strategy: String,
    /// Number of moves to leave out, one at a time; a random sample of all moves, or all where there are fewer
    #[arg(long, value_name = "N", default_value_t = 800)]
    sample: usize,
    /// Seed of the sample
    #[arg(long, value_name = "N", default_value_t = 1)]
    sample_seed: u64,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: BenchOutput,
}

#[derive(Debug, Args)]
pub struct DecisionsArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Strategies; the first is compared with the others, its rivals. FILE.py:CLASS for one in Python [default: those of
    /// suite.toml, or all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Compare a strategy with its variants in --parameters
    #[arg(long, value_name = "NAME", requires = "parameters", conflicts_with_all = ["strategies", "ablate", "html", "figures"])]
    variants_of: Option<String>,
    /// Compare `terrace` with variants of itself instead of rivals: each exchange rate at zero, half and twice its
    /// value, each part left out; with names, only variants whose names start with one of them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0.., conflicts_with_all = ["strategies", "html", "figures"])]
    ablate: Option<Vec<String>>,
    /// Candidates of a search for better plans in hindsight, for each scenario and seed; 0 for no search. Plans are kept
    /// only from 300 candidates on
    #[arg(long, value_name = "N", default_value_t = 0)]
    hindsight: u32,
    /// File with the best plans in hindsight that are known. A search begins with them, and adds better ones
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
    /// Keep the plans of the first strategy in --known as those of a frozen version, with this name, and compare
    /// nothing. Plans that are kept already do not change
    #[arg(long, value_name = "VERSION", requires = "known")]
    freeze: Option<String>,
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
    /// Run everything again, and list the differences from the results of another run, which are in this file of
    /// --figures; of a strategy in Python, also the deviations from the rules of the placement contest. Exit status 1 if
    /// there are any
    #[arg(long, value_name = "FILE", conflicts_with_all = ["variants_of", "ablate", "freeze", "save", "figures", "html", "again"])]
    check: Option<PathBuf>,
    #[command(flatten)]
    ray: RayArg,
    #[command(flatten)]
    parquet: ParquetArg,
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

fn parse_seeds(text: &str) -> Result<Seeds, sim::sweep::SweepError> {
    let numbers = sim::sweep::parse_seeds(text)?;
    Ok(Seeds {
        text: text.into(),
        numbers,
    })
}

impl DecisionsArgs {
    /// The command that does the same, wherever results are kept.
    fn command(&self, commit: Option<&str>, strategies: &[String]) -> String {
        let mut words = vec!["terrace bench decisions".to_owned()];
        words.extend(self.source.words(commit));
        words.push(format!("--strategies {}", strategies.join(",")));
        words.push(format!("--hindsight {}", self.hindsight));
        if let Some(path) = &self.known {
            words.push(format!("--known {}", path.display()));
        }
        words.join(" ")
    }
}

/// The plans that a file has; none where there is no file yet.
fn read_known(path: Option<&Path>) -> anyhow::Result<Option<KnownPlans>> {
    let Some(path) = path else { return Ok(None) };
    match fs::read_to_string(path) {
        Ok(text) => {
            let known = KnownPlans::parse(&text).with_context(|| path.display().to_string())?;
            Ok(Some(known))
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write_known(path: &Path, known: &KnownPlans) -> anyhow::Result<()> {
    let new = path.with_extension("tmp");
    fs::write(&new, known.json()?)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    message(&format!("wrote {}", path.display()));
    Ok(())
}

/// Runs `terrace bench …`.
pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Decisions(args) => run_decisions(&args),
        BenchCommand::Moves(args) => run_moves(&args),
        BenchCommand::Figures(args) => print_figures(&args),
    }
}

fn read_figures(path: &PathBuf) -> anyhow::Result<Figures> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Figures::parse(&text).map_err(|why| anyhow!("{}: {why}", path.display()))
}

fn print_figures(args: &FiguresArgs) -> anyhow::Result<ExitCode> {
    let of = report::DecisionFigures {
        suite: &read_figures(&args.suite)?,
        random: &read_figures(&args.random)?,
    };
    write!(io::stdout().lock(), "{}", report::decisions_markdown(of))?;
    Ok(ExitCode::SUCCESS)
}

fn run_moves(args: &MovesArgs) -> anyhow::Result<ExitCode> {
    let suite = args.source.read()?.suite;
    if !is_python(&args.strategy) {
        planner::find(&args.strategy)?;
    }
    let asked = MovesAsked {
        strategy: args.strategy.clone(),
        source: ByName::default(),
        seeds: args.source.seeds.numbers.clone(),
        sample: args.sample,
        sample_seed: args.sample_seed,
    };
    let trials = leave_out(&suite, &asked)?;
    let mut out = io::stdout().lock();
    match args.output {
        BenchOutput::Table => write!(out, "{}", text(&trials))?,
        BenchOutput::Json => {
            serde_json::to_writer_pretty(&mut out, &trials)?;
            writeln!(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_decisions(args: &DecisionsArgs) -> anyhow::Result<ExitCode> {
    let Source { mut suite, commit } = args.source.read()?;
    let mut seeds = args.source.seeds.numbers.clone();
    if let Some(one) = &args.ray.cell {
        let part: Part = serde_json::from_value(one.of.clone())?;
        suite = suite
            .only(&[part.scenario])
            .map_err(|why| anyhow!("--cell: {why}"))?;
        seeds = vec![part.seed];
    }
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
    if args.known.is_some() && (1..CANDIDATES_MIN).contains(&args.hindsight) {
        bail!(
            "--hindsight {}: plans are kept in --known only from {CANDIDATES_MIN} candidates on",
            args.hindsight
        );
    }
    let command = args.command(commit.as_deref(), &strategies);
    let given = args.check.as_ref().map(read_figures).transpose()?;
    let submitted = given.as_ref().filter(|g| is_python(&g.own));
    let deviations = match submitted {
        Some(given) => given.deviations(&contest_rules(given.commit.as_deref())?),
        None => vec![],
    };
    let cells = Cells::of_command(&args.out, &args.ray)?;
    let known = read_known(args.known.as_deref())?;
    let asked = BenchRequest {
        seeds,
        // Variants are held against one another: nothing has to be known of what is best.
        candidates: if of_variants { 0 } else { args.hindsight },
        hindsight: !of_variants && (args.hindsight > 0 || known.is_some()),
        again: match args.check {
            Some(_) => strategies.clone(),
            None => args.again.clone(),
        },
        strategies,
        source: ByName::default(),
    };
    if let (Some(version), Some(path)) = (&args.freeze, &args.known) {
        let mut known = known.unwrap_or_else(|| KnownPlans::new(version.clone()));
        if known.frozen != *version {
            bail!(
                "--freeze {version}: {} has plans of {}",
                path.display(),
                known.frozen
            );
        }
        let count = freeze(&suite, &asked, &mut known, &cells)?;
        write_known(path, &known)?;
        message(&format!("kept the plans of {count} runs"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut known = known.unwrap_or_else(|| KnownPlans::new(String::new()));
    let before = known.clone();
    let comparison = run_suite(&suite, &asked, &mut known, &cells)?;
    if let Some(path) = args.known.as_ref().filter(|_| known != before) {
        write_known(path, &known)?;
    }
    if let Some(path) = &args.html {
        fs::write(path, report::decisions_page(&comparison))
            .with_context(|| format!("cannot write {}", path.display()))?;
        message(&format!("wrote {}", path.display()));
    }
    if args.figures.is_some() || given.is_some() {
        let mut sources = suite.sources();
        for name in asked.strategies.iter().filter(|n| is_python(n)) {
            sources.insert(name.clone(), asked.source.source(name)?);
        }
        let figures = Figures::of(&comparison, command, commit, sources);
        let figures = figures.map_err(|why| anyhow!("figures: {why}"))?;
        if let Some(path) = &args.figures {
            fs::write(path, figures.json()?)
                .with_context(|| format!("cannot write {}", path.display()))?;
            message(&format!("wrote {}", path.display()));
        }
        if let (Some(given), Some(path)) = (&given, &args.check) {
            return check(path, &given.differences(&figures), &deviations);
        }
    }
    args.parquet
        .write(|| tables::comparison(&comparison).into())?;
    print(&comparison, of_variants, args.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the inputs that the rules of the placement contest prescribe, from the files of this clone: those of the suite, or of the random
/// arrays of a commit.
fn contest_rules(commit: Option<&str>) -> anyhow::Result<ContestRules> {
    let mut suite = match commit {
        Some(commit) => Suite::fresh(commit, FRESH_MIN)?,
        None => Suite::read(Path::new(CONTEST_SUITE))?,
    };
    suite.parameters(Path::new(CONTEST_PARAMETERS))?;
    let mut sources = suite.sources();
    sources.retain(|name, _| !NOT_IN_CONTEST.contains(&name.as_str()));
    Ok(ContestRules {
        seeds: sim::sweep::parse_seeds(SEEDS)?,
        rivals: CONTEST_RIVALS.map(String::from).into(),
        sources,
    })
}

/// Prints the differences of results from those of a new run, and the deviations of their inputs from the rules of the contest.
fn check(path: &Path, differences: &[String], deviations: &[String]) -> anyhow::Result<ExitCode> {
    let (path, mut out) = (path.display(), io::stdout().lock());
    for (lines, noun, of) in [
        (differences, "difference", "from a new run"),
        (deviations, "deviation", "from the rules of the contest"),
    ] {
        for line in lines.iter().take(DIFFERENCES_SHOWN) {
            writeln!(out, "{line}")?;
        }
        if !lines.is_empty() {
            writeln!(out, "{path}: {} {of}", counted(lines.len(), noun))?;
        }
    }
    if differences.is_empty() {
        writeln!(out, "{path}: a new run has the same results")?;
    }
    Ok(match differences.is_empty() && deviations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn print(comparison: &Comparison, of_variants: bool, output: BenchOutput) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match (of_variants, output) {
        (true, BenchOutput::Table) => {
            let ablation = decisions::ablation(comparison);
            write!(out, "{}", report::ablation(&ablation))?;
        }
        (true, BenchOutput::Json) => {
            let ablation = decisions::ablation(comparison);
            serde_json::to_writer_pretty(&mut out, &ablation)?;
            writeln!(out)?;
        }
        (false, BenchOutput::Table) => write!(out, "{}", report::decisions(comparison))?,
        (false, BenchOutput::Json) => {
            serde_json::to_writer_pretty(&mut out, comparison)?;
            writeln!(out)?;
        }
    }
    Ok(())
}
