//! Requests as references to pages, as a cache sees them.
//!
//! A request is one reference per accessed page, in order. A page has one number over all volumes of a trace, so its
//! hash is that of a page and not of an address. Otherwise requests of mixed sizes would hash the same bytes to
//! different samples.
//!
//! Trims and flushes are no references. The effect of a write depends on the cache ([`CacheKind`]).

use algo::mrc::Sampler;
use model::Op;
use units::Bytes;

use crate::record::Record;
use crate::warm::warmed;

/// Records per group: one branch tests whether any of them is sampled.
const GROUP_RECORDS: usize = 8;

/// Effect of writes on a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// Writes are references like reads: a write allocates.
    ReadWrite,
    /// Writes bypass the cache and invalidate their pages: only reads are references.
    ReadsOnly,
}

/// Effect of a request on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// The access is a reference.
    Reference,
    /// The access drops the page.
    Drop,
}

/// Conversion of records to references.
#[derive(Debug, Clone, Copy)]
pub struct PageReferences {
    page_bits: u32,
    cache: CacheKind,
}

impl PageReferences {
    /// Smallest page.
    pub const PAGE_MIN: Bytes = Bytes(512);
    /// Largest page.
    pub const PAGE_MAX: Bytes = Bytes(1 << 30);

    /// Creates the conversion with a page size; `None` unless it is a power of two from [`Self::PAGE_MIN`] to
    /// [`Self::PAGE_MAX`].
    pub fn new(page: Bytes, cache: CacheKind) -> Option<Self> {
        let fits = page.0.is_power_of_two() && (Self::PAGE_MIN..=Self::PAGE_MAX).contains(&page);
        fits.then(|| Self {
            page_bits: page.0.trailing_zeros(),
            cache,
        })
    }

    /// Calls `touch` for every access to every page, in order.
    pub fn each(&self, records: &[Record], mut touch: impl FnMut(u64, Touch)) {
        for record in warmed(records).flatten() {
            let Some(kind) = self.kind(record) else {
                continue;
            };
            let (first, pages) = self.pages(record);
            for page in 0..pages {
                touch(first.wrapping_add(page), kind);
            }
        }
    }

    /// Calls `touch` for the accesses to sampled pages, in order. Returns the number of all references, sampled or not.
    /// Hashes are compared with the threshold by groups, directly from the records: few are sampled, and one branch
    /// skips a whole group.
    pub fn sampled(
        &self,
        records: &[Record],
        sampler: &Sampler,
        mut touch: impl FnMut(u64, Touch),
    ) -> u64 {
        let mut references = 0;
        for chunk in warmed(records) {
            let (groups, rest) = chunk.as_chunks::<GROUP_RECORDS>();
            for group in groups {
                if self.is_plain(group) {
                    references += GROUP_RECORDS as u64;
                    let lowest = group.iter().map(|r| sampler.order(self.name(r))).min();
                    if lowest.is_some_and(|order| sampler.keeps_order(order)) {
                        self.take_sampled(group, sampler, &mut touch);
                    }
                } else {
                    references += self.take_sampled(group, sampler, &mut touch);
                }
            }
            references += self.take_sampled(rest, sampler, &mut touch);
        }
        references
    }

    /// Returns true if every record of a group is one reference to one page.
    #[inline]
    fn is_plain(&self, group: &[Record; GROUP_RECORDS]) -> bool {
        let other_ops = match self.cache {
            CacheKind::ReadWrite => Op::Trim as u32,
            CacheKind::ReadsOnly => Op::Trim as u32 | Op::Write as u32,
        };
        let (mut ops, mut last) = (0, 0);
        for record in group {
            ops |= record.op_code();
            // The last byte is within the first page. For an empty request it is outside.
            last |= self.end(record).wrapping_sub(1);
        }
        ops & other_ops == 0 && last >> self.page_bits == 0
    }

    /// Calls `touch` for the accesses to sampled pages, record by record. Returns the number of all references.
    fn take_sampled(
        &self,
        records: &[Record],
        sampler: &Sampler,
        touch: &mut impl FnMut(u64, Touch),
    ) -> u64 {
        let mut references = 0;
        for record in records {
            let Some(kind) = self.kind(record) else {
                continue;
            };
            let (first, pages) = self.pages(record);
            references += if kind == Touch::Reference { pages } else { 0 };
            for page in 0..pages {
                let name = first.wrapping_add(page);
                if sampler.keeps(name) {
                    touch(name, kind);
                }
            }
        }
        references
    }

    /// Returns the name of the first page of a record, and the number of its pages. The worst effect of an unverified
    /// record is a wrong count.
    #[inline]
    fn pages(&self, record: &Record) -> (u64, u64) {
        let pages = (self.end(record) + (1 << self.page_bits) - 1) >> self.page_bits;
        (self.name(record), pages)
    }

    /// Returns the name of the first page of a record. Volumes are 2^48 pages apart and overlap only if a volume is
    /// larger than that.
    #[inline]
    fn name(&self, record: &Record) -> u64 {
        let first = record.offset_bytes >> self.page_bits;
        first.wrapping_add(u64::from(record.volume()) << 48)
    }

    /// Returns the bytes from the start of the first page to the end of a record.
    #[inline]
    fn end(&self, record: &Record) -> u64 {
        (record.offset_bytes & ((1 << self.page_bits) - 1)) + u64::from(record.length_bytes)
    }

    #[inline]
    fn kind(&self, record: &Record) -> Option<Touch> {
        match (record.op(), self.cache) {
            (Op::Read, _) | (Op::Write, CacheKind::ReadWrite) => Some(Touch::Reference),
            (Op::Write, CacheKind::ReadsOnly) => Some(Touch::Drop),
            (Op::Trim | Op::Flush, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    fn records() -> Vec<Record> {
        let mut rng = algo::Rng::new(8, 0);
        (0..5000)
            .map(|i| {
                let op = Op::ALL[rng.below(4) as usize];
                let small = rng.below(3) > 0;
                Record::new(Request {
                    time_ns: i,
                    volume: rng.below(3) as u32,
                    op,
                    offset_bytes: rng.below(1 << 20) * 512,
                    length_bytes: 512 * (1 + rng.below(if small { 2 } else { 300 }) as u32),
                })
            })
            .collect()
    }

    /// Computes the references page by page from the byte ranges.
    fn oracle(records: &[Record], page: u64, cache: CacheKind) -> Vec<(u64, Touch)> {
        let mut touches = vec![];
        for r in records {
            let kind = match (r.op(), cache) {
                (Op::Read, _) | (Op::Write, CacheKind::ReadWrite) => Touch::Reference,
                (Op::Write, CacheKind::ReadsOnly) => Touch::Drop,
                _ => continue,
            };
            let mut last = None;
            for byte in (r.offset_bytes..r.end_offset_bytes()).step_by(512) {
                let name = u64::from(r.volume()) << 48 | (byte / page);
                if last.replace(name) != Some(name) {
                    touches.push((name, kind));
                }
            }
        }
        touches
    }

    #[test]
    fn requests_reference_their_pages_in_order() {
        let records = records();
        for cache in [CacheKind::ReadWrite, CacheKind::ReadsOnly] {
            for page in [512, 4096, 1 << 20] {
                let pages = PageReferences::new(Bytes(page), cache).unwrap();
                let want = oracle(&records, page, cache);
                let mut got = vec![];
                pages.each(&records, |name, kind| got.push((name, kind)));
                assert!(got == want, "{cache:?} {page}");
                for rate in [1.0, 0.05] {
                    let sampler = Sampler::new(rate, 3);
                    let mut got = vec![];
                    let references =
                        pages.sampled(&records, &sampler, |name, kind| got.push((name, kind)));
                    let kept = want.iter().filter(|t| sampler.keeps(t.0));
                    assert!(kept.eq(&got), "{cache:?} {page} {rate}");
                    let all = want.iter().filter(|t| t.1 == Touch::Reference).count();
                    assert_eq!(references, all as u64);
                }
            }
        }
    }

    #[test]
    fn unsupported_page_sizes_are_refused() {
        for page in [0, 256, 4095, 6144, 2 << 30] {
            assert!(PageReferences::new(Bytes(page), CacheKind::ReadWrite).is_none());
        }
    }
}
