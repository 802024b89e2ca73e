//! Matches arrivals with completions, to get requests with latencies.
//!
//! A request is held from its arrival until its completion event, or until too many requests are held. A completion
//! covers a range: requests that the kernel merged arrive separately and complete together.

use std::collections::{BTreeMap, VecDeque};

use crate::record::{LATENCY_UNKNOWN, RawRecord};

/// Largest number of requests that are held without a completion: 3 MiB. Protects memory from a trace without
/// completions. A request beyond the limit is released without a latency.
const HELD_MAX: usize = 1 << 16;

struct PendingRecord {
    record: RawRecord,
    complete: bool,
}

#[derive(Default)]
pub(super) struct RequestMatcher {
    held: VecDeque<PendingRecord>,
    /// Number of the request at the front of `held`.
    first: u64,
    /// Incomplete requests, by volume, offset and number.
    open: BTreeMap<(u32, u64, u64), ()>,
}

impl RequestMatcher {
    pub(super) fn arrive(&mut self, record: RawRecord) {
        // A request without a range matches no completion.
        let complete = record.length_bytes == 0;
        let number = self.first + self.held.len() as u64;
        if !complete {
            self.open
                .insert((record.volume, record.offset_bytes, number), ());
        }
        self.held.push_back(PendingRecord { record, complete });
    }

    /// Completes the requests of the same volume and kind within the range of `done`, at its time.
    pub(super) fn complete(&mut self, done: &RawRecord) {
        let end = done.offset_bytes + u64::from(done.length_bytes);
        let range = (done.volume, done.offset_bytes, 0)..(done.volume, end, 0);
        let within = |held: &PendingRecord| {
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

    /// Returns the next request in order of arrival, if it is complete or need not be held any longer.
    pub(super) fn pop(&mut self, ended: bool) -> Option<RawRecord> {
        let front = self.held.front()?;
        if !front.complete && !ended && self.held.len() <= HELD_MAX {
            return None;
        }
        let PendingRecord { record, complete } = self.held.pop_front()?;
        if !complete {
            self.open
                .remove(&(record.volume, record.offset_bytes, self.first));
        }
        self.first += 1;
        Some(record)
    }
}
