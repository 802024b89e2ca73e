//! Effects of a crash on unsynced changes.

use algo::{Rng, mix};

use crate::SECTOR;
use crate::change::Change;

/// Returns the part of a change that a killed process had completed: some of its first sectors. `None` if there is none.
pub(crate) fn begun(change: &Change, seed: u64) -> Option<Change> {
    let Some((at, end)) = change.range() else {
        // A length changes in one step.
        return mix(seed, 0).is_multiple_of(2).then(|| change.clone());
    };
    let sectors = end.div_ceil(SECTOR) - at / SECTOR;
    let done = Rng::new(seed, at).below(sectors + 1);
    let length = ((at / SECTOR + done) * SECTOR)
        .clamp(at, end)
        .saturating_sub(at);
    (length > 0).then(|| match change {
        Change::Write { bytes, .. } => Change::Write {
            at,
            bytes: bytes[..length as usize].to_vec(),
        },
        _ => Change::Zero { at, length },
    })
}

/// Probabilities of one loss. They are drawn for each loss, so that rare kinds of loss occur too: with an independent
/// decision per sector, practically no loss would keep everything or nothing.
struct Odds {
    /// Probability that a change survives at least in part, in sixteenths.
    changes: u64,
    /// Probability that a sector of such a change survives, in sixteenths.
    sectors: u64,
}

impl Odds {
    fn draw(rng: &mut Rng) -> Self {
        let mut one = || match rng.below(4) {
            0 => 16,
            1 => 8,
            2 => 15,
            _ => rng.below(17),
        };
        Self {
            changes: one(),
            sectors: one(),
        }
    }
}

/// Returns the medium after a power loss with these unsynced changes.
pub(crate) fn survives(mut medium: Vec<u8>, changes: &[&Change], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed, 0);
    set_length(&mut medium, changes, &mut rng);
    let odds = Odds::draw(&mut rng);
    let mut order: Vec<usize> = (0..changes.len()).collect();
    if rng.below(2) == 0 {
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
    }
    for i in order {
        if rng.below(16) < odds.changes {
            changes[i].apply_torn(&mut medium, || rng.below(16) < odds.sectors);
        }
    }
    medium
}

/// Applies the length that survives: that of some moment since the last sync. A truncation takes effect even if the file
/// grows later. A surviving write at the end may have extended the file.
fn set_length(medium: &mut Vec<u8>, changes: &[&Change], rng: &mut Rng) {
    let lengths: Vec<u64> = changes
        .iter()
        .filter_map(|c| match c {
            Change::Length(length) => Some(*length),
            _ => None,
        })
        .collect();
    let journalled = rng.below(lengths.len() as u64 + 1) as usize;
    for length in &lengths[..journalled] {
        medium.resize(*length as usize, 0);
    }
    let ends = changes.iter().filter_map(|c| c.range()).map(|r| r.1);
    let grown = ends.max().unwrap_or(0);
    if journalled == lengths.len() || rng.below(2) == 0 {
        return;
    }
    if grown > medium.len() as u64 {
        medium.resize(grown as usize, 0);
    }
}
