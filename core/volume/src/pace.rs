//! Rate and chunk size of a move. The operator sets the cap of the rate, and the move yields to guests.
//!
//! The rate follows additive increase and multiplicative decrease, by the latency of the volume's own guest. If the mean of
//! recent requests exceeds [`YIELD_ABOVE`] times the latency before the move, each adjustment reduces the rate by a quarter.
//! Otherwise the rate grows by a sixteenth of the cap. It never falls below [`FLOOR`] of the cap, so each move ends.
//!
//! Guests of other volumes count by their objectives ([`Slack`]). Source and target have separate limits, and the worse of
//! the two ratios applies:
//!
//! ```text
//!   worst latency / limit        0 ──────────────── [`NEAR`] ─────────── 1 ──────────────▶
//!   share of the cap             grows up to 1       does not grow         at most [`CONSERVATIVE`], also if it is unknown
//! ```
//!
//! The limit is the objective. If an objective is violated already when the move begins, the move is not the cause and may
//! be the remedy, which a slow move would delay. The limit is then [`YIELD_ABOVE`] times the ratio at the start, and falls
//! with the ratio down to the objective.

use units::{Bytes, BytesPerSec};

use crate::slack::{NeighborSlack, Slack};

/// Ratio of the guest's mean latency to that before the move above which the move slows down.
pub const YIELD_ABOVE: f64 = 1.5;

/// Smallest share of its cap that a move keeps, so that it ends.
pub const FLOOR: f64 = 0.1;

/// Largest share of its cap that a move uses while another guest of its devices is above the limit, or while that is
/// unknown. It is small enough to disturb little, and large enough that a move which relieves these guests ends in time.
pub const CONSERVATIVE: f64 = 0.2;

/// Share of the limit above which the rate of a move does not grow: more load could cause a violation.
pub const NEAR: f32 = 0.8;

/// Latency below which a move never slows down, ns: it is noise of the host's scheduler.
const NOISE_NS: f64 = 100_000.0;

/// Interval of adjustments, ns.
const LOOK_NS: u64 = 20_000_000;

/// Weight of one request in the mean of recent requests.
const RECENT: f64 = 1.0 / 64.0;

/// Weight of one request in the mean before a move.
const BEFORE: f64 = 1.0 / 1024.0;

/// Latency of a guest for which a chunk grows by the smallest size ([`copy_chunk`]), ns.
const CHUNK_NS: u64 = 1_000_000;

/// Divisor of a second: longest copy of one chunk at the cap. Longer copies would make a low cap inaccurate.
const CHUNK_OF_CAP: u64 = 8;

/// Returns the chunk size of a new move, between `least` and `most`.
///
/// A guest's request may wait behind a chunk, so chunks are small if latencies are below a millisecond. If they are longer,
/// a chunk waits for the device as long as a request does, for a disk's arm or a queue, and a move has one chunk in flight.
/// So the size grows with the latency, to the next power of two. The latency is the lower of the recent and the average one,
/// because a single late request must not count.
pub fn copy_chunk(least: Bytes, most: Bytes, cap: BytesPerSec, guest: &GuestLatency) -> Bytes {
    let waits_ns = guest.recent_ns.min(guest.before_ns) as u64;
    let times = (waits_ns / CHUNK_NS + 1).next_power_of_two();
    let by_wait = least.0.saturating_mul(times).min(cap.0 / CHUNK_OF_CAP);
    // The size is the smallest one times a power of two.
    let times = (by_wait.min(most.0) / least.0.max(1)).max(1);
    Bytes(least.0 << times.ilog2())
}

/// Latency of a guest, recently and before a move.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GuestLatency {
    recent_ns: f64,
    before_ns: f64,
}

impl GuestLatency {
    /// Unknown latency.
    pub const NONE: Self = Self {
        recent_ns: 0.0,
        before_ns: 0.0,
    };

    /// Adds the latency of a guest request. Requests during a move do not count for the time before it.
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

    /// Resets the recent latency of an idle guest.
    pub fn rests(&mut self) {
        self.recent_ns = self.before_ns;
    }
}

/// Rate of one move.
#[derive(Debug)]
pub struct Pace {
    cap: BytesPerSec,
    /// Present share of the cap.
    share: f64,
    /// Largest ratios of other guests' latencies to their objectives, on source and target.
    limits: [f32; 2],
    next_ns: u64,
    look_ns: u64,
}

impl Pace {
    /// Starts at the cap, which is the highest rate.
    pub fn new(cap: BytesPerSec) -> Self {
        Self {
            cap,
            share: 1.0,
            limits: [f32::INFINITY; 2],
            next_ns: 0,
            look_ns: 0,
        }
    }

    /// Returns the time at which the next chunk may be read.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Returns the present rate.
    pub fn rate(&self) -> BytesPerSec {
        BytesPerSec((self.cap.0 as f64 * self.share) as u64)
    }

    /// Starts the copy of `bytes` at `now_ns` and computes the time of the next chunk.
    pub fn took(&mut self, now_ns: u64, bytes: u64, guest: &GuestLatency, others: NeighborSlack) {
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
        // Lost time is compensated by less than one chunk.
        self.next_ns = self.next_ns.saturating_add(pause_ns as u64).max(now_ns);
    }

    /// Returns the worse ratio of other guests to their limit, on source and target; `None` if it is unknown.
    fn used(&mut self, others: NeighborSlack) -> Option<f32> {
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
                // A value that was unknown when the move began may be caused by the move.
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

    /// Slack of guests on the source, with no objectives on the target.
    fn on_source(source: Slack) -> NeighborSlack {
        let target = Slack::Unbound;
        NeighborSlack { source, target }
    }

    /// Returns the MiB that a move at 100 MiB/s copies in this time, with the slack of other guests at its start and after
    /// it.
    fn copied_mib(
        seconds: u64,
        guest: &GuestLatency,
        began: NeighborSlack,
        others: NeighborSlack,
    ) -> u64 {
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
    fn copy_chunk_grows_with_guest_latency_up_to_the_cap() {
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
        // A single late request does not count, nor does an earlier period.
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
    fn copy_rate_is_the_cap_for_fast_guests_and_lower_for_slowed_ones() {
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

    /// db is on the device that the move leaves; gold is on the target and meets its objective.
    #[test]
    fn earlier_violation_on_the_source_does_not_excuse_the_target() {
        let slack = |db, gold| NeighborSlack {
            source: Slack::Used(db),
            target: Slack::Used(gold),
        };
        let copied = |now| copied_mib(10, &GuestLatency::NONE, slack(10.0, 0.5), now);
        assert!((1000..=1002).contains(&copied(slack(10.0, 0.5))));
        assert!(copied(slack(10.0, 1.1)) <= 202);
        assert!(copied(slack(16.0, 0.5)) <= 202);
    }

    #[test]
    fn excused_violation_ratio_only_decreases() {
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
        fn violation_on_a_shared_device_reduces_the_copy_rate(ratio in 0.0f32..4.0) {
            let copied = copied_beside(Slack::Used(NEAR), Slack::Used(ratio));
            match ratio > 1.0 {
                true => prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2, "{}", copied),
                false => prop_assert!((1000..=1002).contains(&copied), "{}", copied),
            }
            prop_assert!(copied >= (1000.0 * FLOOR) as u64);
        }

        #[test]
        fn earlier_violation_must_not_become_much_worse(began in 1.01f32..10.0, times in 1.0f32..3.0) {
            prop_assume!((times - YIELD_ABOVE as f32).abs() > 0.1);
            let copied = copied_beside(Slack::Used(began), Slack::Used(began * times));
            match times > YIELD_ABOVE as f32 {
                true => prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2, "{}", copied),
                false => prop_assert!((1000..=1002).contains(&copied), "{}", copied),
            }
        }

        #[test]
        fn unknown_latency_at_the_start_excuses_no_violation(ratio in 0.0f32..10.0) {
            let copied = copied_beside(Slack::Unknown, Slack::Used(ratio));
            match ratio > NEAR {
                true => prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2, "{}", copied),
                false => prop_assert!((900..=1002).contains(&copied), "{}", copied),
            }
        }

        #[test]
        fn unknown_latency_gives_a_conservative_rate_above_the_floor(before_ns in 1u64..1_000_000, now_ns in 1u64..100_000_000) {
            let mut guest = GuestLatency::default();
            (0..200).for_each(|_| guest.observe(before_ns, false));
            (0..200).for_each(|_| guest.observe(now_ns, true));
            let copied = copied_mib(10, &guest, NeighborSlack::UNKNOWN, NeighborSlack::UNKNOWN);
            prop_assert!(copied <= (1000.0 * CONSERVATIVE) as u64 + 2);
            prop_assert!(copied >= (1000.0 * FLOOR) as u64);
        }

        #[test]
        fn reduced_rate_increases_only_without_a_near_violation(ratios in prop::collection::vec(0.0f32..2.0, 1..200)) {
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
