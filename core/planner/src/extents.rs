//! Choice of extents for the fast tier: placement below the volume.
//!
//! ```text
//!   heat of an interval ─▶ observe ─┐
//!                                   ├─ state of the method (counters, areas, averages)
//!   a placement may change ─▶ decide ┘─▶ FastSet: a bit per extent ─▶ moves are its difference to before
//! ```
//!
//! An [`ExtentPolicy`] is the state and rule of one method in one value, for one set of extents. The same code runs in the
//! evaluation by counting (`sim::counting`), in the queueing simulation, and live. It knows only two sides, the fast tier
//! and the rest, and extents by dense numbers. Volumes, bytes of space, devices and the pace of moves are the planner's and
//! the executor's.
//!
//! Times count from the beginning of the run. A period of length L ends at each multiple of L.

mod adaptive_period;
mod aged_frequency;
mod clairvoyant;
mod dual_period;
pub(crate) mod goals;
pub(crate) mod layout;
mod moving_averages;
mod period;
mod periods;
mod reason;
mod strategy;
mod swaps;
#[cfg(test)]
mod tests;
mod worth;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

use crate::ConfigError;

pub use adaptive_period::{AdaptivePeriod, AdaptivePeriodConfig, Recurrence};
pub use aged_frequency::{AgedFrequency, AgedFrequencyConfig};
pub use clairvoyant::{Clairvoyant, ClairvoyantConfig, Foresight};
pub use dual_period::{DualPeriod, DualPeriodConfig};
pub use moving_averages::{Blend, MovingAverages, MovingAveragesConfig};
pub use period::{Period, PeriodConfig};
pub use reason::ExtentReason;
pub use strategy::{ExtentState, Extents};

/// Dense number of an extent in one decision: volume after volume, 0..len.
pub type ExtentNo = u32;

/// Extents that are (or should be) on the fast tier, one bit each.
pub type FastSet = algo::DenseSet;

/// Requests of one interval to the extents that had any, in order of number.
#[derive(Debug, Clone, Copy)]
pub struct Heat<'a> {
    /// Extent and requests; each extent at most once, in rising order.
    pub touched: &'a [(ExtentNo, u32)],
}

/// Cost of a move and value of a hit. Methods that do not weigh them ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Size of an extent.
    pub extent: Bytes,
    /// Size of one I/O of a move: an extent is read and written in units of this size.
    pub movement_io: Bytes,
    /// IOPS of the fast side divided by IOPS of the slow side (paper 1, table 2: 180).
    pub speed_ratio: f64,
}

impl Terms {
    /// Returns the I/Os that one extent's move takes in either direction: its reads and its writes.
    pub fn ios_per_move(&self) -> f64 {
        2.0 * self.extent.as_f64() / self.movement_io.as_f64()
    }
}

impl Default for Terms {
    /// Values of paper 1: extents of 10 MiB, a ratio of 180. Movement I/Os of 128 KiB are an assumption (the paper names no
    /// size).
    fn default() -> Self {
        Self {
            extent: Bytes::mib(10),
            movement_io: Bytes(128 << 10),
            speed_ratio: 180.0,
        }
    }
}

/// Summary of a decision, for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PolicyNote {
    /// Longest period that ended; `None` if nothing was decided.
    pub ended: Option<Nanos>,
    /// Share C of the fast tier that follows the short view, if the method has one, 0..=1.
    pub share: Option<f64>,
    /// Requests per interval that the last admitted extent had to promise, if the method has such a price.
    pub price: Option<f64>,
}

/// Method that chooses extents for the fast tier: state and rule, for one set of extents. The evaluation by counting, the
/// queueing simulation and the live system use it unchanged.
pub trait ExtentPolicy: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// Parameters of the method.
    type Config: Serialize + DeserializeOwned + Default + JsonSchema;
    /// Name in scenarios and reports.
    const NAME: &'static str;
    /// Summary in one line, for lists.
    const SUMMARY: &'static str;

    /// Creates the method with these parameters.
    ///
    /// # Errors
    /// Returns the key of an invalid parameter and the reason.
    fn new(config: &Self::Config) -> Result<Self, ConfigError>;

    /// Sets the cost of moves. Called first, and again whenever the cost changes. Methods that do not weigh costs ignore it.
    fn agree(&mut self, _terms: &Terms) {}

    /// Returns the periods of the method, each with its parameter. If data is placed only at certain times, a placement must
    /// be possible at the end of each period.
    fn periods(&self) -> Vec<(&'static str, Nanos)> {
        vec![]
    }

    /// Renumbers the extents: `from[i]` is the old number of the new extent `i`, or `None` for a new extent. Called once
    /// before any heat (all `None`).
    fn renumber(&mut self, from: &[Option<ExtentNo>]);

    /// Records the heat of an interval that ended at `at`.
    fn observe(&mut self, at: Nanos, heat: &Heat<'_>);

    /// Reveals the requests of the next interval. Only an evaluation by counting calls it, between `observe` and `decide`.
    /// Only methods that compute bounds use it.
    fn foresee(&mut self, _next: &Heat<'_>) {}

    /// Decides the placement at `at`. `fast` has the extents on the fast tier now; the method changes it to the extents that
    /// should be there, `capacity` at most. It changes nothing if no period of the method ends here (a period ends if a
    /// multiple of its length lies in (last call, at]).
    fn decide(&mut self, at: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote;
}

/// Returns a dense array under new numbers; new extents have the default.
pub(crate) fn renumbered<T: Copy + Default>(old: &[T], from: &[Option<ExtentNo>]) -> Vec<T> {
    let carried = |no: &Option<ExtentNo>| no.map_or(T::default(), |no| old[no as usize]);
    from.iter().map(carried).collect()
}
