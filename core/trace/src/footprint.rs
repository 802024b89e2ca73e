//! Footprint of each volume in a trace: exact number of distinct pages of 4 KiB.
//!
//! The footprint has one bit per page, in chunks that are allocated at the first access:
//!
//! ```text
//! volume ─▶ chunk of 256 MiB (65 536 pages) ─▶ 8 KiB of bits
//! ```
//!
//! An array has the chunks of a volume's first TiB, and a map those beyond.

use std::collections::BTreeMap;

use thiserror::Error;

/// Size of the counted pages.
pub const FOOTPRINT_PAGE_BYTES: u64 = 4096;
/// Largest number of chunks of one footprint: 1 GiB of memory, enough for 32 TiB with accesses everywhere. Protects
/// from a trace with offsets over a larger range.
const CHUNKS_MAX: usize = 1 << 17;
const CHUNK_PAGES: u64 = 1 << 16;
/// Chunks per volume in the array, which then has 16 KiB. Protects memory from many volumes with accesses only at their
/// end.
const DIRECTORY_CHUNKS: usize = 1 << 12;
const ABSENT: u32 = u32::MAX;
const WORDS: usize = CHUNK_PAGES as usize / 64;

/// Failure of the count: the offsets are in too many regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the trace touches more than {CHUNKS_MAX} regions of 256 MiB")]
pub(crate) struct TooManyRegions;

type Chunk = Box<[u64; WORDS]>;

/// Counter of distinct pages per volume.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    chunks: Vec<Chunk>,
    near: Vec<Vec<u32>>,
    far: BTreeMap<(u32, u64), u32>,
    /// Chunk of the last request, which often contains the next one too.
    last: Option<((u32, u64), u32)>,
    pages: Vec<u64>,
    overflowed: bool,
}

impl Footprint {
    /// Adds the pages of `length_bytes` at `offset_bytes` of `volume`. The range must not overflow.
    pub(crate) fn touch(&mut self, volume: u32, offset_bytes: u64, length_bytes: u32) {
        if self.overflowed || length_bytes == 0 {
            return;
        }
        if self.pages.len() <= volume as usize {
            self.pages.resize(volume as usize + 1, 0);
            self.near.resize_with(volume as usize + 1, Vec::new);
        }
        let mut page = offset_bytes / FOOTPRINT_PAGE_BYTES;
        let last = (offset_bytes + (u64::from(length_bytes) - 1)) / FOOTPRINT_PAGE_BYTES;
        while page <= last {
            let chunk_end = (page | (CHUNK_PAGES - 1)).min(last);
            let Some(slot) = self.slot((volume, page / CHUNK_PAGES)) else {
                self.overflowed = true;
                return;
            };
            let (from, to) = (
                (page % CHUNK_PAGES) as usize,
                (chunk_end % CHUNK_PAGES) as usize,
            );
            self.pages[volume as usize] += set_bits(&mut self.chunks[slot as usize], from, to);
            page = chunk_end + 1;
        }
    }

    fn slot(&mut self, key: (u32, u64)) -> Option<u32> {
        if let Some((last, slot)) = self.last
            && last == key
        {
            return Some(slot);
        }
        let next = self.chunks.len();
        let (volume, chunk) = key;
        let slot = if chunk < DIRECTORY_CHUNKS as u64 {
            let near = &mut self.near[volume as usize];
            if near.len() <= chunk as usize {
                near.resize(chunk as usize + 1, ABSENT);
            }
            &mut near[chunk as usize]
        } else {
            self.far.entry(key).or_insert(ABSENT)
        };
        if *slot == ABSENT {
            if next == CHUNKS_MAX {
                return None;
            }
            self.chunks.push(Box::new([0; WORDS]));
            *slot = next as u32;
        }
        let slot = *slot;
        self.last = Some((key, slot));
        Some(slot)
    }

    /// Returns the bytes of the accessed pages of one volume, or the reason that they were not counted.
    pub(crate) fn bytes_of(&self, volume: usize) -> Result<u64, TooManyRegions> {
        if self.overflowed {
            return Err(TooManyRegions);
        }
        Ok(self
            .pages
            .get(volume)
            .map_or(0, |pages| pages * FOOTPRINT_PAGE_BYTES))
    }

    /// Returns the bytes of the accessed pages of all volumes.
    pub(crate) fn bytes(&self) -> Result<u64, TooManyRegions> {
        self.bytes_of(0)?;
        Ok(self.pages.iter().sum::<u64>() * FOOTPRINT_PAGE_BYTES)
    }
}

/// Sets the bits `from..=to`. Returns the number of bits that were not set before.
#[inline]
fn set_bits(words: &mut [u64; WORDS], from: usize, to: usize) -> u64 {
    let (low, high) = (u64::MAX << (from % 64), u64::MAX >> (63 - to % 64));
    let set = |word: &mut u64, mask: u64| {
        let fresh = (mask & !*word).count_ones();
        *word |= mask;
        u64::from(fresh)
    };
    match &mut words[from / 64..=to / 64] {
        [] => 0,
        [only] => set(only, low & high),
        [first, between @ .., last] => {
            let ends = set(first, low) + set(last, high);
            ends + between
                .iter_mut()
                .map(|word| set(word, u64::MAX))
                .sum::<u64>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn footprint_matches_a_set_of_pages(
            requests in prop::collection::vec((0..3u32, 0..(1u64 << 30), 1..(300u32 << 20)), 1..2),
            small in prop::collection::vec((0..3u32, 0..(1u64 << 20), 1..20_000u32), 0..50),
        ) {
            let mut footprint = Footprint::default();
            let mut oracle = BTreeSet::new();
            for (volume, offset, length) in requests.into_iter().chain(small) {
                footprint.touch(volume, offset, length);
                for page in offset / 4096..=(offset + u64::from(length) - 1) / 4096 {
                    oracle.insert((volume, page));
                }
            }
            prop_assert_eq!(footprint.bytes(), Ok(oracle.len() as u64 * 4096));
            let first = oracle.iter().filter(|(v, _)| *v == 0).count() as u64;
            prop_assert_eq!(footprint.bytes_of(0), Ok(first * 4096));
        }
    }

    #[test]
    fn distant_offsets_are_counted_like_near_ones() {
        let mut footprint = Footprint::default();
        for offset in [(1 << 40) - 4096, 1 << 40, 1 << 50, 1 << 50] {
            footprint.touch(1, offset, 4096);
        }
        assert_eq!(footprint.bytes_of(1), Ok(3 * 4096));
    }

    #[test]
    fn footprint_at_the_end_of_the_address_range_does_not_overflow() {
        let mut footprint = Footprint::default();
        footprint.touch(0, u64::MAX - 5000, 5000);
        assert_eq!(footprint.bytes(), Ok(2 * 4096));
    }
}
