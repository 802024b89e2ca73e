//! Use of a guest's latency objective, by the rule for windows ([`algo::objective::judge`]): over requests that were
//! answered in the last seconds, and requests that wait.
//!
//! ```text
//!        ├─── last turn ────┼──── this turn ─ ─ ┤        range of a look: between one turn and two
//!   ─────────────────────────────────────────────────▶ time
//!                                        look ▲
//! ```

use algo::{Histogram, merged_buckets, objective};
use model::Objective;
use volume::Slack;

/// Length of a turn: long enough that a guest with one request per second always has one in range.
const TURN_NS: u64 = 2_000_000_000;

/// Latencies that the objective applies to.
#[derive(Debug, Default)]
pub(super) struct JudgedLatency {
    /// Recorded only for volumes with an objective, because histograms take memory.
    held_to: Option<Box<TrackedObjective>>,
}

#[derive(Debug)]
struct TrackedObjective {
    target: Objective,
    /// Latencies of this turn, and of the one before it.
    turns: [Histogram; 2],
    /// Start of this turn.
    since_ns: u64,
}

impl JudgedLatency {
    /// Sets the objective.
    pub(super) fn hold_to(&mut self, now_ns: u64, target: Option<Objective>) {
        match (target, &mut self.held_to) {
            (None, held_to) => *held_to = None,
            (Some(target), Some(held_to)) => held_to.target = target,
            (Some(target), None) => {
                self.held_to = Some(Box::new(TrackedObjective {
                    target,
                    turns: Default::default(),
                    since_ns: now_ns,
                }));
            }
        }
    }

    /// Records the latency of a request.
    #[inline]
    pub(super) fn observe(&mut self, latency_ns: u64) {
        if let Some(held_to) = &mut self.held_to {
            held_to.turns[0].record(latency_ns);
        }
    }

    /// Returns the use of the objective. Requests without an answer count with their ages. Without requests in range, the
    /// result is unbound.
    pub(super) fn look(&mut self, now_ns: u64, ages_ns: impl Iterator<Item = u64>) -> Slack {
        let Some(held_to) = &mut self.held_to else {
            return Slack::Unbound;
        };
        let passed = now_ns.saturating_sub(held_to.since_ns) / TURN_NS;
        if passed > 0 {
            held_to.turns.swap(0, 1);
            held_to.turns[0].clear();
            held_to.since_ns = now_ns;
        }
        if passed > 1 {
            held_to.turns[1].clear();
        }
        let mut waiting: Vec<_> = ages_ns.map(|ns| (algo::bucket_of(ns) as u16, 1)).collect();
        waiting.sort_unstable();
        let [now, before] = &held_to.turns;
        let answered = merged_buckets(&now.sparse(), &before.sparse());
        let sum_ns = now.sum_ns() + before.sum_ns();
        let judged = objective::judge(held_to.target, &answered, sum_ns, &waiting);
        let target_ns = held_to.target.latency.0.max(1);
        let used = |ns: u64| Slack::Used((ns as f64 / target_ns as f64) as f32);
        judged.statistic_ns.map_or(Slack::Unbound, used)
    }
}

#[cfg(test)]
mod tests {
    use model::SloStatistic;
    use units::Nanos;

    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    fn judged(statistic: SloStatistic) -> JudgedLatency {
        let mut judged = JudgedLatency::default();
        let latency = Nanos(MS);
        judged.hold_to(0, Some(Objective { statistic, latency }));
        judged
    }

    fn used(judged: &mut JudgedLatency, now_ns: u64, waiting: &[u64]) -> f32 {
        match judged.look(now_ns, waiting.iter().copied()) {
            Slack::Used(ratio) => ratio,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn evaluated_latency_is_the_statistic_of_completed_requests() {
        for (statistic, expected) in [
            (SloStatistic::Mean, 1.0),
            (SloStatistic::P95, 1.9),
            (SloStatistic::P99, 1.98),
        ] {
            let mut judged = judged(statistic);
            (1..=2000).for_each(|us| judged.observe(us * 1000));
            let ratio = used(&mut judged, SECOND, &[]);
            assert!((ratio - expected).abs() < 0.02, "{statistic:?}: {ratio}");
        }
    }

    #[test]
    fn latency_increase_is_detected_at_once_and_decrease_within_seconds() {
        let mut judged = judged(SloStatistic::P99);
        (0..5_000).for_each(|_| judged.observe(MS / 10));
        assert!(used(&mut judged, SECOND, &[]) < 0.2);
        (0..60).for_each(|_| judged.observe(3 * MS));
        assert!(used(&mut judged, SECOND, &[]) > 1.0);
        let fast = (1..50).find(|tenth| {
            judged.observe(MS / 10);
            used(&mut judged, SECOND + tenth * SECOND / 10, &[]) < 0.2
        });
        assert!(
            (10..=40).contains(&fast.expect("within seconds")),
            "{fast:?}"
        );
    }

    #[test]
    fn sparse_slow_requests_are_remembered() {
        let mut judged = judged(SloStatistic::P95);
        for tenth in 0..100 {
            if tenth % 10 == 0 {
                judged.observe(10 * MS);
            }
            assert!(used(&mut judged, tenth * SECOND / 10, &[]) > 9.0, "{tenth}");
        }
        assert_eq!(judged.look(20 * SECOND, [].into_iter()), Slack::Unbound);
    }

    #[test]
    fn idle_guest_has_no_violation_and_a_hanging_request_counts() {
        let mut judged = judged(SloStatistic::P95);
        assert_eq!(judged.look(SECOND, [].into_iter()), Slack::Unbound);
        assert!((used(&mut judged, SECOND, &[5 * MS]) - 5.0).abs() < 0.05);
        assert_eq!(judged.look(SECOND, [MS / 2].into_iter()), Slack::Unbound);
        judged.hold_to(SECOND, None);
        judged.observe(2 * MS);
        assert_eq!(judged.look(SECOND, [5 * MS].into_iter()), Slack::Unbound);
    }
}
