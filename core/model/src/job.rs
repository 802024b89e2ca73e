//! Public state of a job: its status, and the I/O error that made it fail.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum JobStatus {
    /// Waits for approval by an operator.
    Proposed,
    /// Approved. Waits for other moves, because of the limits on concurrent moves or because they free its space.
    Waiting,
    /// Running. The host has the order and carries it out.
    Active,
    /// Finished. The volume or all named extents are on the target.
    Done,
    /// Rejected, superseded or cancelled. Extents that have been switched stay on the target.
    Cancelled,
    /// Ended by an error. Extents that have been switched stay on the target.
    Failed,
}

impl JobStatus {
    /// Returns the name of the state, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            JobStatus::Proposed => "proposed",
            JobStatus::Waiting => "waiting",
            JobStatus::Active => "active",
            JobStatus::Done => "done",
            JobStatus::Cancelled => "cancelled",
            JobStatus::Failed => "failed",
        }
    }

    /// Returns true if the job has reached a final state.
    pub fn ended(self) -> bool {
        matches!(
            self,
            JobStatus::Done | JobStatus::Cancelled | JobStatus::Failed
        )
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// I/O error of a device that caused an event or the failure of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoFailure {
    /// Name of the device.
    pub device: String,
    /// Operation: `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// Name of the errno, such as `EIO`.
    pub errno: String,
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoFailure { device, op, errno } = self;
        write!(f, "{op} on device {device}: {errno}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_equal_names_in_json_and_text() {
        let all = [
            JobStatus::Proposed,
            JobStatus::Waiting,
            JobStatus::Active,
            JobStatus::Done,
            JobStatus::Cancelled,
            JobStatus::Failed,
        ];
        for status in all {
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
            assert_eq!(format!("{status:>9}"), format!("{:>9}", status.name()));
        }
    }
}
