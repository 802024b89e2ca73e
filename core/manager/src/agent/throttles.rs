//! Temporary throttles of volumes: orders are compared with the state of the array, so the agent needs no memory of its actions.

use std::collections::{BTreeMap, BTreeSet};

use super::{Agent, AgentAction, Snapshot};
use crate::limited::TimedThrottle;
use crate::wire::ThrottleOrder;

/// Difference below which two ends are equal, since messages take time. For short throttles it is a quarter of the time left.
const SAME_END_NS: u64 = 5_000_000_000;

/// Time after which a failed action is retried; it doubles with each attempt.
const AGAIN_NS: u64 = 10_000_000_000;
const AGAIN_MAX_NS: u64 = 600_000_000_000;

/// Ordered throttles.
#[derive(Debug, Default)]
pub(super) struct Throttles {
    /// Orders; none before the first reply of the controller, when existing throttles may still be ordered.
    wanted: Option<BTreeMap<String, TimedThrottle>>,
    /// Last attempt, by volume.
    tried: BTreeMap<String, ThrottleAttempt>,
    /// Volumes that were throttled at any time of the window.
    in_window: BTreeSet<String>,
}

/// Attempt whose effect is not visible yet.
#[derive(Debug)]
struct ThrottleAttempt {
    at_ns: u64,
    apart_ns: u64,
    wanted: Option<TimedThrottle>,
    /// Cause of the failure, if known.
    why: Option<String>,
}

/// Returns true if two throttles are equal within the delays of messages.
fn is_same(now_ns: u64, one: Option<&TimedThrottle>, other: Option<&TimedThrottle>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            let apart_ns = one.until_ns.abs_diff(other.until_ns);
            let left_ns = one.until_ns.saturating_sub(now_ns);
            one.is_to_the_same(other) && apart_ns < SAME_END_NS.min(left_ns / 4)
        }
        _ => false,
    }
}

/// Returns true if two throttles have equal limits, regardless of their ends.
fn is_renewed(one: Option<TimedThrottle>, other: Option<TimedThrottle>) -> bool {
    one.zip(other)
        .is_some_and(|(one, other)| one.is_to_the_same(&other))
}

impl Throttles {
    /// Updates the orders from the reply to a message that was sent at `sent_ns`. Durations count from that time: the reply may have
    /// been delayed, and a throttle must not outlast its lease.
    pub(super) fn wanted(&mut self, sent_ns: u64, orders: Vec<ThrottleOrder>) {
        let wanted = orders.into_iter();
        let wanted = wanted.map(|o| (o.volume, TimedThrottle::of(o.throttle, sent_ns)));
        self.wanted = Some(wanted.collect());
    }

    /// Ends a window. Returns the volumes that were throttled in only a part of it.
    pub(super) fn end_window(&mut self, snapshot: &Snapshot) -> BTreeSet<String> {
        let mut partly = std::mem::take(&mut self.in_window);
        for v in snapshot.volumes.iter().filter(|v| v.throttle.is_some()) {
            partly.remove(&v.name);
        }
        partly
    }

    /// Time until the next throttle ends, nanoseconds.
    pub(super) fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let wanted = self.wanted.iter().flat_map(BTreeMap::values);
        wanted
            .filter_map(|w| w.left(now_ns))
            .map(|t| t.lasting_ns)
            .min()
    }
}

impl Agent {
    /// Sets throttles that are ordered, and removes others. Without a controller they end at their time.
    pub(super) fn look_after_throttles(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let limited = snapshot.volumes.iter().filter(|v| v.throttle.is_some());
        let limited = limited.map(|v| v.name.clone());
        self.throttles.in_window.extend(limited);
        let leased = now_ns < self.orders_until_ns();
        let Some(wanted) = self.throttles.wanted.as_ref().filter(|_| leased) else {
            return;
        };
        let tried = &mut self.throttles.tried;
        tried.retain(|name, _| snapshot.volumes.iter().any(|v| v.name == *name));
        for v in &snapshot.volumes {
            let ordered = wanted.get(&v.name).copied();
            let ordered = ordered.filter(|o| o.left(now_ns).is_some());
            let in_force = v.throttle.map(|t| TimedThrottle::of(t, now_ns));
            if is_same(now_ns, ordered.as_ref(), in_force.as_ref()) {
                tried.remove(&v.name);
                continue;
            }
            let same = |before: &ThrottleAttempt| {
                // A renewed order that was refused is probably refused again.
                let renewed = before.why.is_some() && is_renewed(before.wanted, ordered);
                renewed || is_same(now_ns, before.wanted.as_ref(), ordered.as_ref())
            };
            let before = tried.get_mut(&v.name).filter(|t| same(t));
            match before {
                Some(before) if now_ns.saturating_sub(before.at_ns) < before.apart_ns => continue,
                Some(before) => {
                    before.at_ns = now_ns;
                    before.apart_ns = (2 * before.apart_ns).min(AGAIN_MAX_NS);
                }
                None => {
                    let first = ThrottleAttempt {
                        at_ns: now_ns,
                        apart_ns: AGAIN_NS,
                        wanted: ordered,
                        why: None,
                    };
                    tried.insert(v.name.clone(), first);
                }
            }
            self.actions.push_back(AgentAction::Throttle {
                volume: v.name.clone(),
                to: ordered.and_then(|o| o.left(now_ns)),
            });
        }
    }

    /// Records a failed action; operators get a warning for each cause once per order.
    pub(super) fn not_limited(&mut self, volume: &str, why: String) {
        let tried = self.throttles.tried.get_mut(volume);
        if let Some(tried) = tried.filter(|t| t.why.as_ref() != Some(&why)) {
            tried.why = Some(why.clone());
            self.add_warning(format!("the throttle of {volume} is not as ordered: {why}"));
        }
    }
}
