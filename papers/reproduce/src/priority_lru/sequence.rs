//! Recorded requests without their times, on the accessed extents only. Volumes of simulated customers play them.

use std::sync::Arc;

use model::Op;
use trace::{LoadedTrace, Record, Request, TraceError};
use units::Bytes;

/// Size of a page of the cache.
pub(super) const PAGE: Bytes = Bytes(64 << 10);
/// Number of pages in an extent (paper 2: 3.75 MiB).
pub(super) const PAGES_PER_EXTENT: u32 = 60;
/// Size of an extent.
pub(super) const EXTENT: Bytes = Bytes(PAGE.0 * PAGES_PER_EXTENT as u64);

/// Request as a range of pages of its sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reference {
    /// Dense number of the first page.
    first: u32,
    /// Number of pages, at least one.
    pages: u16,
    /// True for a write.
    write: bool,
}

/// Requests of one recorded trace in order. Extents that are never accessed are left out, so page numbers are dense.
#[derive(Debug, Clone)]
pub(super) struct Sequence {
    references: Vec<Reference>,
    extents: u32,
}

impl Sequence {
    /// Makes a sequence from reads and writes with offset and length in bytes. Flushes, trims and empty requests are ignored. Returns `None`
    /// if no request is left or if the sequence has 2^32 or more pages.
    pub(super) fn new(requests: &[(Op, u64, u64)]) -> Option<Self> {
        let (page, extent) = (PAGE.0, EXTENT.0);
        let wanted = |r: &&(Op, u64, u64)| matches!(r.0, Op::Read | Op::Write) && r.2 > 0;
        // Requests that are too long for a reference are cut; no known trace has any.
        let length = |r: &(Op, u64, u64)| r.2.min(page * 60_000);
        let mut touched: Vec<u64> = Vec::new();
        for r in requests.iter().filter(wanted) {
            let last = r.1.checked_add(length(r) - 1)? / extent;
            touched.extend(r.1 / extent..=last);
        }
        touched.sort_unstable();
        touched.dedup();
        let per_extent = u64::from(PAGES_PER_EXTENT);
        let pages = touched.len() as u64 * per_extent;
        if touched.is_empty() || pages > u64::from(u32::MAX) {
            return None;
        }
        let dense = |page_no: u64| {
            let at = touched.binary_search(&(page_no / per_extent));
            let at = at.expect("its extent is touched") as u64;
            (at * per_extent + page_no % per_extent) as u32
        };
        let references = requests.iter().filter(wanted).map(|r| {
            let (first, last) = (r.1 / page, (r.1 + length(r) - 1) / page);
            Reference {
                first: dense(first),
                pages: (last - first + 1) as u16,
                write: r.0 == Op::Write,
            }
        });
        Some(Self {
            references: references.collect(),
            extents: touched.len() as u32,
        })
    }

    /// Returns the number of accessed extents.
    pub(super) fn extents(&self) -> u32 {
        self.extents
    }

    /// Returns the mean number of pages per request.
    pub(super) fn pages_mean(&self) -> f64 {
        let pages: u64 = self.references.iter().map(|r| u64::from(r.pages)).sum();
        pages as f64 / self.references.len() as f64
    }

    /// Returns the share of writes, 0..=1.
    pub(super) fn write_share(&self) -> f64 {
        let writes = self.references.iter().filter(|r| r.write).count();
        writes as f64 / self.references.len() as f64
    }

    /// Returns the requests within the first `extents` extents, for a smaller volume; `None` if no request is left.
    #[must_use]
    pub(super) fn within(&self, extents: u32) -> Option<Self> {
        let end = extents.saturating_mul(PAGES_PER_EXTENT);
        let inside = |r: &&Reference| r.first + u32::from(r.pages) <= end;
        let references: Vec<Reference> = self.references.iter().filter(inside).copied().collect();
        (!references.is_empty()).then(|| Self {
            references,
            extents: extents.min(self.extents),
        })
    }

    /// Makes a trace of one volume, whose requests cover whole pages.
    pub(super) fn trace(&self, volume: &str) -> Result<Arc<LoadedTrace>, TraceError> {
        let record = |(n, r): (usize, &Reference)| {
            Record::new(Request {
                time_ns: n as u64,
                volume: 0,
                op: if r.write { Op::Write } else { Op::Read },
                offset_bytes: u64::from(r.first) * PAGE.0,
                length_bytes: u32::from(r.pages) * PAGE.0 as u32,
            })
        };
        let records = self.references.iter().enumerate().map(record).collect();
        Ok(Arc::new(LoadedTrace::from_records(
            records,
            None,
            &[volume],
        )?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_dense_and_requests_keep_their_neighbours() {
        let (page, extent) = (PAGE.0, EXTENT.0);
        let requests = [
            (Op::Read, 10 * extent + page, 4096),
            (Op::Write, 20 * extent - 4096, 8192),
            (Op::Flush, 0, 0),
            (Op::Read, 10 * extent, 2 * page),
        ];
        let s = Sequence::new(&requests).unwrap();
        assert_eq!(s.extents(), 3);
        let found: Vec<_> = s.references.iter().map(|r| (r.first, r.pages)).collect();
        // Extents 10, 19 and 20 are 0, 1 and 2.
        assert_eq!(found, [(1, 1), (119, 2), (0, 2)]);
        assert!((s.write_share() - 1.0 / 3.0).abs() < 1e-12);
        assert!((s.pages_mean() - 5.0 / 3.0).abs() < 1e-12);
        assert_eq!(s.within(1).unwrap().references.len(), 2);
        assert!(Sequence::new(&[(Op::Flush, 0, 0)]).is_none());
        let trace = s.trace("lu").unwrap();
        let second = trace.records()[1];
        assert_eq!(
            (second.op(), second.offset_bytes, second.length_bytes),
            (Op::Write, 119 * page, 2 * PAGE.0 as u32)
        );
    }
}
