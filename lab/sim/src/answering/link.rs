//! One direction of a link, as a calendar: a transfer uses the free time of the link from its start on.
//!
//! The send time of a reply is known when its request is issued, but requests are not issued in the order of sending.
//! First come, first served by issue would delay fast replies behind slow ones. So the link allocates its time in
//! slots.

/// Length of a slot.
const SLOT_NS: u64 = 50_000;
/// Number of slots. Transfers more than 0.8 s ahead are sent in order of issue.
const SLOTS: usize = 1 << 14;

/// One direction of a link.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    ns_per_byte: f64,
    /// Used time by slot.
    used: Vec<u32>,
    /// Ring, by slot: minimum number of slots to skip from a full slot to a free one. Searches shorten the path.
    skip: Vec<u32>,
    /// Current slot.
    base: u64,
    /// Time at which transfers beyond the calendar are sent.
    beyond_ns: u64,
}

impl Link {
    /// Creates an idle link.
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        Self {
            ns_per_byte: 1e9 / bytes_per_s.max(1) as f64,
            used: vec![0; SLOTS],
            skip: vec![0; SLOTS],
            base: 0,
            beyond_ns: 0,
        }
    }

    /// Returns the transfer time of `bytes`.
    #[inline]
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.ns_per_byte) as u64
    }

    /// Sends bytes from `at_ns` on, not before `now_ns`. Returns the time at which all of them have arrived.
    #[inline]
    pub(crate) fn send(&mut self, now_ns: u64, at_ns: u64, bytes: u64) -> u64 {
        self.advance(now_ns / SLOT_NS);
        let mut left = self.takes_ns(bytes);
        let soonest = at_ns + left;
        let mut slot = at_ns / SLOT_NS;
        while left > 0 {
            slot = self.with_room(slot);
            if slot >= self.base + SLOTS as u64 {
                let start = self.beyond_ns.max(at_ns).max(slot * SLOT_NS);
                self.beyond_ns = start + left;
                return self.beyond_ns.max(soonest);
            }
            let used = &mut self.used[slot as usize % SLOTS];
            let takes = left.min(SLOT_NS - u64::from(*used));
            *used += takes as u32;
            left -= takes;
            if left == 0 {
                return soonest.max(slot * SLOT_NS + u64::from(*used));
            }
        }
        soonest
    }

    /// Returns the first slot from `slot` on with free time, or one beyond the calendar.
    fn with_room(&mut self, slot: u64) -> u64 {
        let end = self.base + SLOTS as u64;
        let mut found = slot;
        while found < end && u64::from(self.used[found as usize % SLOTS]) == SLOT_NS {
            found += u64::from(self.skip[found as usize % SLOTS].max(1));
        }
        let found = found.min(end);
        // The next search from here skips directly to the found slot.
        if found > slot && slot < end {
            self.skip[slot as usize % SLOTS] = (found - slot) as u32;
        }
        found
    }

    fn advance(&mut self, to: u64) {
        if to <= self.base {
            return;
        }
        let passed = (to - self.base).min(SLOTS as u64);
        // The place of a passed slot is reused for the next slot of the ring, whose time may already be in use.
        for slot in to + SLOTS as u64 - passed..to + SLOTS as u64 {
            let taken = self.beyond_ns.saturating_sub(slot * SLOT_NS).min(SLOT_NS);
            self.used[slot as usize % SLOTS] = taken as u32;
            self.skip[slot as usize % SLOTS] = 0;
        }
        self.base = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::Rng;

    #[test]
    fn idle_link_takes_the_time_of_the_bytes() {
        let mut link = Link::new(1_000_000_000);
        assert_eq!(link.send(0, 1_234_567, 4096), 1_234_567 + 4096);
        assert_eq!(link.send(0, 500, 0), 500);
    }

    #[test]
    fn fast_reply_does_not_wait_for_an_earlier_slow_one() {
        let mut link = Link::new(100_000_000);
        assert_eq!(link.send(0, 50_000_000, 100_000), 51_000_000);
        assert_eq!(link.send(0, 1_000_000, 100_000), 2_000_000);
    }

    /// Sends at most at its rate, and at its full rate during a backlog, for any order and any distance ahead.
    #[test]
    fn link_sends_at_most_its_rate() {
        let rate = 10_000_000;
        let mut link = Link::new(rate);
        let mut rng = Rng::new(3, 1);
        let mut ends = Vec::new();
        let (mut now, mut asked) = (0, 0);
        for _ in 0..40_000 {
            now += rng.below(100_000);
            let bytes = 500 + rng.below(2000);
            asked += bytes;
            let at = now + rng.below(30_000_000);
            ends.push((link.send(now, at, bytes), bytes));
        }
        ends.sort_unstable();
        let last = ends[ends.len() - 1].0;
        let busy_s = asked as f64 / rate as f64;
        // The offered load is three times the rate, so the link is never idle after the first replies.
        assert!(last as f64 / 1e9 > busy_s, "{last} {busy_s}");
        assert!((last as f64 / 1e9) < busy_s + 0.2, "{last} {busy_s}");
        let mut sent = 0;
        for (end, bytes) in ends {
            sent += bytes;
            let most = (end + 2 * SLOT_NS) as f64 * rate as f64 / 1e9;
            assert!(sent as f64 <= most + 2500.0, "{sent} by {end}");
        }
    }
}
