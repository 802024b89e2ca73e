//! Step 5: all (workload, cache size) pairs, which of them would do, and the one that takes the least memory.

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::load::{Backend, Change, Prediction, Stream, predict};
use crate::sample::WorkloadId;
use crate::sizing::SizingConfig;

/// What breaks ties between solutions of one size (heuristics of the paper, sec. 5.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Temper {
    /// Present rate over its mean of the hour before; above 1.5 the workload is at a peak, and its set likely new.
    pub rate_over_mean: f64,
    /// Standard deviation of its working set over its mean.
    pub working_set_varies: f64,
}

/// From here on a workload is at a peak.
const PEAK_FROM: f64 = 1.5;

/// One pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// Who is cached.
    pub workload: WorkloadId,
    /// How large the cache is.
    pub size: Bytes,
    /// Expected share of its reads that miss.
    pub miss_ratio: f64,
    /// Its peak and its constancy.
    pub temper: Temper,
    /// What would be.
    pub prediction: Prediction,
}

/// All pairs of `workloads` and sizes, in that order; `None` of them for a workload without a curve.
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

/// The one that `does` and leaves least of what `leaves` says, then with the least memory; of equals, the workload that is not at a peak, then the one with the
/// steadier working set, then the lower number.
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
    fn least_memory_then_no_peak_then_steady() {
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
        // What leaves less goes first, however large.
        let leaves = |s: &Solution| u64::from(s.size < Bytes::gib(8));
        let most = best(&all, |s| s.prediction.fails.is_none(), leaves);
        assert_eq!(most.map(|s| s.size), Some(Bytes::gib(8)));
    }
}
