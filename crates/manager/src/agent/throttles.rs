//! Limits of volumes for a time: what is ordered is held against what the array says, so an agent need not remember what it has done.

use std::collections::BTreeMap;

use super::{Agent, Deed, Snapshot};
use crate::wire::{Throttle, ThrottleOrder};

/// Ends that differ by less are the same: messages take their time.
const SAME_END_NS: u64 = 5_000_000_000;

/// What did not come about is ordered again after this time.
const AGAIN_NS: u64 = 10_000_000_000;

/// Limits that are ordered.
#[derive(Debug, Default)]
pub(super) struct Throttles {
    /// None until the controller has answered: what is in force may well be wanted.
    wanted: Option<BTreeMap<String, Wanted>>,
    /// When a volume's limits were last ordered, and which.
    tried: BTreeMap<String, (u64, Option<Wanted>)>,
}

/// A limit, and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    throttle: Throttle,
    until_ns: u64,
}

impl Wanted {
    fn of(throttle: Throttle, now_ns: u64) -> Self {
        Self {
            throttle,
            until_ns: now_ns.saturating_add(throttle.lasting_ns),
        }
    }

    /// The rest of it; none if it is over.
    fn left(&self, now_ns: u64) -> Option<Throttle> {
        let lasting_ns = self.until_ns.checked_sub(now_ns).filter(|left| *left > 0)?;
        Some(Throttle {
            lasting_ns,
            ..self.throttle
        })
    }

    fn is(&self, other: &Wanted) -> bool {
        let limits = |w: &Wanted| (w.throttle.iops, w.throttle.bandwidth_bytes_per_s);
        limits(self) == limits(other) && self.until_ns.abs_diff(other.until_ns) < SAME_END_NS
    }
}

impl Throttles {
    /// The controller has said which.
    pub(super) fn wanted(&mut self, now_ns: u64, orders: Vec<ThrottleOrder>) {
        let wanted = orders.into_iter();
        let wanted = wanted.map(|o| (o.volume, Wanted::of(o.throttle, now_ns)));
        self.wanted = Some(wanted.collect());
    }
}

impl Throttles {
    /// Time until the next one is over.
    pub(super) fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let wanted = self.wanted.iter().flat_map(BTreeMap::values);
        wanted
            .filter_map(|w| w.left(now_ns))
            .map(|t| t.lasting_ns)
            .min()
    }
}

impl Agent {
    /// Has limits begun that are ordered, and ended that are not. Without a controller they end when their time is over.
    pub(super) fn look_after_throttles(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let leased = now_ns < self.lease_until_ns;
        let Some(wanted) = self.throttles.wanted.as_ref().filter(|_| leased) else {
            return;
        };
        let tried = &mut self.throttles.tried;
        tried.retain(|name, _| snapshot.volumes.iter().any(|v| v.name == *name));
        for v in &snapshot.volumes {
            let ordered = wanted.get(&v.name).copied();
            let ordered = ordered.filter(|o| o.left(now_ns).is_some());
            let in_force = v.throttle.map(|t| Wanted::of(t, now_ns));
            let as_ordered = match (&ordered, &in_force) {
                (None, None) => true,
                (Some(ordered), Some(in_force)) => ordered.is(in_force),
                _ => false,
            };
            if as_ordered {
                tried.remove(&v.name);
                continue;
            }
            let same = |before: &Option<Wanted>| match (before, &ordered) {
                (None, None) => true,
                (Some(before), Some(ordered)) => before.is(ordered),
                _ => false,
            };
            let just_now = tried
                .get(&v.name)
                .is_some_and(|(at, before)| same(before) && now_ns.saturating_sub(*at) < AGAIN_NS);
            if !just_now {
                tried.insert(v.name.clone(), (now_ns, ordered));
                self.deeds.push_back(Deed::Throttle {
                    volume: v.name.clone(),
                    to: ordered.and_then(|o| o.left(now_ns)),
                });
            }
        }
    }
}
