//! What guests leave of their objectives on each device, so that moves can yield to those who share it.
//!
//! ```text
//!  worker 0: its volumes on device d ─ worst latency / objective, now ─▶ [ word ]─┐
//!  worker 1: likewise ─────────────────────────────────────────────────▶ [ word ]─┼─▶ worst of them ─▶ pace of moves on d
//!  worker of the move: the same, but for the volume that moves ───────────────────┤
//!                                                                                  └─ one is old: conservative
//! ```
//!
//! Each worker has a word of its own for each device, so nobody waits for anybody. A word that is old says nothing, and neither does one
//! about an objective that may not hold any more: moves are careful then. Where nobody has an objective, moves need not be.

use std::sync::atomic::{AtomicU64, Ordering};

use units::DeviceId;

use crate::map::VolumeMap;

/// Words of one worker. Bounds the memory of the board; devices with higher numbers are as if nobody knew of them.
const DEVICES_MAX: usize = 4096;

/// How the guests of a device stand to their objectives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Slack {
    /// None of them has an objective.
    Unbound,
    /// The worst of them: its latency over its objective, so that above 1 it is missed.
    Used(f32),
    /// Not known, or not any more.
    Unknown,
}

impl Slack {
    /// That of two groups of guests together.
    #[must_use]
    pub fn worse(self, other: Slack) -> Slack {
        match (self, other) {
            (Slack::Unknown, _) | (_, Slack::Unknown) => Slack::Unknown,
            (Slack::Unbound, known) | (known, Slack::Unbound) => known,
            (Slack::Used(a), Slack::Used(b)) => Slack::Used(a.max(b)),
        }
    }

    /// As a number that does not fall as things get worse.
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

/// What guests of other volumes leave on the devices of a move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Others {
    /// Where its volume is.
    pub source: Slack,
    /// Where it goes.
    pub target: Slack,
}

impl Others {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        source: Slack::Unknown,
        target: Slack::Unknown,
    };

    /// Those of the devices that hold a volume which moves to a device; `hear` says of one how its other guests stand.
    pub fn around(map: &VolumeMap, to: DeviceId, mut hear: impl FnMut(DeviceId) -> Slack) -> Self {
        let sources = map.holders().iter().map(|h| h.0).filter(|d| *d != to);
        let target = hear(to);
        Self {
            source: sources.map(hear).fold(Slack::Unbound, Slack::worse),
            target,
        }
    }
}

/// The words of all workers.
#[derive(Debug)]
pub struct SlackBoard {
    /// By worker: milliseconds in the upper half, from 1, and what was said in the lower one.
    words: Vec<Box<[AtomicU64]>>,
    old_ns: u64,
}

impl SlackBoard {
    /// For so many workers. A word is old after `old_ns`: a few times the interval in which it is said again.
    pub fn new(workers: usize, old_ns: u64) -> Self {
        let words = || (0..DEVICES_MAX).map(|_| AtomicU64::new(0)).collect();
        Self {
            words: std::iter::repeat_with(words).take(workers).collect(),
            old_ns,
        }
    }

    /// A worker's word on a device.
    pub fn say(&self, now_ns: u64, worker: usize, device: DeviceId, slack: Slack) {
        if let Some(word) = self.words[worker].get(device.index()) {
            let said = u64::from(millis(now_ns)) << 32 | u64::from(slack.code());
            word.store(said, Ordering::Relaxed);
        }
    }

    /// How the guests of a device stand now, all workers together.
    pub fn hear(&self, now_ns: u64, device: DeviceId) -> Slack {
        self.heard(now_ns, device, self.words.iter())
    }

    /// Likewise, all workers but this one.
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
            // Another worker's clock may be ahead of what this one last read.
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

/// Wraps after seven weeks; ages are differences.
fn millis(now_ns: u64) -> u32 {
    (now_ns / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD_NS: u64 = 3_000_000_000;
    const D: DeviceId = DeviceId(7);

    #[test]
    fn the_worst_of_all_workers_is_heard_until_one_of_them_is_silent() {
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
    fn what_is_no_ratio_is_not_known() {
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
