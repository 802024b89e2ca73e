//! Miss-ratio curves of volumes whose cache a remedy may change, from monotonic counters.
//!
//! ```text
//!   start of measuring ── base ────────── mark ─────── now        curve of base … now: at least five minutes, longer with few reads
//! ```
//!
//! Counters are read while the controller requests a curve. Before the first five minutes have passed, a curve covers all counts
//! since the start of measuring.

use std::collections::BTreeMap;

use algo::mrc::Distances;
use slo::curve::{Curve, READS_MIN};
use units::Bytes;

use super::Snapshot;
use crate::wire::CurvePoint;

/// Least time that a curve covers.
const RECENT_NS: u64 = 300_000_000_000;

/// Reuse distances of a volume's pages, counted since the start of measuring.
#[derive(Debug, Clone, PartialEq)]
pub struct ReuseSnapshot {
    /// Size of a page.
    pub page_bytes: u64,
    /// References to pages by reads.
    pub references: u64,
    /// Reuse distances: number of distinct pages read since the last read of the page.
    pub distances: Distances,
    /// Share of the pages that is sampled.
    pub rate: f64,
}

#[derive(Debug)]
struct Volume {
    /// Counts at the begin of the curve; none means zero.
    base: Option<ReuseSnapshot>,
    /// Next base, and its time.
    mark: ReuseSnapshot,
    marked_ns: u64,
    now: ReuseSnapshot,
}

/// Volumes whose curves are requested.
#[derive(Debug, Default)]
pub(super) struct WatchedVolumes {
    wanted: Vec<String>,
    volumes: BTreeMap<String, Volume>,
}

impl WatchedVolumes {
    pub(super) fn wanted(&mut self, volumes: &[String]) {
        self.wanted = volumes.to_vec();
        self.volumes.retain(|name, _| volumes.contains(name));
    }

    pub(super) fn wants(&self, volume: &str) -> bool {
        self.wanted.iter().any(|v| v == volume)
    }

    /// Adds the counts of a snapshot.
    pub(super) fn watch(&mut self, now_ns: u64, snapshot: &Snapshot) {
        let all = snapshot.volumes.iter();
        for (name, seen) in all.filter_map(|v| Some((&v.name, v.reuse.as_ref()?))) {
            let known = self.volumes.get_mut(name).filter(|v| {
                v.now.page_bytes == seen.page_bytes && v.now.references <= seen.references
            });
            let Some(known) = known else {
                let new = Volume {
                    base: None,
                    mark: seen.clone(),
                    marked_ns: now_ns,
                    now: seen.clone(),
                };
                self.volumes.insert(name.clone(), new);
                continue;
            };
            known.now = seen.clone();
            let is_time = now_ns.saturating_sub(known.marked_ns) >= RECENT_NS;
            if is_time && enough(seen, &seen.distances.since(&known.mark.distances)) {
                known.base = Some(std::mem::replace(&mut known.mark, seen.clone()));
                known.marked_ns = now_ns;
            }
        }
    }

    /// Curve of a volume; none with too few reads.
    pub(super) fn curve(&self, volume: &str) -> Option<Vec<CurvePoint>> {
        let Volume { base, now, .. } = self.volumes.get(volume)?;
        let distances = match base {
            Some(base) => now.distances.since(&base.distances),
            None => now.distances.clone(),
        };
        if !enough(now, &distances) {
            return None;
        }
        let curve = distances.curve(algo::mrc::Confidence::default());
        let curve = Curve::of_blocks(&curve, Bytes(now.page_bytes));
        let points = curve.points().iter().map(|(size, ratio)| CurvePoint {
            bytes: size.0,
            miss_ratio: *ratio,
        });
        Some(points.collect())
    }
}

/// Returns true if distances are based on enough sampled reads.
fn enough(of: &ReuseSnapshot, distances: &Distances) -> bool {
    distances.total() * of.rate >= READS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::VolumeSnapshot;

    fn seen(distances: &Distances) -> ReuseSnapshot {
        ReuseSnapshot {
            page_bytes: 4096,
            references: distances.total() as u64,
            distances: distances.clone(),
            rate: 1.0,
        }
    }

    fn at(watched: &mut WatchedVolumes, minutes: u64, distances: &Distances) {
        let snapshot = Snapshot {
            volumes: vec![VolumeSnapshot {
                name: "orders".into(),
                reuse: Some(seen(distances)),
                ..VolumeSnapshot::default()
            }],
            ..Snapshot::default()
        };
        watched.watch(minutes * 60_000_000_000, &snapshot);
    }

    fn read(counted: &mut Distances, distance: u64, times: u64) {
        (0..times).for_each(|_| counted.add(Some(distance), 1.0));
    }

    fn misses(watched: &WatchedVolumes, pages: u64) -> Option<f64> {
        let points = watched.curve("orders")?.into_iter();
        let points = points.map(|p| (Bytes(p.bytes), p.miss_ratio));
        Some(Curve::new(points.collect()).at(Bytes(pages * 4096)))
    }

    /// Repeated reads of a hundred pages, then of a thousand.
    #[test]
    fn curve_covers_the_last_minutes_and_requires_enough_reads() {
        let mut watched = WatchedVolumes::default();
        watched.wanted(&["orders".into()]);
        assert!(watched.wants("orders") && !watched.wants("batch"));
        let mut counted = Distances::new();
        at(&mut watched, 0, &counted);
        assert_eq!(misses(&watched, 100), None);
        read(&mut counted, 100, 900);
        at(&mut watched, 1, &counted);
        assert_eq!(misses(&watched, 100), None, "too few");
        read(&mut counted, 100, 9_100);
        at(&mut watched, 2, &counted);
        assert_eq!(misses(&watched, 100), Some(0.0));
        // The load changes for many minutes, and the earlier one counts less and less.
        for minute in 3..20 {
            read(&mut counted, 1000, 2_000);
            at(&mut watched, minute, &counted);
        }
        assert!(misses(&watched, 500).unwrap() > 0.99);
        assert_eq!(misses(&watched, 1010), Some(0.0));
        // Counters that were reset begin a new curve.
        let anew = Distances::new();
        at(&mut watched, 20, &anew);
        assert_eq!(misses(&watched, 1010), None);
        watched.wanted(&[]);
        assert_eq!(watched.curve("orders"), None);
    }
}
