//! Slack of guests' objectives on each device, so that moves yield to guests of the same devices.
//!
//! ```text
//!  worker 0: its volumes on device d ─ worst latency / objective, now ─▶ [ word ]─┐
//!  worker 1: the same ─────────────────────────────────────────────────▶ [ word ]─┼─▶ worst value ─▶ pace of moves on d
//!  worker of the move: the same, without the moving volume ───────────────────────┤
//!                                                                                  └─ an old word: conservative
//! ```
//!
//! Each worker has its own word for each device, so no worker waits for another one. An old word counts as unknown, and so
//! does one about an objective that may have changed: moves are slow then. Without objectives, moves need not yield.

use std::sync::atomic::{AtomicU64, Ordering};

use units::DeviceId;

use crate::map::VolumeMap;

/// Number of words per worker. Bounds the memory of the board; devices with higher numbers count as unknown.
const DEVICES_MAX: usize = 4096;

/// Slack of the guests of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Slack {
    /// No guest has an objective.
    Unbound,
    /// Worst ratio of a guest's latency to its objective; above 1 the objective is violated.
    Used(f32),
    /// Unknown or out of date.
    Unknown,
}

impl Slack {
    /// Returns the slack of two groups of guests together.
    #[must_use]
    pub fn worse(self, other: Slack) -> Slack {
        match (self, other) {
            (Slack::Unknown, _) | (_, Slack::Unknown) => Slack::Unknown,
            (Slack::Unbound, known) | (known, Slack::Unbound) => known,
            (Slack::Used(a), Slack::Used(b)) => Slack::Used(a.max(b)),
        }
    }

    /// Returns a number that never falls as the slack gets worse.
    fn code(self) -> u32 {
        match self {
            Slack::Unbound => 0,
            Slack::Used(ratio) if ratio.is_finite() => ratio.max(f32::MIN_POSITIVE).to_bits(),
            Slack::Used(_) | Slack::Unknown => f32::INFINITY.to_bits(),
        }
    }

    fn of_code(code: u32) -> Self {
        let ratio = f32::from_bits(code);
        match code {
            0 => Slack::Unbound,
            _ if ratio.is_finite() => Slack::Used(ratio),
            _ => Slack::Unknown,
        }
    }
}

/// Slack of other volumes' guests on the devices of a move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NeighborSlack {
    /// Slack on the source.
    pub source: Slack,
    /// Slack on the target.
    pub target: Slack,
}

impl NeighborSlack {
    /// Unknown slack on both.
    pub const UNKNOWN: Self = Self {
        source: Slack::Unknown,
        target: Slack::Unknown,
    };

    /// Returns the slack on all devices that hold the volume, and on the target `to`. `hear` returns the slack of other
    /// guests on a device.
    pub fn around(map: &VolumeMap, to: DeviceId, mut hear: impl FnMut(DeviceId) -> Slack) -> Self {
        let sources = map.holders().iter().map(|h| h.0).filter(|d| *d != to);
        let target = hear(to);
        Self {
            source: sources.map(hear).fold(Slack::Unbound, Slack::worse),
            target,
        }
    }
}

/// Board with the words of all workers.
#[derive(Debug)]
pub struct SlackBoard {
    /// Words by worker: time in ms in the upper half, from 1, and slack in the lower half.
    words: Vec<Box<[AtomicU64]>>,
    old_ns: u64,
}

impl SlackBoard {
    /// Creates a board for this number of workers. A word is old after `old_ns`, which should be a few times the reporting
    /// interval.
    pub fn new(workers: usize, old_ns: u64) -> Self {
        let words = || (0..DEVICES_MAX).map(|_| AtomicU64::new(0)).collect();
        Self {
            words: std::iter::repeat_with(words).take(workers).collect(),
            old_ns,
        }
    }

    /// Stores a worker's slack on a device.
    pub fn say(&self, now_ns: u64, worker: usize, device: DeviceId, slack: Slack) {
        if let Some(word) = self.words[worker].get(device.index()) {
            let said = u64::from(millis(now_ns)) << 32 | u64::from(slack.code());
            word.store(said, Ordering::Relaxed);
        }
    }

    /// Returns the slack of a device's guests now, over all workers.
    pub fn hear(&self, now_ns: u64, device: DeviceId) -> Slack {
        self.heard(now_ns, device, self.words.iter())
    }

    /// Returns the same over all workers except one.
    pub fn hear_others(&self, now_ns: u64, worker: usize, device: DeviceId) -> Slack {
        let (before, after) = self.words.split_at(worker);
        self.heard(now_ns, device, before.iter().chain(&after[1..]))
    }

    fn heard<'a>(
        &self,
        now_ns: u64,
        device: DeviceId,
        of: impl Iterator<Item = &'a Box<[AtomicU64]>>,
    ) -> Slack {
        let heard = |words: &[AtomicU64]| {
            let word = words.get(device.index())?.load(Ordering::Relaxed);
            // Another worker's clock may be ahead of the value that this one read last.
            let age_ms = millis(now_ns)
                .wrapping_sub((word >> 32) as u32)
                .cast_signed();
            let young = word > 0 && i64::from(age_ms) * 1_000_000 <= self.old_ns.cast_signed();
            young.then(|| Slack::of_code(word as u32))
        };
        of.fold(Slack::Unbound, |all, words| {
            all.worse(heard(words).unwrap_or(Slack::Unknown))
        })
    }
}

/// Returns the time in ms. It wraps after seven weeks; ages are differences.
fn millis(now_ns: u64) -> u32 {
    (now_ns / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD_NS: u64 = 3_000_000_000;
    const D: DeviceId = DeviceId(7);

    #[test]
    fn worst_worker_slack_counts_until_a_worker_is_silent() {
        let board = SlackBoard::new(2, OLD_NS);
        let mut now_ns = 50 * OLD_NS;
        assert_eq!(board.hear(now_ns, D), Slack::Unknown);
        board.say(now_ns, 0, D, Slack::Used(0.25));
        assert_eq!(
            board.hear(now_ns, D),
            Slack::Unknown,
            "one has said nothing"
        );
        board.say(now_ns, 1, D, Slack::Unbound);
        assert_eq!(board.hear(now_ns, D), Slack::Used(0.25));
        assert_eq!(board.hear_others(now_ns, 0, D), Slack::Unbound);
        assert_eq!(board.hear_others(now_ns, 1, D), Slack::Used(0.25));
        now_ns += OLD_NS;
        board.say(now_ns, 1, D, Slack::Used(4.0));
        assert_eq!(board.hear(now_ns, D), Slack::Used(4.0));
        now_ns += 2_000_000;
        assert_eq!(board.hear(now_ns, D), Slack::Unknown);
        board.say(now_ns, 0, D, Slack::Unbound);
        board.say(now_ns, 1, D, Slack::Unbound);
        assert_eq!(board.hear(now_ns, D), Slack::Unbound);
        assert_eq!(board.hear(now_ns - 5_000_000, D), Slack::Unbound);
        assert_eq!(board.hear(now_ns, DeviceId(u16::MAX)), Slack::Unknown);
    }

    #[test]
    fn invalid_slack_ratio_is_unknown() {
        let board = SlackBoard::new(1, OLD_NS);
        for (said, heard) in [
            (Slack::Used(f32::NAN), Slack::Unknown),
            (Slack::Used(f32::INFINITY), Slack::Unknown),
            (Slack::Used(0.0), Slack::Used(f32::MIN_POSITIVE)),
            (Slack::Unknown, Slack::Unknown),
        ] {
            board.say(1 << 40, 0, D, said);
            assert_eq!(board.hear(1 << 40, D), heard);
        }
    }
}
