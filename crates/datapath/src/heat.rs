//! How often the extents of one volume are touched: counters that only grow, and what has grown since somebody last looked.
//!
//! ```text
//!   cells   one for each extent: reads │ writes │ the turn in which it was touched last
//!   log     extents, in the order in which their turns touched them first
//!            turn 1        turn 2    turn 5   (now)
//!           ┌─────────────┬─────────┬───────┐
//!           │ 7  3  9     │ 3  8    │ 7     │      an entry counts only in its extent's last turn: here 9, 3 8, 7
//!           └─────────────┴─────────┴───────┘
//!   look(since turn 1) = 3, 8, 7 with their counters, and a new turn begins
//! ```
//!
//! Whoever looks keeps the turn of its last look and subtracts counters, so that several can watch at once, and a look costs
//! what was touched since, not what there is. A counter that is full makes all of them begin anew, which the one who looks sees
//! by [`HeatSince::since_ns`]: a counter that stands still would make the hottest extent a cold one.
//!
//! It counts requests, not bytes: one that touches several extents counts once in each. Trims, zeroes and flushes do not count.

use serde::{Deserialize, Serialize};

use crate::engine::{GuestOp, GuestRequest};

/// Volumes with more extents are not counted: 16 Mi of them take 192 MiB at most, of which the system gives those pages that
/// are touched. Bounds the memory of a worker. (At 1 MiB an extent, that is 16 TiB.)
pub const HEAT_EXTENTS_MAX: usize = 1 << 24;

/// Entries of the log that may be out of date before it is tidied, besides as many as there are others.
const LOG_SLACK: usize = 1024;

/// A look goes through all cells in order, not through the log, when one in so many may have been touched: memory is read
/// faster in order.
const SCAN_FROM: usize = 16;

/// Requests that touched an extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heat {
    pub reads: u32,
    pub writes: u32,
}

impl Heat {
    /// Both.
    pub fn requests(self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    heat: Heat,
    /// The turn in which it was touched last; 0 is never.
    turn: u32,
}

/// What was touched since a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeatSince {
    /// When counting began, in nanoseconds of the server's monotonic clock. Counters of different beginnings cannot be
    /// subtracted, and a turn of another beginning means nothing.
    pub since_ns: u64,
    /// To be given at the next look.
    pub turn: u32,
    /// Extents of the volume.
    pub extents: u32,
    /// Extents that were touched since, in any order, with all that was counted since the beginning. Putting them in order is
    /// left to who looks: it takes longer than finding them, and guests wait meanwhile.
    pub touched: Vec<(u32, Heat)>,
}

/// Counters of all extents of a volume.
#[derive(Debug)]
pub struct HeatMap {
    since_ns: u64,
    /// An extent has two to the power of this bytes.
    shift: u32,
    cells: Vec<Cell>,
    turn: u32,
    /// Turns that touched anything, and where their entries begin in the log.
    turns: Vec<(u32, u32)>,
    log: Vec<u32>,
    /// Entries of the log that count.
    touched: u32,
}

impl HeatMap {
    /// Nothing yet. `None` for more extents than [`HEAT_EXTENTS_MAX`]. An extent has a power of two bytes, unless it is the
    /// only one.
    pub fn new(now_ns: u64, extents: usize, extent_bytes: u64) -> Option<Self> {
        if extents > HEAT_EXTENTS_MAX {
            return None;
        }
        assert!(
            extents <= 1 || extent_bytes.is_power_of_two(),
            "extents of an array have a power of two bytes"
        );
        Some(Self {
            since_ns: now_ns,
            shift: if extents <= 1 {
                u64::BITS - 1
            } else {
                extent_bytes.trailing_zeros()
            },
            cells: vec![Cell::default(); extents],
            turn: 1,
            turns: vec![],
            log: vec![],
            touched: 0,
        })
    }

    /// When its counters began, in nanoseconds.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// A guest's request.
    #[inline]
    pub fn count(&mut self, now_ns: u64, request: &GuestRequest) {
        let write = match request.op {
            GuestOp::Read => false,
            GuestOp::Write => true,
            _ => return,
        };
        let first = request.offset >> self.shift;
        let last = (request.offset + request.length.max(1) - 1) >> self.shift;
        let (turn, mut full) = (self.turn, false);
        for extent in first..=last {
            let Some(cell) = self.cells.get_mut(extent as usize) else {
                break; // past the end: the guest will be told
            };
            if cell.turn != turn {
                self.touched += u32::from(cell.turn == 0);
                cell.turn = turn;
                if self.turns.last().is_none_or(|t| t.0 != turn) {
                    self.turns.push((turn, self.log.len() as u32));
                }
                self.log.push(extent as u32);
            }
            let counter = match write {
                true => &mut cell.heat.writes,
                false => &mut cell.heat.reads,
            };
            *counter += 1;
            full |= *counter == u32::MAX;
        }
        if full {
            self.begin_anew(now_ns);
        } else if self.log.len() > 2 * self.touched as usize + LOG_SLACK {
            self.tidy();
        }
    }

    #[cold]
    fn begin_anew(&mut self, now_ns: u64) {
        *self = Self {
            // Another beginning, also within one tick of the clock.
            since_ns: now_ns.max(self.since_ns + 1),
            shift: self.shift,
            cells: vec![Cell::default(); self.cells.len()],
            turn: 1,
            turns: vec![],
            log: vec![],
            touched: 0,
        };
    }

    /// Drops entries of extents that later turns touched again.
    #[cold]
    fn tidy(&mut self) {
        let (mut log, mut turns) = (Vec::with_capacity(self.touched as usize), vec![]);
        for (turn, entries) in self.segments(0) {
            let begin = log.len() as u32;
            log.extend(entries.filter(|e| self.cells[*e as usize].turn == turn));
            if log.len() as u32 > begin {
                turns.push((turn, begin));
            }
        }
        (self.log, self.turns) = (log, turns);
    }

    /// The turns after one, with their entries.
    fn segments(&self, after: u32) -> impl Iterator<Item = (u32, impl Iterator<Item = u32>)> {
        let first = self.turns.partition_point(|t| t.0 <= after);
        let ends = self.turns.iter().skip(1).map(|t| t.1 as usize);
        let ends: Vec<usize> = ends.chain([self.log.len()]).skip(first).collect();
        let turns = self.turns[first..].iter().zip(ends);
        turns.map(|((turn, begin), end)| {
            let entries = self.log[*begin as usize..end].iter().copied();
            (*turn, entries)
        })
    }

    /// What was touched after a turn of an earlier look, and begins a new turn; everything where that is `None`, or of another
    /// beginning. The two are what [`HeatSince`] had then.
    pub fn look(&mut self, since: Option<(u64, u32)>) -> HeatSince {
        let after = since.filter(|s| s.0 == self.since_ns).map_or(0, |s| s.1);
        let first = self.turns.partition_point(|t| t.0 <= after);
        let begin = self
            .turns
            .get(first)
            .map_or(self.log.len(), |t| t.1 as usize);
        let mut touched: Vec<(u32, Heat)> = Vec::with_capacity(self.log.len() - begin);
        if (self.log.len() - begin) * SCAN_FROM > self.cells.len() {
            let cells = (0..).zip(&self.cells).filter(|(_, c)| c.turn > after);
            touched.extend(cells.map(|(e, c)| (e, c.heat)));
        } else {
            for (turn, entries) in self.segments(after) {
                let cells = entries.map(|e| (e, self.cells[e as usize]));
                touched.extend(cells.filter(|c| c.1.turn == turn).map(|(e, c)| (e, c.heat)));
            }
        }
        let turn = self.turn;
        // A turn that touched nothing goes on, so that turns do not run out while nobody uses the volume.
        if self.turns.last().is_some_and(|t| t.0 == turn) {
            self.turn += 1;
        }
        HeatSince {
            since_ns: self.since_ns,
            turn: self.turn - 1,
            extents: self.cells.len() as u32,
            touched,
        }
    }

    /// Extents that were touched, and those with most requests, hottest first.
    pub fn hottest(&self, most: usize) -> (u64, Vec<(u32, Heat)>) {
        let mut all: Vec<(u32, Heat)> = (0..)
            .zip(&self.cells)
            .filter(|(_, c)| c.turn > 0)
            .map(|(e, c)| (e, c.heat))
            .collect();
        let touched = all.len() as u64;
        all.sort_unstable_by_key(|(e, h)| (std::cmp::Reverse(h.requests()), *e));
        all.truncate(most);
        (touched, all)
    }
}

#[cfg(test)]
mod tests;
