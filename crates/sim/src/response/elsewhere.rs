//! Another backend: stations of its own, at which requests queue in order.

use algo::{JitterTable, mix};

/// Stations; which one serves an object is drawn once.
const STATIONS: u64 = 4;
/// Spread of service times (sigma of a log-normal).
const SIGMA: f64 = 0.35;
/// What can be served on top is taken to be this share of all of it: beyond, queues grow fast.
const USABLE: f64 = 0.8;

pub(super) struct Group {
    free: Vec<u64>,
    mean_ns: f64,
    jitter: JitterTable,
    seed: u64,
    draws: u64,
}

impl Group {
    /// One that could serve `spare_per_s` requests per second and be quick.
    pub(super) fn new(spare_per_s: f64, seed: u64) -> Self {
        let all = spare_per_s.max(0.001) / USABLE;
        Self {
            free: vec![0; STATIONS as usize],
            mean_ns: 1e9 * STATIONS as f64 / all,
            jitter: JitterTable::new(SIGMA),
            seed: seed ^ 0xE15E,
            draws: 0,
        }
    }

    /// Mean time of a request that does not queue.
    pub(super) fn one(&self) -> u64 {
        self.mean_ns as u64
    }

    /// A request for an object that gets there at `now`: when it is done.
    pub(super) fn serve(&mut self, now: u64, object: u32) -> u64 {
        self.draws += 1;
        let takes = self.mean_ns * self.jitter.factor(mix(self.seed, self.draws));
        let station = (mix(0x57A7, u64::from(object)) % STATIONS) as usize;
        let free = &mut self.free[station];
        *free = now.max(*free) + takes as u64;
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_serves_what_it_says_and_a_quarter_more() {
        let mut group = Group::new(800.0, 1);
        let last = (0..50_000).map(|o| group.serve(0, o)).max().unwrap();
        let rate = 50_000.0 / (last as f64 / 1e9);
        // Factors of the jitter have a mean a little above 1.
        assert!((900.0..1010.0).contains(&rate), "{rate}");
        assert!(group.serve(1 << 60, 1) > 1 << 60);
    }
}
