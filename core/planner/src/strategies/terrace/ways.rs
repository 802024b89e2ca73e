//! Steps towards a better placement: a single move, or a move with another one that makes room for it.

use units::{Nanos, VolumeId};

use super::crowd::Crowd;
use super::placement::Placement;
use super::rates::Part;
use super::search::{Search, UnitMove};
use super::seen::{MoveCache, Mover};
use crate::Context;

/// Largest number of moves that are examined for one step, those with the highest possible value, and largest number of
/// these for which room is made.
const LOOKED_AT_MAX: usize = 64;
const PAIRS_MAX: usize = 12;
/// Number of devices of a tier that a volume is tried on: this many of the least used ones with room, and as many without.
const DEVICES_MAX: usize = 2;
/// Largest number of volumes of a device that are tried to make room, and of pieces of rests.
const EVICTED_MAX: usize = 12;
const RESTS_MAX: usize = 4;
/// Number of volumes of a device that are sorted first.
const FIRST_SORTED: usize = 64;
/// Number of devices on which a volume that makes room is tried.
const ELSEWHERE_MAX: usize = 2;
/// Increase of violations per second on a device up to which no volume has to leave for a new one.
const COST_MIN: f64 = 0.02;

/// Criterion by which steps are compared.
pub(super) trait Goal {
    /// Returns the devices that a volume may go to.
    fn reach(&self, v: usize) -> Vec<usize>;
    /// Returns an upper bound on the value of any move of a volume. `relief` is the decrease of its device's cost without
    /// it.
    fn most(&self, v: usize, relief: f64) -> f64;
    /// Returns an upper bound on the value of moves that reduce violations by `less` per second.
    fn at_most(&self, moves: &[UnitMove], less: f64) -> f64;
    /// Returns the value of moves; `None` if they must not be made.
    fn worth(&self, moves: &[UnitMove]) -> Option<f64>;
}

/// Step with the highest value so far.
#[derive(Default)]
struct Best {
    worth: f64,
    moves: Vec<UnitMove>,
}

impl Best {
    fn look_at(&mut self, goal: &impl Goal, moves: &[UnitMove]) {
        if let Some(worth) = goal.worth(moves)
            && worth > self.worth
        {
            self.worth = worth;
            self.moves = moves.to_vec();
        }
    }
}

/// Takes the first mover from the lists of all devices.
fn next(left: &mut [&[Mover]]) -> Option<Mover> {
    let heads = left.iter_mut().filter(|movers| !movers.is_empty());
    let list = heads.min_by(|a, b| a[0].order(&b[0]))?;
    let (first, rest) = list.split_first()?;
    *list = rest;
    Some(*first)
}

impl Search<'_> {
    /// Returns the step with the highest value; `None` if no step has one. Movers whose bound is below the best value are
    /// skipped.
    pub(super) fn step<T>(
        &self,
        at: &Placement,
        seen: &MoveCache<T>,
        goal: &impl Goal,
    ) -> Option<Vec<UnitMove>> {
        let mover = |v: usize| {
            let relief = self.relief(at, seen, v);
            let most = goal.most(v, relief);
            Mover {
                most,
                relief,
                volume: v,
            }
        };
        let open = |v: &usize| !self.done[*v] && !self.view.is_rest(*v);
        let movers = |d: usize| {
            let volumes = at.on[d].volumes.iter().copied().filter(open);
            volumes.map(mover).filter(|m| m.most > 0.0).collect()
        };
        let mut left: Vec<&[Mover]> = (0..at.on.len())
            .map(|d| seen.movers(d, || movers(d)))
            .collect();
        let mut best = Best::default();
        let mut looked_at = 0;
        let mut crowded = vec![];
        while let Some(Mover {
            most,
            relief,
            volume: v,
        }) = next(&mut left)
        {
            if most <= best.worth || looked_at >= LOOKED_AT_MAX {
                break;
            }
            if self.done[v] {
                continue; // done since the list was made
            }
            for to in goal.reach(v) {
                let first = UnitMove::to(v, to);
                // Without room, or if it would crowd others, it may still come if another volume leaves.
                let less = relief - self.alone(v, to);
                let alone = goal.at_most(&[first], less);
                let fits = at.free[to] >= self.forecast.size(v);
                if fits && goal.at_most(&[first], relief - self.own(at, seen, v, to)) > best.worth {
                    looked_at += 1;
                    best.look_at(goal, &[first]);
                }
                if alone > 0.0 && (!fits || self.crowds(at, first)) {
                    looked_at += usize::from(!fits);
                    crowded.push((alone, less, first));
                }
            }
        }
        if self.config.has(Part::Room) {
            crowded.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (_, less, first) in crowded.into_iter().take(PAIRS_MAX) {
                for second in self.makes_room(at, seen, goal, first) {
                    let (u, elsewhere) = (second.volume, second.to.index());
                    let other = self.relief(at, seen, u) - self.alone(u, elsewhere);
                    let moves = [first, second];
                    if goal.at_most(&moves, less + other) > best.worth {
                        best.look_at(goal, &moves);
                    }
                }
            }
        }
        Some(best.moves).filter(|m| !m.is_empty())
    }

    /// Returns the decrease of the cost of a volume's device without it.
    fn relief<T>(&self, at: &Placement, seen: &MoveCache<T>, v: usize) -> f64 {
        seen.relief(v, || {
            let from = at.of[v];
            let left = at.on[from].changed(&self.forecast, from, &[v], &[], 0.0);
            self.mean(&at.on[from].now) - self.mean(&left)
        })
    }

    /// Returns the cost of a volume itself on a device next to the volumes there.
    fn own<T>(&self, at: &Placement, seen: &MoveCache<T>, v: usize, d: usize) -> f64 {
        seen.own(v, d, || self.mean(&at.on[d].own(&self.forecast, d, v)))
    }

    /// Returns the cost of the volume alone on the device, which is the lowest possible.
    fn alone(&self, v: usize, d: usize) -> f64 {
        self.mean(&Crowd::default().own(&self.forecast, d, v))
    }

    /// Returns true if the volume would cause violations on the device, to others or itself.
    fn crowds(&self, at: &Placement, first: UnitMove) -> bool {
        let to = first.to.index();
        let after = self.mean(&at.after(&self.forecast, to, &[first]));
        after - self.mean(&at.on[to].now) > COST_MIN
    }

    /// Returns moves that make room for one: of volumes of little weight on its target, to any device with room.
    fn makes_room<T>(
        &self,
        at: &Placement,
        seen: &MoveCache<T>,
        goal: &impl Goal,
        first: UnitMove,
    ) -> Vec<UnitMove> {
        let (v, to) = (first.volume, first.to.index());
        let size = |v: usize| self.forecast.size(v);
        // If the target has room, a volume leaves to reduce its load.
        let crowds = at.free[to] >= size(v);
        let stays = |u: &usize| {
            let same = self.view.volume(*u) == self.view.volume(v);
            let of_use = !same && (!crowds || !self.view.is_rest(*u));
            !self.done[*u] && of_use && at.free[to] + size(*u) >= size(v)
        };
        let mut others: Vec<usize> = at.on[to].volumes.iter().copied().filter(stays).collect();
        let weight = |u: &usize| self.forecast.class(*u).weight;
        let order = |a: &usize, b: &usize| {
            let by_weight = weight(a).total_cmp(&weight(b));
            by_weight.then(size(*a).cmp(&size(*b))).then(a.cmp(b))
        };
        // Usually only the first few are used, so only these are sorted.
        let first = others.len().min(FIRST_SORTED);
        if first < others.len() {
            others.select_nth_unstable_by(first, order);
        }
        let last = others.split_off(first);
        let mut found = vec![];
        let (mut rests, mut volumes) = (0, 0);
        for mut others in [others, last] {
            let full = |u: usize, rests: usize, volumes: usize| match self.view.is_rest(u) {
                true => rests == RESTS_MAX,
                false => volumes == EVICTED_MAX,
            };
            others.retain(|u| !full(*u, rests, volumes));
            others.sort_unstable_by(order);
            for u in others {
                if full(u, rests, volumes) {
                    continue;
                }
                let reach = goal.reach(u);
                if reach.is_empty() {
                    continue;
                }
                match self.view.is_rest(u) {
                    true => rests += 1,
                    false => volumes += 1,
                }
                let fits = |other: &usize| {
                    let left = at.free[*other] + if *other == at.of[v] { size(v) } else { 0 };
                    // One of the two must have room before the other has left.
                    let begins = at.free[to] >= size(v) || at.free[*other] >= size(u);
                    *other != to && left >= size(u) && begins
                };
                let reach = reach.into_iter().filter(fits);
                let mut elsewhere: Vec<(f64, usize)> =
                    reach.map(|d| (self.own(at, seen, u, d), d)).collect();
                elsewhere.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                let there = elsewhere.into_iter().take(ELSEWHERE_MAX);
                found.extend(there.map(|(_, other)| UnitMove::to(u, other)));
            }
        }
        found
    }

    /// Returns devices to try for a volume: the least used ones of every tier, with room and without, and its present
    /// device.
    pub(super) fn reach(&self, at: &Placement, v: usize) -> Vec<usize> {
        let size = self.forecast.size(v);
        let origin = self.at.of[v];
        let mut reach = vec![];
        for tier in &self.context.facts.topology.tiers {
            let devices = tier.devices.iter().map(|d| d.index());
            let open = |d: &usize| *d != at.of[v] && *d != origin && self.may(v, *d);
            let (roomy, full): (Vec<usize>, Vec<usize>) =
                devices.filter(open).partition(|d| at.free[*d] >= size);
            for mut of in [roomy, full] {
                let used = |d: &usize| at.on[*d].mean.share;
                of.sort_by(|a, b| used(a).total_cmp(&used(b)).then(a.cmp(b)));
                reach.extend(of.into_iter().take(DEVICES_MAX));
            }
        }
        if origin != at.of[v] {
            reach.push(origin);
        }
        reach
    }

    /// Returns true if the operator's rules permit the volume on the device.
    pub(super) fn permitted(&self, v: usize, d: usize) -> bool {
        let Context { facts, policy, .. } = *self.context;
        let tier = facts.topology.devices[d].tier;
        let pinned = policy.pin_of(VolumeId::from_index(v));
        !policy.takes_no_data(tier) && pinned.is_none_or(|of| of == tier)
    }

    /// Returns true if a volume may go to a device, by rules and by the rest time after its last move.
    pub(super) fn may(&self, v: usize, d: usize) -> bool {
        let device = &self.context.facts.topology.devices[d];
        if !self.permitted(v, d) {
            return false;
        }
        match self.histories[v].sent() {
            Some((at, from)) if self.rests(v).is_some() => {
                let news = self.view.is_rest(v) || self.changed_since(v, at.0);
                device.name != from && news
            }
            _ => true,
        }
    }

    /// Returns the remaining rest time of a volume after its last move.
    pub(super) fn rests(&self, v: usize) -> Option<Nanos> {
        let Context { facts, policy, .. } = *self.context;
        let epochs = self.config.rates.rest_epochs;
        let rest = Nanos((policy.epochs.migration.0 as f64 * epochs) as u64);
        // A volume that made room did not move for its own sake, so it need not rest.
        let (at, _) = self.histories[v]
            .sent()
            .filter(|_| !self.histories[v].made_room())?;
        let rested = facts.at.saturating_sub(at);
        (rested < rest).then(|| rest - rested)
    }

    /// Returns true if its load has changed since this time.
    fn changed_since(&self, v: usize, at_ns: u64) -> bool {
        let Context { facts, policy, .. } = *self.context;
        let monitor = policy.epochs.monitor.0.max(1);
        let ago = (facts.at.0 - at_ns) / monitor;
        let since = facts.epoch.saturating_sub(ago);
        self.histories[v].changed().is_some_and(|c| c > since)
    }
}
