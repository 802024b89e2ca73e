//! Heavily accessed zones by lossy counting (Manku and Motwani, VLDB 2002): who has more than a given share of all accesses,
//! in memory that does not grow with their number.
//!
//! Every zone above the share s is reported, none below s − ε is, and a count is at most ε·N too low. ε is a tenth of s.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Share of the accesses from which a zone is heavily accessed (the paper's 0.1 %).
pub const SHARE_MIN: f64 = 0.001;
const EPSILON: f64 = SHARE_MIN / 10.0;
/// Accesses in a bucket, ⌈1/ε⌉.
const BUCKET: u64 = 10_000;

/// A zone and its share of the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// Its number: offset over the size of a zone.
    pub number: u64,
    /// Share of the accesses, 0..=1; at most ε too low.
    pub share: f64,
}

/// Counts one stream of accesses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ZoneCounter {
    /// Count, and how many may have been missed before.
    entries: BTreeMap<u64, (u64, u64)>,
    seen: u64,
}

impl ZoneCounter {
    /// Counts an access to a zone.
    pub fn record(&mut self, zone: u64) {
        let bucket = self.seen / BUCKET;
        self.entries
            .entry(zone)
            .and_modify(|(count, _)| *count += 1)
            .or_insert((1, bucket));
        self.seen += 1;
        if self.seen.is_multiple_of(BUCKET) {
            let ended = self.seen / BUCKET;
            self.entries
                .retain(|_, (count, missed)| *count + *missed > ended);
        }
    }

    /// Accesses counted.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Zones that are kept, heavily accessed or not.
    pub fn kept(&self) -> usize {
        self.entries.len()
    }

    /// Heavily accessed zones, the heaviest first.
    pub fn heavy(&self) -> Vec<Zone> {
        let seen = self.seen as f64;
        let enough = (SHARE_MIN - EPSILON) * seen;
        let entries = self.entries.iter();
        let mut zones: Vec<Zone> = entries
            .filter(|(_, (count, _))| *count as f64 >= enough)
            .map(|(number, (count, _))| Zone {
                number: *number,
                share: *count as f64 / seen,
            })
            .collect();
        zones.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.number.cmp(&b.number)));
        zones
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.seen = 0;
    }
}

/// How alike two sets of zones are: common ones over all, 0..=1 (Jaccard). Two empty sets are alike.
pub fn likeness(a: &[Zone], b: &[Zone]) -> f64 {
    let numbers = |zones: &[Zone]| -> std::collections::BTreeSet<u64> {
        zones.iter().map(|z| z.number).collect()
    };
    let (a, b) = (numbers(a), numbers(b));
    let all = a.union(&b).count();
    if all == 0 {
        return 1.0;
    }
    a.intersection(&b).count() as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::{Popularity, Rng};

    #[test]
    fn no_heavy_zone_is_missed_and_no_light_one_reported() {
        let popularity = Popularity::new(50_000, 1.0);
        let mut rng = Rng::new(4, 4);
        let mut counter = ZoneCounter::default();
        let mut exact: BTreeMap<u64, u64> = BTreeMap::new();
        let n = 400_000;
        for _ in 0..n {
            let zone = popularity.page(rng.next_u64());
            counter.record(zone);
            *exact.entry(zone).or_default() += 1;
        }
        let heavy = counter.heavy();
        let found = |zone: u64| heavy.iter().find(|z| z.number == zone);
        let mut expected = 0;
        for (zone, count) in &exact {
            let share = *count as f64 / n as f64;
            if share >= SHARE_MIN {
                expected += 1;
                let counted = found(*zone).expect("no false negative").share;
                assert!(counted <= share && counted >= share - EPSILON);
            }
            if share < SHARE_MIN - EPSILON {
                assert!(found(*zone).is_none());
            }
        }
        assert!(expected > 20);
        assert!(counter.kept() < 20_000, "{}", counter.kept());
    }

    #[test]
    fn likeness_counts_common_zones() {
        let zones = |numbers: &[u64]| -> Vec<Zone> {
            numbers
                .iter()
                .map(|n| Zone {
                    number: *n,
                    share: 0.1,
                })
                .collect()
        };
        assert_eq!(likeness(&zones(&[1, 2, 3]), &zones(&[2, 3, 4])), 0.5);
        assert_eq!(likeness(&[], &[]), 1.0);
        assert_eq!(likeness(&zones(&[1]), &[]), 0.0);
    }
}
