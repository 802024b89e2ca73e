//! What is told about a workload every ten seconds or so, and what it was promised.

use algo::objective::{self, Answered, Overdue};
use model::{Objective, SloStatistic};
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

/// What a workload was promised, in two measures. The latency is an objective like any other of the house: what misses it is said in
/// [`algo::objective`]. The rate is Dynamite's own promise, and is counted as the paper counts it: by what completed while the workload
/// asked for more. Requests that wait count there as the backlog without which a low rate is no violation; they have no latency
/// that a rate could miss. Both parts may be there; one that is not, is not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// Requests per second that it gets if it asks for as many.
    #[serde(default)]
    pub rate_min_per_s: Option<f64>,
    /// Latency that it does not exceed.
    #[serde(default)]
    pub latency_max: Option<Nanos>,
    /// Of what the latency is meant.
    #[serde(default)]
    pub statistic: SloStatistic,
}

impl Promise {
    /// What it says of latency.
    pub fn objective(&self) -> Option<Objective> {
        self.latency_max.map(|latency| Objective {
            statistic: self.statistic,
            latency,
        })
    }
}

/// What a workload did on one resource, per second of the sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Share of the resource's time taken by its reads; 1 is all of it.
    pub reads: f64,
    /// The same for its writes.
    pub writes: f64,
}

/// Ten seconds of one workload, or another time that it names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// How long it is. Those from before this was kept are of [`SAMPLE`].
    #[serde(default = "usual")]
    pub lasting: Nanos,
    /// Reads completed per second.
    pub reads_per_s: f64,
    /// Writes completed per second.
    pub writes_per_s: f64,
    /// Mean latency, from issue to completion; `None` where nothing completed.
    pub latency_us: Option<f64>,
    /// Latency that half of the requests that completed did not exceed; `None` where nothing completed, or where it is not measured.
    #[serde(default)]
    pub p50_us: Option<f64>,
    /// The same for 99 of 100.
    #[serde(default)]
    pub p99_us: Option<f64>,
    /// Requests completed that took longer than the promised latency; `None` where they are not counted, and then a promise of a
    /// percentile is judged by the mean.
    #[serde(default)]
    pub late: Option<u64>,
    /// Bytes per second, both directions.
    pub bytes_per_s: f64,
    /// Bytes read per second.
    pub bytes_read_per_s: f64,
    /// Share of the requests that begin where the one before them ended, 0..=1; `None` where that is not measured.
    pub sequential: Option<f64>,
    /// Share of the sample in which at least one request was outstanding, 0..=1. Below 1 the workload asked for no more.
    pub occupied: f64,
    /// Share of the sample in which as many requests were outstanding as the workload may have at once, 0..=1; 0 where such a limit
    /// is not known. A closed loop is there all the time, and has nothing waiting behind it.
    #[serde(default)]
    pub limited: f64,
    /// Requests that had arrived and were not yet issued when the sample ended.
    pub waiting: u64,
    /// Requests that were issued and not answered when the sample ended, and had waited for longer than the promised latency; 0
    /// where none is promised.
    #[serde(default)]
    pub overdue: u64,
    /// Their mean age; `None` where there are none.
    #[serde(default)]
    pub overdue_us: Option<f64>,
    /// Distinct bytes touched in the sample; `None` where they are not counted.
    pub working_set: Option<Bytes>,
    /// Reads per second that got to the backend: all of them without an appliance.
    pub backend_reads_per_s: f64,
    /// Share of its reads at the backend that the array's memory answered; `None` where it sent none there.
    pub memory_hits: Option<f64>,
    /// By resource; `None` where it is not known who takes how much of it.
    pub busy: Vec<Option<Busy>>,
}

fn usual() -> Nanos {
    SAMPLE
}

/// A sample of the usual length in which nothing happened.
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
    /// Requests completed per second.
    pub fn rate_per_s(&self) -> f64 {
        self.reads_per_s + self.writes_per_s
    }

    /// Requests completed: at least one where there is a latency, whatever its rate is rounded to.
    pub fn completed(&self) -> u64 {
        let counted = (self.rate_per_s() * self.lasting.as_secs_f64()).round() as u64;
        counted.max(u64::from(self.latency_us.is_some()))
    }

    /// Whether the workload asked for more than it got: always something outstanding, and more waiting behind it, or as many
    /// outstanding as it may have, most of the time. A slow trickle is neither.
    pub fn backlogged(&self) -> bool {
        self.occupied >= OCCUPIED_MIN && (self.waiting > 0 || self.limited >= LIMITED_MIN)
    }

    /// Whether an objective was missed, by the rule that there is for it.
    pub fn misses(&self, objective: Objective) -> bool {
        let statistic = match self.late {
            Some(_) => objective.statistic,
            None => SloStatistic::Mean,
        };
        let objective = Objective {
            statistic,
            ..objective
        };
        let answered = self.latency_us.map(|us| Answered {
            late: self.late.unwrap_or(0),
            ..Answered::of_mean(self.completed(), us)
        });
        let answered = answered.unwrap_or_default();
        let overdue = self
            .overdue_us
            .map(|us| Overdue::of_mean(self.overdue, us))
            .unwrap_or_default();
        objective::misses(objective, answered, overdue)
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

/// How a sample stands to what was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Kept, or nothing was promised.
    Kept,
    /// Below the promised rate, but the workload asked for no more: not a violation.
    LowLoad,
    /// Below the promised rate with requests outstanding all the time.
    TooSlow,
    /// Latency above the promise, those that wait counted with what they have waited so far.
    TooLate,
}

/// Share of the promised rate that still counts as kept: a ten-second count is not exact.
pub const RATE_SLACK: f64 = 0.95;
/// A sample with requests outstanding for at least this share of it is one with a backlog; a whole one but for the gap
/// between two requests.
pub const OCCUPIED_MIN: f64 = 0.999;
/// A workload that has as many requests outstanding as it may for at least this share of a sample would have issued more most of
/// the time. Not a whole one: a closed loop that thinks between answers is held back too.
pub const LIMITED_MIN: f64 = 0.5;
/// Length of a sample, unless it says another one.
pub const SAMPLE: Nanos = Nanos::from_secs(10);

impl Standing {
    /// Judges one sample; a workload that asks for little is not in violation.
    pub fn of(promise: &Promise, sample: &Sample) -> Self {
        if promise.objective().is_some_and(|o| sample.misses(o)) {
            return Standing::TooLate;
        }
        match promise.rate_min_per_s {
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
        let of = |rate, occupied| Standing::of(&objective, &sample(rate, occupied));
        assert_eq!(of(300.0, 0.4), Standing::LowLoad);
        assert_eq!(of(1700.0, 1.0), Standing::TooSlow);
        assert_eq!(of(1715.0, 1.0), Standing::Kept);
        assert_eq!(of(2500.0, 1.0), Standing::Kept);
    }

    #[test]
    fn a_closed_loop_at_its_depth_asks_for_more_and_a_trickle_does_not() {
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
            Standing::of(&objective, &sample)
        };
        // Sixteen at once, always, and nothing behind them.
        assert_eq!(of(900.0, 1.0), Standing::TooSlow);
        assert_eq!(of(1900.0, 1.0), Standing::Kept);
        // One at a time of sixteen that it may have: always something outstanding, and slow, but it asks for no more.
        assert_eq!(of(3.0, 0.0), Standing::LowLoad);
        assert_eq!(of(900.0, 0.2), Standing::LowLoad);
    }

    #[test]
    fn what_waits_for_longer_than_the_promise_is_late() {
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
            Standing::of(&objective, &sample)
        };
        assert_eq!(of(0.0, 1, 3e6), Standing::TooLate, "nothing completed");
        assert_eq!(of(0.0, 0, 0.0), Standing::Kept, "it may be in time yet");
        assert_eq!(of(200.0, 0, 0.0), Standing::Kept);
        // 2,000 of 0.9 ms and ten that hang for a second: 5.9 ms on average. Five of them: 3.4 ms.
        assert_eq!(of(200.0, 10, 1e6), Standing::TooLate);
        assert_eq!(of(200.0, 5, 1e6), Standing::Kept);
    }

    #[test]
    fn what_is_answered_weighs_by_the_length_of_the_sample() {
        // 200 a second of 0.9 ms, and ten that hang for a second, against 5 ms.
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
    fn one_request_of_a_long_sample_counts() {
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
    fn samples_from_before_quantiles_were_kept_are_read() {
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
    fn latency_counts_also_at_low_load_but_not_without_requests() {
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
