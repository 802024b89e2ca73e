//! Set of extents of a decision and their known properties: from facts by volume to dense numbers and back.

use std::collections::BTreeMap;

use model::{Facts, Policy, Rejection, VolumeFacts};
use serde::{Deserialize, Serialize};
use units::{Bytes, TierId, VolumeId};

use super::{ExtentNo, FastSet};
use crate::Context;

/// Volumes by name with their number of extents, in the order of the extent numbers. Stored between decisions, because ids
/// are valid for one inventory only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout(Vec<(String, u32)>);

impl Layout {
    /// Returns the layout of whole volumes, with one number each.
    pub(crate) fn whole(facts: &Facts) -> Self {
        Self(facts.volumes.iter().map(|v| (v.name.clone(), 1)).collect())
    }

    /// Number of extents.
    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(|v| v.1).sum()
    }

    /// Returns, for each extent of this layout, its number in an older one.
    pub(crate) fn numbers_in(&self, old: &Layout) -> Vec<Option<ExtentNo>> {
        let mut first = 0;
        let mut known = BTreeMap::new();
        for (name, count) in &old.0 {
            known.insert(name.as_str(), (first, *count));
            first += count;
        }
        let mut from = Vec::with_capacity(self.len() as usize);
        for (name, count) in &self.0 {
            let (first, before) = known.get(name.as_str()).copied().unwrap_or_default();
            from.extend((0..*count).map(|e| (e < before).then_some(first + e)));
        }
        from
    }
}

/// Volume whose extents are placed individually.
pub(crate) struct PlacedVolume {
    pub(crate) volume: VolumeId,
    /// Number of the first extent.
    pub(crate) first: ExtentNo,
    pub(crate) count: u32,
    /// Rejection that keeps the extents in place for now.
    pub(crate) frozen: Option<Rejection>,
}

/// Array as two tiers: the first tier that accepts data, and everything else.
pub(crate) struct View {
    pub(crate) fast: TierId,
    pub(crate) extent: Bytes,
    pub(crate) volumes: Vec<PlacedVolume>,
    /// Reasons why volumes are left out, with the number of volumes.
    pub(crate) left_out: BTreeMap<&'static str, u32>,
}

/// Returns the first tier that accepts data.
pub(crate) fn fast_tier(facts: &Facts, policy: &Policy) -> Option<TierId> {
    let mut tiers = facts.topology.tier_ids();
    tiers.find(|t| !policy.takes_no_data(*t))
}

/// Returns the plannable share of the fast tier's space.
pub(crate) fn space_share(policy: &Policy) -> f64 {
    let high = policy.space_high.unwrap_or(1.0);
    policy.headroom.space.min(high)
}

/// Returns the reason why a volume must stay whole; `None` if its extents may be split.
pub(crate) fn stays_whole(policy: &Policy, volume: VolumeId) -> Option<&'static str> {
    if policy.pin_of(volume).is_some() {
        return Some("pinned to a tier");
    }
    let bound = policy.affinity.iter().any(|r| r.volumes.contains(&volume));
    bound.then_some("bound to other volumes by a rule")
}

/// Returns true if extents of a volume are on several tiers, and may be.
pub(crate) fn parted(context: &Context<'_>, volume: VolumeId) -> bool {
    let Context { facts, policy, .. } = *context;
    let Some(extents) = &facts.volumes[volume.index()].extents else {
        return false;
    };
    let places = extents.places.runs().iter().filter_map(|r| r.1);
    let mut tiers = places.map(|d| facts.topology.tier_of(d));
    let first = tiers.next();
    tiers.any(|t| Some(t) != first) && stays_whole(policy, volume).is_none()
}

impl View {
    /// Returns the view; `None` if no tier accepts data, or without a tier below it, or without extents.
    pub(crate) fn new(context: &Context<'_>) -> Option<Self> {
        let Context { facts, policy, .. } = *context;
        let fast = fast_tier(facts, policy)?;
        let extent = facts.volumes.iter().find_map(|v| v.extents.as_ref())?;
        let mut view = Self {
            fast,
            extent: extent.extent,
            volumes: vec![],
            left_out: BTreeMap::new(),
        };
        let mut first = 0;
        for (i, v) in facts.volumes.iter().enumerate() {
            let volume = VolumeId::from_index(i);
            if let Some(why) = view.left_out_for(policy, volume, v) {
                *view.left_out.entry(why).or_default() += 1;
                continue;
            }
            let extents = v.extents.as_ref().expect("left out without");
            let count = extents.places.count();
            let moving = facts.moves.iter().any(|m| m.volume == volume);
            let frozen = match extents.heat {
                _ if moving => Some(Rejection::MoveUnderWay),
                None => Some(Rejection::NoMeasurement),
                Some(_) => None,
            };
            view.volumes.push(PlacedVolume {
                volume,
                first,
                count,
                frozen,
            });
            first += count;
        }
        let below = fast.index() + 1 < facts.topology.tiers.len();
        (below && first > 0).then_some(view)
    }

    fn left_out_for(
        &self,
        policy: &Policy,
        volume: VolumeId,
        facts: &VolumeFacts,
    ) -> Option<&'static str> {
        match &facts.extents {
            None => Some("extents unknown"),
            Some(e) if e.extent != self.extent => Some("different extent size"),
            Some(_) => stays_whole(policy, volume),
        }
    }

    pub(crate) fn layout(&self, facts: &Facts) -> Layout {
        let name = |p: &PlacedVolume| facts.volumes[p.volume.index()].name.clone();
        Layout(self.volumes.iter().map(|p| (name(p), p.count)).collect())
    }

    /// Returns the requests by extent since the last facts, in rising order; none for volumes of unknown heat.
    pub(crate) fn heat(&self, facts: &Facts) -> Vec<(ExtentNo, u32)> {
        let mut touched = Vec::new();
        for placed in &self.volumes {
            let extents = facts.volumes[placed.volume.index()].extents.as_ref();
            let heat = extents.and_then(|e| e.heat.as_ref());
            let own = heat.into_iter().flat_map(|h| h.touched());
            touched.extend(own.map(|(extent, ios)| (placed.first + extent, *ios)));
        }
        touched
    }

    /// Returns the extents on the fast tier. Moving extents count for their target.
    pub(crate) fn fast_now(&self, facts: &Facts) -> FastSet {
        let total = self.volumes.last().map_or(0, |p| p.first + p.count);
        let mut fast = FastSet::new(total);
        let is_fast = |device| facts.topology.tier_of(device) == self.fast;
        for placed in &self.volumes {
            let extents = facts.volumes[placed.volume.index()].extents.as_ref();
            let mut no = placed.first;
            for (count, place) in extents.expect("a placed volume has them").places.runs() {
                if place.is_some_and(is_fast) {
                    (no..no + count).for_each(|no| {
                        fast.insert(no);
                    });
                }
                no += count;
            }
            for m in facts.moves.iter().filter(|m| m.volume == placed.volume) {
                let all = 0..placed.count;
                let moved: Box<dyn Iterator<Item = u32>> = match &m.extents {
                    Some(ranges) => Box::new(ranges.iter()),
                    None => Box::new(all),
                };
                for extent in moved.filter(|e| *e < placed.count) {
                    if is_fast(m.to) {
                        fast.insert(placed.first + extent);
                    } else {
                        fast.remove(placed.first + extent);
                    }
                }
            }
        }
        fast
    }

    /// Returns the largest number of extents on the fast tier: its planned share of space, minus the space of volumes whose
    /// extents are not placed individually.
    pub(crate) fn capacity(&self, context: &Context<'_>) -> u32 {
        let Context { facts, policy, .. } = *context;
        let mut left = facts.topology.capacity(self.fast).as_f64() * space_share(policy);
        let is_fast = |device| facts.topology.tier_of(device) == self.fast;
        let mut placed = self.volumes.iter().map(|p| p.volume).peekable();
        for (i, v) in facts.volumes.iter().enumerate() {
            if placed.next_if(|p| p.index() == i).is_some() {
                continue;
            }
            let moving = facts.moves.iter().find(|m| m.volume.index() == i);
            let held = v.held();
            let there = held.iter().filter(|h| is_fast(h.0)).map(|h| h.1);
            // A volume that comes as a whole takes all of its space; a volume that leaves has not left yet.
            let coming = moving.is_some_and(|m| is_fast(m.to));
            left -= if coming {
                v.size.as_f64()
            } else {
                there.sum::<Bytes>().as_f64()
            };
        }
        (left.max(0.0) / self.extent.as_f64()).min(f64::from(u32::MAX)) as u32
    }
}
