//! How fast an appliance takes in what it is to keep.
//!
//! ```text
//!  read from the array ─▶ budget of bytes a second ─▶ kept
//!                               └─ beyond it: answered, not kept, not asked for again by itself
//! ```

use units::BytesPerSec;

/// What may still be taken in: a bucket of bytes that a second fills.
#[derive(Debug, Clone, Copy)]
pub(super) struct FillBudget {
    rate: Option<BytesPerSec>,
    left: f64,
    at_ns: u64,
}

impl FillBudget {
    /// Full, from a time on.
    pub(super) fn new(rate: Option<BytesPerSec>, now_ns: u64) -> Self {
        Self {
            rate,
            left: rate.map_or(0.0, |r| r.0 as f64),
            at_ns: now_ns,
        }
    }

    /// Whether so many bytes are taken in now; if so they are charged.
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

    /// Takes so many bytes in, whatever is left: of a warm-up, which keeps to the rate by itself and goes before what is asked for.
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
    fn a_budget_takes_its_rate_and_no_more() {
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
