//! Every reference counted.

use super::{Confidence, Curve};
use crate::ReuseStack;

/// References whose distances are found before they are counted.
const PART: usize = 1024;

/// The exact curve, for all sizes at once. Blocks are dense numbers (see [`crate::DenseIds`]).
///
/// Memory is 13 to 21 bytes per block, and 24 to 48 for the table that makes the numbers: for footprints beyond what that allows, and
/// where a live path must not grow, sample instead.
#[derive(Debug, Clone, Default)]
pub struct Exact {
    stack: ReuseStack,
    /// References by distance; at 0 those to what was nowhere.
    counts: Vec<u64>,
    found: Vec<u32>,
}

impl Exact {
    /// Nothing counted.
    pub fn new() -> Self {
        Self::default()
    }

    /// References, in order.
    pub fn feed(&mut self, blocks: &[u32]) {
        for part in blocks.chunks(PART) {
            self.found.clear();
            let found = &mut self.found;
            self.stack
                .access_all(part, |distance| found.push(distance.unwrap_or(0)));
            // Counted apart from the search: misses of these independent additions overlap.
            let deepest = self.stack.objects() as usize + self.stack.holes() + 1;
            if deepest >= self.counts.len() {
                self.counts.resize((deepest + 1).next_power_of_two(), 0);
            }
            for distance in &self.found {
                self.counts[*distance as usize] += 1;
            }
        }
    }

    /// A block that a write went around the cache to: it is dropped.
    pub fn invalidate(&mut self, block: u32) {
        self.stack.invalidate(block);
    }

    /// References in all.
    pub fn references(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// References to what was not in a cache of any size: the first to each block, or the first since it was dropped.
    pub fn never(&self) -> u64 {
        self.counts.first().copied().unwrap_or(0)
    }

    /// How many of the references hit in a cache of `size` blocks.
    pub fn hits(&self, size: u64) -> u64 {
        let end = (self.counts.len() as u64).min(size.saturating_add(1)) as usize;
        self.counts[..end].iter().skip(1).sum()
    }

    /// The curve, with a point wherever it bends.
    pub fn curve(&self) -> Curve {
        let references = self.references();
        let confidence = Confidence {
            references,
            blocks: u64::from(self.stack.objects()),
            standard_error: Some(0.0),
        };
        let mut points: Vec<(u64, f64)> = Vec::new();
        let mut misses = references;
        let mut before = (0u64, 1.0);
        for (size, count) in self.counts.iter().enumerate().skip(1) {
            if *count == 0 {
                continue;
            }
            let size = size as u64;
            if size > before.0 + 1 {
                // It is flat up to here: no line across the step.
                points.push((size - 1, before.1));
            }
            misses -= count;
            before = (size, misses as f64 / references as f64);
            points.push(before);
        }
        Curve::new(points, confidence)
    }
}
