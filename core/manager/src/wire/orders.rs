//! Orders of the controller to agents.

use model::{CalibrationStep, ClassObjective, ControllerId, ExtentRanges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CalibrationMeasured, CalibrationResult, Remedies, objectives};

/// Temporary limit of a volume. Other limits of the volume stay in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// Maximum requests per second; absent without this limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Maximum bytes per second; absent without this limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Duration of the limit, nanoseconds. It ends without a further order.
    pub lasting_ns: u64,
}

/// Order to limit a volume for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleOrder {
    /// Name of the volume.
    pub volume: String,
    /// Limit and its duration.
    pub throttle: Throttle,
}

/// Rules that an array applies when operators create or change volumes. They come from the
/// controller's configuration. Each reply repeats them, because the configuration can be reloaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayPolicy {
    /// Names of the configured classes. The array rejects other classes.
    pub classes: Vec<String>,
    /// Maximum sum of the sizes of all volumes divided by the space of the array, at least 1.
    pub overcommit_max: f64,
}

/// Complete list of activities that an agent must carry out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Orders {
    /// Session of the report.
    pub session: u64,
    /// Sequence number of the report that these orders reply to.
    pub seq: u64,
    /// Controller that gives these orders. An array carries out the orders of one controller at a
    /// time.
    pub controller: ControllerId,
    /// Controller time, nanoseconds.
    pub at_ns: u64,
    /// Lease: time after the report in which these orders may start new activities, nanoseconds.
    pub lease_ns: u64,
    /// Moves to carry out.
    pub moves: Vec<MoveOrder>,
    /// Moves to cancel. Each one is repeated until the agent reports its end.
    pub cancels: Vec<MoveOrder>,
    /// Calibration sessions. The agent ends a running session that is not listed.
    pub calibrations: Vec<CalibrationOrder>,
    /// Numbers of calibration results that the controller has accepted.
    pub calibrations_taken: Vec<u64>,
    /// Temporary limits. The agent removes the limit of a volume that is not listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttles: Vec<ThrottleOrder>,
    /// Other remedies that must be in force.
    #[serde(default, skip_serializing_if = "Remedies::is_empty")]
    pub remedies: Remedies,
    /// Latency objectives by class.
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

/// Detail of the volumes in reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Volumes as a whole.
    #[default]
    Volumes,
    /// Also the place and heat of each extent.
    Extents,
}

/// Order to move a volume or some of its extents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveOrder {
    /// Number of the job.
    pub job: u32,
    /// Name of the volume.
    pub volume: String,
    /// Target device.
    pub device: String,
    /// Tier of the target device.
    pub tier: String,
    /// Extents to move, as ranges such as `0-99,200`; absent if the whole volume moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub extents: Option<ExtentRanges>,
    /// Maximum copy rate, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// Order to carry out a calibration session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationOrder {
    /// Number of the session, never reused.
    pub id: u64,
    /// Name of the volume.
    pub volume: String,
    /// Delay and duration of each window of the session.
    #[schemars(with = "Vec<serde_json::Value>")]
    pub steps: Vec<CalibrationStep>,
}

impl CalibrationOrder {
    /// Returns the result of the session: the measured windows and, if the session ended early, the
    /// reason.
    pub fn ended(
        self,
        windows: Vec<CalibrationMeasured>,
        cut_off: Option<String>,
    ) -> CalibrationResult {
        CalibrationResult {
            id: self.id,
            volume: self.volume,
            windows,
            cut_off,
        }
    }
}
