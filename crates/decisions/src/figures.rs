//! Stored figures of a comparison: the source of the page of results, with hashes that show whether they are current.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// XXH3-64 of the files that it was read from, or of the random arrays, by name.
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
    /// The scenario and the strategy where a seed is missing, since a run failed: numbers by seed would be of other seeds.
    pub fn of(
        c: &Comparison,
        command: String,
        commit: Option<String>,
        sources: BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let scenario = |row: &ScenarioRow| -> Result<ScenarioFigures, String> {
            let mut strategies = vec![];
            for s in &row.strategies {
                if s.runs.len() != c.seeds.len() {
                    return Err(format!(
                        "{}: {} has runs for {} of {} seeds",
                        row.scenario,
                        s.strategy,
                        s.runs.len(),
                        c.seeds.len()
                    ));
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
    /// What is wrong with the text, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        match read.schema.as_str() {
            FIGURES_SCHEMA => Ok(read),
            other => Err(format!(
                "unsupported schema {other}: expected {FIGURES_SCHEMA}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Judged, Runs, compare};

    fn of(runs: Vec<Option<Judged>>) -> Result<Figures, String> {
        let runs = Runs::from([("own".into(), runs.clone()), ("edt".into(), runs)]);
        let order = ["own".to_owned(), "edt".to_owned()];
        let scenarios = [("one".to_owned(), runs, vec![None, None])];
        let c = compare("s", "own", &order, &[1, 2], &Default::default(), &scenarios);
        Figures::of(&c, "terrace …".into(), None, BTreeMap::new())
    }

    #[test]
    fn figures_are_read_as_they_were_written() {
        let run = |violation| {
            Some(Judged {
                violation,
                possible: 1000.0,
                moves: 3,
                ..Judged::default()
            })
        };
        let figures = of(vec![run(0.1 + 0.2), run(1.0 / 3.0)]).unwrap();
        let text = figures.json().unwrap();
        assert_eq!(Figures::parse(&text), Ok(figures));
        assert!(text.contains("\n{\"strategy\":\"edt\",\"ratio\":null,\"violation\":[0.30000000000000004,0.3333333333333333],\"excess\":[0.0,0.0],\"moves\":[3,3],\"bytes\":[0,0]}"));
        let other = text.replace(FIGURES_SCHEMA, "other/1");
        assert!(Figures::parse(&other).unwrap_err().contains("other/1"));
        let why = of(vec![run(1.0), None]).unwrap_err();
        assert_eq!(why, "one: own has runs for 1 of 2 seeds");
    }
}
