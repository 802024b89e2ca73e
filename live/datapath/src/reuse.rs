//! Reuse of a volume's pages: estimated miss ratios of a cache in front of it, in constant memory.
//!
//! ```text
//!  read  ──┬─▶ sample of at most 8,192 pages (SHARDS) ─▶ distances ─▶ miss ratio by cache size
//!  write ──┤        a write drops its pages, as with a write-around cache
//!          └─▶ distinct pages in windows of references ─▶ working sets
//! ```
//!
//! One in eight pages is sampled ([`RATE_MAX`]), so a request of any volume costs only few nanoseconds. If fewer than
//! 65,536 pages are in use, fewer than 8,192 are sampled, which [`Confidence::enough_blocks`] reports.
//!
//! The page size is that of the cache in front of the volume, or else [`PAGE`]. Each page of a request counts, from
//! the start of measuring. A volume takes about 0.6 MiB, allocated at its first request. Trims are ignored: trimmed
//! pages count as cached until they are written again. Zeroes drop pages, as writes do, but are no references.

use algo::mrc::{Confidence, Distances, FixedSize, Sampler, WorkingSet, WorkingSets};
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::engine::{GuestOp, GuestRequest};

/// Page size without a cache.
pub const PAGE: Bytes = Bytes(4096);

/// Largest number of pages in the sample.
const PAGES_MAX: usize = 8192;

/// Largest sampling rate, as a share of all pages.
pub const RATE_MAX: f64 = 0.125;

/// Seed of the sampling. It is the same for all volumes, so their counts can be added.
const SEED: u64 = 1;

/// Counters of one volume.
#[derive(Debug)]
pub struct Reuse {
    page: Bytes,
    counters: Option<Box<Counters>>,
}

#[derive(Debug)]
struct Counters {
    /// Sampler of all pages; `reads` may sample fewer of them.
    looked_at: Sampler,
    reads: FixedSize,
    pages: WorkingSets,
    /// References by reads and writes, of sampled and other pages.
    touches: u64,
}

impl Counters {
    fn new() -> Self {
        let looked_at = Sampler::new(RATE_MAX, SEED);
        Self {
            looked_at,
            reads: FixedSize::below(looked_at, PAGES_MAX),
            pages: WorkingSets::new(),
            touches: 0,
        }
    }
}

/// Result of the counting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReuseCounts {
    /// Size of a page.
    pub page: Bytes,
    /// References to pages by reads, since the start of measuring.
    pub references: u64,
    /// Reuse distances: distinct pages that were read since the previous read of a page.
    pub distances: Distances,
    /// Present sampling rate, as a share of all pages.
    pub rate: f64,
    /// Basis of the distances.
    pub confidence: Confidence,
    /// References to pages by reads and writes.
    pub touches: u64,
    /// Estimated number of distinct pages that were read or written.
    pub distinct: f64,
    /// Mean number of distinct pages in windows of a length in references by reads and writes.
    pub working_sets: Vec<WorkingSet>,
}

impl ReuseCounts {
    /// Returns the miss ratio of a write-around read cache, by its size in pages.
    pub fn curve(&self) -> algo::mrc::Curve {
        self.distances.curve(self.confidence)
    }
}

impl Reuse {
    /// Creates counters at zero for pages of this size.
    pub fn new(page: Bytes) -> Self {
        Self {
            page,
            counters: None,
        }
    }

    /// Counts a request.
    #[inline]
    pub fn count(&mut self, request: &GuestRequest) {
        let read = match request.op {
            GuestOp::Read => true,
            GuestOp::Write => false,
            GuestOp::Zero | GuestOp::ZeroAllocated => return self.zeroed(request),
            _ => return,
        };
        if request.length == 0 {
            return;
        }
        let counters = self
            .counters
            .get_or_insert_with(|| Box::new(Counters::new()));
        let first = request.offset / self.page.0;
        let last = request.offset.saturating_add(request.length - 1) / self.page.0;
        counters.touches += last - first + 1;
        if read {
            counters.reads.passed(last - first + 1);
        }
        for page in first..=last {
            if !counters.looked_at.keeps(page) {
                continue;
            }
            if read {
                counters.reads.offer(page);
            } else {
                counters.reads.invalidate(page);
            }
            counters.pages.reference(page);
        }
    }

    /// Drops the pages of a zeroed range. The time is bounded, although one request may be as long as the volume.
    fn zeroed(&mut self, request: &GuestRequest) {
        if let (Some(counters), 1..) = (&mut self.counters, request.length) {
            let first = request.offset / self.page.0;
            let last = request.offset.saturating_add(request.length - 1) / self.page.0;
            counters.reads.invalidate_range(first, last);
        }
    }

    /// Returns the counts; `None` before the first read or write.
    pub fn look(&self) -> Option<ReuseCounts> {
        let counters = self.counters.as_deref()?;
        let Counters { reads, pages, .. } = counters;
        let (touches, rate) = (counters.touches, counters.looked_at.rate());
        // Scales a window of sampled references to one of all references.
        let longer = touches as f64 / pages.references().max(1) as f64;
        let whole = |set: WorkingSet| WorkingSet {
            references: (set.references as f64 * longer).round() as u64,
            blocks: set.blocks / rate,
        };
        Some(ReuseCounts {
            page: self.page,
            references: reads.references(),
            distances: reads.distances(),
            rate: reads.sampler().rate(),
            confidence: reads.confidence(),
            touches,
            distinct: pages.distinct() / rate,
            working_sets: pages.sizes().into_iter().map(whole).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(op: GuestOp, offset: u64, length: u64) -> GuestRequest {
        GuestRequest {
            op,
            offset,
            length,
            fua: false,
        }
    }

    /// A loop over 200,000 pages by unaligned requests of 8 KiB, and writes that drop half of the pages.
    #[test]
    fn references_are_counted_in_pages() {
        let mut reuse = Reuse::new(PAGE);
        assert_eq!(reuse.look(), None);
        reuse.count(&request(GuestOp::Flush, 0, 0));
        reuse.count(&request(GuestOp::Trim, 0, 1 << 20));
        assert_eq!(reuse.look(), None, "these ask for no page");
        for _ in 0..5 {
            for at in 0..100_000 {
                reuse.count(&request(GuestOp::Read, at * 8192 + 512, 8192 - 512));
            }
        }
        let about = |value: f64, want: f64| (value / want - 1.0).abs() < 0.03;
        let counts = reuse.look().unwrap();
        assert_eq!((counts.references, counts.touches), (1_000_000, 1_000_000));
        assert!(about(counts.distinct, 200_000.0), "{}", counts.distinct);
        assert!(counts.confidence.enough_blocks() && counts.rate < RATE_MAX);
        let curve = counts.curve();
        assert!(about(curve.at(220_000), 0.2), "{}", curve.at(220_000));
        assert!(
            curve.at(180_000) > 0.9,
            "a loop that does not fit never hits"
        );
        for set in &counts.working_sets {
            let want = set.references.min(200_000) as f64;
            assert!(set.references < 1000 || about(set.blocks, want), "{set:?}");
        }
        reuse.count(&request(GuestOp::Write, 0, 100_000 * 4096));
        for at in 0..100_000 {
            reuse.count(&request(GuestOp::Read, at * 8192, 8192));
        }
        let counts = reuse.look().unwrap();
        assert_eq!((counts.references, counts.touches), (1_200_000, 1_300_000));
        // 200,000 first reads, and 100,000 reads of dropped pages.
        let misses = counts.curve().at(1_000_000);
        assert!(about(misses, 300_000.0 / 1_200_000.0), "{misses}");
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<ReuseCounts>(&text).unwrap(), counts);
    }

    /// 50,000 pages are read three times. Before the last time a fifth of them is zeroed, by short requests or by one
    /// that is longer than the sample.
    #[test]
    fn zeroes_drop_pages_like_writes() {
        let misses = |zeroes: &[(GuestOp, u64, u64)]| {
            let mut reuse = Reuse::new(PAGE);
            for round in 0..3 {
                for (op, first, pages) in zeroes.iter().filter(|_| round == 2) {
                    reuse.count(&request(*op, first * 4096, pages * 4096));
                }
                for page in 0..50_000 {
                    reuse.count(&request(GuestOp::Read, page * 4096, 4096));
                }
            }
            let counts = reuse.look().unwrap();
            assert_eq!((counts.references, counts.touches), (150_000, 150_000));
            counts.curve().at(1_000_000)
        };
        let about = |value: f64, want: f64| (value / want - 1.0).abs() < 0.03;
        let none = misses(&[]);
        assert!(about(none, 1.0 / 3.0), "{none}");
        for op in [GuestOp::Zero, GuestOp::ZeroAllocated] {
            let short: Vec<_> = (0..1000).map(|i| (op, i * 10, 10)).collect();
            let long = [(op, 40_000, u64::MAX / 4096 - 40_000)];
            for dropped in [misses(&short), misses(&long)] {
                assert!(about(dropped, 1.2 / 3.0), "{op:?}: {dropped}");
            }
        }
        let mut unread = Reuse::new(PAGE);
        unread.count(&request(GuestOp::Zero, 0, 4096));
        assert_eq!(unread.look(), None);
    }

    #[test]
    fn range_end_does_not_overflow() {
        let mut reuse = Reuse::new(PAGE);
        reuse.count(&request(GuestOp::Read, u64::MAX - 4096, 8192));
        assert_eq!(reuse.look().unwrap().references, 2);
    }
}
