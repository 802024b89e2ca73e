//! The clock of the measurements.

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread so far, seconds: what the neighbours take of the machine's cores is not counted.
pub(crate) fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
