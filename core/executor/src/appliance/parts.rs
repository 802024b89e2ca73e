//! Orders, states, limits, inputs and actions of appliances, as data.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, VolumeId};

/// Number of an appliance; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApplianceId(pub u32);

/// Function of an appliance. Kinds with data of their own (write-back, compression) do not exist, because their drain would
/// have to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplianceKind {
    /// Caches reads; writes go to the backend and invalidate.
    CacheWriteAround,
    /// Caches reads; writes go to the backend and are cached too.
    CacheWriteThrough,
    /// Observes requests without any other effect.
    Observer,
}

/// Warm-up before the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmUp {
    Planned,
    /// No warm-up.
    None,
}

/// Order of an appliance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplianceOrder {
    /// Volume whose requests it serves.
    pub volume: VolumeId,
    /// Compute server, by its number in the inventory.
    pub host: u16,
    pub kind: ApplianceKind,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory, including that of the virtual machine itself.
    pub memory: Bytes,
    /// Warm-up.
    pub warm: WarmUp,
}

/// State of an appliance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ApplianceState {
    /// The virtual machine is being created.
    Creating,
    /// Requests are being routed to it.
    Rerouting,
    /// The appliance serves, and reads hot data.
    Warming,
    /// The appliance serves.
    Serving,
    /// Requests are being routed to the backend.
    Returning,
    /// The route could not be set back: it continues to serve, and an operator must act.
    Stranded,
    /// Running requests in the appliance are completing.
    Draining,
    /// The virtual machine is being destroyed.
    Removing,
    /// Final state; requests go to the backend.
    Ended {
        at: Nanos,
        /// Outcome.
        outcome: ApplianceOutcome,
    },
}

/// Outcome of an appliance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum ApplianceOutcome {
    /// Removed by request.
    Removed {
        /// Reason of the request.
        why: String,
    },
    /// Ended by a failure.
    Failed { why: String },
}

/// Route of a volume's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    Backend,
    /// Through the appliance.
    Appliance,
    /// Unknown: re-routing is under way, failed or was late.
    Unknown,
}

/// Largest duration of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplianceDeadlines {
    /// Limit of the creation: a virtual machine that does not run by then counts as failed.
    pub create: Nanos,
    /// Limit of the re-routing, during which guests stand still.
    pub reroute: Nanos,
    /// Limit of the warm-up; then the cache serves with the data read so far.
    pub warm: Nanos,
    /// Time until the first retry of a return; doubled with every attempt.
    pub return_route: Nanos,
    /// Limit of the drain: requests that take longer are lost.
    pub drain: Nanos,
    /// Time until the first retry of a removal; doubled with every attempt.
    pub remove: Nanos,
}

impl Default for ApplianceDeadlines {
    fn default() -> Self {
        Self {
            create: Nanos::from_secs(300),
            reroute: Nanos::from_secs(60),
            warm: Nanos::from_secs(1800),
            return_route: Nanos::from_secs(30),
            drain: Nanos::from_secs(60),
            remove: Nanos::from_secs(120),
        }
    }
}

/// Attempts to set a route back before an appliance is stranded: about an hour, because the time between attempts doubles.
pub const RETURN_ATTEMPTS_MAX: u32 = 7;
/// Attempts to destroy a virtual machine before an operator must do it: also about an hour; its volume is safe.
pub const REMOVE_ATTEMPTS_MAX: u32 = 5;
/// Number of full deadlines that one attempt gets after deadlines that passed during a downtime. Without a limit, an
/// appliance whose controller is down at each deadline would stay in a step for ever.
pub const LATE_RESTARTS_MAX: u32 = 1;

/// Number of ended appliances that are remembered.
pub const ENDED_MAX: usize = 1000;

/// Error: the volume already has an appliance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplianceExists {
    pub volume: VolumeId,
    pub by: ApplianceId,
}

impl std::fmt::Display for ApplianceExists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (volume, by) = (self.volume.0, self.by.0);
        write!(f, "volume {volume} already has appliance {by}")
    }
}

impl std::error::Error for ApplianceExists {}

/// Attempt at a step of an appliance. An action has it, its answer repeats it, and no two actions have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApplianceStep {
    pub id: ApplianceId,
    /// Counter over the life of the appliance: later actions have higher numbers, in all steps.
    pub attempt: u32,
}

/// Answer to an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplianceAnswer {
    /// The virtual machine runs and can serve.
    Created,
    /// Requests go through it.
    Rerouted,
    /// The appliance has read the planned data.
    Warmed,
    /// All requests go to the backend, permanently.
    Returned,
    /// The appliance has no running requests.
    Drained,
    /// The virtual machine does not exist any more.
    Destroyed,
    Failed {
        /// Error message.
        why: String,
    },
}

/// Reason why an answer was ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The appliance is unknown or was forgotten.
    Unknown {
        /// Appliance of the answer.
        id: ApplianceId,
    },
    /// Late answer: to an earlier attempt, without a lasting result.
    OtherAttempt {
        /// Step of the answer.
        step: ApplianceStep,
        /// The latest attempt.
        latest: u32,
    },
    /// The step has ended, or the answer does not belong to it.
    NotAsked {
        /// Step of the answer.
        step: ApplianceStep,
    },
}

impl std::fmt::Display for IgnoreReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IgnoreReason::Unknown { id } => write!(f, "unknown appliance {}", id.0),
            IgnoreReason::OtherAttempt { step, latest } => write!(
                f,
                "appliance {}: reply to attempt {} ignored, since the latest attempt is {latest}",
                step.id.0, step.attempt
            ),
            IgnoreReason::NotAsked { step } => write!(
                f,
                "appliance {}: reply to attempt {} ignored, since the attempt has ended or had another step",
                step.id.0, step.attempt
            ),
        }
    }
}

impl std::error::Error for IgnoreReason {}

/// Event of an appliance other than an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplianceInput {
    /// The host is lost, and the appliance with it. May be reported repeatedly.
    Lost {
        /// Error message.
        why: String,
    },
    /// Request to remove it.
    Remove { why: String },
    /// Request of an operator to retry the return of a stranded appliance.
    Retry,
}

/// Action for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplianceAction {
    /// Create the virtual machine. One from an earlier attempt is recreated or reused. Answer: created, failed.
    Create(ApplianceStep),
    /// Route the volume's requests through it. Answer: re-routed, failed.
    Reroute(ApplianceStep),
    /// Read the planned data, and end any earlier warm-up of the same appliance: a warm-up from before a restart is not
    /// stopped by an action of its own. Answer: warmed, failed.
    Warm(ApplianceStep),
    /// Stop the warm-up of this step. No answer.
    StopWarming(ApplianceStep),
    /// Route the volume's requests to the backend, wherever they go now. Answer: returned, failed.
    Return(ApplianceStep),
    /// Wait for running requests. Answer: drained, failed.
    Drain(ApplianceStep),
    /// Destroy all remains of the appliance, if any. Answer: destroyed, failed.
    Destroy(ApplianceStep),
}
