//! Limit of the events that one host causes, so that its reports do not displace earlier events.

use units::Nanos;

/// Events that a host may cause at once: enough for an array that loses a device with all of its
/// volumes; protects the store.
pub(super) const EVENTS_BURST: u64 = 2_000;

/// Time after which a host may cause one more event: some 17,000 a day.
const EVENT_PAUSE: Nanos = Nanos::from_secs(5);

/// Most bytes of an event's text. Protects the store.
pub(super) const EVENT_BYTES_MAX: usize = 8_192;

/// Events that a host may still cause. The status lists all problems, even without their events.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u64,
    since: Nanos,
    left_out: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left: EVENTS_BURST,
            since: Nanos::ZERO,
            left_out: 0,
        }
    }
}

/// Decision on writing an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EventDecision {
    None,
    One,
    /// First event after a number of omitted ones.
    After(u64),
}

impl Allowance {
    pub(super) fn take(&mut self, now: Nanos) -> EventDecision {
        let more = now.saturating_sub(self.since).0 / EVENT_PAUSE.0;
        self.left = (self.left + more).min(EVENTS_BURST);
        self.since = Nanos(self.since.0 + more * EVENT_PAUSE.0);
        if self.left == 0 {
            self.left_out += 1;
            return EventDecision::None;
        }
        self.left -= 1;
        match std::mem::take(&mut self.left_out) {
            0 => EventDecision::One,
            left_out => EventDecision::After(left_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_of_events_is_cut_and_counted() {
        let mut all = Allowance::default();
        let at = |s: u64| Nanos::from_secs(1_000_000 + s);
        for _ in 0..EVENTS_BURST {
            assert_eq!(all.take(at(0)), EventDecision::One);
        }
        for _ in 0..7 {
            assert_eq!(all.take(at(1)), EventDecision::None);
        }
        assert_eq!(all.take(at(6)), EventDecision::After(7));
        assert_eq!(all.take(at(6)), EventDecision::None);
        assert_eq!(all.take(at(3600)), EventDecision::After(1));
    }
}
