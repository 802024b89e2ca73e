//! Limit of the rate at which an appliance fills its cache.
//!
//! ```text
//!  read from the array ─▶ budget of bytes per second ─▶ cached
//!                               └─ beyond the budget: served, not cached, not read again by the appliance itself
//! ```

use units::BytesPerSec;

/// Token bucket for filled bytes, with a capacity of one second.
#[derive(Debug, Clone, Copy)]
pub(super) struct FillBudget {
    rate: Option<BytesPerSec>,
    left: f64,
    at_ns: u64,
}

impl FillBudget {
    /// Creates a bucket that is full at `now_ns`.
    pub(super) fn new(rate: Option<BytesPerSec>, now_ns: u64) -> Self {
        Self {
            rate,
            left: rate.map_or(0.0, |r| r.0 as f64),
            at_ns: now_ns,
        }
    }

    /// Returns true if the budget has room for `bytes` now, and charges them.
    pub(super) fn takes(&mut self, now_ns: u64, bytes: u64) -> bool {
        let Some(rate) = self.rate else {
            return true;
        };
        self.refill(rate, now_ns);
        let enough = self.left >= bytes as f64;
        if enough {
            self.left -= bytes as f64;
        }
        enough
    }

    /// Charges `bytes` whatever the budget. Used for a warm-up, which limits its own rate and has priority over reads
    /// of guests.
    pub(super) fn charge(&mut self, now_ns: u64, bytes: u64) {
        if let Some(rate) = self.rate {
            self.refill(rate, now_ns);
            self.left -= bytes as f64;
        }
    }

    fn refill(&mut self, rate: BytesPerSec, now_ns: u64) {
        let rate = rate.0 as f64;
        let since = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.left = (self.left + since * rate).min(rate);
        self.at_ns = self.at_ns.max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_budget_respects_its_rate() {
        let mut budget = FillBudget::new(Some(BytesPerSec(1000)), 0);
        let mut taken = 0;
        for ms in 0..10_000 {
            taken += u64::from(budget.takes(ms * 1_000_000, 100)) * 100;
        }
        assert!((10_000..=11_000).contains(&taken), "{taken}");
        budget.charge(10_000_000_000, 5000);
        assert!(!budget.takes(14_000_000_000, 100), "a debt is paid first");
        assert!(budget.takes(16_000_000_000, 100));
        assert!(FillBudget::new(None, 0).takes(0, u64::MAX));
    }
}
