//! Latency sessions: every answer is held back by a wanted time, and what it was really held back is measured.
//!
//! Calibration (paper 0 §III-B) regresses on the measured delay, never on the wanted one: timers are late, and a busy worker
//! is later. The worker holds the answer with an absolute timer and spins for the last stretch of it.

use algo::Histogram;
use serde::{Deserialize, Serialize};

use crate::measure::Latency;

/// A session under way.
#[derive(Debug)]
pub struct Session {
    /// Wanted delay of reads and of writes, in nanoseconds.
    pub delay_ns: [u64; 2],
    /// When it ends by itself.
    pub until_ns: u64,
    added: Histogram,
    late: Histogram,
}

/// What a session has done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
pub struct Injected {
    /// Wanted delay of reads in microseconds.
    pub wanted_read_us: f64,
    /// Wanted delay of writes in microseconds.
    pub wanted_write_us: f64,
    /// What answers were really held back.
    pub added: Latency,
    /// By how much that was more than wanted.
    pub late: Latency,
}

impl Session {
    /// Starts now.
    pub fn new(delay_ns: [u64; 2], until_ns: u64) -> Self {
        Self {
            delay_ns,
            until_ns,
            added: Histogram::default(),
            late: Histogram::default(),
        }
    }

    /// An answer that was to be held back for `wanted_ns` was held back for `added_ns`.
    pub fn held(&mut self, wanted_ns: u64, added_ns: u64) {
        self.added.record(added_ns);
        self.late.record(added_ns.saturating_sub(wanted_ns));
    }

    /// What was measured.
    pub fn read(&self) -> Injected {
        Injected {
            wanted_read_us: self.delay_ns[0] as f64 / 1e3,
            wanted_write_us: self.delay_ns[1] as f64 / 1e3,
            added: Latency::of(&self.added),
            late: Latency::of(&self.late),
        }
    }
}
