//! Results of decisions as Markdown for the book: from stored figures, never from a run.

use std::cmp::Ordering;

use decisions::{EPSILON, Figures, HarmTotals, RatioInterval, ScenarioFigures, StrategyTotals};

use crate::decisions::{percent, ratio, share, spreads};
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
        won_and_lost(of.suite) + &arrays(of.random) + &guards(of.suite) + &hindsight(of.suite),
        harm(of),
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
        "V/B bounded, suite",
        "V/B, random arrays",
        "V/B bounded, random arrays",
        "moves per run",
        "GiB copied per run",
        "returns",
        "of them caused",
    ];
    let mut text = row(&heads.map(Into::into)) + "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
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
        let random = totals(of.random, &t.strategy);
        let sum =
            |value: fn(&StrategyTotals) -> u64| -> u64 { all.iter().map(|(_, t)| value(t)).sum() };
        let (moves, returns) = (sum(|t| t.moves_all), sum(|t| t.returns));
        let of_moves = (moves > 0).then(|| returns as f64 / moves as f64);
        text += &row(&[
            code(&t.strategy),
            ratio(t.ratio),
            ratio(t.ratio_bounded),
            ratio(random.and_then(|t| t.ratio)),
            ratio(random.and_then(|t| t.ratio_bounded)),
            per_run(|t| t.moves),
            per_run(|t| t.gib),
            format!(
                "{returns} ({})",
                of_moves.map_or_else(|| NONE.into(), share)
            ),
            sum(|t| t.returns_caused).to_string(),
        ]);
    }
    text
}

fn legend(of: DecisionFigures<'_>) -> String {
    let (suite, random) = (of.suite, of.random);
    let commit = random.commit.as_ref().map_or_else(String::new, |commit| {
        format!("They were drawn from the hash of the judged commit,\n`{commit}`.\n")
    });
    format!(
        "V is the SLO violation: seconds in which a volume exceeds its latency objective, each weighted\n\
         by the volume's class. B is the V of the best rival of {own}, chosen for each scenario among the\n\
         strategies of this table. V/B is a geometric mean over all contests with its 95 % interval.\n\
         Below 1, {own} violates less than its best rival. \"Bounded\" is against the best rival that makes\n\
         no volume without an objective more than twice as slow as `noop`. Both V and B include {epsilon} % of\n\
         the largest possible violation, which keeps the ratio finite. The suite has {contests} contests and\n\
         {guards} guards, in which nothing is to be gained, with {seeds} seeds each; the {arrays} random arrays are\n\
         contests with {array_seeds} seeds each. {commit}\
         A return is a move back to a tier that the volume left within 20 migration epochs; it is caused\n\
         if a load changed in between. Returns are of all {runs} runs.\n",
        own = code(&suite.own),
        epsilon = fixed(100.0 * EPSILON, 1),
        contests = suite.scenarios.iter().filter(|s| !s.guard).count(),
        guards = suite.scenarios.iter().filter(|s| s.guard).count(),
        seeds = suite.seeds.len(),
        arrays = random.scenarios.len(),
        array_seeds = random.seeds.len(),
        runs = runs(suite, &suite.own) + runs(random, &random.own),
    )
}

/// A scenario as the strategy did in it.
struct ScenarioResult<'a> {
    scenario: &'a ScenarioFigures,
    ratio: RatioInterval,
}

/// Contests that the strategy ran in, the best first.
fn done(figures: &Figures) -> Vec<ScenarioResult<'_>> {
    let of = |scenario| {
        let ratio = ScenarioFigures::of(scenario, &figures.own)?.ratio?;
        Some(ScenarioResult { scenario, ratio })
    };
    let contests = figures.scenarios.iter().filter(|s| !s.guard);
    let mut all: Vec<ScenarioResult<'_>> = contests.filter_map(of).collect();
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

fn names(of: &[&ScenarioResult<'_>]) -> String {
    let names: Vec<String> = of.iter().map(|d| code(&d.scenario.scenario)).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    }
}

fn won_and_lost(suite: &Figures) -> String {
    let all = done(suite);
    let won = all.iter().filter(|d| d.ratio.ci95_high < 1.0).count();
    let lost: Vec<&ScenarioResult<'_>> = all.iter().filter(|d| d.ratio.ci95_low > 1.0).collect();
    format!(
        "Contests with the whole interval below 1: {won}; above 1: {}{};\nwith 1 in the interval: {}.\n",
        lost.len(),
        names(&lost).replacen(' ', "\n", 1),
        all.len() - won - lost.len(),
    )
}

fn arrays(random: &Figures) -> String {
    let all = done(random);
    let count = |of: Ordering| {
        let is = |d: &&ScenarioResult<'_>| d.ratio.ratio.total_cmp(&1.0) == of;
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

/// Moves where every move is one too many.
fn guards(suite: &Figures) -> String {
    let guards: Vec<&ScenarioFigures> = suite.scenarios.iter().filter(|s| s.guard).collect();
    let Some(own) = totals(suite, &suite.own).filter(|_| !guards.is_empty()) else {
        return String::new();
    };
    let names: Vec<String> = guards.iter().map(|s| code(&s.scenario)).collect();
    format!(
        "Guards ({}):\n{} makes {} moves in all runs together; V beyond that of `noop`: {} s.\n",
        names.join(", "),
        code(&suite.own),
        own.guard_moves,
        maybe(own.guard_violation, 0)
    )
}

/// Nothing where no plans in hindsight are known.
fn hindsight(suite: &Figures) -> String {
    let known = suite.scenarios.iter().filter(|s| s.hindsight.is_some());
    let gained = totals(suite, &suite.own).and_then(|t| t.gained);
    match (known.count(), gained) {
        (n, Some(gained)) if n > 0 => format!(
            "Of what the best known plans in hindsight gain over the best rivals, {} gains {} % on average\n({n} scenarios with known plans).\n",
            code(&suite.own),
            fixed(100.0 * gained, 0)
        ),
        _ => String::new(),
    }
}

/// Slowdown against `noop`. Nothing where `noop` did not run.
fn harm(of: DecisionFigures<'_>) -> String {
    let heads = [
        &format!("volumes under {}", code(&of.suite.own)),
        "volume-runs",
        "mean: worst",
        "≤ 2x",
        "≤ 3x",
        "p99: worst",
        "≤ 2x",
        "≤ 3x",
        "mean of the worst 10 min: worst",
        "≤ 2x",
        "≤ 3x",
        "p99 of the worst 10 min: worst",
        "≤ 2x",
        "≤ 3x",
    ];
    let mut text = row(&heads.map(str::to_owned)) + "|---|" + &"--:|".repeat(13) + "\n";
    let mut rows = 0;
    for (name, figures) in [("suite", of.suite), ("random arrays", of.random)] {
        let Some(t) = totals(figures, &figures.own) else {
            continue;
        };
        for (kind, harm) in [
            ("with an objective", &t.harm_with_objective),
            ("without an objective", &t.harm_without_objective),
        ] {
            let Some(harm) = harm else { continue };
            text += &harm_row(format!("{name}, {kind}"), harm);
            rows += 1;
        }
    }
    if rows == 0 {
        return String::new();
    }
    text + "\nLatency over that under `noop` with the same seed, for each volume with at least 1,000 requests in\n\
            a run. The worst ten minutes are those with the highest ratio to the same ten minutes under `noop`.\n"
}

fn harm_row(name: String, harm: &HarmTotals) -> String {
    let mut cells = vec![name, harm.volume_runs.to_string()];
    cells.extend(spreads(harm));
    row(&cells)
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

    use decisions::{RunMetrics, Runs, compare};

    use super::*;

    /// Figures of scenarios, each with V of the strategy and of its only rival, by seed.
    fn figures(scenarios: &[(&str, [f64; 2], [f64; 2])]) -> Figures {
        let run = |violation: &f64| {
            Some(RunMetrics {
                violation: *violation,
                possible: 1000.0,
                moves: 2,
                returns: 1,
                bytes: 3 << 30,
                with_interval: 4,
                held: 3,
                worse: 1,
                width: 2.0,
                errors: vec![0.25],
                ..RunMetrics::default()
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
        let c = compare(
            "s",
            "own",
            &order,
            &[1, 2],
            &["idle".to_owned()].into(),
            &scenarios,
        );
        Figures::of(
            &c,
            "terrace …".into(),
            Some("9bb2e4d3".into()),
            BTreeMap::new(),
        )
        .unwrap()
    }

    #[test]
    fn lost_scenarios_are_named_and_none_is_listed_twice() {
        let suite = figures(&[
            ("won", [40.0, 45.0], [95.0, 95.0]),
            ("lost", [195.0, 195.0], [95.0, 90.0]),
            ("same", [95.0, 95.0], [95.0, 95.0]),
            ("open", [50.0, 100.0], [90.0, 60.0]),
            ("idle", [5.0, 0.0], [0.0, 0.0]),
        ]);
        let random = figures(&[("array-1", [5.0, 5.0], [5.0, 5.0])]);
        let text = decisions_markdown(DecisionFigures {
            suite: &suite,
            random: &random,
        });
        for line in [
            "| `edt` | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] | 2.0 | 3.0 | 12 (50.0 %) | 0 |",
            "4 contests and\n1 guards",
            "the hash of the judged commit,\n`9bb2e4d3`.",
            "Guards (`idle`):\n`own` makes 4 moves in all runs together",
            "| best | `won` | 42 | 95 (`edt`) | 0.47 [0.45, 0.50] |",
            "| worst | `lost` | 195 | 92 (`edt`) | 2.05 [2.00, 2.11] |",
            "Contests with the whole interval below 1: 1; above 1: 1\n(`lost`);\nwith 1 in the interval: 2.",
            "| suite | 40 | 75 % | 25 % | 50 % | 25 % |",
            "less than the best rival in 0, more in 0, the same in 1;\nthe worst is `array-1` with V/B 1.00.",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("\n| best |").count(), 3);
        assert_eq!(text.matches("\n| worst |").count(), 1);
    }
}
