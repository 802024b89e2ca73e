//! Controller time. It continues from the time in the store, never goes back, and does not follow the wall clock while
//! it runs.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use controller::Clock;
use manager::service::Now;
use units::Nanos;

#[derive(Debug, Clone, Copy)]
pub struct ControllerClock {
    base: Nanos,
    began: Instant,
}

impl ControllerClock {
    /// Creates a clock that shows `base` now.
    pub fn starting_at(base: Nanos) -> Self {
        Self {
            base,
            began: Instant::now(),
        }
    }

    /// Returns the time.
    pub fn now(&self) -> Now {
        let passed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now {
            at: Nanos(self.base.0.saturating_add(passed)),
            unix_ms: unix_ms(),
        }
    }

    /// Returns the clock as a function for a server.
    pub fn shared(self) -> Clock {
        Arc::new(move || self.now())
    }
}

/// Returns wall-clock time in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
