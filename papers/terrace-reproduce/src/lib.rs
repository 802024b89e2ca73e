//! Program behind `terrace reproduce`. It repeats published experiments and reports measured values next to published values. The Python
//! package calls it too.

mod dual_period;
mod dynamite;
mod ops_isolation;
mod priority_lru;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, ValueEnum};
use report::Document;
use reproduce::autotiering::{Outcome, RunMeasurements, Scene, Setup, document, regressions};
use runner::cells::{self, Cells, StorableResult, run_kept};
use runner::jobs;
use runner::ray::RayArg;
use serde::Serialize;
use serde_json::{Value, json};
use sim::{RunOptions, SENSITIVITY_CASES, SensitivityRow, sensitivity_row};

use dual_period::DualPeriodArgs;
use dynamite::DynamiteArgs;
use ops_isolation::OpsIsolationArgs;
use priority_lru::PriorityLruArgs;
use summary::SummaryArgs;

/// Repeat published experiments and compare the results with the papers' claims
#[derive(Debug, Parser)]
#[command(
    name = "terrace reproduce",
    bin_name = "terrace reproduce",
    version,
    max_term_width = 110
)]
enum ReproduceCommand {
    /// Paper 0 (AutoTiering, IPCCC 2017): Figs. 2 to 7 and all claims about them
    Autotiering(AutotieringArgs),
    /// Paper 1 (dual-period tier control): Figs. 3 to 9 and all claims about them, evaluated by counting
    DualPeriod(DualPeriodArgs),
    /// Paper 2 (Priority-LRU with a QoS-aware back end): tables I and II, Figs. 1 to 5 (more than an hour on two cores)
    PriorityLru(PriorityLruArgs),
    /// Paper 4 (OPS isolation in SSDs): both parts of the slides and all their claims
    OpsIsolation(OpsIsolationArgs),
    /// Paper 3 (Dynamite, 2012): Figs. 1 and 5 to 7, caching appliances as a remedy for SLO violations
    Dynamite(DynamiteArgs),
    /// Compare all papers: numbers of claims that agree in every reading, in some readings and in none
    Summary(SummaryArgs),
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
    Markdown,
}

/// Output options that all experiments share.
#[derive(Debug, Args)]
struct ResultsArg {
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Write a self-contained HTML page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl ResultsArg {
    /// Checks before the simulation that the directory of the page exists.
    fn check(&self) -> anyhow::Result<()> {
        let dir = self.report.as_deref().and_then(Path::parent);
        if let Some(dir) = dir.filter(|d| !d.as_os_str().is_empty() && !d.is_dir()) {
            anyhow::bail!("--report: directory {} does not exist", dir.display());
        }
        if let Some(dir) = self.report.as_deref().filter(|p| p.is_dir()) {
            anyhow::bail!("--report: {} is a directory", dir.display());
        }
        Ok(())
    }

    /// Writes the page and prints the outcome.
    fn hand_over(&self, outcome: &impl Serialize, document: &Document) -> anyhow::Result<ExitCode> {
        if let Some(page) = &self.report {
            fs::write(page, document.page())
                .with_context(|| format!("cannot write {}", page.display()))?;
            let _ = writeln!(io::stderr(), "report written to {}", page.display());
        }
        let mut out = io::stdout().lock();
        match self.output {
            Output::Table => write!(out, "{}", document.text())?,
            Output::Markdown => write!(out, "{}", document.markdown())?,
            Output::Json => {
                serde_json::to_writer_pretty(&mut out, outcome)?;
                writeln!(out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Option that keeps the results of runs.
#[derive(Debug, Args)]
struct KeepArg {
    /// Keep the result of every run in this directory; an interrupted command resumes there, and a command with more seeds runs only the new seeds
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    ray: RayArg,
}

impl KeepArg {
    /// Opens the directory, if results are kept.
    fn open(&self) -> anyhow::Result<Option<Cells>> {
        anyhow::ensure!(
            self.keep.is_some() || self.ray.ray.is_none(),
            "--ray: name a directory for the results: --keep DIR"
        );
        let open = |dir| Cells::of_command(dir, &self.ray);
        self.keep.as_deref().map(open).transpose()
    }

    /// Returns a result that is kept.
    fn find<R: StorableResult>(&self, identity: &Value) -> anyhow::Result<Option<R>> {
        let found = |cells: Cells| cells.find(&cells::name(identity));
        Ok(self.open()?.and_then(found).map(|(result, _)| result))
    }

    /// Runs all items whose results are not kept yet, one per core at the same time. A terminal shows a progress bar and the remaining time.
    fn run<T: Sync, R: StorableResult + Send>(
        &self,
        title: &str,
        items: &[T],
        identity: impl Fn(&T) -> Value,
        work: impl Fn(&T) -> anyhow::Result<R> + Sync,
    ) -> anyhow::Result<Vec<R>> {
        let cells = self.open()?;
        run_kept(cells.as_ref(), title, items, identity, work)
    }
}

/// Workloads and drives of an experiment on AutoTiering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SceneArg {
    OurMixes,
    AllRows,
    FioMixes,
    OneDrive,
}

impl From<SceneArg> for Scene {
    fn from(scene: SceneArg) -> Self {
        match scene {
            SceneArg::OurMixes => Scene::OurMixes,
            SceneArg::AllRows => Scene::AllRows,
            SceneArg::FioMixes => Scene::FioMixes,
            SceneArg::OneDrive => Scene::OneDrive,
        }
    }
}

/// Arguments of `terrace reproduce autotiering`.
#[derive(Debug, Args)]
struct AutotieringArgs {
    /// Number of seeds, at least 2; each seed generates its own volumes, sizes, phases and bursts [default: 5, quick: 2]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    seed: u64,
    /// Use fewer seeds and a smaller scale: a preview, not a result
    #[arg(long)]
    quick: bool,
    /// Divisor of time and sizes; rates are not scaled [default: 45, quick: 450]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    scale: Option<u64>,
    /// Number of measured migration epochs after the warm-up
    #[arg(long, value_name = "N", default_value_t = 10)]
    epochs: u64,
    /// Also compare sensitivity without injection with injection (minutes)
    #[arg(long)]
    sensitivity: bool,
    /// Print the scenario of the first seed, with these workloads and drives, for `terrace sim run`, without a run
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "our-mixes")]
    scenario: Option<SceneArg>,
    #[command(flatten)]
    keep: KeepArg,
    #[command(flatten)]
    results: ResultsArg,
}

/// Runs the program with these arguments; the first one is the name of the program. Ends the process if they are wrong.
pub fn run_with(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = ReproduceCommand::try_parse_from(args).unwrap_or_else(|error| {
        let message = error.render().to_string();
        match runner::with_expected_number(&message, std::error::Error::source(&error)) {
            Some(message) => {
                eprint!("{message}");
                std::process::exit(error.exit_code())
            }
            None => error.exit(),
        }
    });
    runner::end(run(command))
}

fn run(command: ReproduceCommand) -> anyhow::Result<ExitCode> {
    match command {
        ReproduceCommand::Autotiering(args) => autotiering(&args),
        ReproduceCommand::DualPeriod(args) => dual_period::run(&args),
        ReproduceCommand::PriorityLru(args) => priority_lru::run(&args),
        ReproduceCommand::OpsIsolation(args) => ops_isolation::run(&args),
        ReproduceCommand::Dynamite(args) => dynamite::run(&args),
        ReproduceCommand::Summary(args) => summary::run(&args),
    }
}

fn autotiering(args: &AutotieringArgs) -> anyhow::Result<ExitCode> {
    let (seeds, scale) = if args.quick { (2, 450) } else { (5, 45) };
    let setup = Setup::new(
        args.seeds.unwrap_or(seeds),
        args.seed,
        args.scale.unwrap_or(scale),
        args.epochs,
    )?;
    if let Some(scene) = args.scenario {
        write!(
            io::stdout().lock(),
            "{}",
            setup.text(scene.into(), args.seed)
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    args.results.check()?;
    let jobs = setup.jobs();
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    let runs = args.keep.run(
        "reproduce autotiering",
        &jobs,
        |job| json!({ "scenario": setup.text(job.scene, job.seed), "strategy": job.strategy }),
        |job| {
            let file = setup.scenario(job.scene, job.seed)?;
            let model = file.build(vec![])?;
            let strategy = file.strategy(job.strategy)?;
            let manifest = jobs::manifest(&file, &model, job.strategy, &[], 0);
            let result = sim::run(&model, strategy, manifest, options, &mut |_| ())?;
            Ok(RunMeasurements::new(&result, &setup))
        },
    )?;
    let lines = regressions(setup.seeds[0])?;
    let passive = match args.sensitivity {
        false => None,
        true => Some(passive_sensitivity(&setup.seeds, &args.keep)?),
    };
    let outcome = Outcome::new(env!("CARGO_PKG_VERSION"), setup, runs, lines, passive);
    args.results.hand_over(&outcome, &document(&outcome))
}

fn passive_sensitivity(seeds: &[u64], keep: &KeepArg) -> anyhow::Result<Vec<SensitivityRow>> {
    let cases = SENSITIVITY_CASES.iter();
    let all: Vec<_> = cases
        .flat_map(|case| seeds.iter().map(move |s| (case, *s)))
        .collect();
    let title = "reproduce autotiering --sensitivity";
    keep.run(
        title,
        &all,
        |(case, seed)| json!([title, case.name, seed]),
        |(case, seed)| Ok(sensitivity_row(case, *seed)?),
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::ReproduceCommand;

    #[test]
    fn experiments_support_json_output() {
        let command = ReproduceCommand::command();
        command.clone().debug_assert();
        let mut experiments = command.get_subcommands().peekable();
        assert!(experiments.peek().is_some());
        for experiment in experiments {
            let mut all = experiment.get_arguments();
            let output = all.find(|a| a.get_short() == Some('o')).expect("-o");
            let values = output.get_possible_values();
            assert!(values.iter().any(|v| v.get_name() == "json"));
        }
    }
}
