//! Random loads of workloads: requests at random times in phases, mostly to one hot region per phase.

use algo::{Popularity, Rng};
use model::Op;
use trace::{Record, Request};
use units::Nanos;

/// Part of a workload's data, and the distribution of its requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Region {
    /// First object.
    pub(super) first: u32,
    /// Number of objects.
    pub(super) objects: u32,
    /// Skew; 0 is uniform.
    pub(super) theta: f64,
}

/// Phase with constant parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LoadPhase {
    /// End of the phase.
    pub(super) until: Nanos,
    /// Requests per second.
    pub(super) rate_per_s: f64,
    /// Index of the hot region.
    pub(super) hot: usize,
    /// Share of the reads that go to all data instead, uniformly.
    pub(super) cold_share: f64,
    /// Share of writes among the requests; they go to all data.
    pub(super) write_share: f64,
}

/// Random load.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RandomLoad {
    /// Phases in order of time.
    pub(super) phases: Vec<LoadPhase>,
    /// Hot regions.
    pub(super) regions: Vec<Region>,
    /// Total number of objects.
    pub(super) objects: u32,
    /// Bytes of an object and of a request.
    pub(super) object_bytes: u32,
    /// Seed of the draws.
    pub(super) seed: u64,
}

impl RandomLoad {
    /// Returns its requests up to a time, all of volume 0.
    pub(super) fn records(&self, until: Nanos) -> Vec<Record> {
        let of = |r: &Region| Popularity::new(u64::from(r.objects), r.theta);
        let popularities: Vec<Popularity> = self.regions.iter().map(of).collect();
        let mut rng = Rng::new(self.seed, 0x10AD);
        let mut phases = self.phases.iter().peekable();
        let mut records = Vec::new();
        let mut at_ns = 0.0;
        let mut gap = rng.exponential();
        while let Some(phase) = phases.peek() {
            let end_ns = phase.until.as_f64();
            let next_ns = at_ns + gap * 1e9 / phase.rate_per_s;
            if next_ns >= end_ns {
                // The rest of the gap is scaled to the rate of the next phase.
                gap = (next_ns - end_ns) * phase.rate_per_s / 1e9;
                at_ns = end_ns;
                phases.next();
                continue;
            }
            at_ns = next_ns;
            if at_ns >= until.as_f64() {
                break;
            }
            let bits = rng.next_u64();
            let write = rng.unit() < phase.write_share;
            let object = if write || rng.unit() < phase.cold_share {
                ((u128::from(bits) * u128::from(self.objects)) >> 64) as u64
            } else {
                let first = self.regions[phase.hot].first;
                u64::from(first) + popularities[phase.hot].rank(bits)
            };
            records.push(Record::new(Request {
                time_ns: at_ns as u64,
                volume: 0,
                op: if write { Op::Write } else { Op::Read },
                offset_bytes: object * u64::from(self.object_bytes),
                length_bytes: self.object_bytes,
            }));
            gap = rng.exponential();
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_their_rates_shares_and_regions() {
        let phase = |until, rate_per_s| LoadPhase {
            until: Nanos::from_secs(until),
            rate_per_s,
            hot: 0,
            cold_share: 0.1,
            write_share: 0.2,
        };
        let load = RandomLoad {
            phases: vec![phase(10, 1000.0), phase(20, 100.0)],
            regions: vec![Region {
                first: 10,
                objects: 50,
                theta: 0.0,
            }],
            objects: 1000,
            object_bytes: 8192,
            seed: 3,
        };
        let all = load.records(Nanos::from_secs(100));
        let ten = Nanos::from_secs(10).0;
        let first = all.iter().filter(|r| r.time_ns < ten).count();
        assert!((9_700..10_300).contains(&first), "{first}");
        assert!((900..1_100).contains(&(all.len() - first)));
        let object = |r: &Record| r.offset_bytes / 8192;
        let hot = all.iter().filter(|r| (10..60).contains(&object(r))).count() as f64;
        assert!((hot / all.len() as f64 - 0.734).abs() < 0.01);
        let writes = all.iter().filter(|r| r.op() == Op::Write).count() as f64;
        assert!((writes / all.len() as f64 - 0.2).abs() < 0.01);
        assert!(all.windows(2).all(|w| w[0].time_ns <= w[1].time_ns));
        let half = load.records(Nanos::from_secs(5));
        assert_eq!(half, all[..half.len()]);
        assert!(all[half.len()].time_ns >= Nanos::from_secs(5).0);
    }
}
