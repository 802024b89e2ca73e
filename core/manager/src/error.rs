//! Errors of decisions, stored state and recordings.

use config::{ConfigFault, ValueError};
use planner::{BuildError, PlanError};
use thiserror::Error;

/// Failure of a decision, or of reading or writing one.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// The strategy is in Python, and this process has no access to it.
    #[error("strategy {name} is in Python and runs in a process that only `terrace serve` starts")]
    Python {
        /// Name of the strategy.
        name: String,
    },
    /// Name or parameters of the strategy are invalid.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The strategy fails, or its plan breaks a rule.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The strategy panicked.
    #[error("the strategy panicked on the facts of this host: this is a bug in terrace")]
    Panicked,
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// The state of the host does not permit a decision or a move now.
    #[error("{0}")]
    NotNow(&'static str),
    /// A volume is on a device that its host does not report.
    #[error("a volume is on device {0:?}, which the report does not list")]
    UnknownDevice(String),
    /// The home tier of an empty volume has no device.
    #[error("volume {volume:?} has the home tier {home:?}, which has no device")]
    NoDevice { volume: String, home: String },
    /// A value of the store is damaged, or from another version.
    #[error("cannot read value {key:?} of the store: {why}")]
    Saved {
        /// Key of the value.
        key: String,
        why: serde_json::Error,
    },
    /// A part of a stored decision was removed.
    #[error(
        "the {part} of this decision have been removed from the store: choose a newer decision"
    )]
    Removed {
        /// Name of the part, in the plural.
        part: &'static str,
    },
    /// A part of a stored decision is damaged, or from another version.
    #[error("cannot read the {part} of this decision: {why}")]
    Part {
        /// Name of the part, in the plural.
        part: &'static str,
        why: serde_json::Error,
    },
    /// A decision cannot be written as JSON, or a line of a recording is not valid.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// TOML cannot represent a decision.
    #[error(transparent)]
    Toml(#[from] ValueError),
    /// The recording has another layout.
    #[error("the recording has schema {found:?}, this version reads {known:?}")]
    Schema {
        found: String,
        /// Layout of this version.
        known: &'static str,
    },
    /// The recording has an input before its beginning.
    #[error("the recording does not begin with an entry \"begin\"")]
    NoBeginning,
    /// A recorded plan cannot be read.
    #[error("cannot read the recorded plan: {0}")]
    RecordedPlan(serde_json::Error),
}
