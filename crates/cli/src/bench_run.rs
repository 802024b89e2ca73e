//! A suite of scenarios, and its runs: found on disk or made, as many at once as there are cores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use decisions::{
    Baseline, Comparison, Fixed, Hindsight, Judged, Known, KnownPlan, Offered, Score, Script,
    Search, compare, draw, fresh_numbers, generate, judge, path_of, search, solo_violation,
    violated,
};
use planner::NOOP;
use runner::jobs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sim::{Intervals, Manifest, Model, RunOptions, RunResult, ScenarioFile};
use xxhash_rust::xxh3::xxh3_64;

use crate::live::message;
use crate::sim_cmd::missing_requirement;
use runner::cells::{self, Cells};
use runner::inputs::{Inputs, Loaded};

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
    fixed: BTreeMap<String, BTreeSet<Fixed>>,
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
        let all = [Fixed::Class, Fixed::Place, Fixed::Phase, Fixed::Rate];
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

pub struct Asked {
    /// The first is the one that the others are rivals of.
    pub strategies: Vec<String>,
    pub seeds: Vec<u64>,
    /// Candidates of the search in hindsight.
    pub candidates: u32,
    /// Compare with the best plans in hindsight that are known or found.
    pub hindsight: bool,
    /// Strategies that are run again.
    pub again: Vec<String>,
}

/// What is kept of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunCell {
    judged: Judged,
    /// Where its volumes were to be, and by volume the weighted seconds missed: where the search begins.
    path: decisions::Path,
    violated: Vec<f64>,
}

/// One scenario of one seed.
pub struct Case {
    pub scenario: usize,
    pub seed: u64,
    file: ScenarioFile,
    loaded: Loaded,
    /// What its volumes ask for, found out when it is first needed.
    offered: Offered,
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
    asked: &Asked,
    known: &mut Known,
    cells: &Cells,
) -> anyhow::Result<Comparison> {
    let cases = cases(suite, &asked.seeds)?;
    let jobs: Vec<(usize, &String)> = (0..cases.len())
        .flat_map(|c| asked.strategies.iter().map(move |s| (c, s)))
        .collect();
    let runs = jobs::with_bar("runs", &jobs, |(case, strategy)| {
        one_run(&cases[*case], strategy, asked, cells)
    });
    let mut of_case: Vec<BTreeMap<String, RunCell>> =
        cases.iter().map(|_| BTreeMap::new()).collect();
    let mut unsuited = BTreeMap::new();
    for ((case, strategy), run) in jobs.iter().zip(runs) {
        match run? {
            Ok(run) => _ = of_case[*case].insert((*strategy).clone(), run),
            Err(why) => {
                _ = unsuited
                    .entry(((*strategy).clone(), why))
                    .or_insert(cases[*case].scenario)
            }
        }
    }
    for ((strategy, why), scenario) in unsuited {
        let name = &suite.scenarios[scenario].1.scenario.name;
        message(&format!(
            "{strategy} is left out where it cannot run, as in {name}: {why}"
        ));
    }
    let found: Vec<Option<Hindsight>> = match asked.hindsight {
        true => {
            let with_runs: Vec<_> = cases.iter().zip(&of_case).collect();
            let found = jobs::with_bar("searches in hindsight", &with_runs, |(case, runs)| {
                let name = suite.scenario(case.scenario);
                one_search(case, name, runs, asked, known, cells)
            });
            found.into_iter().collect::<anyhow::Result<_>>()?
        }
        false => vec![None; cases.len()],
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
    asked: &Asked,
    known: &mut Known,
    cells: &Cells,
) -> anyhow::Result<usize> {
    let cases = cases(suite, &asked.seeds)?;
    let strategy = asked.strategies.first().context("no strategy is named")?;
    let runs = jobs::with_bar("runs", &cases, |case| one_run(case, strategy, asked, cells));
    for (case, run) in cases.iter().zip(runs) {
        let name = suite.scenario(case.scenario);
        let run = run?.map_err(|why| anyhow::anyhow!("{strategy} cannot run {name}: {why}"))?;
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
                offered: Offered::default(),
                baseline: OnceLock::new(),
            });
        }
    }
    Ok(cases)
}

impl Case {
    /// Name of a stored result: a hash of the inputs of this case and of the kind of result.
    fn identity(&self, what: Value) -> String {
        cells::name(&json!([CELL_SCHEMA, self.inputs(), what]))
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

    /// A strategy with its parameters in this scenario.
    pub fn strategy(&self, name: &str) -> anyhow::Result<Box<dyn planner::AnyStrategy>> {
        Ok(self.file.strategy(name)?)
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

/// A run; or why the strategy cannot run there. An error if it cannot be kept.
fn one_run(
    case: &Case,
    strategy: &str,
    asked: &Asked,
    cells: &Cells,
) -> anyhow::Result<Result<RunCell, String>> {
    let parameters = case.file.parameters(strategy)?;
    let name = case.identity(json!(["run", parameters]));
    if !asked.again.iter().any(|a| a == strategy)
        && let Some((kept, _)) = cells.find(&name)
    {
        return Ok(Ok(kept));
    }
    let built = match case.file.strategy(strategy) {
        Ok(built) => built,
        Err(why) => return Ok(Err(why.to_string())),
    };
    let started = std::time::Instant::now();
    let model = &case.loaded.model;
    let (run, harm) = match strategy == NOOP {
        true => {
            let (run, baseline) = case.baseline()?;
            (run.clone(), baseline.of_noop(model))
        }
        false => match case.simulate_with_intervals(built, strategy) {
            Ok((run, intervals)) => (run, case.baseline()?.1.harm(model, &intervals)),
            Err(why) => return Ok(Err(format!("{why:#}"))),
        },
    };
    let mut judged = judge(model, &run, &case.offered);
    judged.harm = harm;
    let kept = RunCell {
        judged,
        path: path_of(model, &run, epochs(model)),
        violated: violated(model, &run),
    };
    cells.write(&name, &kept, started.elapsed().as_secs_f64())?;
    Ok(Ok(kept))
}

/// The best plan in hindsight: what is known, or what a search finds that begins with what the rivals, the frozen version and the best known
/// plan did. Runs of the strategy that is judged are not used. None where nothing is known and nothing is searched.
fn one_search(
    case: &Case,
    scenario: &str,
    runs: &BTreeMap<String, RunCell>,
    asked: &Asked,
    known: &Known,
    cells: &Cells,
) -> anyhow::Result<Option<Hindsight>> {
    let model = &case.loaded.model;
    let known = known.find(scenario, case.seed, &case.source())?;
    let plans: Vec<&KnownPlan> = known
        .iter()
        .flat_map(|k| k.frozen.iter().chain(&k.best))
        .collect();
    if asked.candidates == 0 {
        return Ok(known.and_then(|k| k.least()).map(|score| Hindsight {
            score,
            path: vec![],
            candidates: 0,
            improvements: 0,
            solo: None,
        }));
    }
    let own = asked.strategies.first();
    let rivals: Vec<&String> = runs.keys().filter(|s| Some(*s) != own).collect();
    let name = case.identity(json!(["hindsight", asked.candidates, rivals, plans]));
    if let Some((kept, _)) = cells.find(&name) {
        return Ok(Some(kept));
    }
    let started = std::time::Instant::now();
    let mut given: Vec<_> = rivals
        .iter()
        .map(|s| {
            let run = &runs[*s];
            (
                run.path.clone(),
                Score::of(&run.judged),
                run.violated.clone(),
            )
        })
        .collect();
    let try_path = |path: &decisions::Path| -> anyhow::Result<(Score, Vec<f64>)> {
        let run = case.simulate(Box::new(Script::of(model, path)), "hindsight")?;
        let judged = judge(model, &run, &Offered::none());
        Ok((Score::of(&judged), violated(model, &run)))
    };
    for plan in plans {
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
        candidates: asked.candidates,
        seed: case.seed,
    };
    let tiers = model.topology.tiers.len();
    let (path, score, improvements) = search(how, tiers, given, try_path)?;
    let found = Hindsight {
        score,
        path,
        candidates: asked.candidates,
        improvements,
        solo: Some(solo_violation(model)?),
    };
    cells.write(&name, &found, started.elapsed().as_secs_f64())?;
    Ok(Some(found))
}
