//! Conversion of counts to performance: formulas (1) and (2) of paper 1, which are the same formula.
//!
//! `P_total = 1 / (r/P_High + (1 − r)/P_Low) − M`: the first term is the *storage I/O performance*, here in units of
//! P_Low. The paper gives M in percent (movement I/Os divided by application I/Os) and subtracts it from IOPS. The
//! units do not match; [`MovementReading`] has the possible readings.

use config::scenario::{Aggregation, MovementReading};
use planner::extents::Terms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::cell::{CellCounts, IntervalCount};

/// I/Os of copies that count as movement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Reads and writes of promoted and demoted extents.
    #[default]
    Both,
    /// One I/O per copied piece, promoted or demoted.
    Copies,
    /// One I/O per promoted piece. Demotions are free.
    Up,
}

/// Conversion of counts to performance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Formula {
    /// Sizes of extents and of movement I/Os, and the ratio of speeds.
    pub terms: Terms,
    /// Reading of the term "minus M".
    pub reading: MovementReading,
    /// I/Os of copies that count.
    pub directions: Directions,
    /// Order of averaging.
    pub aggregation: Aggregation,
    /// Length of an interval.
    pub interval: Nanos,
    /// Intervals that end at or before this time are excluded.
    pub count_from: Nanos,
}

impl Formula {
    /// Returns the formula with the assumptions of paper 1: intervals of an hour, of which the first 48 do not count.
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

    /// Returns the score of the counts; `None` if no interval with requests remains.
    pub fn score(&self, counted: &CellCounts) -> Option<Score> {
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
        // An interval without requests has no hit ratio. Its moves count in the sums only.
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

    /// Returns M: movement I/Os divided by application I/Os, 0 or more.
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

/// Returns 1 / (r/P_High + (1 − r)/P_Low) in units of P_Low: the performance of a mix of fast and slow I/Os.
pub fn storage_performance(fast_share: f64, speed_ratio: f64) -> f64 {
    1.0 / (fast_share / speed_ratio + (1.0 - fast_share))
}

/// Score of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// r_High: requests on the fast tier divided by all requests, over the whole time.
    pub fast_share: f64,
    /// M over the whole time: movement I/Os divided by application I/Os.
    pub movement: f64,
    /// Storage I/O performance without movement, in units of the slow tier's performance.
    pub storage: f64,
    /// Total system I/O performance, in units of the slow tier's performance.
    pub total: f64,
    /// Extents moved in both directions, counting repeated moves.
    pub extents_moved: u64,
    /// Bytes of `extents_moved`.
    pub bytes_moved: u64,
    /// Distinct extents that moved.
    pub distinct_moved: u32,
    /// Mean short share, if the method has one.
    pub share: Option<f64>,
}
