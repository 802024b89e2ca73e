//! Arrivals and completions to requests with latencies.
//!
//! A request is held from its arrival until an event says that it is complete, or until too many are held. A completion
//! covers a range: requests that the kernel merged arrive one by one and complete together.

use std::collections::{BTreeMap, VecDeque};

use crate::record::{LATENCY_UNKNOWN, RawRecord};

/// Requests that are held while their completion has not been seen: 3 MiB. Protects memory from a trace without
/// completions; a request that is pushed out has no latency.
const HELD_MAX: usize = 1 << 16;

struct Held {
    record: RawRecord,
    complete: bool,
}

#[derive(Default)]
pub(super) struct Matching {
    held: VecDeque<Held>,
    /// Number of the request at the front of `held`.
    first: u64,
    /// Requests that are not complete, by volume, offset and number.
    open: BTreeMap<(u32, u64, u64), ()>,
}

impl Matching {
    pub(super) fn arrive(&mut self, record: RawRecord) {
        // What has no range can be matched with nothing.
        let complete = record.length_bytes == 0;
        let number = self.first + self.held.len() as u64;
        if !complete {
            self.open
                .insert((record.volume, record.offset_bytes, number), ());
        }
        self.held.push_back(Held { record, complete });
    }

    /// Completes the requests of the same volume and kind that lie within the range of `done`, at its time.
    pub(super) fn complete(&mut self, done: &RawRecord) {
        let end = done.offset_bytes + u64::from(done.length_bytes);
        let range = (done.volume, done.offset_bytes, 0)..(done.volume, end, 0);
        let within = |held: &Held| {
            let r = &held.record;
            r.op == done.op && r.offset_bytes + u64::from(r.length_bytes) <= end
        };
        let found: Vec<_> = self
            .open
            .range(range)
            .map(|(key, ())| *key)
            .filter(|key| within(&self.held[(key.2 - self.first) as usize]))
            .collect();
        for key in found {
            self.open.remove(&key);
            let held = &mut self.held[(key.2 - self.first) as usize];
            held.complete = true;
            held.record.latency_ns = done
                .time_ns
                .checked_sub(held.record.time_ns)
                .and_then(|ns| u64::try_from(ns).ok())
                .unwrap_or(LATENCY_UNKNOWN);
        }
    }

    /// The next request, in order of arrival, if it is complete or need be held no longer.
    pub(super) fn pop(&mut self, ended: bool) -> Option<RawRecord> {
        let front = self.held.front()?;
        if !front.complete && !ended && self.held.len() <= HELD_MAX {
            return None;
        }
        let Held { record, complete } = self.held.pop_front()?;
        if !complete {
            self.open
                .remove(&(record.volume, record.offset_bytes, self.first));
        }
        self.first += 1;
        Some(record)
    }
}
