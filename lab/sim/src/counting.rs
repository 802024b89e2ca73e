//! Evaluation by counting: the measure of extent placement in paper 1, without devices, queues or copy times.
//!
//! ```text
//!   heats, interval after interval ──┬─▶ cell: policy × capacity ─▶ hits, moves, per interval ─▶ Formula ─▶ Score
//!          (one pass)                ├─▶ cell
//!                                    └─▶ …
//! ```
//!
//! In each interval a cell first counts the requests whose extent was on the fast tier. Then its policy receives the
//! heat and decides. Its moves are charged to the following interval, in which they are copied.
//!
//! This does not predict latency: requests are counted and weighted by two speeds, and a move costs I/Os but no time.
//! Nothing ever waits. Use the queueing simulation for latencies.

mod cell;
mod formula;
mod heats;
mod methods;
mod study;
#[cfg(test)]
mod tests;

use planner::extents::{ExtentNo, Heat};
use units::Nanos;

pub use cell::{Cell, CellCounts, CellSpec, IntervalCount, PolicyCell};
pub use formula::{Directions, Formula, Score, storage_performance};
pub use heats::{Heats, of_measurements, of_trace};
pub use methods::{METHODS, Method};
pub use study::{COUNTING_SCHEMA, CountingLoad, CountingResult, CountingRow};

/// Feeds all cells in one pass over the heats. `heats` has the requests of each interval, in order of extent. All
/// intervals have the length `interval`, and the first begins at zero.
pub fn evaluate(
    interval: Nanos,
    heats: impl Iterator<Item = Vec<(ExtentNo, u32)>>,
    cells: &mut [Box<dyn Cell>],
) {
    let mut heats = heats.peekable();
    let mut at = Nanos::ZERO;
    while let Some(heat) = heats.next() {
        at += interval;
        let now = Heat { touched: &heat };
        let next = heats.peek().map(|h| Heat { touched: h });
        for cell in cells.iter_mut() {
            cell.interval(at, &now, next.as_ref());
        }
    }
}
