//! Views of the controller: the JSON bodies of version 1 of the REST interface. Objects are named
//! instead of numbered, and units are part of field names.

use std::collections::BTreeMap;

use model::{ExtentRanges, Goal, IoFailure, JobStatus, Reason, ScoreParts, SloStatistic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::Bound;

use crate::problem::ProblemView;
use model::Mode;
use model::TierState;

mod counters;
mod hosts;
mod place;
mod response;

pub use counters::{
    CountersView, DirectionCounters, FailedCounter, LATENCY_BOUNDS_NS, MoveCounter, VolumeCounters,
};
pub use hosts::{HostState, HostView, LendsView, LentView};
pub use place::{PlaceCostView, PlaceLoadView, PlaceStanding, PlaceTierView, PlaceView};
pub use response::{
    CopiesView, OtherView, PeakOutcome, PeakView, RefusedView, ResponseCounter, ResponseState,
    ResponseView,
};

/// State of the controller, its hosts and its problems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// Version of Terrace.
    pub version: String,
    /// Controller time in nanoseconds, counted from the controller's first start. Other points in
    /// time in `…_ns` fields use the same clock.
    pub at_ns: u64,
    /// Name of the placement strategy.
    pub strategy: String,
    /// True while the controller is paused: no move, remedy or calibration starts.
    pub paused: bool,
    /// Mode of each goal: which moves the controller carries out without approval.
    pub modes: BTreeMap<Goal, Mode>,
    /// Accuracy of the strategy's latency predictions.
    pub trust: TrustView,
    /// True if the present time is within the configured hours for moves (`hours.moves`). Outside
    /// these hours no move starts without an operator.
    pub in_hours: bool,
    /// Hosts that have registered.
    pub hosts: Vec<HostView>,
    /// Number of volumes on all hosts.
    pub volumes: u32,
    /// Number of volumes that violated their objective in the last window.
    pub slo_violated: u32,
    /// Number of volumes without a known load in the last window.
    pub unknown: u32,
    /// Number of objectives with a confirmed violation, for which the controller looks for a
    /// remedy.
    #[serde(default)]
    pub objectives_violated: u32,
    /// Number of volumes that are throttled as a remedy for the violation of another volume.
    #[serde(default)]
    pub held: u32,
    /// Number of moves that wait for approval.
    pub proposed: u32,
    /// Number of approved jobs that have not ended.
    pub jobs: u32,
    /// Conditions that an operator must act on, most urgent first; empty if no problem exists.
    #[serde(default)]
    pub problems: Vec<ProblemView>,
    /// Error of the controller's store; null while the store works. While the store fails, the
    /// controller decides and orders nothing.
    pub store_failure: Option<String>,
}

impl StatusView {
    /// Tells which moves start without approval now, and why others do not.
    pub fn automatic_moves(&self) -> &'static str {
        let is_automatic = |mode: &Mode| matches!(mode, Mode::Partial | Mode::Auto);
        if !self.modes.values().any(is_automatic) {
            return "none: the mode of every goal is off or recommend";
        }
        let space = self.modes.get(&Goal::Space).is_some_and(is_automatic);
        match (self.paused, self.in_hours, space) {
            (true, _, _) => "none: the controller is paused",
            (false, true, _) => "may start now",
            (false, false, true) => "only for space: outside the configured hours",
            (false, false, false) => "none now: outside the configured hours",
        }
    }

    /// Sets the list of problems, sorted by urgency.
    pub fn with_problems(mut self, mut problems: Vec<ProblemView>) -> Self {
        problems.sort_by(|a, b| {
            let of = |t: &ProblemView| (t.kind, t.host.clone(), t.subject.clone());
            of(a).cmp(&of(b))
        });
        self.problems = problems;
        self
    }
}

/// Accuracy of the strategy's latency predictions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrustView {
    /// True if the controller may approve moves for latency. False after too many wrong
    /// predictions.
    pub trusted: bool,
    /// Number of recent moves with a prediction and a measured outcome.
    pub outcomes: u32,
    /// Median of |observed − predicted| ÷ observed latency over these moves, as a ratio from 0;
    /// null without such moves.
    pub error_median: Option<f64>,
    /// Reason why predictions are not trusted; null if they are trusted.
    pub why: Option<String>,
}

fn yes() -> bool {
    true
}

/// Tier: the devices of one class on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TierView {
    /// Name of the host.
    pub host: String,
    /// Name of the tier.
    pub name: String,
    /// Position among the tiers of the host; 0 is the fastest.
    pub rank: u32,
    /// Accepts new data (open), keeps its data only (cordoned), or is being evacuated (draining).
    pub state: TierState,
    /// Capacity of all devices, bytes.
    pub size_bytes: u64,
    /// Used space of all devices, bytes.
    pub used_bytes: u64,
    /// Sum of the sizes of volumes whose new extents are placed on this tier, bytes. It can exceed
    /// `size_bytes`, because volumes are thin.
    #[serde(default)]
    pub provisioned_bytes: u64,
    /// True if the performance of the tier is known, from the configuration or from the drive that
    /// its devices emulate. The controller places no data on other tiers.
    #[serde(default = "yes")]
    pub described: bool,
    /// Number of volumes with most of their data on this tier.
    pub volumes: u32,
    /// Mean share of time in which the devices were busy in the last window, 0 to 1; null if
    /// unknown.
    pub utilization: Option<f64>,
    /// Bytes read per second in the last window, including those of moves.
    pub read_bytes_per_s: f64,
    /// Bytes written per second in the last window, including those of moves.
    pub write_bytes_per_s: f64,
    /// Devices of the tier.
    pub devices: Vec<DeviceView>,
}

/// Device of a tier: an SSD, a file or an export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceView {
    /// Name of the device.
    pub name: String,
    /// Capacity, bytes.
    pub size_bytes: u64,
    /// Used space, bytes.
    pub used_bytes: u64,
    /// Share of time in which the device was busy in the last window, 0 to 1; null if unknown.
    pub utilization: Option<f64>,
    /// True if the host can reach the device.
    pub connected: bool,
}

/// Volume: a virtual disk of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeView {
    /// Name of the host.
    pub host: String,
    /// Name of the volume.
    pub name: String,
    /// Name of the service class; `default` for a volume without a class.
    pub class: String,
    /// Size that the guest sees, bytes.
    pub size_bytes: u64,
    /// Bytes that occupy space on devices.
    pub allocated_bytes: u64,
    /// Tier with most of the volume's data.
    pub tier: String,
    /// Device with most of the volume's data.
    pub device: String,
    /// Tier that the volume is pinned to; null if it is not pinned.
    pub pinned: Option<String>,
    /// Reason why the agent cannot move the volume; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Temporary limit of requests or bytes; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<ThrottleView>,
    /// Load in the last window; null if it is unknown.
    pub load: Option<LoadView>,
    /// Objective of the volume's class and its measurement; null if the class has none.
    pub slo: Option<SloView>,
    /// 99th percentile of the latency in each recent window, microseconds, oldest first. An entry
    /// is null if the volume was idle or its load is unknown.
    pub p99_us: Vec<Option<f64>>,
    /// Length of each of these windows, nanoseconds.
    pub window_ns: u64,
    /// Progress of the running move; null without one.
    pub moving: Option<MovingView>,
    /// Remaining cooldown after the last move, nanoseconds, in which the controller does not move
    /// the volume again; null if the cooldown has ended.
    pub cooldown_left_ns: Option<u64>,
    /// True while a calibration session delays completions of requests to measure the volume's
    /// reaction.
    pub calibrating: bool,
    /// Data of the volume on each tier that holds some, in the order of tiers.
    #[serde(default)]
    pub on_tiers: Vec<OnTierView>,
}

/// Temporary limit of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottleView {
    /// Maximum requests per second; null without this limit.
    pub iops: Option<u64>,
    /// Maximum bytes per second; null without this limit.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Remaining time until the limit ends, nanoseconds; 0 if it was removed.
    pub left_ns: u64,
    /// True if the agent of the host has confirmed the limit.
    pub in_force: bool,
    /// Volume whose violation this limit remedies; absent if an operator has set the limit. The
    /// controller renews such a limit in every window until it withdraws the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_volume: Option<String>,
}

/// Data of a volume on one tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnTierView {
    /// Name of the tier.
    pub tier: String,
    /// Bytes of the volume on this tier.
    pub bytes: u64,
    /// Requests to extents on this tier in the last window; null if agents do not report extents or
    /// their heat is unknown.
    pub requests: Option<u64>,
}

/// Load of a volume in a window. Names in parentheses are those of iostat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadView {
    /// Reads per second (r/s).
    pub reads_per_s: f64,
    /// Writes per second (w/s).
    pub writes_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Mean latency of reads, microseconds (r_await); null without reads.
    pub read_mean_us: Option<f64>,
    /// Mean latency of writes, microseconds (w_await); null without writes.
    pub write_mean_us: Option<f64>,
    /// Mean latency of all requests, microseconds; null without requests.
    pub mean_us: Option<f64>,
    /// Median latency of all requests, microseconds; null if unknown.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency of all requests, microseconds; null if unknown.
    pub p99_us: Option<f64>,
    /// Mean number of requests in flight, without injected delay. It is rate times latency; for a
    /// growing queue it is the measured mean.
    pub outstanding: f64,
    /// Number of outstanding requests at the end of the window.
    #[serde(default)]
    pub waiting: u64,
    /// Age of the oldest outstanding request, microseconds; null without outstanding requests.
    #[serde(default)]
    pub oldest_waiting_us: Option<f64>,
    /// Requests that completed with an error.
    pub errors: u64,
}

/// Latency objective of a volume and its measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloView {
    /// Statistic of the latency: mean or a percentile.
    pub statistic: SloStatistic,
    /// Limit for this statistic, microseconds.
    pub target_us: f64,
    /// Value of the statistic in the last window, microseconds; null if the volume was idle,
    /// throttled or unknown. An outstanding request that is older than the objective counts with
    /// its age.
    pub measured_us: Option<f64>,
    /// True if the last window violated the objective.
    #[serde(default)]
    pub violated_now: bool,
    /// Number of windows in `p99_us` that violated the objective.
    pub violated: u32,
}

/// Running move of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MovingView {
    /// Number of the job; null if another program ordered the move.
    pub job: Option<u32>,
    /// Target device.
    pub to: String,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Bytes that are not on the target yet.
    pub left_bytes: u64,
    /// Present limit of the copy rate, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// Validity of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanState {
    /// The newest plan of its host; its moves can be applied.
    Current,
    /// A newer plan has replaced it.
    Superseded,
}

/// Plan of a host: the moves of one decision, with their reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanView {
    /// Name of the host.
    pub host: String,
    /// Number of the plan.
    pub generation: u64,
    /// Number of the previous plan.
    pub parent: u64,
    /// Controller time of the decision, nanoseconds.
    pub at_ns: u64,
    /// Name of the strategy.
    pub strategy: String,
    /// Validity of the plan.
    pub state: PlanState,
    /// Moves of the plan.
    pub moves: Vec<PlannedMove>,
    /// Moves that the strategy wanted and a filter rejected.
    pub held: Vec<HeldMove>,
    /// Number of volumes that stay in place.
    pub staying: u32,
    /// Notes of the strategy.
    pub notes: Vec<String>,
}

/// Progress of a planned move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum MoveState {
    /// Waits for approval by an operator.
    Proposed {
        /// Reason why the controller does not approve the move by itself.
        why: String,
    },
    /// Approved, and waits for its start.
    Approved,
    /// Being carried out.
    Running,
    /// Finished: the data is on the target.
    Done,
    /// Cancelled, rejected or failed; it will not be carried out.
    Ended {
        /// Reason for the end.
        why: String,
    },
}

/// Move in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMove {
    /// Position in the plan, from 0.
    pub position: u32,
    /// Number of its job; null until the controller has created one.
    pub job: Option<u32>,
    /// Name of the volume.
    pub volume: String,
    /// Source tier.
    pub from_tier: String,
    /// Target tier.
    pub to_tier: String,
    /// Source device.
    pub from: String,
    /// Target device.
    pub to: String,
    /// Extents to move, as ranges such as `0-99,200`; absent if the whole volume moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// Purpose of the move.
    pub goal: Goal,
    /// Reason for the move, with its numbers.
    pub reason: String,
    /// Bytes to copy.
    pub bytes: u64,
    /// Duration at the planned copy rate, nanoseconds.
    pub duration_ns: u64,
    /// Mean latency of the volume before the move, microseconds; null if unknown.
    pub before_us: Option<f64>,
    /// Predicted mean latency after the move, microseconds; null without a prediction.
    pub after_us: Option<f64>,
    /// Lower and upper bound of this prediction at 90 % confidence, microseconds; absent if the
    /// strategy gives no bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_range_us: Option<(f64, f64)>,
    /// Positions of moves in this plan that must end before this one starts.
    pub after_moves: Vec<u32>,
    /// Scores of the tiers for this volume, with their parts; absent if the strategy gives no such
    /// scores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scored: Vec<OptionView>,
    /// Progress of the move.
    pub state: MoveState,
    /// Reason why only an operator can carry out the move; absent if the agent can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<String>,
    /// Shell command with which an operator can carry out the move; absent if no command does so
    /// without data loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Reason why no such command exists; absent if the agent of the host reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_command: Option<String>,
    /// Reason why the prediction is doubtful: no command is given, and neither a mode nor the
    /// approval of the whole plan approves the move; absent if it is not doubtful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

impl PlannedMove {
    /// Describes the moved volume or extents in words.
    pub fn subject(&self) -> String {
        subject(&self.volume, self.extents.as_ref())
    }
}

/// Describes a volume, or some of its extents, in words.
fn subject(volume: &str, extents: Option<&ExtentRanges>) -> String {
    match extents.map(ExtentRanges::count) {
        None => volume.into(),
        Some(1) => format!("one extent of {volume}"),
        Some(n) => format!("{n} extents of {volume}"),
    }
}

/// Move that the strategy wanted and a filter rejected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldMove {
    /// Name of the volume.
    pub volume: String,
    /// Present tier.
    pub tier: String,
    /// Wanted tier.
    pub wanted: String,
    /// Filter that rejected the move, with its numbers.
    pub why: String,
}

/// Job: an approved move, from its plan to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobView {
    /// Name of the host.
    pub host: String,
    /// Number of the job, unique on its host.
    pub job: u32,
    /// Number of the plan with this move.
    pub generation: u64,
    /// Name of the volume.
    pub volume: String,
    /// Source tier.
    pub from_tier: String,
    /// Target tier.
    pub to_tier: String,
    /// Source device.
    pub from: String,
    /// Target device.
    pub to: String,
    /// Extents to move, as ranges such as `0-99,200`; absent if the whole volume moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// Purpose of the move.
    pub goal: Goal,
    /// Reason for the move, with its numbers.
    pub reason: String,
    /// State of the job.
    pub state: JobStatus,
    /// Reason for the end of a cancelled or failed job; null otherwise.
    pub why: Option<String>,
    /// Code of this reason; null otherwise. A cancelled job has `superseded`, `rejected`,
    /// `plan-too-old`, `tier-closed`, `pinned`, `given-up` (cancelled by an operator),
    /// `other-controller` or `space-not-freed`. A failed job has `failed-io`, `host-gave-up`,
    /// `other-controller` or `space-not-freed`.
    #[serde(default)]
    pub cause: Option<String>,
    /// I/O error that made the job fail; absent for other causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_io: Option<IoFailure>,
    /// Bytes copied. It can exceed `bytes`, because rewritten data is copied again.
    pub copied_bytes: u64,
    /// Bytes to copy, as planned.
    pub bytes: u64,
    /// Bytes that are not on the target yet.
    pub left_bytes: u64,
    /// Present limit of the copy rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Mean latency of the volume at the time of the plan, microseconds; null if unknown.
    #[serde(default)]
    pub before_us: Option<f64>,
    /// Predicted mean latency on the target, microseconds; null without a prediction.
    #[serde(default)]
    pub after_us: Option<f64>,
    /// Controller time of the plan, nanoseconds.
    pub planned_ns: u64,
    /// Controller time of the start, nanoseconds; null before the start.
    pub started_ns: Option<u64>,
    /// Controller time of the end, nanoseconds; null before the end.
    pub ended_ns: Option<u64>,
    /// Remaining time at the present copy rate, nanoseconds; null if the job is not copying.
    pub eta_ns: Option<u64>,
    /// Time since the last progress of a stuck job, nanoseconds; null if the job is not stuck.
    pub stuck_ns: Option<u64>,
}

impl JobView {
    /// Describes the moved volume or extents in words.
    pub fn subject(&self) -> String {
        subject(&self.volume, self.extents.as_ref())
    }
}

/// Predicted and measured effect of a finished move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeView {
    /// Name of the host.
    pub host: String,
    /// Number of the job.
    pub job: u32,
    /// Name of the volume.
    pub volume: String,
    /// Source tier.
    pub from_tier: String,
    /// Target tier.
    pub to_tier: String,
    /// Controller time of the move's end, nanoseconds.
    pub ended_ns: u64,
    /// Mean latency at the time of the plan, microseconds; null if unknown.
    pub before_us: Option<f64>,
    /// Predicted mean latency, microseconds; null without a prediction.
    pub predicted_us: Option<f64>,
    /// Lower and upper bound of this prediction at 90 % confidence, microseconds; absent if the
    /// strategy gives no bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_range_us: Option<(f64, f64)>,
    /// Mean latency in the first whole epoch after the move in which no other move goes on from or to
    /// its target, at most ten epochs later, microseconds; null if the volume was idle or its load is
    /// unknown.
    pub observed_us: Option<f64>,
    /// Requests per second at the time of the plan; null if unknown.
    pub before_iops: Option<f64>,
    /// Predicted requests per second; null without a prediction.
    pub predicted_iops: Option<f64>,
    /// Measured requests per second in that epoch; null if unknown.
    pub observed_iops: Option<f64>,
    /// Error of the latency prediction as a ratio, (observed − predicted) ÷ observed; null without
    /// both values.
    pub error: Option<f64>,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A plan was created.
    Plan,
    /// A move was approved or rejected.
    Approval,
    /// A job started, ended or is stuck.
    Job,
    /// A calibration session started or ended.
    Calibration,
    /// A remedy for a violation was recommended, started or withdrawn.
    Response,
    /// An operator changed a setting or gave an order.
    Operator,
    /// A host was first seen, was lost, returned or cannot be planned for.
    Host,
    /// The strategy's predictions became trusted or untrusted.
    Trust,
    /// A problem started or ended.
    Problem,
    /// The controller started, or its store failed or recovered.
    Controller,
    /// Tokens of the interface were added, changed or removed.
    Access,
    /// Callers without a valid token were refused.
    Refused,
}

impl EventKind {
    /// Returns true for entries of the audit trail of orders. They are removed last and never left
    /// out.
    pub fn is_audit(self) -> bool {
        matches!(
            self,
            EventKind::Approval | EventKind::Operator | EventKind::Controller | EventKind::Access
        )
    }
}

/// Entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Number of the event; later events have higher numbers.
    pub id: u64,
    /// Controller time, nanoseconds.
    pub at_ns: u64,
    /// Wall-clock time, milliseconds since 1970.
    pub unix_ms: u64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Author: `controller`, the name of a token, or `uid N` for a caller on the unix socket.
    pub actor: String,
    /// Host that the event concerns; null if it concerns none.
    pub host: Option<String>,
    /// Volume that the event concerns; null if it concerns none.
    pub volume: Option<String>,
    /// Description of the event, one sentence.
    pub text: String,
    /// I/O error that caused the event; absent for other causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_io: Option<IoFailure>,
}

impl EventView {
    /// Returns the part of the event history that holds this event; `None` is the audit. Each host
    /// has its own part, so events of a host with problems displace only its own history.
    pub fn share(&self) -> Option<&str> {
        match self.kind {
            kind if kind.is_audit() => None,
            // No host has such a name.
            EventKind::Refused => Some("/refused"),
            _ => Some(self.host.as_deref().unwrap_or("/controller")),
        }
    }
}

/// Reasons for the present place of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyView {
    /// State of the volume.
    pub volume: VolumeView,
    /// Number of the last plan that considered the volume; null without one.
    pub generation: Option<u64>,
    /// Controller time of this plan, nanoseconds; null without one.
    pub at_ns: Option<u64>,
    /// Decision about the volume, one line.
    pub outcome: String,
    /// Reason for its move, with its numbers; absent if it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Every tier as a target: score, prediction and verdict.
    pub options: Vec<OptionView>,
    /// Measurements behind the decision, by name with unit.
    pub evidence: BTreeMap<String, f64>,
    /// Further explanations, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Decisions about single extents, if the strategy places extents one by one.
    #[serde(default)]
    pub extents: Vec<ExtentsWhyView>,
    /// Last finished moves of the volume, newest first.
    pub outcomes: Vec<OutcomeView>,
    /// Remedies for its own violations, and remedies for other volumes that affect this volume,
    /// newest first.
    #[serde(default)]
    pub responses: Vec<ResponseView>,
}

/// Extents of a volume that the strategy wanted on another tier, and the decision about them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExtentsWhyView {
    /// Present tier.
    pub from: String,
    /// Wanted tier.
    pub to: String,
    /// Number of extents.
    pub extents: u32,
    /// Bytes of these extents.
    pub bytes: u64,
    /// Requests to these extents since the last placement decision.
    pub requests: u64,
    /// Reason for the move, in words.
    pub reason: String,
    /// Filter that keeps the extents in place; null if they move.
    pub refused: Option<String>,
}

/// Tier as a target for a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OptionView {
    /// Name of the tier.
    pub tier: String,
    /// Score of the tier; higher is better. Null if the strategy gives no scores.
    pub score: Option<f64>,
    /// Parts of the score; absent if the strategy does not divide its score into parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<ScoreParts>,
    /// Predicted mean latency, microseconds; null without a prediction.
    pub latency_us: Option<f64>,
    /// Predicted requests per second; null without a prediction.
    pub iops: Option<f64>,
    /// Decision about this tier, in words.
    pub verdict: String,
}

/// Reason why a volume is not on a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhyNotView {
    /// Name of the volume.
    pub volume: String,
    /// Tier in question.
    pub tier: String,
    /// Present tier of the volume.
    pub here: String,
    /// Number of the plan that considered the volume; null without one.
    pub generation: Option<u64>,
    /// Filter that rejected the tier, with its numbers, or another reason.
    pub why: String,
}
