//! Extents at the agent: heat of the window from monotonic counters, and moves of extents part by part.
//!
//! ```text
//!   snapshot of the array ──▶ wanted_extents: volumes and cursors ──▶ extents in the snapshot ──▶ beat
//! ```
//!
//! Extents cost the array more than other parts of a snapshot. They are read only at the end of a window, when the
//! controller needs them, and when a move of extents starts or has ended.

use std::collections::BTreeMap;

use model::{ExtentHeat, ExtentPlaces, ExtentRanges};
use units::{Bytes, DeviceId};

use super::moves::Job;
use super::{Agent, Link, Snapshot, VolumeSnapshot};
use crate::wire::{Detail, ExtentAccess, ExtentWindow, MoveOrder};

/// Most ranges that the array accepts in one order; a job with more continues with the next ones.
pub const RANGES_PER_MOVE: usize = 2048;

/// Most bytes from the first to the last mirrored extent that the array accepts.
pub const SPAN_PER_MIRROR: Bytes = Bytes(256 << 30);

/// Extents of a volume in a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtentsSnapshot {
    /// Size of an extent.
    pub extent_bytes: u64,
    /// Places of extents; devices are numbered as in the snapshot.
    pub places: ExtentPlaces,
    /// Request counters; none if requests are not counted.
    pub heat: Option<HeatSnapshot>,
}

/// Extents with requests since a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatSnapshot {
    /// New cursor of the reader.
    pub at: HeatCursor,
    /// Extents in rising order, each with its reads and writes since counting began, modulo 2^32.
    pub touched: Vec<(u32, [u32; 2])>,
}

/// Position of a reader in a volume's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeatCursor {
    /// Begin of the counters: another value means that they were reset.
    pub since_ns: u64,
    /// Last turn that was read.
    pub turn: u32,
}

/// Volume whose extents the snapshot must contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedExtents {
    pub volume: String,
    /// Cursor after which requests are read; none reads all.
    pub since: Option<HeatCursor>,
}

/// Counters of a volume at this agent.
#[derive(Debug)]
pub(super) struct VolumeCounters {
    at: HeatCursor,
    /// Reads and writes in the last snapshot and at the begin of the window.
    now: Vec<[u32; 2]>,
    began: Vec<[u32; 2]>,
    /// Extents with requests since the begin of the window; may contain duplicates.
    touched: Vec<u32>,
    /// True if the window began with these counters.
    whole: bool,
}

impl VolumeCounters {
    fn new(at: HeatCursor, extents: usize) -> Self {
        Self {
            at,
            now: vec![[0; 2]; extents],
            began: vec![[0; 2]; extents],
            touched: vec![],
            whole: false,
        }
    }

    fn see(&mut self, seen: &HeatSnapshot) {
        self.at = seen.at;
        for (extent, requests) in &seen.touched {
            if let Some(now) = self.now.get_mut(*extent as usize) {
                *now = *requests;
                self.touched.push(*extent);
            }
        }
    }

    /// Returns reads and writes of the ended window, in rising order of extents; begins another window.
    fn end_window(&mut self) -> Option<Vec<(u32, [u32; 2])>> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        let mut heat = Vec::with_capacity(touched.len());
        for extent in touched {
            let (now, began) = (self.now[extent as usize], &mut self.began[extent as usize]);
            let requests = [0, 1].map(|dir| now[dir].wrapping_sub(began[dir]));
            *began = now;
            if requests != [0; 2] {
                heat.push((extent, requests));
            }
        }
        std::mem::replace(&mut self.whole, true).then_some(heat)
    }
}

/// Heat of extents, from the requests that `of` selects.
fn heat(touched: &[(u32, [u32; 2])], of: impl Fn([u32; 2]) -> u32) -> ExtentHeat {
    let some = touched.iter().map(|(extent, asked)| (*extent, of(*asked)));
    ExtentHeat::of(some.filter(|(_, n)| *n > 0).collect())
}

impl Agent {
    /// Volumes whose extents the snapshot of the next beat must contain, at the same time.
    pub fn wanted_extents(&self, now_ns: u64, snapshot: &Snapshot) -> Vec<WantedExtents> {
        let access_ends = self.window_is_over(now_ns);
        let window_ends = self.detail == Detail::Extents && access_ends;
        let jobs = self.jobs.values().filter_map(|job| match job {
            Job::Runs { order, .. } => Some(order),
            Job::Ended { .. } => None,
        });
        let new = |id: &&u32| !self.jobs.contains_key(*id);
        let orders = self.orders.iter().chain(&self.cancels);
        let orders = orders.filter(|(id, _)| new(id)).map(|(_, order)| order);
        let of_extents = |o: &&MoveOrder| o.extents.is_some();
        let asked: Vec<&str> = jobs
            .chain(orders)
            .filter(of_extents)
            .map(|o| o.volume.as_str())
            .collect();
        let wanted = |v: &&VolumeSnapshot| {
            let job = v.movable && v.moving.is_none() && asked.contains(&v.name.as_str());
            let asked = window_ends || access_ends && self.access.contains(&v.name);
            job || asked && v.counts.is_some()
        };
        let volumes = snapshot.volumes.iter().filter(wanted);
        volumes
            .map(|v| WantedExtents {
                volume: v.name.clone(),
                since: self.heat.get(&v.name).map(|w| w.at),
            })
            .collect()
    }

    /// Volumes whose reuse distances the snapshot of the next beat must contain.
    pub fn wanted_reuse(&self, now_ns: u64, snapshot: &Snapshot) -> Vec<String> {
        if !self.window_is_over(now_ns) {
            return vec![];
        }
        let volumes = snapshot.volumes.iter();
        let wanted = volumes.filter(|v| v.cache.is_some() && self.reuse.wants(&v.name));
        wanted.map(|v| v.name.clone()).collect()
    }

    /// Returns true if the window ends with a beat at this time, or the first one begins.
    pub(super) fn window_is_over(&self, now_ns: u64) -> bool {
        let Link::Met { .. } = self.link else {
            return false;
        };
        let Some((began_ns, _)) = &self.began else {
            return true;
        };
        now_ns.saturating_sub(*began_ns) >= self.window_ns
    }

    /// Adds the counters of a snapshot.
    pub(super) fn watch_heat(&mut self, snapshot: &Snapshot) {
        let (detail, access) = (self.detail, &self.access);
        let told = |name: &String| detail == Detail::Extents || access.contains(name);
        let there = |name: &String| snapshot.volumes.iter().any(|v| v.name == *name);
        self.heat.retain(|name, _| told(name) && there(name));
        for v in snapshot.volumes.iter().filter(|v| told(&v.name)) {
            let Some(extents) = &v.extents else { continue };
            let Some(seen) = &extents.heat else {
                self.heat.remove(&v.name);
                continue;
            };
            let count = extents.places.count() as usize;
            let same =
                |w: &VolumeCounters| w.at.since_ns == seen.at.since_ns && w.now.len() == count;
            if !self.heat.get(&v.name).is_some_and(same) {
                // Counters that began within a window do not cover its first part.
                self.heat
                    .insert(v.name.clone(), VolumeCounters::new(seen.at, count));
            }
            let watched = self
                .heat
                .get_mut(&v.name)
                .expect("the entry was just inserted");
            watched.see(seen);
        }
    }

    /// Extents of the ended window for placement, and their counters for mirrors and appliances; begins another window.
    pub(super) fn extent_windows(
        &mut self,
        v: &VolumeSnapshot,
    ) -> (Option<ExtentWindow>, Option<ExtentAccess>) {
        let Some(extents) = &v.extents else {
            return (None, None);
        };
        let touched = self
            .heat
            .get_mut(&v.name)
            .and_then(VolumeCounters::end_window);
        let window = (self.detail == Detail::Extents).then(|| ExtentWindow {
            extent_bytes: extents.extent_bytes,
            places: extents.places.clone(),
            heat: touched
                .as_ref()
                .map(|t| heat(t, |[reads, writes]| reads.saturating_add(writes))),
        });
        let touched = touched.filter(|_| self.access.contains(&v.name));
        let access = touched.map(|t| ExtentAccess {
            extent_bytes: extents.extent_bytes,
            places: extents.places.clone(),
            reads: heat(&t, |asked| asked[0]),
            writes: heat(&t, |asked| asked[1]),
        });
        (window, access)
    }

    /// Begins a window and discards the counts of an incomplete one.
    pub(super) fn begin_heat(heat: &mut BTreeMap<String, VolumeCounters>) {
        for watched in heat.values_mut() {
            watched.end_window();
        }
    }
}

/// Named extents that are on a device other than the target.
pub(super) fn left(
    named: &ExtentRanges,
    extents: &ExtentsSnapshot,
    target: Option<DeviceId>,
) -> ExtentRanges {
    let mut left: Vec<(u32, u32)> = vec![];
    let mut ranges = named.ranges().iter().copied().peekable();
    let mut begin = 0;
    for (count, place) in extents.places.runs() {
        let end = begin + count;
        let elsewhere = place.is_some() && *place != target;
        while let Some((first, after)) = ranges.peek().copied().filter(|r| r.0 < end) {
            let (from, to) = (first.max(begin), after.min(end));
            if elsewhere && from < to {
                match left.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => left.push((from, to)),
                }
            }
            if after > end {
                break; // the rest of the range is in the next run
            }
            ranges.next();
        }
        begin = end;
    }
    ExtentRanges::from_ranges(left).expect("ranges cut from rising ranges are rising")
}

/// First extents, as many as the array accepts in one order.
pub(super) fn part(extents: &ExtentRanges) -> ExtentRanges {
    let first = extents.ranges().iter().take(RANGES_PER_MOVE).copied();
    ExtentRanges::from_ranges(first.collect()).expect("the first of rising ranges are rising")
}

/// Returns true if the extents of `some` are all contained in `all`.
pub(super) fn within(some: &ExtentRanges, all: &ExtentRanges) -> bool {
    let (some, all) = (some.ranges(), all.ranges());
    let mut at = 0;
    some.iter().all(|(first, end)| {
        while all.get(at).is_some_and(|r| r.1 < *end) {
            at += 1;
        }
        all.get(at).is_some_and(|r| r.0 <= *first)
    })
}

#[cfg(test)]
mod tests {
    use algo::Rng;

    use super::*;

    fn ranges(text: &str) -> ExtentRanges {
        text.parse().unwrap()
    }

    #[test]
    fn remaining_extents_of_a_move_match_a_naive_computation() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed, 0xe7);
            let count = 1 + rng.below(40) as u32;
            let place = |r: u64| [None, Some(DeviceId(0)), Some(DeviceId(1))][r as usize];
            let at: Vec<_> = (0..count).map(|_| place(rng.below(3))).collect();
            let named: Vec<u32> = (0..count).filter(|_| rng.below(2) == 0).collect();
            let extents = ExtentsSnapshot {
                extent_bytes: 1,
                places: ExtentPlaces::of(at.iter().copied()),
                heat: None,
            };
            let target = [Some(DeviceId(0)), None][rng.below(2) as usize];
            let here = |e: &u32| at[*e as usize].is_some() && at[*e as usize] != target;
            let expected: Vec<u32> = named.iter().copied().filter(here).collect();
            let chosen = ExtentRanges::from_sorted(named);
            let got = left(&chosen, &extents, target);
            assert_eq!(got, ExtentRanges::from_sorted(expected), "seed {seed}");
            assert!(within(&got, &chosen));
            let more = ExtentRanges::from_sorted(got.iter().chain([count + 1]));
            assert!(!within(&more, &chosen));
        }
    }

    #[test]
    fn part_of_a_move_has_as_many_ranges_as_the_array_accepts() {
        let many = ExtentRanges::from_sorted((0..5000).map(|e| 2 * e));
        let first = part(&many);
        assert_eq!(
            (first.ranges().len(), first.last()),
            (RANGES_PER_MOVE, Some(4094))
        );
        assert_eq!(part(&ranges("0-9,12")), ranges("0-9,12"));
    }

    #[test]
    fn heat_window_is_the_counter_growth_and_the_first_is_unknown() {
        let at = |turn| HeatCursor { since_ns: 5, turn };
        let seen = |turn, touched: &[(u32, [u32; 2])]| HeatSnapshot {
            at: at(turn),
            touched: touched.to_vec(),
        };
        let mut watched = VolumeCounters::new(at(0), 10);
        watched.see(&seen(1, &[(3, [7, 0]), (9, [0, u32::MAX])]));
        assert_eq!(watched.end_window(), None);
        watched.see(&seen(2, &[(3, [9, 0])]));
        watched.see(&seen(3, &[(0, [0, 1]), (3, [10, 5]), (9, [0, 1])]));
        let grew = watched.end_window().unwrap();
        assert_eq!(grew, [(0, [0, 1]), (3, [3, 5]), (9, [0, 2])]);
        assert_eq!(heat(&grew, |asked| asked[0]), ExtentHeat::of(vec![(3, 3)]));
        assert_eq!(watched.end_window(), Some(vec![]));
    }
}
