//! Counters of a device: requests that are done, and requests that failed.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::Op;

use super::Device;

/// Requests that failed in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// What was asked for.
    pub op: &'static str,
    /// How it failed.
    pub errno: i32,
    /// How often, since the device was opened.
    pub count: u64,
    pub last: Instant,
}

/// Errors by kind and errno.
pub(super) type Errors = BTreeMap<(&'static str, i32), Repeated>;

/// Errors of one kind are said to the log this often.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// An error that may come again and again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Repeated {
    count: u64,
    last: Instant,
    /// When it was last said, and how many there had been.
    said: (Instant, u64),
}

/// I/Os that workers have completed. Each counter by itself is exact; together they are of nearly the same moment.
#[derive(Debug, Default)]
pub(super) struct Done {
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
}

/// What a device has done, for guests and for moves, since this process opened it. What failed does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCounts {
    /// When the counters began, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    pub reads: u64,
    /// Writes; trims, zeroes and flushes too, without bytes.
    pub writes: u64,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl Device {
    /// Counts a request that failed. If it is to be said: how many have since that was last done.
    pub fn failed(&self, op: &'static str, errno: i32) -> Option<u64> {
        let now = Instant::now();
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let error = errors.entry((op, errno)).or_insert(Repeated {
            count: 0,
            last: now,
            said: (now, 0),
        });
        (error.count, error.last) = (error.count + 1, now);
        self.failures.fetch_add(1, Ordering::Relaxed);
        let (at, before) = error.said;
        let due = before == 0 || now.duration_since(at) >= SAID_EVERY;
        due.then(|| {
            error.said = (now, error.count);
            error.count - before
        })
    }

    /// Requests that failed, by kind and errno.
    pub fn errors(&self) -> Vec<Failed> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(&(op, errno), error): (&(&'static str, i32), &Repeated)| Failed {
            op,
            errno,
            count: error.count,
            last: error.last,
        };
        errors.iter().map(one).collect()
    }

    /// How many requests failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Counts a request that is done.
    #[inline]
    pub fn completed(&self, op: Op, bytes: u64) {
        let one = |counter: &AtomicU64, n| counter.fetch_add(n, Ordering::Relaxed);
        match op {
            Op::Read => {
                one(&self.done.reads, 1);
                one(&self.done.read_bytes, bytes);
            }
            Op::Write => {
                one(&self.done.writes, 1);
                one(&self.done.write_bytes, bytes);
            }
            Op::Trim | Op::Flush => {
                one(&self.done.writes, 1);
            }
        }
    }

    /// What was done up to now.
    pub fn counts(&self) -> DeviceCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceCounts {
            since_ns: self.since_ns,
            reads: read(&self.done.reads),
            writes: read(&self.done.writes),
            read_bytes: read(&self.done.read_bytes),
            write_bytes: read(&self.done.write_bytes),
        }
    }
}
