//! What a guest's requests use of its objective, as they are answered.
//!
//! A percentile is followed, not counted: each request moves the estimate up a little if it was above it, and down by so much less
//! that the two are in balance where the percentile is (frugal streaming: Ma, Muthukrishnan, Sandler, 2013). It takes some dozens of late
//! requests to rise tenfold and some thousands to fall again, is off by a tenth or so, and costs a multiplication. The mean is that of
//! the recent requests.

use model::{Objective, SloStatistic};

use crate::slack::Slack;

/// How far one request moves the estimate, at most.
const STEP: f64 = 0.05;

/// Weight of one request in the mean of the recent ones.
const RECENT: f64 = 1.0 / 64.0;

/// The latency that an objective is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct JudgedLatency {
    target: Option<Objective>,
    now_ns: f64,
    /// Requests since the last look.
    requests: u64,
}

impl JudgedLatency {
    /// The objective is this from now on.
    pub fn hold_to(&mut self, target: Option<Objective>) {
        if self.target.map(|t| t.statistic) != target.map(|t| t.statistic) {
            *self = Self::default();
        }
        self.target = target;
    }

    /// A request took so long.
    #[inline]
    pub fn observe(&mut self, latency_ns: u64) {
        let Some(target) = self.target else { return };
        let latency = latency_ns as f64;
        self.requests += 1;
        if self.now_ns == 0.0 {
            self.now_ns = latency;
            return;
        }
        let quantile = match target.statistic {
            SloStatistic::Mean => {
                self.now_ns += (latency - self.now_ns) * RECENT;
                return;
            }
            SloStatistic::P95 => 0.95,
            SloStatistic::P99 => 0.99,
        };
        self.now_ns *= match latency > self.now_ns {
            true => 1.0 + STEP * quantile,
            false => 1.0 - STEP * (1.0 - quantile),
        };
    }

    /// What was used of the objective since the last look; `oldest_ns` is the age of a request that waits for longer than
    /// usual, and counts like one that took so long.
    pub fn look(&mut self, oldest_ns: Option<u64>) -> Slack {
        let Some(target) = self.target else {
            return Slack::Unbound;
        };
        let answered = std::mem::take(&mut self.requests) > 0;
        let answered_ns = answered.then_some(self.now_ns);
        let waits_ns = oldest_ns.map(|ns| ns as f64);
        let worst_ns = answered_ns.into_iter().chain(waits_ns).reduce(f64::max);
        let used = worst_ns.map(|ns| Slack::Used((ns / target.latency.0.max(1) as f64) as f32));
        used.unwrap_or(Slack::Unbound)
    }
}

#[cfg(test)]
mod tests {
    use units::Nanos;

    use super::*;

    fn judged(statistic: SloStatistic) -> JudgedLatency {
        let mut judged = JudgedLatency::default();
        let latency = Nanos(1_000_000);
        judged.hold_to(Some(Objective { statistic, latency }));
        judged
    }

    fn used(judged: &mut JudgedLatency) -> f32 {
        match judged.look(None) {
            Slack::Used(ratio) => ratio,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_percentile_is_followed_to_where_it_is() {
        // Latencies of 1 to 2000 µs, evenly, in an order that jumps.
        let latencies = (1..200_000u64).map(|i| (i * 7919 % 2000 + 1) * 1000);
        for (statistic, expected) in [
            (SloStatistic::Mean, 1.0),
            (SloStatistic::P95, 1.9),
            (SloStatistic::P99, 1.98),
        ] {
            let mut judged = judged(statistic);
            latencies.clone().for_each(|ns| judged.observe(ns));
            let ratio = used(&mut judged);
            assert!(
                (ratio / expected - 1.0).abs() < 0.15,
                "{statistic:?}: {ratio}"
            );
        }
    }

    #[test]
    fn it_tells_soon_of_what_became_slow() {
        let mut judged = judged(SloStatistic::P99);
        (0..10_000).for_each(|_| judged.observe(100_000));
        assert!(used(&mut judged) < 0.2);
        (0..60).for_each(|_| judged.observe(3_000_000));
        assert!(used(&mut judged) > 1.0);
    }

    #[test]
    fn who_asks_for_nothing_misses_nothing_and_what_hangs_counts() {
        let mut judged = judged(SloStatistic::P95);
        assert_eq!(judged.look(None), Slack::Unbound);
        judged.observe(2_000_000);
        assert_eq!(used(&mut judged), 2.0);
        assert_eq!(judged.look(None), Slack::Unbound);
        assert_eq!(judged.look(Some(5_000_000)), Slack::Used(5.0));
        judged.hold_to(None);
        judged.observe(2_000_000);
        assert_eq!(judged.look(Some(5_000_000)), Slack::Unbound);
    }
}
