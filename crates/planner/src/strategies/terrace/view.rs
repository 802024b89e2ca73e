//! What is placed: of a volume whose extents are known the part that carries its load, and by themselves pieces of the rest, which cost nothing
//! wherever they are.
//!
//! Everything else works on these facts as if both were volumes. Whole stays who is bound by a rule, whose extents are not known, or of which no
//! part is known to carry all of the load.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter::once;
use std::ops::Range;

use model::{ExtentFacts, ExtentRanges, Facts, Flow, Measured, RunningMove, SloClass, VolumeFacts};
use units::{Bytes, ClassId, DeviceId, VolumeId};

use super::history::REQUESTS_MIN;
use super::touched::{Run, Touched};
use crate::Context;
use crate::extents::layout::stays_whole;

/// Follows the name of a volume in those of pieces of its rest; no name has it.
const REST: char = '\u{0}';
/// Share of its bytes in use from which a volume is placed whole; and bytes that have to be in no use for it to be placed in parts.
const WHOLE: f64 = 0.75;
const UNUSED_MIN: u64 = 1 << 30;
/// Pieces of a rest, each half of what is left, so that hardly more has to go than there has to be room for: at most so many, and of so many bytes.
const PIECES_MAX: usize = 6;
const PIECE_MIN: u64 = 1 << 30;

/// The facts as they are placed by.
pub(super) struct View<'a> {
    pub facts: Cow<'a, Facts>,
    /// As they are.
    pub real: &'a Facts,
    /// What was asked of extents, by volume name, with this epoch.
    pub touched: BTreeMap<String, Touched>,
    /// By volume of `facts`; none where every volume is placed whole.
    parts: Vec<Part>,
    /// Bytes of each move under way.
    moving: Vec<Bytes>,
}

/// What of a volume one of the volumes placed is.
#[derive(Debug, Clone)]
struct Part {
    of: usize,
    /// Pieces of the rest of the same volume.
    rest: Range<usize>,
    /// None is all of it.
    extents: Option<ExtentRanges>,
    /// Extents in use that are elsewhere, their device and bytes; and the share of requests that went to all such, in this epoch.
    strays: Option<Strays>,
}

/// Extents in use that are not where the rest of what is in use is.
#[derive(Debug, Clone)]
pub(super) struct Strays {
    pub extents: ExtentRanges,
    pub on: DeviceId,
    pub bytes: Bytes,
    /// Share of all requests of the epoch.
    pub share: f64,
}

/// Whether a volume placed is of the rest of one.
pub(super) fn is_rest(name: &str) -> bool {
    name.contains(REST)
}

impl<'a> View<'a> {
    /// Every volume whole.
    pub(super) fn whole(facts: &'a Facts) -> Self {
        Self {
            moving: facts
                .moves
                .iter()
                .map(|m| facts.volumes[m.volume.index()].size)
                .collect(),
            facts: Cow::Borrowed(facts),
            real: facts,
            touched: BTreeMap::new(),
            parts: vec![],
        }
    }

    /// With this epoch, and what was asked of extents before it.
    pub(super) fn new(context: &Context<'a>, before: &BTreeMap<String, Touched>) -> Self {
        let facts = context.facts;
        if facts.volumes.iter().all(|v| v.extents.is_none()) {
            return Self::whole(facts);
        }
        let mut building = Building::new(context);
        let mut all = BTreeMap::new();
        for (i, v) in facts.volumes.iter().enumerate() {
            let Some(extents) = &v.extents else { continue };
            let mut touched = before.get(&v.name).cloned().unwrap_or_default();
            touched.absorb(extents, REQUESTS_MIN);
            building.look_at(i, extents, &touched);
            all.insert(v.name.clone(), touched);
        }
        building.done(all)
    }

    /// The volume that a volume placed is, or is a part of.
    pub(super) fn volume(&self, v: usize) -> usize {
        self.parts.get(v).map_or(v, |p| p.of)
    }

    /// Everything else of its volume that is placed.
    pub(super) fn others(&self, v: usize) -> impl Iterator<Item = usize> + use<> {
        let part = self.parts.get(v);
        let of = part.map(|p| (p.of, self.parts[p.of].rest.clone()));
        let all = of.into_iter().flat_map(|(of, rest)| once(of).chain(rest));
        all.filter(move |u| *u != v)
    }

    /// Whether a volume placed has no load, as it is of the rest of one.
    pub(super) fn is_rest(&self, v: usize) -> bool {
        self.parts.get(v).is_some_and(|p| p.of != v)
    }

    /// Its extents; none is all of the volume.
    pub(super) fn extents(&self, v: usize) -> Option<&ExtentRanges> {
        self.parts.get(v)?.extents.as_ref()
    }

    /// Extents of its volume in use that are elsewhere.
    pub(super) fn strays(&self, v: usize) -> Option<&Strays> {
        self.parts.get(v)?.strays.as_ref()
    }

    /// Moves under way, with their bytes.
    pub(super) fn moves(&self) -> impl Iterator<Item = (&RunningMove, Bytes)> + Clone {
        self.facts.moves.iter().zip(self.moving.iter().copied())
    }
}

/// A view in the making.
struct Building<'c, 'a> {
    context: &'c Context<'a>,
    facts: Facts,
    parts: Vec<Part>,
    moving: Vec<Bytes>,
    /// The class of what has no load.
    silent: ClassId,
}

/// Bytes of a volume on one device.
#[derive(Debug, Clone, Copy)]
struct Held {
    device: DeviceId,
    /// Extents, as often as something was asked of them of late.
    touches: u64,
    in_use: u64,
    all: u64,
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

/// Bytes by device, in order of device.
fn held(runs: &[Run], size: Bytes, extent: Bytes) -> Vec<Held> {
    let mut held: BTreeMap<DeviceId, Held> = BTreeMap::new();
    for r in runs {
        let of = held.entry(r.device).or_insert(Held {
            device: r.device,
            touches: 0,
            in_use: 0,
            all: 0,
        });
        let bytes = bytes(&[*r], size, extent);
        of.touches += u64::from(r.epochs) * u64::from(r.end - r.first);
        of.in_use += if r.in_use() { bytes } else { 0 };
        of.all += bytes;
    }
    held.into_values().collect()
}

impl<'c, 'a> Building<'c, 'a> {
    fn new(context: &'c Context<'a>) -> Self {
        let facts = context.facts;
        let without_extents = |v: &VolumeFacts| VolumeFacts {
            name: v.name.clone(),
            calibration: v.calibration.clone(),
            extents: None,
            vm: v.vm,
            class: v.class,
            size: v.size,
            device: v.device,
            measured: v.measured,
            calibrating: v.calibrating,
            last_moved: v.last_moved,
        };
        let silent = ClassId::from_index(facts.classes.len());
        let mut classes = facts.classes.clone();
        classes.push(SloClass {
            name: "unused".into(),
            weight: 0.0,
            target: None,
        });
        let whole = |of: usize| Part {
            of,
            rest: 0..0,
            extents: None,
            strays: None,
        };
        let size = |m: &RunningMove| facts.volumes[m.volume.index()].size;
        Self {
            context,
            parts: (0..facts.volumes.len()).map(whole).collect(),
            moving: facts.moves.iter().map(size).collect(),
            facts: Facts {
                volumes: facts.volumes.iter().map(without_extents).collect(),
                classes,
                topology: facts.topology.clone(),
                vms: facts.vms.clone(),
                devices: facts.devices.clone(),
                moves: facts.moves.clone(),
                ..*facts
            },
            silent,
        }
    }

    /// A volume whose extents are known.
    fn look_at(&mut self, i: usize, extents: &ExtentFacts, touched: &Touched) {
        let Context { facts, policy, .. } = *self.context;
        let v = &facts.volumes[i];
        if stays_whole(policy, VolumeId::from_index(i)).is_some() {
            return;
        }
        let size_of = |runs: &[Run]| bytes(runs, v.size, extents.extent);
        let runs: Vec<Run> = touched.runs(extents).collect();
        let devices = held(&runs, v.size, extents.extent);
        let most_touched = devices
            .iter()
            .max_by_key(|h| (h.touches, h.device == v.device));
        let Some(home) = most_touched.filter(|h| h.touches > 0) else {
            return;
        };
        let written: u64 = devices.iter().map(|h| h.all).sum();
        let in_use: u64 = devices.iter().map(|h| h.in_use).sum();
        let target = facts.classes[v.class.index()].target;
        let much = in_use as f64 >= WHOLE * written as f64 || written - in_use < UNUSED_MIN;
        let parts = touched.holds(target) && !much;
        let here = home.device;
        let mine = |r: &&Run| r.device == here && (!parts || r.in_use());
        let mine: Vec<Run> = runs.iter().filter(mine).copied().collect();
        self.facts.volumes[i].device = here;
        if size_of(&mine) < written {
            self.facts.volumes[i].size = Bytes(size_of(&mine));
            self.parts[i].extents = Some(ranges(&mine));
        }
        self.parts[i].strays = strays(extents, &runs, &devices, here, &size_of);
        let unused = |h: &&Held| parts && h.all > h.in_use;
        let most_unused = devices.iter().filter(unused);
        let most_unused = most_unused.max_by_key(|h| (h.all - h.in_use, h.device));
        let moving = facts.moves.iter().position(|m| m.volume.index() == i);
        let moving = moving.and_then(|m| Some((m, facts.moves[m].extents.as_ref()?)));
        if let Some((m, of)) = moving {
            let used: Vec<Run> = runs.iter().filter(|r| r.in_use()).copied().collect();
            let meant = |r: &&Run| of.contains(r.first);
            let used_moving: Vec<Run> = used.iter().filter(meant).copied().collect();
            let size = of.bytes(v.size, extents.extent).unwrap_or(v.size);
            self.moving[m] = size;
            self.facts.moves[m].extents = None;
            if 2 * size_of(&used_moving) < in_use {
                // Its load stays.
                let to = self.piece(i, facts.moves[m].from, size, None);
                self.facts.moves[m].volume = VolumeId::from_index(to);
                return;
            }
        }
        if let Some(h) = most_unused {
            let unused = |r: &&Run| r.device == h.device && !r.in_use();
            let mut unused: Vec<Run> = runs.iter().filter(unused).copied().collect();
            // What has not been asked for at all of late goes first.
            unused.sort_by_key(|r| (r.epochs, r.first));
            for piece in pieces(unused, size_of) {
                let size = Bytes(size_of(&piece));
                self.piece(i, h.device, size, Some(ranges(&piece)));
            }
        }
    }

    /// Adds a piece of the rest of a volume, as one by itself.
    fn piece(
        &mut self,
        of: usize,
        device: DeviceId,
        size: Bytes,
        extents: Option<ExtentRanges>,
    ) -> usize {
        let at = self.facts.volumes.len();
        let first = match self.parts[of].rest.is_empty() {
            true => at,
            false => self.parts[of].rest.start,
        };
        let v = &self.facts.volumes[of];
        let silent = |m: Measured| Measured {
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
        self.parts.push(Part {
            of,
            rest: 0..0,
            extents,
            strays: None,
        });
        self.parts[of].rest = first..at + 1;
        at
    }

    fn done(self, touched: BTreeMap<String, Touched>) -> View<'a> {
        View {
            facts: Cow::Owned(self.facts),
            real: self.context.facts,
            touched,
            parts: self.parts,
            moving: self.moving,
        }
    }
}

/// Cuts runs into pieces, each of half of what is left, the last one of all of it.
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
        piece.sort_by_key(|r| r.first);
        bytes -= taken;
        pieces.push(piece);
        left = rest;
    }
    pieces
}

/// What of a volume is in use elsewhere than `here`: on the device that has most of it.
fn strays(
    extents: &ExtentFacts,
    runs: &[Run],
    devices: &[Held],
    here: DeviceId,
    size_of: &impl Fn(&[Run]) -> u64,
) -> Option<Strays> {
    let elsewhere = devices.iter().filter(|h| h.device != here && h.in_use > 0);
    let on = elsewhere.max_by_key(|h| (h.touches, h.device))?.device;
    let astray = |r: &&Run| r.device == on && r.in_use();
    let astray: Vec<Run> = runs.iter().filter(astray).copied().collect();
    let ranges = ranges(&astray);
    let heat = extents.heat.as_ref()?.touched();
    let total: u64 = heat.iter().map(|h| u64::from(h.1)).sum();
    let of = heat.iter().filter(|h| ranges.contains(h.0));
    let there: u64 = of.map(|h| u64::from(h.1)).sum();
    Some(Strays {
        bytes: Bytes(size_of(&astray)),
        extents: ranges,
        on,
        share: there as f64 / total.max(1) as f64,
    })
}
