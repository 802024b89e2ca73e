//! Reading records in order, as fast as memory delivers them.
//!
//! A loop that does work on each record leaves the memory idle while it works: a processor looks only a few dozen
//! records ahead. Here a few kilobytes are first *touched*, one load per cache line and nothing else, so that many
//! lines are under way at once; then the work runs from the cache. No unsafe prefetch instruction is needed, and a
//! simple fold over a mapped trace gains about a third (`bench/native_read.sh`).

use std::hint::black_box;

use crate::record::Record;

/// Records that are touched at a time by [`warmed`]: 24 KiB, half of a first-level data cache.
pub const WARM_RECORDS: usize = 1024;
const CACHE_LINE_WORDS: usize = 8;

/// The records in order, in slices of up to [`WARM_RECORDS`] that are in the cache when they are handed out.
pub fn warmed(records: &[Record]) -> impl Iterator<Item = &[Record]> {
    records.chunks(WARM_RECORDS).inspect(|chunk| touch(chunk))
}

/// Loads one word of each cache line.
#[inline]
pub(crate) fn touch(records: &[Record]) {
    let words: &[u64] = bytemuck::cast_slice(records);
    let (groups, rest) = words.as_chunks::<{ 4 * CACHE_LINE_WORDS }>();
    // Four sums, so that no load waits for an addition.
    let mut sums = [0u64; 4];
    for lines in groups {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = sum.wrapping_add(lines[i * CACHE_LINE_WORDS]);
        }
    }
    for line in rest.chunks(CACHE_LINE_WORDS) {
        sums[0] = sums[0].wrapping_add(line[0]);
    }
    black_box(sums);
}
