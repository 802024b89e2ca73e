//! Sums, differences and statistics of measured loads.

use std::borrow::Cow;

use algo::objective::{self, ObjectiveVerdict};
use algo::{bucket_quantile_ns, bucket_value_ns, buckets_since, merged_buckets};
use model::{Objective, SloStatistic};
use units::Nanos;

use crate::wire::{DeviceIoCounts, DevicesLoad, Load, LoadOf};

/// Factor for the detection of a growing queue: the mean number of requests in flight exceeds this
/// multiple of the number by Little's law, plus one.
const GROWING: f64 = 2.0;

impl DeviceIoCounts {
    /// Returns the increase since an earlier reading of the same counters, or `None` if a counter
    /// decreased.
    pub fn since(&self, earlier: &DeviceIoCounts) -> Option<DeviceIoCounts> {
        Some(DeviceIoCounts {
            reads: self.reads.checked_sub(earlier.reads)?,
            writes: self.writes.checked_sub(earlier.writes)?,
            read_bytes: self.read_bytes.checked_sub(earlier.read_bytes)?,
            write_bytes: self.write_bytes.checked_sub(earlier.write_bytes)?,
            busy_ns: match (self.busy_ns, earlier.busy_ns) {
                (Some(now), Some(old)) => Some(now.checked_sub(old)?),
                _ => None,
            },
        })
    }
}

impl LoadOf {
    /// Returns the increase since an earlier reading of the same counters, or `None` if a counter
    /// decreased.
    pub fn since(&self, earlier: &LoadOf) -> Option<LoadOf> {
        Some(LoadOf {
            ios: self.ios.checked_sub(earlier.ios)?,
            bytes: self.bytes.checked_sub(earlier.bytes)?,
            sum_ns: self.sum_ns.checked_sub(earlier.sum_ns)?,
            held_ns: self.held_ns.checked_sub(earlier.held_ns)?,
            buckets: buckets_since(&self.buckets, &earlier.buckets)?,
        })
    }

    /// Adds another load.
    pub fn add(&mut self, other: &LoadOf) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.sum_ns += other.sum_ns;
        self.held_ns += other.held_ns;
        self.buckets = merged_buckets(&self.buckets, &other.buckets);
    }

    /// Returns the mean latency without injected delay, microseconds; `None` without requests.
    pub fn mean_us(&self) -> Option<f64> {
        let own_ns = self.sum_ns.saturating_sub(self.held_ns);
        (self.ios > 0).then(|| own_ns as f64 / self.ios as f64 / 1e3)
    }

    /// Returns the mean latency that the guest sees, microseconds; `None` without requests.
    pub fn guest_mean_us(&self) -> Option<f64> {
        (self.ios > 0).then(|| self.sum_ns as f64 / self.ios as f64 / 1e3)
    }

    /// Returns the latency that a share `q` of the requests does not exceed, as the guest sees it,
    /// nanoseconds; `None` without requests.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        bucket_quantile_ns(&self.buckets, q)
    }
}

impl Load {
    /// Returns the increase since an earlier reading of the same counters, or `None` if a counter
    /// decreased. Outstanding requests are those of this reading.
    pub fn since(&self, earlier: &Load) -> Option<Load> {
        Some(Load {
            reads: self.reads.since(&earlier.reads)?,
            writes: self.writes.since(&earlier.writes)?,
            errors: self.errors.checked_sub(earlier.errors)?,
            depth_ns: self.depth_ns.checked_sub(earlier.depth_ns)?,
            waiting: self.waiting.clone(),
            devices: match (&self.devices, &earlier.devices) {
                (Some(now), Some(old)) => Some(DevicesLoad {
                    reads: now.reads.since(&old.reads)?,
                    writes: now.writes.since(&old.writes)?,
                    waited_ios: now.waited_ios.checked_sub(old.waited_ios)?,
                    waited_ns: now.waited_ns.checked_sub(old.waited_ns)?,
                }),
                (now, _) => now.clone(),
            },
        })
    }

    /// Returns the load of the devices, without requests that a cache in front of them served.
    pub fn on_devices(&self) -> Cow<'_, Load> {
        let Some(DevicesLoad { reads, writes, .. }) = &self.devices else {
            return Cow::Borrowed(self);
        };
        let answered_ns = self.reads.sum_ns + self.writes.sum_ns;
        let queued_ns = self.depth_ns.saturating_sub(answered_ns);
        Cow::Owned(Load {
            reads: reads.clone(),
            writes: writes.clone(),
            errors: self.errors,
            depth_ns: reads.sum_ns + writes.sum_ns + queued_ns,
            waiting: self.waiting.clone(),
            devices: None,
        })
    }

    /// Returns the objective that remains for the devices behind a cache. For a mean, it is the
    /// mean of the missing requests with which the mean of all requests meets the objective. For a
    /// percentile, it is the limit with which enough of the missing requests are in time. `None` if
    /// the cache alone meets the objective.
    pub fn objective_of_devices(&self, target: Objective) -> Option<Objective> {
        let (Some(devices), Some(cached)) = (&self.devices, self.share_cached()) else {
            return Some(target);
        };
        let q = match target.statistic {
            SloStatistic::Mean => {
                let answered_ns = self.reads.sum_ns + self.writes.sum_ns;
                let hits_ns = answered_ns.saturating_sub(devices.waited_ns);
                let all_ns = target.latency.0 as f64 * self.ios() as f64;
                let each_ns = (all_ns - hits_ns as f64) / devices.waited_ios as f64;
                // If the hits alone exceed the mean, the devices get the minimum. Without misses
                // nothing remains to be met.
                let latency = Nanos(each_ns.clamp(1.0, u64::MAX as f64) as u64);
                return (devices.waited_ios > 0).then_some(Objective { latency, ..target });
            }
            SloStatistic::P95 => 0.95,
            SloStatistic::P99 => 0.99,
        };
        // Share of the missing requests that must be in time. The present distribution of their
        // latencies converts this share to the percentile of the objective.
        let of_devices = (q - cached) / (1.0 - cached);
        if cached >= q {
            return None;
        }
        let violated = self.on_devices();
        let scale = violated
            .quantile_ns(q)
            .zip(violated.quantile_ns(of_devices))
            .map_or(1.0, |(at_q, needed)| at_q as f64 / needed.max(1) as f64);
        let latency = Nanos((target.latency.0 as f64 * scale).min(u64::MAX as f64) as u64);
        Some(Objective { latency, ..target })
    }

    /// Returns the share of requests that a cache served, 0 to 1; `None` without a cache or without
    /// requests.
    pub fn share_cached(&self) -> Option<f64> {
        let devices = self.devices.as_ref()?;
        let waited = devices.waited_ios as f64 / self.ios() as f64;
        (self.ios() > 0).then(|| (1.0 - waited).max(0.0))
    }

    /// Adds a later load. Outstanding requests are those of the later load.
    pub fn add(&mut self, other: &Load) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.errors += other.errors;
        self.depth_ns += other.depth_ns;
        self.waiting.clone_from(&other.waiting);
        if let Some(more) = &other.devices {
            let devices = self.devices.get_or_insert_default();
            devices.reads.add(&more.reads);
            devices.writes.add(&more.writes);
            devices.waited_ios += more.waited_ios;
            devices.waited_ns += more.waited_ns;
        }
    }

    /// Returns the number of requests.
    pub fn ios(&self) -> u64 {
        self.reads.ios + self.writes.ios
    }

    /// Returns the mean number of requests in flight during the measured time, without injected
    /// delay. By Little's law, it follows rate and latency. If a queue grows, the completed
    /// requests are not representative, and the measured mean is used.
    pub fn in_flight(&self, measured_ns: u64) -> f64 {
        let held_ns = self.reads.held_ns + self.writes.held_ns;
        let answered_ns = self.reads.sum_ns + self.writes.sum_ns;
        let mean = |ns: u64| ns.saturating_sub(held_ns) as f64 / measured_ns as f64;
        let (answered, in_flight) = (mean(answered_ns), mean(self.depth_ns));
        match in_flight > GROWING * answered + 1.0 {
            true => in_flight,
            false => answered,
        }
    }

    /// Returns the mean latency of all requests without injected delay, microseconds; `None`
    /// without requests.
    pub fn mean_us(&self) -> Option<f64> {
        let own_ns = (self.reads.sum_ns + self.writes.sum_ns)
            .saturating_sub(self.reads.held_ns + self.writes.held_ns);
        (self.ios() > 0).then(|| own_ns as f64 / self.ios() as f64 / 1e3)
    }

    /// Returns the mean latency of all completed requests that the guest sees, microseconds; `None`
    /// without requests.
    pub fn guest_mean_us(&self) -> Option<f64> {
        let sum_ns = self.reads.sum_ns + self.writes.sum_ns;
        (self.ios() > 0).then(|| sum_ns as f64 / self.ios() as f64 / 1e3)
    }

    /// Returns the mean injected delay per request, microseconds; 0 without requests.
    pub fn held_mean_us(&self) -> f64 {
        let held_ns = self.reads.held_ns + self.writes.held_ns;
        held_ns as f64 / self.ios().max(1) as f64 / 1e3
    }

    /// Returns the latency that a share `q` of all requests does not exceed, as the guest sees it,
    /// nanoseconds; `None` without requests.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        bucket_quantile_ns(
            &merged_buckets(&self.reads.buckets, &self.writes.buckets),
            q,
        )
    }

    /// Returns true if the distribution of latencies is known. Otherwise only the sum is known, and
    /// only the mean can be computed.
    fn has_percentiles(&self) -> bool {
        let known = |l: &LoadOf| l.ios == 0 || !l.buckets.is_empty();
        known(&self.reads) && known(&self.writes)
    }

    /// Compares the window with an objective; by the mean if only the mean is known.
    pub fn against(&self, target: Objective) -> ObjectiveVerdict {
        let sum_ns = u128::from(self.reads.sum_ns) + u128::from(self.writes.sum_ns);
        if !self.has_percentiles() {
            let mean = (sum_ns / u128::from(self.ios())) as u64;
            let target = Objective {
                statistic: SloStatistic::Mean,
                ..target
            };
            let all = [(algo::bucket_of(mean) as u16, self.ios())];
            return objective::judge(target, &all, sum_ns, &self.waiting);
        }
        let answered = merged_buckets(&self.reads.buckets, &self.writes.buckets);
        objective::judge(target, &answered, sum_ns, &self.waiting)
    }

    /// Returns the number of outstanding requests at the end of the window.
    pub fn waiting(&self) -> u64 {
        self.waiting.iter().map(|b| b.1).sum()
    }

    /// Returns the age of the oldest outstanding request at the end of the window, nanoseconds.
    pub fn oldest_waiting_ns(&self) -> Option<u64> {
        let oldest = self.waiting.last()?;
        Some(bucket_value_ns(usize::from(oldest.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::SloStatistic;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> LoadOf {
        let mut load = LoadOf::default();
        for v in values {
            load.add(&LoadOf {
                ios: 1,
                bytes: 4096,
                sum_ns: *v,
                held_ns: 0,
                buckets: vec![(algo::bucket_of(*v) as u16, 1)],
            });
        }
        load
    }

    proptest! {
        #[test]
        fn sums_and_differences_are_inverse(a in prop::collection::vec(0u64..1 << 40, 0..60), b in prop::collection::vec(0u64..1 << 40, 0..60)) {
            let (first, second) = (of(&a), of(&b));
            let mut both = first.clone();
            both.add(&second);
            prop_assert_eq!(both.since(&first), Some(second.clone()));
            prop_assert_eq!(both.since(&second), Some(first.clone()));
            if !b.is_empty() {
                prop_assert_eq!(first.since(&both), None);
            }
            let mut all = algo::Histogram::default();
            a.iter().chain(&b).for_each(|v| all.record(*v));
            for q in [0.5, 0.95, 0.99] {
                let (ours, theirs) = (both.quantile_ns(q).unwrap_or(0), all.quantile_ns(q));
                // The histogram knows the maximum and limits its percentiles to it.
                prop_assert!(ours >= theirs && ours as f64 <= theirs as f64 * 1.016 + 128.0, "{ours} {theirs}");
            }
        }
    }

    #[test]
    fn mean_excludes_injected_latency_and_violations_include_it() {
        let mut load = Load {
            reads: of(&[1_000_000, 3_000_000]),
            ..Load::default()
        };
        load.reads.held_ns = 1_000_000;
        assert_eq!(load.mean_us(), Some(1500.0));
        assert_eq!(load.reads.guest_mean_us(), Some(2000.0));
        assert_eq!(load.held_mean_us(), 500.0);
        let mean = target(SloStatistic::Mean, 1_000_000);
        let judged = load.against(mean);
        assert_eq!(
            (judged.statistic_ns, judged.violated),
            (Some(2_000_000), true)
        );
        let nothing = Load::default().against(target(SloStatistic::P99, 1));
        assert_eq!((nothing.statistic_ns, nothing.violated), (None, false));
    }

    #[test]
    fn throttled_requests_are_not_in_flight_and_a_growing_queue_is() {
        let mut load = Load {
            reads: of(&[400_000_000, 600_000_000]),
            depth_ns: 1_100_000_000,
            ..Load::default()
        };
        assert_eq!(load.in_flight(1_000_000_000), 1.0);
        load.reads.held_ns = 500_000_000;
        assert_eq!(load.in_flight(1_000_000_000), 0.5);
        // None of the new requests has completed yet.
        load.depth_ns = 9_500_000_000;
        assert_eq!(load.in_flight(1_000_000_000), 9.0);
    }

    #[test]
    fn objective_of_devices_behind_a_cache_accounts_for_hits() {
        // Three hits of 1 ms, and one miss of 9 ms that reads twice the size.
        let load = Load {
            reads: of(&[1_000_000, 1_000_000, 1_000_000, 9_000_000]),
            devices: Some(DevicesLoad {
                reads: LoadOf {
                    bytes: 8192,
                    ..of(&[9_000_000])
                },
                waited_ios: 1,
                waited_ns: 9_000_000,
                ..DevicesLoad::default()
            }),
            ..Load::default()
        };
        assert_eq!(load.share_cached(), Some(0.75));
        assert_eq!(load.on_devices().reads.bytes, 8192);
        assert_eq!(load.on_devices().mean_us(), Some(9000.0));
        let left = |statistic, ns| load.objective_of_devices(target(statistic, ns));
        // With one miss in four requests, a mean of 3 ms leaves 9 ms for the miss.
        let mean = left(SloStatistic::Mean, 3_000_000).unwrap();
        assert_eq!(mean.latency, Nanos(9_000_000));
        // All latencies of the devices are equal, so all percentiles are.
        let p99 = target(SloStatistic::P99, 5);
        assert_eq!(load.objective_of_devices(p99), Some(p99));
        // 90 % hits. Of 100 misses, the 51st is ten times as fast as the 96th. Half of them in time
        // is enough for 95 % of all requests.
        let spread: Vec<u64> = (0..100)
            .map(|i| if i < 60 { 1 << 20 } else { 10 << 20 })
            .collect();
        let hits = vec![1; 900];
        let mut all = of(&hits);
        all.add(&of(&spread));
        let load = Load {
            reads: all,
            devices: Some(DevicesLoad {
                reads: of(&spread),
                waited_ios: 100,
                waited_ns: spread.iter().sum(),
                ..DevicesLoad::default()
            }),
            ..Load::default()
        };
        let p95 = load
            .objective_of_devices(target(SloStatistic::P95, 2_000_000))
            .unwrap();
        assert!(
            (p95.latency.0 as f64 / 2e7 - 1.0).abs() < 0.02,
            "{:?}",
            p95.latency
        );
        let all_hit = Load {
            reads: of(&[1_000_000]),
            devices: Some(DevicesLoad::default()),
            ..Load::default()
        };
        assert_eq!(all_hit.objective_of_devices(p99), None);
        // Twice the load, minus the load.
        let mut twice = load.clone();
        twice.add(&load);
        assert_eq!(twice.since(&load), Some(load.clone()));
        assert_eq!(Load::default().share_cached(), None);
    }

    fn target(statistic: SloStatistic, ns: u64) -> Objective {
        Objective {
            statistic,
            latency: Nanos(ns),
        }
    }

    #[test]
    fn hanging_device_violates_its_objective() {
        let waiting = |ns: u64| Load {
            waiting: vec![(algo::bucket_of(ns) as u16, 3)],
            ..Load::default()
        };
        for statistic in [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99] {
            let target = target(statistic, 2_000_000);
            let judged = waiting(9_000_000_000).against(target);
            assert!(judged.violated, "{statistic:?}");
            assert_eq!(judged.waiting_late, 3);
            let at_least = judged.statistic_ns.unwrap() as f64;
            assert!((at_least / 9e9 - 1.0).abs() < 0.01, "{at_least}");
            assert!(
                !waiting(1_000_000).against(target).violated,
                "these requests can still be in time"
            );
        }
    }

    proptest! {
        #[test]
        fn shown_statistic_agrees_with_the_violation(a in prop::collection::vec(0u64..1 << 24, 0..60), b in prop::collection::vec(0u64..1 << 24, 0..60), waiting in prop::collection::vec(0u64..1 << 26, 0..9), limit in 1u64..1 << 24) {
            let load = Load {
                reads: of(&a),
                writes: of(&b),
                waiting: of(&waiting).buckets,
                ..Load::default()
            };
            for statistic in [SloStatistic::Mean, SloStatistic::P95, SloStatistic::P99] {
                let judged = load.against(target(statistic, limit));
                // The mean is shown in whole nanoseconds.
                let above = judged.statistic_ns.is_some_and(|ns| ns > limit || (statistic == SloStatistic::Mean && ns == limit && judged.violated));
                prop_assert_eq!(judged.violated, above);
            }
        }
    }
}
