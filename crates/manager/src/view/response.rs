//! What was done about broken objectives, or would have been.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;

/// What became of an answer to a broken objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseState {
    /// It is said, and not done: its mode is `recommend`, or everything is paused.
    Recommended,
    /// It is ordered with every window, until it is taken back.
    InForce,
    /// It was taken back, or came to nothing.
    TakenBack,
    /// It was carried out, and there is nothing to take back: a move.
    Done,
    /// Nothing would do.
    NoRemedy,
}

impl ResponseState {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            ResponseState::Recommended => "recommended",
            ResponseState::InForce => "in force",
            ResponseState::TakenBack => "taken back",
            ResponseState::Done => "done",
            ResponseState::NoRemedy => "no answer",
        }
    }
}

/// An answer to a broken objective, with what it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseView {
    /// Its number; rises, from 1 at each start of the controller.
    pub id: u64,
    /// The host.
    pub host: String,
    /// The volume whose objective is broken, or would be in its peak.
    pub volume: String,
    /// When that was found, the controller's time.
    pub found_ns: u64,
    /// The peak that it is an answer ahead of; none where an objective was broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<PeakView>,
    /// When it was decided, the controller's time.
    pub at_ns: u64,
    /// What it rests on: windows that missed, who disturbs and by what, what is not known.
    pub evidence: Vec<String>,
    /// What kind of answer; none where nothing would do.
    pub remedy: Option<RemedyKind>,
    /// To which volume it is done.
    pub to: Option<String>,
    /// Requests per second that it is held to, of a throttle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The part of the cache that it has, bytes, of a memory-share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// The second copies that are made, of a mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesView>,
    /// What others lose, requests per second, as predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_per_s: Option<f64>,
    /// The answer in words.
    pub action: String,
    /// Its price in all, in seconds of the broken objective; none where nothing would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_s: Option<f64>,
    /// Of what parts, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// What else would have done, in the order in which it would have been taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherView>,
    /// What it is predicted to lead to, in words; none where nothing is known to predict from.
    pub prediction: Option<String>,
    /// What else was looked at, and why it would not do.
    pub refused: Vec<RefusedView>,
    /// What became of it.
    pub state: ResponseState,
    /// When the last window ended that missed the objective, once it is kept again; the controller's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violated_last_ns: Option<u64>,
    /// When the objective was found to be kept again, the controller's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_ns: Option<u64>,
    /// When it was taken back, the controller's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
}

/// A peak that is expected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeakView {
    /// When it is expected to begin, the controller's time.
    pub at_ns: u64,
    /// When it is expected to be over, the controller's time.
    pub until_ns: u64,
    /// Requests per second that are expected.
    pub rate_per_s: f64,
    /// What came of it, once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<PeakOutcome>,
}

/// What the time of a peak was like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeakOutcome {
    /// Windows in which the volume was measured.
    pub windows: u64,
    /// Those of them that missed its objective.
    pub violated: u64,
    /// Requests per second in the busiest of them.
    pub rate_max_per_s: f64,
}

/// Second copies that are an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopiesView {
    /// Where they are made.
    pub device: String,
    /// Their bytes.
    pub bytes: u64,
    /// Share of its volume's reads that are of what has them, 0 to 1.
    pub reads: f64,
}

/// An answer that would have done, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherView {
    /// Which kind.
    pub remedy: RemedyKind,
    /// The answer in words.
    pub action: String,
    /// Its price in all, in seconds of the broken objective.
    pub price_s: f64,
    /// Of what parts, in words.
    pub price: String,
}

/// An answer that would not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedView {
    /// Which kind.
    pub remedy: RemedyKind,
    /// Why.
    pub why: String,
}

/// Answers of one kind since the controller was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseCounter {
    /// The kind, or `none` where nothing would do.
    pub remedy: String,
    /// `recommended`, `ordered`, `taken-back`, `done` or `no-answer`.
    pub what: String,
    /// How many.
    pub count: u64,
}
