//! Moves of extents: their choice, devices and order.
//!
//! Whole volumes are arranged first, with their share of budgets and space. Extents that leave a tier are arranged before
//! extents that come to it, and these wait only for the moves that free their space. Each volume and pair of devices has one
//! move, for any number of extents.

mod exchange;
mod swap;

use std::collections::BTreeMap;

use model::{Cost, Effect, ExtentFacts, ExtentOutcome, ExtentRanges, Goal, Move, Rejection, Terms};
use units::{Bytes, DeviceId, TierId, VolumeId};

use super::Arranger;
use crate::ExtentWish;
use crate::extents::layout::stays_whole;
use crate::ledger::move_failed;
use crate::rate::extents_bandwidth;

/// Extent to be moved.
#[derive(Debug, Clone, Copy)]
struct Unit {
    extent: u32,
    /// Requests.
    ios: u32,
}

/// Extents of one wish on one device.
#[derive(Debug, Clone)]
struct Group {
    wish: usize,
    from: DeviceId,
    /// Target device, once it is chosen.
    to: Option<DeviceId>,
    units: Vec<Unit>,
}

impl Group {
    /// Returns a group with these extents of the group.
    fn part(&self, to: Option<DeviceId>, units: Vec<Unit>) -> Self {
        Self { to, units, ..*self }
    }

    /// Returns the requests of all extents of the group.
    fn ios(&self) -> u64 {
        self.units.iter().map(|u| u64::from(u.ios)).sum()
    }
}

/// Outcomes of extents, by volume, source and target tier, and rejection.
type Rows = BTreeMap<(VolumeId, TierId, TierId, Option<String>), ExtentOutcome>;

/// Extents that may become moves.
struct ExtentPlacement<'a, 'b> {
    arranger: &'a mut Arranger<'b>,
    wishes: &'a [ExtentWish],
    rows: Rows,
}

/// Makes moves from wishes. Returns rows of all wishes for the report.
pub(super) fn place(
    arranger: &mut Arranger<'_>,
    wishes: &[ExtentWish],
) -> Vec<(VolumeId, ExtentOutcome)> {
    let rows = Rows::new();
    let mut placing = ExtentPlacement {
        arranger,
        wishes,
        rows,
    };
    let mut open = Vec::new();
    for (w, wish) in wishes.iter().enumerate() {
        let groups = placing.groups(w);
        match placing.refusal(wish) {
            Some(by) => groups.iter().for_each(|g| placing.refuse(g, &by)),
            None => open.extend(groups),
        }
    }
    let rank = |g: &Group| wishes[g.wish].goal;
    let (mut first, latency): (Vec<Group>, Vec<Group>) =
        open.into_iter().partition(|g| rank(g) < Goal::Latency);
    first.sort_by_key(rank);
    first.into_iter().for_each(|g| placing.at_once(g));
    placing.exchange(latency);
    let rows = placing.rows.into_iter();
    rows.map(|(key, row)| (key.0, row)).collect()
}

impl ExtentPlacement<'_, '_> {
    fn extents_of(&self, wish: usize) -> &ExtentFacts {
        let volume = self.wishes[wish].volume.index();
        let facts = self.arranger.facts.volumes[volume].extents.as_ref();
        facts.expect("only extents that are known are wished for")
    }

    fn tier_of(&self, device: DeviceId) -> TierId {
        self.arranger.facts.topology.tier_of(device)
    }

    /// Returns the extents of a wish that are not on their wanted tier, by device.
    fn groups(&self, wish: usize) -> Vec<Group> {
        let ExtentWish {
            tiers,
            heat,
            extents,
            ..
        } = &self.wishes[wish];
        let mut heat = heat.iter().peekable();
        let mut runs = self.extents_of(wish).places.runs().iter();
        let (mut end, mut place) = (0, None);
        let mut groups: Vec<Group> = Vec::new();
        for extent in extents.iter() {
            while extent >= end {
                let (count, device) = runs.next().expect("a volume has the extents wished for");
                (end, place) = (end + count, *device);
            }
            while heat.next_if(|h| h.0 < extent).is_some() {}
            let ios = heat.peek().filter(|h| h.0 == extent).map_or(0, |h| h.1);
            let Some(from) = place.filter(|d| self.tier_of(*d) != tiers[0]) else {
                continue;
            };
            let unit = Unit { extent, ios };
            match groups.iter_mut().find(|g| g.from == from) {
                Some(group) => group.units.push(unit),
                None => groups.push(Group {
                    wish,
                    from,
                    to: None,
                    units: vec![unit],
                }),
            }
        }
        groups
    }

    /// Returns the rejection of a wish that does not depend on room.
    fn refusal(&self, wish: &ExtentWish) -> Option<Rejection> {
        let Arranger {
            facts,
            policy,
            moves,
            ..
        } = &*self.arranger;
        if wish.refused.is_some() {
            return wish.refused.clone();
        }
        if facts.moves.iter().any(|m| m.volume == wish.volume) {
            return Some(Rejection::MoveUnderWay);
        }
        let moves_already = |m: &Move| m.volume == wish.volume;
        if moves.iter().any(moves_already) {
            return Some(Rejection::OtherMove);
        }
        let why = stays_whole(policy, wish.volume).filter(|_| wish.goal == Goal::Latency);
        if let Some(why) = why {
            return Some(Rejection::StaysWhole { why: why.into() });
        }
        let closed = wish.tiers.iter().all(|t| policy.takes_no_data(*t));
        if closed {
            return Some(Rejection::Cordoned);
        }
        let open = wish.tiers.iter().filter(|t| !policy.takes_no_data(**t));
        let devices = open.flat_map(|t| &facts.topology.tier(*t).devices);
        move_failed(facts, wish.volume, devices.copied())
    }

    /// Returns the bytes that count for one extent; the last extent of a volume may have fewer.
    fn extent_bytes(&self, wish: usize) -> u64 {
        self.extents_of(wish).extent.0
    }

    /// Returns the bytes that may still be moved.
    fn budget(&self) -> u64 {
        let Arranger { policy, bytes, .. } = &*self.arranger;
        let most = policy.budget.bytes_per_epoch;
        most.map_or(u64::MAX, |most| most.saturating_sub(*bytes).0)
    }

    fn over_budget(&self) -> Rejection {
        let most = self.arranger.policy.budget.bytes_per_epoch;
        let most = most.expect("without a budget nothing is over it");
        Rejection::Budget {
            limit: format!("{most} to move"),
        }
    }

    fn moves_left(&self) -> usize {
        let most = self.arranger.policy.budget.moves_per_epoch as usize;
        most.saturating_sub(self.arranger.moves.len())
    }

    fn out_of_moves(&self) -> Rejection {
        Rejection::Budget {
            limit: format!("{} moves", self.arranger.policy.budget.moves_per_epoch),
        }
    }

    /// Returns the space of a device that is free now and may be used for this goal.
    fn room_now(&self, device: DeviceId, goal: Goal) -> i128 {
        self.arranger.space[device.index()].now - self.arranger.kept_free(device, goal)
    }

    /// Returns the devices for extents of a wish, in order: by tier, and in each tier the device with most of the volume
    /// first.
    fn devices_for(&self, wish: usize) -> Vec<DeviceId> {
        let ExtentWish {
            goal,
            volume,
            tiers,
            ..
        } = &self.wishes[wish];
        let open = |t: &&TierId| !self.arranger.policy.takes_no_data(**t);
        let mut devices = Vec::new();
        for tier in tiers.iter().filter(open) {
            let mut own = self.arranger.facts.topology.tier(*tier).devices.clone();
            own.retain(|d| !self.arranger.facts.barred(*volume, *d));
            own.sort_by_key(|d| {
                let held = self.arranger.footprint.on(*volume, *d);
                (std::cmp::Reverse((held, self.room_now(*d, *goal))), *d)
            });
            devices.extend(own);
        }
        devices
    }

    fn no_device(&self, wish: usize, extents: usize) -> Rejection {
        let goal = self.wishes[wish].goal;
        let devices = self.devices_for(wish);
        let room = devices.into_iter().map(|d| self.room_now(d, goal));
        Rejection::NoDevice {
            need: Bytes(extents as u64 * self.extent_bytes(wish)),
            most_free: Bytes(room.max().unwrap_or(0).max(0) as u64),
        }
    }

    /// Moves extents that must leave for another reason than their heat: as many as fit now.
    fn at_once(&mut self, group: Group) {
        let extent = self.extent_bytes(group.wish);
        let goal = self.wishes[group.wish].goal;
        let mut rest = group.units.clone();
        let mut by = None;
        for to in self.devices_for(group.wish) {
            if self.moves_left() == 0 {
                by = Some(self.out_of_moves());
                break;
            }
            let room = (self.room_now(to, goal).max(0) as u64 / extent) as usize;
            let budget = (self.budget() / extent) as usize;
            if budget < rest.len().min(room) {
                by = Some(self.over_budget());
            }
            let stay = rest.split_off(room.min(budget).min(rest.len()));
            self.accept(&group, to, std::mem::replace(&mut rest, stay));
        }
        let by = by.unwrap_or_else(|| self.no_device(group.wish, rest.len()));
        self.refuse(&group.part(None, rest), &by);
    }

    /// Makes one move of some extents of a group; none without extents.
    fn accept(&mut self, group: &Group, to: DeviceId, mut units: Vec<Unit>) {
        if units.is_empty() {
            return;
        }
        units.sort_by_key(|u| u.extent);
        let group = group.part(Some(to), units);
        let extents = ExtentRanges::from_sorted(group.units.iter().map(|u| u.extent));
        let of = self.extents_of(group.wish).extent;
        let wish = &self.wishes[group.wish];
        let arranger = &mut *self.arranger;
        let volume = &arranger.facts.volumes[wish.volume.index()];
        let size = extents.bytes(volume.size, of);
        let size = size.expect("a volume has the extents wished for");
        let bytes = i128::from(size.0);
        let after = arranger.waits_for(to, bytes);
        let bandwidth = extents_bandwidth(arranger.facts, arranger.policy, group.from, to);
        let requests = group.ios();
        let position = arranger.moves.len() as u32;
        arranger.moves.push(Move {
            volume: wish.volume,
            from: group.from,
            to,
            extents: Some(extents),
            size,
            after,
            bandwidth,
            terms: Terms {
                goal: wish.goal,
                reason: wish.reason.of(requests),
                effect: Effect::default(),
                cost: Cost {
                    bytes: size,
                    duration: bandwidth.time_for(size),
                },
            },
        });
        arranger.bytes += size;
        arranger.space[to.index()].now -= bytes;
        arranger.space[to.index()].later -= bytes;
        arranger.space[group.from.index()].later += bytes;
        arranger.space[group.from.index()].leaving.push(position);
        self.row(&group, None);
    }

    fn refuse(&mut self, group: &Group, by: &Rejection) {
        self.row(group, Some(by));
    }

    /// Records the outcome of extents for the report.
    fn row(&mut self, group: &Group, by: Option<&Rejection>) {
        if group.units.is_empty() {
            return;
        }
        let wish = &self.wishes[group.wish];
        let here = self.tier_of(group.from);
        let to = match (by, group.to) {
            (None, Some(device)) => self.tier_of(device),
            _ => wish.tiers[0],
        };
        let extent = self.extents_of(group.wish).extent;
        let size = self.arranger.facts.volumes[wish.volume.index()].size;
        let bytes = |u: &Unit| {
            let begin = u64::from(u.extent) * extent.0;
            size.0.saturating_sub(begin).min(extent.0)
        };
        let topology = &self.arranger.facts.topology;
        let name = |tier: TierId| topology.tier(tier).name.clone();
        let key = (wish.volume, here, to, by.map(ToString::to_string));
        let row = self.rows.entry(key).or_insert_with(|| ExtentOutcome {
            from: name(here),
            to: name(to),
            extents: 0,
            bytes: Bytes::ZERO,
            requests: 0,
            reason: wish.reason().to_string(),
            refused: by.cloned(),
        });
        row.extents += group.units.len() as u32;
        row.bytes += Bytes(group.units.iter().map(bytes).sum());
        row.requests += group.ios();
    }
}
