//! Sorts records by time with bounded memory.
//!
//! Tracers on several processors write records a little out of order. A buffer holds the last records, sorted. A record
//! is released when [`REORDER_RECORDS_MAX`] later ones have been read. A record in order costs one append and one
//! removal. A record out of order is moved to its place, after those with the same time.

use std::collections::VecDeque;

use crate::record::RawRecord;

/// Records held for reordering: 2.5 MiB. Protects memory; a trace that needs more must be sorted as a whole.
pub const REORDER_RECORDS_MAX: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Reorder {
    held: VecDeque<RawRecord>,
    capacity: usize,
    /// Time of the last released record.
    last_out_ns: i64,
    /// Time of the last record that was read.
    last_in_ns: i64,
    reversals: u64,
}

impl Reorder {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            held: VecDeque::new(),
            capacity,
            last_out_ns: i64::MIN,
            last_in_ns: i64::MIN,
            reversals: 0,
        }
    }

    /// Adds a record. Returns its lateness in nanoseconds if it comes too late.
    #[inline]
    pub(crate) fn push(&mut self, record: RawRecord) -> Result<(), u64> {
        let reversed = record.time_ns < self.last_in_ns;
        self.last_in_ns = record.time_ns;
        if !reversed {
            // The record is not before the last one read, but may be before others that are held.
            if self
                .held
                .back()
                .is_none_or(|last| last.time_ns <= record.time_ns)
            {
                self.held.push_back(record);
                return Ok(());
            }
        }
        self.push_unordered(record, reversed)
    }

    #[cold]
    fn push_unordered(&mut self, record: RawRecord, reversed: bool) -> Result<(), u64> {
        self.reversals += u64::from(reversed);
        if record.time_ns < self.last_out_ns {
            return Err(self.last_out_ns.abs_diff(record.time_ns));
        }
        let at = self
            .held
            .partition_point(|held| held.time_ns <= record.time_ns);
        self.held.insert(at, record);
        Ok(())
    }

    /// Returns the next record that no later one can precede.
    #[inline]
    pub(crate) fn pop_ready(&mut self) -> Option<RawRecord> {
        if self.held.len() > self.capacity {
            self.pop()
        } else {
            None
        }
    }

    /// Returns the next record after the end of input.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<RawRecord> {
        let record = self.held.pop_front()?;
        self.last_out_ns = record.time_ns;
        Some(record)
    }

    /// Returns the number of records with an earlier time than the previous one in the file.
    pub(crate) fn reversals(&self) -> u64 {
        self.reversals
    }

    /// Adds reversals that other code repaired.
    pub(crate) fn count_reversals(&mut self, reversals: u64) {
        self.reversals += reversals;
    }

    /// Adds a record without a bound, for a sort of the whole trace.
    pub(crate) fn push_unbounded(&mut self, record: RawRecord) {
        self.reversals += u64::from(record.time_ns < self.last_in_ns);
        self.last_in_ns = record.time_ns;
        self.held.push_back(record);
    }

    /// Sorts the records of [`Self::push_unbounded`]. Records with the same time keep their order.
    pub(crate) fn sort(&mut self) {
        self.held.make_contiguous().sort_by_key(|r| r.time_ns);
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(i: usize, time_ns: i64) -> RawRecord {
        RawRecord {
            time_ns,
            offset_bytes: i as u64,
            ..RawRecord::EMPTY
        }
    }

    proptest! {
        /// The oracle is a stable sort. Within the reach of the buffer the two agree.
        #[test]
        fn small_time_reversals_are_sorted(jitter in prop::collection::vec(0..8i64, 1..200)) {
            let input: Vec<_> = jitter.iter().enumerate().map(|(i, j)| record(i, i as i64 - j)).collect();
            let mut sorted = input.clone();
            sorted.sort_by_key(|r| r.time_ns);
            let mut reorder = Reorder::new(16);
            let mut out = Vec::new();
            for r in &input {
                reorder.push(*r).unwrap();
                out.extend(reorder.pop_ready());
            }
            while let Some(r) = reorder.pop() {
                out.push(r);
            }
            prop_assert_eq!(&out, &sorted);
            let reversals = input.windows(2).filter(|w| w[1].time_ns < w[0].time_ns).count();
            prop_assert_eq!(reorder.reversals(), reversals as u64);
        }
    }

    #[test]
    fn record_beyond_the_reorder_limit_is_refused() {
        let mut reorder = Reorder::new(2);
        for t in [10, 20, 30] {
            reorder.push(record(0, t)).unwrap();
            reorder.pop_ready();
        }
        assert_eq!(reorder.push(record(0, 4)), Err(6));
    }
}
