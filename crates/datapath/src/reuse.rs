//! How a volume's pages are used again: what a cache in front of it would miss, in constant memory.
//!
//! ```text
//!  read  ──┬─▶ sample of 8,192 pages at most (SHARDS) ─▶ distances ─▶ miss ratio by size of cache
//!  write ──┤        a write drops its pages: the cache is one that writes go around
//!          └─▶ distinct pages in windows of references ─▶ working sets
//! ```
//!
//! Of all pages, one in eight is looked at ([`RATE_MAX`]): so a request costs few nanoseconds whatever the volume is like. Where
//! less than 65,536 pages are in use, fewer than 8,192 are followed, which [`Confidence::enough_blocks`] tells.
//!
//! A page is as large as the cache's in front of the volume, else [`PAGE`]. Counted page by page, from when measuring began. About 0.6 MiB for a volume, which it takes with its first request. Trims
//! are not looked at: what they discard counts as if it were still cached until it is written again. Zeroes drop pages as writes do; they
//! are no references.

use algo::mrc::{Confidence, Distances, FixedSize, Sampler, WorkingSet, WorkingSets};
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::engine::{GuestOp, GuestRequest};

/// Size of a page where no cache has another one.
pub const PAGE: Bytes = Bytes(4096);

/// Pages that are followed at most.
const PAGES_MAX: usize = 8192;

/// Share of the pages that are looked at, at most.
pub const RATE_MAX: f64 = 0.125;

/// Which pages are followed: the same for every volume, so that what is counted of several can be added.
const SEED: u64 = 1;

/// Counters of one volume.
#[derive(Debug)]
pub struct Reuse {
    page: Bytes,
    counters: Option<Box<Counters>>,
}

#[derive(Debug)]
struct Counters {
    /// All pages that are looked at; `reads` may follow fewer of them.
    looked_at: Sampler,
    reads: FixedSize,
    pages: WorkingSets,
    /// References by reads and writes, whether their pages are looked at or not.
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

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReuseCounts {
    /// Size of a page.
    pub page: Bytes,
    /// References to pages by reads, since measuring began.
    pub references: u64,
    /// Their distances: the pages that were read since the page was read last.
    pub distances: Distances,
    /// Share of the pages that is followed now.
    pub rate: f64,
    /// What the distances rest on.
    pub confidence: Confidence,
    /// References to pages by reads and writes.
    pub touches: u64,
    /// Distinct pages that were read or written, about.
    pub distinct: f64,
    /// Mean distinct pages in windows of so many references by reads and writes.
    pub working_sets: Vec<WorkingSet>,
}

impl ReuseCounts {
    /// Miss ratio of a cache of reads that writes go around, by pages.
    pub fn curve(&self) -> algo::mrc::Curve {
        self.distances.curve(self.confidence)
    }
}

impl Reuse {
    /// Nothing counted, of pages of that size.
    pub fn new(page: Bytes) -> Self {
        Self {
            page,
            counters: None,
        }
    }

    /// A request arrives.
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

    /// Zeroes were written: what was cached of it is dropped, in a bounded time, as one request may be as long as the volume.
    fn zeroed(&mut self, request: &GuestRequest) {
        if let (Some(counters), 1..) = (&mut self.counters, request.length) {
            let first = request.offset / self.page.0;
            let last = request.offset.saturating_add(request.length - 1) / self.page.0;
            counters.reads.invalidate_range(first, last);
        }
    }

    /// What was counted; none before the first read or write.
    pub fn look(&self) -> Option<ReuseCounts> {
        let counters = self.counters.as_deref()?;
        let Counters { reads, pages, .. } = counters;
        let (touches, rate) = (counters.touches, counters.looked_at.rate());
        // A window of the pages that are looked at is as many times longer as there were more references in all.
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

    /// A loop over 200,000 pages by requests of 8 KiB that are not aligned to them, and writes that drop half of them.
    #[test]
    fn pages_are_what_counts() {
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
        // 200,000 first reads, and 100,000 of what was dropped.
        let misses = counts.curve().at(1_000_000);
        assert!(about(misses, 300_000.0 / 1_200_000.0), "{misses}");
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<ReuseCounts>(&text).unwrap(), counts);
    }

    /// 50,000 pages are read three times; before the last time a fifth of them is zeroed, by short requests or one that is longer
    /// than the sample.
    #[test]
    fn zeroes_drop_pages_as_writes_do() {
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
    fn the_end_of_the_range_does_not_overflow() {
        let mut reuse = Reuse::new(PAGE);
        reuse.count(&request(GuestOp::Read, u64::MAX - 4096, 8192));
        assert_eq!(reuse.look().unwrap().references, 2);
    }
}
