//! A suite of scenarios, and its runs: found on disk or made, as many at once as there are cores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, bail};
use decisions::{
    Comparison, Fixed, Hindsight, Judged, Offered, Score, Script, Search, compare, draw, generate,
    judge, path_of, search, solo_violation, violated,
};
use runner::jobs;
use runner::progress::StepBar;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sim::{Model, RunOptions, RunResult, ScenarioFile};
use xxhash_rust::xxh3::xxh3_64;

use crate::inputs::{Inputs, Loaded};
use crate::live::message;
use crate::sim_cmd::missing_requirement;
use runner::cells::{self, Cells};

/// Name and version of what is kept.
const CELL_SCHEMA: &str = "terrace.bench.cell/3";
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
        if let Some(unknown) = words
            .fixed
            .keys()
            .find(|k| !dir.join(format!("{k}.toml")).exists())
        {
            bail!(
                "{}: fixed.{unknown}: no scenario has this name",
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
struct Case {
    scenario: usize,
    seed: u64,
    file: ScenarioFile,
    loaded: Loaded,
    /// What its volumes ask for, found out when it is first needed.
    offered: OnceLock<Offered>,
}

const OPTIONS: RunOptions = RunOptions {
    series: false,
    decisions: false,
    optimum: None,
};

/// Runs what is missing, and puts all side by side.
pub fn run_suite(suite: &Suite, asked: &Asked, cells: &Cells) -> anyhow::Result<Comparison> {
    let cases = cases(suite, asked)?;
    let jobs: Vec<(usize, &String)> = (0..cases.len())
        .flat_map(|c| asked.strategies.iter().map(move |s| (c, s)))
        .collect();
    let bar = StepBar::new("runs", jobs.len() as u64);
    let runs = jobs::with_events(
        &jobs,
        |(case, strategy), say: &mut dyn FnMut(())| {
            let run = one_run(&cases[*case], strategy, asked, cells);
            say(());
            run
        },
        |_, ()| bar.step(),
    );
    drop(bar);
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
    let bar = StepBar::new("searches in hindsight", cases.len() as u64);
    let numbers: Vec<usize> = (0..cases.len()).collect();
    let found = jobs::with_events(
        &numbers,
        |i, say: &mut dyn FnMut(())| {
            let found = match asked.candidates {
                0 => Ok(None),
                n => one_search(&cases[*i], &of_case[*i], asked, n, cells).map(Some),
            };
            say(());
            found
        },
        |_, ()| bar.step(),
    );
    drop(bar);
    let found: Vec<Option<Hindsight>> = found.into_iter().collect::<anyhow::Result<_>>()?;
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
        &rows,
    ))
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
fn cases(suite: &Suite, asked: &Asked) -> anyhow::Result<Vec<Case>> {
    let mut inputs = Inputs::default();
    let mut cases = vec![];
    for (i, (path, file)) in suite.scenarios.iter().enumerate() {
        inputs.read(path, file)?;
        for seed in &asked.seeds {
            let drawn = suite.drawn(file, *seed);
            let loaded = inputs.build(path, &drawn)?;
            cases.push(Case {
                scenario: i,
                seed: *seed,
                file: drawn,
                loaded,
                offered: OnceLock::new(),
            });
        }
    }
    Ok(cases)
}

impl Case {
    /// What every run of it depends on.
    fn identity(&self, what: Value) -> String {
        let mut scenario = self.file.scenario.clone();
        scenario.strategies.clear();
        (scenario.compare, scenario.strategy) = (vec![], String::new());
        (scenario.name, scenario.about) = (String::new(), String::new());
        let traces: Vec<&String> = self.loaded.traces.iter().map(|t| &t.xxh3).collect();
        let identity = json!([
            CELL_SCHEMA,
            scenario,
            traces,
            self.loaded.measurements,
            what
        ]);
        cells::name(&identity)
    }

    fn simulate(
        &self,
        strategy: Box<dyn planner::AnyStrategy>,
        name: &str,
    ) -> anyhow::Result<RunResult> {
        let (file, model) = (&self.file, &self.loaded.model);
        let manifest = jobs::manifest(file, model, name, &self.loaded.traces, 0);
        Ok(sim::run(model, strategy, manifest, OPTIONS, &mut |_| {})?)
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
    let run = match case.simulate(built, strategy) {
        Ok(run) => run,
        Err(why) => return Ok(Err(format!("{why:#}"))),
    };
    let offered = case.offered.get_or_init(|| Offered::of(model));
    let kept = RunCell {
        judged: judge(model, &run, offered),
        path: path_of(model, &run, epochs(model)),
        violated: violated(model, &run),
    };
    cells.write(&name, &kept, started.elapsed().as_secs_f64())?;
    Ok(Ok(kept))
}

/// A search in hindsight, which begins with what the rivals did.
fn one_search(
    case: &Case,
    runs: &BTreeMap<String, RunCell>,
    asked: &Asked,
    candidates: u32,
    cells: &Cells,
) -> anyhow::Result<Hindsight> {
    let model = &case.loaded.model;
    let own = asked.strategies.first();
    let rivals: Vec<&String> = runs.keys().filter(|s| Some(*s) != own).collect();
    let name = case.identity(json!(["hindsight", candidates, rivals]));
    if let Some((kept, _)) = cells.find(&name) {
        return Ok(kept);
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
    let (score, improvements) = search(how, tiers, given, try_path)?;
    let found = Hindsight {
        score,
        candidates,
        improvements,
        solo: solo_violation(model)?,
    };
    cells.write(&name, &found, started.elapsed().as_secs_f64())?;
    Ok(found)
}
