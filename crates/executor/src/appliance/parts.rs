//! Orders, states, limits, inputs and actions of appliances, as data.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, VolumeId};

/// An appliance, by number; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApplianceId(pub u32);

/// What an appliance does. A kind that would hold data of its own (write-back, compression) is not among them: its drain
/// would have to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplianceKind {
    /// Caches reads; writes go to the backend and invalidate.
    CacheWriteAround,
    /// Caches reads; writes go to the backend and are kept too.
    CacheWriteThrough,
    /// Looks at the requests that pass, nothing else.
    Observer,
}

/// Whether it reads something before it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmUp {
    Planned,
    /// It does not.
    None,
}

/// What is to be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplianceOrder {
    /// For whose requests.
    pub volume: VolumeId,
    /// On which compute server, as its inventory numbers it.
    pub host: u16,
    pub kind: ApplianceKind,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory, its own included.
    pub memory: Bytes,
    /// Whether it reads something first.
    pub warm: WarmUp,
}

/// Where an appliance stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ApplianceState {
    /// Its virtual machine is being made.
    Creating,
    /// Requests are being sent its way.
    Rerouting,
    /// It serves, and reads what was hot.
    Warming,
    /// It serves.
    Serving,
    /// Requests are being sent back to the backend.
    Returning,
    /// That did not succeed: it serves on, for an operator to look at.
    Stranded,
    /// Requests under way in it are ending.
    Draining,
    /// Its virtual machine is being destroyed.
    Removing,
    /// Nothing more will happen; the route is the backend's.
    Ended {
        at: Nanos,
        /// How.
        outcome: ApplianceOutcome,
    },
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum ApplianceOutcome {
    /// As wished.
    Removed {
        /// Why it was wished.
        why: String,
    },
    /// By a failure.
    Failed { why: String },
}

/// Where a volume's requests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    Backend,
    /// Through the appliance.
    Appliance,
    /// Either: re-routing is under way, failed or was late.
    Unknown,
}

/// How long each step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplianceDeadlines {
    /// A virtual machine that is not there by then will not come.
    pub create: Nanos,
    /// Guests stand still meanwhile.
    pub reroute: Nanos,
    /// Then what was read has to do.
    pub warm: Nanos,
    /// Until it is asked again, doubled with every attempt.
    pub return_route: Nanos,
    /// Requests that take longer were lost.
    pub drain: Nanos,
    /// Until it is asked again, doubled with every attempt.
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

/// Attempts to set a route back before an appliance is stranded: about an hour, as the time between them doubles.
pub const RETURN_ATTEMPTS_MAX: u32 = 7;
/// Attempts to destroy a virtual machine before that is left to an operator: about an hour too, and its volume is safe.
pub const REMOVE_ATTEMPTS_MAX: u32 = 5;
/// Full deadlines that one attempt is given after those that passed while nobody ran: more would keep an appliance in a step for ever
/// whose controller is down at each of its deadlines.
pub const LATE_RESTARTS_MAX: u32 = 1;

/// Appliances that ended and are still known.
pub const ENDED_MAX: usize = 1000;

/// A volume has an appliance already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub volume: VolumeId,
    pub by: ApplianceId,
}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (volume, by) = (self.volume.0, self.by.0);
        write!(f, "volume {volume} already has appliance {by}")
    }
}

impl std::error::Error for Taken {}

/// One attempt at one step of one appliance. An action carries it, its answer repeats it, and no two actions have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApplianceStep {
    pub id: ApplianceId,
    /// Counts through the appliance's life: a later one is of a later time, whichever step it is at.
    pub attempt: u32,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplianceAnswer {
    /// It is up and can serve.
    Created,
    /// Requests go through it.
    Rerouted,
    /// It has read what was planned.
    Warmed,
    /// Requests go to the backend, all of them, for good.
    Returned,
    /// No request is under way in it.
    Drained,
    /// It is gone.
    Destroyed,
    Failed {
        /// How.
        why: String,
    },
}

/// Why an answer changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// There is no such appliance, or it ended long ago.
    Unknown {
        /// Which was answered for.
        id: ApplianceId,
    },
    /// It answers another attempt than the latest, and not with what stays true: it comes too late.
    OtherAttempt {
        /// What was answered.
        step: ApplianceStep,
        /// The latest attempt.
        latest: u32,
    },
    /// The step is over, or this is no answer to it.
    NotAsked {
        /// What was answered.
        step: ApplianceStep,
    },
}

impl std::fmt::Display for Ignored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ignored::Unknown { id } => write!(f, "unknown appliance {}", id.0),
            Ignored::OtherAttempt { step, latest } => write!(
                f,
                "appliance {}: reply to attempt {} ignored, since the latest attempt is {latest}",
                step.id.0, step.attempt
            ),
            Ignored::NotAsked { step } => write!(
                f,
                "appliance {}: reply to attempt {} ignored, since the attempt has ended or had another step",
                step.id.0, step.attempt
            ),
        }
    }
}

impl std::error::Error for Ignored {}

/// What happens to one appliance beside its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplianceInput {
    /// Its host is gone, and it with it. That may be said again.
    Lost {
        /// What is known of it.
        why: String,
    },
    /// It is not wanted any more.
    Remove { why: String },
    /// An operator wants a stranded one to be tried again.
    Retry,
}

/// What the driver is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplianceAction {
    /// Make the virtual machine; one that an earlier attempt made is made anew or taken. Answer: created, failed.
    Create(ApplianceStep),
    /// Send the volume's requests through it. Answer: re-routed, failed.
    Reroute(ApplianceStep),
    /// Read what was planned, and no more of what an earlier one of the same appliance was to read: an attempt from before a restart
    /// gets no word of its own that ends it. Answer: warmed, failed.
    Warm(ApplianceStep),
    /// Read no more of what that step was to read. No answer.
    StopWarming(ApplianceStep),
    /// Send the volume's requests to the backend, wherever they go now. Answer: returned, failed.
    Return(ApplianceStep),
    /// Let what is under way end. Answer: drained, failed.
    Drain(ApplianceStep),
    /// Destroy whatever there is of it, if anything. Answer: destroyed, failed.
    Destroy(ApplianceStep),
}
