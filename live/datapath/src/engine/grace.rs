//! Grace periods: the time until all requests that were issued before a moment are complete.
//!
//! Requests are counted by epoch. An epoch ends when a caller starts a grace period. The cost is an addition and a
//! subtraction per request.

use std::collections::VecDeque;

/// Numbers of requests in flight, by epoch.
#[derive(Debug)]
pub(super) struct Grace {
    /// Number of the first epoch in `in_flight`.
    first: u64,
    in_flight: VecDeque<u32>,
}

/// Epoch. A request belongs to the epoch in which it was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Epoch(u64);

impl Grace {
    pub(super) fn new() -> Self {
        Self {
            first: 0,
            in_flight: VecDeque::from([0]),
        }
    }

    /// Counts a request that is issued now.
    #[inline]
    pub(super) fn enter(&mut self) -> Epoch {
        let last = self.in_flight.len() - 1;
        self.in_flight[last] += 1;
        Epoch(self.first + last as u64)
    }

    /// Counts the end of a request that was issued in `epoch`.
    #[inline]
    pub(super) fn leave(&mut self, epoch: Epoch) {
        self.in_flight[(epoch.0 - self.first) as usize] -= 1;
        while self.in_flight.len() > 1 && self.in_flight[0] == 0 {
            self.in_flight.pop_front();
            self.first += 1;
        }
    }

    /// Ends the epoch and returns it. Once [`Grace::passed`] is true for it, all requests issued up to now are complete.
    pub(super) fn end_epoch(&mut self) -> Epoch {
        let ended = Epoch(self.first + self.in_flight.len() as u64 - 1);
        self.in_flight.push_back(0);
        while self.in_flight.len() > 1 && self.in_flight[0] == 0 {
            self.in_flight.pop_front();
            self.first += 1;
        }
        ended
    }

    /// Returns true if all requests that were issued in `epoch` or before are complete.
    pub(super) fn passed(&self, epoch: Epoch) -> bool {
        self.first > epoch.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_passes_when_all_requests_up_to_its_end_have_left() {
        let mut grace = Grace::new();
        let a = grace.enter();
        let first = grace.end_epoch();
        let b = grace.enter();
        let second = grace.end_epoch();
        let c = grace.enter();
        assert!(!grace.passed(first) && !grace.passed(second));
        grace.leave(b);
        assert!(!grace.passed(first) && !grace.passed(second));
        grace.leave(a);
        assert!(grace.passed(first) && grace.passed(second));
        let third = grace.end_epoch();
        assert!(!grace.passed(third));
        grace.leave(c);
        assert!(grace.passed(third));
        let idle = grace.end_epoch();
        assert!(grace.passed(idle));
    }
}
