//! Rules of moves of extents.

use model::{ExtentRanges, Facts, Move, Policy, VolumeFacts};

use super::LintError;
use crate::extents::layout::stays_whole;

/// Returns true if two moves of one volume have bytes in common.
pub(super) fn overlap(a: &Move, b: &Move) -> bool {
    match (&a.extents, &b.extents) {
        (Some(a), Some(b)) => a.meets(b),
        _ => true,
    }
}

/// Checks a move of extents: the volume exists in extents and may be split, and all extents are on the source, with the size
/// of the move.
pub(super) fn check(
    m: &Move,
    ranges: &ExtentRanges,
    v: &VolumeFacts,
    facts: &Facts,
    policy: &Policy,
    errors: &mut Vec<LintError>,
) {
    let volume = v.name.clone();
    let Some(extents) = &v.extents else {
        let extents = ranges.to_string();
        errors.push(LintError::UnknownExtents { volume, extents });
        return;
    };
    if ranges.is_empty() {
        errors.push(LintError::NoExtents { volume });
        return;
    }
    let Some(actual) = ranges.bytes(v.size, extents.extent) else {
        let extent = ranges.last().unwrap_or_default();
        errors.push(LintError::NoExtent { volume, extent });
        return;
    };
    if actual != m.size {
        errors.push(LintError::Size {
            volume: volume.clone(),
            planned: m.size,
            actual,
        });
    }
    if let Some(extent) = first_elsewhere(ranges, v, m) {
        errors.push(LintError::WrongExtentSource {
            volume: volume.clone(),
            extent,
            named: facts.topology.device(m.from).name.clone(),
        });
    }
    // Split extents may return to the tier of a volume that must stay whole; no extent may leave it.
    let home = facts.topology.tier_of(v.device);
    let leaves = facts.topology.tier_of(m.to) != home;
    if let Some(why) = stays_whole(policy, m.volume).filter(|_| leaves) {
        let why = why.into();
        errors.push(LintError::Parted { volume, why });
    }
}

/// Returns the first extent of the move that is not on its source.
fn first_elsewhere(ranges: &ExtentRanges, v: &VolumeFacts, m: &Move) -> Option<u32> {
    let mut runs = v.extents.as_ref()?.places.runs().iter();
    let (mut end, mut place) = (0, None);
    for (first, last) in ranges.ranges() {
        let mut next = *first;
        while next < *last {
            while next >= end {
                let Some((count, device)) = runs.next() else {
                    return Some(next);
                };
                (end, place) = (end + count, *device);
            }
            if place != Some(m.from) {
                return Some(next);
            }
            next = end;
        }
    }
    None
}
