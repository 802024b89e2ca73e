//! The clock of the benchmarks.

use std::time::Instant;

/// Processor time of this thread so far, seconds: what the neighbours take of the machine's cores is not counted. Wall time where the
/// kernel does not say.
pub fn cpu_s(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = stat.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    ns.map_or_else(|| since.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}
