//! A suite of scenarios, and its runs: found on disk or made, as many at once as there are cores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use decisions::{
    Baseline, Comparison, FixedParameter, Hindsight, KnownPlan, KnownPlans, OfferedLoads,
    RunMetrics, Score, Script, Search, compare, draw, fresh_numbers, generate, judge, path_of,
    search, solo_violation, violated,
};
use planner::NOOP;
use planner::hosted::is_python;
use runner::jobs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sim::{Intervals, Manifest, Model, RunOptions, RunResult, ScenarioFile};
use xxhash_rust::xxh3::xxh3_64;

use crate::live::message;
use crate::sim_cmd::missing_requirement;
use runner::cells::{self, Cells, Task};
use runner::inputs::{Inputs, LoadedScenario};
use runner::strategies::ByName;
use runner::sweeps::Strategies;

/// Name and version of what is kept.
const CELL_SCHEMA: &str = "terrace.bench.cell/4";
/// The file of a suite's words.
const SUITE_FILE: &str = "suite.toml";

/// What a suite says besides its scenarios.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SuiteWords {
    /// Strategies, the one that the others are rivals of first.
    #[serde(default)]
    compare: Vec<String>,
    /// What seeds leave as it is, by scenario.
    #[serde(default)]
    fixed: BTreeMap<String, BTreeSet<FixedParameter>>,
    /// Scenarios in which nothing is to be gained; all others are contests.
    #[serde(default)]
    guards: BTreeSet<String>,
    /// Parameters of strategies, for all scenarios.
    #[serde(default)]
    strategies: BTreeMap<String, Value>,
}

/// Parameters of strategies, or of others that use them, by name.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parameters {
    strategies: BTreeMap<String, Value>,
}

pub struct Suite {
    name: String,
    words: SuiteWords,
    /// Names and texts of what it is read from besides its scenarios.
    texts: Vec<(String, String)>,
    scenarios: Vec<(PathBuf, ScenarioFile)>,
}

impl Suite {
    /// All scenarios of a directory, by name. Those that need what is not there are skipped, and that is said.
    pub fn read(dir: &Path) -> anyhow::Result<Self> {
        let at = |what: &Path| format!("cannot read {}", what.display());
        let mut paths: Vec<PathBuf> = fs::read_dir(dir)
            .with_context(|| at(dir))?
            .map(|entry| entry.map(|e| e.path()))
            .collect::<Result<_, _>>()
            .with_context(|| at(dir))?;
        paths.retain(|p| p.extension().is_some_and(|e| e == "toml"));
        paths.sort();
        let (mut words, mut texts, mut scenarios) = (SuiteWords::default(), vec![], vec![]);
        for path in paths {
            let text = fs::read_to_string(&path).with_context(|| at(&path))?;
            if path.file_name().is_some_and(|n| n == SUITE_FILE) {
                words = config::read::<SuiteWords>(&path.display().to_string(), &text)?.0;
                texts.push((SUITE_FILE.to_owned(), text));
                continue;
            }
            let mut file = ScenarioFile::parse(&path.display().to_string(), &text)?;
            file.scenario.name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into();
            if let Some(missing) = missing_requirement(&path, &file) {
                message(&format!("{}: skipped: no {missing}", path.display()));
                continue;
            }
            scenarios.push((path, file));
        }
        if scenarios.is_empty() {
            bail!("{}: the directory has no scenario", dir.display());
        }
        let fixed = words.fixed.keys().map(|name| ("fixed", name));
        let mut named = fixed.chain(words.guards.iter().map(|name| ("guards", name)));
        let unknown = |(_, name): &(&str, &String)| !dir.join(format!("{name}.toml")).exists();
        if let Some((key, name)) = named.find(unknown) {
            bail!(
                "{}: {key}.{name}: no scenario has this name",
                dir.join(SUITE_FILE).display()
            );
        }
        Ok(Self {
            name: dir.display().to_string(),
            words,
            texts,
            scenarios,
        })
    }

    /// Random arrays of these numbers.
    pub fn generated(numbers: &[u64]) -> anyhow::Result<Self> {
        let all = [
            FixedParameter::Class,
            FixedParameter::Place,
            FixedParameter::Phase,
            FixedParameter::Rate,
        ];
        let (mut words, mut scenarios) = (SuiteWords::default(), vec![]);
        for number in numbers {
            let name = format!("array-{number}");
            let mut file = ScenarioFile::parse(&name, &generate(*number))?;
            file.scenario.name.clone_from(&name);
            words.fixed.insert(name, all.into());
            scenarios.push((PathBuf::from("generated"), file));
        }
        Ok(Self {
            name: format!("{} random arrays", numbers.len()),
            words,
            texts: vec![],
            scenarios,
        })
    }

    /// Random arrays whose numbers follow from the hash of a commit.
    pub fn fresh(commit: &str, count: usize) -> anyhow::Result<Self> {
        let suite = Self::generated(&fresh_numbers(commit, count)?)?;
        let name = format!("{count} random arrays of commit {commit}");
        Ok(Self { name, ..suite })
    }

    /// With these scenarios only, if any are named.
    pub fn only(mut self, names: &[String]) -> Result<Self, String> {
        let has = |n: &String| self.scenarios.iter().any(|(_, f)| f.scenario.name == *n);
        if let Some(unknown) = names.iter().find(|n| !has(n)) {
            return Err(format!("no scenario {unknown:?} in {}", self.name));
        }
        if !names.is_empty() {
            self.scenarios
                .retain(|(_, f)| names.contains(&f.scenario.name));
        }
        Ok(self)
    }

    /// With the parameters of strategies that a file has, which go before those of suite and scenarios: what a scenario has under `[strategies]`.
    pub fn parameters(&mut self, path: &Path) -> anyhow::Result<()> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let of: Parameters = config::read(&path.display().to_string(), &text)?.0;
        self.words.strategies.extend(of.strategies);
        let name = path.file_name().unwrap_or_default();
        self.texts.push((name.to_string_lossy().into(), text));
        Ok(())
    }

    /// A strategy and the variants of it that the parameters have.
    pub fn variants_of(&self, name: &str) -> anyhow::Result<Vec<String>> {
        planner::find(name)?;
        let uses = |of: &Value| of.get("uses").and_then(Value::as_str) == Some(name);
        let variants = self.words.strategies.iter().filter(|(_, of)| uses(of));
        let mut names = vec![name.to_owned()];
        names.extend(variants.map(|(n, _)| n.clone()));
        if names.len() == 1 {
            bail!("--variants-of {name}: no parameter has `uses = \"{name}\"`");
        }
        Ok(names)
    }

    /// Adds the variants of `terrace` whose names begin with one of these (all, without any); the names, with the strategy itself first.
    pub fn variants(&mut self, only: &[String]) -> anyhow::Result<Vec<String>> {
        const OF: &str = <planner::strategies::Terrace as planner::Strategy>::NAME;
        let all = planner::strategies::TerraceConfig::variants();
        if let Some(unknown) = only
            .iter()
            .find(|o| !all.iter().any(|(n, _)| n.starts_with(*o)))
        {
            let names: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).collect();
            bail!(
                "--ablate {unknown}: no variant has a name that starts so; the variants are {}",
                names.join(", ")
            );
        }
        let mut names = vec![OF.to_owned()];
        for (name, mut parameters) in all {
            if only.is_empty() || only.iter().any(|o| name.starts_with(o)) {
                parameters["uses"] = json!(OF);
                self.words.strategies.insert(name.clone(), parameters);
                names.push(name);
            }
        }
        Ok(names)
    }

    /// A scenario as a seed draws it, with the suite's parameters of strategies.
    fn drawn(&self, file: &ScenarioFile, seed: u64) -> ScenarioFile {
        let none = BTreeSet::new();
        let fixed = self.words.fixed.get(&file.scenario.name).unwrap_or(&none);
        let mut drawn = draw(file, fixed, seed);
        drawn
            .scenario
            .strategies
            .extend(self.words.strategies.clone());
        drawn
    }

    /// Description of the suite for titles.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A scenario's name.
    pub fn scenario(&self, number: usize) -> &str {
        &self.scenarios[number].1.scenario.name
    }

    /// XXH3-64 of the text of every scenario, of the suite's own words and of parameters, by name.
    pub fn sources(&self) -> BTreeMap<String, String> {
        let scenarios = self.scenarios.iter().map(|(_, file)| {
            let name = file.scenario.name.clone();
            (name, file.source.text.as_str())
        });
        let texts = self.texts.iter();
        scenarios
            .chain(texts.map(|(name, text)| (name.clone(), text.as_str())))
            .map(|(name, text)| (name, format!("{:016x}", xxh3_64(text.as_bytes()))))
            .collect()
    }

    /// Strategies that it compares: all, where it does not say.
    pub fn strategies(&self) -> Vec<String> {
        match self.words.compare.is_empty() {
            true => planner::REGISTRY
                .iter()
                .rev()
                .map(|e| e.name.to_owned())
                .collect(),
            false => self.words.compare.clone(),
        }
    }
}

pub struct BenchRequest {
    /// The first is the one that the others are rivals of.
    pub strategies: Vec<String>,
    pub seeds: Vec<u64>,
    /// Candidates of the search in hindsight.
    pub candidates: u32,
    /// Compare with the best plans in hindsight that are known or found.
    pub hindsight: bool,
    /// Strategies that are run again.
    pub again: Vec<String>,
    /// Source of all strategies.
    pub source: ByName,
}

/// Kept outcome of a strategy in a case.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum KeptRun {
    /// Its run.
    Run(Box<RunCell>),
    /// Reason that the strategy cannot run there.
    Unsuited {
        /// Reason.
        unsuited: String,
    },
}

/// What is kept of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunCell {
    judged: RunMetrics,
    /// Where its volumes were to be, and by volume the weighted seconds missed: where the search begins.
    path: decisions::Path,
    violated: Vec<f64>,
}

/// Scenario and seed of a result.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    pub scenario: String,
    pub seed: u64,
}

/// One scenario of one seed.
pub struct Case {
    pub scenario: usize,
    pub seed: u64,
    file: ScenarioFile,
    loaded: LoadedScenario,
    /// What its volumes ask for, found out when it is first needed.
    offered: OfferedLoads,
    /// Run under `noop` and latencies of volumes there, found out when they are first needed.
    baseline: OnceLock<Result<(RunResult, Baseline), String>>,
}

const OPTIONS: RunOptions = RunOptions {
    series: false,
    decisions: false,
    optimum: None,
};

/// Runs what is missing, and puts all side by side. Better plans in hindsight than those that are known are added to them.
pub fn run_suite(
    suite: &Suite,
    asked: &BenchRequest,
    known: &mut KnownPlans,
    cells: &Cells,
) -> anyhow::Result<Comparison> {
    let cases = cases(suite, &asked.seeds)?;
    let tasks = (0..cases.len())
        .flat_map(|c| asked.strategies.iter().map(move |s| (c, s)))
        .map(|(c, strategy)| task(suite, &cases[c], strategy, asked, (c, strategy)));
    let tasks: Vec<Task<(usize, &String)>> = tasks.collect::<anyhow::Result<_>>()?;
    let runs = cells::run_tasks(cells, "runs", &tasks, |(c, strategy)| {
        one_run(&cases[*c], strategy, asked)
    })?;
    let mut of_case: Vec<BTreeMap<String, RunCell>> =
        cases.iter().map(|_| BTreeMap::new()).collect();
    let mut unsuited = BTreeMap::new();
    for (task, run) in tasks.iter().zip(runs) {
        let (case, strategy) = task.item;
        match run {
            KeptRun::Run(run) => _ = of_case[case].insert(strategy.clone(), *run),
            KeptRun::Unsuited { unsuited: why } => {
                _ = unsuited
                    .entry((strategy.clone(), why))
                    .or_insert(cases[case].scenario)
            }
        }
    }
    for ((strategy, why), scenario) in unsuited {
        let name = &suite.scenarios[scenario].1.scenario.name;
        message(&format!(
            "{strategy} is left out where it cannot run, as in {name}: {why}"
        ));
    }
    let found: Vec<Option<Hindsight>> = match (asked.hindsight, asked.candidates) {
        (false, _) => vec![None; cases.len()],
        (true, 0) => {
            let best = cases.iter().map(|case| best_known(suite, case, known));
            best.collect::<anyhow::Result<_>>()?
        }
        (true, _) => {
            let tasks = cases.iter().map(|case| {
                let start = Start::of(suite, case, asked, known, cells)?;
                let what = json!([
                    "hindsight",
                    asked.candidates,
                    start.runs.keys().collect::<Vec<_>>(),
                    start.plans
                ]);
                Ok(Task {
                    name: case.identity(what),
                    item: (case, start),
                    again: false,
                    of: case.part(suite),
                })
            });
            let tasks: Vec<Task<_>> = tasks.collect::<anyhow::Result<_>>()?;
            let search = |(case, start): &(&Case, Start)| one_search(case, start, asked.candidates);
            let found = cells::run_tasks(cells, "searches in hindsight", &tasks, search)?;
            found.into_iter().map(Some).collect()
        }
    };
    for (case, found) in cases.iter().zip(&found) {
        if let Some(found) = found.as_ref().filter(|f| f.candidates > 0) {
            let plan = KnownPlan::of(&found.path, found.score);
            let name = suite.scenario(case.scenario);
            known.lower(name, case.seed, &case.source(), plan, found.candidates)?;
        }
    }
    let rows: Vec<_> = suite
        .scenarios
        .iter()
        .enumerate()
        .map(|(s, (_, file))| {
            let own: Vec<usize> = (0..cases.len())
                .filter(|i| cases[*i].scenario == s)
                .collect();
            let runs = asked.strategies.iter().map(|name| {
                let of_seed = |i: &usize| of_case[*i].get(name).map(|r| r.judged.clone());
                (name.clone(), own.iter().map(of_seed).collect())
            });
            let hindsight = own.iter().map(|i| found[*i].clone()).collect();
            (file.scenario.name.clone(), runs.collect(), hindsight)
        })
        .collect();
    let own = asked.strategies.first().cloned().unwrap_or_default();
    Ok(compare(
        &suite.name,
        &own,
        &asked.strategies,
        &asked.seeds,
        &suite.words.guards,
        &rows,
    ))
}

/// Keeps what the first strategy does in every case as the plans of a frozen version.
pub fn freeze(
    suite: &Suite,
    asked: &BenchRequest,
    known: &mut KnownPlans,
    cells: &Cells,
) -> anyhow::Result<usize> {
    let cases = cases(suite, &asked.seeds)?;
    let strategy = asked.strategies.first().context("no strategy is named")?;
    let tasks = cases
        .iter()
        .map(|case| task(suite, case, strategy, asked, case));
    let tasks: Vec<Task<&Case>> = tasks.collect::<anyhow::Result<_>>()?;
    let work = |case: &&Case| one_run(case, strategy, asked);
    let runs = cells::run_tasks(cells, "runs", &tasks, work)?;
    for (case, run) in cases.iter().zip(runs) {
        let name = suite.scenario(case.scenario);
        let run = match run {
            KeptRun::Run(run) => run,
            KeptRun::Unsuited { unsuited: why } => bail!("{strategy} cannot run {name}: {why}"),
        };
        let plan = KnownPlan::of(&run.path, Score::of(&run.judged));
        known.freeze(name, case.seed, &case.source(), plan)?;
    }
    Ok(cases.len())
}

/// Writes every scenario as every seed draws it. Files that they name are named as from their own directory.
pub fn save_suite(suite: &Suite, seeds: &[u64], dir: &Path) -> anyhow::Result<usize> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut written = 0;
    for (path, file) in &suite.scenarios {
        for seed in seeds {
            let mut scenario = suite.drawn(file, *seed).scenario;
            let base = path.parent().unwrap_or(Path::new("."));
            let from_here = |name: &String| -> anyhow::Result<String> {
                let found = base.join(name);
                let full = found
                    .canonicalize()
                    .with_context(|| format!("cannot find {}", found.display()))?;
                Ok(full.display().to_string())
            };
            for t in &mut scenario.traces {
                t.file = from_here(&t.file)?;
            }
            for m in &mut scenario.measurements {
                m.file = from_here(&m.file)?;
            }
            scenario.requires = None;
            let to = dir.join(format!("{}-{seed}.toml", file.scenario.name));
            let text = toml_edit::ser::to_string_pretty(&scenario)
                .with_context(|| format!("cannot write {}", to.display()))?;
            fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
            written += 1;
        }
    }
    Ok(written)
}

/// Every scenario as every seed draws it, all built before anything runs.
pub fn cases(suite: &Suite, seeds: &[u64]) -> anyhow::Result<Vec<Case>> {
    let mut inputs = Inputs::default();
    let mut cases = vec![];
    for (i, (path, file)) in suite.scenarios.iter().enumerate() {
        inputs.read(path, file)?;
        for seed in seeds {
            let drawn = suite.drawn(file, *seed);
            let loaded = inputs.build(path, &drawn)?;
            cases.push(Case {
                scenario: i,
                seed: *seed,
                file: drawn,
                loaded,
                offered: OfferedLoads::default(),
                baseline: OnceLock::new(),
            });
        }
    }
    Ok(cases)
}

impl Case {
    /// Name of a stored result: a hash of the inputs of this case and of the kind of result.
    fn identity(&self, what: Value) -> String {
        let volumes = self.loaded.traces.iter().map(|t| &t.volumes_xxh3);
        let volumes: Vec<&String> = volumes.collect();
        cells::name(&json!([CELL_SCHEMA, self.inputs(), volumes, what]))
    }

    /// Hash of the scenario as the seed draws it, with its traces and measurements.
    fn source(&self) -> String {
        cells::name(&self.inputs())
    }

    fn inputs(&self) -> Value {
        let mut scenario = self.file.scenario.clone();
        scenario.strategies.clear();
        (scenario.compare, scenario.strategy) = (vec![], String::new());
        (scenario.name, scenario.about) = (String::new(), String::new());
        let traces: Vec<&String> = self.loaded.traces.iter().map(|t| &t.xxh3).collect();
        json!([scenario, traces, self.loaded.measurements])
    }

    pub fn model(&self) -> &Model {
        &self.loaded.model
    }

    /// Scenario and seed, for messages.
    fn label(&self) -> String {
        format!("{}, seed {}", self.file.scenario.name, self.seed)
    }

    /// Name of the stored outcome of a strategy.
    fn run_name(&self, asked: &BenchRequest, strategy: &str) -> anyhow::Result<String> {
        let uses = match is_python(strategy) {
            true => asked.source.identity(&self.file, strategy)?,
            false => self.file.parameters(strategy)?,
        };
        Ok(self.identity(json!(["run", uses])))
    }

    /// Part of the suite that this is, for a process that computes one of its results.
    fn part(&self, suite: &Suite) -> Value {
        json!(Part {
            scenario: suite.scenario(self.scenario).into(),
            seed: self.seed,
        })
    }

    /// A strategy with its parameters in this scenario.
    pub fn strategy(
        &self,
        source: &ByName,
        name: &str,
    ) -> anyhow::Result<Box<dyn planner::AnyStrategy>> {
        source.build(&self.file, name)
    }

    fn manifest(&self, strategy: &str) -> Manifest {
        jobs::manifest(&self.file, self.model(), strategy, &self.loaded.traces, 0)
    }

    pub fn simulate(
        &self,
        strategy: Box<dyn planner::AnyStrategy>,
        name: &str,
    ) -> anyhow::Result<RunResult> {
        let manifest = self.manifest(name);
        Ok(sim::run(
            self.model(),
            strategy,
            manifest,
            OPTIONS,
            &mut |_| {},
        )?)
    }

    /// The same, with latencies of volumes over time.
    fn simulate_with_intervals(
        &self,
        strategy: Box<dyn planner::AnyStrategy>,
        name: &str,
    ) -> anyhow::Result<(RunResult, Intervals)> {
        let manifest = self.manifest(name);
        Ok(sim::run_with_intervals(
            self.model(),
            strategy,
            manifest,
            OPTIONS,
        )?)
    }

    /// Run and latencies under `noop`, the reference of harm.
    fn baseline(&self) -> anyhow::Result<&(RunResult, Baseline)> {
        let run = || {
            let noop = planner::build(NOOP, Value::Null).map_err(|why| why.to_string())?;
            let run = self.simulate_with_intervals(noop, NOOP);
            run.map(|(run, intervals)| (run, Baseline::new(intervals)))
                .map_err(|why| format!("{why:#}"))
        };
        let baseline = self.baseline.get_or_init(run).as_ref();
        baseline.map_err(|why| anyhow::anyhow!("cannot run noop: {why}"))
    }
}

/// Migration epochs in which something can be decided.
fn epochs(model: &Model) -> usize {
    (model.duration.0 / model.policy.epochs.migration.0.max(1)).max(1) as usize
}

/// Task of a strategy in a case.
fn task<T>(
    suite: &Suite,
    case: &Case,
    strategy: &String,
    asked: &BenchRequest,
    item: T,
) -> anyhow::Result<Task<T>> {
    Ok(Task {
        item,
        name: case.run_name(asked, strategy)?,
        again: asked.again.contains(strategy),
        of: case.part(suite),
    })
}

/// A run; or why the strategy cannot run there.
fn one_run(case: &Case, strategy: &str, asked: &BenchRequest) -> anyhow::Result<KeptRun> {
    let python = is_python(strategy);
    let unsuited = |why: String| Ok(KeptRun::Unsuited { unsuited: why });
    let built = match case.strategy(&asked.source, strategy) {
        Ok(built) => built,
        Err(why) if python => return Err(why),
        Err(why) => return unsuited(why.to_string()),
    };
    let model = &case.loaded.model;
    let (run, harm) = match strategy == NOOP {
        true => {
            let (run, baseline) = case.baseline()?;
            (run.clone(), baseline.of_noop(model))
        }
        false => match case.simulate_with_intervals(built, strategy) {
            Ok((run, intervals)) => (run, case.baseline()?.1.harm(model, &intervals)),
            Err(why) if python => return Err(why.context(case.label())),
            Err(why) => return unsuited(format!("{why:#}")),
        },
    };
    let mut judged = judge(model, &run, &case.offered);
    judged.harm = harm;
    Ok(KeptRun::Run(Box::new(RunCell {
        judged,
        path: path_of(model, &run, epochs(model)),
        violated: violated(model, &run),
    })))
}

/// Score of the best plan in hindsight that is known for a case.
fn best_known(suite: &Suite, case: &Case, known: &KnownPlans) -> anyhow::Result<Option<Hindsight>> {
    let name = suite.scenario(case.scenario);
    let known = known.find(name, case.seed, &case.source())?;
    Ok(known.and_then(|k| k.least()).map(|score| Hindsight {
        score,
        path: vec![],
        candidates: 0,
        improvements: 0,
        solo: None,
    }))
}

/// Plans from which a search begins: those of the rivals, of the frozen version, and the best known one. Runs of the strategy that is judged
/// are not used.
struct Start {
    runs: BTreeMap<String, RunCell>,
    plans: Vec<KnownPlan>,
}

impl Start {
    /// Reads the stored runs of the rivals, because a process that computes one search has made none.
    fn of(
        suite: &Suite,
        case: &Case,
        asked: &BenchRequest,
        known: &KnownPlans,
        cells: &Cells,
    ) -> anyhow::Result<Self> {
        let name = suite.scenario(case.scenario);
        let known = known.find(name, case.seed, &case.source())?;
        let plans = known.iter().flat_map(|k| k.frozen.iter().chain(&k.best));
        let mut runs = BTreeMap::new();
        for rival in asked.strategies.iter().skip(1) {
            let kept = cells.find::<KeptRun>(&case.run_name(asked, rival)?);
            if let Some((KeptRun::Run(run), _)) = kept {
                runs.insert(rival.clone(), *run);
            }
        }
        Ok(Self {
            runs,
            plans: plans.cloned().collect(),
        })
    }
}

/// Searches for the best plan in hindsight.
fn one_search(case: &Case, start: &Start, candidates: u32) -> anyhow::Result<Hindsight> {
    let model = &case.loaded.model;
    let given = start.runs.values().map(|run| {
        let score = Score::of(&run.judged);
        (run.path.clone(), score, run.violated.clone())
    });
    let mut given: Vec<_> = given.collect();
    let try_path = |path: &decisions::Path| -> anyhow::Result<(Score, Vec<f64>)> {
        let run = case.simulate(Box::new(Script::of(model, path)), "hindsight")?;
        let judged = judge(model, &run, &OfferedLoads::none());
        Ok((Score::of(&judged), violated(model, &run)))
    };
    for plan in &start.plans {
        // Moves of parts are in its score and not in its path: it counts as the better of the two.
        let path = plan.path()?;
        let (score, violated) = try_path(&path)?;
        let least = match plan.score.value() < score.value() {
            true => plan.score,
            false => score,
        };
        given.push((path, least, violated));
    }
    if given.is_empty() {
        let home = |v: &sim::VolumeModel| vec![model.topology.tier_of(v.device); epochs(model)];
        let stay: decisions::Path = model.volumes.iter().map(home).collect();
        let (score, violated) = try_path(&stay)?;
        given.push((stay, score, violated));
    }
    let how = Search {
        candidates,
        seed: case.seed,
    };
    let tiers = model.topology.tiers.len();
    let (path, score, improvements) = search(how, tiers, given, try_path)?;
    Ok(Hindsight {
        score,
        path,
        candidates,
        improvements,
        solo: Some(solo_violation(model)?),
    })
}
