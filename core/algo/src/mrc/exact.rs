//! Exact miss-ratio curve from every reference.

use super::{Confidence, Curve};
use crate::ReuseStack;

/// Number of references whose distances are found before they are counted.
const PART: usize = 1024;

/// Exact curve for all sizes at once. Blocks are dense numbers (see [`crate::DenseIds`]).
///
/// Memory is 13 to 21 bytes per block, plus 24 to 48 for the table of numbers. For larger footprints, and on a live
/// path whose memory must not grow, use a sample instead.
#[derive(Debug, Clone, Default)]
pub struct ExactCurve {
    stack: ReuseStack,
    /// References by distance; index 0 has those to blocks in no cache.
    counts: Vec<u64>,
    found: Vec<u32>,
}

impl ExactCurve {
    /// Creates an empty estimator.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts references in order.
    pub fn feed(&mut self, blocks: &[u32]) {
        for part in blocks.chunks(PART) {
            self.found.clear();
            let found = &mut self.found;
            self.stack
                .access_all(part, |distance| found.push(distance.unwrap_or(0)));
            // Counted apart from the search, so the cache misses of these independent additions overlap.
            let deepest = self.stack.objects() as usize + self.stack.holes() + 1;
            if deepest >= self.counts.len() {
                self.counts.resize((deepest + 1).next_power_of_two(), 0);
            }
            for distance in &self.found {
                self.counts[*distance as usize] += 1;
            }
        }
    }

    /// Drops a block after a write-around.
    pub fn invalidate(&mut self, block: u32) {
        self.stack.invalidate(block);
    }

    /// Returns the number of all references.
    pub fn references(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the references that miss in a cache of any size: the first to each block, or the first since its drop.
    pub fn never(&self) -> u64 {
        self.counts.first().copied().unwrap_or(0)
    }

    /// Returns the number of references that hit in a cache of `size` blocks.
    pub fn hits(&self, size: u64) -> u64 {
        let end = (self.counts.len() as u64).min(size.saturating_add(1)) as usize;
        self.counts[..end].iter().skip(1).sum()
    }

    /// Returns the curve, with a point at each bend.
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
                // Flat up to here, so no line across the step.
                points.push((size - 1, before.1));
            }
            misses -= count;
            before = (size, misses as f64 / references as f64);
            points.push(before);
        }
        Curve::new(points, confidence)
    }
}
