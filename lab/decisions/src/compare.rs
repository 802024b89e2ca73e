//! Comparison of strategies over scenarios and seeds.

use std::collections::{BTreeMap, BTreeSet};

use algo::Rng;
use planner::NOOP;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::harm::HarmTotals;
use crate::hindsight::Hindsight;
use crate::judge::RunMetrics;

/// Name and version of the layout of [`Comparison`].
pub const DECISIONS_SCHEMA: &str = "terrace.bench.decisions/2";
/// Share of the possible violation that is added to violations before they are divided, so zero over zero is one.
pub const EPSILON: f64 = 0.005;
/// Harm bound: a rival meets it if no volume without an objective becomes slower than this, relative to `noop`, mean over
/// the run.
const HARM_BOUND: f64 = 2.0;
/// Number of samples of a bootstrap.
const SAMPLES: u64 = 2_000;
/// Ratio above which the whole interval of a lost scenario lies.
const LOST: f64 = 1.05;

/// A ratio and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioInterval {
    /// Geometric mean.
    pub ratio: f64,
    /// Lower end.
    pub ci95_low: f64,
    /// Upper end.
    pub ci95_high: f64,
}

/// Results of a strategy on one scenario, means over seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StrategyRow {
    /// Name of the strategy.
    pub strategy: String,
    /// V.
    pub violation: f64,
    /// Capped excess.
    pub excess: f64,
    /// (V+ε)/(B+ε) by paired seeds, with the interval of a bootstrap over them; `None` for B itself.
    pub ratio: Option<RatioInterval>,
    /// Share of H's gain over B, (B−V)/(B−H), at most 1; `None` if H gains nothing or was not searched.
    pub gained: Option<f64>,
    /// Moves that were started.
    pub moves: f64,
    /// GiB copied.
    pub gib: f64,
    /// Moves back to a tier that was left within 20 epochs.
    pub returns: f64,
    /// Moves whose volume became slower than its interval.
    pub worse: f64,
    /// Mean latency of volumes without objective, relative to `noop`.
    pub free_mean: Option<f64>,
    /// Number of seeds with failed runs: they are left out for all strategies.
    pub failed: usize,
    /// Runs of all seeds.
    pub runs: Vec<RunMetrics>,
}

/// Results of all strategies on a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioRow {
    /// Name of the scenario.
    pub scenario: String,
    /// Possible violation in weighted seconds, mean over seeds.
    pub possible: f64,
    /// True for a guard, in which no move improves anything. All other scenarios are contests.
    pub guard: bool,
    /// Rival with the lowest mean V.
    pub rival: String,
    /// Rival with the lowest mean V that meets the harm bound; `noop` always does.
    pub rival_bounded: Option<String>,
    /// H, mean over seeds; `None` if it was not searched.
    pub hindsight: Option<f64>,
    /// Violation if every volume had its best tier to itself: optimistic.
    pub solo: Option<f64>,
    /// Results by strategy.
    pub strategies: Vec<StrategyRow>,
}

/// Results of a strategy over all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StrategyTotals {
    /// Name of the strategy.
    pub strategy: String,
    /// Geometric mean of (V+ε)/(B+ε) over all contests; bootstrap over contests, then seeds.
    pub ratio: Option<RatioInterval>,
    /// The same ratio against the best rival that meets the harm bound.
    pub ratio_bounded: Option<RatioInterval>,
    /// Mean share of H's gain over B, over contests in which H gains; a share above 1 counts as 1.
    pub gained: Option<f64>,
    /// Moves in guards, over all runs.
    pub guard_moves: u64,
    /// V in guards beyond that of `noop` with the same seed, over all runs; `None` without `noop`.
    pub guard_violation: Option<f64>,
    /// Contests whose whole interval is above 1.05.
    pub lost: Vec<String>,
    /// Moves per seed over the suite.
    pub moves: f64,
    /// GiB copied per seed over the suite.
    pub gib: f64,
    /// Moves back to a tier that was left within 20 epochs, over all runs.
    pub returns: u64,
    /// Number of returns after a change of load.
    pub returns_caused: u64,
    /// Moves over all runs.
    pub moves_all: u64,
    /// Moves with a predicted interval and an observed end, over all runs.
    pub with_interval: u64,
    /// Number of these moves with an outcome within the interval.
    pub held: u64,
    /// Number of these moves with a worse outcome.
    pub worse: u64,
    /// Mean width of these intervals, as a share of the prediction.
    pub width: Option<f64>,
    /// Median error of predicted means.
    pub error_median: Option<f64>,
    /// Slowdown of volumes with an objective relative to `noop`, by volume and run; `None` without comparisons.
    pub harm_with_objective: Option<HarmTotals>,
    /// Slowdown of volumes without an objective.
    pub harm_without_objective: Option<HarmTotals>,
}

/// Comparison of all strategies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// [`DECISIONS_SCHEMA`].
    pub schema: &'static str,
    /// Version of the program.
    pub version: String,
    /// Name of the suite.
    pub suite: String,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Judged strategy; all others are its rivals.
    pub own: String,
    /// Totals by strategy.
    pub totals: Vec<StrategyTotals>,
    /// Results by scenario.
    pub scenarios: Vec<ScenarioRow>,
}

/// Runs of one scenario by strategy and seed; `None` for a failed run.
pub type Runs = BTreeMap<String, Vec<Option<RunMetrics>>>;

pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for v in values {
        sum += v;
        n += 1.0;
    }
    if n > 0.0 { sum / n } else { 0.0 }
}

/// Returns the logarithm of (V+ε)/(B+ε) of two runs of one seed.
fn log_ratio(own: &RunMetrics, rival: &RunMetrics) -> f64 {
    let epsilon = (EPSILON * rival.possible).max(1e-9);
    libm::log((own.violation + epsilon) / (rival.violation + epsilon))
}

/// Returns the 2.5 % and 97.5 % quantiles of samples.
fn ends(mut samples: Vec<f64>) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    let at = |q: f64| samples[((samples.len() - 1) as f64 * q).round() as usize];
    (at(0.025), at(0.975))
}

/// Returns the geometric mean over groups of logarithms, with equal weight of groups: bootstrap over groups, then within
/// each.
pub(crate) fn bootstrap(groups: &[Vec<f64>], seed: u64) -> Option<RatioInterval> {
    if groups.is_empty() || groups.iter().any(Vec::is_empty) {
        return None;
    }
    let centre = mean(groups.iter().map(|g| mean(g.iter().copied())));
    let mut rng = Rng::new(seed, 0xB007);
    let pick = |n: usize, rng: &mut Rng| rng.below(n as u64) as usize;
    let samples = (0..SAMPLES).map(|_| {
        mean((0..groups.len()).map(|_| {
            let group = match groups.len() {
                1 => &groups[0],
                n => &groups[pick(n, &mut rng)],
            };
            let values: Vec<f64> = group
                .iter()
                .map(|_| group[pick(group.len(), &mut rng)])
                .collect();
            mean(values)
        }))
    });
    let (low, high) = ends(samples.collect());
    Some(RatioInterval {
        ratio: libm::exp(centre),
        ci95_low: libm::exp(low),
        ci95_high: libm::exp(high),
    })
}

/// Compares runs. `own` is the judged strategy, and `guards` are the scenarios without a possible gain. Each scenario has
/// its search in hindsight for each seed, if any.
pub fn compare(
    suite: &str,
    own: &str,
    order: &[String],
    seeds: &[u64],
    guards: &BTreeSet<String>,
    scenarios: &[(String, Runs, Vec<Option<Hindsight>>)],
) -> Comparison {
    let rows: Vec<ScenarioRow> = scenarios
        .iter()
        .map(|(name, runs, hindsight)| {
            let row = scenario_row(name, own, order, runs, hindsight);
            let guard = guards.contains(name);
            ScenarioRow { guard, ..row }
        })
        .collect();
    let totals = order.iter().map(|s| totals(s, &rows)).collect();
    Comparison {
        schema: DECISIONS_SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        suite: suite.into(),
        seeds: seeds.to_vec(),
        own: own.into(),
        totals,
        scenarios: rows,
    }
}

fn scenario_row(
    name: &str,
    own: &str,
    order: &[String],
    runs: &Runs,
    hindsight: &[Option<Hindsight>],
) -> ScenarioRow {
    // A strategy without a successful run does not suit the scenario. A seed counts if all suitable strategies succeeded.
    let seeds = runs.values().map(Vec::len).max().unwrap_or(0);
    let able = |s: &str| runs.get(s).is_some_and(|r| r.iter().any(Option::is_some));
    let whole: Vec<usize> = (0..seeds)
        .filter(|i| {
            let mut suits = order.iter().filter(|s| able(s));
            suits.all(|s| runs[s].get(*i).is_some_and(Option::is_some))
        })
        .collect();
    let of = |s: &str| -> Vec<&RunMetrics> {
        whole
            .iter()
            .filter_map(|i| runs.get(s)?.get(*i)?.as_ref())
            .collect()
    };
    let v = |s: &str| mean(of(s).iter().map(|j| j.violation));
    let rivals: Vec<(&String, f64)> = order
        .iter()
        .filter(|s| *s != own && able(s))
        .map(|s| (s, v(s)))
        .collect();
    let least = |a: &&(&String, f64), b: &&(&String, f64)| a.1.total_cmp(&b.1);
    let rival = rivals.iter().min_by(least);
    let rival = rival.map_or_else(String::new, |(s, _)| (*s).clone());
    let meets_bound = |s: &&(&String, f64)| of(s.0).iter().all(|j| meets_harm_bound(j));
    let bounded = rivals.iter().filter(meets_bound).min_by(least);
    let rival_bounded = bounded.map(|(s, _)| (*s).clone());
    // A rival's plan, made without knowledge of the future, is a plan in hindsight too. A plan of the judged strategy never
    // is.
    let found = |i: usize| -> Option<f64> {
        let h = hindsight.get(i)?.as_ref()?;
        let of_rivals = rivals.iter().filter_map(|(s, _)| runs[*s].get(i)?.as_ref());
        let violations = of_rivals.map(|j| j.violation);
        Some(violations.fold(h.score.violation, f64::min))
    };
    let h: Option<Vec<f64>> = whole.iter().map(|i| found(*i)).collect();
    let h = h.filter(|h| !h.is_empty()).map(mean);
    let solo: Option<Vec<f64>> = whole
        .iter()
        .map(|i| hindsight.get(*i)?.as_ref()?.solo)
        .collect();
    let b = v(&rival);
    let possible = mean(of(&rival).iter().map(|j| j.possible));
    let gain = h.map(|h| b - h).filter(|gain| *gain > EPSILON * possible);
    let noop_free = |i: usize| runs.get(NOOP)?.get(i)?.as_ref()?.free_mean_us;
    let row = |s: &String| {
        let own_runs = of(s);
        let logs = || {
            own_runs
                .iter()
                .zip(of(&rival))
                .map(|(a, b)| log_ratio(a, b))
        };
        let ratio = (*s != rival).then(|| bootstrap(&[logs().collect()], 1));
        let free: Option<Vec<f64>> = whole
            .iter()
            .zip(&own_runs)
            .map(|(i, j)| Some(j.free_mean_us? / noop_free(*i)?))
            .collect();
        StrategyRow {
            strategy: s.clone(),
            violation: v(s),
            excess: mean(own_runs.iter().map(|j| j.excess)),
            ratio: ratio.flatten(),
            gained: gain.map(|gain| ((b - v(s)) / gain).min(1.0)),
            moves: mean(own_runs.iter().map(|j| j.moves as f64)),
            gib: mean(own_runs.iter().map(|j| Bytes(j.bytes).as_gib_f64())),
            returns: mean(own_runs.iter().map(|j| j.returns as f64)),
            worse: mean(own_runs.iter().map(|j| j.worse as f64)),
            free_mean: free.filter(|f| !f.is_empty()).map(mean),
            failed: seeds - whole.len(),
            runs: own_runs.into_iter().cloned().collect(),
        }
    };
    ScenarioRow {
        scenario: name.into(),
        possible,
        hindsight: h,
        solo: solo.filter(|s| !s.is_empty()).map(mean),
        guard: false,
        rival_bounded,
        strategies: order.iter().filter(|s| able(s)).map(row).collect(),
        rival,
    }
}

/// Returns true if no volume without an objective became slower than the bound.
fn meets_harm_bound(run: &RunMetrics) -> bool {
    let free = run.harm.iter().filter(|h| !h.has_objective);
    free.map(|h| h.run.mean).all(|mean| mean <= HARM_BOUND)
}

fn row_of<'a>(scenario: &'a ScenarioRow, strategy: &str) -> Option<&'a StrategyRow> {
    scenario.strategies.iter().find(|s| s.strategy == strategy)
}

fn totals<'a>(strategy: &str, rows: &'a [ScenarioRow]) -> StrategyTotals {
    let own = |r: &'a ScenarioRow| row_of(r, strategy);
    let logs = |r: &'a ScenarioRow, rival: Option<&str>| -> Option<Vec<f64>> {
        let pairs = own(r)?.runs.iter().zip(&row_of(r, rival?)?.runs);
        let logs: Vec<f64> = pairs.map(|(a, b)| log_ratio(a, b)).collect();
        (!logs.is_empty()).then_some(logs)
    };
    let contests: Vec<&'a ScenarioRow> = rows.iter().filter(|r| !r.guard).collect();
    let in_contests = contests.iter();
    let best = in_contests.clone().filter_map(|r| logs(r, Some(&r.rival)));
    let best: Vec<Vec<f64>> = best.collect();
    let bounded = in_contests.filter_map(|r| logs(r, r.rival_bounded.as_deref()));
    let bounded: Vec<Vec<f64>> = bounded.collect();
    // Contests have equal weight, whatever their possible violation is.
    let gained: Vec<f64> = contests.iter().filter_map(|r| own(r)?.gained).collect();
    let guards = || rows.iter().filter(|r| r.guard);
    let more_than_noop = |r: &'a ScenarioRow| -> Option<f64> {
        let pairs = own(r)?.runs.iter().zip(&row_of(r, NOOP)?.runs);
        Some(pairs.map(|(a, b)| a.violation - b.violation).sum())
    };
    let guard_violation: Option<Vec<f64>> = guards().map(more_than_noop).collect();
    let lost = contests.iter().filter(|r| {
        let ratio = own(r).and_then(|s| s.ratio);
        ratio.is_some_and(|i| i.ci95_low > LOST)
    });
    let rows_of: Vec<(&str, &StrategyRow)> = rows
        .iter()
        .filter_map(|r| Some((r.scenario.as_str(), own(r)?)))
        .collect();
    let runs = || rows_of.iter().flat_map(|(_, r)| &r.runs);
    let mut errors: Vec<f64> = runs().flat_map(|j| j.errors.iter().copied()).collect();
    errors.sort_by(f64::total_cmp);
    let with_interval: u64 = runs().map(|j| j.with_interval).sum();
    let harmed = || {
        rows_of.iter().flat_map(|(scenario, row)| {
            let volumes = row.runs.iter().flat_map(|j| &j.harm);
            volumes.map(|h| (*scenario, h))
        })
    };
    StrategyTotals {
        strategy: strategy.into(),
        ratio: bootstrap(&best, 2),
        ratio_bounded: bootstrap(&bounded, 3),
        gained: (!gained.is_empty()).then(|| mean(gained.iter().copied())),
        guard_moves: guards()
            .filter_map(own)
            .flat_map(|r| &r.runs)
            .map(|j| j.moves)
            .sum(),
        guard_violation: guard_violation.map(|v| v.iter().sum()),
        lost: lost.map(|r| r.scenario.clone()).collect(),
        moves: rows_of.iter().map(|(_, r)| r.moves).sum(),
        gib: rows_of.iter().map(|(_, r)| r.gib).sum(),
        returns: runs().map(|j| j.returns).sum(),
        returns_caused: runs().map(|j| j.returns_caused).sum(),
        moves_all: runs().map(|j| j.moves).sum(),
        with_interval,
        held: runs().map(|j| j.held).sum(),
        worse: runs().map(|j| j.worse).sum(),
        width: (with_interval > 0)
            .then(|| runs().map(|j| j.width).sum::<f64>() / with_interval as f64),
        error_median: (!errors.is_empty()).then(|| errors[errors.len() / 2]),
        harm_with_objective: HarmTotals::of(harmed(), true),
        harm_without_objective: HarmTotals::of(harmed(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(violation: f64) -> Option<RunMetrics> {
        Some(RunMetrics {
            violation,
            possible: 1000.0,
            ..RunMetrics::default()
        })
    }

    fn found(violation: f64) -> Option<Hindsight> {
        let score = crate::Score {
            violation,
            excess: 0.0,
            bytes: 0.0,
        };
        Some(Hindsight {
            score,
            path: vec![],
            candidates: 1,
            improvements: 0,
            solo: None,
        })
    }

    fn order() -> Vec<String> {
        ["own", "noop", "edt", "odd"].map(Into::into).into()
    }

    #[test]
    fn ratios_use_the_best_rival_and_hindsight_excludes_the_strategy() {
        let runs = Runs::from([
            ("noop".into(), vec![run(100.0), run(120.0)]),
            ("edt".into(), vec![run(200.0), run(220.0)]),
            ("own".into(), vec![run(40.0), run(20.0)]),
            ("odd".into(), vec![None, None]),
        ]);
        let scenarios = [("one".to_owned(), runs, vec![found(30.0), found(50.0)])];
        let c = compare("s", "own", &order(), &[1, 2], &BTreeSet::new(), &scenarios);
        let row = &c.scenarios[0];
        assert_eq!((row.rival.as_str(), row.guard), ("noop", false));
        assert_eq!(
            row.hindsight,
            Some(40.0),
            "20 by the strategy does not count"
        );
        assert_eq!(row.strategies.len(), 3, "what never ran is not told");
        let own = &row.strategies[0];
        assert_eq!(own.gained, Some(1.0), "more than hindsight counts as 1");
        let ratio = own.ratio.unwrap();
        assert!((ratio.ratio - (45.0f64 / 105.0 * 25.0 / 125.0).sqrt()).abs() < 1e-9);
        assert!(ratio.ci95_low < ratio.ratio && ratio.ratio < ratio.ci95_high);
        assert_eq!(row.strategies[2].gained, Some(-100.0 / 70.0));
        assert_eq!(c.totals[2].lost, ["one"], "twice as much as the best rival");
        assert!(c.totals[0].lost.is_empty());
    }

    #[test]
    fn guards_are_not_comparisons_and_all_comparisons_count() {
        let runs = |own, noop| {
            Runs::from([
                ("noop".into(), vec![run(noop), run(noop)]),
                ("own".into(), vec![run(own), run(own)]),
            ])
        };
        let moves = |mut runs: Runs| {
            for own in runs.get_mut("own").into_iter().flatten().flatten() {
                own.moves = 3;
            }
            runs
        };
        let scenarios = [
            (
                "guard".to_owned(),
                moves(runs(45.0, 0.0)),
                vec![found(0.0); 2],
            ),
            ("won".to_owned(), runs(45.0, 95.0), vec![found(45.0); 2]),
            // Almost no violation can be avoided here, and it still counts.
            ("even".to_owned(), runs(95.0, 95.0), vec![found(94.0); 2]),
        ];
        let guards = ["guard".to_owned()].into();
        let c = compare("s", "own", &order(), &[1, 2], &guards, &scenarios);
        assert!(c.scenarios[0].guard && !c.scenarios[2].guard);
        let own = &c.totals[0];
        assert!((own.ratio.unwrap().ratio - 0.5f64.sqrt()).abs() < 1e-9);
        assert_eq!((own.guard_moves, own.guard_violation), (6, Some(90.0)));
        assert_eq!(own.gained, Some(1.0), "of the one in which hindsight gains");
        assert!(own.lost.is_empty(), "a guard is not lost, it has moves");
        let none = compare("s", "own", &order(), &[1, 2], &BTreeSet::new(), &scenarios);
        assert_eq!(none.totals[0].lost, ["guard"]);
    }

    #[test]
    fn rival_that_harms_others_is_not_a_bounded_rival() {
        let with = |violation, mean| {
            let harm = crate::VolumeHarm {
                volume: "v".into(),
                has_objective: false,
                run: crate::Slowdown { mean, p99: 1.0 },
                worst: None,
            };
            run(violation).map(|j| RunMetrics {
                harm: vec![harm],
                ..j
            })
        };
        let runs = Runs::from([
            ("noop".into(), vec![with(195.0, 1.0), with(195.0, 1.0)]),
            ("edt".into(), vec![with(95.0, 1.5), with(95.0, 2.5)]),
            ("own".into(), vec![with(95.0, 1.0), with(95.0, 9.0)]),
        ]);
        let scenarios = [("one".to_owned(), runs, vec![None, None])];
        let c = compare("s", "own", &order(), &[1, 2], &BTreeSet::new(), &scenarios);
        let row = &c.scenarios[0];
        assert_eq!(row.rival, "edt");
        assert_eq!(row.rival_bounded.as_deref(), Some("noop"));
        let own = &c.totals[0];
        assert!((own.ratio.unwrap().ratio - 1.0).abs() < 1e-9);
        assert!((own.ratio_bounded.unwrap().ratio - 0.5).abs() < 1e-9);
        let harm = own.harm_without_objective.as_ref().unwrap();
        assert_eq!((harm.volume_runs, harm.mean.worst), (2, 9.0));
        assert_eq!(
            (harm.mean.within_2x, own.harm_with_objective.clone()),
            (0.5, None)
        );
    }

    #[test]
    fn scenario_without_violations_has_ratio_one() {
        let runs = Runs::from([
            ("noop".into(), vec![run(0.0), run(0.0)]),
            ("own".into(), vec![run(0.0), run(0.0)]),
        ]);
        let scenarios = [("one".to_owned(), runs, vec![found(0.0); 2])];
        let c = compare("s", "own", &order(), &[1, 2], &BTreeSet::new(), &scenarios);
        assert_eq!(c.scenarios[0].strategies[0].ratio.unwrap().ratio, 1.0);
        assert_eq!(c.totals[0].ratio.unwrap().ratio, 1.0);
        assert_eq!(c.totals[0].gained, None);
    }
}
