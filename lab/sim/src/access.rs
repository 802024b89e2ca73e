//! Measurements of a workload's accesses, in numbers of objects: working set, sequential runs, reuse times and heavy
//! zones.

use std::collections::VecDeque;

use algo::mix;
use algo::mrc::{Confidence, Distances, ReuseTimes};
use slo::curve::{Curve, READS_MIN};
use slo::zones::{Zone, ZoneWindows};
use units::{Bytes, Nanos};

/// Length of a window of reuse times in samples (five minutes).
const WINDOW_SAMPLES: u32 = 30;
/// Length of a sample for the counts of zones.
const SAMPLE: Nanos = Nanos::from_secs(10);
/// Number of windows of reuse times that count, including the current one. Older windows do not represent the present
/// load.
const WINDOWS: usize = 2;

/// Access measurements of one workload.
pub(crate) struct Accesses {
    object_bytes: u32,
    zone_objects: u32,
    sampled: u32,
    /// 1 + number of the sample in which an object was last accessed, by object.
    last_sample: Vec<u32>,
    reads: u64,
    issues: u32,
    samples: u32,
    touched: u64,
    sequential: u64,
    /// Reuse times for a read cache that writes bypass: a write invalidates the object.
    reuse: ReuseTimes,
    /// Reuse times, and ages of objects that writes invalidated, of complete windows, latest first.
    windows: VecDeque<(Distances, Distances)>,
    zones: ZoneWindows,
}

/// Accesses of one sample.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SampleAccesses {
    /// Distinct bytes that were accessed.
    pub(crate) working_set: Bytes,
    /// Requests that began where the previous one ended.
    pub(crate) sequential: u64,
}

impl Accesses {
    /// Creates the measurement for `objects` objects. One in `sampled` objects counts for reuse and working sets, and
    /// one in `sampled` requests for zones.
    pub(crate) fn new(objects: u32, object_bytes: u32, zone: Bytes, sampled: u32) -> Self {
        Self {
            object_bytes,
            zone_objects: (zone.0 / u64::from(object_bytes)).max(1) as u32,
            sampled,
            last_sample: vec![0; objects as usize],
            reads: 0,
            issues: 0,
            samples: 0,
            touched: 0,
            sequential: 0,
            reuse: ReuseTimes::new(),
            windows: VecDeque::new(),
            zones: ZoneWindows::default(),
        }
    }

    /// Returns the sampling factor N: one in N objects is measured for reuse.
    pub(crate) fn sampled(&self) -> u32 {
        self.sampled
    }

    /// Records a read or write of an object. Returns true if the object is sampled for reuse.
    #[inline]
    pub(crate) fn issued(&mut self, object: u32, read: bool, follows: bool) -> bool {
        self.sequential += u64::from(follows);
        self.reads += u64::from(read);
        self.issues = self.issues.wrapping_add(1);
        if self.issues.is_multiple_of(self.sampled) {
            self.zones.add(u64::from(object / self.zone_objects), 1);
        }
        if self.sampled > 1
            && !mix(0x5A3, u64::from(object)).is_multiple_of(u64::from(self.sampled))
        {
            return false;
        }
        let at = object as usize;
        if self.last_sample[at] != self.samples + 1 {
            self.last_sample[at] = self.samples + 1;
            self.touched += 1;
        }
        let weight = f64::from(self.sampled);
        if read {
            self.reuse.reference(object, self.reads - 1, weight);
        } else {
            self.reuse.invalidate(object, self.reads, weight);
        }
        true
    }

    /// Ends a sample.
    pub(crate) fn end_sample(&mut self) -> SampleAccesses {
        let touched = std::mem::take(&mut self.touched);
        let bytes = touched * u64::from(self.sampled) * u64::from(self.object_bytes);
        self.samples += 1;
        self.zones.end_sample(SAMPLE);
        if self.samples.is_multiple_of(WINDOW_SAMPLES) {
            self.windows.push_front(self.reuse.take_window());
            self.windows.truncate(WINDOWS - 1);
        }
        SampleAccesses {
            working_set: Bytes(bytes),
            sequential: std::mem::take(&mut self.sequential),
        }
    }

    /// Returns the miss-ratio curve of the reads of the last five to ten minutes, from reuse times; `None` with too few
    /// reads.
    pub(crate) fn curve(&self) -> Option<Curve> {
        let (mut times, mut dropped) = (self.reuse.times().clone(), self.reuse.dropped().clone());
        for window in &self.windows {
            times.merge(&window.0);
            dropped.merge(&window.1);
        }
        if times.total() < READS_MIN * f64::from(self.sampled) {
            return None;
        }
        let curve = ReuseTimes::curve_of(&times, &dropped, Confidence::default());
        Some(Curve::of_blocks(
            &curve,
            Bytes(u64::from(self.object_bytes)),
        ))
    }

    /// Returns the heavy zones as of `ago` windows ago ([`ZoneWindows::zones`]).
    pub(crate) fn zones(&self, ago: usize) -> Vec<Zone> {
        self.zones.zones(ago)
    }
}

#[cfg(test)]
mod tests {
    use algo::mrc::ExactCurve;
    use algo::{Popularity, Rng};

    use super::*;

    /// Three in ten requests are writes. They free space that the next reads use.
    #[test]
    fn miss_ratio_curve_accounts_for_pages_dropped_by_writes() {
        const OBJECTS: u64 = 8000;
        const SAMPLES: usize = 105;
        for (theta, writes) in [(0.9, 0.3), (0.6, 0.3), (0.9, 0.0)] {
            let (popularity, mut rng) = (Popularity::new(OBJECTS, theta), Rng::new(3, 8));
            let mut accesses = Accesses::new(OBJECTS as u32, 4096, Bytes::mib(1), 1);
            let sizes: Vec<u64> = (1..=16).map(|i| i * OBJECTS / 16).collect();
            let mut exact = ExactCurve::new();
            let hits =
                |exact: &ExactCurve| sizes.iter().map(|s| exact.hits(*s)).collect::<Vec<_>>();
            let mut before = (0, vec![0; sizes.len()]);
            // Three and a half windows, of which the last one and a half count.
            for sample in 0..SAMPLES {
                if sample == 60 {
                    before = (exact.references(), hits(&exact));
                }
                for _ in 0..240_000 / SAMPLES {
                    let object = popularity.page(rng.next_u64()) as u32;
                    let read = rng.unit() >= writes;
                    accesses.issued(object, read, false);
                    match read {
                        true => exact.feed(&[object]),
                        false => exact.invalidate(object),
                    }
                }
                accesses.end_sample();
            }
            let curve = accesses.curve().expect("enough reads");
            let reads = (exact.references() - before.0) as f64;
            for ((size, all), before) in sizes.iter().zip(hits(&exact)).zip(before.1) {
                let want = 1.0 - (all - before) as f64 / reads;
                let ours = curve.at(Bytes(4096 * size));
                assert!(
                    (ours - want).abs() <= 0.02,
                    "theta {theta}, writes {writes}, size {size}: {ours} {want}"
                );
            }
        }
    }
}
