//! How much of each volume a trace touches: distinct pages of 4 KiB, counted exactly.
//!
//! One bit per page, in chunks that are allocated when a request first touches them:
//!
//! ```text
//! volume ─▶ chunk of 256 MiB (65 536 pages) ─▶ 8 KiB of bits
//! ```

use std::collections::BTreeMap;

/// Size of the pages that are counted.
pub const FOOTPRINT_PAGE_BYTES: u64 = 4096;
/// Chunks of bits that one footprint may take: 1 GiB of memory, enough for 32 TiB touched everywhere. Protects from
/// a trace whose offsets are spread over more than that.
const CHUNKS_MAX: usize = 1 << 17;
const CHUNK_PAGES: u64 = 1 << 16;
const WORDS: usize = CHUNK_PAGES as usize / 64;

type Chunk = Box<[u64; WORDS]>;

/// Counts distinct pages per volume.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    chunks: Vec<Chunk>,
    index: BTreeMap<(u32, u64), u32>,
    /// The chunk of the last request: the next one is often in it too.
    last: Option<((u32, u64), u32)>,
    pages: Vec<u64>,
    overflowed: bool,
}

impl Footprint {
    /// Adds the pages that `length_bytes` at `offset_bytes` of `volume` touch; the range must not overflow.
    pub(crate) fn touch(&mut self, volume: u32, offset_bytes: u64, length_bytes: u32) {
        if self.overflowed || length_bytes == 0 {
            return;
        }
        if self.pages.len() <= volume as usize {
            self.pages.resize(volume as usize + 1, 0);
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
        let slot = match self.index.get(&key) {
            Some(slot) => *slot,
            None if next == CHUNKS_MAX => return None,
            None => {
                self.chunks.push(Box::new([0; WORDS]));
                self.index.insert(key, next as u32);
                next as u32
            }
        };
        self.last = Some((key, slot));
        Some(slot)
    }

    /// Bytes of the touched pages of one volume, or why they were not counted.
    pub(crate) fn bytes_of(&self, volume: usize) -> Result<u64, String> {
        if self.overflowed {
            return Err(format!(
                "the trace touches more than {CHUNKS_MAX} regions of 256 MiB"
            ));
        }
        Ok(self
            .pages
            .get(volume)
            .map_or(0, |pages| pages * FOOTPRINT_PAGE_BYTES))
    }

    /// The same over all volumes.
    pub(crate) fn bytes(&self) -> Result<u64, String> {
        self.bytes_of(0)?;
        Ok(self.pages.iter().sum::<u64>() * FOOTPRINT_PAGE_BYTES)
    }
}

/// Sets the bits `from..=to`; how many of them were not set before.
fn set_bits(words: &mut [u64; WORDS], from: usize, to: usize) -> u64 {
    let mut fresh = 0;
    for (i, word) in words
        .iter_mut()
        .enumerate()
        .take(to / 64 + 1)
        .skip(from / 64)
    {
        let low = if i == from / 64 {
            u64::MAX << (from % 64)
        } else {
            u64::MAX
        };
        let high = if i == to / 64 {
            u64::MAX >> (63 - to % 64)
        } else {
            u64::MAX
        };
        let mask = low & high;
        fresh += u64::from((mask & !*word).count_ones());
        *word |= mask;
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_pages(
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
    fn the_very_end_of_a_volume_does_not_overflow() {
        let mut footprint = Footprint::default();
        footprint.touch(0, u64::MAX - 5000, 5000);
        assert_eq!(footprint.bytes(), Ok(2 * 4096));
    }
}
