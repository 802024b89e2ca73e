//! Summaries of consecutive parts of a trace. Summaries of two parts merge to the summary of both, bit by bit, so parts can be read on
//! different machines.
//!
//! ```text
//!  part 1 ─▶ Segment ─┐
//!  part 2 ─▶ Segment ─┼─ merge, in the order of time ─▶ Segment ─▶ curve of the whole
//!  part 3 ─▶ Segment ─┘
//! ```
//!
//! A reuse within a part has its distance there. The first reference of a part to a block may be a reuse of an earlier part: its distance is
//! the number of blocks that were referenced since, in the rest of the earlier parts or before it in its own part (as in parallel
//! analyses of reuse distance: Niu, Dinan, Lu, Sadayappan, PARDA, IPDPS 2012). So a summary keeps the blocks of its sample twice: in the
//! order of their first references, and in that of their last ones.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::spread::Spread;
use super::{Confidence, Curve, Sampler};
use crate::{DenseIds, ReuseStack};

/// Reason that summaries do not merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherSample;

/// Sampled blocks of a part of a trace with their distances: SHARDS at a fixed rate ([`super::FixedRate`]), for caches that reads and writes go
/// through.
///
/// Memory grows with the sampled blocks of the part, not with its references.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredSegment", into = "StoredSegment")]
pub struct Segment {
    sampler: Sampler,
    references: u64,
    /// Number of sampled references by the hash's group and the distance among sampled blocks, both of reuses within the segment.
    reuses: BTreeMap<(u8, u32), u64>,
    /// Blocks in the order of their first references.
    first: Vec<u64>,
    /// Blocks in the order of their last references.
    last: Vec<u64>,
}

/// Form of a segment in files.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSegment {
    sampler: Sampler,
    references: u64,
    reuses: Vec<(u8, u32, u64)>,
    first: Vec<u64>,
    last: Vec<u64>,
}

impl From<Segment> for StoredSegment {
    fn from(of: Segment) -> Self {
        let reuses = of.reuses.into_iter().map(|((g, d), n)| (g, d, n));
        Self {
            sampler: of.sampler,
            references: of.references,
            reuses: reuses.collect(),
            first: of.first,
            last: of.last,
        }
    }
}

impl TryFrom<StoredSegment> for Segment {
    type Error = &'static str;

    fn try_from(of: StoredSegment) -> Result<Self, Self::Error> {
        let blocks: BTreeSet<u64> = of.first.iter().copied().collect();
        let same: BTreeSet<u64> = of.last.iter().copied().collect();
        let once = blocks.len() == of.first.len() && of.last.len() == of.first.len();
        let sampled: u128 = of.reuses.iter().map(|r| u128::from(r.2)).sum();
        let sound = |(group, distance, _): &(u8, u32, u64)| {
            usize::from(*group) < Spread::GROUPS
                && *distance > 0
                && *distance as usize <= blocks.len()
        };
        let counted = sampled + blocks.len() as u128 <= u128::from(of.references);
        if !once || blocks != same || !counted || !of.reuses.iter().all(sound) {
            return Err("the summary of a part of a trace is invalid");
        }
        Ok(Self {
            sampler: of.sampler,
            references: of.references,
            reuses: of.reuses.into_iter().map(|(g, d, n)| ((g, d), n)).collect(),
            first: of.first,
            last: of.last,
        })
    }
}

impl Segment {
    /// References, sampled or not.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Adds the segment that follows in time.
    ///
    /// # Errors
    /// Another rate or seed: nothing changes then.
    pub fn merge(&mut self, next: &Segment) -> Result<(), OtherSample> {
        if self.sampler != next.sampler {
            return Err(OtherSample);
        }
        let places: BTreeMap<u64, usize> = self
            .last
            .iter()
            .enumerate()
            .map(|(i, block)| (*block, i))
            .collect();
        for (reuse, times) in &next.reuses {
            *self.reuses.entry(*reuse).or_default() += times;
        }
        // Blocks of `self` that `next` has not referenced yet, in the order of their last references.
        let mut left = Counter::full(self.last.len());
        for (before, block) in next.first.iter().enumerate() {
            let Some(place) = places.get(block) else {
                self.first.push(*block);
                continue;
            };
            left.remove(*place);
            let since = left.total() - left.below(*place);
            let distance = since + before as u32 + 1;
            let group = Spread::group(self.sampler.hash(*block)) as u8;
            *self.reuses.entry((group, distance)).or_default() += 1;
        }
        let again: BTreeSet<u64> = next.first.iter().copied().collect();
        self.last.retain(|block| !again.contains(block));
        self.last.extend_from_slice(&next.last);
        self.references += next.references;
        Ok(())
    }

    fn spread(&self) -> Spread {
        let (rate, mut spread) = (self.sampler.rate(), Spread::new());
        for block in &self.first {
            spread.add(self.sampler.hash(*block), None, 1.0 / rate);
        }
        for ((group, distance), times) in &self.reuses {
            let distance = (f64::from(*distance) / rate) as u64;
            for _ in 0..*times {
                spread.add(u32::from(*group), Some(distance), 1.0 / rate);
            }
        }
        spread
    }

    /// Returns the curve, as [`super::FixedRate`] returns that of the same references.
    pub fn curve(&self) -> Curve {
        let (spread, blocks) = (self.spread(), self.first.len() as u64);
        let references = self.references as f64;
        spread.corrected(references, blocks).curve(Confidence {
            references: self.references,
            blocks,
            standard_error: spread.standard_error(blocks, references),
        })
    }
}

/// Set of places that only loses members, with the number of members below a place: a Fenwick tree.
struct Counter {
    sums: Vec<u32>,
    total: u32,
}

impl Counter {
    fn full(places: usize) -> Self {
        let sums = (0..=places).map(|i| (i & i.wrapping_neg()) as u32);
        Self {
            sums: sums.collect(),
            total: places as u32,
        }
    }

    fn total(&self) -> u32 {
        self.total
    }

    fn remove(&mut self, place: usize) {
        self.total -= 1;
        let mut i = place + 1;
        while i < self.sums.len() {
            self.sums[i] -= 1;
            i += i & i.wrapping_neg();
        }
    }

    fn below(&self, place: usize) -> u32 {
        let (mut i, mut sum) = (place, 0);
        while i > 0 {
            sum += self.sums[i];
            i &= i - 1;
        }
        sum
    }
}

/// Maker of a [`Segment`], reference by reference.
#[derive(Debug, Clone)]
pub struct SegmentBuilder {
    sampler: Sampler,
    ids: DenseIds,
    stack: ReuseStack,
    references: u64,
    sampled: u64,
    reuses: BTreeMap<(u8, u32), u64>,
    first: Vec<u64>,
    /// Number of the last sampled reference, by block in the order of `first`.
    last: Vec<u64>,
}

impl SegmentBuilder {
    /// Empty part with this sample.
    pub fn new(sampler: Sampler) -> Self {
        Self {
            sampler,
            ids: DenseIds::new(),
            stack: ReuseStack::new(),
            references: 0,
            sampled: 0,
            reuses: BTreeMap::new(),
            first: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Adds a reference, sampled or not.
    pub fn reference(&mut self, block: u64) {
        self.references += 1;
        if !self.sampler.keeps(block) {
            return;
        }
        self.sampled += 1;
        let id = self.ids.id(block);
        match self.stack.access(id) {
            None => {
                self.first.push(block);
                self.last.push(self.sampled);
            }
            Some(distance) => {
                let group = Spread::group(self.sampler.hash(block)) as u8;
                *self.reuses.entry((group, distance)).or_default() += 1;
                self.last[id as usize] = self.sampled;
            }
        }
    }

    /// Returns the summary.
    pub fn finish(self) -> Segment {
        let mut order: Vec<usize> = (0..self.first.len()).collect();
        order.sort_unstable_by_key(|i| self.last[*i]);
        Segment {
            sampler: self.sampler,
            references: self.references,
            reuses: self.reuses,
            last: order.into_iter().map(|i| self.first[i]).collect(),
            first: self.first,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mrc::FixedRate;

    fn segment(sampler: Sampler, blocks: &[u64]) -> Segment {
        let mut builder = SegmentBuilder::new(sampler);
        blocks.iter().for_each(|b| builder.reference(*b));
        builder.finish()
    }

    proptest! {
        #[test]
        fn merged_segments_equal_the_segment_of_all(
            blocks in prop::collection::vec(0u64..60, 0..400),
            cuts in prop::collection::vec(0usize..400, 0..5),
            rate in prop::sample::select(vec![1.0, 0.5, 0.1]),
        ) {
            let sampler = Sampler::new(rate, 7);
            let whole = segment(sampler, &blocks);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(blocks.len())).collect();
            cuts.extend([0, blocks.len()]);
            cuts.sort_unstable();
            let parts: Vec<Segment> = cuts.windows(2).map(|w| segment(sampler, &blocks[w[0]..w[1]])).collect();
            let mut merged = parts[0].clone();
            for part in &parts[1..] {
                merged.merge(part).unwrap();
            }
            prop_assert_eq!(&merged, &whole);
            // From the other end: the order of merging does not matter, that of the parts does.
            let mut from_end = parts[parts.len() - 1].clone();
            for part in parts[..parts.len() - 1].iter().rev() {
                let mut first = part.clone();
                first.merge(&from_end).unwrap();
                from_end = first;
            }
            prop_assert_eq!(&from_end, &whole);
            let mut shards = FixedRate::new(sampler);
            blocks.iter().for_each(|b| shards.reference(*b));
            prop_assert_eq!(whole.curve(), shards.curve());
            let text = serde_json::to_string(&whole).unwrap();
            prop_assert_eq!(serde_json::from_str::<Segment>(&text).unwrap(), whole);
        }
    }

    #[test]
    fn different_samples_and_invalid_summaries_are_refused() {
        let mut one = segment(Sampler::new(0.5, 1), &[1, 2, 3]);
        let other = segment(Sampler::new(0.5, 2), &[1, 2, 3]);
        assert_eq!(one.merge(&other), Err(OtherSample));
        let whole = segment(Sampler::new(1.0, 1), &[1, 2, 1]);
        let text = serde_json::to_string(&whole).unwrap();
        for (good, bad) in [
            ("\"first\":[1,2]", "\"first\":[1,3]"),
            ("\"references\":3", "\"references\":2"),
            ("2,1]],\"first\"", "9,1]],\"first\""),
        ] {
            assert!(text.contains(good), "{text}");
            let damaged = text.replace(good, bad);
            assert!(
                serde_json::from_str::<Segment>(&damaged).is_err(),
                "{damaged}"
            );
        }
    }
}
