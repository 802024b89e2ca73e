//! What is said of a job wherever it is shown: where it stands, and the I/O that it failed by.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a job stands. Older versions told the steps of a copy apart; what they wrote is read as active.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum JobStatus {
    /// For somebody to approve of it.
    Proposed,
    /// For its turn, or for moves that free its space.
    Waiting,
    /// Its host is told to carry it out, or does so.
    #[serde(
        alias = "reserving",
        alias = "copying",
        alias = "switching",
        alias = "releasing"
    )]
    Active,
    /// All that it names is on the target.
    Done,
    /// It was not to be, or was given up.
    Cancelled,
    /// It could not be carried out, or not to its end.
    Failed,
}

impl JobStatus {
    /// Its name for people and programs.
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

    /// Whether nothing will happen any more.
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

/// An I/O that a device failed, as evidence of what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoFailure {
    /// The device.
    pub device: String,
    /// `read`, `write`, `flush`, `zero` or `discard`.
    pub op: String,
    /// The errno's name, such as `EIO`.
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
    fn a_job_stands_where_its_name_says_also_in_what_was_kept_before() {
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
        for step in ["reserving", "copying", "switching", "releasing"] {
            let read: JobStatus = serde_json::from_value(step.into()).unwrap();
            assert_eq!(read, JobStatus::Active);
        }
    }
}
