//! Counters of a device: completed and failed requests.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::Op;

use super::Device;

/// Requests that failed in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureCount {
    /// Operation.
    pub op: &'static str,
    /// Error of the system.
    pub errno: i32,
    /// Number since the device was opened.
    pub count: u64,
    pub last: Instant,
}

/// Errors by kind and errno.
pub(super) type Errors = BTreeMap<(&'static str, i32), RepeatedError>;

/// Interval of log messages about errors of one kind.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Error that may repeat.
#[derive(Debug, Clone, Copy)]
pub(super) struct RepeatedError {
    count: u64,
    last: Instant,
    /// Time of the last log message, and the number of errors at that time.
    said: (Instant, u64),
}

/// I/Os that workers have completed. Each counter is exact; together they are only nearly simultaneous.
#[derive(Debug, Default)]
pub(super) struct CompletedIo {
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
}

/// I/O of guests and moves on a device since this process opened it. Failed requests do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Start of the counters, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    pub reads: u64,
    /// Writes, trims, zeroes and flushes. The last three add no bytes.
    pub writes: u64,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl Device {
    /// Counts a failed request. If a log message is due, returns the number of failures since the last one.
    pub fn failed(&self, op: &'static str, errno: i32) -> Option<u64> {
        let now = Instant::now();
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let error = errors.entry((op, errno)).or_insert(RepeatedError {
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

    /// Returns the failed requests by operation and error.
    pub fn errors(&self) -> Vec<FailureCount> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(&(op, errno), error): (&(&'static str, i32), &RepeatedError)| FailureCount {
            op,
            errno,
            count: error.count,
            last: error.last,
        };
        errors.iter().map(one).collect()
    }

    /// Returns the number of failed requests.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Counts a completed request.
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

    /// Returns the counts up to now.
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
