//! What is told about a workload every ten seconds, and what it was promised.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// A workload: dense, of one responder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct WorkloadId(pub u16);

impl WorkloadId {
    /// As an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A compute server: dense, of one responder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct HostId(pub u16);

impl HostId {
    /// As an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Something that several workloads use and that has an end: disks, a link, a controller. Dense, of one responder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct ResourceId(pub u16);

impl ResourceId {
    /// As an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a workload was promised. Both parts may be there; one that is not, is not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// Requests per second that it gets if it asks for as many.
    #[serde(default)]
    pub rate_min_per_s: Option<f64>,
    /// Mean latency that it does not exceed.
    #[serde(default)]
    pub latency_max: Option<Nanos>,
}

/// What a workload did on one resource, per second of the sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Share of the resource's time taken by its reads; 1 is all of it.
    pub reads: f64,
    /// The same for its writes.
    pub writes: f64,
}

/// Ten seconds of one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Reads completed per second.
    pub reads_per_s: f64,
    /// Writes completed per second.
    pub writes_per_s: f64,
    /// Mean latency, from issue to completion; `None` where nothing completed.
    pub latency_us: Option<f64>,
    /// Bytes per second, both directions.
    pub bytes_per_s: f64,
    /// Bytes read per second.
    pub bytes_read_per_s: f64,
    /// Share of the requests that begin where the one before them ended, 0..=1.
    pub sequential: f64,
    /// Share of the sample in which at least one request was outstanding, 0..=1. Below 1 the workload asked for no more.
    pub occupied: f64,
    /// Requests that had arrived and were not yet issued when the sample ended.
    pub waiting: u64,
    /// Distinct bytes touched in the sample.
    pub working_set: Bytes,
    /// Reads per second that got to the backend: all of them without an appliance.
    pub backend_reads_per_s: f64,
    /// Share of its reads at the backend that the array's memory answered; `None` where it sent none there.
    pub memory_hits: Option<f64>,
    /// By resource.
    pub busy: Vec<Busy>,
}

impl Sample {
    /// Requests completed per second.
    pub fn rate_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s
    }

    /// Whether the workload asked for more than it got: always something outstanding, and more waiting behind it.
    pub fn backlogged(&self) -> bool {
        self.occupied >= OCCUPIED_MIN && self.waiting > 0
    }

    /// Share of the requests that write, 0..=1; 0 for no requests.
    pub fn write_share(&self) -> f64 {
        let all = self.rate_per_s();
        if all > 0.0 {
            self.writes_per_s / all
        } else {
            0.0
        }
    }
}

/// How a sample stands to an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Kept, or nothing was promised.
    Kept,
    /// Below the promised rate, but the workload asked for no more: not a violation.
    LowLoad,
    /// Below the promised rate with requests outstanding all the time.
    TooSlow,
    /// Latency above the promise.
    TooLate,
}

/// Share of the promised rate that still counts as kept: a ten-second count is not exact.
pub const RATE_SLACK: f64 = 0.95;
/// A sample with requests outstanding for at least this share of it is one with a backlog; a whole one but for the gap
/// between two requests.
pub const OCCUPIED_MIN: f64 = 0.999;

impl Standing {
    /// Judges one sample ; a workload that asks for little is not in violation.
    pub fn of(objective: &Objective, sample: &Sample) -> Self {
        let late = match (objective.latency_max, sample.latency_us) {
            (Some(max), Some(us)) => us > max.as_micros_f64(),
            _ => false,
        };
        if late {
            return Standing::TooLate;
        }
        match objective.rate_min_per_s {
            Some(min) if sample.rate_per_s() < RATE_SLACK * min => {
                if sample.backlogged() {
                    Standing::TooSlow
                } else {
                    Standing::LowLoad
                }
            }
            _ => Standing::Kept,
        }
    }

    /// Whether it counts as a violation.
    pub fn violates(self) -> bool {
        matches!(self, Standing::TooSlow | Standing::TooLate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_load_is_not_a_violation_and_a_backlog_is() {
        let objective = Objective {
            rate_min_per_s: Some(1800.0),
            latency_max: None,
        };
        let sample = |rate: f64, occupied: f64| Sample {
            reads_per_s: rate,
            occupied,
            waiting: u64::from(occupied >= 1.0),
            ..Sample::default()
        };
        let of = |rate, occupied| Standing::of(&objective, &sample(rate, occupied));
        assert_eq!(of(300.0, 0.4), Standing::LowLoad);
        assert_eq!(of(1700.0, 1.0), Standing::TooSlow);
        assert_eq!(of(1715.0, 1.0), Standing::Kept);
        assert_eq!(of(2500.0, 1.0), Standing::Kept);
    }

    #[test]
    fn latency_counts_also_at_low_load_but_not_without_requests() {
        let objective = Objective {
            rate_min_per_s: None,
            latency_max: Some(Nanos::from_millis(5)),
        };
        let with = |latency_us| Sample {
            latency_us,
            ..Sample::default()
        };
        assert_eq!(
            Standing::of(&objective, &with(Some(5001.0))),
            Standing::TooLate
        );
        assert_eq!(
            Standing::of(&objective, &with(Some(5000.0))),
            Standing::Kept
        );
        assert_eq!(Standing::of(&objective, &with(None)), Standing::Kept);
    }
}
