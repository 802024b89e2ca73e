//! Exchange of hot extents for cool ones, tier by tier.

use std::collections::BTreeMap;

use model::{Goal, Rejection};
use units::{DeviceId, TierId};

use super::swap::{Exchange, Limit, Swap, evenly, in_turn, within_moves};
use super::{ExtentPlacement, Group, Unit};
use crate::SpaceLimit;
use crate::extents::layout::space_share;

/// Layout of a volume's extents on the devices of a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// On all devices, so their free space becomes equal.
    Evenly,
    /// On one device, as far as it has room.
    Together,
}

impl ExtentPlacement<'_, '_> {
    /// Exchanges extents that are on the wrong tier for their heat: by tier, from the top.
    pub(super) fn exchange(&mut self, groups: Vec<Group>) {
        let mut tiers: BTreeMap<TierId, (Vec<Group>, Vec<Group>)> = BTreeMap::new();
        for group in groups {
            let (here, to) = (self.tier_of(group.from), self.wishes[group.wish].tiers[0]);
            if to < here {
                tiers.entry(to).or_default().0.push(group);
            } else {
                tiers.entry(here).or_default().1.push(group);
            }
        }
        for (tier, (up, down)) in tiers {
            self.exchange_on(tier, up, down);
        }
    }

    /// Exchanges extents on a tier: the hottest of those that come first, the coldest of those that leave first.
    fn exchange_on(&mut self, tier: TierId, up: Vec<Group>, down: Vec<Group>) {
        let sizes = up.iter().chain(&down).map(|g| self.extent_bytes(g.wish));
        let Some(extent) = sizes.max() else { return };
        let down = self.placed_down(down, extent);
        let exchange = Exchange {
            up: i128::from(units(&up)),
            down: i128::from(units(&down)),
            room: self.room(tier, extent, self.space_limit(&up, &down)),
            budget: i128::from(self.budget() / extent),
        };
        let done = exchange.solve();
        let limit = match done.limit {
            Limit::None => Rejection::NoBeneficiary,
            Limit::Budget => self.over_budget(),
            Limit::Room => no_headroom(extent, &exchange, &done),
        };
        let (up, left) = cut(up, done.up as u64, |u| u32::MAX - u.ios);
        left.iter().for_each(|g| self.refuse(g, &limit));
        let (down, left) = cut(down, done.down as u64, |u| u.ios);
        let by = match done.limit {
            Limit::Budget => limit,
            // The extents that would have replaced them do not come.
            _ => Rejection::NoBeneficiary,
        };
        left.iter().for_each(|g| self.refuse(g, &by));
        self.make_moves(tier, extent, exchange.room, up, down);
    }

    /// Returns the space limit of these groups: wishes of one strategy have the same limit.
    fn space_limit(&self, up: &[Group], down: &[Group]) -> SpaceLimit {
        let first = up.iter().chain(down).next();
        first.map_or(SpaceLimit::Planned, |g| self.wishes[g.wish].space)
    }

    /// Returns the number of extents for which a tier has room, within its share of space for extents.
    fn room(&self, tier: TierId, extent: u64, limit: SpaceLimit) -> i128 {
        let topology = &self.arranger.facts.topology;
        let share = match limit {
            SpaceLimit::Planned => space_share(self.arranger.policy),
            SpaceLimit::Physical => self.arranger.policy.space_high.unwrap_or(1.0),
        };
        let kept = topology.capacity(tier).as_f64() * (1.0 - share);
        let devices = topology.tier(tier).devices.iter();
        let later: i128 = devices.map(|d| self.arranger.space[d.index()].later).sum();
        (later - kept as i128).div_euclid(i128::from(extent))
    }

    /// Gives each leaving extent a device with room now, the coldest first. Rejects extents without such a device.
    fn placed_down(&mut self, groups: Vec<Group>, extent: u64) -> Vec<Group> {
        let devices = 0..self.arranger.space.len();
        let room = |d| self.room_now(DeviceId::from_index(d), Goal::Latency);
        let mut room: Vec<i128> = devices.map(room).collect();
        let mut order: Vec<(u32, usize, u32)> = Vec::new();
        for (g, group) in groups.iter().enumerate() {
            order.extend(group.units.iter().map(|u| (u.ios, g, u.extent)));
        }
        order.sort_unstable();
        // Devices only fill up, so each group checks each device once.
        let devices: Vec<Vec<DeviceId>> = groups.iter().map(|g| self.devices_for(g.wish)).collect();
        let mut at = vec![0; groups.len()];
        let mut placed: Vec<Vec<Group>> = vec![vec![]; groups.len()];
        let mut left: Vec<Vec<Unit>> = vec![vec![]; groups.len()];
        for (ios, g, number) in order {
            let unit = Unit {
                extent: number,
                ios,
            };
            let full = |d: &DeviceId| room[d.index()] < i128::from(extent);
            while devices[g].get(at[g]).is_some_and(full) {
                at[g] += 1;
            }
            let Some(to) = devices[g].get(at[g]).copied() else {
                left[g].push(unit);
                continue;
            };
            room[to.index()] -= i128::from(extent);
            match placed[g].last_mut().filter(|p| p.to == Some(to)) {
                Some(part) => part.units.push(unit),
                None => placed[g].push(groups[g].part(Some(to), vec![unit])),
            }
        }
        for (group, units) in groups.iter().zip(left) {
            let by = self.no_device(group.wish, units.len());
            self.refuse(&group.part(None, units), &by);
        }
        placed.into_iter().flatten().collect()
    }

    /// Makes moves of the chosen extents, within the remaining number of moves.
    fn make_moves(
        &mut self,
        tier: TierId,
        extent: u64,
        room: i128,
        mut up: Vec<Group>,
        mut down: Vec<Group>,
    ) {
        let volume = |g: &Group| (self.wishes[g.wish].volume, g.from, g.to);
        up.sort_by_key(|g| (std::cmp::Reverse(g.ios()), volume(g)));
        down.sort_by_key(|g| (g.ios() * 1000 / g.units.len() as u64, volume(g)));
        let sizes = |groups: &[Group]| -> Vec<u64> {
            groups.iter().map(|g| g.units.len() as u64).collect()
        };
        let (come, go) = within_moves(&sizes(&up), &sizes(&down), room, self.moves_left());
        let by = self.out_of_moves();
        for (mut group, go) in down.into_iter().zip(go) {
            group.units.sort_by_key(|u| (u.ios, u.extent));
            let left = group.units.split_off(go as usize);
            self.refuse(&group.part(group.to, left), &by);
            let to = group.to.expect("a device was found for it");
            let units = std::mem::take(&mut group.units);
            self.accept(&group, to, units);
        }
        let groups = come.iter().filter(|n| **n > 0).count();
        let devices = self.arranger.facts.topology.tier(tier).devices.len();
        let spread = if groups * devices <= self.moves_left() {
            Spread::Evenly
        } else {
            Spread::Together
        };
        for (mut group, come) in up.into_iter().zip(come) {
            group.units.sort_by_key(|u| (u32::MAX - u.ios, u.extent));
            let left = group.units.split_off(come as usize);
            self.refuse(&group.part(None, left), &by);
            self.bring_up(tier, extent, spread, group);
        }
    }

    /// Brings extents of one volume to the devices of a tier.
    fn bring_up(&mut self, tier: TierId, extent: u64, spread: Spread, mut group: Group) {
        let room = |d: &DeviceId| {
            let later = self.arranger.space[d.index()].later;
            ((later.max(0) / i128::from(extent)) as u64, *d)
        };
        let (facts, volume) = (self.arranger.facts, self.wishes[group.wish].volume);
        let devices = facts.topology.tier(tier).devices.iter();
        let devices = devices.filter(|d| !facts.barred(volume, **d));
        let mut rooms: Vec<(u64, DeviceId)> = devices.map(room).collect();
        rooms.sort_by_key(|r| (std::cmp::Reverse(r.0), r.1));
        let free: Vec<u64> = rooms.iter().map(|r| r.0).collect();
        let wanted = group.units.len() as u64;
        let shares = match spread {
            Spread::Evenly => evenly(&free, wanted),
            Spread::Together => in_turn(&free, wanted),
        };
        // Neighbours stay together, so there are few ranges.
        group.units.sort_by_key(|u| u.extent);
        let mut units = std::mem::take(&mut group.units).into_iter();
        for ((_, to), share) in rooms.into_iter().zip(shares) {
            let part = units.by_ref().take(share as usize).collect();
            if self.moves_left() > 0 {
                self.accept(&group, to, part);
            } else {
                let by = self.out_of_moves();
                self.refuse(&group.part(None, part), &by);
            }
        }
        let left: Vec<Unit> = units.collect();
        let by = self.no_device(group.wish, left.len());
        self.refuse(&group.part(None, left), &by);
    }
}

fn units(groups: &[Group]) -> u64 {
    groups.iter().map(|g| g.units.len() as u64).sum()
}

fn no_headroom(extent: u64, exchange: &Exchange, done: &Swap) -> Rejection {
    let left = (exchange.room + done.down).max(0);
    Rejection::Headroom {
        resource: "space".into(),
        need: exchange.up as f64 * extent as f64,
        left: left as f64 * extent as f64,
    }
}

/// Returns the `most` extents of all groups that come first by `key`, and the rest.
fn cut(groups: Vec<Group>, most: u64, key: impl Fn(&Unit) -> u32) -> (Vec<Group>, Vec<Group>) {
    if units(&groups) <= most {
        return (groups, vec![]);
    }
    let mut order: Vec<(u32, usize, u32)> = Vec::new();
    for (g, group) in groups.iter().enumerate() {
        order.extend(group.units.iter().map(|u| (key(u), g, u.extent)));
    }
    let first_out = *order.select_nth_unstable(most as usize).1;
    let (mut taken, mut left) = (vec![], vec![]);
    for (g, group) in groups.into_iter().enumerate() {
        let inside = |u: &Unit| (key(u), g, u.extent) < first_out;
        let (in_units, out): (Vec<Unit>, Vec<Unit>) = group.units.iter().partition(|u| inside(u));
        for (part, list) in [(in_units, &mut taken), (out, &mut left)] {
            if !part.is_empty() {
                list.push(group.part(group.to, part));
            }
        }
    }
    (taken, left)
}
