//! One direction of a link, as a calendar: what is sent at a time takes the time that nobody has from then on.
//!
//! When an answer will be sent is known as soon as its request is issued, and not in the order of sending: a link that served first
//! come first served by issue would hold quick answers up behind slow ones. So time is dealt out in slots.

/// Length of a slot.
const SLOT_NS: u64 = 50_000;
/// Slots that are kept: what is sent later than 0.8 s from now is sent in order of issue.
const SLOTS: usize = 1 << 14;

/// A direction of a link.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    ns_per_byte: f64,
    /// Time that is taken, by slot.
    used: Vec<u32>,
    /// By slot: how far at least to go on from a full one to find room; a ring, shortened as it is walked.
    skip: Vec<u32>,
    /// The slot that is now.
    base: u64,
    /// When what is beyond the calendar is sent.
    beyond_ns: u64,
}

impl Link {
    /// An idle one.
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        Self {
            ns_per_byte: 1e9 / bytes_per_s.max(1) as f64,
            used: vec![0; SLOTS],
            skip: vec![0; SLOTS],
            base: 0,
            beyond_ns: 0,
        }
    }

    /// Time that so many bytes take.
    #[inline]
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.ns_per_byte) as u64
    }

    /// Sends bytes from `at_ns` on, not before `now_ns`: when all of them have arrived.
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

    /// The first slot from `slot` on that is not full, or one beyond the calendar.
    fn with_room(&mut self, slot: u64) -> u64 {
        let end = self.base + SLOTS as u64;
        let mut found = slot;
        while found < end && u64::from(self.used[found as usize % SLOTS]) == SLOT_NS {
            found += u64::from(self.skip[found as usize % SLOTS].max(1));
        }
        let found = found.min(end);
        // The next one from here goes there at once.
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
        // A slot that has passed is the one of its place that comes next, of which time may be taken already.
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
    fn an_idle_link_takes_the_time_of_the_bytes() {
        let mut link = Link::new(1_000_000_000);
        assert_eq!(link.send(0, 1_234_567, 4096), 1_234_567 + 4096);
        assert_eq!(link.send(0, 500, 0), 500);
    }

    #[test]
    fn a_quick_answer_does_not_wait_for_a_slow_one_that_was_asked_for_before() {
        let mut link = Link::new(100_000_000);
        assert_eq!(link.send(0, 50_000_000, 100_000), 51_000_000);
        assert_eq!(link.send(0, 1_000_000, 100_000), 2_000_000);
    }

    /// Never more than its rate, and all of it while there is a backlog, whatever the order and however far ahead.
    #[test]
    fn it_sends_its_rate_and_no_more() {
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
        // Asked for three times what it can send: it is never idle after the first answers.
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
