//! Results by stretches of time, in total and by class, with the part of the array that served the requests. Single
//! windows are too short to read, and quantiles of several windows cannot be computed from theirs.

use algo::{Histogram, bucket_value_ns};
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::Model;

/// Share of the slowest requests that a trimmed mean excludes.
pub const TRIMMED: f64 = 0.05;

/// Results by stretches, for scenarios with the key `stretch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stretches {
    /// Measured time: the run without its warm-up.
    pub counted: Stretch,
    /// All stretches, including the warm-up. The last one may be shorter.
    pub each: Vec<Stretch>,
}

/// Results of one stretch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// Start, seconds.
    pub from_s: f64,
    /// End, seconds.
    pub to_s: f64,
    /// All requests.
    pub total: StretchGroup,
    /// Groups by class, in the scenario's order.
    pub classes: Vec<StretchGroup>,
}

/// Group of requests, reads and writes together. Values are `None` without requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StretchGroup {
    /// Name of the class, or "total".
    pub name: String,
    /// Completed requests.
    pub ios: u64,
    /// Mean latency, microseconds.
    pub mean_us: Option<f64>,
    /// Mean latency without the slowest requests ([`TRIMMED`]), microseconds. It is not dominated by the tail in
    /// overload. Its precision is that of the histogram.
    pub trimmed_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Requests by the part that served them.
    pub answered: Vec<ServedRequests>,
    /// Mean cache priority of its volumes at the end, percent; `None` without priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_percent: Option<f64>,
}

impl StretchGroup {
    /// Returns the share of requests served by a tier, "cache" or "appliances", 0..=1; `None` without requests.
    pub fn share_of(&self, by: &str) -> Option<f64> {
        let own = self.answered.iter().find(|a| a.by == by)?.ios;
        (self.ios > 0).then(|| own as f64 / self.ios as f64)
    }
}

/// Requests served by one tier, the cache or appliances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedRequests {
    /// Name of the tier, "cache" or "appliances".
    pub by: String,
    /// Number of requests.
    pub ios: u64,
}

/// Counts of one class.
#[derive(Debug, Clone)]
struct Part {
    latencies: Histogram,
    /// Requests by tier, including the cache and the appliances.
    answered: Vec<u64>,
}

impl Part {
    fn new(tiers: usize) -> Self {
        Self {
            latencies: Histogram::default(),
            answered: vec![0; tiers],
        }
    }

    fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        let both = self.answered.iter_mut().zip(&other.answered);
        both.for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Counts in progress.
pub(crate) struct StretchCounts {
    length_ns: u64,
    from_ns: u64,
    /// True after the warm-up.
    counts: bool,
    counted_from_ns: u64,
    names: Vec<String>,
    by: Vec<String>,
    /// Counts by class: of the current stretch, and of all measured time.
    parts: Vec<Part>,
    counted: Vec<Part>,
    done: Vec<Stretch>,
}

impl StretchCounts {
    /// Creates the counts; `None` if the scenario has no stretches. `by` has the tiers, the cache and the appliances.
    pub(crate) fn new(model: &Model, by: Vec<String>) -> Option<Self> {
        let classes = model.classes.len();
        Some(Self {
            length_ns: model.stretch?.0,
            from_ns: 0,
            counts: false,
            counted_from_ns: model.warmup.0,
            names: model.classes.iter().map(|c| c.name.clone()).collect(),
            parts: vec![Part::new(by.len()); classes],
            counted: vec![Part::new(by.len()); classes],
            by,
            done: vec![],
        })
    }

    /// Sets whether later requests are in the measured time.
    pub(crate) fn count(&mut self, counts: bool) {
        self.counts = counts;
    }

    /// Adds the requests of a class that completed in a window.
    pub(crate) fn add(&mut self, class: usize, latencies: &Histogram) {
        self.parts[class].latencies.merge(latencies);
        if self.counts {
            self.counted[class].latencies.merge(latencies);
        }
    }

    /// Adds the requests of a class that a tier served in the window.
    pub(crate) fn add_answered(&mut self, class: usize, tier: usize, ios: u64) {
        self.parts[class].answered[tier] += ios;
        if self.counts {
            self.counted[class].answered[tier] += ios;
        }
    }

    /// Returns true if a stretch ends at this time.
    pub(crate) fn ends_at(&self, now_ns: u64) -> bool {
        now_ns.is_multiple_of(self.length_ns)
    }

    /// Ends the stretch. `priorities` has the mean cache priority of each class.
    pub(crate) fn end(&mut self, now_ns: u64, priorities: &[Option<f64>]) {
        let stretch = self.stretch(&self.parts, (self.from_ns, now_ns), priorities);
        self.done.push(stretch);
        self.from_ns = now_ns;
        let tiers = self.by.len();
        self.parts.fill(Part::new(tiers));
    }

    pub(crate) fn finish(mut self, end_ns: u64, priorities: &[Option<f64>]) -> Stretches {
        if end_ns > self.from_ns {
            self.end(end_ns, priorities);
        }
        let span = (self.counted_from_ns.min(end_ns), end_ns);
        Stretches {
            counted: self.stretch(&self.counted, span, priorities),
            each: self.done,
        }
    }

    fn stretch(
        &self,
        parts: &[Part],
        (from_ns, to_ns): (u64, u64),
        priorities: &[Option<f64>],
    ) -> Stretch {
        let mut total = Part::new(self.by.len());
        parts.iter().for_each(|p| total.merge(p));
        let classes = self.names.iter().zip(parts).zip(priorities);
        let classes = classes.map(|((name, part), priority)| self.group(name, part, *priority));
        Stretch {
            from_s: Nanos(from_ns).as_secs_f64(),
            to_s: Nanos(to_ns).as_secs_f64(),
            classes: classes.collect(),
            total: self.group("total", &total, None),
        }
    }

    fn group(&self, name: &str, part: &Part, priority_percent: Option<f64>) -> StretchGroup {
        let latencies = &part.latencies;
        let ios = latencies.count();
        let of = |us: f64| (ios > 0).then_some(us);
        let quantile = |q| of(latencies.quantile_ns(q) as f64 * 1e-3);
        let answered = self.by.iter().zip(&part.answered);
        StretchGroup {
            name: name.into(),
            ios,
            mean_us: of(latencies.sum_ns() as f64 / ios as f64 * 1e-3),
            trimmed_us: of(trimmed_ns(latencies) * 1e-3),
            p50_us: quantile(0.5),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            answered: answered
                .map(|(by, ios)| ServedRequests {
                    by: by.clone(),
                    ios: *ios,
                })
                .collect(),
            priority_percent,
        }
    }
}

/// Returns the mean latency without the slowest requests.
fn trimmed_ns(latencies: &Histogram) -> f64 {
    let counted = ((1.0 - TRIMMED) * latencies.count() as f64).ceil() as u64;
    let (mut left, mut sum) = (counted, 0.0);
    for (bucket, n) in latencies.buckets() {
        let taken = n.min(left);
        left -= taken;
        sum += taken as f64 * bucket_value_ns(bucket) as f64;
    }
    sum / counted.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trimmed_mean_excludes_the_slowest_requests() {
        let mut latencies = Histogram::default();
        assert_eq!(trimmed_ns(&latencies), 0.0);
        for i in 0..100 {
            latencies.record(if i >= 95 { 1_000_000_000 } else { 1_000_000 });
        }
        let trimmed = trimmed_ns(&latencies);
        assert!((trimmed * 1e-6 - 1.0).abs() < 0.05, "{trimmed}");
        assert!(latencies.sum_ns() as f64 / 100.0 > 50e6);
    }
}
