//! What the controller shows: names instead of ids, numbers with their unit in the name. Version 1 of the REST interface.

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

/// How everything is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusView {
    /// Version of terrace.
    pub version: String,
    /// The controller's time, since it was first started.
    pub at_ns: u64,
    /// The strategy.
    pub strategy: String,
    /// Whether everything is paused.
    pub paused: bool,
    /// How far the controller goes by itself, by goal.
    pub modes: BTreeMap<Goal, Mode>,
    /// Whether predictions held so far.
    pub trust: TrustView,
    /// Whether the hours in which moves may begin by themselves are now.
    pub in_hours: bool,
    /// Hosts.
    pub hosts: Vec<HostView>,
    /// Volumes, in all.
    pub volumes: u32,
    /// Volumes that missed their objective in the last window.
    pub slo_violated: u32,
    /// Volumes whose load is not known.
    pub unknown: u32,
    /// Objectives that are broken: missed for long enough to do something about it.
    #[serde(default)]
    pub objectives_broken: u32,
    /// Volumes that are held to less than they ask for, for others' objectives.
    #[serde(default)]
    pub held: u32,
    /// Moves that wait for approval.
    pub proposed: u32,
    /// Jobs that have not ended.
    pub jobs: u32,
    /// What needs attention, most urgent first; empty when all is well.
    #[serde(default)]
    pub problems: Vec<ProblemView>,
    /// The same in words.
    pub problems: Vec<String>,
    /// What the store said when it was last written, if it could not be: nothing is decided or ordered.
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

    /// With these troubles, by urgency, and the same in words.
    pub fn with_problems(mut self, mut problems: Vec<ProblemView>) -> Self {
        problems.sort_by(|a, b| {
            let of = |t: &ProblemView| (t.kind, t.host.clone(), t.subject.clone());
            of(a).cmp(&of(b))
        });
        self.problems = problems.iter().map(|t| t.what.clone()).collect();
        self.problems = problems;
        self
    }
}

/// Whether the strategy's predictions hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrustView {
    /// Whether moves for latency may be approved by the controller itself.
    pub trusted: bool,
    /// Moves with a prediction whose outcome is known, of the last ones that count.
    pub outcomes: u32,
    /// Median of |observed − predicted| ÷ observed of them, 0..; none without any.
    pub error_median: Option<f64>,
    /// Why not, if not.
    pub why: Option<String>,
}

fn yes() -> bool {
    true
}

/// A tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TierView {
    /// The host.
    pub host: String,
    /// Its name.
    pub name: String,
    /// Place among the host's tiers, 0 is the high end.
    pub rank: u32,
    /// What it takes and keeps.
    pub state: TierState,
    /// All bytes.
    pub size_bytes: u64,
    /// Bytes that are taken.
    pub used_bytes: u64,
    /// Sizes of the volumes that are at home there, added up: what their guests were promised.
    #[serde(default)]
    pub provisioned_bytes: u64,
    /// Whether the configuration, or the device that it behaves like, says what it can do. Nothing is placed on one that is not
    /// described.
    #[serde(default = "yes")]
    pub described: bool,
    /// Volumes that are mostly there.
    pub volumes: u32,
    /// Share of its devices' time in use in the last window, 0..=1.
    pub utilization: Option<f64>,
    /// Bytes read per second in the last window, moves included.
    pub read_bytes_per_s: f64,
    /// Bytes written per second in the last window, moves included.
    pub write_bytes_per_s: f64,
    /// Its devices.
    pub devices: Vec<DeviceView>,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// All bytes.
    pub size_bytes: u64,
    /// Bytes that are taken.
    pub used_bytes: u64,
    /// Share of its time in use in the last window, 0..=1.
    pub utilization: Option<f64>,
    /// Whether it can be reached.
    pub connected: bool,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeView {
    /// The host.
    pub host: String,
    /// Its name.
    pub name: String,
    /// Service class.
    pub class: String,
    /// Size that the guest sees.
    pub size_bytes: u64,
    /// Bytes that have a place.
    pub allocated_bytes: u64,
    /// The tier with most of it.
    pub tier: String,
    /// The device with most of it.
    pub device: String,
    /// The tier that it is pinned to.
    pub pinned: Option<String>,
    /// Why it stays where it is, or why a person has to move it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// What it is limited to for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<ThrottleView>,
    /// Load in the last window; none is unknown.
    pub load: Option<LoadView>,
    /// Its class's objective, if it has one.
    pub slo: Option<SloView>,
    /// 99th percentile of the latency in the last windows, oldest first, microseconds; none is unknown or idle.
    pub p99_us: Vec<Option<f64>>,
    /// Length of one of those windows.
    pub window_ns: u64,
    /// Its move, if one is under way.
    pub moving: Option<MovingView>,
    /// Time until its last move is so long ago that it may move again.
    pub cooldown_left_ns: Option<u64>,
    /// Whether answers are being held back to calibrate it.
    pub calibrating: bool,
    /// What of it is on which tier, in order of tiers, those with any.
    #[serde(default)]
    pub on_tiers: Vec<OnTierView>,
}

/// What a volume may do at most, for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThrottleView {
    /// Requests per second.
    pub iops: Option<u64>,
    /// Bytes per second.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Time that is left of it; zero once it was lifted.
    pub left_ns: u64,
    /// Whether its agent says that it is so.
    pub in_force: bool,
    /// The volume for whose broken objective it is held, if it is: then the limit is renewed with each window, until it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_volume: Option<String>,
}

/// What of a volume is on a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnTierView {
    /// The tier.
    pub tier: String,
    /// Bytes.
    pub bytes: u64,
    /// Requests of the last window that touched extents there; none where extents are not told, or their heat is unknown.
    pub requests: Option<u64>,
}

/// Load of a volume in a window, in iostat's terms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadView {
    /// r/s
    pub reads_per_s: f64,
    /// w/s
    pub writes_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// r_await: mean latency of reads, microseconds; none without reads.
    pub read_mean_us: Option<f64>,
    /// w_await: mean latency of writes, microseconds; none without writes.
    pub write_mean_us: Option<f64>,
    /// Mean latency of all requests; none without any.
    pub mean_us: Option<f64>,
    /// Median of all requests.
    pub p50_us: Option<f64>,
    /// 99th percentile of all requests.
    pub p99_us: Option<f64>,
    /// Requests in flight: rate times latency, or the mean where a queue grows, without what was held back on purpose.
    pub outstanding: f64,
    /// Requests that wait at the window's end.
    #[serde(default)]
    pub waiting: u64,
    /// How long the oldest of them has waited so far, microseconds.
    #[serde(default)]
    pub oldest_waiting_us: Option<f64>,
    /// Requests that were answered with an error.
    pub errors: u64,
}

/// An objective and how it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloView {
    /// Which statistic of the latency.
    pub statistic: SloStatistic,
    /// It must not exceed this, microseconds.
    pub target_us: f64,
    /// What it was in the last window; none is unknown or idle. Requests that still wait, and have for longer than the objective,
    /// count by their age so far.
    pub measured_us: Option<f64>,
    /// Whether the last window missed it.
    #[serde(default)]
    pub violated_now: bool,
    /// Windows that missed it, of those in `p99_us`.
    pub violated: u32,
}

/// A move under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MovingView {
    /// The job, if it is the controller's.
    pub job: Option<u32>,
    /// Target device.
    pub to: String,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Bytes not there yet.
    pub left_bytes: u64,
    /// Rate that it may take now.
    pub rate_bytes_per_s: u64,
}

/// Whether a plan is the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanState {
    /// It is: its moves may be applied.
    Current,
    /// A newer one has taken its place.
    Superseded,
}

/// A plan with its reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanView {
    /// The host.
    pub host: String,
    /// Its number.
    pub generation: u64,
    /// The number before it.
    pub parent: u64,
    /// When it was made, the controller's time.
    pub at_ns: u64,
    /// The strategy.
    pub strategy: String,
    /// Whether it is the newest.
    pub state: PlanState,
    /// What it moves.
    pub moves: Vec<PlannedMove>,
    /// What it would have moved, had nothing been in the way.
    pub held: Vec<HeldMove>,
    /// Volumes that stay.
    pub staying: u32,
    /// Notes of the strategy.
    pub notes: Vec<String>,
}

/// Whether a planned move is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum MoveState {
    /// It waits for somebody to approve it.
    Proposed {
        /// Why the controller does not do so itself.
        why: String,
    },
    /// Approved; waits for its turn.
    Approved,
    /// Under way.
    Running,
    /// Done.
    Done,
    /// It will not be carried out, or ended before its time.
    Ended {
        /// Why.
        why: String,
    },
}

/// A move of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMove {
    /// Position in the plan.
    pub position: u32,
    /// Its job, once the plan was taken in.
    pub job: Option<u32>,
    /// The volume.
    pub volume: String,
    /// Source tier.
    pub from_tier: String,
    /// Target tier.
    pub to_tier: String,
    /// Source device.
    pub from: String,
    /// Target device.
    pub to: String,
    /// The extents that move, `0-99,200`; none is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// What it is for.
    pub goal: Goal,
    /// Why.
    pub reason: String,
    /// Bytes to copy.
    pub bytes: u64,
    /// Time that takes at the planned rate.
    pub duration_ns: u64,
    /// Mean latency before, microseconds, where it is predicted.
    pub before_us: Option<f64>,
    /// Mean latency after, microseconds, where it is predicted.
    pub after_us: Option<f64>,
    /// Between what bounds that is with 90 % confidence, microseconds; none from a strategy that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_range_us: Option<(f64, f64)>,
    /// Moves of the plan that must have ended first.
    pub after_moves: Vec<u32>,
    /// Tiers with what their scores for the volume are made of; none where the strategy gives no scores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scored: Vec<OptionView>,
    /// Whether it is carried out.
    pub state: MoveState,
    /// Why a person has to carry it out, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<String>,
    /// What a person would type for it, where that loses nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Why there is nothing to type for it, where the host's agent knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_command: Option<String>,
}

impl PlannedMove {
    /// What moves, in words.
    pub fn subject(&self) -> String {
        subject(&self.volume, self.extents.as_ref())
    }
}

/// A volume, or some of its extents, in words.
fn subject(volume: &str, extents: Option<&ExtentRanges>) -> String {
    match extents.map(ExtentRanges::count) {
        None => volume.into(),
        Some(1) => format!("one extent of {volume}"),
        Some(n) => format!("{n} extents of {volume}"),
    }
}

/// A move that a filter kept from the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldMove {
    /// The volume.
    pub volume: String,
    /// Where it is.
    pub tier: String,
    /// Where it was wanted.
    pub wanted: String,
    /// The filter, with its numbers.
    pub why: String,
}

/// A job: a move that is, or was, carried out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobView {
    /// The host.
    pub host: String,
    /// Its number on that host.
    pub job: u32,
    /// The plan that it is from.
    pub generation: u64,
    /// The volume.
    pub volume: String,
    /// Source tier.
    pub from_tier: String,
    /// Target tier.
    pub to_tier: String,
    /// Source device.
    pub from: String,
    /// Target device.
    pub to: String,
    /// The extents that move, `0-99,200`; none is the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// What it is for.
    pub goal: Goal,
    /// Why.
    pub reason: String,
    /// Where it stands.
    pub state: JobStatus,
    /// Why it ended before its time.
    pub why: Option<String>,
    /// That by name. Of a cancelled one: `superseded`, `rejected`, `plan-too-old`, `tier-closed`, `pinned`, `given-up`,
    /// `other-controller`, `space-not-freed` or `unsaid`. Of a failed one: `failed-io`, `host-gave-up`,
    /// `other-controller` or `space-not-freed`.
    #[serde(default)]
    pub cause: Option<String>,
    /// The I/O that it failed by, if it did by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_io: Option<IoFailure>,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Bytes to copy, when it was planned.
    pub bytes: u64,
    /// Bytes not on the target yet.
    pub left_bytes: u64,
    /// Rate that it may take now.
    pub rate_bytes_per_s: u64,
    /// Mean latency of its volume when it was planned, microseconds, if that was known.
    #[serde(default)]
    pub before_us: Option<f64>,
    /// What was predicted for it on the target, microseconds.
    #[serde(default)]
    pub after_us: Option<f64>,
    /// When it was planned, the controller's time.
    pub planned_ns: u64,
    /// When it left the queue.
    pub started_ns: Option<u64>,
    /// When it ended.
    pub ended_ns: Option<u64>,
    /// Time it will still take at its present rate.
    pub eta_ns: Option<u64>,
    /// No byte was copied for so long; none while it goes on.
    pub stuck_ns: Option<u64>,
}

impl JobView {
    /// What moves, in words.
    pub fn subject(&self) -> String {
        subject(&self.volume, self.extents.as_ref())
    }
}

/// What came of a move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeView {
    /// The host.
    pub host: String,
    /// The job.
    pub job: u32,
    /// The volume.
    pub volume: String,
    /// Source tier.
    pub from_tier: String,
    /// Target tier.
    pub to_tier: String,
    /// When the move ended, the controller's time.
    pub ended_ns: u64,
    /// Mean latency when it was planned, microseconds.
    pub before_us: Option<f64>,
    /// What was predicted, microseconds.
    pub predicted_us: Option<f64>,
    /// Between what bounds it was predicted with 90 % confidence, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_range_us: Option<(f64, f64)>,
    /// What was measured in the first whole epoch after it, microseconds; none when the volume was idle or unknown.
    pub observed_us: Option<f64>,
    /// Requests per second when it was planned.
    pub before_iops: Option<f64>,
    /// What was predicted.
    pub predicted_iops: Option<f64>,
    /// What was measured.
    pub observed_iops: Option<f64>,
    /// (observed − predicted) ÷ observed latency.
    pub error: Option<f64>,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A plan was made.
    Plan,
    /// A move was approved or rejected.
    Approval,
    /// A job began, ended or is stuck.
    Job,
    /// A calibration session began or ended.
    Calibration,
    /// A broken objective is answered, or an answer taken back.
    Response,
    /// An operator changed something.
    Operator,
    /// A host came, went or has a problem.
    Host,
    /// The strategy's predictions hold, or do not.
    Trust,
    /// Something that needs attention began, or is over.
    Problem,
    /// The controller itself: started, store trouble.
    Controller,
    /// Tokens of the interface were added, changed or removed.
    Access,
    /// Callers without a valid token were refused.
    Refused,
}

impl EventKind {
    /// Returns true for the trail of what people ordered. It is forgotten last, and never left out.
    pub fn is_audit(self) -> bool {
        matches!(
            self,
            EventKind::Approval | EventKind::Operator | EventKind::Controller | EventKind::Access
        )
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Its number; rises.
    pub id: u64,
    /// The controller's time.
    pub at_ns: u64,
    /// Wall-clock time, milliseconds since 1970.
    pub unix_ms: u64,
    /// What kind.
    pub kind: EventKind,
    /// Who did it: `controller`, or a name from a token or a socket.
    pub actor: String,
    /// The host that it concerns.
    pub host: Option<String>,
    /// The volume that it concerns.
    pub volume: Option<String>,
    /// In words.
    pub text: String,
    /// The I/O that it came of, where a device failed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_io: Option<IoFailure>,
}

impl EventView {
    /// The part of the history that this event takes room of; none is the audit. A host has a part
    /// of its own, so a host in trouble crowds out its own past only.
    pub fn share(&self) -> Option<&str> {
        match self.kind {
            kind if kind.is_audit() => None,
            // No host has such a name.
            EventKind::Refused => Some("/refused"),
            _ => Some(self.host.as_deref().unwrap_or("/controller")),
        }
    }
}

/// Why a volume is where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyView {
    /// The volume.
    pub volume: VolumeView,
    /// The last decision that looked at it.
    pub generation: Option<u64>,
    /// When that was.
    pub at_ns: Option<u64>,
    /// What was decided, one line.
    pub outcome: String,
    /// Why it moves, with its numbers; none where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Every tier as an option: score, prediction and verdict in words.
    pub options: Vec<OptionView>,
    /// The numbers that it rests on, by name with unit.
    pub evidence: BTreeMap<String, f64>,
    /// What no number says, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What was decided for its extents, where they are placed one by one.
    #[serde(default)]
    pub extents: Vec<ExtentsWhyView>,
    /// Its last moves, newest first.
    pub outcomes: Vec<OutcomeView>,
    /// Answers to its broken objective, and those to another one's that were done to it, newest first.
    #[serde(default)]
    pub responses: Vec<ResponseView>,
}

/// Extents of a volume that were wanted on another tier, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExtentsWhyView {
    /// The tier that they are on.
    pub from: String,
    /// The tier that they were wanted on.
    pub to: String,
    /// How many.
    pub extents: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that they had since the last decision about placement.
    pub requests: u64,
    /// Why, in words.
    pub reason: String,
    /// What keeps them where they are; none where they move.
    pub refused: Option<String>,
}

/// A tier as a place for a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OptionView {
    /// The tier.
    pub tier: String,
    /// Its score; higher is better.
    pub score: Option<f64>,
    /// What the score is made of; none where the strategy gives none, or only a mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<ScoreParts>,
    /// Predicted mean latency, microseconds.
    pub latency_us: Option<f64>,
    /// Predicted request rate.
    pub iops: Option<f64>,
    /// What came of it, in words.
    pub verdict: String,
}

/// Why a volume is not on a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhyNotView {
    /// The volume.
    pub volume: String,
    /// The tier.
    pub tier: String,
    /// Where it is.
    pub here: String,
    /// The decision.
    pub generation: Option<u64>,
    /// The filter that kept it off, with its numbers, or what else.
    pub why: String,
}
