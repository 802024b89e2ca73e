//! Whether the requests of one window kept to a latency objective: the one rule, for what is simulated and for what is live.
//!
//! ```text
//!            ├──────────── window ────────────┤ end
//!    ▬▬▬▬▬▬▬▬▬▬▬▬●                                   answered in it: its latency counts
//!                    ▬▬▬▬▬●                          likewise
//!       ▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬ … ?       waits, for longer than the objective: late, by its age so far at least
//!                                       ▬▬▬▬ … ?     waits, and may yet be in time: says nothing
//! ```
//!
//! So what is judged is the least that is certain: a window is called missed only if it is missed however the requests that
//! wait will end. A device that hangs and answers nothing has no latencies, and still misses; a volume that nobody asks for
//! anything does not.

use model::{Objective, SloStatistic};

use crate::histogram::{bucket_of, bucket_quantile_ns, bucket_value_ns, merged_buckets};

/// Requests that were answered in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// All of them.
    pub count: u64,
    /// Those that took longer than the objective.
    pub late: u64,
    /// Latencies of all of them added up, nanoseconds.
    pub sum_ns: u128,
}

/// Requests that wait at the end of a window, and have waited for longer than the objective.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overdue {
    /// How many.
    pub count: u64,
    /// Their ages added up, nanoseconds.
    pub age_ns: u128,
}

impl Overdue {
    /// Adds a request that has waited for so long, if that is longer than the objective.
    pub fn add(&mut self, target: Objective, age_ns: u64) {
        if age_ns > target.latency.0 {
            self.count += 1;
            self.age_ns += u128::from(age_ns);
        }
    }

    /// As counts by bucket of age, all at their mean.
    pub fn as_buckets(&self) -> Vec<(u16, u64)> {
        let Some(mean_ns) = self.age_ns.checked_div(u128::from(self.count)) else {
            return vec![];
        };
        let mean_ns = u64::try_from(mean_ns).unwrap_or(u64::MAX);
        vec![(bucket_of(mean_ns) as u16, self.count)]
    }

    /// So many, of this mean age.
    pub fn of_mean(count: u64, mean_us: f64) -> Self {
        Self {
            count,
            age_ns: total_ns(count, mean_us),
        }
    }

    /// Those of requests whose ages are counted by bucket.
    pub fn of_buckets(target: Objective, waiting: impl IntoIterator<Item = (usize, u64)>) -> Self {
        let mut overdue = Self::default();
        for (bucket, n) in late(target, waiting) {
            overdue.count += n;
            overdue.age_ns += u128::from(bucket_value_ns(bucket)) * u128::from(n);
        }
        overdue
    }
}

impl Answered {
    /// Of requests of which no more than the mean is known: enough for an objective of the mean, and for no other.
    pub fn of_mean(count: u64, mean_us: f64) -> Self {
        Self {
            count,
            late: 0,
            sum_ns: total_ns(count, mean_us),
        }
    }

    /// Of latencies that are counted by bucket, and add up to `sum_ns`.
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

/// The buckets whose value is above the objective.
pub fn late(
    target: Objective,
    buckets: impl IntoIterator<Item = (usize, u64)>,
) -> impl Iterator<Item = (usize, u64)> {
    let above = move |bucket: usize| bucket_value_ns(bucket) > target.latency.0;
    buckets.into_iter().filter(move |(b, _)| above(*b))
}

/// The share of requests that a percentile leaves out of account; none for the mean.
pub fn quantile(statistic: SloStatistic) -> Option<f64> {
    match statistic {
        SloStatistic::Mean => None,
        SloStatistic::P95 => Some(0.95),
        SloStatistic::P99 => Some(0.99),
    }
}

/// What being late counts at most, as a share of the objective: from five times the objective on it makes no difference how late answers are.
const EXCESS_MAX: f64 = 4.0;

/// By how much an objective is missed, as a share of it and at most four times it; `used` is the statistic over the objective.
pub fn excess(used: f64) -> f64 {
    (used - 1.0).clamp(0.0, EXCESS_MAX)
}

/// Whether a window missed its objective.
pub fn misses(target: Objective, answered: Answered, overdue: Overdue) -> bool {
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
            // The rank of the percentile, from 1: it is late if fewer than that are in time.
            let rank = ((q * count as f64).ceil() as u64).clamp(1, count);
            answered.count - answered.late < rank
        }
    }
}

/// How requests kept to an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// The statistic of the latency as the guest sees it, requests that wait for longer than the objective by their age so far:
    /// then it is the least that it will be. None without requests.
    pub statistic_ns: Option<u64>,
    /// Requests that wait at the window's end, for longer than the objective.
    pub waiting_late: u64,
    /// Whether it was missed.
    pub violated: bool,
}

fn wide(buckets: &[(u16, u64)]) -> impl Iterator<Item = (usize, u64)> + '_ {
    buckets.iter().map(|(b, n)| (usize::from(*b), *n))
}

/// How requests kept to an objective: those that were answered, by their latencies, which add up to `sum_ns`, and those that wait, by
/// their ages; both by bucket, ascending.
pub fn judge(
    target: Objective,
    answered: &[(u16, u64)],
    sum_ns: u128,
    waiting: &[(u16, u64)],
) -> Judged {
    let of_answered = Answered::of_buckets(target, wide(answered), sum_ns);
    let overdue = Overdue::of_buckets(target, wide(waiting));
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
    Judged {
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
        let mut overdue = Overdue::default();
        waiting.iter().for_each(|ns| overdue.add(target, *ns));
        let answered = Answered::of_buckets(target, latencies.buckets(), latencies.sum_ns());
        misses(target, answered, overdue)
    }

    const ALL: [SloStatistic; 3] = [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99];

    #[test]
    fn nothing_misses_nothing_and_what_hangs_misses() {
        for statistic in ALL {
            let t = target(statistic, 2 * MS);
            assert!(!judge(t, &[], &[]));
            assert!(!judge(t, &[], &[MS, 2 * MS]), "they may be in time yet");
            assert!(judge(t, &[], &[MS, 3 * MS]));
        }
    }

    #[test]
    fn those_that_wait_count_beside_those_that_were_answered() {
        let fast = vec![MS / 2; 99];
        let p99 = target(SloStatistic::P99, 2 * MS);
        assert!(
            !judge(p99, &fast, &[3 * MS]),
            "one of a hundred is left out"
        );
        assert!(judge(p99, &fast, &[3 * MS, 3 * MS]));
        let p95 = target(SloStatistic::P95, 2 * MS);
        assert!(!judge(p95, &fast, &[3 * MS, 3 * MS]));
        // A mean takes them by their age so far; young ones would only hide the others.
        let mean = target(SloStatistic::Mean, 2 * MS);
        assert!(!judge(mean, &fast, &[3 * MS; 2]));
        assert!(judge(mean, &fast, &[200 * MS]));
        assert!(judge(mean, &[3 * MS], &[MS; 50]));
    }

    proptest! {
        #[test]
        fn without_any_that_wait_it_is_the_statistic_that_decides(latencies in prop::collection::vec(1u64..20_000_000, 1..300), limit in 1u64..20_000_000) {
            let mut histogram = Histogram::default();
            latencies.iter().for_each(|ns| histogram.record(*ns));
            for statistic in ALL {
                let t = target(statistic, limit);
                let answered = Answered::of_buckets(t, histogram.buckets(), histogram.sum_ns());
                let value = match quantile(statistic) {
                    None => histogram.mean_us() * 1e3,
                    // The bucket's own value: the histogram cuts at the largest.
                    Some(q) => bucket_value_ns(bucket_of(histogram.quantile_ns(q))) as f64,
                };
                prop_assert_eq!(misses(t, answered, Overdue::default()), value > limit as f64, "{:?} {}", statistic, value);
            }
        }

        #[test]
        fn more_that_wait_never_make_it_better(latencies in prop::collection::vec(1u64..20_000_000, 0..60), waiting in prop::collection::vec(1u64..90_000_000, 0..60), limit in 1u64..20_000_000) {
            for statistic in ALL {
                let t = target(statistic, limit);
                let fewer = judge(t, &latencies, &waiting[..waiting.len() / 2]);
                prop_assert!(!fewer || judge(t, &latencies, &waiting));
            }
        }
    }
}
