//! Views of remedies: actions against violations, with their evidence and effect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slo::ladder::RemedyKind;

/// State of a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResponseState {
    /// Recommended, but not carried out: its mode is `recommend`, or the controller is paused.
    Recommended,
    /// In force: the controller orders it in every window until it withdraws it.
    InForce,
    /// Withdrawn, or ended without effect.
    TakenBack,
    /// Carried out; nothing to withdraw. Only moves have this state.
    Done,
    /// No remedy is predicted to suffice.
    NoRemedy,
}

impl ResponseState {
    /// Returns the state in words.
    pub fn name(self) -> &'static str {
        match self {
            ResponseState::Recommended => "recommended",
            ResponseState::InForce => "in force",
            ResponseState::TakenBack => "taken back",
            ResponseState::Done => "done",
            ResponseState::NoRemedy => "no-remedy",
        }
    }
}

/// Remedy for a violation or for an expected peak, with its evidence, prediction and price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseView {
    /// Number of the remedy, from 1 after each start of the controller; later remedies have higher
    /// numbers.
    pub id: u64,
    /// Name of the host.
    pub host: String,
    /// Volume whose objective is violated, or is predicted to be violated in a peak.
    pub volume: String,
    /// Controller time at which the violation or the coming peak was found, nanoseconds.
    pub found_ns: u64,
    /// Expected peak that the remedy prepares for; absent if it remedies a present violation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<PeakView>,
    /// Controller time of the decision, nanoseconds.
    pub at_ns: u64,
    /// Evidence, as sentences: windows with violations, the disturbing volumes and resources, and
    /// missing data.
    pub evidence: Vec<String>,
    /// Kind of remedy; null if no remedy is predicted to suffice.
    pub remedy: Option<RemedyKind>,
    /// Volume that the remedy is applied to; null without a remedy.
    pub to: Option<String>,
    /// Limit of a throttle, requests per second; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Cache share of the volume, bytes; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Mirror of the volume's extents; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesView>,
    /// Predicted loss of other volumes, requests per second; absent without a remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_per_s: Option<f64>,
    /// The remedy in words.
    pub action: String,
    /// Total price, in seconds of violation; absent without a remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_s: Option<f64>,
    /// Parts of the price, in words; absent without a remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Other remedies that would suffice, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherView>,
    /// Predicted effect, in words; null without a basis for a prediction.
    pub prediction: Option<String>,
    /// Remedies that were considered and rejected.
    pub refused: Vec<RefusedView>,
    /// State of the remedy.
    pub state: ResponseState,
    /// End of the last window with a violation, as controller time in nanoseconds; absent until the
    /// objective is met again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violated_last_ns: Option<u64>,
    /// Controller time at which the controller found the objective met again, nanoseconds; absent
    /// until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_ns: Option<u64>,
    /// Controller time at which the remedy was withdrawn, nanoseconds; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
}

/// Expected peak of a volume's load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeakView {
    /// Expected start, as controller time in nanoseconds.
    pub at_ns: u64,
    /// Expected end, as controller time in nanoseconds.
    pub until_ns: u64,
    /// Expected requests per second.
    pub rate_per_s: f64,
    /// Measurements of the peak; absent until it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<PeakOutcome>,
}

/// Measurements of a volume during a peak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeakOutcome {
    /// Number of windows in which the volume was measured.
    pub windows: u64,
    /// Number of these windows that violated its objective.
    pub violated: u64,
    /// Requests per second in the busiest of these windows.
    pub rate_max_per_s: f64,
}

/// Mirror that is created as a remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopiesView {
    /// Device of the mirror.
    pub device: String,
    /// Mirrored bytes.
    pub bytes: u64,
    /// Share of the volume's reads that go to mirrored extents, 0 to 1.
    pub reads: f64,
}

/// Another remedy that would also suffice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherView {
    /// Kind of remedy.
    pub remedy: RemedyKind,
    /// The remedy in words.
    pub action: String,
    /// Total price, in seconds of violation.
    pub price_s: f64,
    /// Parts of the price, in words.
    pub price: String,
}

/// Remedy that was considered and rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedView {
    /// Kind of remedy.
    pub remedy: RemedyKind,
    /// Reason for the rejection.
    pub why: String,
}

/// Number of remedies of one kind and end since the start of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseCounter {
    /// Kind of remedy, or `none` if no remedy was predicted to suffice.
    pub remedy: String,
    /// End: `recommended`, `ordered`, `taken-back`, `done` or `no-remedy`.
    pub what: String,
    /// Number of remedies.
    pub count: u64,
}
