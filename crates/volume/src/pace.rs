//! How fast a move may copy, and in which pieces: a bandwidth that the operator caps, and that yields to guests.
//!
//! Additive increase, multiplicative decrease on the latency of the volume's own guest: while the mean of the recent requests is above
//! [`YIELD_ABOVE`] times what it was before the move, the rate is cut by a quarter at each look; below that it grows by a
//! sixteenth of the cap. It never falls below [`FLOOR`] of the cap, so that a move ends.
//!
//! Guests of other volumes are asked by their objectives ([`Slack`]), those on the source and those on the target each by a limit of
//! their own, and the worse of the two counts:
//!
//! ```text
//!   worst latency / limit        0 ──────────────── [`NEAR`] ─────────── 1 ──────────────▶
//!   share of the cap             grows up to all      grows no more        at most [`CONSERVATIVE`], as where it is not known
//! ```
//!
//! The limit is the objective. Where one is missed already when the move begins, the move is not the cause and may well be the cure, which
//! going slowly would put off: the limit is [`YIELD_ABOVE`] times what it is then, and falls with it down to the objective.

use units::{Bytes, BytesPerSec};

use crate::slack::{Others, Slack};

/// A move slows down when the guest's mean latency is above so many times its latency before the move.
pub const YIELD_ABOVE: f64 = 1.5;

/// The least share of its cap that a move keeps, so that it ends.
pub const FLOOR: f64 = 0.1;

/// The share of its cap that a move takes at most while somebody who shares its devices is past the limit, and while it is not known
/// whether somebody is. Small enough to be felt little, large enough that a move which is to help them is done in time.
pub const CONSERVATIVE: f64 = 0.2;

/// Above this share of the limit the rate of a move does not grow: what it takes more may be what is missing.
pub const NEAR: f32 = 0.8;

/// Latency below this is never a reason to slow down, in nanoseconds: it is noise of the host's scheduler.
const NOISE_NS: f64 = 100_000.0;

/// Time between two looks, in nanoseconds.
const LOOK_NS: u64 = 20_000_000;

/// Weight of one request in the mean of the recent ones.
const RECENT: f64 = 1.0 / 64.0;

/// Weight of one request in the mean of the time before a move.
const BEFORE: f64 = 1.0 / 1024.0;

/// A chunk has one of the least for each of these that a guest waits anyway ([`copy_chunk`]), in nanoseconds.
const CHUNK_NS: u64 = 1_000_000;

/// At the cap a chunk takes at most this part of a second: smaller ones keep a low cap better.
const CHUNK_OF_CAP: u64 = 8;

/// Size of the chunks of a move that begins, between `least` and `most`. A guest's request may have to wait behind one, so chunks are small where
/// requests are answered in less than a millisecond. Where they take longer, a device is waited for before a chunk as long as before a request, a disk for
/// its arm, or what is queued, and a move has one chunk under way. So chunks grow with that time, to the next power of two. It is the lower of what the guest waits now and what it
/// has waited on average: one late answer says nothing.
pub fn copy_chunk(least: Bytes, most: Bytes, cap: BytesPerSec, guest: &GuestLatency) -> Bytes {
    let waits_ns = guest.recent_ns.min(guest.before_ns) as u64;
    let times = (waits_ns / CHUNK_NS + 1).next_power_of_two();
    let by_wait = least.0.saturating_mul(times).min(cap.0 / CHUNK_OF_CAP);
    // Still so many of the least ones.
    let times = (by_wait.min(most.0) / least.0.max(1)).max(1);
    Bytes(least.0 << times.ilog2())
}

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

    /// The guest asks for nothing: what it had to bear last is over.
    pub fn rests(&mut self) {
        self.recent_ns = self.before_ns;
    }
}

/// The rate of one move.
#[derive(Debug)]
pub struct Pace {
    cap: BytesPerSec,
    /// Share of the cap.
    share: f64,
    /// What others may use of their objectives, on the source and on the target.
    limits: [f32; 2],
    next_ns: u64,
    look_ns: u64,
}

impl Pace {
    /// At most so fast, and so fast at first.
    pub fn new(cap: BytesPerSec) -> Self {
        Self {
            cap,
            share: 1.0,
            limits: [f32::INFINITY; 2],
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
    pub fn took(&mut self, now_ns: u64, bytes: u64, guest: &GuestLatency, others: Others) {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns + LOOK_NS;
            let limit = (guest.before_ns * YIELD_ABOVE).max(NOISE_NS);
            let suffers = guest.before_ns > 0.0 && guest.recent_ns > limit;
            let used = self.used(others);
            if suffers {
                self.share = (self.share * 0.75).max(FLOOR);
            } else if used.is_none_or(|u| u <= NEAR) {
                self.share = (self.share + 1.0 / 16.0).min(1.0);
            }
            if used.is_none_or(|u| u > 1.0) {
                self.share = self.share.min(CONSERVATIVE);
            }
        }
        let rate = self.cap.0 as f64 * self.share;
        let pause_ns = bytes as f64 * 1e9 / rate.max(1.0);
        // What was missed is made up for by less than one piece.
        self.next_ns = self.next_ns.saturating_add(pause_ns as u64).max(now_ns);
    }

    /// The share of their limit that others use, the worse of source and target, if it is known.
    fn used(&mut self, others: Others) -> Option<f32> {
        let mut worst = Some(0.0f32);
        for (limit, of) in self.limits.iter_mut().zip([others.source, others.target]) {
            let used = match of {
                Slack::Unbound => Some(0.0),
                Slack::Used(ratio) => Some(ratio),
                Slack::Unknown => None,
            };
            *limit = match used {
                Some(used) if used > 1.0 => limit.min(used * YIELD_ABOVE as f32),
                Some(_) => 1.0,
                // What nobody knew when the move began may be its doing.
                None if limit.is_infinite() => 1.0,
                None => *limit,
            };
            worst = worst.zip(used).map(|(w, u)| w.max(u / *limit));
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Of those on the source; nobody on the target has an objective.
    fn on_source(source: Slack) -> Others {
        let target = Slack::Unbound;
        Others { source, target }
    }

    /// What a move of 100 MiB/s copies in so many seconds, where others used so much when it began and use so much since.
    fn copied_mib(seconds: u64, guest: &GuestLatency, began: Others, others: Others) -> u64 {
        let mut pace = Pace::new(BytesPerSec(100 * MIB));
        pace.took(0, 0, guest, began);
        let (mut now, mut bytes) = (LOOK_NS, 0);
        while now < LOOK_NS + seconds * 1_000_000_000 {
            pace.took(now, MIB, guest, others);
            bytes += MIB;
            now = now.max(pace.next_ns());
        }
        bytes / MIB
    }

    #[test]
    fn chunks_grow_with_what_guests_wait_and_stay_below_the_cap() {
        let (least, most) = (Bytes(64 << 10), Bytes::mib(1));
        let beside = |latency_ns: u64, cap| {
            let mut guest = GuestLatency::default();
            guest.observe(latency_ns, false);
            copy_chunk(least, most, BytesPerSec(cap), &guest)
        };
        let cap = 200 * MIB;
        assert_eq!(
            copy_chunk(least, most, BytesPerSec(cap), &GuestLatency::NONE),
            least
        );
        for (latency_us, kib) in [
            (100, 64),
            (999, 64),
            (1_000, 128),
            (5_600, 512),
            (34_000, 1024),
            (1 << 30, 1024),
        ] {
            assert_eq!(
                beside(latency_us * 1000, cap),
                Bytes(kib << 10),
                "{latency_us} us"
            );
        }
        assert_eq!(beside(34_000_000, MIB), Bytes(128 << 10));
        assert_eq!(beside(34_000_000, 1), least);
        // One late answer says nothing, nor does a time that is over.
        let of = |recent_ns, before_ns| GuestLatency {
            recent_ns,
            before_ns,
        };
        for once in [of(16e6, 1e5), of(1e5, 16e6)] {
            assert_eq!(copy_chunk(least, most, BytesPerSec(cap), &once), least);
        }
        let slow = of(1e9, 1e9);
        for (least, most, chunk) in [(24, 64, 48), (64, 16, 64)] {
            let [least, most] = [least, most].map(|kib| Bytes(kib << 10));
            let odd = copy_chunk(least, most, BytesPerSec(cap), &slow);
            assert_eq!(odd, Bytes(chunk << 10));
        }
    }

    fn copied_beside(began: Slack, others: Slack) -> u64 {
        copied_mib(10, &GuestLatency::NONE, on_source(began), on_source(others))
    }

    #[test]
    fn a_quiet_guest_gets_the_cap_and_a_suffering_one_the_floor() {
        let mut guest = GuestLatency::default();
        let free = on_source(Slack::Unbound);
        for _ in 0..5000 {
            guest.observe(200_000, false);
        }
        assert!((98..=104).contains(&copied_mib(1, &guest, free, free)));
        for _ in 0..500 {
            guest.observe(900_000, true);
        }
        let yielding = copied_mib(1, &guest, free, free);
        assert!((10..35).contains(&yielding), "{yielding} MiB");
        guest.rests();
        assert!((98..=104).contains(&copied_mib(1, &guest, free, free)));
    }

    /// db is what is to be moved away from, gold is well off where it goes.
    #[test]
    fn one_who_misses_on_the_source_takes_nothing_from_those_on_the_target() {
        let slack = |db, gold| Others {
            source: Slack::Used(db),
            target: Slack::Used(gold),
        };
        let copied = |now| copied_mib(10, &GuestLatency::NONE, slack(10.0, 0.5), now);
        assert!((1000..=1002).contains(&copied(slack(10.0, 0.5))));
        assert!(copied(slack(10.0, 1.1)) <= 202);
        assert!(copied(slack(16.0, 0.5)) <= 202);
    }

    #[test]
    fn a_limit_falls_with_what_is_used_and_never_rises() {
        let mut pace = Pace::new(BytesPerSec(100 * MIB));
        let shares = [8.0, 10.0, 0.9, 1.2].map(|ratio| {
            pace.look_ns = 0;
            pace.took(0, 0, &GuestLatency::NONE, on_source(Slack::Used(ratio)));
            pace.share
        });
        assert_eq!(shares, [1.0, 1.0, 1.0, CONSERVATIVE]);
    }

    proptest! {
        #[test]
        fn guests_who_share_a_device_have_their_objectives_first(ratio in 0.0f32..4.0) {
            let copied = copied_beside(Slack::Used(NEAR), Slack::Used(ratio));
            match ratio > 1.0 {
                true => prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2, "{}", copied),
                false => prop_assert!((1000..=1002).contains(&copied), "{}", copied),
            }
            prop_assert!(copied >= (1000.0 * FLOOR) as u64);
        }

        #[test]
        fn what_was_missed_before_the_move_must_not_get_much_worse(began in 1.01f32..10.0, times in 1.0f32..3.0) {
            prop_assume!((times - YIELD_ABOVE as f32).abs() > 0.1);
            let copied = copied_beside(Slack::Used(began), Slack::Used(began * times));
            match times > YIELD_ABOVE as f32 {
                true => prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2, "{}", copied),
                false => prop_assert!((1000..=1002).contains(&copied), "{}", copied),
            }
        }

        #[test]
        fn what_nobody_knew_when_a_move_began_is_no_excuse(ratio in 0.0f32..10.0) {
            let copied = copied_beside(Slack::Unknown, Slack::Used(ratio));
            match ratio > NEAR {
                true => prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2, "{}", copied),
                false => prop_assert!((900..=1002).contains(&copied), "{}", copied),
            }
        }

        #[test]
        fn what_is_not_known_is_conservative_and_a_move_still_ends(before_ns in 1u64..1_000_000, now_ns in 1u64..100_000_000) {
            let mut guest = GuestLatency::default();
            (0..200).for_each(|_| guest.observe(before_ns, false));
            (0..200).for_each(|_| guest.observe(now_ns, true));
            let copied = copied_mib(10, &guest, Others::UNKNOWN, Others::UNKNOWN);
            prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2);
            prop_assert!(copied >= (1000.0 * FLOOR) as u64);
        }

        #[test]
        fn a_rate_that_was_cut_comes_back_only_with_room(ratios in prop::collection::vec(0.0f32..2.0, 1..200)) {
            let guest = GuestLatency::default();
            let mut pace = Pace::new(BytesPerSec(100 * MIB));
            pace.took(0, 0, &guest, on_source(Slack::Unbound));
            let mut now = LOOK_NS;
            for ratio in ratios {
                let before = pace.rate();
                pace.took(now, MIB, &guest, on_source(Slack::Used(ratio)));
                now += LOOK_NS.max(pace.next_ns() - now);
                prop_assert!(pace.rate().0 >= (100.0 * MIB as f64 * FLOOR) as u64);
                prop_assert!(ratio <= NEAR || pace.rate() <= before);
                prop_assert!(ratio > NEAR || pace.rate() >= before);
            }
        }
    }
}
