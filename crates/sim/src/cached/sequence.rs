//! Recorded requests as references to pages, without their times: what volumes of a made-up customer ask for.

use algo::{JitterTable, mix};
use model::Op;
use units::Bytes;

/// Requests that are played one after the other before the player jumps.
const PIECE: usize = 4096;

/// A request as references to pages of its sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    /// First page, in dense numbers.
    pub(super) first: u32,
    /// Pages, at least one.
    pub(super) pages: u16,
    /// Whether it writes.
    pub(super) write: bool,
}

/// The requests of one recorded trace in their order. Extents that are never touched are left out, so pages are dense.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Where it is from.
    pub name: String,
    references: Vec<Reference>,
    extents: u32,
}

impl Sequence {
    /// From reads and writes with offset and length; flushes and trims, and what is empty, are passed over. `None` when nothing is left or
    /// there are 2^32 pages and more.
    pub fn new(
        name: &str,
        requests: &[(Op, u64, u64)],
        page: Bytes,
        pages_per_extent: u32,
    ) -> Option<Self> {
        let extent = page.0 * u64::from(pages_per_extent);
        let wanted = |r: &&(Op, u64, u64)| matches!(r.0, Op::Read | Op::Write) && r.2 > 0;
        // Longer ones than a reference can say are cut; no known trace has any.
        let length = |r: &(Op, u64, u64)| r.2.min(page.0 * 60_000);
        let mut touched: Vec<u64> = Vec::new();
        for r in requests.iter().filter(wanted) {
            let last = r.1.checked_add(length(r) - 1)? / extent;
            touched.extend(r.1 / extent..=last);
        }
        touched.sort_unstable();
        touched.dedup();
        let pages = touched.len() as u64 * u64::from(pages_per_extent);
        if touched.is_empty() || pages > u64::from(u32::MAX) {
            return None;
        }
        let per_extent = u64::from(pages_per_extent);
        let dense = |page_no: u64| {
            let at = touched.binary_search(&(page_no / per_extent));
            let at = at.expect("its extent is touched") as u64;
            (at * per_extent + page_no % per_extent) as u32
        };
        let references = requests.iter().filter(wanted).map(|r| {
            let (first, last) = (r.1 / page.0, (r.1 + length(r) - 1) / page.0);
            Reference {
                first: dense(first),
                pages: (last - first + 1) as u16,
                write: r.0 == Op::Write,
            }
        });
        Some(Self {
            name: name.into(),
            references: references.collect(),
            extents: touched.len() as u32,
        })
    }

    /// Extents that are touched.
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// Requests.
    pub fn requests(&self) -> usize {
        self.references.len()
    }

    /// Pages asked for by a request, on average.
    pub fn pages_mean(&self) -> f64 {
        let pages: u64 = self.references.iter().map(|r| u64::from(r.pages)).sum();
        pages as f64 / self.references.len() as f64
    }

    /// Share of requests that write, 0..=1.
    pub fn write_share(&self) -> f64 {
        let writes = self.references.iter().filter(|r| r.write).count();
        writes as f64 / self.references.len() as f64
    }

    /// The part of it within its first `extents` extents, for smaller volumes; `None` when nothing is left.
    #[must_use]
    pub fn within(&self, extents: u32, pages_per_extent: u32) -> Option<Self> {
        let end = extents.saturating_mul(pages_per_extent);
        let inside = |r: &&Reference| r.first + u32::from(r.pages) <= end;
        let references: Vec<Reference> = self.references.iter().filter(inside).copied().collect();
        (!references.is_empty()).then(|| Self {
            name: self.name.clone(),
            references,
            extents: extents.min(self.extents),
        })
    }
}

/// Plays a sequence for one volume: pieces of it in an order that is drawn, at times of a Poisson process whose rate changes slot by
/// slot.
#[derive(Debug, Clone)]
pub(super) struct Player<'a> {
    sequence: &'a Sequence,
    /// Requests per second by slot; past the end it begins again.
    rates: &'a [f32],
    slot_ns: u64,
    stream: u64,
    drawn: u64,
    at: usize,
    left: usize,
}

impl<'a> Player<'a> {
    pub(super) fn new(sequence: &'a Sequence, rates: &'a [f32], slot_ns: u64, stream: u64) -> Self {
        Self {
            sequence,
            rates,
            slot_ns,
            stream,
            drawn: 0,
            at: 0,
            left: 0,
        }
    }

    /// Random numbers drawn so far: another one with each request.
    #[inline]
    pub(super) fn drawn(&self) -> u64 {
        mix(self.stream, self.drawn)
    }

    #[inline]
    fn bits(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.stream, self.drawn)
    }

    /// When the next request comes after `now_ns`; `None` when no slot has any.
    #[inline]
    pub(super) fn next_time(&mut self, now_ns: u64, exponential: &JitterTable) -> Option<u64> {
        let mut now = now_ns;
        let mut rest = exponential.factor(self.bits());
        // A gap that crosses the end of a slot goes on in the next one at its rate.
        for _ in 0..=self.rates.len() {
            let slot = (now / self.slot_ns) as usize;
            let rate = f64::from(self.rates[slot % self.rates.len()]) * 1e-9;
            let end = (slot as u64 + 1) * self.slot_ns;
            let possible = (end - now) as f64 * rate;
            if rest < possible {
                return Some(now + (rest / rate) as u64);
            }
            rest -= possible;
            now = end;
        }
        None
    }

    #[inline]
    pub(super) fn next(&mut self) -> Reference {
        let all = &self.sequence.references;
        if self.left == 0 {
            let pieces = all.len().div_ceil(PIECE) as u64;
            let bits = self.bits();
            let piece = ((u128::from(bits) * u128::from(pieces)) >> 64) as usize;
            self.at = piece * PIECE;
            self.left = PIECE.min(all.len() - self.at);
        }
        let reference = all[self.at];
        self.at += 1;
        self.left -= 1;
        reference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Bytes = Bytes(65536);

    #[test]
    fn pages_are_dense_and_requests_keep_their_neighbours() {
        let extent = 65536 * 60;
        let requests = [
            (Op::Read, 10 * extent + 65536, 4096),
            (Op::Write, 20 * extent - 4096, 8192),
            (Op::Flush, 0, 0),
            (Op::Read, 10 * extent, 131072),
        ];
        let s = Sequence::new("t", &requests, PAGE, 60).unwrap();
        assert_eq!((s.extents(), s.requests()), (3, 3));
        let found: Vec<_> = s.references.iter().map(|r| (r.first, r.pages)).collect();
        // Extents 10, 19 and 20 are 0, 1 and 2.
        assert_eq!(found, [(1, 1), (119, 2), (0, 2)]);
        assert!((s.write_share() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(s.within(1, 60).unwrap().requests(), 2);
        assert!(Sequence::new("t", &[(Op::Flush, 0, 0)], PAGE, 60).is_none());
    }

    #[test]
    fn rates_are_kept_and_silent_slots_are_silent() {
        let s = Sequence::new("t", &[(Op::Read, 0, 4096)], PAGE, 60).unwrap();
        let rates = [100.0, 0.0, 300.0];
        let slot = 1_000_000_000_000;
        let table = JitterTable::exponential();
        let mut player = Player::new(&s, &rates, slot, 7);
        let (mut now, mut counts) = (0, [0u32; 3]);
        while let Some(next) = player.next_time(now, &table).filter(|t| *t < 3 * slot) {
            counts[(next / slot) as usize] += 1;
            player.next();
            now = next;
        }
        assert!(
            (f64::from(counts[0]) / 1e5 - 1.0).abs() < 0.02,
            "{counts:?}"
        );
        assert_eq!(counts[1], 0);
        assert!(
            (f64::from(counts[2]) / 3e5 - 1.0).abs() < 0.02,
            "{counts:?}"
        );
        assert!(
            Player::new(&s, &[0.0], slot, 1)
                .next_time(0, &table)
                .is_none()
        );
    }
}
