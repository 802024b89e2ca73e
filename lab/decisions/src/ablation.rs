//! Effect of each part of a strategy: comparison of variants with the strategy itself, run by run.

use serde::Serialize;

use crate::compare::{Comparison, EPSILON, RatioInterval, StrategyRow, bootstrap, mean};

/// Name and version of the layout of [`Ablation`].
pub const ABLATION_SCHEMA: &str = "terrace.bench.ablation/2";

/// A variant over all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variant {
    /// Changed parameter or part.
    pub change: String,
    /// Geometric mean of (V+ε)/(V of the unchanged strategy+ε) by paired seeds; bootstrap over scenarios, then seeds. `None`
    /// for the strategy itself.
    pub ratio: Option<RatioInterval>,
    /// V per seed over the suite.
    pub violation: f64,
    /// Moves per seed over the suite.
    pub moves: f64,
    /// GiB copied per seed over the suite.
    pub gib: f64,
    /// Moves back to a tier that was left within 20 epochs, over all runs.
    pub returns: u64,
    /// Scenario with the largest improvement by the change, with its ratio, if any.
    pub helps: Option<(String, f64)>,
    /// Scenario with the largest deterioration by the change, with its ratio, if any.
    pub harms: Option<(String, f64)>,
}

/// All variants; the unchanged strategy is first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ablation {
    /// [`ABLATION_SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Name of the suite.
    pub suite: String,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Name of the strategy.
    pub strategy: String,
    /// Number of scenarios.
    pub scenarios: usize,
    /// Results of the variants.
    pub variants: Vec<Variant>,
}

/// Returns the logarithms of the ratios of a variant's V to the strategy's own, by seed.
fn logs(own: &StrategyRow, variant: &StrategyRow, possible: f64) -> Vec<f64> {
    let epsilon = (EPSILON * possible).max(1e-9);
    let pairs = own.runs.iter().zip(&variant.runs);
    pairs
        .map(|(a, b)| libm::log((b.violation + epsilon) / (a.violation + epsilon)))
        .collect()
}

/// Evaluates a comparison in which the strategy itself is `own`, and all others are its variants.
pub fn ablation(c: &Comparison) -> Ablation {
    let variant = |name: &str| {
        let (mut groups, mut ratios) = (vec![], vec![]);
        let (mut violation, mut moves, mut gib, mut returns) = (0.0, 0.0, 0.0, 0);
        for s in &c.scenarios {
            let of = |name: &str| s.strategies.iter().find(|r| r.strategy == name);
            let (Some(own), Some(row)) = (of(&c.own), of(name)) else {
                continue;
            };
            violation += row.violation;
            moves += row.moves;
            gib += row.gib;
            returns += row.runs.iter().map(|r| r.returns).sum::<u64>();
            let logs = logs(own, row, s.possible);
            if !logs.is_empty() {
                let ratio = libm::exp(mean(logs.iter().copied()));
                ratios.push((s.scenario.clone(), ratio));
                groups.push(logs);
            }
        }
        ratios.sort_by(|a, b| a.1.total_cmp(&b.1));
        let differs = |r: &&(String, f64)| (r.1 - 1.0).abs() > 0.005;
        Variant {
            change: name.into(),
            ratio: (name != c.own).then(|| bootstrap(&groups, 4)).flatten(),
            violation,
            moves,
            gib,
            returns,
            helps: ratios
                .first()
                .filter(|r| r.1 < 1.0)
                .filter(differs)
                .cloned(),
            harms: ratios.last().filter(|r| r.1 > 1.0).filter(differs).cloned(),
        }
    };
    Ablation {
        schema: ABLATION_SCHEMA,
        version: c.version.clone(),
        suite: c.suite.clone(),
        seeds: c.seeds.clone(),
        strategy: c.own.clone(),
        scenarios: c.scenarios.len(),
        variants: c.totals.iter().map(|t| variant(&t.strategy)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{RunMetrics, Runs, compare};

    #[test]
    fn variant_is_compared_with_the_full_strategy() {
        let run = |violation, returns| {
            Some(RunMetrics {
                violation,
                returns,
                possible: 1000.0,
                ..RunMetrics::default()
            })
        };
        let runs = |own, worse| {
            Runs::from([
                ("own".into(), vec![run(own, 0), run(own, 0)]),
                ("own less".into(), vec![run(worse, 1), run(worse, 2)]),
            ])
        };
        let order: Vec<String> = ["own", "own less"].map(Into::into).into();
        let scenarios = [
            ("one".to_owned(), runs(95.0, 195.0), vec![None, None]),
            ("two".to_owned(), runs(95.0, 45.0), vec![None, None]),
            ("same".to_owned(), runs(5.0, 5.0), vec![None, None]),
        ];
        let a = ablation(&compare(
            "s",
            "own",
            &order,
            &[1, 2],
            &BTreeSet::new(),
            &scenarios,
        ));
        assert_eq!((a.scenarios, a.variants.len()), (3, 2));
        let [own, less] = [&a.variants[0], &a.variants[1]];
        assert_eq!((own.ratio, own.violation, own.returns), (None, 195.0, 0));
        assert_eq!((less.violation, less.returns), (245.0, 9));
        let ratio = less.ratio.unwrap();
        assert!((ratio.ratio - 1.0).abs() < 1e-9, "twice as much, and half");
        assert!(ratio.ci95_low < 1.0 && ratio.ci95_high > 1.0);
        assert_eq!(less.harms, Some(("one".into(), 2.0)));
        assert_eq!(less.helps.as_ref().map(|h| h.0.as_str()), Some("two"));
    }
}
