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
    /// An emulated device would be done.
    Device(u32),
    /// A throttled request may go.
    Submit {
        volume: u32,
        guest: Guest,
        request: GuestRequest,
    },
    /// The engine asked to be woken.
    Wake(u32),
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
    entries: BinaryHeap<Reverse<Entry>>,
    number: u64,
}

impl Timers {
    pub(super) fn at(&mut self, at_ns: u64, due: Due) {
        self.number += 1;
        let number = self.number;
        self.entries.push(Reverse(Entry { at_ns, number, due }));
    }

    /// Time of the earliest, or the end of time.
    pub(super) fn next_ns(&self) -> u64 {
        self.entries.peek().map_or(u64::MAX, |e| e.0.at_ns)
    }

    /// Whether a request of a volume waits here.
    pub(super) fn any_of(&self, of: u32) -> bool {
        self.entries.iter().any(|e| match &e.0.due {
            Due::Answer { volume, .. } | Due::Submit { volume, .. } => *volume == of,
            Due::Device(_) | Due::Wake(_) => false,
        })
    }

    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Due> {
        if self.next_ns() > now_ns {
            return None;
        }
        self.entries.pop().map(|e| e.0.due)
    }
}
