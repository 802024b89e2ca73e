//! Results of decisions as Markdown for the book: from stored figures, never from a run.

use std::cmp::Ordering;

use decisions::{EPSILON, Figures, RatioInterval, ScenarioFigures, StrategyTotals};

use crate::decisions::{percent, ratio};
use crate::format::{NONE, fixed, maybe};

/// Rows of scenarios at which a strategy is best, and as many of those at which it is worst.
const EXTREMES: usize = 3;

/// Figures of the two comparisons on the page.
#[derive(Debug, Clone, Copy)]
pub struct DecisionFigures<'a> {
    pub suite: &'a Figures,
    /// Random arrays.
    pub random: &'a Figures,
}

/// Tables and sentences between the markers of `docs/results/decisions.md`.
pub fn decisions_markdown(of: DecisionFigures<'_>) -> String {
    let parts = [
        by_strategy(of),
        legend(of),
        best_and_worst(of.suite),
        won_and_lost(of.suite) + &arrays(of.random) + &without_objective(of),
        predictions(of),
    ];
    parts.join("\n")
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

fn totals<'a>(figures: &'a Figures, strategy: &str) -> Option<&'a StrategyTotals> {
    figures.totals.iter().find(|t| t.strategy == strategy)
}

/// Runs of a strategy.
fn runs(figures: &Figures, strategy: &str) -> usize {
    let of = |s: &ScenarioFigures| s.of(strategy).map(|s| s.violation.len());
    figures.scenarios.iter().filter_map(of).sum()
}

fn by_strategy(of: DecisionFigures<'_>) -> String {
    let heads = [
        "strategy",
        "V/B, suite",
        "V/B, random arrays",
        "moves per run",
        "GiB copied per run",
        "moves back, all runs",
    ];
    let mut text = row(&heads.map(Into::into)) + "|---|--:|--:|--:|--:|--:|\n";
    let both = [of.suite, of.random];
    for t in &of.suite.totals {
        let all: Vec<(&Figures, &StrategyTotals)> = both
            .into_iter()
            .filter_map(|f| Some((f, totals(f, &t.strategy)?)))
            .collect();
        let runs: usize = both.iter().map(|f| runs(f, &t.strategy)).sum();
        let per_run = |value: fn(&StrategyTotals) -> f64| {
            let of = |(f, t): &(&Figures, &StrategyTotals)| value(t) * f.seeds.len() as f64;
            fixed(all.iter().map(of).sum::<f64>() / runs as f64, 1)
        };
        text += &row(&[
            code(&t.strategy),
            ratio(t.ratio_all),
            ratio(totals(of.random, &t.strategy).and_then(|t| t.ratio_all)),
            per_run(|t| t.moves),
            per_run(|t| t.gib),
            all.iter().map(|(_, t)| t.back).sum::<u64>().to_string(),
        ]);
    }
    text
}

fn legend(of: DecisionFigures<'_>) -> String {
    let (suite, random) = (of.suite, of.random);
    format!(
        "V is the SLO violation: seconds in which a volume exceeds its latency objective, each weighted\n\
         by the volume's class. B is the V of the best rival of {own}, chosen for each scenario.\n\
         V/B is a geometric mean over scenarios with its 95 % interval. Below 1, {own} violates less than\n\
         its best rival. Both V and B include {epsilon} % of the largest possible violation, which keeps the\n\
         ratio finite. The suite has {scenarios} scenarios with {seeds} seeds each; each of the {arrays} random arrays\n\
         runs once. Moves back return a volume to its former tier without cause, in all {runs} runs.\n",
        own = code(&suite.own),
        epsilon = fixed(100.0 * EPSILON, 1),
        scenarios = suite.scenarios.len(),
        seeds = suite.seeds.len(),
        arrays = random.scenarios.len(),
        runs = runs(suite, &suite.own) + runs(random, &random.own),
    )
}

/// A scenario as the strategy did in it.
struct Done<'a> {
    scenario: &'a ScenarioFigures,
    ratio: RatioInterval,
}

/// Scenarios that the strategy ran in, the best first.
fn done(figures: &Figures) -> Vec<Done<'_>> {
    let of = |scenario| {
        let ratio = ScenarioFigures::of(scenario, &figures.own)?.ratio?;
        Some(Done { scenario, ratio })
    };
    let mut all: Vec<Done<'_>> = figures.scenarios.iter().filter_map(of).collect();
    all.sort_by(|a, b| a.ratio.ratio.total_cmp(&b.ratio.ratio));
    all
}

fn mean_violation(scenario: &ScenarioFigures, strategy: &str) -> Option<f64> {
    let by_seed = &scenario.of(strategy)?.violation;
    Some(by_seed.iter().sum::<f64>() / by_seed.len() as f64)
}

fn best_and_worst(suite: &Figures) -> String {
    let heads = [
        String::new(),
        "scenario".into(),
        format!("V of {}, s", code(&suite.own)),
        "V of the best rival, s".into(),
        "V/B".into(),
    ];
    let mut text = row(&heads) + "|---|---|--:|--:|--:|\n";
    let all = done(suite);
    let best = all.len().min(EXTREMES);
    let worst = all.len().saturating_sub(EXTREMES).max(best);
    for (end, of) in [("best", &all[..best]), ("worst", &all[worst..])] {
        for d in of {
            let v = |strategy| maybe(mean_violation(d.scenario, strategy), 0);
            text += &row(&[
                end.into(),
                code(&d.scenario.scenario),
                v(&suite.own),
                format!("{} ({})", v(&d.scenario.rival), code(&d.scenario.rival)),
                ratio(Some(d.ratio)),
            ]);
        }
    }
    text
}

fn names(of: &[&Done<'_>]) -> String {
    let names: Vec<String> = of.iter().map(|d| code(&d.scenario.scenario)).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    }
}

fn won_and_lost(suite: &Figures) -> String {
    let all = done(suite);
    let won = all.iter().filter(|d| d.ratio.ci95_high < 1.0).count();
    let lost: Vec<&Done<'_>> = all.iter().filter(|d| d.ratio.ci95_low > 1.0).collect();
    format!(
        "Scenarios with the whole interval below 1: {won}; above 1: {}{};\nwith 1 in the interval: {}.\n",
        lost.len(),
        names(&lost),
        all.len() - won - lost.len(),
    )
}

fn arrays(random: &Figures) -> String {
    let all = done(random);
    let count = |of: Ordering| {
        let is = |d: &&Done<'_>| d.ratio.ratio.total_cmp(&1.0) == of;
        all.iter().filter(is).count()
    };
    let worst = all.last().map_or_else(
        || NONE.into(),
        |d| {
            format!(
                "{} with V/B {}",
                code(&d.scenario.scenario),
                fixed(d.ratio.ratio, 2)
            )
        },
    );
    format!(
        "On random arrays {} violates less than the best rival in {}, more in {}, the same in {};\nthe worst is {worst}.\n",
        code(&random.own),
        count(Ordering::Less),
        count(Ordering::Greater),
        count(Ordering::Equal),
    )
}

/// What the others pay. Nothing where `noop` did not run.
fn without_objective(of: DecisionFigures<'_>) -> String {
    let worst = |figures: &Figures| totals(figures, &figures.own)?.free_mean_worst;
    let (Some(suite), Some(random)) = (worst(of.suite), worst(of.random)) else {
        return String::new();
    };
    format!(
        "Volumes without an objective may become slower: in their worst scenario their mean latency is\n\
         {} times that under `noop`, on their worst random array {} times.\n",
        fixed(suite, 1),
        fixed(random, 1)
    )
}

fn predictions(of: DecisionFigures<'_>) -> String {
    let heads = [
        &format!("predictions of {}", code(&of.suite.own)),
        "moves",
        "within the interval",
        "above it",
        "width",
        "median error",
    ];
    let mut text = row(&heads.map(str::to_owned)) + "|---|--:|--:|--:|--:|--:|\n";
    for (name, figures) in [("suite", of.suite), ("random arrays", of.random)] {
        let Some(t) = totals(figures, &figures.own) else {
            continue;
        };
        let share =
            |n: u64| percent((t.with_interval > 0).then(|| n as f64 / t.with_interval as f64));
        text += &row(&[
            name.into(),
            t.with_interval.to_string(),
            share(t.held),
            share(t.worse),
            percent(t.width),
            percent(t.error_median),
        ]);
    }
    text + "\nEach move predicts an interval for the mean latency of its volume. Widths are relative to the\n\
            predicted latency, errors to the measured one.\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use decisions::{Judged, Runs, compare};

    use super::*;

    /// Figures of scenarios, each with V of the strategy and of its only rival, by seed.
    fn figures(scenarios: &[(&str, [f64; 2], [f64; 2])]) -> Figures {
        let run = |violation: &f64| {
            Some(Judged {
                violation: *violation,
                possible: 1000.0,
                moves: 2,
                back: 1,
                bytes: 3 << 30,
                with_interval: 4,
                held: 3,
                worse: 1,
                width: 2.0,
                errors: vec![0.25],
                ..Judged::default()
            })
        };
        let order = ["own".to_owned(), "edt".to_owned()];
        let scenarios: Vec<_> = scenarios
            .iter()
            .map(|(name, own, rival)| {
                let runs = Runs::from([
                    ("own".into(), own.iter().map(run).collect()),
                    ("edt".into(), rival.iter().map(run).collect()),
                ]);
                ((*name).to_owned(), runs, vec![None, None])
            })
            .collect();
        let c = compare("s", "own", &order, &[1, 2], &scenarios);
        Figures::of(&c, "terrace …".into(), BTreeMap::new()).unwrap()
    }

    #[test]
    fn what_is_lost_is_named_and_no_scenario_stands_twice() {
        let suite = figures(&[
            ("won", [40.0, 45.0], [95.0, 95.0]),
            ("lost", [195.0, 195.0], [95.0, 90.0]),
            ("same", [95.0, 95.0], [95.0, 95.0]),
            ("open", [50.0, 100.0], [90.0, 60.0]),
        ]);
        let random = figures(&[("array-1", [5.0, 5.0], [5.0, 5.0])]);
        let text = decisions_markdown(DecisionFigures {
            suite: &suite,
            random: &random,
        });
        for line in [
            "| `edt` | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] | 2.0 | 3.0 | 10 |",
            "| best | `won` | 42 | 95 (`edt`) | 0.47 [0.45, 0.50] |",
            "| worst | `lost` | 195 | 92 (`edt`) | 2.05 [2.00, 2.11] |",
            "Scenarios with the whole interval below 1: 1; above 1: 1 (`lost`);\nwith 1 in the interval: 2.",
            "| suite | 32 | 75 % | 25 % | 50 % | 25 % |",
            "less than the best rival in 0, more in 0, the same in 1;\nthe worst is `array-1` with V/B 1.00.",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("\n| best |").count(), 3);
        assert_eq!(text.matches("\n| worst |").count(), 1);
    }
}
