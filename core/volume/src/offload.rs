//! Share of the reads of mirrored extents that go to the mirror.
//!
//! The share is adjusted every few hundred milliseconds towards the end with the lower latency, in proportion to the
//! difference, until both latencies are equal. With both ends saturated, this is also the point of highest total throughput.
//! So one rule serves latency and throughput. (The idea is that of mirror-optimized tiering: balance by measured latency,
//! not by nominal performance of devices.)

use units::Nanos;

/// Interval of adjustment.
pub const OFFLOAD_LOOK: Nanos = Nanos(200_000_000);

/// Reads of mirrored extents that one end completed since the last adjustment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndReads {
    /// Number of reads.
    pub count: u64,
    /// Sum of their latencies, ns.
    pub sum_ns: u64,
}

impl EndReads {
    /// Adds a read.
    #[inline]
    pub fn add(&mut self, latency_ns: u64) {
        self.count += 1;
        self.sum_ns += latency_ns;
    }
}

/// Limits of the share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OffloadLimits {
    /// Smallest share: the reads that are needed to measure the mirror.
    pub least: f64,
    /// Largest share.
    pub most: f64,
}

impl Default for OffloadLimits {
    fn default() -> Self {
        Self {
            least: 1.0 / 64.0,
            most: 0.9,
        }
    }
}

/// Share until the mirror's latency is known. With a smaller one, a volume of a hundred reads per second would need minutes
/// to measure it.
const FIRST: f64 = 1.0 / 8.0;
/// Largest change of the share in one adjustment.
const STEP_MAX: f64 = 0.04;
/// Change of the share if one end is infinitely slower than the other.
const GAIN: f64 = 0.08;
/// Smallest number of reads of an end for a useful mean.
const READS_MIN: u64 = 8;
/// Weight of one interval in the smoothed latencies.
const WEIGHT: f64 = 0.3;

/// Share of one volume and its measurements.
#[derive(Debug, Clone)]
pub struct Offload {
    limits: OffloadLimits,
    share: f64,
    /// Reads of both ends that are too few for a mean so far.
    waiting: [EndReads; 2],
    /// Smoothed latencies of source and mirror, ns; `None` before enough reads.
    mean_ns: [Option<f64>; 2],
}

impl Offload {
    /// Starts with a share of reads that suffices to measure the mirror.
    pub fn new(limits: OffloadLimits) -> Self {
        let least = limits.least.min(limits.most);
        let limits = OffloadLimits { least, ..limits };
        Self {
            share: FIRST.clamp(least, limits.most),
            limits,
            waiting: [EndReads::default(); 2],
            mean_ns: [None; 2],
        }
    }

    /// Returns the share of reads for the mirror, 0..=1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Processes reads as [`Offload::look`], but reduces the mirror's share whatever the latencies are, because its reads
    /// cause a violation of another guest's objective.
    pub fn give_way(&mut self, ends: [EndReads; 2]) -> f64 {
        self.learn(ends);
        self.share = (self.share - STEP_MAX).max(self.limits.least);
        self.share
    }

    /// Processes the reads that source and mirror completed since the last call, and returns the new share.
    pub fn look(&mut self, ends: [EndReads; 2]) -> f64 {
        let new = self.learn(ends);
        let [Some(first), Some(second)] = self.mean_ns else {
            return self.share;
        };
        if !new {
            return self.share;
        }
        let sooner = (first - second) / (first + second).max(1.0);
        let step = (GAIN * sooner).clamp(-STEP_MAX, STEP_MAX);
        self.share = (self.share + step).clamp(self.limits.least, self.limits.most);
        self.share
    }

    /// Updates the smoothed latencies; returns true if one has changed.
    fn learn(&mut self, ends: [EndReads; 2]) -> bool {
        let mut new = false;
        for ((mean, waiting), end) in self.mean_ns.iter_mut().zip(&mut self.waiting).zip(ends) {
            waiting.count += end.count;
            waiting.sum_ns += end.sum_ns;
            if waiting.count < READS_MIN {
                continue;
            }
            new = true;
            let end = std::mem::take(waiting);
            let seen = end.sum_ns as f64 / end.count as f64;
            *mean = Some(mean.map_or(seen, |mean| mean + WEIGHT * (seen - mean)));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates two ends in a closed loop: the latency of each grows with the ratio of its load to its capacity.
    fn settled(can: [f64; 2], idle_us: [f64; 2]) -> f64 {
        let mut offload = Offload::new(OffloadLimits::default());
        for _ in 0..400 {
            let share = offload.share();
            let rates = [1.0 - share, share];
            // The 100 outstanding requests divide according to the latencies.
            let time = |end: usize| idle_us[end] + 1e6 * 0.1 * rates[end] / can[end];
            let end = |end: usize| EndReads {
                count: (1000.0 * rates[end]) as u64,
                sum_ns: (1000.0 * rates[end] * time(end)) as u64 * 1000,
            };
            offload.look([end(0), end(1)]);
        }
        offload.share()
    }

    #[test]
    fn read_shares_converge_to_equal_latency_of_both_copies() {
        for (can, expected) in [
            ([1000.0, 1000.0], 0.5),
            ([1000.0, 600.0], 0.375),
            ([400.0, 1200.0], 0.75),
        ] {
            let share = settled(can, [0.0, 0.0]);
            assert!((share - expected).abs() < 0.02, "{can:?}: {share}");
        }
        // A mirror that is slower even when idle gets only the reads that are needed to measure it.
        assert_eq!(settled([1e9, 1e9], [100.0, 300.0]), 1.0 / 64.0);
        assert_eq!(settled([1e9, 1e9], [300.0, 100.0]), 0.9);
    }

    #[test]
    fn few_reads_do_not_change_the_read_share() {
        let mut offload = Offload::new(OffloadLimits::default());
        let few = EndReads {
            count: 7,
            sum_ns: 7_000_000,
        };
        assert_eq!(offload.look([few, EndReads::default()]), FIRST);
        let mut one = EndReads::default();
        (0..100).for_each(|_| one.add(5_000_000));
        // The other end is not known yet: seven reads, and none.
        let none = EndReads::default();
        let mut other = Offload::new(OffloadLimits::default());
        assert_eq!(other.look([one, few]), FIRST);
        assert_eq!(other.look([one, none]), FIRST);
        // One more makes eight.
        let mut last = none;
        last.add(1_000_000);
        assert!(other.look([one, last]) > FIRST);
        let before = other.share();
        assert_eq!(other.give_way([one, last]), before - STEP_MAX);
        for _ in 0..10 {
            other.give_way([one, last]);
        }
        assert_eq!(other.share(), 1.0 / 64.0);
        // A largest share of 0 is respected too.
        let never = OffloadLimits {
            most: 0.0,
            ..OffloadLimits::default()
        };
        assert_eq!(Offload::new(never).look([one, one]), 0.0);
    }
}
