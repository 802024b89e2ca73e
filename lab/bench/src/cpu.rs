//! Clock of the measurements.

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this thread in seconds. Other processes on the machine do not add to it.
pub(crate) fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
