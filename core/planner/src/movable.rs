//! Units that a strategy moves one by one: extents if they are known, else whole volumes.
//!
//! Units have dense numbers, volume after volume, so one rule serves both. A unit has its tier, its bytes and its requests
//! of the last monitor epoch. `arrange` chooses devices, order and pace of moves.

use std::collections::{BTreeMap, BTreeSet};

use model::{Effect, ExtentRanges, Facts, Goal, Reason};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, TierId, VolumeId};

use algo::HeatCounters;

use crate::extents::layout::{Layout, View};
use crate::extents::{ExtentNo, ExtentReason};
use crate::ledger::{room, tier_now};
use crate::{Context, Draft, ExtentWish, SpaceLimit, Wish};

/// Unit of moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MoveUnit {
    /// Extents of volumes that may be split; whole volumes if no extents are known.
    #[default]
    Extents,
    /// Whole volumes.
    Volumes,
}

/// An extent or a volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MovableUnit {
    pub volume: VolumeId,
    /// Tier of the unit; `None` for an extent that was never written.
    pub tier: Option<TierId>,
    pub bytes: Bytes,
    /// Requests since the last facts; `None` if unknown.
    pub requests: Option<u32>,
    /// True if the unit must not move now.
    pub stays: bool,
}

/// All units, by number.
pub(crate) struct Movables {
    pub all: Vec<MovableUnit>,
    /// Number of the first extent of each volume whose extents are placed individually; empty for whole volumes.
    first: BTreeMap<VolumeId, u32>,
    pub layout: Layout,
}

impl Movables {
    pub(crate) fn new(context: &Context<'_>, unit: MoveUnit) -> Self {
        let view = match unit {
            MoveUnit::Extents => View::new(context),
            MoveUnit::Volumes => None,
        };
        match view {
            Some(view) => Self::extents(context.facts, &view),
            None => Self::volumes(context),
        }
    }

    fn extents(facts: &Facts, view: &View) -> Self {
        let mut all = Vec::new();
        for placed in &view.volumes {
            let v = &facts.volumes[placed.volume.index()];
            let extents = v.extents.as_ref().expect("a placed volume has them");
            let known = extents.heat.as_ref().map(|_| 0);
            for (count, place) in extents.places.runs() {
                let unit = MovableUnit {
                    volume: placed.volume,
                    tier: place.map(|d| facts.topology.tier_of(d)),
                    bytes: view.extent,
                    requests: known,
                    stays: placed.frozen.is_some() || place.is_none(),
                };
                all.extend(std::iter::repeat_n(unit, *count as usize));
            }
        }
        for (no, requests) in view.heat(facts) {
            all[no as usize].requests = Some(requests);
        }
        Self {
            all,
            first: view.volumes.iter().map(|p| (p.volume, p.first)).collect(),
            layout: view.layout(facts),
        }
    }

    fn volumes(context: &Context<'_>) -> Self {
        let Context { facts, policy, .. } = *context;
        let movable = |(i, v): (usize, &model::VolumeFacts)| {
            let volume = VolumeId::from_index(i);
            let moving = facts.moves.iter().any(|m| m.volume == volume);
            let ios = v.measured.map(|m| m.ios().min(u64::from(u32::MAX)) as u32);
            MovableUnit {
                volume,
                tier: Some(tier_now(facts, volume)),
                bytes: v.taken(),
                requests: ios,
                stays: moving || ios.is_none() || policy.pin_of(volume).is_some(),
            }
        };
        Self {
            all: facts.volumes.iter().enumerate().map(movable).collect(),
            first: BTreeMap::new(),
            layout: Layout::whole(facts),
        }
    }

    pub(crate) fn are_extents(&self) -> bool {
        !self.first.is_empty()
    }

    /// Units with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &MovableUnit)> {
        (0..).zip(&self.all)
    }

    /// Returns the bytes that a tier accepts now: all free space of its devices, in whole extents.
    pub(crate) fn room(&self, context: &Context<'_>, tier: TierId) -> Bytes {
        let Context { facts, policy, .. } = *context;
        let grain = match self.are_extents() {
            true => self.all.first().map_or(1, |m| m.bytes.0.max(1)),
            false => 1,
        };
        let devices = facts.topology.tier(tier).devices.iter();
        let free = devices.map(|d| room(facts, policy, *d).max(0) as u64);
        Bytes(free.map(|bytes| bytes / grain * grain).sum())
    }

    /// Adds wishes that all volumes stay, for the report; extents need none.
    pub(crate) fn stay(&self, context: &Context<'_>, draft: &mut Draft) {
        if !self.are_extents() {
            let volumes = self.all.iter().map(|m| m.volume);
            draft.wishes.extend(volumes.map(|v| Wish::stay(context, v)));
        }
    }

    /// Adds wishes for the chosen units. `requests` returns the requests by which a unit was chosen, by number.
    pub(crate) fn wish(
        &self,
        context: &Context<'_>,
        chosen: &MoveSelection<'_>,
        requests: impl Fn(u32) -> u32,
        draft: &mut Draft,
    ) {
        if self.are_extents() {
            self.wish_extents(chosen, requests, draft);
            return;
        }
        for (no, movable) in self.numbered() {
            let mut wish = Wish::stay(context, movable.volume);
            let rate = f64::from(requests(no)) * chosen.per_s;
            wish.evidence.insert("iops".into(), rate);
            if let Some(tier) = chosen.to.get(&no) {
                wish.whole(context.facts);
                wish.tier = *tier;
                wish.reason = chosen.reason.clone();
                wish.effect = Effect {
                    iops_before: Some(rate),
                    ..Effect::default()
                };
                wish.value = rate;
                wish.makes_room = *tier == chosen.gives_way;
            }
            draft.wishes.push(wish);
        }
    }

    fn wish_extents(
        &self,
        chosen: &MoveSelection<'_>,
        requests: impl Fn(u32) -> u32,
        draft: &mut Draft,
    ) {
        let mut groups: BTreeMap<(VolumeId, TierId), BTreeSet<u32>> = BTreeMap::new();
        for (no, tier) in &chosen.to {
            let volume = self.all[*no as usize].volume;
            groups.entry((volume, *tier)).or_default().insert(*no);
        }
        for ((volume, tier), numbers) in groups {
            let first = self.first[&volume];
            let heat = numbers.iter().map(|no| (no - first, requests(*no)));
            draft.extent_wishes.push(ExtentWish {
                volume,
                extents: ExtentRanges::from_sorted(numbers.iter().map(|no| no - first)),
                tiers: vec![tier],
                goal: Goal::Latency,
                reason: ExtentReason::Other(chosen.reason.clone()),
                heat: heat.filter(|h| h.1 > 0).collect(),
                space: SpaceLimit::Physical,
                refused: None,
            });
        }
    }
}

/// Requests of each unit since the last migration epoch, by number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnitRequests {
    layout: Layout,
    counters: HeatCounters,
}

impl UnitRequests {
    /// Returns true before the first observation.
    pub(crate) fn is_new(&self) -> bool {
        self.layout.len() == 0
    }

    /// Adds the requests of the last facts. Returns the former number of each unit if the units have other numbers now.
    pub(crate) fn observe(&mut self, units: &Movables) -> Option<Vec<Option<ExtentNo>>> {
        let from = (self.layout != units.layout).then(|| units.layout.numbers_in(&self.layout));
        if let Some(from) = &from {
            self.counters = self.counters.renumbered(from);
            self.layout = units.layout.clone();
        }
        for (no, unit) in units.numbered() {
            if let Some(requests) = unit.requests.filter(|n| *n > 0) {
                self.counters.add(no, requests);
            }
        }
        from
    }

    pub(crate) fn count(&self, no: u32) -> u32 {
        self.counters.count(no)
    }

    pub(crate) fn reset(&mut self) {
        self.counters.reset();
    }
}

/// Units to move.
pub(crate) struct MoveSelection<'a> {
    /// Target tier of each unit, by number.
    pub to: BTreeMap<u32, TierId>,
    pub reason: &'a Reason,
    /// The tier to which units go only to make room.
    pub gives_way: TierId,
    /// Requests per second for each request that was counted.
    pub per_s: f64,
}
