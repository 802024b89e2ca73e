//! Timers of a worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::{Fault, GuestRequest};

use super::guests::Guest;

/// Action of a timer.
#[derive(Debug)]
pub(super) enum TimerAction {
    /// Sends an answer that has been delayed since `ready_ns`.
    Answer {
        volume: u32,
        guest: Guest,
        request: GuestRequest,
        result: Result<(), Fault>,
        ready_ns: u64,
    },
    /// Completes an I/O that a device's stages have delayed.
    Device(u32),
    /// Submits a request that the volume's stages have delayed to the engine.
    Submit {
        volume: u32,
        guest: Guest,
        request: GuestRequest,
    },
    /// Wakes an engine.
    Wake(u32),
    /// Continues the warm-up of the L2 cache with this number.
    Warm(u32),
}

#[derive(Debug)]
struct Entry {
    at_ns: u64,
    number: u64,
    due: TimerAction,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// Timers in order of time; those of the same time in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// Timers that must be on time: delayed answers and I/Os.
    exact: BinaryHeap<Reverse<Entry>>,
    /// Timers that may be as late as those of the kernel.
    rough: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl Timers {
    pub(super) fn at(&mut self, at_ns: u64, due: TimerAction) {
        self.number += 1;
        let number = self.number;
        let heap = match due {
            TimerAction::Answer { .. } | TimerAction::Device(_) => &mut self.exact,
            TimerAction::Submit { .. } | TimerAction::Wake(_) | TimerAction::Warm(_) => {
                &mut self.rough
            }
        };
        heap.push(Reverse(Entry { at_ns, number, due }));
    }

    /// Returns the time of the earliest exact timer, or `u64::MAX`.
    #[inline]
    pub(super) fn next_exact_ns(&self) -> u64 {
        self.exact.peek().map_or(u64::MAX, |e| e.0.at_ns)
    }

    /// Returns the time of the earliest other timer, or `u64::MAX`.
    #[inline]
    pub(super) fn next_rough_ns(&self) -> u64 {
        self.rough.peek().map_or(u64::MAX, |e| e.0.at_ns)
    }

    /// Returns true without timers.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.rough.is_empty()
    }

    /// Returns true if a request of a volume is delayed.
    pub(super) fn any_of(&self, of: u32) -> bool {
        let all = self.exact.iter().chain(&self.rough);
        all.into_iter().any(|e| match &e.0.due {
            TimerAction::Answer { volume, .. } | TimerAction::Submit { volume, .. } => {
                *volume == of
            }
            TimerAction::Device(_) | TimerAction::Wake(_) | TimerAction::Warm(_) => false,
        })
    }

    /// Returns the number of requests that stages delay before the engine, by volume.
    pub(super) fn held_back(&self, volumes: usize) -> Vec<u64> {
        let mut held = vec![0; volumes];
        for entry in &self.rough {
            if let TimerAction::Submit { volume, .. } = entry.0.due
                && let Some(n) = held.get_mut(volume as usize)
            {
                *n += 1;
            }
        }
        held
    }

    /// Returns true if a request or an I/O is delayed.
    pub(super) fn any_in_flight(&self) -> bool {
        let mut all = self.exact.iter().chain(&self.rough);
        all.any(|e| !matches!(e.0.due, TimerAction::Wake(_) | TimerAction::Warm(_)))
    }

    /// Removes and returns the delayed requests of one volume, or of all, in the order of their release times.
    pub(super) fn take_held_back(&mut self, of: Option<u32>) -> Vec<TimerAction> {
        let all = std::mem::take(&mut self.rough).into_iter();
        let held = |e: &Reverse<Entry>| match e.0.due {
            TimerAction::Submit { volume, .. } => of.is_none_or(|of| of == volume),
            _ => false,
        };
        let (mut taken, rest): (Vec<_>, Vec<_>) = all.partition(held);
        self.rough = rest.into();
        taken.sort_by(|a, b| b.cmp(a));
        taken.into_iter().map(|e| e.0.due).collect()
    }

    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<TimerAction> {
        let due = if self.next_exact_ns() <= now_ns {
            self.exact.pop()
        } else if self.next_rough_ns() <= now_ns {
            self.rough.pop()
        } else {
            None
        };
        due.map(|e| e.0.due)
    }
}
