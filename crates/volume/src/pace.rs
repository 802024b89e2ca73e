//! How fast a move may copy: a bandwidth that the operator caps, and that yields to the guest's latency.
//!
//! Additive increase, multiplicative decrease on the guest's own latency: while the mean of the recent requests is above
//! [`YIELD_ABOVE`] times what it was before the move, the rate is cut by a quarter at each look; below that it grows by a
//! sixteenth of the cap. It never falls below [`FLOOR`] of the cap, so that a move ends.

use units::BytesPerSec;

/// A move slows down when the guest's mean latency is above so many times its latency before the move.
pub const YIELD_ABOVE: f64 = 1.5;

/// The least share of its cap that a move keeps, so that it ends.
pub const FLOOR: f64 = 0.1;

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

    /// So many requests took `sum_ns` together while nothing moved: as if each of them had taken the mean.
    pub fn observe_before(&mut self, count: u64, sum_ns: u64) {
        if count == 0 {
            return;
        }
        let mean = sum_ns as f64 / count as f64;
        for (known, weight) in [(&mut self.recent_ns, RECENT), (&mut self.before_ns, BEFORE)] {
            let rest = match *known == 0.0 {
                true => 0.0,
                false => power(1.0 - weight, count),
            };
            *known = mean + (*known - mean) * rest;
        }
    }
}

/// `base` to the power of a whole number, the same everywhere.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result *= base;
        }
        base *= base;
        exponent /= 2;
    }
    result
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
    pub fn took(&mut self, now_ns: u64, bytes: u64, guest: &GuestLatency) {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns + LOOK_NS;
            let limit = (guest.before_ns * YIELD_ABOVE).max(NOISE_NS);
            self.share = if guest.before_ns > 0.0 && guest.recent_ns > limit {
                (self.share * 0.75).max(FLOOR)
            } else {
                (self.share + 1.0 / 16.0).min(1.0)
            };
        }
        let rate = self.cap.0 as f64 * self.share;
        let pause_ns = bytes as f64 * 1e9 / rate.max(1.0);
        // What was missed is made up for by less than one piece.
        self.next_ns = self.next_ns.saturating_add(pause_ns as u64).max(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_together_count_as_one_by_one() {
        let (mut one_by_one, mut together) = (GuestLatency::default(), GuestLatency::default());
        for (count, latency_ns) in [(700, 200_000), (1, 90_000), (0, 5), (33, 1_000_000)] {
            (0..count).for_each(|_| one_by_one.observe(latency_ns, false));
            together.observe_before(count, count * latency_ns);
        }
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * a;
        assert!(near(one_by_one.recent_ns, together.recent_ns));
        assert!(near(one_by_one.before_ns, together.before_ns));
    }

    #[test]
    fn a_quiet_guest_gets_the_cap_and_a_suffering_one_the_floor() {
        let mut guest = GuestLatency::default();
        for _ in 0..5000 {
            guest.observe(200_000, false);
        }
        let mib = 1 << 20;
        let copied_in_a_second = |guest: &GuestLatency| {
            let mut pace = Pace::new(BytesPerSec(100 * mib));
            let (mut now, mut bytes) = (0, 0);
            while now < 1_000_000_000 {
                pace.took(now, mib, guest);
                bytes += mib;
                now = now.max(pace.next_ns());
            }
            bytes / mib
        };
        assert!((98..=104).contains(&copied_in_a_second(&guest)));
        for _ in 0..500 {
            guest.observe(900_000, true);
        }
        let yielding = copied_in_a_second(&guest);
        assert!((10..35).contains(&yielding), "{yielding} MiB");
    }
}
