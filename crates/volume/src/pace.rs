//! How fast a move may copy: a bandwidth that the operator caps, and that yields to guests.
//!
//! Additive increase, multiplicative decrease on the latency of the volume's own guest: while the mean of the recent requests is above
//! [`YIELD_ABOVE`] times what it was before the move, the rate is cut by a quarter at each look; below that it grows by a
//! sixteenth of the cap. It never falls below [`FLOOR`] of the cap, so that a move ends.
//!
//! Those who share the source and the target with it are asked by their objectives ([`Slack`]):
//!
//! ```text
//!   worst latency / objective    0 ──────────────── [`NEAR`] ─────────── 1 ──────────────▶
//!   share of the cap             grows up to all      grows no more        at most [`CONSERVATIVE`], as where it is not known
//! ```

use units::BytesPerSec;

use crate::slack::Slack;

/// A move slows down when the guest's mean latency is above so many times its latency before the move.
pub const YIELD_ABOVE: f64 = 1.5;

/// The least share of its cap that a move keeps, so that it ends.
pub const FLOOR: f64 = 0.1;

/// The share of its cap that a move takes at most while somebody who shares its devices misses an objective, and while it is not known
/// whether somebody does. Small enough to be felt little, large enough that a move which is to help them is done in time.
pub const CONSERVATIVE: f64 = 0.2;

/// Above this share of an objective the rate of a move does not grow: what it takes more may be what is missing.
pub const NEAR: f32 = 0.8;

/// Latency below this is never a reason to slow down, in nanoseconds: it is noise of the host's scheduler.
const NOISE_NS: f64 = 100_000.0;

/// Time between two looks, in nanoseconds.
const LOOK_NS: u64 = 20_000_000;

/// Weight of one request in the mean of the recent ones.
const RECENT: f64 = 1.0 / 64.0;

/// Weight of one request in the mean of the time before a move.
const BEFORE: f64 = 1.0 / 1024.0;

/// Latency of the guest, before a move and now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GuestLatency {
    recent_ns: f64,
    before_ns: f64,
}

impl GuestLatency {
    /// Nothing is known of it.
    pub const NONE: Self = Self {
        recent_ns: 0.0,
        before_ns: 0.0,
    };

    /// A guest request took so long. What it took while a move was under way says nothing of the time before it.
    #[inline]
    pub fn observe(&mut self, latency_ns: u64, moving: bool) {
        let latency = latency_ns as f64;
        if self.recent_ns == 0.0 {
            self.recent_ns = latency;
        }
        self.recent_ns += (latency - self.recent_ns) * RECENT;
        if !moving {
            if self.before_ns == 0.0 {
                self.before_ns = latency;
            }
            self.before_ns += (latency - self.before_ns) * BEFORE;
        }
    }
}

/// The rate of one move.
#[derive(Debug)]
pub struct Pace {
    cap: BytesPerSec,
    /// Share of the cap.
    share: f64,
    next_ns: u64,
    look_ns: u64,
}

impl Pace {
    /// At most so fast, and so fast at first.
    pub fn new(cap: BytesPerSec) -> Self {
        Self {
            cap,
            share: 1.0,
            next_ns: 0,
            look_ns: 0,
        }
    }

    /// When the next chunk may be read.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The present rate.
    pub fn rate(&self) -> BytesPerSec {
        BytesPerSec((self.cap.0 as f64 * self.share) as u64)
    }

    /// Starts to copy `bytes` at `now_ns`: says when the next chunk may begin.
    pub fn took(&mut self, now_ns: u64, bytes: u64, guest: &GuestLatency, others: Slack) {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns + LOOK_NS;
            let limit = (guest.before_ns * YIELD_ABOVE).max(NOISE_NS);
            let suffers = guest.before_ns > 0.0 && guest.recent_ns > limit;
            self.share = match others {
                _ if suffers => (self.share * 0.75).max(FLOOR),
                Slack::Used(ratio) if ratio > NEAR => self.share,
                _ => (self.share + 1.0 / 16.0).min(1.0),
            };
            let missed = match others {
                Slack::Unbound => false,
                Slack::Used(ratio) => ratio > 1.0,
                Slack::Unknown => true,
            };
            if missed {
                self.share = self.share.min(CONSERVATIVE);
            }
        }
        let rate = self.cap.0 as f64 * self.share;
        let pause_ns = bytes as f64 * 1e9 / rate.max(1.0);
        // What was missed is made up for by less than one piece.
        self.next_ns = self.next_ns.saturating_add(pause_ns as u64).max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// What a move of 100 MiB/s copies in so many seconds.
    fn copied_mib(seconds: u64, guest: &GuestLatency, others: Slack) -> u64 {
        let mut pace = Pace::new(BytesPerSec(100 * MIB));
        let (mut now, mut bytes) = (0, 0);
        while now < seconds * 1_000_000_000 {
            pace.took(now, MIB, guest, others);
            bytes += MIB;
            now = now.max(pace.next_ns());
        }
        bytes / MIB
    }

    #[test]
    fn a_quiet_guest_gets_the_cap_and_a_suffering_one_the_floor() {
        let mut guest = GuestLatency::default();
        for _ in 0..5000 {
            guest.observe(200_000, false);
        }
        assert!((98..=104).contains(&copied_mib(1, &guest, Slack::Unbound)));
        for _ in 0..500 {
            guest.observe(900_000, true);
        }
        let yielding = copied_mib(1, &guest, Slack::Unbound);
        assert!((10..35).contains(&yielding), "{yielding} MiB");
    }

    proptest! {
        #[test]
        fn guests_who_share_a_device_have_their_objectives_first(ratio in 0.0f32..4.0, latency_ns in 0u64..5_000_000) {
            let mut guest = GuestLatency::default();
            (0..200).for_each(|_| guest.observe(latency_ns, false));
            let copied = copied_mib(10, &guest, Slack::Used(ratio));
            let conservative = (1000.0 * CONSERVATIVE) as u64;
            match ratio > 1.0 {
                true => prop_assert!(copied <= conservative + 2, "{}", copied),
                false => prop_assert!((1000..=1002).contains(&copied), "{}", copied),
            }
            prop_assert!(copied >= (1000.0 * FLOOR) as u64);
        }

        #[test]
        fn what_is_not_known_is_conservative_and_a_move_still_ends(before_ns in 1u64..1_000_000, now_ns in 1u64..100_000_000) {
            let mut guest = GuestLatency::default();
            (0..200).for_each(|_| guest.observe(before_ns, false));
            (0..200).for_each(|_| guest.observe(now_ns, true));
            let copied = copied_mib(10, &guest, Slack::Unknown);
            prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2);
            prop_assert!(copied >= (1000.0 * FLOOR) as u64);
        }

        #[test]
        fn a_rate_that_was_cut_comes_back_only_with_room(ratios in prop::collection::vec(0.0f32..2.0, 1..200)) {
            let guest = GuestLatency::default();
            let mut pace = Pace::new(BytesPerSec(100 * MIB));
            let mut now = 0;
            for ratio in ratios {
                let before = pace.rate();
                pace.took(now, MIB, &guest, Slack::Used(ratio));
                now += LOOK_NS.max(pace.next_ns() - now);
                prop_assert!(pace.rate().0 >= (100.0 * MIB as f64 * FLOOR) as u64);
                prop_assert!(ratio <= NEAR || pace.rate() <= before);
                prop_assert!(ratio > NEAR || pace.rate() >= before);
            }
        }
    }
}
