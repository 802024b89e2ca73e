//! What waits for a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::{Fault, GuestRequest};

use super::guests::Guest;

/// What to do then.
#[derive(Debug)]
pub(super) enum Due {
    /// Answer a request that was held back since `ready_ns`.
    Answer {
        volume: u32,
        guest: Guest,
        request: GuestRequest,
        result: Result<(), Fault>,
        ready_ns: u64,
    },
    /// An I/O that a device's stages held back is over.
    Device(u32),
    /// A request that stages held back may go to the engine.
    Submit {
        volume: u32,
        guest: Guest,
        request: GuestRequest,
    },
    /// The engine asked to be woken.
    Wake(u32),
    /// The second level of this number reads what guests have not asked for yet.
    Warm(u32),
}

#[derive(Debug)]
struct Entry {
    at_ns: u64,
    number: u64,
    due: Due,
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

/// All that waits, earliest first; at the same time in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// What must not be late: answers and I/Os that are held back.
    exact: BinaryHeap<Reverse<Entry>>,
    /// What may be late by what the kernel's timers are.
    rough: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl Timers {
    pub(super) fn at(&mut self, at_ns: u64, due: Due) {
        self.number += 1;
        let number = self.number;
        let heap = match due {
            Due::Answer { .. } | Due::Device(_) => &mut self.exact,
            Due::Submit { .. } | Due::Wake(_) | Due::Warm(_) => &mut self.rough,
        };
        heap.push(Reverse(Entry { at_ns, number, due }));
    }

    /// Time of the earliest that must not be late, or the end of time.
    #[inline]
    pub(super) fn next_exact_ns(&self) -> u64 {
        self.exact.peek().map_or(u64::MAX, |e| e.0.at_ns)
    }

    /// Time of the earliest of the others, or the end of time.
    #[inline]
    pub(super) fn next_rough_ns(&self) -> u64 {
        self.rough.peek().map_or(u64::MAX, |e| e.0.at_ns)
    }

    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.rough.is_empty()
    }

    /// Whether a request of a volume waits here.
    pub(super) fn any_of(&self, of: u32) -> bool {
        let all = self.exact.iter().chain(&self.rough);
        all.into_iter().any(|e| match &e.0.due {
            Due::Answer { volume, .. } | Due::Submit { volume, .. } => *volume == of,
            Due::Device(_) | Due::Wake(_) | Due::Warm(_) => false,
        })
    }

    /// How many requests stages hold back now, by volume.
    pub(super) fn held_back(&self, volumes: usize) -> Vec<u64> {
        let mut held = vec![0; volumes];
        for entry in &self.rough {
            if let Due::Submit { volume, .. } = entry.0.due
                && let Some(n) = held.get_mut(volume as usize)
            {
                *n += 1;
            }
        }
        held
    }

    /// Whether a request, or an I/O, waits here.
    pub(super) fn any_in_flight(&self) -> bool {
        let mut all = self.exact.iter().chain(&self.rough);
        all.any(|e| !matches!(e.0.due, Due::Wake(_) | Due::Warm(_)))
    }

    /// Removes and returns the held-back requests of one volume, or of all, in the order of their release times.
    pub(super) fn take_held_back(&mut self, of: Option<u32>) -> Vec<Due> {
        let all = std::mem::take(&mut self.rough).into_iter();
        let held = |e: &Reverse<Entry>| match e.0.due {
            Due::Submit { volume, .. } => of.is_none_or(|of| of == volume),
            _ => false,
        };
        let (mut taken, rest): (Vec<_>, Vec<_>) = all.partition(held);
        self.rough = rest.into();
        taken.sort_by(|a, b| b.cmp(a));
        taken.into_iter().map(|e| e.0.due).collect()
    }

    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Due> {
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
