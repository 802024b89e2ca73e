//! Step 5: predictions for all pairs of workload and cache size, and choice of the sufficient pair with the least memory.

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::load::{Backend, Change, Prediction, Stream, predict};
use crate::sample::WorkloadId;
use crate::sizing::SizingConfig;

/// Tie-breakers between solutions of equal size (heuristics of the paper, sec. 5.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Temper {
    /// Present rate relative to the mean of the hour before. Above 1.5 the workload is at a peak, and its working set is
    /// likely new.
    pub rate_over_mean: f64,
    /// Standard deviation of the working set relative to its mean.
    pub working_set_varies: f64,
}

/// Smallest `rate_over_mean` of a peak.
const PEAK_FROM: f64 = 1.5;

/// Prediction of one pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// Workload with the cache.
    pub workload: WorkloadId,
    /// Size of the cache.
    pub size: Bytes,
    /// Expected share of the workload's reads that miss.
    pub miss_ratio: f64,
    /// Tie-breakers of the workload.
    pub temper: Temper,
    /// Predicted state with the cache.
    pub prediction: Prediction,
}

/// Returns all pairs of `workloads` and sizes, in that order. A workload without a curve has no pairs.
pub fn solutions(
    backend: &Backend,
    streams: &[Stream],
    sizing: &SizingConfig,
    workloads: &[(WorkloadId, Temper)],
) -> Vec<Solution> {
    let mut all = Vec::new();
    for (workload, temper) in workloads {
        let stream = streams.iter().find(|s| s.workload == *workload);
        let Some(curve) = stream.and_then(|s| s.curve.as_ref()) else {
            continue;
        };
        for (size, miss_ratio) in sizing.candidates(curve) {
            let read_bytes = stream.map_or(0.0, |s| s.read_bytes).max(1.0);
            let change = Change::Cached {
                workload: *workload,
                size,
                grows: (sizing.page.as_f64() / read_bytes).max(1.0),
            };
            all.push(Solution {
                workload: *workload,
                size,
                miss_ratio,
                temper: *temper,
                prediction: predict(backend, streams, &change),
            });
        }
    }
    all
}

/// Returns the best solution that satisfies `does`. It has the smallest value of `leaves`, then the least memory. Among
/// equals, a workload that is not at a peak comes first, then the steadier working set, then the lower number.
pub fn best(
    solutions: &[Solution],
    does: impl Fn(&Solution) -> bool,
    leaves: impl Fn(&Solution) -> u64,
) -> Option<&Solution> {
    let peaks = |s: &Solution| s.temper.rate_over_mean > PEAK_FROM;
    solutions.iter().filter(|s| does(s)).min_by(|a, b| {
        (leaves(a), a.size, peaks(a))
            .cmp(&(leaves(b), b.size, peaks(b)))
            .then(
                a.temper
                    .working_set_varies
                    .total_cmp(&b.temper.working_set_varies),
            )
            .then(a.workload.cmp(&b.workload))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solution(workload: u16, gib: u64, fails: Option<&str>, temper: (f64, f64)) -> Solution {
        Solution {
            workload: WorkloadId(workload),
            size: Bytes::gib(gib),
            miss_ratio: 0.1,
            temper: Temper {
                rate_over_mean: temper.0,
                working_set_varies: temper.1,
            },
            prediction: Prediction {
                uses: vec![],
                disk_reads: vec![],
                available_per_s: vec![],
                fails: fails.map(String::from),
            },
        }
    }

    #[test]
    fn solution_has_least_memory_then_no_peak_then_steady_load() {
        let all = [
            solution(0, 2, Some("disks"), (1.0, 0.0)),
            solution(0, 4, None, (2.0, 0.1)),
            solution(1, 4, None, (1.0, 0.9)),
            solution(2, 4, None, (1.2, 0.2)),
            solution(3, 8, None, (1.0, 0.0)),
        ];
        let choice = |n: &[usize]| {
            let some: Vec<_> = n.iter().map(|i| all[*i].clone()).collect();
            let does = |s: &Solution| s.prediction.fails.is_none();
            best(&some, does, |_| 0).map(|s| (s.workload.0, s.size))
        };
        assert_eq!(choice(&[0, 1, 2, 3, 4]), Some((2, Bytes::gib(4))));
        assert_eq!(choice(&[0, 1, 2, 4]), Some((1, Bytes::gib(4))));
        assert_eq!(choice(&[0, 1, 4]), Some((0, Bytes::gib(4))));
        assert_eq!(choice(&[0, 4]), Some((3, Bytes::gib(8))));
        assert_eq!(choice(&[0]), None);
        // The smaller value of `leaves` comes first, whatever the size.
        let leaves = |s: &Solution| u64::from(s.size < Bytes::gib(8));
        let most = best(&all, |s| s.prediction.fails.is_none(), leaves);
        assert_eq!(most.map(|s| s.size), Some(Bytes::gib(8)));
    }
}
