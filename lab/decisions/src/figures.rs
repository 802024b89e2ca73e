//! Stored figures of a comparison: the source of the page of results, with hashes that show whether they are current.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::DecisionsError;
use crate::compare::{Comparison, RatioInterval, ScenarioRow, StrategyTotals};

/// Name and version of the layout of [`Figures`].
pub const FIGURES_SCHEMA: &str = "terrace.bench.figures/2";

/// A comparison without what nobody needs to know later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// [`FIGURES_SCHEMA`].
    pub schema: String,
    /// Version of the program.
    pub version: String,
    /// The command that makes them anew.
    pub command: String,
    /// The suite.
    pub suite: String,
    /// Hash of the commit that fresh arrays were drawn from, where they were.
    pub commit: Option<String>,
    /// XXH3-64 of the files that it was read from, or of the random arrays, by name; SHA-256 of strategies in Python.
    pub sources: BTreeMap<String, String>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// The strategy that the others are rivals of.
    pub own: String,
    /// By strategy.
    pub totals: Vec<StrategyTotals>,
    /// By scenario.
    pub scenarios: Vec<ScenarioFigures>,
}

/// A scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFigures {
    /// Its name.
    pub scenario: String,
    /// True for a guard: no move improves anything.
    pub guard: bool,
    /// The rival with the lowest mean V.
    pub rival: String,
    /// The same of rivals that meet the harm bound.
    pub rival_bounded: Option<String>,
    /// V of the best known plan in hindsight, mean over seeds.
    pub hindsight: Option<f64>,
    /// By strategy.
    pub strategies: Vec<StrategyFigures>,
}

/// A strategy on one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrategyFigures {
    /// Its name.
    pub strategy: String,
    /// (V+ε)/(B+ε); none for B itself.
    pub ratio: Option<RatioInterval>,
    /// V by seed.
    pub violation: Vec<f64>,
    /// Capped excess by seed: what differs at all differs here.
    pub excess: Vec<f64>,
    /// Moves begun, by seed.
    pub moves: Vec<u64>,
    /// Bytes copied, by seed.
    pub bytes: Vec<u64>,
}

/// Inputs that the rules of the placement contest prescribe.
#[derive(Debug, Clone, PartialEq)]
pub struct ContestRules {
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Rivals of a submission.
    pub rivals: Vec<String>,
    /// Hashes of scenarios and parameters by name, as [`Figures::sources`] has them.
    pub sources: BTreeMap<String, String>,
}

impl ScenarioFigures {
    /// A strategy's, if it ran there.
    pub fn of(&self, strategy: &str) -> Option<&StrategyFigures> {
        self.strategies.iter().find(|s| s.strategy == strategy)
    }
}

impl Figures {
    /// Of a comparison that `command` made.
    ///
    /// # Errors
    /// [`DecisionsError::MissingRuns`] with the scenario and the strategy where a seed is missing.
    pub fn of(
        c: &Comparison,
        command: String,
        commit: Option<String>,
        sources: BTreeMap<String, String>,
    ) -> Result<Self, DecisionsError> {
        let scenario = |row: &ScenarioRow| -> Result<ScenarioFigures, DecisionsError> {
            let mut strategies = vec![];
            for s in &row.strategies {
                if s.runs.len() != c.seeds.len() {
                    return Err(DecisionsError::MissingRuns {
                        scenario: row.scenario.clone(),
                        strategy: s.strategy.clone(),
                        runs: s.runs.len(),
                        seeds: c.seeds.len(),
                    });
                }
                strategies.push(StrategyFigures {
                    strategy: s.strategy.clone(),
                    ratio: s.ratio,
                    violation: s.runs.iter().map(|r| r.violation).collect(),
                    excess: s.runs.iter().map(|r| r.excess).collect(),
                    moves: s.runs.iter().map(|r| r.moves).collect(),
                    bytes: s.runs.iter().map(|r| r.bytes).collect(),
                });
            }
            Ok(ScenarioFigures {
                scenario: row.scenario.clone(),
                guard: row.guard,
                rival: row.rival.clone(),
                rival_bounded: row.rival_bounded.clone(),
                hindsight: row.hindsight,
                strategies,
            })
        };
        Ok(Self {
            schema: FIGURES_SCHEMA.into(),
            version: c.version.clone(),
            command,
            suite: c.suite.clone(),
            commit,
            sources,
            seeds: c.seeds.clone(),
            own: c.own.clone(),
            totals: c.totals.clone(),
            scenarios: c.scenarios.iter().map(scenario).collect::<Result<_, _>>()?,
        })
    }

    /// As they are kept: JSON, a line for each strategy of each scenario.
    ///
    /// # Errors
    /// What `serde_json` cannot write, which figures do not have.
    pub fn json(&self) -> serde_json::Result<String> {
        // Within a string a quote is escaped: these are beginnings of objects.
        let text = serde_json::to_string(self)?
            .replace("{\"scenario\":", "\n{\"scenario\":")
            .replace("{\"strategy\":", "\n{\"strategy\":");
        Ok(text + "\n")
    }

    /// Reads what [`Figures::json`] wrote.
    ///
    /// # Errors
    /// [`DecisionsError::FiguresLayout`] and [`DecisionsError::FiguresSchema`].
    pub fn parse(text: &str) -> Result<Self, DecisionsError> {
        let read: Self = serde_json::from_str(text).map_err(DecisionsError::FiguresLayout)?;
        match read.schema.as_str() {
            FIGURES_SCHEMA => Ok(read),
            other => Err(DecisionsError::FiguresSchema {
                found: other.into(),
                known: FIGURES_SCHEMA,
            }),
        }
    }

    /// Deviations of the inputs of a submission from the rules, in words.
    pub fn deviations(&self, rules: &ContestRules) -> Vec<String> {
        let mut found = vec![];
        if self.seeds != rules.seeds {
            let (own, wanted) = (&self.seeds, &rules.seeds);
            found.push(format!("the seeds are {own:?}, not {wanted:?}"));
        }
        let named = self.totals.iter().map(|t| &t.strategy);
        let rivals: BTreeSet<&String> = named.filter(|s| **s != self.own).collect();
        let wanted: BTreeSet<&String> = rules.rivals.iter().collect();
        let missing = wanted.difference(&rivals);
        found.extend(missing.map(|s| format!("the rival {s} is missing")));
        let other = rivals.difference(&wanted);
        found.extend(other.map(|s| format!("{s} is no rival of the contest")));
        for (name, hash) in &rules.sources {
            match self.sources.get(name) {
                Some(own) if own == hash => {}
                Some(own) => found.push(format!("{name} has the hash {own}, not {hash}")),
                None => found.push(format!("{name} is missing")),
            }
        }
        let other = self.sources.keys().filter(|name| **name != self.own);
        let other = other.filter(|name| !rules.sources.contains_key(*name));
        found.extend(other.map(|name| format!("{name} is not part of the contest")));
        found
    }

    /// Differences of results from those of a new run of the same comparison, in words. Version, command and the name of the suite do not
    /// count.
    pub fn differences(&self, new: &Self) -> Vec<String> {
        let compared = |of: &Self| {
            serde_json::json!({
                "commit": of.commit,
                "sources": of.sources,
                "seeds": of.seeds,
                "own": of.own,
                "totals": of.totals,
                "scenarios": of.scenarios,
            })
        };
        let mut found = vec![];
        differences("", &compared(self), &compared(new), &mut found);
        found
    }
}

/// Adds the differences of two values below the key `at`. Elements of lists are found by the name of their scenario or strategy.
fn differences(at: &str, given: &Value, new: &Value, found: &mut Vec<String>) {
    let below = |key: &str| match at {
        "" => key.to_owned(),
        at => format!("{at}.{key}"),
    };
    let keys: BTreeMap<String, (Option<&Value>, Option<&Value>)> = match (given, new) {
        (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)) => {
            let mut keys = BTreeMap::new();
            for (key, value) in elements(given) {
                keys.insert(key, (Some(value), None));
            }
            for (key, value) in elements(new) {
                keys.entry(key).or_insert((None, None)).1 = Some(value);
            }
            keys
        }
        _ if given == new => return,
        _ => {
            found.push(format!(
                "{at}: {given} in the results, {new} in the new run"
            ));
            return;
        }
    };
    for (key, values) in keys {
        match values {
            (Some(given), Some(new)) => differences(&below(&key), given, new, found),
            (Some(_), None) => found.push(format!("{}: not in the new run", below(&key))),
            (None, _) => found.push(format!("{}: not in the results", below(&key))),
        }
    }
}

/// Elements of an object or a list, with their keys.
fn elements(of: &Value) -> Vec<(String, &Value)> {
    let name = |v: &Value| {
        let name = v.get("scenario").or_else(|| v.get("strategy"));
        name.and_then(Value::as_str).map(str::to_owned)
    };
    match of {
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(list) => {
            let list = list.iter().enumerate();
            list.map(|(i, v)| (name(v).unwrap_or(i.to_string()), v))
                .collect()
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunMetrics, Runs, compare};

    fn of(runs: Vec<Option<RunMetrics>>) -> Result<Figures, DecisionsError> {
        let runs = Runs::from([("own".into(), runs.clone()), ("edt".into(), runs)]);
        let order = ["own".to_owned(), "edt".to_owned()];
        let scenarios = [("one".to_owned(), runs, vec![None, None])];
        let c = compare("s", "own", &order, &[1, 2], &Default::default(), &scenarios);
        Figures::of(&c, "terrace …".into(), None, BTreeMap::new())
    }

    #[test]
    fn manipulated_figures_differ_from_a_new_run() {
        let run = |violation| {
            Some(RunMetrics {
                violation,
                possible: 1000.0,
                ..RunMetrics::default()
            })
        };
        let new = of(vec![run(5.0), run(7.5)]).unwrap();
        assert_eq!(new.differences(&new), [""; 0]);
        let mut given = new.clone();
        (given.version, given.command) = ("other".into(), "other".into());
        assert_eq!(given.differences(&new), [""; 0]);
        given.scenarios[0].strategies[0].violation[1] = 7.0;
        given.sources.insert("one".into(), "0".into());
        assert_eq!(
            given.differences(&new),
            [
                "scenarios.one.strategies.own.violation.1: 7.0 in the results, 7.5 in the new run",
                "sources.one: not in the new run",
            ]
        );
        given = new.clone();
        given.scenarios.clear();
        assert_eq!(
            given.differences(&new),
            ["scenarios.one: not in the results"]
        );
    }

    #[test]
    fn reduced_submission_deviates_from_the_rules() {
        let run = Some(RunMetrics::default());
        let mut given = of(vec![run.clone(), run]).unwrap();
        let words = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let hashes = |names: &[&str]| words(names).into_iter().map(|n| (n.clone(), n)).collect();
        given.sources = hashes(&["own", "one", "rivals"]);
        let mut rules = ContestRules {
            seeds: vec![1, 2],
            rivals: words(&["edt"]),
            sources: hashes(&["one", "rivals"]),
        };
        assert_eq!(given.deviations(&rules), [""; 0]);
        rules = ContestRules {
            seeds: vec![1, 2, 3],
            rivals: words(&["idt"]),
            sources: hashes(&["one", "two"]),
        };
        rules.sources.insert("one".into(), "1".into());
        assert_eq!(
            given.deviations(&rules),
            [
                "the seeds are [1, 2], not [1, 2, 3]",
                "the rival idt is missing",
                "edt is no rival of the contest",
                "one has the hash one, not 1",
                "two is missing",
                "rivals is not part of the contest",
            ]
        );
    }

    #[test]
    fn figures_round_trip() {
        let run = |violation| {
            Some(RunMetrics {
                violation,
                possible: 1000.0,
                moves: 3,
                ..RunMetrics::default()
            })
        };
        let figures = of(vec![run(0.1 + 0.2), run(1.0 / 3.0)]).unwrap();
        let text = figures.json().unwrap();
        assert_eq!(Figures::parse(&text).unwrap(), figures);
        assert!(text.contains("\n{\"strategy\":\"edt\",\"ratio\":null,\"violation\":[0.30000000000000004,0.3333333333333333],\"excess\":[0.0,0.0],\"moves\":[3,3],\"bytes\":[0,0]}"));
        let other = text.replace(FIGURES_SCHEMA, "other/1");
        let other = Figures::parse(&other).unwrap_err().to_string();
        assert!(other.contains("other/1"));
        let why = of(vec![run(1.0), None]).unwrap_err();
        assert_eq!(why.to_string(), "one: own has runs for 1 of 2 seeds");
    }
}
