//! Check of a latency objective for the requests of one window: the same rule in simulation and live.
//!
//! ```text
//!            ├──────────── window ────────────┤ end
//!    ▬▬▬▬▬▬▬▬▬▬▬▬●                                   completed in the window: its latency counts
//!                    ▬▬▬▬▬●                          likewise
//!       ▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬ … ?       pending for longer than the objective: late, by at least its age
//!                                       ▬▬▬▬ … ?     pending, and may yet be in time: ignored
//! ```
//!
//! The verdict is conservative: a window is violated only if it is violated for any completion of the pending requests.
//! A device that hangs and completes nothing has no latencies, but violates its objective. A volume without requests
//! does not.

use model::{Objective, SloStatistic};

use crate::histogram::{bucket_of, bucket_quantile_ns, bucket_value_ns, merged_buckets};

/// Requests completed in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompletedRequests {
    /// Number of completed requests.
    pub count: u64,
    /// Number of requests that took longer than the objective.
    pub late: u64,
    /// Sum of all latencies in nanoseconds.
    pub sum_ns: u128,
}

/// Requests that are pending at the end of a window for longer than the objective.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverdueRequests {
    /// Number of requests.
    pub count: u64,
    /// Sum of their ages in nanoseconds.
    pub age_ns: u128,
}

impl OverdueRequests {
    /// Adds a pending request, if its age exceeds the objective.
    pub fn add(&mut self, target: Objective, age_ns: u64) {
        if age_ns > target.latency.0 {
            self.count += 1;
            self.age_ns += u128::from(age_ns);
        }
    }

    /// Returns counts by bucket of age, all at their mean.
    pub fn as_buckets(&self) -> Vec<(u16, u64)> {
        let Some(mean_ns) = self.age_ns.checked_div(u128::from(self.count)) else {
            return vec![];
        };
        let mean_ns = u64::try_from(mean_ns).unwrap_or(u64::MAX);
        vec![(bucket_of(mean_ns) as u16, self.count)]
    }

    /// Creates `count` requests of this mean age.
    pub fn of_mean(count: u64, mean_us: f64) -> Self {
        Self {
            count,
            age_ns: total_ns(count, mean_us),
        }
    }

    /// Selects the overdue requests from counts of pending requests by bucket of age.
    pub fn of_buckets(target: Objective, waiting: impl IntoIterator<Item = (usize, u64)>) -> Self {
        let mut overdue = Self::default();
        for (bucket, n) in late(target, waiting) {
            overdue.count += n;
            overdue.age_ns += u128::from(bucket_value_ns(bucket)) * u128::from(n);
        }
        overdue
    }
}

impl CompletedRequests {
    /// Creates completed requests of which only the mean is known. Sufficient only for an objective of the mean.
    pub fn of_mean(count: u64, mean_us: f64) -> Self {
        Self {
            count,
            late: 0,
            sum_ns: total_ns(count, mean_us),
        }
    }

    /// Creates completed requests from latencies counted by bucket, with the sum `sum_ns`.
    pub fn of_buckets(
        target: Objective,
        latencies: impl IntoIterator<Item = (usize, u64)>,
        sum_ns: u128,
    ) -> Self {
        let mut count = 0;
        let counted = latencies.into_iter().inspect(|(_, n)| count += n);
        let late = late(target, counted).map(|(_, n)| n).sum();
        Self {
            count,
            late,
            sum_ns,
        }
    }
}

fn total_ns(count: u64, mean_us: f64) -> u128 {
    (mean_us * 1e3 * count as f64).round() as u128
}

/// Returns the buckets whose value is above the objective.
pub fn late(
    target: Objective,
    buckets: impl IntoIterator<Item = (usize, u64)>,
) -> impl Iterator<Item = (usize, u64)> {
    let above = move |bucket: usize| bucket_value_ns(bucket) > target.latency.0;
    buckets.into_iter().filter(move |(b, _)| above(*b))
}

/// Returns the quantile of a percentile statistic; `None` for the mean.
pub fn quantile(statistic: SloStatistic) -> Option<f64> {
    match statistic {
        SloStatistic::Mean => None,
        SloStatistic::P95 => Some(0.95),
        SloStatistic::P99 => Some(0.99),
    }
}

/// Maximum weight of lateness, as a share of the objective: beyond five times the objective, more latency makes no
/// difference.
const EXCESS_MAX: f64 = 4.0;

/// Returns the excess over an objective, as a share of it, at most four times. `used` is the statistic divided by the
/// objective.
pub fn excess(used: f64) -> f64 {
    (used - 1.0).clamp(0.0, EXCESS_MAX)
}

/// Returns true if a window violates its objective.
pub fn misses(target: Objective, answered: CompletedRequests, overdue: OverdueRequests) -> bool {
    let count = answered.count + overdue.count;
    if count == 0 {
        return false;
    }
    match quantile(target.statistic) {
        None => {
            let sum_ns = answered.sum_ns + overdue.age_ns;
            sum_ns > u128::from(target.latency.0) * u128::from(count)
        }
        Some(q) => {
            // Rank of the percentile, from 1: it is late if fewer requests are in time.
            let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
            answered.count - answered.late < rank
        }
    }
}

/// Verdict on an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectiveVerdict {
    /// Statistic of the latency as the guest sees it; `None` without requests. Requests pending for longer than the
    /// objective count with their age, so the value is a lower bound.
    pub statistic_ns: Option<u64>,
    /// Number of requests pending at the window's end for longer than the objective.
    pub waiting_late: u64,
    /// True if the objective was violated.
    pub violated: bool,
}

fn wide(buckets: &[(u16, u64)]) -> impl Iterator<Item = (usize, u64)> + '_ {
    buckets.iter().map(|(b, n)| (usize::from(*b), *n))
}

/// Judges requests against an objective: the completed ones by their latencies, with the sum `sum_ns`, and the pending
/// ones by their ages. Both are counts by bucket, ascending.
pub fn judge(
    target: Objective,
    answered: &[(u16, u64)],
    sum_ns: u128,
    waiting: &[(u16, u64)],
) -> ObjectiveVerdict {
    let of_answered = CompletedRequests::of_buckets(target, wide(answered), sum_ns);
    let overdue = OverdueRequests::of_buckets(target, wide(waiting));
    let statistic_ns = match quantile(target.statistic) {
        None => {
            let count = u128::from(of_answered.count + overdue.count);
            let mean_ns = (sum_ns + overdue.age_ns).checked_div(count);
            mean_ns.map(|ns| u64::try_from(ns).unwrap_or(u64::MAX))
        }
        Some(q) => {
            let late: Vec<_> = late(target, wide(waiting))
                .map(|(b, n)| (b as u16, n))
                .collect();
            bucket_quantile_ns(&merged_buckets(answered, &late), q)
        }
    };
    ObjectiveVerdict {
        statistic_ns,
        waiting_late: overdue.count,
        violated: misses(target, of_answered, overdue),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Histogram, bucket_of};
    use proptest::prelude::*;
    use units::Nanos;

    const MS: u64 = 1_000_000;

    fn target(statistic: SloStatistic, latency_ns: u64) -> Objective {
        Objective {
            statistic,
            latency: Nanos(latency_ns),
        }
    }

    fn judge(target: Objective, answered: &[u64], waiting: &[u64]) -> bool {
        let mut latencies = Histogram::default();
        answered.iter().for_each(|ns| latencies.record(*ns));
        let mut overdue = OverdueRequests::default();
        waiting.iter().for_each(|ns| overdue.add(target, *ns));
        let answered =
            CompletedRequests::of_buckets(target, latencies.buckets(), latencies.sum_ns());
        misses(target, answered, overdue)
    }

    const ALL: [SloStatistic; 3] = [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99];

    #[test]
    fn empty_window_is_no_violation_and_a_hanging_request_is() {
        for statistic in ALL {
            let t = target(statistic, 2 * MS);
            assert!(!judge(t, &[], &[]));
            assert!(!judge(t, &[], &[MS, 2 * MS]), "they may be in time yet");
            assert!(judge(t, &[], &[MS, 3 * MS]));
        }
    }

    #[test]
    fn waiting_requests_count_with_completed_ones() {
        let fast = vec![MS / 2; 99];
        let p99 = target(SloStatistic::P99, 2 * MS);
        assert!(
            !judge(p99, &fast, &[3 * MS]),
            "one of a hundred is left out"
        );
        assert!(judge(p99, &fast, &[3 * MS, 3 * MS]));
        let p95 = target(SloStatistic::P95, 2 * MS);
        assert!(!judge(p95, &fast, &[3 * MS, 3 * MS]));
        // For a mean they count with their present age. Young requests would only hide the others.
        let mean = target(SloStatistic::Mean, 2 * MS);
        assert!(!judge(mean, &fast, &[3 * MS; 2]));
        assert!(judge(mean, &fast, &[200 * MS]));
        assert!(judge(mean, &[3 * MS], &[MS; 50]));
    }

    proptest! {
        #[test]
        fn without_waiting_requests_the_statistic_decides(latencies in prop::collection::vec(1u64..20_000_000, 1..300), limit in 1u64..20_000_000) {
            let mut histogram = Histogram::default();
            latencies.iter().for_each(|ns| histogram.record(*ns));
            for statistic in ALL {
                let t = target(statistic, limit);
                let answered = CompletedRequests::of_buckets(t, histogram.buckets(), histogram.sum_ns());
                let value = match quantile(statistic) {
                    None => histogram.mean_us() * 1e3,
                    // The bucket's own value, because the histogram cuts at the largest.
                    Some(q) => bucket_value_ns(bucket_of(histogram.quantile_ns(q))) as f64,
                };
                prop_assert_eq!(misses(t, answered, OverdueRequests::default()), value > limit as f64, "{:?} {}", statistic, value);
            }
        }

        #[test]
        fn more_waiting_requests_never_end_a_violation(latencies in prop::collection::vec(1u64..20_000_000, 0..60), waiting in prop::collection::vec(1u64..90_000_000, 0..60), limit in 1u64..20_000_000) {
            for statistic in ALL {
                let t = target(statistic, limit);
                let fewer = judge(t, &latencies, &waiting[..waiting.len() / 2]);
                prop_assert!(!fewer || judge(t, &latencies, &waiting));
            }
        }
    }
}
