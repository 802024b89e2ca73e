//! Changed ranges of an export since a snapshot, for the metadata contexts `qemu:dirty-bitmap:NAME` of QEMU's NBD servers.

use crate::reply::StatusExtent;

/// Bit of [`StatusExtent::flags`] in such a context: the range may have changed.
const DIRTY: u32 = 1;

/// Parts of an export that may have changed since a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyRanges {
    /// Bytes of a part.
    unit: u64,
    /// Numbers of the changed parts, ascending.
    parts: Vec<u32>,
}

impl DirtyRanges {
    /// Creates the ranges from part numbers in any order, with `unit` bytes per part.
    ///
    /// # Panics
    /// If `unit` is 0.
    pub fn new(unit: u64, mut parts: Vec<u32>) -> Self {
        assert!(unit > 0, "a part has bytes");
        parts.sort(); // the concatenated lists are sorted, so this only merges
        parts.dedup();
        Self { unit, parts }
    }

    /// Returns the bytes of a part.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Returns the numbers of the parts that may have changed, ascending.
    pub fn parts(&self) -> &[u32] {
        &self.parts
    }

    /// Returns alternating changed and unchanged runs of bytes from `offset` on, at most `most`.
    pub fn runs(&self, offset: u64, length: u64, most: usize) -> Vec<StatusExtent> {
        let end = offset + length;
        let first = offset / self.unit;
        let from = self.parts.partition_point(|p| u64::from(*p) < first);
        let mut parts = self.parts[from..].iter().map(|p| u64::from(*p)).peekable();
        let (mut at, mut runs) = (offset, vec![]);
        while at < end && runs.len() < most {
            let part = at / self.unit;
            let (to, flags) = match parts.peek() {
                Some(next) if *next == part => {
                    let mut last = part;
                    while parts.next_if(|p| *p <= last + 1).is_some_and(|p| {
                        last = p;
                        true
                    }) {}
                    ((last + 1) * self.unit, DIRTY)
                }
                Some(next) => (next * self.unit, 0),
                None => (end, 0),
            };
            let to = to.min(end);
            let length = (to - at) as u32; // requests are not longer than that
            runs.push(StatusExtent { length, flags });
            at = to;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_of(dirty: &DirtyRanges, offset: u64, length: u64, most: usize) -> Vec<(u32, u32)> {
        let runs = dirty.runs(offset, length, most);
        runs.iter().map(|r| (r.length, r.flags)).collect()
    }

    #[test]
    fn dirty_runs_cover_the_range_with_their_flags() {
        let dirty = DirtyRanges::new(10, vec![3, 1, 2, 7, 7]);
        assert_eq!(
            runs_of(&dirty, 0, 100, 9),
            [(10, 0), (30, 1), (30, 0), (10, 1), (20, 0)]
        );
        assert_eq!(runs_of(&dirty, 0, 100, 2), [(10, 0), (30, 1)]);
        assert_eq!(runs_of(&dirty, 15, 3, 9), [(3, 1)]);
        assert_eq!(runs_of(&dirty, 35, 40, 9), [(5, 1), (30, 0), (5, 1)]);
        assert_eq!(runs_of(&dirty, 80, 7, 9), [(7, 0)]);
        assert_eq!(runs_of(&dirty, 9, 0, 9), []);
        assert_eq!(runs_of(&DirtyRanges::new(10, vec![]), 5, 7, 1), [(7, 0)]);
        let last = DirtyRanges::new(10, vec![u32::MAX]);
        let at = u64::from(u32::MAX) * 10;
        assert_eq!(runs_of(&last, at - 5, 15, 9), [(5, 0), (10, 1)]);
        for offset in 0..90 {
            for length in 1..(100 - offset) {
                let runs = dirty.runs(offset, length, usize::MAX);
                let mut at = offset;
                for run in &runs {
                    for byte in at..at + u64::from(run.length) {
                        let is = [1, 2, 3, 7].contains(&(byte / 10));
                        assert_eq!(run.flags == DIRTY, is, "byte {byte}");
                    }
                    at += u64::from(run.length);
                }
                assert_eq!(at, offset + length);
            }
        }
    }
}
