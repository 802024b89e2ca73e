//! Messages between agents and the controller, protocol version 10: plain data, JSON on the wire.
//!
//! ```text
//!  agent                                   controller
//!    │ ── Register {session} ───────────────▶ │   once per connection; each start of an agent is a session
//!    │ ◀──────────────────── Welcome {at} ─── │
//!    │ ── WindowReport {session, seq, …} ───▶ │   every window
//!    │ ◀── Orders {session, seq, lease, …} ── │   complete list of activities, not only new ones
//!    │ ── JobsReport {session, seq, jobs} ──▶ │   as soon as jobs have ended, within a window
//!    │ ◀── Orders ─────────────────────────── │
//! ```
//!
//! Orders are complete and idempotent. The next reply replaces a lost one, a duplicate changes
//! nothing, and the agent rejects outdated orders by their `seq`. The agent's clock is never sent,
//! only differences of it. `as_of_ns` is controller time: the agent advances the time of the last
//! reply by its own clock. A delayed message therefore counts as old.
//!
//! Controller and agent have the same version of the protocol, or refuse one another.

mod orders;
mod report;
mod response;

use model::ClassObjective;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use orders::{
    ArrayPolicy, CalibrationOrder, Detail, MoveOrder, Orders, Throttle, ThrottleOrder,
};
pub use report::{
    ArrayProblem, Bound, CalibrationMeasured, CalibrationResult, DeviceIoCounts, DeviceWindow,
    DevicesLoad, ExtentWindow, FailedIo, HandMove, JobProgress, JobWindow, JobsReport, Load,
    LoadOf, MovingWindow, Placed, StorageCommand, VolumeWindow, WindowReport, filled,
};
pub use response::{
    ApplianceOrder, ApplianceWindow, BusyWindow, CacheShareOrder, CacheWindow, CopiesWindow,
    CurvePoint, ExtentAccess, LendWindow, MirrorOrder, MirrorWindow, NodeOrder, NodeState,
    NodeStore, NodeWindow, Remedies, VolumeSample, Warm,
};

/// Version of the protocol, the only one that controller and agent accept. A change of a message is a new version.
pub const PROTOCOL: u32 = 10;

/// Registration of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// Protocol version of the agent.
    pub protocol: u32,
    /// Random number of this session; each start of an agent has another one.
    pub session: u64,
    /// Version of the agent's program, for display.
    pub version: String,
}

/// Reply to a registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// Protocol version of the controller.
    pub protocol: u32,
    /// Controller time, nanoseconds.
    pub at_ns: u64,
    /// Length of a measurement window, nanoseconds.
    pub window_ns: u64,
    /// Latency objectives by class. The agent keeps injected delay below them during calibration.
    #[serde(with = "objectives")]
    #[schemars(with = "Vec<objectives::Word>")]
    pub objectives: Vec<ClassObjective>,
    /// Rules for operators' changes of volumes; absent if unknown, then the present rules stay in
    /// force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ArrayPolicy>,
    /// Detail of the volumes in reports.
    pub detail: Detail,
}

/// Wire format of objectives, with the unit in the name of the field.
mod objectives {
    use model::{ClassObjective, Objective, SloStatistic};
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use units::Nanos;

    /// Latency objective of a class.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "Objective")]
    #[serde(deny_unknown_fields)]
    pub(super) struct Word {
        /// Name of the class.
        class: String,
        /// Statistic of the latency: mean or a percentile.
        statistic: SloStatistic,
        /// Limit for this statistic, nanoseconds.
        latency_ns: u64,
    }

    pub(super) fn serialize<S: Serializer>(
        said: &[ClassObjective],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(said.iter().map(|o| Word {
            class: o.class.clone(),
            statistic: o.objective.statistic,
            latency_ns: o.objective.latency.0,
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<ClassObjective>, D::Error> {
        let words = Vec::<Word>::deserialize(from)?.into_iter();
        let said = words.map(|w| ClassObjective {
            class: w.class,
            objective: Objective {
                statistic: w.statistic,
                latency: Nanos(w.latency_ns),
            },
        });
        Ok(said.collect())
    }
}

/// Returns the error if a name is not valid for a host.
pub fn host_name_fault(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = !name.is_empty() && name.len() <= 100 && name.chars().all(plain);
    (!good).then(|| {
        format!("{name:?} is not a valid name of a host: use 1 to 100 letters, digits, - _ and .")
    })
}

/// Reason for the rejection of an agent's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum WireRefusal {
    /// The protocol version of the agent is not supported.
    Protocol {
        /// Version of the agent.
        theirs: u32,
    },
    /// The session is unknown, because the controller has restarted or another agent has registered
    /// for this host. The agent must register again.
    Register,
    /// The report is not newer than the last one.
    Stale {
        /// Sequence number of the last accepted report.
        last_seq: u64,
    },
    /// The message is invalid.
    Nonsense {
        /// Reason.
        why: String,
    },
}

impl std::fmt::Display for WireRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireRefusal::Protocol { theirs } => write!(
                f,
                "the agent uses version {theirs} of the protocol, this controller version {PROTOCOL}: install the same version of terrace on both"
            ),
            WireRefusal::Register => f.write_str("unknown session: register first"),
            WireRefusal::Stale { last_seq } => {
                write!(
                    f,
                    "this report is not newer than report {last_seq}, which was accepted already"
                )
            }
            WireRefusal::Nonsense { why } => f.write_str(why),
        }
    }
}
