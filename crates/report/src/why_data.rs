//! The answers of `why` and `why-not` about a recorded run as data: what the words in [`crate::why`] are made of.

use serde::Serialize;
use sim::{MoveRecord, RemedyRecord, RunResult};

use model::VolumeReport;

use crate::run::{moves_of, remedies_of, stays, tier_at_end};
use crate::why::{Decided, WhyError, asked_of, decided, decisions_of, said};

/// Why a volume is where it is.
#[derive(Debug, Serialize)]
pub struct WhyRecorded<'a> {
    pub scenario: &'a str,
    pub strategy: &'a str,
    pub seed: u64,
    pub volume: &'a str,
    /// Where it was, in order of time.
    pub stays: Vec<StayRecorded<'a>>,
    pub moves: Vec<&'a MoveRecord>,
    /// Answers to a broken objective of the volume, and those that it had to bear for another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<&'a RemedyRecord>,
    /// The decisions that are told.
    pub decisions: Vec<DecisionRecorded<'a>>,
}

/// A stretch of time on one tier.
#[derive(Debug, Serialize)]
pub struct StayRecorded<'a> {
    pub tier: &'a str,
    /// From, seconds since the run began.
    pub from_s: f64,
    /// To, seconds.
    pub to_s: f64,
}

/// A decision about a volume.
#[derive(Debug, Serialize)]
pub struct DecisionRecorded<'a> {
    /// Its number among all decisions of the run, from 1.
    pub number: usize,
    /// When, seconds since the run began.
    pub at_s: f64,
    /// What it says of the volume; none where the strategy did not consider it.
    pub report: Option<&'a VolumeReport>,
    /// Why not the tier that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// Why a volume is not on a tier.
#[derive(Debug, Serialize)]
pub struct WhyNotRecorded<'a> {
    /// The tier that was asked about.
    pub tier: &'a str,
    /// The tier on which the volume was at the end.
    pub tier_at_end: &'a str,
    /// Everything else; every decision says why not that tier.
    #[serde(flatten)]
    pub why: WhyRecorded<'a>,
}

/// What [`crate::why()`] tells, as data.
///
/// # Errors
/// As there.
pub fn why_data<'a>(
    result: &'a RunResult,
    volume: &'a str,
    at: Option<f64>,
) -> Result<WhyRecorded<'a>, WhyError> {
    let decisions = decided(result, volume)?;
    let relevant = decisions_of(&decisions, at)?;
    Ok(recorded(result, volume, relevant, |_| None))
}

/// What [`crate::why_not()`] tells, as data; every decision by itself.
///
/// # Errors
/// As there.
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
    relevant: Vec<Decided<'a>>,
    why_not: impl Fn(Decided<'a>) -> Option<String>,
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
