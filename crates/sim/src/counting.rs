//! Evaluation by counting: paper 1's own measure of extent placement, without devices, queues or time in a copy.
//!
//! ```text
//!   heats, interval after interval ──┬─▶ cell: policy × capacity ─▶ hits, moves, per interval ─▶ Formula ─▶ Score
//!          (one pass)                ├─▶ cell
//!                                    └─▶ …
//! ```
//!
//! In each interval a cell first counts which requests found their extent on the fast tier; then its policy takes in the
//! heat and decides, and what it moves is charged to the interval that follows, since that is when it is copied.
//!
//! Not a prediction of latency: requests are counted and weighed by two speeds, a move costs I/Os and no time, and nothing
//! ever waits. For that there is the queueing simulation.

mod cell;
mod formula;
mod heats;
mod methods;
mod study;
#[cfg(test)]
mod tests;

use planner::extents::{ExtentNo, Heat};
use units::Nanos;

pub use cell::{Cell, CellSpec, Counted, IntervalCount, PolicyCell};
pub use formula::{Directions, Formula, Score, storage_performance};
pub use heats::{Heats, of_measurements, of_trace};
pub use methods::{METHODS, Method};
pub use study::{COUNTING_SCHEMA, CountingLoad, CountingResult, CountingRow};

/// Feeds all cells from one pass over the heats. `heats` has the requests of each interval, in order of extent; all intervals
/// are `interval` long, and the first begins at zero.
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
