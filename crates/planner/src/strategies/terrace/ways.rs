//! Ways to move volumes that may be worth it: by themselves, or with one that makes room.

use units::DeviceId;

use super::rates::Part;
use super::search::{Moved, Offer, Search};
use crate::Context;

/// Volumes of a device that are tried to make room with.
const EVICTED_MAX: usize = 12;
/// Moves that are looked at closely for one bundle, of those that promise most; and of those, ones that room is made for.
const LOOKED_AT_MAX: usize = 64;
const PAIRS_MAX: usize = 12;
/// Devices that one who makes room is tried on.
const ELSEWHERE_MAX: usize = 2;
/// A cost of a device's volumes below which nothing is looked for, and harm to others below which nobody has to go for it.
const COST_MIN: f64 = 0.02;

impl Search<'_> {
    /// The bundle that is worth most per second of copying, of those that promise most at first sight.
    pub(super) fn best(&self) -> Option<Offer> {
        let mut promising: Vec<(f64, Moved)> = vec![];
        for from in 0..self.on.len() {
            if self.now_mean(from) < COST_MIN {
                continue;
            }
            for v in self.on[from].volumes.iter().copied() {
                if self.done[v] {
                    continue;
                }
                let most = self.seen.relief(v, || {
                    let left = self.on[from].changed(&self.forecast, from, &[v], &[], 0.0);
                    self.now_mean(from) - self.mean(&left)
                });
                if most < COST_MIN {
                    continue;
                }
                for to in (0..self.on.len()).filter(|to| *to != from && self.may(v, *to)) {
                    let promise = most - self.own_cost(v, to);
                    if promise > COST_MIN {
                        let to = DeviceId::from_index(to);
                        let seconds = self.planned_s(v, to) + self.config.rates.copy_s;
                        promising.push((promise / seconds, Moved { volume: v, to }));
                    }
                }
            }
        }
        promising.sort_by(|a, b| {
            let of = |m: &Moved| (m.volume, m.to);
            b.0.total_cmp(&a.0).then_with(|| of(&a.1).cmp(&of(&b.1)))
        });
        let mut best: Option<Offer> = None;
        let mut offer = |moves: Vec<Moved>| {
            if let Some(b) = self.seen.offer(self, moves)
                && best
                    .as_ref()
                    .is_none_or(|a| b.worth(&self.config.rates) > a.worth(&self.config.rates))
            {
                best = Some(b);
            }
        };
        let pairs_max = match self.config.has(Part::Room) {
            true => PAIRS_MAX,
            false => 0,
        };
        let mut pairs = 0;
        for (_, first) in promising.into_iter().take(LOOKED_AT_MAX) {
            let (v, to) = (first.volume, first.to.index());
            if self.free[to] >= self.size(v) {
                offer(vec![first]);
                if !self.crowded(first) {
                    continue;
                }
            }
            if pairs < pairs_max {
                pairs += 1;
                for second in self.makes_room(first) {
                    offer(vec![first, second]);
                }
            }
        }
        best
    }

    /// What a volume would cost by itself on a device beside those that are there.
    fn own_cost(&self, v: usize, d: usize) -> f64 {
        let cost = || self.mean(&self.on[d].own(&self.forecast, d, v));
        self.seen.own(v, d, cost)
    }

    /// Whether those on a device, or the volume itself, would miss something if it came.
    fn crowded(&self, first: Moved) -> bool {
        let to = first.to.index();
        let after = self.mean(&self.after(to, &[first]));
        after - self.now_mean(to) > COST_MIN
    }

    /// Moves that make room for one: of volumes of little weight on its target, wherever there is room for them.
    fn makes_room(&self, first: Moved) -> Vec<Moved> {
        let (v, to) = (first.volume, first.to.index());
        let (from, size) = (self.place[v], self.size(v));
        let stays = |u: &usize| !self.done[*u] && self.free[to] + self.size(*u) >= size;
        let mut others: Vec<usize> = self.on[to].volumes.iter().copied().filter(stays).collect();
        let weight = |u: &usize| self.forecast.class(*u).weight;
        others.sort_by(|a, b| {
            let by_size = || self.size(*a).cmp(&self.size(*b));
            weight(a)
                .total_cmp(&weight(b))
                .then_with(by_size)
                .then(a.cmp(b))
        });
        let mut found = vec![];
        for u in others.into_iter().take(EVICTED_MAX) {
            let mut elsewhere: Vec<(f64, usize)> = (0..self.free.len())
                .filter(|d| *d != to && self.may(u, *d))
                .filter(|other| {
                    let left = self.free[*other] + if *other == from { size } else { 0 };
                    // One of the two has to find room before the other has left.
                    let begins = self.free[to] >= size || self.free[*other] >= self.size(u);
                    left >= self.size(u) && begins
                })
                .map(|other| (self.own_cost(u, other), other))
                .collect();
            elsewhere.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let there = elsewhere.into_iter().take(ELSEWHERE_MAX);
            found.extend(there.map(|(_, other)| Moved {
                volume: u,
                to: DeviceId::from_index(other),
            }));
        }
        found
    }

    /// Whether a volume may go to a device: rules, and rest after its last move.
    fn may(&self, v: usize, d: usize) -> bool {
        let Context { facts, policy, .. } = *self.context;
        let device = &facts.topology.devices[d];
        if policy.takes_no_data(device.tier) {
            return false;
        }
        let epochs = self.config.rates.rest_epochs;
        let rest = (policy.epochs.migration.0 as f64 * epochs) as u64;
        match self.histories[v].sent() {
            Some((at, from)) if facts.at.saturating_sub(at).0 < rest => {
                device.name != from && self.changed_since(v, at.0)
            }
            _ => true,
        }
    }

    /// Whether its load has changed since.
    fn changed_since(&self, v: usize, at_ns: u64) -> bool {
        let Context { facts, policy, .. } = *self.context;
        let monitor = policy.epochs.monitor.0.max(1);
        let ago = (facts.at.0 - at_ns) / monitor;
        let since = facts.epoch.saturating_sub(ago);
        self.histories[v].changed().is_some_and(|c| c > since)
    }
}
