//! Claims and what became of them.
//!
//! A claim has cells; each says on which side of a threshold a quantity should be. A cell agrees when the 95 % interval
//! over the seeds lies wholly on that side, disagrees when it lies wholly on the other, and is undecided when it spans the
//! threshold or when there is nothing to measure.

use serde::Serialize;

use super::claims::{CellSpec, ClaimSpec, claims};
use super::measured::SeedRuns;
use super::setup::{CORRECTED, LITERAL};
use crate::Interval;
pub use crate::claim::Verdict;

/// On which side of its threshold a quantity should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Above.
    Above,
    /// Below.
    Below,
}

/// How cells make a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Needs {
    /// All of them agree.
    All,
    /// One is enough ("sometimes", "not the lowest").
    Any,
}

/// What kind of quantity a cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// AutoTiering over its rival, less one; the mean is geometric.
    Gain,
    /// A part of a whole, 0 to 1.
    Share,
    /// AutoTiering less its rival, in the unit of its name.
    Difference,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// What is compared.
    pub name: String,
    /// Of which kind.
    pub kind: Kind,
    /// Where it should be.
    pub side: Side,
    /// The threshold.
    pub threshold: f64,
    /// What it is; none where a seed gives no value.
    pub ours: Option<Interval>,
    /// What became of it.
    pub verdict: Verdict,
}

/// A gain beside a claim, without a verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beside {
    /// What it is.
    pub name: &'static str,
    /// Its value.
    pub ours: Option<Interval>,
}

/// A claim, as one form of AutoTiering bears it out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Borne {
    /// What became of it.
    pub verdict: Verdict,
    /// Cells that agree.
    pub agree: usize,
    /// Cells that disagree.
    pub disagree: usize,
    /// Cells that are undecided.
    pub undecided: usize,
    /// The cells.
    pub cells: Vec<Cell>,
    /// Other readings of the same claim.
    pub beside: Vec<Beside>,
}

/// What is published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Published {
    /// The value, where one is printed.
    pub value: Option<f64>,
    /// In words.
    pub says: &'static str,
}

/// Both forms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OursOf {
    /// As the paper says.
    pub literal: Borne,
    /// With its faults mended.
    pub corrected: Borne,
}

/// One claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// Short name.
    pub id: &'static str,
    /// Where in Sec. V it is published.
    pub source: &'static str,
    /// What is published.
    pub published: Published,
    /// Whether all cells must agree or one is enough.
    pub needs: Needs,
    /// What was found.
    pub ours: OursOf,
    /// What to keep in mind.
    pub note: &'static str,
}

/// Every claim, judged.
pub(crate) fn scorecard(seeds: &[SeedRuns]) -> Vec<Claim> {
    let judged = |spec: ClaimSpec| {
        let literal = borne(&spec, seeds, LITERAL);
        let corrected = borne(&spec, seeds, CORRECTED);
        Claim {
            id: spec.id,
            source: spec.source,
            published: spec.published,
            needs: spec.needs,
            ours: OursOf { literal, corrected },
            note: spec.note,
        }
    };
    claims().into_iter().map(judged).collect()
}

fn borne(spec: &ClaimSpec, seeds: &[SeedRuns], form: &str) -> Borne {
    let cell = |c: &CellSpec| {
        let value = |r: &SeedRuns| (c.value)(r, form);
        let ours = match c.kind {
            Kind::Gain => Interval::of_gains(seeds, value),
            Kind::Share | Kind::Difference => Interval::over(seeds, value),
        };
        Cell {
            name: c.name.clone(),
            kind: c.kind,
            side: c.side,
            threshold: c.threshold,
            ours,
            verdict: verdict(ours, c.side, c.threshold),
        }
    };
    let cells: Vec<Cell> = spec.cells.iter().map(cell).collect();
    let count = |v: Verdict| cells.iter().filter(|c| c.verdict == v).count();
    let (agree, disagree) = (count(Verdict::Agrees), count(Verdict::Disagrees));
    Borne {
        verdict: together(spec.needs, agree, disagree, cells.len()),
        agree,
        disagree,
        undecided: count(Verdict::Undecided),
        cells,
        beside: spec
            .beside
            .iter()
            .map(|(name, value)| Beside {
                name,
                ours: Interval::of_gains(seeds, |r| value(r, form)),
            })
            .collect(),
    }
}

fn verdict(ours: Option<Interval>, side: Side, threshold: f64) -> Verdict {
    let Some(i) = ours else {
        return Verdict::Undecided;
    };
    let (above, below) = (i.ci95_low > threshold, i.ci95_high < threshold);
    match (side, above, below) {
        (Side::Above, true, _) | (Side::Below, _, true) => Verdict::Agrees,
        (Side::Above, _, true) | (Side::Below, true, _) => Verdict::Disagrees,
        _ => Verdict::Undecided,
    }
}

fn together(needs: Needs, agree: usize, disagree: usize, cells: usize) -> Verdict {
    match needs {
        Needs::All if disagree > 0 => Verdict::Disagrees,
        Needs::All if agree == cells => Verdict::Agrees,
        Needs::Any if agree > 0 => Verdict::Agrees,
        Needs::Any if disagree == cells => Verdict::Disagrees,
        _ => Verdict::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_the_whole_interval_on_one_side() {
        let i = |low: f64, high: f64| {
            Some(Interval {
                mean: (low + high) / 2.0,
                ci95_low: low,
                ci95_high: high,
                n: 5,
            })
        };
        assert_eq!(verdict(i(0.1, 0.3), Side::Above, 0.0), Verdict::Agrees);
        assert_eq!(verdict(i(0.1, 0.3), Side::Below, 0.0), Verdict::Disagrees);
        assert_eq!(verdict(i(-0.1, 0.3), Side::Above, 0.0), Verdict::Undecided);
        assert_eq!(verdict(i(-0.2, -0.1), Side::Below, 0.0), Verdict::Agrees);
        assert_eq!(verdict(i(0.0, 0.0), Side::Below, 0.0), Verdict::Undecided);
        assert_eq!(verdict(None, Side::Above, 0.0), Verdict::Undecided);
    }

    #[test]
    fn all_or_any_of_the_cells() {
        use Verdict::{Agrees, Disagrees, Undecided};
        let cases = [
            (Needs::All, 3, 0, Agrees),
            (Needs::All, 2, 0, Undecided),
            (Needs::All, 2, 1, Disagrees),
            (Needs::Any, 1, 2, Agrees),
            (Needs::Any, 0, 3, Disagrees),
            (Needs::Any, 0, 2, Undecided),
        ];
        for (needs, agree, disagree, expected) in cases {
            assert_eq!(together(needs, agree, disagree, 3), expected);
        }
    }
}
