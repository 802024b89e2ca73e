//! Volumes as units of placement. A volume with known extents is divided: the part with its load is one unit, and the rest
//! is cut into pieces, which have no load and cost nothing on any device.
//!
//! All other modules use these facts as if both were volumes. A volume stays whole if a rule binds it, if its extents are
//! unknown, or if no part is known to have all of its load.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter::once;
use std::ops::Range;

use model::{
    ExtentFacts, ExtentRanges, Facts, Flow, MeasuredLoad, RunningMove, SloClass, VolumeFacts,
};
use units::{Bytes, ClassId, DeviceId, VolumeId};

use super::history::REQUESTS_MIN;
use super::touched::{PartRequests, Run};
use crate::Context;
use crate::extents::layout::stays_whole;

/// Separator between the name of a volume and the number of a piece of its rest; no name contains it.
const REST: char = '\u{0}';
/// Share of bytes in use from which a volume is placed whole, and smallest number of unused bytes with which it is divided.
const WHOLE: f64 = 0.75;
const UNUSED_MIN: u64 = 1 << 30;
/// Pieces of a rest: each is half of the remaining bytes, so little more moves than space is needed. Their largest number
/// and their smallest size.
const PIECES_MAX: usize = 6;
const PIECE_MIN: u64 = 1 << 30;
/// Ratio of requests from which the home of a volume changes to another device with extents in use.
const HOME_CHANGES: u64 = 2;

/// Facts with units of placement in place of volumes.
pub(super) struct View<'a> {
    pub facts: Cow<'a, Facts>,
    /// Original facts.
    pub real: &'a Facts,
    /// Slice of each volume of `facts`; empty if every volume is placed whole.
    slices: Vec<Slice>,
    /// Bytes of each running move.
    moving: Vec<Bytes>,
}

/// Part of a volume that a unit of placement represents.
#[derive(Debug, Clone)]
struct Slice {
    of: usize,
    /// Pieces of the rest of the same volume.
    rest: Range<usize>,
    /// Extents of the slice; `None` for the whole volume.
    extents: Option<ExtentRanges>,
    /// Extents in use on another device.
    strays: Option<Strays>,
}

/// Extents in use that are not on the device of the main part.
#[derive(Debug, Clone)]
pub(super) struct Strays {
    pub extents: ExtentRanges,
    pub on: DeviceId,
    pub bytes: Bytes,
    /// Share of all requests of the epoch that went to such extents.
    pub share: f64,
}

/// Returns the name of the history of a unit. All pieces of a rest share one name, because the next plan cuts the rest
/// differently.
pub(super) fn kept_under(name: &str) -> &str {
    match name.find(REST) {
        Some(at) => &name[..=at],
        None => name,
    }
}

/// Returns true if a unit or a history belongs to the rest of a volume.
pub(super) fn is_rest(name: &str) -> bool {
    name.contains(REST)
}

impl<'a> View<'a> {
    /// Returns a view in which every volume is whole.
    pub(super) fn whole(facts: &'a Facts) -> Self {
        Self {
            moving: facts
                .moves
                .iter()
                .map(|m| facts.volumes[m.volume.index()].taken())
                .collect(),
            facts: Cow::Borrowed(facts),
            real: facts,
            slices: vec![],
        }
    }

    /// Returns the view by the requests to extents, by volume name, and these requests with those of this epoch added.
    pub(super) fn new(
        context: &Context<'a>,
        before: &BTreeMap<String, PartRequests>,
    ) -> (Self, BTreeMap<String, PartRequests>) {
        let facts = context.facts;
        // For volumes without a report, the earlier knowledge is kept.
        let known = facts.volumes.iter().filter_map(|v| {
            let known = before.get(&v.name)?;
            Some((v.name.clone(), known.clone()))
        });
        let mut all: BTreeMap<String, PartRequests> = known.collect();
        if facts.volumes.iter().all(|v| v.extents.is_none()) {
            return (Self::whole(facts), all);
        }
        let mut building = ViewBuilder::new(context);
        for (i, v) in facts.volumes.iter().enumerate() {
            let Some(extents) = &v.extents else { continue };
            let touched = all.entry(v.name.clone()).or_default();
            touched.absorb(facts.epoch, extents, REQUESTS_MIN);
            let home = building.look_at(i, extents, touched);
            touched.home = Some(facts.topology.device(home).name.clone());
        }
        (building.done(), all)
    }

    /// Returns the volume to which a unit belongs.
    pub(super) fn volume(&self, v: usize) -> usize {
        self.slices.get(v).map_or(v, |p| p.of)
    }

    /// Returns all other units of the same volume.
    pub(super) fn others(&self, v: usize) -> impl Iterator<Item = usize> + use<> {
        let slice = self.slices.get(v);
        let of = slice.map(|s| (s.of, self.slices[s.of].rest.clone()));
        let all = of.into_iter().flat_map(|(of, rest)| once(of).chain(rest));
        all.filter(move |u| *u != v)
    }

    /// Returns true if a unit is a piece of the rest of a volume, without load.
    pub(super) fn is_rest(&self, v: usize) -> bool {
        self.slices.get(v).is_some_and(|s| s.of != v)
    }

    /// Returns the extents of a unit; `None` for a whole volume.
    pub(super) fn extents(&self, v: usize) -> Option<&ExtentRanges> {
        self.slices.get(v)?.extents.as_ref()
    }

    /// Returns the extents in use of the volume that are on another device.
    pub(super) fn strays(&self, v: usize) -> Option<&Strays> {
        self.slices.get(v)?.strays.as_ref()
    }

    /// Returns the running moves with their bytes.
    pub(super) fn moves(&self) -> impl Iterator<Item = (&RunningMove, Bytes)> + Clone {
        self.facts.moves.iter().zip(self.moving.iter().copied())
    }
}

/// View under construction.
struct ViewBuilder<'c, 'a> {
    context: &'c Context<'a>,
    facts: Facts,
    slices: Vec<Slice>,
    moving: Vec<Bytes>,
    /// Class of pieces without load.
    silent: ClassId,
}

/// Bytes of a volume on one device.
#[derive(Debug, Clone, Copy)]
struct DeviceBytes {
    device: DeviceId,
    in_use: u64,
    all: u64,
    /// Requests of the epoch to extents in use; `requests` has those to all extents.
    used: u64,
    requests: u64,
}

fn bytes(runs: &[Run], size: Bytes, extent: Bytes) -> u64 {
    let of = |r: &Run| {
        let end = (u64::from(r.end) * extent.0).min(size.0);
        end.saturating_sub(u64::from(r.first) * extent.0)
    };
    runs.iter().map(of).sum()
}

fn ranges(runs: &[Run]) -> ExtentRanges {
    ExtentRanges::from_sorted(runs.iter().flat_map(|r| r.first..r.end))
}

/// Returns the bytes by device, in order of device.
fn held(runs: &[Run], size: Bytes, extent: Bytes) -> Vec<DeviceBytes> {
    let mut held: BTreeMap<DeviceId, DeviceBytes> = BTreeMap::new();
    for r in runs {
        let of = held.entry(r.device).or_insert(DeviceBytes {
            device: r.device,
            in_use: 0,
            all: 0,
            used: 0,
            requests: 0,
        });
        let bytes = bytes(&[*r], size, extent);
        of.in_use += if r.in_use { bytes } else { 0 };
        of.all += bytes;
        of.used += if r.in_use { r.requests } else { 0 };
        of.requests += r.requests;
    }
    held.into_values().collect()
}

impl<'c, 'a> ViewBuilder<'c, 'a> {
    fn new(context: &'c Context<'a>) -> Self {
        let facts = context.facts;
        // The size is the written space: that is the amount to move and the room that it needs.
        let without_extents = |v: &VolumeFacts| VolumeFacts {
            name: v.name.clone(),
            calibration: v.calibration.clone(),
            extents: None,
            size: v.taken(),
            ..*v
        };
        let silent = ClassId::from_index(facts.classes.len());
        let mut classes = facts.classes.clone();
        classes.push(SloClass {
            name: "unused".into(),
            weight: 0.0,
            target: None,
            max_slowdown: None,
        });
        let whole = |of: usize| Slice {
            of,
            rest: 0..0,
            extents: None,
            strays: None,
        };
        let size = |m: &RunningMove| facts.volumes[m.volume.index()].taken();
        Self {
            context,
            slices: (0..facts.volumes.len()).map(whole).collect(),
            moving: facts.moves.iter().map(size).collect(),
            facts: Facts {
                volumes: facts.volumes.iter().map(without_extents).collect(),
                classes,
                topology: facts.topology.clone(),
                vms: facts.vms.clone(),
                devices: facts.devices.clone(),
                moves: facts.moves.clone(),
                failed: facts.failed.clone(),
                nodes: facts.nodes.clone(),
                ..*facts
            },
            silent,
        }
    }

    /// Adds a volume with known extents. Returns its home device.
    fn look_at(&mut self, i: usize, extents: &ExtentFacts, touched: &PartRequests) -> DeviceId {
        let Context { facts, policy, .. } = *self.context;
        let v = &facts.volumes[i];
        if stays_whole(policy, VolumeId::from_index(i)).is_some() {
            return v.device;
        }
        let size_of = |runs: &[Run]| bytes(runs, v.size, extents.extent);
        let runs = touched.runs(extents);
        let devices = held(&runs, v.size, extents.extent);
        let written: u64 = devices.iter().map(|h| h.all).sum();
        let in_use: u64 = devices.iter().map(|h| h.in_use).sum();
        let target = facts.classes[v.class.index()].target;
        let much = in_use as f64 >= WHOLE * written as f64 || written - in_use < UNUSED_MIN;
        let parts = touched.holds(target) && !much && in_use > 0;
        let before = touched.home.as_deref();
        let before = before.and_then(|home| device_called(facts, home));
        let Some(here) = home(&devices, parts, before, v.device) else {
            return v.device; // the volume was never written
        };
        let mine = |r: &&Run| r.device == here && (!parts || r.in_use);
        let mine: Vec<Run> = runs.iter().filter(mine).copied().collect();
        self.facts.volumes[i].device = here;
        if size_of(&mine) < written {
            self.facts.volumes[i].size = Bytes(size_of(&mine));
            self.slices[i].extents = Some(ranges(&mine));
        }
        self.slices[i].strays = strays(&runs, &devices, here, size_of);
        let moving = facts.moves.iter().position(|m| m.volume.index() == i);
        let moving = moving.and_then(|m| Some((m, facts.moves[m].extents.as_ref()?)));
        if let Some((m, of)) = moving {
            let used = |r: &&Run| r.in_use && of.contains(r.first);
            let used: Vec<Run> = runs.iter().filter(used).copied().collect();
            let size = of.bytes(v.size, extents.extent).unwrap_or(v.taken());
            self.moving[m] = size;
            self.facts.moves[m].extents = None;
            if 2 * size_of(&used) < in_use {
                // The part with its load stays.
                let to = self.piece(i, facts.moves[m].from, size, None);
                self.facts.moves[m].volume = VolumeId::from_index(to);
                return here;
            }
        }
        for h in devices.iter().filter(|h| parts && h.all > h.in_use) {
            let unused = |r: &&Run| r.device == h.device && !r.in_use;
            let mut unused: Vec<Run> = runs.iter().filter(unused).copied().collect();
            // Extents without requests for the longest time come first.
            unused.sort_by_key(|r| (Reverse(r.age), r.first));
            for piece in pieces(unused, size_of) {
                let size = Bytes(size_of(&piece));
                self.piece(i, h.device, size, Some(ranges(&piece)));
            }
        }
        here
    }

    /// Adds a piece of the rest of a volume as a unit.
    fn piece(
        &mut self,
        of: usize,
        device: DeviceId,
        size: Bytes,
        extents: Option<ExtentRanges>,
    ) -> usize {
        let at = self.facts.volumes.len();
        let first = match self.slices[of].rest.is_empty() {
            true => at,
            false => self.slices[of].rest.start,
        };
        let v = &self.facts.volumes[of];
        let silent = |m: MeasuredLoad| MeasuredLoad {
            reads: Flow::default(),
            writes: Flow::default(),
            outstanding: 0.0,
            ..m
        };
        let rest = VolumeFacts {
            name: format!("{}{REST}{}", v.name, at - first),
            class: self.silent,
            size,
            device,
            measured: v.measured.map(silent),
            calibration: vec![],
            ..v.clone()
        };
        self.facts.volumes.push(rest);
        self.slices.push(Slice {
            of,
            rest: 0..0,
            extents,
            strays: None,
        });
        self.slices[of].rest = first..at + 1;
        at
    }

    fn done(self) -> View<'a> {
        View {
            facts: Cow::Owned(self.facts),
            real: self.context.facts,
            slices: self.slices,
            moving: self.moving,
        }
    }
}

/// Cuts runs into pieces, each with half of the remaining bytes; the last piece has all of them.
fn pieces(mut left: Vec<Run>, size_of: impl Fn(&[Run]) -> u64) -> Vec<Vec<Run>> {
    let mut pieces = vec![];
    let mut bytes = size_of(&left);
    while !left.is_empty() {
        let last = pieces.len() + 1 >= PIECES_MAX || bytes < 2 * PIECE_MIN;
        let wanted = if last { bytes } else { bytes / 2 };
        let mut piece = vec![];
        let mut taken = 0;
        let mut rest = vec![];
        for run in left {
            let extent = size_of(&[Run {
                end: run.first + 1,
                ..run
            }])
            .max(1);
            let fits = (wanted.saturating_sub(taken)).div_ceil(extent);
            let cut = run.first + fits.min(u64::from(run.end - run.first)) as u32;
            let (own, others) = (Run { end: cut, ..run }, Run { first: cut, ..run });
            taken += size_of(&[own]);
            piece.extend((own.first < own.end).then_some(own));
            rest.extend((others.first < others.end).then_some(others));
        }
        if piece.is_empty() {
            break; // extents without bytes
        }
        piece.sort_by_key(|r| r.first);
        bytes -= taken;
        pieces.push(piece);
        left = rest;
    }
    pieces
}

fn device_called(facts: &Facts, name: &str) -> Option<DeviceId> {
    let found = facts.topology.devices.iter().position(|d| d.name == name);
    found.map(DeviceId::from_index)
}

/// Returns the home device of a volume: the one with most requests (to extents in use, if these are a unit of their own).
/// The home stays at `before` unless far more requests go to another device. `most` is the device with most of its bytes.
fn home(
    devices: &[DeviceBytes],
    parts: bool,
    before: Option<DeviceId>,
    most: DeviceId,
) -> Option<DeviceId> {
    let requests = |h: &DeviceBytes| if parts { h.used } else { h.requests };
    let some = |h: &&DeviceBytes| if parts { h.in_use > 0 } else { h.all > 0 };
    let able = || devices.iter().filter(some);
    let rank = |h: &&DeviceBytes| (requests(h), h.device == most, h.in_use, h.device);
    let best = able().max_by_key(rank)?;
    let before = able().find(|h| Some(h.device) == before);
    let stays = before.filter(|h| requests(best) <= HOME_CHANGES * requests(h));
    Some(stays.unwrap_or(best).device)
}

/// Returns extents in use on another device than `here`: those on the device with most requests to such extents.
fn strays(
    runs: &[Run],
    devices: &[DeviceBytes],
    here: DeviceId,
    size_of: impl Fn(&[Run]) -> u64,
) -> Option<Strays> {
    let elsewhere = devices.iter().filter(|h| h.device != here && h.in_use > 0);
    let on = elsewhere.max_by_key(|h| (h.used, h.device))?;
    let astray = |r: &&Run| r.device == on.device && r.in_use;
    let astray: Vec<Run> = runs.iter().filter(astray).copied().collect();
    let requests: u64 = devices.iter().map(|h| h.requests).sum();
    Some(Strays {
        bytes: Bytes(size_of(&astray)),
        extents: ranges(&astray),
        on: on.device,
        share: on.used as f64 / requests.max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXTENT: u64 = 1 << 28;

    fn run(first: u32, end: u32) -> Run {
        Run {
            first,
            end,
            device: DeviceId(0),
            in_use: false,
            age: 0,
            requests: 0,
        }
    }

    proptest! {
        #[test]
        fn pieces_contain_each_extent_once(lengths in prop::collection::vec((0u32..3, 1u32..40), 1..20), short in 0..EXTENT) {
            let mut next = 0;
            let mut runs = vec![];
            for (gap, length) in lengths {
                runs.push(run(next + gap, next + gap + length));
                next += gap + length;
            }
            let size = Bytes(u64::from(next) * EXTENT - short);
            let size_of = |runs: &[Run]| bytes(runs, size, Bytes(EXTENT));
            let cut = pieces(runs.clone(), size_of);
            prop_assert!(cut.len() <= PIECES_MAX && cut.iter().all(|p| !p.is_empty()));
            let extents = |runs: &[Run]| runs.iter().flat_map(|r| r.first..r.end).collect::<Vec<u32>>();
            let mut all: Vec<u32> = cut.iter().flat_map(|p| extents(p)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, extents(&runs));
        }
    }

    #[test]
    fn extents_without_data_make_no_piece() {
        assert!(pieces(vec![run(4, 8)], |_| 0).is_empty());
        assert!(pieces(vec![], |_| 0).is_empty());
    }

    fn held(device: u16, in_use: u64, used: u64, requests: u64) -> DeviceBytes {
        DeviceBytes {
            device: DeviceId(device),
            in_use,
            all: 100,
            used,
            requests,
        }
    }

    #[test]
    fn home_is_the_device_of_most_requests_with_hysteresis() {
        let [a, b] = [0, 1].map(DeviceId);
        let two = |used: [u64; 2]| [held(0, 5, used[0], 90), held(1, 5, used[1], 10)];
        assert_eq!(home(&two([1, 3]), true, None, a), Some(b));
        assert_eq!(
            home(&two([1, 3]), false, None, b),
            Some(a),
            "all of it counts"
        );
        assert_eq!(home(&two([2, 3]), true, Some(a), b), Some(a));
        assert_eq!(home(&two([1, 3]), true, Some(a), a), Some(b));
        assert_eq!(
            home(&two([0, 0]), true, None, b),
            Some(b),
            "nothing is asked"
        );
        let gone = [held(0, 0, 0, 90), held(1, 5, 0, 0)];
        assert_eq!(
            home(&gone, true, Some(a), a),
            Some(b),
            "nothing in use there"
        );
        assert_eq!(home(&[], true, Some(a), a), None);
    }
}
