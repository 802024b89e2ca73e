//! Miss-ratio curves from reuse times.

use super::{Confidence, Curve, Distances};

/// Average eviction time (Hu and others, USENIX ATC 2016): a cache of size c evicts blocks that were not referenced for
/// T references, where Σ_{t<T} P(t) = c and P(t) is the share of references with a reuse time above t. It misses P(T).
/// The same function is the slope of the working-set curve (Denning and Schwartz, CACM 1972).
///
/// A reuse time takes one subtraction, while a stack distance takes a search; references may be sampled by block. Times
/// of several loads that share a cache can be combined by their rates. The method assumes that the references between
/// two uses of a block are typical. Phases and loops violate that; a stack distance is right for them. Blocks are dense
/// numbers.
#[derive(Debug, Clone, Default)]
pub struct ReuseTimes {
    /// Time of each block's last reference, plus one; 0 for never.
    last: Vec<u64>,
    times: Distances,
    /// Ages of blocks when a write dropped them.
    dropped: Distances,
    blocks: u64,
}

impl ReuseTimes {
    /// Creates an empty estimator.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a reference to `block`, the `now`-th of all references, sampled or not. It stands for `weight`
    /// references.
    #[inline]
    pub fn reference(&mut self, block: u32, now: u64, weight: f64) {
        let at = block as usize;
        if at >= self.last.len() {
            self.last.resize(at + 1, 0);
        }
        let before = std::mem::replace(&mut self.last[at], now + 1);
        self.blocks += u64::from(before == 0);
        let time = before.checked_sub(1).map(|then| now - then);
        self.times.add(time, weight);
    }

    /// Counts consecutive references from time `now` on, each with weight one.
    pub fn feed(&mut self, blocks: &[u32], now: u64) {
        for (i, block) in blocks.iter().enumerate() {
            self.reference(*block, now + i as u64, 1.0);
        }
    }

    /// Drops a block after a write-around, at time `now`. `weight` as for references.
    pub fn invalidate(&mut self, block: u32, now: u64, weight: f64) {
        if let Some(last) = self.last.get_mut(block as usize)
            && let Some(then) = std::mem::take(last).checked_sub(1)
        {
            self.blocks -= 1;
            // At least one, because the reference itself took a place.
            self.dropped.add(Some((now - then).max(1)), weight);
        }
    }

    /// Starts a new window: counts are cleared, but the times of last references are kept, so known blocks do not count
    /// as new. Returns the counted reuse times and ages at drops. Those of several windows can be added.
    pub fn take_window(&mut self) -> (Distances, Distances) {
        (
            std::mem::take(&mut self.times),
            std::mem::take(&mut self.dropped),
        )
    }

    /// Returns the reuse times, for merging.
    pub fn times(&self) -> &Distances {
        &self.times
    }

    /// Returns the ages at which blocks were dropped, for merging.
    pub fn dropped(&self) -> &Distances {
        &self.dropped
    }

    /// Returns the curve.
    pub fn curve(&self) -> Curve {
        let confidence = Confidence {
            references: self.times.total() as u64,
            blocks: self.blocks,
            standard_error: None,
        };
        let curve = Self::curve_of(&self.times, &self.dropped, confidence);
        if self.dropped.total() > 0.0 || self.times.total() <= 0.0 {
            return curve;
        }
        // A cache of all blocks misses only their first references. The sum does not show that, because initially
        // nothing was reused.
        let first = self.times.never();
        let end = (first.round() as u64, first / self.times.total().max(1.0));
        let before = curve.points().iter().copied().filter(|p| p.0 < end.0);
        Curve::new(before.chain([end]), confidence)
    }

    /// Computes the curve of merged times. If writes drop blocks, the cache content at age t is the blocks neither
    /// referenced again nor dropped by then. A miss is only a block that was not referenced again.
    pub fn curve_of(times: &Distances, dropped: &Distances, confidence: Confidence) -> Curve {
        let total = times.total();
        if total <= 0.0 {
            return Curve::new([], confidence);
        }
        let buckets = times.weights().len().max(dropped.weights().len());
        let weight = |of: &Distances, i: usize| of.weights().get(i).copied().unwrap_or(0.0);
        let (mut misses, mut kept) = (total, total);
        let (mut size, mut before) = (0.0, 0.0);
        let mut points = Vec::new();
        // No block has an age of zero.
        for i in 1..buckets {
            let (lower, upper) = Distances::range(i);
            let hits = weight(times, i);
            let kept_before = kept;
            misses -= hits;
            kept -= hits + weight(dropped, i);
            // The kept share falls linearly within the bucket; the sum is over the times before its upper end.
            let width = (upper - lower) as f64 + 1.0;
            size += (width * (kept_before + kept) + kept_before - kept) / (2.0 * total);
            // Blocks that are always kept fill any cache: sizes grow without a bend.
            if hits > 0.0 || before > 0.0 {
                points.push((size.round() as u64, (misses / total).max(0.0)));
            }
            before = hits;
        }
        Curve::new(points, confidence)
    }
}
