//! Measured rate of a copy, from its progress at several looks.
//!
//! QEMU's mirror does not count zeroes and discarded ranges against the rate. The ordered rate therefore does not bound
//! a copy, and the measured rate shows whether the copy has kept to it.

use std::collections::VecDeque;
use std::time::Duration;

use super::Progress;

/// Period of a measurement. It averages over log lines that are a second late.
const OVER: Duration = Duration::from_secs(10);

/// Shortest period of a measurement: several log lines.
const OVER_MIN: Duration = Duration::from_secs(5);

/// Looks at one copy, the newest last.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    looks: VecDeque<(Duration, Progress)>,
}

impl Pace {
    /// Adds a look at this time of a monotonic clock.
    pub fn add(&mut self, at: Duration, progress: Progress) {
        self.looks.push_back((at, progress));
        // Of the looks before the period, only the newest is needed.
        while self.looks.len() > 1 && at.saturating_sub(self.looks[1].0) >= OVER {
            self.looks.pop_front();
        }
    }

    /// Returns the rate of a copy of this many bytes, in bytes per second; `None` if the looks are too few, or if the
    /// log did not grow between the last two.
    pub fn bytes_per_s(&self, bytes: u64) -> Option<u64> {
        let (first_at, first) = self.looks.front()?;
        let (last_at, last) = self.looks.back()?;
        let before = self.looks.len().checked_sub(2)?;
        let over = last_at.saturating_sub(*first_at);
        if over < OVER_MIN || last.lines <= self.looks[before].1.lines {
            return None;
        }
        let share = u128::from(last.copied.saturating_sub(first.copied));
        let copied = u128::from(bytes) * share / 10_000;
        let rate = copied * 1000 / over.as_millis();
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Returns the rate after looks at these seconds, with the share in percent.
    fn pace(looks: &[(u64, u32)]) -> Option<u64> {
        let mut pace = Pace::default();
        for (lines, (second, percent)) in looks.iter().enumerate() {
            let progress = Progress {
                lines: lines as u64,
                copied: percent * 100,
                switches: false,
            };
            pace.add(Duration::from_secs(*second), progress);
        }
        pace.bytes_per_s(100 * GIB)
    }

    #[test]
    fn pace_requires_several_samples() {
        assert_eq!(pace(&[]), None);
        assert_eq!(pace(&[(0, 10)]), None);
        assert_eq!(pace(&[(0, 10), (2, 11), (4, 12)]), None);
        assert_eq!(pace(&[(0, 10), (2, 11), (4, 12), (6, 13)]), Some(GIB / 2));
        assert_eq!(pace(&[(0, 10), (5, 10)]), Some(0));
    }

    /// Only the last seconds count, and a jump in them counts in full.
    #[test]
    fn pace_is_that_of_the_last_seconds() {
        let slow = [(0, 0), (2, 40), (4, 40), (6, 40), (10, 40), (14, 40)];
        assert_eq!(pace(&slow), Some(0));
        let jump = [(0, 10), (2, 10), (4, 10), (6, 10), (8, 10), (10, 40)];
        assert_eq!(pace(&jump), Some(3 * GIB));
    }

    #[test]
    fn pace_of_a_log_without_growth_is_unknown() {
        let mut pace = Pace::default();
        for second in [0, 4, 8] {
            pace.add(Duration::from_secs(second), Progress::default());
        }
        assert_eq!(pace.bytes_per_s(GIB), None);
    }
}
