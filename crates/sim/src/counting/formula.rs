//! From counts to performance: paper 1, formulas (1) and (2), which are one.
//!
//! `P_total = 1 / (r/P_High + (1 − r)/P_Low) − M`: the first term is the *storage I/O performance*, in units of P_Low here. The paper
//! gives M in percent, movement I/Os over application I/Os, and subtracts it from IOPS, which cannot be meant: see
//! [`MovementReading`].

use config::scenario::{Aggregation, MovementReading};
use planner::extents::Terms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::cell::{Counted, IntervalCount};

/// Which I/Os of copies count as movement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// The reads and the writes, of extents that go up and of those that go down.
    #[default]
    Both,
    /// One I/O per piece copied, up and down.
    Copies,
    /// One I/O per piece copied up; what goes down is free.
    Up,
}

/// How counts become performance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Formula {
    /// Size of extents and of movement I/Os, ratio of speeds.
    pub terms: Terms,
    /// What "minus M" means.
    pub reading: MovementReading,
    /// Which I/Os of copies count.
    pub directions: Directions,
    /// In which order to average.
    pub aggregation: Aggregation,
    /// Length of an interval.
    pub interval: Nanos,
    /// Intervals that end before or at this are left out.
    pub count_from: Nanos,
}

impl Formula {
    /// Paper 1 with its assumptions: hours, of which the first 48 do not count.
    pub fn hourly(terms: Terms) -> Self {
        Self {
            terms,
            reading: MovementReading::default(),
            directions: Directions::default(),
            aggregation: Aggregation::default(),
            interval: Nanos::from_secs(3600),
            count_from: Nanos::from_secs(48 * 3600),
        }
    }

    /// The score of what was counted; none where no interval with requests is left.
    pub fn score(&self, counted: &Counted) -> Option<Score> {
        let skip = self.count_from.0.div_ceil(self.interval.0) as usize;
        let intervals = counted.intervals.get(skip..)?;
        let whole = intervals
            .iter()
            .fold(IntervalCount::default(), |a, b| IntervalCount {
                requests: a.requests + b.requests,
                hits: a.hits + b.hits,
                promoted: a.promoted + b.promoted,
                demoted: a.demoted + b.demoted,
            });
        if whole.requests == 0 {
            return None;
        }
        let (mut storage, mut total, mut weight) = (0.0, 0.0, 0.0);
        let parts = match self.aggregation {
            Aggregation::PerInterval => intervals,
            Aggregation::Whole => std::slice::from_ref(&whole),
        };
        // An interval without requests has no hit ratio; what was moved in it is in the sums only.
        for part in parts.iter().filter(|p| p.requests > 0) {
            let p = storage_performance(
                part.hits as f64 / part.requests as f64,
                self.terms.speed_ratio,
            );
            storage += p;
            total += self.total(p, self.movement(part));
            weight += 1.0;
        }
        Some(Score {
            fast_share: whole.hits as f64 / whole.requests as f64,
            movement: self.movement(&whole),
            storage: storage / weight,
            total: total / weight,
            extents_moved: u64::from(whole.promoted) + u64::from(whole.demoted),
            bytes_moved: (u64::from(whole.promoted) + u64::from(whole.demoted))
                * self.terms.extent.0,
            distinct_moved: counted.distinct_moved,
            share: counted.share,
        })
    }

    /// M: movement I/Os over application I/Os, 0..
    fn movement(&self, count: &IntervalCount) -> f64 {
        let (up, down) = (f64::from(count.promoted), f64::from(count.demoted));
        let moves = match self.directions {
            Directions::Both => up + down,
            Directions::Copies => (up + down) / 2.0,
            Directions::Up => up / 2.0,
        };
        moves * self.terms.ios_per_move() / count.requests as f64
    }

    fn total(&self, storage: f64, movement: f64) -> f64 {
        match self.reading {
            MovementReading::Subtract => storage * (1.0 - movement),
            MovementReading::Share => storage / (1.0 + movement),
        }
    }
}

/// 1 / (r/P_High + (1 − r)/P_Low), in units of P_Low: what a mix of fast and slow I/Os can do.
pub fn storage_performance(fast_share: f64, speed_ratio: f64) -> f64 {
    1.0 / (fast_share / speed_ratio + (1.0 - fast_share))
}

/// How a cell did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// r_High: requests on the fast tier over all requests, of the whole time.
    pub fast_share: f64,
    /// M of the whole time: movement I/Os over application I/Os.
    pub movement: f64,
    /// Storage I/O performance, in units of the slow tier's: before movement is accounted for.
    pub storage: f64,
    /// Total system I/O performance, in units of the slow tier's.
    pub total: f64,
    /// Extents moved, in both directions, each time it happened.
    pub extents_moved: u64,
    /// The same as bytes.
    pub bytes_moved: u64,
    /// Different extents among them.
    pub distinct_moved: u32,
    /// Mean short share, where the method has one.
    pub share: Option<f64>,
}
