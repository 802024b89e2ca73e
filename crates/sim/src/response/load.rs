//! What workloads ask for: generated in phases, or recorded.

use std::sync::Arc;

use algo::{Popularity, Rng};
use serde::Serialize;
use units::Nanos;

/// A part of a workload's data, and how it is chosen from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Region {
    /// First object.
    pub first: u32,
    /// Objects.
    pub objects: u32,
    /// Skew: 0 is uniform.
    pub theta: f64,
}

/// A stretch of time with one habit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadPhase {
    /// Its end.
    pub until: Nanos,
    /// Requests per second.
    pub rate_per_s: f64,
    /// Which region is hot.
    pub hot: usize,
    /// Share of the reads that go anywhere instead, uniformly.
    pub cold_share: f64,
    /// Share of the requests that write, anywhere.
    pub write_share: f64,
}

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arriving {
    /// At random times (a trace of many users). What cannot be issued in time waits and is issued later.
    AtRandom,
    /// Evenly, as a generator with a rate limit: what could not be issued is not made up for.
    Evenly,
}

/// A generated load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generated {
    /// In order.
    pub phases: Vec<LoadPhase>,
    /// What is hot when.
    pub regions: Vec<Region>,
    /// How requests arrive.
    pub arriving: Arriving,
    /// Of the draws.
    pub seed: u64,
}

/// One recorded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedRequest {
    /// When it arrived.
    pub at: Nanos,
    /// Its first object.
    pub object: u32,
    /// How many objects it touches.
    pub objects: u32,
    /// Read or write.
    pub op: LoadOp,
}

/// Direction of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOp {
    /// Read.
    Read,
    /// Write.
    Write,
}

/// A workload's requests.
#[derive(Debug, Clone)]
pub enum Load {
    /// Drawn.
    Generated(Generated),
    /// Recorded, by time. What cannot be issued in time waits.
    Recorded(Arc<[RecordedRequest]>),
}

/// The requests of one load, in order.
#[derive(Debug)]
pub(super) struct Arrivals {
    load: Load,
    objects: u32,
    popularities: Vec<Popularity>,
    rng: Rng,
    phase: usize,
    /// Of the next request, in seconds since the start for drawn ones.
    at_ns: f64,
    index: usize,
    next: Option<RecordedRequest>,
    /// Requests that a rate-limited generator left out.
    pub(super) left_out: f64,
}

impl Arrivals {
    pub(super) fn new(load: Load, objects: u32) -> Self {
        let (popularities, seed) = match &load {
            Load::Generated(g) => {
                let one = |r: &Region| Popularity::new(u64::from(r.objects), r.theta);
                (g.regions.iter().map(one).collect(), g.seed)
            }
            Load::Recorded(_) => (Vec::new(), 0),
        };
        let mut arrivals = Self {
            load,
            objects,
            popularities,
            rng: Rng::new(seed, 0x10AD),
            phase: 0,
            at_ns: 0.0,
            index: 0,
            next: None,
            left_out: 0.0,
        };
        arrivals.draw();
        arrivals
    }

    /// The next request, which may lie in the future; `None` at the end.
    pub(super) fn peek(&self) -> Option<&RecordedRequest> {
        self.next.as_ref()
    }

    /// Takes the next request at `now`.
    pub(super) fn take(&mut self, now: u64) -> RecordedRequest {
        let taken = self.next.take().expect("asked for after a look");
        if let Load::Generated(g) = &self.load
            && g.arriving == Arriving::Evenly
        {
            let gap = 1e9 / g.phases[self.phase].rate_per_s;
            let late = now as f64 - self.at_ns;
            // A generator of this kind catches up on what its own timer missed, not on what the storage did.
            const LATE_MAX: f64 = 16.0;
            if late > LATE_MAX * gap {
                self.left_out += late / gap - LATE_MAX;
                self.at_ns = now as f64 - LATE_MAX * gap;
            }
        }
        self.draw();
        taken
    }

    /// Requests that have arrived by `now` and were not taken.
    pub(super) fn waiting(&self, now: u64) -> u64 {
        let Some(next) = self.next.as_ref().filter(|n| n.at.0 <= now) else {
            return 0;
        };
        match &self.load {
            Load::Recorded(all) => {
                let arrived = all[self.index..].partition_point(|r| r.at.0 <= now);
                1 + arrived as u64
            }
            Load::Generated(g) => {
                let (mut from, mut sum) = (next.at.0, 0.0);
                for phase in &g.phases[self.phase..] {
                    let until = phase.until.0.min(now);
                    sum += phase.rate_per_s * until.saturating_sub(from) as f64 / 1e9;
                    from = from.max(until);
                }
                1 + sum as u64
            }
        }
    }

    fn draw(&mut self) {
        let g = match &self.load {
            Load::Recorded(all) => {
                self.next = all.get(self.index).copied();
                self.index += 1;
                return;
            }
            Load::Generated(g) => g,
        };
        let Some(mut phase) = g.phases.get(self.phase) else {
            return;
        };
        let gap = match g.arriving {
            Arriving::AtRandom => self.rng.exponential(),
            Arriving::Evenly => 1.0,
        };
        self.at_ns += gap * 1e9 / phase.rate_per_s;
        while self.at_ns >= phase.until.0 as f64 {
            // The rest of the gap is a share of the new phase's.
            let left = (self.at_ns - phase.until.0 as f64) * phase.rate_per_s;
            self.at_ns = phase.until.0 as f64;
            self.phase += 1;
            let Some(next) = g.phases.get(self.phase) else {
                return;
            };
            phase = next;
            self.at_ns += left / phase.rate_per_s;
        }
        let bits = self.rng.next_u64();
        let write = self.rng.unit() < phase.write_share;
        let object = if write || self.rng.unit() < phase.cold_share {
            ((u128::from(bits) * u128::from(self.objects)) >> 64) as u32
        } else {
            let region = &g.regions[phase.hot];
            region.first + self.popularities[phase.hot].rank(bits) as u32
        };
        self.next = Some(RecordedRequest {
            at: Nanos(self.at_ns as u64),
            object,
            objects: 1,
            op: if write { LoadOp::Write } else { LoadOp::Read },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> Generated {
        let phase = |until, rate_per_s| LoadPhase {
            until: Nanos::from_secs(until),
            rate_per_s,
            hot: 0,
            cold_share: 0.1,
            write_share: 0.2,
        };
        Generated {
            phases: vec![phase(10, 1000.0), phase(20, 100.0)],
            regions: vec![Region {
                first: 10,
                objects: 50,
                theta: 0.0,
            }],
            arriving: Arriving::AtRandom,
            seed: 3,
        }
    }

    #[test]
    fn phases_have_their_rates_shares_and_regions() {
        let mut arrivals = Arrivals::new(Load::Generated(phases()), 1000);
        let mut all = vec![];
        while let Some(next) = arrivals.peek() {
            let now = next.at.0;
            all.push(arrivals.take(now));
        }
        let first = all.iter().filter(|r| r.at < Nanos::from_secs(10)).count();
        assert!((9_700..10_300).contains(&first), "{first}");
        assert!((900..1_100).contains(&(all.len() - first)));
        let hot = all.iter().filter(|r| (10..60).contains(&r.object)).count() as f64;
        assert!((hot / all.len() as f64 - 0.734).abs() < 0.01);
        let writes = all.iter().filter(|r| r.op == LoadOp::Write).count() as f64;
        assert!((writes / all.len() as f64 - 0.2).abs() < 0.01);
        assert!(all.windows(2).all(|w| w[0].at <= w[1].at));
    }

    #[test]
    fn what_waits_is_counted_across_phases() {
        let arrivals = Arrivals::new(Load::Generated(phases()), 1000);
        assert_eq!(arrivals.waiting(0), 0);
        let waiting = arrivals.waiting(15_000_000_000);
        assert!((10_450..10_550).contains(&waiting), "{waiting}");
    }

    #[test]
    fn an_even_generator_leaves_out_what_it_could_not_issue() {
        let mut even = phases();
        even.arriving = Arriving::Evenly;
        let mut arrivals = Arrivals::new(Load::Generated(even), 1000);
        arrivals.take(1_000_000);
        // The storage stood still for two seconds.
        arrivals.take(2_000_000_000);
        assert!(
            (arrivals.left_out - 1_982.0).abs() < 5.0,
            "{}",
            arrivals.left_out
        );
        assert!(arrivals.peek().unwrap().at.0 > 1_980_000_000);
    }
}
