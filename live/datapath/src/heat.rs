//! Access counts of the extents of one volume: monotonic counters, and the extents that were touched since a reader's
//! last look.
//!
//! ```text
//!   cells   one for each extent: reads │ writes │ last turn in which it was touched
//!   log     extents, ordered by the first touch in each turn
//!            turn 1        turn 2    turn 5   (now)
//!           ┌─────────────┬─────────┬───────┐
//!           │ 7  3  9     │ 3  8    │ 7     │      an entry is valid only in its extent's last turn: here 9, 3 8, 7
//!           └─────────────┴─────────┴───────┘
//!   look(since turn 1) = 3, 8, 7 with their counters, and a new turn begins
//! ```
//!
//! A reader keeps the turn of its last look and subtracts counters. Several readers can therefore work at the same
//! time, and the cost of a look depends on the extents touched since, not on all extents. When a counter is full, all
//! counters restart, which a reader sees by [`HeatSince::since_ns`]. A saturated counter would make the hottest
//! extent look cold.
//!
//! Requests are counted, not bytes. A request that touches several extents counts once in each. Trims, zeroes and
//! flushes do not count.

use serde::{Deserialize, Serialize};

use crate::engine::{GuestOp, GuestRequest};

/// Largest number of counted extents of a volume; a larger volume has no counters. Bounds the memory of a worker: 16
/// Mi extents take at most 192 MiB, of which the system allocates only the touched pages. (At 1 MiB per extent, that
/// is 16 TiB.)
pub const HEAT_EXTENTS_MAX: usize = 1 << 24;

/// Outdated entries of the log before it is tidied, in addition to the number of valid entries.
const LOG_SLACK: usize = 1024;

/// A look scans all cells in order, instead of the log, if more than one in this many may have been touched. Memory
/// is faster to read in order.
const SCAN_FROM: usize = 16;

/// Requests that touched an extent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heat {
    pub reads: u32,
    pub writes: u32,
}

impl Heat {
    /// Returns the sum of reads and writes.
    pub fn requests(self) -> u64 {
        u64::from(self.reads) + u64::from(self.writes)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    heat: Heat,
    /// Last turn in which the extent was touched; 0 is never.
    turn: u32,
}

/// Extents that were touched since a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeatSince {
    /// Start of counting, in nanoseconds of the server's monotonic clock. Counters with different starts cannot be
    /// subtracted, and a turn of another start is meaningless.
    pub since_ns: u64,
    /// Turn for the next look.
    pub turn: u32,
    /// Number of the volume's extents.
    pub extents: u32,
    /// Extents that were touched since, in any order, with their counts since the start. The reader sorts them:
    /// sorting takes longer than finding them, and guests wait during the look.
    pub touched: Vec<(u32, Heat)>,
}

/// Counters of all extents of a volume.
#[derive(Debug)]
pub struct HeatMap {
    since_ns: u64,
    /// Binary logarithm of the extent size in bytes.
    shift: u32,
    cells: Vec<Cell>,
    turn: u32,
    /// Turns with touched extents, each with the start of its entries in the log.
    turns: Vec<(u32, u32)>,
    log: Vec<u32>,
    /// Number of extents that were ever touched, which is the number of valid entries of the log.
    touched: u32,
}

impl HeatMap {
    /// Creates counters at zero; `None` for more extents than [`HEAT_EXTENTS_MAX`]. The extent size is a power of
    /// two, unless the volume has only one extent.
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

    /// Start of its counters, in nanoseconds.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Counts a guest's request.
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
                break; // past the end: the guest gets an error
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
            // Another start, also within one tick of the clock.
            since_ns: now_ns.max(self.since_ns + 1),
            shift: self.shift,
            cells: vec![Cell::default(); self.cells.len()],
            turn: 1,
            turns: vec![],
            log: vec![],
            touched: 0,
        };
    }

    /// Drops the entries of extents that later turns touched again.
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

    /// Returns the turns after `after` with their entries.
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

    /// Returns the extents that were touched after the turn of an earlier look, and begins a new turn. `since` has
    /// `since_ns` and `turn` of that look. All touched extents are returned if it is `None` or if the counters
    /// restarted.
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
        // A turn without touched extents continues, so turns do not run out while the volume is idle.
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

    /// Returns the number of touched extents, and the `most` extents with most requests, hottest first.
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
