//! Volumes that a move to their device may harm: the few that a check must examine among thousands.
//!
//! The harm of a volume grows with the use of its device. So it is bounded once for a slightly higher use. Volumes whose
//! bound is below their limit are not examined again for any use up to that one. A plan has few moves, and every moved
//! volume is examined. The result of a check is the same as with all volumes.

use std::borrow::Cow;
use std::cell::OnceCell;

use super::harm::{SLACK, VIOLATES};
use super::latency::DeviceLoad;
use super::placement::Placement;
use super::search::Search;

/// Uses above the present one for which harm is bounded, as factors.
const MORE: [f64; 3] = [1.005, 1.03, 1.2];
/// Smallest use for which the bounds hold, as a factor.
const LESS: f64 = 0.97;
/// Tolerance of bounds for rounding, a large multiple of the rounding error.
const ROUNDING: f64 = 1e-6;

/// Load of a device by pattern: as predicted, and after surges.
pub(super) type PatternLoads = Vec<[DeviceLoad; 2]>;

/// Volumes of one device.
#[derive(Default)]
pub(super) struct OfDevice {
    /// Load of the device at its first use.
    now: OnceCell<PatternLoads>,
    /// Volumes whose bound exceeds their limit, for each of [`MORE`].
    exposed: [OnceCell<Vec<usize>>; MORE.len()],
    /// Volumes that violate their objective, those of the largest weight first.
    violating: OnceCell<Vec<usize>>,
}

fn scaled(busy: &PatternLoads, by: f64) -> PatternLoads {
    busy.iter().map(|b| b.map(|b| b.times(by))).collect()
}

fn are_between(busy: &PatternLoads, least: &PatternLoads, most: &PatternLoads) -> bool {
    let each = busy.iter().zip(least).zip(most);
    each.flat_map(|((b, l), m)| b.iter().zip(l).zip(m))
        .all(|((b, l), m)| b.is_between(l, m))
}

impl Search<'_> {
    /// Returns the volumes of a device, in rising order, that may be harmed under this load. No other volume is harmed.
    pub(super) fn exposed<'p>(
        &self,
        at: &'p Placement,
        d: usize,
        busy: &PatternLoads,
    ) -> Cow<'p, [usize]> {
        if at.on[d].is_exact() {
            return Cow::Borrowed(&at.on[d].volumes);
        }
        let of = &self.exposures[d];
        let now = of
            .now
            .get_or_init(|| self.busy_after(&self.at, d, [&[]; 2]));
        let least = scaled(now, LESS);
        let levels = MORE.iter().zip(&of.exposed);
        for (more, exposed) in levels {
            let most = scaled(now, *more);
            if are_between(busy, &least, &most) {
                let exposed = exposed.get_or_init(|| self.bounded(d, &least, &most));
                let stay = exposed.iter().filter(|v| !at.moved.contains(v));
                let mut all: Vec<usize> = stay.chain(self.moved_to(at, d)).copied().collect();
                all.sort_unstable();
                return Cow::Owned(all);
            }
        }
        Cow::Borrowed(&at.on[d].volumes)
    }

    /// Returns the volumes of a device whose harm may exceed their limit between these uses.
    fn bounded(&self, d: usize, least: &PatternLoads, most: &PatternLoads) -> Vec<usize> {
        let harmed = |v: &&usize| {
            if self.context.facts.volumes[**v].device.index() != d {
                return true; // its prediction has a floor
            }
            let bound = match self.forecast.class(**v).target {
                Some(_) => Some(self.violated_at_most(**v, d, least, most)),
                None => self.harm_of(**v, d, most),
            };
            let limit = self.limit(**v);
            limit.zip(bound).is_some_and(|(limit, bound)| {
                let below = bound <= limit * SLACK * (1.0 - ROUNDING);
                !below
            })
        };
        let volumes = self.at.on[d].volumes.iter();
        volumes.filter(harmed).copied().collect()
    }

    fn violated_at_most(
        &self,
        v: usize,
        d: usize,
        least: &PatternLoads,
        most: &PatternLoads,
    ) -> f64 {
        let shares = &self.forecast.patterns.share;
        let each = least.iter().zip(most).zip(shares).enumerate();
        each.map(|(p, ((least, most), share))| {
            let chance = self
                .forecast
                .violated_at_most((v, d, p), &least[0], &most[0]);
            share * chance
        })
        .sum()
    }

    /// Returns the volumes on a device that a move of the plan brought there.
    fn moved_to<'p>(&self, at: &'p Placement, d: usize) -> impl Iterator<Item = &'p usize> {
        at.moved.iter().filter(move |v| at.of[**v] == d)
    }

    /// Returns the largest weight of a volume on these devices that violated its objective before the plan; 0 without one.
    pub(super) fn heaviest_violated(&self, at: &Placement, devices: &[usize]) -> f64 {
        let weight = |v: &usize| self.forecast.class(*v).weight;
        let violates = |v: &&usize| {
            let aimed = self.forecast.class(**v).target.is_some();
            aimed && self.before[**v].is_some_and(|chance| chance > VIOLATES)
        };
        let heaviest = |d: &usize| {
            let known = self.exposures[*d].violating.get_or_init(|| {
                let volumes = self.at.on[*d].volumes.iter();
                let mut violating: Vec<usize> = volumes.filter(violates).copied().collect();
                violating.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
                violating
            });
            let first = known.iter().find(|v| !at.moved.contains(v));
            let come = self.moved_to(at, *d).filter(violates);
            first
                .into_iter()
                .chain(come)
                .map(weight)
                .fold(0.0, f64::max)
        };
        devices.iter().map(heaviest).fold(0.0, f64::max)
    }
}
