//! What paper 1 says about its evaluation, and what becomes of it here.
//!
//! Each claim is one or more measures with a rule. A measure bears the claim out when the 95 % interval over the seeds keeps the
//! rule as a whole (where only one seed was run: when the value does), speaks against it when all of it breaks the rule, and
//! is undecided otherwise.

mod on_a;
mod synthetic;

use serde::Serialize;

use super::grid::{Grid, Value};
use crate::autotiering::Verdict;

/// What a measure has to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Above this.
    Above(f64),
    /// Below this.
    Below(f64),
    /// Between these.
    Between(f64, f64),
}

/// One measure.
#[derive(Debug, Clone, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: String,
    /// What it has to be.
    pub rule: Rule,
    /// What it is here.
    pub ours: Value,
    /// Whether it is as published.
    pub verdict: Verdict,
}

/// What to make of agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// The stand-in for condition A was selected for it: agreement is a calibration.
    Calibrated,
    /// It was not: agreement or disagreement says something.
    Open,
}

/// One claim.
#[derive(Debug, Clone, Serialize)]
pub struct Claim {
    /// Short name.
    pub id: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// In words.
    pub says: &'static str,
    /// The printed value, where there is one.
    pub published: Option<f64>,
    /// What to make of agreement.
    pub outlook: Outlook,
    /// What became of it: agrees where all measures do, disagrees where one does.
    pub verdict: Verdict,
    /// What it rests on.
    pub ours: Vec<Measure>,
    /// What to keep in mind.
    pub note: &'static str,
}

pub(crate) fn measure(name: impl Into<String>, ours: Value, rule: Rule) -> Measure {
    let ends = ours
        .interval
        .map_or((ours.mean, ours.mean), |i| (i.ci95_low, i.ci95_high));
    let verdict = match rule {
        Rule::Above(x) => side(ends.0 > x, ends.1 <= x),
        Rule::Below(x) => side(ends.1 < x, ends.0 >= x),
        Rule::Between(low, high) => side(
            ends.0 >= low && ends.1 <= high,
            ends.1 < low || ends.0 > high,
        ),
    };
    Measure {
        name: name.into(),
        rule,
        ours,
        verdict,
    }
}

fn side(keeps: bool, breaks: bool) -> Verdict {
    match (keeps, breaks) {
        (true, _) => Verdict::Agrees,
        (_, true) => Verdict::Disagrees,
        _ => Verdict::Undecided,
    }
}

fn together(measures: &[Measure]) -> Verdict {
    let any = |v: Verdict| measures.iter().any(|m| m.verdict == v);
    match (any(Verdict::Disagrees), any(Verdict::Undecided)) {
        (true, _) => Verdict::Disagrees,
        (_, true) => Verdict::Undecided,
        _ => Verdict::Agrees,
    }
}

/// A printed value counts as met within a tenth of it, up or down.
pub(crate) fn near(value: f64) -> Rule {
    let slack = 0.1 * value.abs();
    Rule::Between(value - slack, value + slack)
}

fn exact(value: f64) -> Value {
    Value {
        mean: value,
        interval: None,
    }
}

pub(crate) fn claim(
    id: &'static str,
    source: &'static str,
    says: &'static str,
    published: Option<f64>,
    outlook: Outlook,
    ours: Vec<Measure>,
) -> Claim {
    Claim {
        id,
        source,
        says,
        published,
        outlook,
        verdict: together(&ours),
        ours,
        note: "",
    }
}

/// All of them, judged.
pub(super) fn claims(grid: &Grid) -> Vec<Claim> {
    let mut all = on_a::calibrated(grid);
    all.extend(on_a::shapes(grid));
    all.extend(synthetic::claims(grid));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;

    fn value(low: f64, high: f64) -> Value {
        Value {
            mean: (low + high) / 2.0,
            interval: Some(Interval {
                mean: (low + high) / 2.0,
                ci95_low: low,
                ci95_high: high,
                n: 5,
            }),
        }
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        use Verdict::{Agrees, Disagrees, Undecided};
        for (low, high, rule, want) in [
            (1.1, 1.2, Rule::Above(1.0), Agrees),
            (0.9, 1.2, Rule::Above(1.0), Undecided),
            (0.9, 1.0, Rule::Above(1.0), Disagrees),
            (0.8, 0.9, Rule::Below(1.0), Agrees),
            (1.25, 1.3, near(1.29), Agrees),
            (1.1, 1.3, near(1.29), Undecided),
            (1.5, 1.6, near(1.29), Disagrees),
            (-0.18, -0.16, near(-0.17), Agrees),
        ] {
            assert_eq!(
                measure("", value(low, high), rule).verdict,
                want,
                "{low} {high} {rule:?}"
            );
        }
        // One seed: the value itself.
        assert_eq!(measure("", exact(1.01), Rule::Above(1.0)).verdict, Agrees);
    }
}
