//! Verdict of a comparison of runs: the best strategy and its effect relative to `noop`, in one or two sentences.
//!
//! Runs of one strategy with several seeds count as their mean. The difference to the reference then has a 95 % interval over
//! the seeds that both have.

use algo::Interval;
use decisions::NOOP;
use sim::{GroupKind, RunResult};

use crate::format::{MICROS, change_ratio, fixed, gib};

/// Changes below this share are shown as equal.
const CHANGE_SHOWN_MIN: f64 = 0.0005;

/// Number by which strategies are compared; less is better.
#[derive(Clone, Copy)]
struct Measure {
    name: &'static str,
    unit: &'static str,
    of: fn(&RunResult) -> Option<f64>,
}

const VIOLATION: Measure = Measure {
    name: "SLO violation",
    unit: "volume-seconds",
    of: violation_s,
};

/// Used if no class has an objective.
const LATENCY: Measure = Measure {
    name: "mean latency",
    unit: MICROS,
    of: mean_us,
};

fn violation_s(run: &RunResult) -> Option<f64> {
    let total = run.of_kind(GroupKind::Total).next()?;
    total.slo_violation_s.filter(|s| s.is_finite())
}

fn mean_us(run: &RunResult) -> Option<f64> {
    let all = &run.of_kind(GroupKind::Total).next()?.all;
    (all.ios > 0 && all.mean_us.is_finite()).then_some(all.mean_us)
}

fn moved_gib(run: &RunResult) -> Option<f64> {
    Some(gib(run.moves.bytes))
}

/// Runs of one strategy with one configuration, one for each seed.
struct Candidate<'a> {
    name: String,
    runs: Vec<&'a RunResult>,
}

impl Candidate<'_> {
    /// Mean over the runs; `None` if a run has no value.
    fn mean(&self, of: fn(&RunResult) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().map(|run| of(run)).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn moved(&self) -> String {
        let moved = self.mean(moved_gib).unwrap_or(0.0);
        format!("{} GiB", fixed(moved, 2))
    }
}

fn is_same_strategy(a: &RunResult, b: &RunResult) -> bool {
    let (a, b) = (&a.manifest, &b.manifest);
    a.strategy == b.strategy && a.strategy_config == b.strategy_config
}

fn candidates(results: &[RunResult]) -> Vec<Candidate<'_>> {
    let mut all: Vec<Candidate<'_>> = vec![];
    for run in results {
        let known = all
            .iter_mut()
            .find(|c| c.runs.iter().any(|r| is_same_strategy(r, run)));
        let Some(known) = known else {
            let manifest = &run.manifest;
            let is_twin = |r: &RunResult| {
                r.manifest.strategy == manifest.strategy && !is_same_strategy(r, run)
            };
            let name = match results.iter().any(is_twin) {
                true => format!("{} ({})", manifest.strategy, manifest.strategy_config),
                false => manifest.strategy.clone(),
            };
            let runs = vec![run];
            all.push(Candidate { name, runs });
            continue;
        };
        let has_seed = |r: &&RunResult| r.manifest.seed == run.manifest.seed;
        if !known.runs.iter().any(has_seed) {
            known.runs.push(run);
        }
    }
    all
}

/// Returns the verdict over runs; `None` without runs or without a number to compare.
pub(crate) fn verdict(results: &[RunResult]) -> Option<String> {
    let first = results.first()?;
    let is_other = |r: &RunResult| r.manifest.scenario != first.manifest.scenario;
    if results.iter().any(is_other) {
        return Some("The runs are of different scenarios, so no single strategy is best.".into());
    }
    let candidates = candidates(results);
    let has_objective = candidates.iter().any(|c| c.mean(VIOLATION.of).is_some());
    let measure = if has_objective { VIOLATION } else { LATENCY };
    let mut ranked: Vec<(f64, &Candidate<'_>)> = candidates
        .iter()
        .filter_map(|c| Some((c.mean(measure.of)?, c)))
        .collect();
    // Of equal strategies the one that moves less is better.
    ranked.sort_by(|a, b| {
        let moved = |c: &Candidate<'_>| c.mean(moved_gib).unwrap_or(0.0);
        a.0.total_cmp(&b.0)
            .then_with(|| moved(a.1).total_cmp(&moved(b.1)))
    });
    let (value, best) = *ranked.first()?;
    let own = format!("{} {}", fixed(value, 1), measure.unit);
    let moved = best.moved();
    let Some((next_value, next)) = ranked.get(1).copied() else {
        return Some(format!(
            "The {} of {} is {own} and it moved {moved}. The report has no other strategy to compare it with.",
            measure.name, best.name
        ));
    };
    let is_reference = |c: &Candidate<'_>| c.runs.iter().any(|r| r.manifest.strategy == NOOP);
    // Without `noop` the first strategy is the reference.
    let reference = ranked.iter().copied().find(|(_, c)| is_reference(c));
    let reference = reference.or_else(|| {
        ranked
            .iter()
            .copied()
            .find(|(_, c)| std::ptr::eq(*c, &candidates[0]))
    });
    let is_best = |c: &Candidate<'_>| std::ptr::eq(c, best);
    let Some((base, reference)) = reference.filter(|(_, c)| !is_best(c)) else {
        return Some(format!(
            "{} is best: its {} is {own} and it moved {moved}. The second best, {}, has {} {} and moved {}.",
            best.name,
            measure.name,
            next.name,
            fixed(next_value, 1),
            measure.unit,
            next.moved()
        ));
    };
    let relative = match change_ratio(base, value) {
        Some(ratio) if ratio <= -CHANGE_SHOWN_MIN => {
            format!("{} % less than with", fixed(-100.0 * ratio, 1))
        }
        _ => "the same as with".into(),
    };
    Some(format!(
        "{} is best: its {} is {own}, {relative} {} ({}), and it moved {moved} ({}: {}). {}",
        best.name,
        measure.name,
        reference.name,
        fixed(base, 1),
        reference.name,
        reference.moved(),
        interval(best, reference, measure)
    ))
}

/// Sentence about the interval of the difference between the two strategies.
fn interval(best: &Candidate<'_>, reference: &Candidate<'_>, measure: Measure) -> String {
    let difference = |run: &&RunResult| {
        let same_seed = |r: &&&RunResult| r.manifest.seed == run.manifest.seed;
        let other = reference.runs.iter().find(same_seed)?;
        Some((measure.of)(run)? - (measure.of)(other)?)
    };
    let differences: Vec<f64> = best.runs.iter().filter_map(difference).collect();
    let Some(i) = Interval::of(&differences) else {
        return "Each strategy ran with one seed, so the difference has no interval.".into();
    };
    let significance = match i.ci95_low <= 0.0 && i.ci95_high >= 0.0 && i.ci95_low < i.ci95_high {
        true => ", so it is not significant",
        false => "",
    };
    format!(
        "The 95 % interval of the difference over {} seeds is {} to {} {}{significance}.",
        i.n,
        fixed(i.ci95_low, 1),
        fixed(i.ci95_high, 1),
        measure.unit
    )
}
