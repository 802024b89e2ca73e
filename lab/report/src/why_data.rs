//! Explanations of `why` and `why-not` about a recorded run as data, with the same content as the text of [`crate::why`].

use serde::Serialize;
use sim::{MoveRecord, RemedyRecord, RunResult};

use model::VolumeReport;

use crate::run::{moves_of, remedies_of, stays, tier_at_end};
use crate::why::{DecisionRow, WhyError, asked_of, decided, decisions_of, said};

/// Explanation of the place of a volume.
#[derive(Debug, Serialize)]
pub struct WhyRecorded<'a> {
    pub scenario: &'a str,
    pub strategy: &'a str,
    pub seed: u64,
    pub volume: &'a str,
    /// Places over the run, in order of time.
    pub stays: Vec<StayRecorded<'a>>,
    pub moves: Vec<&'a MoveRecord>,
    /// Remedies for violations of the volume, and remedies for other volumes that affect it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<&'a RemedyRecord>,
    /// Decisions that explain the place.
    pub decisions: Vec<DecisionRecorded<'a>>,
}

/// Time on one tier.
#[derive(Debug, Serialize)]
pub struct StayRecorded<'a> {
    pub tier: &'a str,
    /// Start, seconds since the start of the run.
    pub from_s: f64,
    /// End, seconds since the start of the run.
    pub to_s: f64,
}

/// A decision about a volume.
#[derive(Debug, Serialize)]
pub struct DecisionRecorded<'a> {
    /// Position among all decisions of the run, from 1.
    pub number: usize,
    /// Time, seconds since the start of the run.
    pub at_s: f64,
    /// Report about the volume; none if the strategy did not consider it.
    pub report: Option<&'a VolumeReport>,
    /// Reason why the volume is not on the requested tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Explanation why a volume is not on a tier.
#[derive(Debug, Serialize)]
pub struct WhyNotRecorded<'a> {
    /// Requested tier.
    pub tier: &'a str,
    /// Tier of the volume at the end of the run.
    pub tier_at_end: &'a str,
    /// Places, moves and decisions; each decision has the reason against the requested tier.
    #[serde(flatten)]
    pub why: WhyRecorded<'a>,
}

/// Returns the content of [`crate::why()`] as data.
///
/// # Errors
/// The same as [`crate::why()`].
pub fn why_data<'a>(
    result: &'a RunResult,
    volume: &'a str,
    at: Option<f64>,
) -> Result<WhyRecorded<'a>, WhyError> {
    let decisions = decided(result, volume)?;
    let relevant = decisions_of(&decisions, at)?;
    Ok(recorded(result, volume, relevant, |_| None))
}

/// Returns the content of [`crate::why_not()`] as data, without merging decisions.
///
/// # Errors
/// The same as [`crate::why_not()`].
pub fn why_not_data<'a>(
    result: &'a RunResult,
    volume: &'a str,
    tier: &'a str,
    at: Option<f64>,
) -> Result<WhyNotRecorded<'a>, WhyError> {
    let relevant = asked_of(result, volume, tier, at)?;
    let tier_at_end = tier_at_end(result, volume).expect("known volumes are somewhere at the end");
    Ok(WhyNotRecorded {
        tier,
        tier_at_end,
        why: recorded(result, volume, relevant, |d| Some(said(d, tier).words)),
    })
}

fn recorded<'a>(
    result: &'a RunResult,
    volume: &'a str,
    relevant: Vec<DecisionRow<'a>>,
    why_not: impl Fn(DecisionRow<'a>) -> Option<String>,
) -> WhyRecorded<'a> {
    let manifest = &result.manifest;
    let stays = stays(result, volume);
    WhyRecorded {
        scenario: &manifest.scenario,
        strategy: &manifest.strategy,
        seed: manifest.seed,
        volume,
        stays: stays
            .into_iter()
            .map(|s| StayRecorded {
                tier: s.tier,
                from_s: s.from_s,
                to_s: s.to_s,
            })
            .collect(),
        moves: moves_of(result, volume),
        remedies: remedies_of(result, volume),
        decisions: relevant
            .into_iter()
            .map(|d| DecisionRecorded {
                number: d.number,
                at_s: d.at_s(),
                report: d.row,
                why_not: why_not(d),
            })
            .collect(),
    }
}
