//! Which extents belong on the fast tier: placement below the volume.
//!
//! ```text
//!   heat of an interval ─▶ observe ─┐
//!                                   ├─ state of the method (counters, areas, averages)
//!   a placement may change ─▶ decide ┘─▶ FastSet: a bit per extent ─▶ moves are its difference to before
//! ```
//!
//! An [`ExtentPolicy`] is state and rule of one method in one value, for one set of extents. The same code is evaluated by
//! counting (`sim::counting`), in the queueing simulation, and live. It knows two sides only, the fast tier and the rest,
//! and extents by dense numbers; it knows no volumes, no bytes of space, no devices and no pace of moves: those are the
//! planner's and the executor's.
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

/// The extents of all volumes of one decision get dense numbers: volume after volume, 0..len.
pub type ExtentNo = u32;

/// Which extents are (to be) on the fast tier: a bit each.
pub type FastSet = algo::DenseSet;

/// Requests of one interval, of the extents that had any, in order of number.
#[derive(Debug, Clone, Copy)]
pub struct Heat<'a> {
    /// Extent and requests; each extent at most once, rising.
    pub touched: &'a [(ExtentNo, u32)],
}

/// What a move costs and what a hit is worth, for methods that weigh them. Methods that do not ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Size of an extent.
    pub extent: Bytes,
    /// Size of one I/O of a move: an extent is read and written in units of it.
    pub movement_io: Bytes,
    /// How many times as many I/Os per second the fast side can do as the slow one (paper 1, table 2: 180).
    pub speed_ratio: f64,
}

impl Terms {
    /// I/Os that one extent's move takes, either way: its reads and its writes.
    pub fn ios_per_move(&self) -> f64 {
        2.0 * self.extent.as_f64() / self.movement_io.as_f64()
    }
}

impl Default for Terms {
    /// Paper 1: extents of 10 MiB, a ratio of 180. Movement I/Os of 128 KiB are an assumption (the paper names no size).
    fn default() -> Self {
        Self {
            extent: Bytes::mib(10),
            movement_io: Bytes(128 << 10),
            speed_ratio: 180.0,
        }
    }
}

/// What a decision was, for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PolicyNote {
    /// The longest period that ended; none: nothing was decided.
    pub ended: Option<Nanos>,
    /// The share C of the fast tier that follows the short view, where the method has one, 0..=1.
    pub share: Option<f64>,
    /// Requests per interval that the last extent in had to promise, where the method has such a price.
    pub price: Option<f64>,
}

/// Which extents belong on the fast tier. State and rule of one method, for one set of extents; used as it is by the
/// counting-level evaluation, by the queueing simulation and live.
pub trait ExtentPolicy: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// Its parameters.
    type Config: Serialize + DeserializeOwned + Default + JsonSchema;
    /// Its name in scenarios and reports.
    const NAME: &'static str;
    /// One line for lists.
    const SUMMARY: &'static str;

    /// With these parameters, if they make sense.
    fn new(config: &Self::Config) -> Result<Self, ConfigError>;

    /// What moves cost here. Called before anything else, and again when it changes; methods that do not weigh costs
    /// have no use for it.
    fn agree(&mut self, _terms: &Terms) {}

    /// Its periods, each with the parameter that it comes from: where data is placed once in a while only, that has to be
    /// possible whenever one of them ends.
    fn periods(&self) -> Vec<(&'static str, Nanos)> {
        vec![]
    }

    /// The extents are others than before: `from[i]` is the old number of the new extent `i`, or none for a new one.
    /// Called once before any heat (all none).
    fn renumber(&mut self, from: &[Option<ExtentNo>]);

    /// Takes in the heat of an interval that ended at `at`.
    fn observe(&mut self, at: Nanos, heat: &Heat<'_>);

    /// What will be asked for in the interval that follows. Only an evaluation by counting can know, and only methods that
    /// bound what is possible look at it; called between `observe` and `decide`.
    fn foresee(&mut self, _next: &Heat<'_>) {}

    /// A placement may be changed at `at`: what should be on the fast tier, which holds `capacity` extents at most. `fast`
    /// is what is there now and becomes what should be. Where no period of the method ends here, nothing changes (a period
    /// ends when a multiple of its length lies in (last call, at]).
    fn decide(&mut self, at: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote;
}

/// A dense array under new numbers; extents that are new have the default.
pub(crate) fn renumbered<T: Copy + Default>(old: &[T], from: &[Option<ExtentNo>]) -> Vec<T> {
    let carried = |no: &Option<ExtentNo>| no.map_or(T::default(), |no| old[no as usize]);
    from.iter().map(carried).collect()
}
