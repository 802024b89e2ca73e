//! Best known plans in hindsight, with the plans of a frozen version from which the search starts: a data file.
//!
//! Runs of the judged version are never in it. A plan is replaced only by a better one, so H only decreases.

use serde::{Deserialize, Serialize};
use units::TierId;

use crate::DecisionsError;
use crate::hindsight::Score;
use crate::script::Path;

/// Name and version of the layout of [`KnownPlans`].
pub const KNOWN_SCHEMA: &str = "terrace.bench.hindsight/1";
/// Smallest number of candidates of a search whose result is stored.
pub const CANDIDATES_MIN: u32 = 300;

/// A plan with its score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownPlan {
    /// Score of the plan.
    pub score: Score,
    /// Tiers of each volume, with the number of migration epochs on each: `0x12 1x18`.
    pub tiers: Vec<String>,
}

impl KnownPlan {
    /// Converts a path.
    pub fn of(path: &Path, score: Score) -> Self {
        let words = |tiers: &Vec<TierId>| {
            let runs = tiers.chunk_by(|a, b| a == b);
            let runs = runs.map(|run| format!("{}x{}", run[0].0, run.len()));
            runs.collect::<Vec<_>>().join(" ")
        };
        let tiers = path.iter().map(words).collect();
        Self { score, tiers }
    }

    /// The path.
    ///
    /// # Errors
    /// [`DecisionsError::Tiers`].
    pub fn path(&self) -> Result<Path, DecisionsError> {
        let run = |word: &str| {
            let (tier, epochs) = word.split_once('x')?;
            let tier = TierId(tier.parse().ok()?);
            Some(vec![tier; epochs.parse().ok()?])
        };
        let of = |text: &String| {
            let runs: Option<Vec<Vec<TierId>>> = text.split_whitespace().map(run).collect();
            let fault = || DecisionsError::Tiers { text: text.clone() };
            Ok(runs.ok_or_else(fault)?.concat())
        };
        self.tiers.iter().map(of).collect()
    }
}

/// A scenario of one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownCase {
    /// The scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Hash of the scenario drawn by the seed, with its traces.
    pub source: String,
    /// Plan of the frozen version.
    pub frozen: Option<KnownPlan>,
    /// Best plan found by a search.
    pub best: Option<KnownPlan>,
    /// Candidates of the longest search so far.
    pub candidates: u32,
}

impl KnownCase {
    /// Returns the score of H, the lowest known one; `None` before a search of sufficient length, because the frozen version
    /// alone does not show how much is possible.
    pub fn least(&self) -> Option<Score> {
        let plans = self.best.iter().chain(&self.frozen);
        plans
            .filter(|_| self.candidates >= CANDIDATES_MIN)
            .map(|p| p.score)
            .min_by(|a, b| a.violation.total_cmp(&b.violation))
    }
}

/// Known plans of all cases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownPlans {
    /// [`KNOWN_SCHEMA`].
    pub schema: String,
    /// The frozen version: strategy and commit.
    pub frozen: String,
    /// Scenarios by name, then seed.
    pub cases: Vec<KnownCase>,
}

impl KnownPlans {
    /// Creates a list without plans.
    pub fn new(frozen: String) -> Self {
        Self {
            schema: KNOWN_SCHEMA.into(),
            frozen,
            cases: vec![],
        }
    }

    /// Parses the text that [`KnownPlans::json`] wrote.
    ///
    /// # Errors
    /// [`DecisionsError::Layout`] and [`DecisionsError::Schema`].
    pub fn parse(text: &str) -> Result<Self, DecisionsError> {
        let read: Self = serde_json::from_str(text)?;
        match read.schema.as_str() {
            KNOWN_SCHEMA => Ok(read),
            other => Err(DecisionsError::Schema {
                found: other.into(),
                known: KNOWN_SCHEMA,
            }),
        }
    }

    /// Text of the file: JSON, one line per case.
    ///
    /// # Errors
    /// Returns [`DecisionsError::Layout`] for numbers that JSON cannot represent.
    pub fn json(&self) -> Result<String, DecisionsError> {
        let text = serde_json::to_string(self)?.replace("{\"scenario\":", "\n{\"scenario\":");
        Ok(text + "\n")
    }

    /// Finds the known plans of a case.
    ///
    /// # Errors
    /// [`DecisionsError::Stale`] if the scenario has changed.
    pub fn find(
        &self,
        scenario: &str,
        seed: u64,
        source: &str,
    ) -> Result<Option<&KnownCase>, DecisionsError> {
        let found = self.position(scenario, seed).ok();
        match found.map(|i| &self.cases[i]) {
            Some(case) if case.source != source => Err(DecisionsError::Stale {
                scenario: scenario.into(),
                seed,
            }),
            found => Ok(found),
        }
    }

    /// Position of a case, or the position to insert it.
    fn position(&self, scenario: &str, seed: u64) -> Result<usize, usize> {
        let key = |c: &KnownCase| (c.scenario.clone(), c.seed);
        self.cases
            .binary_search_by_key(&(scenario.to_owned(), seed), key)
    }

    fn entry(&mut self, scenario: &str, seed: u64, source: &str) -> &mut KnownCase {
        let at = self.position(scenario, seed);
        let i = at.unwrap_or_else(|i| i);
        if at.is_err() {
            let case = KnownCase {
                scenario: scenario.into(),
                seed,
                source: source.into(),
                frozen: None,
                best: None,
                candidates: 0,
            };
            self.cases.insert(i, case);
        }
        &mut self.cases[i]
    }

    /// Stores the plan of the frozen version.
    ///
    /// # Errors
    /// [`DecisionsError::Stale`], and [`DecisionsError::Frozen`] if a frozen plan is already stored.
    pub fn freeze(
        &mut self,
        scenario: &str,
        seed: u64,
        source: &str,
        plan: KnownPlan,
    ) -> Result<(), DecisionsError> {
        if self
            .find(scenario, seed, source)?
            .is_some_and(|c| c.frozen.is_some())
        {
            return Err(DecisionsError::Frozen {
                scenario: scenario.into(),
                seed,
            });
        }
        self.entry(scenario, seed, source).frozen = Some(plan);
        Ok(())
    }

    /// Stores the result of a search if it is better than the known plans.
    ///
    /// # Errors
    /// [`DecisionsError::Stale`].
    pub fn lower(
        &mut self,
        scenario: &str,
        seed: u64,
        source: &str,
        plan: KnownPlan,
        candidates: u32,
    ) -> Result<(), DecisionsError> {
        self.find(scenario, seed, source)?;
        let case = self.entry(scenario, seed, source);
        case.candidates = case.candidates.max(candidates);
        let known = case.best.as_ref().map(|b| b.score.value());
        if known.is_none_or(|known| plan.score.value() < known) {
            case.best = Some(plan);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(violation: f64) -> KnownPlan {
        let score = Score {
            violation,
            excess: 0.0,
            bytes: 0.0,
        };
        let path = vec![
            [vec![TierId(0); 12], vec![TierId(1); 18]].concat(),
            vec![TierId(2); 30],
        ];
        KnownPlan::of(&path, score)
    }

    #[test]
    fn plans_round_trip() {
        let mut known = KnownPlans::new("terrace at 9bb2e4d3".into());
        for (scenario, seed) in [("b", 1), ("a", 2), ("a", 1)] {
            known.freeze(scenario, seed, "h", plan(30.0)).unwrap();
        }
        let order: Vec<(&str, u64)> = known.cases.iter().map(|c| (&*c.scenario, c.seed)).collect();
        assert_eq!(order, [("a", 1), ("a", 2), ("b", 1)]);
        let text = known.json().unwrap();
        assert_eq!(text.lines().count(), 4);
        let read = KnownPlans::parse(&text).unwrap();
        assert_eq!(read, known);
        let tiers = &read.cases[0].frozen.as_ref().unwrap().tiers;
        assert_eq!(*tiers, ["0x12 1x18", "2x30"]);
        let path = read.cases[0].frozen.as_ref().unwrap().path().unwrap();
        assert_eq!(
            (path[0][11], path[0][12], path[1].len()),
            (TierId(0), TierId(1), 30)
        );
        let other = text.replace(KNOWN_SCHEMA, "other/1");
        assert!(
            matches!(KnownPlans::parse(&other), Err(DecisionsError::Schema { found, .. }) if found == "other/1")
        );
        assert!(matches!(
            KnownPlans::parse("{}"),
            Err(DecisionsError::Layout(_))
        ));
        let odd = KnownPlan {
            tiers: vec!["0y12".into()],
            ..plan(1.0)
        };
        assert!(matches!(odd.path(), Err(DecisionsError::Tiers { .. })));
    }

    #[test]
    fn hindsight_only_decreases_and_frozen_plans_are_unchanged() {
        let mut known = KnownPlans::new("terrace at 9bb2e4d3".into());
        known.freeze("a", 1, "h", plan(30.0)).unwrap();
        let again = known.freeze("a", 1, "h", plan(20.0));
        assert!(matches!(again, Err(DecisionsError::Frozen { seed: 1, .. })));
        assert_eq!(known.cases[0].least(), None, "nobody has searched");
        let violation = |known: &KnownPlans| known.cases[0].least().unwrap().violation;
        known.lower("a", 1, "h", plan(40.0), 300).unwrap();
        assert_eq!(violation(&known), 30.0);
        known.lower("a", 1, "h", plan(10.0), 400).unwrap();
        known.lower("a", 1, "h", plan(25.0), 300).unwrap();
        assert_eq!((violation(&known), known.cases[0].candidates), (10.0, 400));
        let stale = known.lower("a", 1, "another", plan(1.0), 300);
        assert!(matches!(stale, Err(DecisionsError::Stale { .. })));
        assert!(known.find("b", 1, "h").unwrap().is_none());
    }
}
