//! Samples of a workload, one about every ten seconds, and its objective.

use algo::objective::{self, CompletedRequests, OverdueRequests};
use model::{Objective, SloStatistic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// Number of a workload: dense, valid within one responder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct WorkloadId(pub u16);

impl WorkloadId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Number of a compute server: dense, valid within one responder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct HostId(pub u16);

impl HostId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Number of a resource with a limit that several workloads share: disks, a link, a controller. Dense, valid within one
/// responder.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct ResourceId(pub u16);

impl ResourceId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Objective of a workload: a guaranteed rate, a largest latency, or both; a missing part is not checked. The latency is
/// judged by [`algo::objective`], like all latency objectives. The rate is Dynamite's objective and is judged as in the
/// paper: by completions, while the workload has unserved demand. For it, queued requests are the backlog without which a
/// low rate is no violation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Requests per second that the workload gets on demand.
    #[serde(default)]
    pub rate_min_per_s: Option<f64>,
    /// Largest latency.
    #[serde(default)]
    pub latency_max: Option<Nanos>,
    /// Statistic of the latency that is limited.
    #[serde(default)]
    pub statistic: SloStatistic,
}

impl Promise {
    /// Returns the latency objective, if there is one.
    pub fn objective(&self) -> Option<Objective> {
        self.latency_max.map(|latency| Objective {
            statistic: self.statistic,
            latency,
        })
    }
}

/// Use of one resource by a workload, as shares of the sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Share of the resource's time that reads take; 1 is all of it.
    pub reads: f64,
    /// Share of the resource's time that writes take.
    pub writes: f64,
}

/// Measurements of one workload in one interval, usually ten seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Length of the sample. Stored samples without this field have the length [`SAMPLE`].
    #[serde(default = "usual")]
    pub lasting: Nanos,
    /// Reads completed per second.
    pub reads_per_s: f64,
    /// Writes completed per second.
    pub writes_per_s: f64,
    /// Mean latency from issue to completion, µs; `None` without completions.
    pub latency_us: Option<f64>,
    /// Median latency of completed requests, µs; `None` without completions or if it is not measured.
    #[serde(default)]
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency of completed requests, µs; `None` as for `p50_us`.
    #[serde(default)]
    pub p99_us: Option<f64>,
    /// Number of completed requests above the latency of the objective; `None` if they are not counted. Without it, a
    /// percentile objective is judged by the mean.
    #[serde(default)]
    pub late: Option<u64>,
    /// Bytes read and written per second.
    pub bytes_per_s: f64,
    /// Bytes read per second.
    pub bytes_read_per_s: f64,
    /// Share of the requests that begin where the previous one ended, 0..=1; `None` if it is not measured.
    pub sequential: Option<f64>,
    /// Share of the sample with at least one outstanding request, 0..=1. Below 1 the workload has no unserved demand.
    pub occupied: f64,
    /// Share of the sample in which the workload had its largest possible number of outstanding requests, 0..=1; 0 if no
    /// such limit is known. A closed loop is at this limit all the time and has no queue behind it.
    #[serde(default)]
    pub limited: f64,
    /// Requests that had arrived and were not yet issued at the end of the sample.
    pub waiting: u64,
    /// Outstanding requests at the end of the sample that are older than the latency of the objective; 0 without such an
    /// objective.
    #[serde(default)]
    pub overdue: u64,
    /// Mean age of the overdue requests, µs; `None` if there are none.
    #[serde(default)]
    pub overdue_us: Option<f64>,
    /// Distinct bytes accessed in the sample; `None` if they are not counted.
    pub working_set: Option<Bytes>,
    /// Reads per second that reached the backend; without an appliance these are all reads.
    pub backend_reads_per_s: f64,
    /// Share of the workload's backend reads that hit the array's memory; `None` without backend reads.
    pub memory_hits: Option<f64>,
    /// Use by resource; `None` if it is not measured per workload.
    pub busy: Vec<Option<ResourceUse>>,
}

fn usual() -> Nanos {
    SAMPLE
}

/// Idle sample of the usual length.
impl Default for Sample {
    fn default() -> Self {
        Self {
            lasting: SAMPLE,
            reads_per_s: 0.0,
            writes_per_s: 0.0,
            latency_us: None,
            p50_us: None,
            p99_us: None,
            late: None,
            bytes_per_s: 0.0,
            bytes_read_per_s: 0.0,
            sequential: Some(0.0),
            occupied: 0.0,
            limited: 0.0,
            waiting: 0,
            overdue: 0,
            overdue_us: None,
            working_set: Some(Bytes(0)),
            backend_reads_per_s: 0.0,
            memory_hits: None,
            busy: vec![],
        }
    }
}

impl Sample {
    /// Returns the completed requests per second.
    pub fn rate_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s
    }

    /// Returns the number of completed requests: at least one if the sample has a latency, even if the rate rounds to zero.
    pub fn completed(&self) -> u64 {
        let counted = (self.rate_per_s() * self.lasting.as_secs_f64()).round() as u64;
        counted.max(u64::from(self.latency_us.is_some()))
    }

    /// Returns true if the workload had unserved demand: always a request outstanding, and either a queue behind it or its
    /// largest number of outstanding requests most of the time. A slow sequence of single requests is neither.
    pub fn backlogged(&self) -> bool {
        self.occupied >= OCCUPIED_MIN && (self.waiting > 0 || self.limited >= LIMITED_MIN)
    }

    /// Returns true if the sample violates an objective, by the rule of [`objective::misses`].
    pub fn misses(&self, objective: Objective) -> bool {
        let statistic = match self.late {
            Some(_) => objective.statistic,
            None => SloStatistic::Mean,
        };
        let objective = Objective {
            statistic,
            ..objective
        };
        let answered = self.latency_us.map(|us| CompletedRequests {
            late: self.late.unwrap_or(0),
            ..CompletedRequests::of_mean(self.completed(), us)
        });
        let answered = answered.unwrap_or_default();
        let overdue = self
            .overdue_us
            .map(|us| OverdueRequests::of_mean(self.overdue, us))
            .unwrap_or_default();
        objective::misses(objective, answered, overdue)
    }

    /// Returns the share of writes in the requests, 0..=1; 0 without requests.
    pub fn write_share(&self) -> f64 {
        let all = self.rate_per_s();
        if all > 0.0 {
            self.writes_per_s / all
        } else {
            0.0
        }
    }
}

/// Relation of a sample to the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectiveRelation {
    /// The objective is met, or there is none.
    Kept,
    /// The rate is below the guarantee without unserved demand: not a violation.
    LowLoad,
    /// The rate is below the guarantee with unserved demand.
    TooSlow,
    /// The latency is above the objective, counting overdue requests with their age.
    TooLate,
}

/// Share of the guaranteed rate that counts as met, because a count over ten seconds is inexact.
pub const RATE_SLACK: f64 = 0.95;
/// Smallest `occupied` of a sample with a backlog: the whole sample, except for gaps between requests.
pub const OCCUPIED_MIN: f64 = 0.999;
/// Smallest `limited` of a workload with unserved demand. It is below 1 because a closed loop with think time is limited as
/// well.
pub const LIMITED_MIN: f64 = 0.5;
/// Default length of a sample.
pub const SAMPLE: Nanos = Nanos::from_secs(10);

impl ObjectiveRelation {
    /// Judges one sample. A workload with little demand is not in violation.
    pub fn of(promise: &Promise, sample: &Sample) -> Self {
        if promise.objective().is_some_and(|o| sample.misses(o)) {
            return ObjectiveRelation::TooLate;
        }
        match promise.rate_min_per_s {
            Some(min) if sample.rate_per_s() < RATE_SLACK * min => {
                if sample.backlogged() {
                    ObjectiveRelation::TooSlow
                } else {
                    ObjectiveRelation::LowLoad
                }
            }
            _ => ObjectiveRelation::Kept,
        }
    }

    /// Returns true for a violation.
    pub fn violates(self) -> bool {
        matches!(
            self,
            ObjectiveRelation::TooSlow | ObjectiveRelation::TooLate
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(millis: u64) -> Objective {
        Objective {
            statistic: SloStatistic::Mean,
            latency: Nanos::from_millis(millis),
        }
    }

    #[test]
    fn low_load_is_not_a_violation_and_a_backlog_is() {
        let objective = Promise {
            rate_min_per_s: Some(1800.0),
            latency_max: None,
            ..Promise::default()
        };
        let sample = |rate: f64, occupied: f64| Sample {
            reads_per_s: rate,
            occupied,
            waiting: u64::from(occupied >= 1.0),
            ..Sample::default()
        };
        let of = |rate, occupied| ObjectiveRelation::of(&objective, &sample(rate, occupied));
        assert_eq!(of(300.0, 0.4), ObjectiveRelation::LowLoad);
        assert_eq!(of(1700.0, 1.0), ObjectiveRelation::TooSlow);
        assert_eq!(of(1715.0, 1.0), ObjectiveRelation::Kept);
        assert_eq!(of(2500.0, 1.0), ObjectiveRelation::Kept);
    }

    #[test]
    fn saturated_closed_loop_has_backlog_and_a_slow_trickle_does_not() {
        let objective = Promise {
            rate_min_per_s: Some(1800.0),
            latency_max: None,
            ..Promise::default()
        };
        let of = |rate: f64, limited: f64| {
            let sample = Sample {
                reads_per_s: rate,
                occupied: 1.0,
                limited,
                ..Sample::default()
            };
            ObjectiveRelation::of(&objective, &sample)
        };
        // Sixteen requests at once all the time, and no queue behind them.
        assert_eq!(of(900.0, 1.0), ObjectiveRelation::TooSlow);
        assert_eq!(of(1900.0, 1.0), ObjectiveRelation::Kept);
        // One request at a time with a limit of sixteen: always one outstanding, and slow, but no unserved demand.
        assert_eq!(of(3.0, 0.0), ObjectiveRelation::LowLoad);
        assert_eq!(of(900.0, 0.2), ObjectiveRelation::LowLoad);
    }

    #[test]
    fn requests_overdue_beyond_the_objective_are_a_violation() {
        let objective = Promise {
            rate_min_per_s: None,
            latency_max: Some(Nanos::from_millis(5)),
            ..Promise::default()
        };
        let of = |reads_per_s: f64, overdue: u64, overdue_us: f64| {
            let sample = Sample {
                reads_per_s,
                occupied: 1.0,
                latency_us: (reads_per_s > 0.0).then_some(900.0),
                overdue,
                overdue_us: (overdue > 0).then_some(overdue_us),
                ..Sample::default()
            };
            ObjectiveRelation::of(&objective, &sample)
        };
        assert_eq!(
            of(0.0, 1, 3e6),
            ObjectiveRelation::TooLate,
            "nothing completed"
        );
        assert_eq!(
            of(0.0, 0, 0.0),
            ObjectiveRelation::Kept,
            "it may be in time yet"
        );
        assert_eq!(of(200.0, 0, 0.0), ObjectiveRelation::Kept);
        // 2,000 requests of 0.9 ms and ten that hang for a second: 5.9 ms on average. With five of them: 3.4 ms.
        assert_eq!(of(200.0, 10, 1e6), ObjectiveRelation::TooLate);
        assert_eq!(of(200.0, 5, 1e6), ObjectiveRelation::Kept);
    }

    #[test]
    fn completed_requests_are_weighted_by_the_sample_duration() {
        // 200 requests per second of 0.9 ms, and ten that hang for a second, against an objective of 5 ms.
        let of = |seconds: u64| {
            let sample = Sample {
                lasting: Nanos::from_secs(seconds),
                reads_per_s: 200.0,
                latency_us: Some(900.0),
                overdue: 10,
                overdue_us: Some(1e6),
                ..Sample::default()
            };
            sample.misses(mean(5))
        };
        assert!(of(10), "5.9 ms of 2,010 requests");
        assert!(!of(60), "1.7 ms of 12,010 requests");
        assert!(of(1), "48 ms of 210 requests");
    }

    #[test]
    fn single_request_of_a_long_sample_counts() {
        let of = |latency_us: f64| {
            let sample = Sample {
                reads_per_s: 0.01,
                latency_us: Some(latency_us),
                ..Sample::default()
            };
            sample.misses(mean(5))
        };
        assert!(of(6000.0) && !of(4000.0));
    }

    #[test]
    fn samples_without_quantiles_are_readable() {
        let mut old = serde_json::to_value(Sample::default()).unwrap();
        for new in [
            "lasting",
            "p50_us",
            "p99_us",
            "limited",
            "overdue",
            "overdue_us",
        ] {
            old.as_object_mut().unwrap().remove(new);
        }
        assert_eq!(
            serde_json::from_value::<Sample>(old).unwrap(),
            Sample::default()
        );
    }

    #[test]
    fn latency_counts_at_low_load_but_not_without_requests() {
        let objective = Promise {
            rate_min_per_s: None,
            latency_max: Some(Nanos::from_millis(5)),
            ..Promise::default()
        };
        let with = |latency_us: Option<f64>| Sample {
            reads_per_s: if latency_us.is_some() { 0.1 } else { 0.0 },
            latency_us,
            ..Sample::default()
        };
        assert_eq!(
            ObjectiveRelation::of(&objective, &with(Some(5001.0))),
            ObjectiveRelation::TooLate
        );
        assert_eq!(
            ObjectiveRelation::of(&objective, &with(Some(5000.0))),
            ObjectiveRelation::Kept
        );
        assert_eq!(
            ObjectiveRelation::of(&objective, &with(None)),
            ObjectiveRelation::Kept
        );
    }
}
