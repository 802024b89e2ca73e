//! How many reads of what is mirrored go to the second copy.
//!
//! Looked at every few hundred milliseconds: the share goes towards the end that answers sooner, by how much sooner it does, so that in the
//! end both answer in the same time. Where both are at their limits that is where they do most together. What a
//! second copy does for latency and for throughput is one rule then. (The idea of mirror-optimized tiering: balance by measured latency, not by
//! what devices are said to do.)

use units::Nanos;

/// Time between two looks.
pub const OFFLOAD_LOOK: Nanos = Nanos(200_000_000);

/// Reads of mirrored extents that one end answered since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndReads {
    /// How many.
    pub count: u64,
    /// Their latencies, summed, nanoseconds.
    pub sum_ns: u64,
}

impl EndReads {
    /// Adds one.
    #[inline]
    pub fn add(&mut self, latency_ns: u64) {
        self.count += 1;
        self.sum_ns += latency_ns;
    }
}

/// Bounds of the share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OffloadLimits {
    /// Least: as many reads are needed to know how the second copy does.
    pub least: f64,
    /// Most.
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

/// Share until it is known how the second copy does: with fewer, a volume of a hundred reads a second would take minutes to learn that.
const FIRST: f64 = 1.0 / 8.0;
/// Share that one look changes at most.
const STEP_MAX: f64 = 0.04;
/// Share that a look changes where one end takes ever so much longer than the other.
const GAIN: f64 = 0.08;
/// Reads at each end below which nothing is learned: their mean says little.
const READS_MIN: u64 = 8;
/// Weight of a look in the means that are compared.
const WEIGHT: f64 = 0.3;

/// The share of one volume, and what it goes by.
#[derive(Debug, Clone)]
pub struct Offload {
    limits: OffloadLimits,
    share: f64,
    /// Reads that were too few to learn from, so far.
    waiting: [EndReads; 2],
    /// Latency of the first and the second copy, smoothed; none before enough reads.
    mean_ns: [Option<f64>; 2],
}

impl Offload {
    /// With some reads at the second copy, to know how it does.
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

    /// The share of reads for the second copy, 0..=1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// As [`Offload::look`], but the second copy gets less whatever the means say: what it does is why somebody misses an objective.
    pub fn give_way(&mut self, ends: [EndReads; 2]) -> f64 {
        self.learn(ends);
        self.share = (self.share - STEP_MAX).max(self.limits.least);
        self.share
    }

    /// Takes in what both ends, the first and the second copy, answered since the last look; the new share.
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

    /// Whether anything was learned.
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

    /// Two ends in a closed loop: with a share s of the reads the latency of each grows with what it is given over what it can do.
    fn settled(can: [f64; 2], idle_us: [f64; 2]) -> f64 {
        let mut offload = Offload::new(OffloadLimits::default());
        for _ in 0..400 {
            let share = offload.share();
            let rates = [1.0 - share, share];
            // 100 requests outstanding go where they take longest.
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
    fn both_ends_come_to_answer_in_the_same_time() {
        for (can, expected) in [
            ([1000.0, 1000.0], 0.5),
            ([1000.0, 600.0], 0.375),
            ([400.0, 1200.0], 0.75),
        ] {
            let share = settled(can, [0.0, 0.0]);
            assert!((share - expected).abs() < 0.02, "{can:?}: {share}");
        }
        // A second copy that is slower even when it is idle gets no more than is needed to know that.
        assert_eq!(settled([1e9, 1e9], [100.0, 300.0]), 1.0 / 64.0);
        assert_eq!(settled([1e9, 1e9], [300.0, 100.0]), 0.9);
    }

    #[test]
    fn few_reads_say_nothing_until_they_are_enough() {
        let mut offload = Offload::new(OffloadLimits::default());
        let few = EndReads {
            count: 7,
            sum_ns: 7_000_000,
        };
        assert_eq!(offload.look([few, EndReads::default()]), FIRST);
        let mut one = EndReads::default();
        (0..100).for_each(|_| one.add(5_000_000));
        // The other end is not known yet: seven, and none.
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
        // No share at all is a share, too.
        let never = OffloadLimits {
            most: 0.0,
            ..OffloadLimits::default()
        };
        assert_eq!(Offload::new(never).look([one, one]), 0.0);
    }
}
