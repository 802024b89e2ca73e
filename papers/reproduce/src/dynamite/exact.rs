//! Exact miss ratios of an LRU cache over logged accesses.

use algo::mrc::ExactCurve;
use sim::AccessLog;

/// Returns the miss ratios of an LRU cache at `sizes` (in objects) over the reads of `log` from `from` on. A write
/// drops its object.
pub(super) fn exact_lru(log: &[u32], from: usize, sizes: &[u64]) -> Vec<f64> {
    let mut exact = ExactCurve::new();
    let (before, after) = log.split_at(from.min(log.len()));
    follow(&mut exact, before);
    let hits = |exact: &ExactCurve| -> Vec<u64> { sizes.iter().map(|s| exact.hits(*s)).collect() };
    let (reads_before, hits_before) = (exact.references(), hits(&exact));
    follow(&mut exact, after);
    let reads = (exact.references() - reads_before).max(1) as f64;
    let pairs = hits(&exact).into_iter().zip(hits_before);
    pairs
        .map(|(all, before)| 1.0 - (all - before) as f64 / reads)
        .collect()
}

fn follow(exact: &mut ExactCurve, log: &[u32]) {
    for alike in log.chunk_by(|a, b| (a ^ b) & AccessLog::WROTE == 0) {
        if alike[0] & AccessLog::WROTE == 0 {
            exact.feed(alike);
        } else {
            let objects = alike.iter().map(|w| w & !AccessLog::WROTE);
            objects.for_each(|o| exact.invalidate(o));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use algo::{Popularity, Rng};

    use super::*;

    const WROTE: u32 = AccessLog::WROTE;

    /// Simulates a write-around cache of `size` objects that drops written ones; returns the misses of the reads from
    /// `from` on.
    fn simulated(log: &[u32], from: usize, size: usize) -> f64 {
        let mut order: BTreeMap<usize, u32> = BTreeMap::new();
        let mut when: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut reads, mut misses) = (0, 0);
        for (now, entry) in log.iter().enumerate() {
            let object = entry & !WROTE;
            let held = when.remove(&object);
            held.map(|then| order.remove(&then));
            if entry & WROTE != 0 {
                continue;
            }
            if now >= from {
                reads += 1;
                misses += u32::from(held.is_none());
            }
            if order.len() == size {
                let (_, evicted) = order.pop_first().expect("it is full");
                when.remove(&evicted);
            }
            order.insert(now, object);
            when.insert(object, now);
        }
        f64::from(misses) / f64::from(reads)
    }

    #[test]
    fn exact_ratios_match_a_simulated_cache() {
        let (popularity, mut rng) = (Popularity::new(60, 0.5), Rng::new(8, 8));
        let mut one = || {
            let object = popularity.page(rng.next_u64()) as u32;
            let wrote = rng.unit() < 0.1;
            if wrote { object | WROTE } else { object }
        };
        let log: Vec<u32> = (0..4000).map(|_| one()).collect();
        let sizes = [1, 5, 20, 40, 60];
        let found = exact_lru(&log, 1000, &sizes);
        for (size, found) in sizes.iter().zip(found) {
            let want = simulated(&log, 1000, *size as usize);
            assert!((found - want).abs() < 1e-12, "size {size}: {found} {want}");
        }
    }
}
