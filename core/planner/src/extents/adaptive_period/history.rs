//! Memory of adaptive-period for each extent: the last season by slot, the usual load of each slot of a season, and a long
//! average.
//!
//! ```text
//!   slot:    … k−P  k−P+1 …  k−2  k−1 │ k (the next slot)
//!   ring:          ▲ P slots          │ ring[k mod P] is still slot k−P: the same time of the season before
//!   usual:   per slot of the season, an average over seasons
//!   long:    an average over some seasons, whatever the time
//! ```

use algo::{Averages, HeatCounters, coarse, packed};
use serde::{Deserialize, Serialize};

use crate::extents::{ExtentNo, renumbered};

/// Weight of a season in the usual load.
const USUAL_GAIN: f64 = 0.3;
/// Half-life of the long average, in seasons.
const LONG_SEASONS: f64 = 5.0;

/// History of all extents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct History {
    /// Number of slots in a season.
    phases: usize,
    /// Number of slots that have ended.
    pub(super) slots: u64,
    ring: Vec<Row>,
    usual: Vec<Row>,
    pub(super) long: Averages,
    long_total: f64,
}

/// Requests of one slot: of each extent, and their sum.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Row {
    /// Requests of each extent as codes of [`coarse`].
    #[serde(with = "packed::u16s")]
    pub(super) codes: Vec<u16>,
    pub(super) total: f64,
}

impl Row {
    fn new(len: usize) -> Self {
        Self {
            codes: vec![0; len],
            total: 0.0,
        }
    }
}

impl History {
    pub(super) fn new(phases: usize) -> Self {
        Self {
            phases,
            slots: 0,
            ring: vec![Row::default(); phases],
            usual: vec![Row::default(); phases],
            long: Averages::new(0, LONG_SEASONS * phases as f64),
            long_total: 0.0,
        }
    }

    pub(super) fn phases(&self) -> usize {
        self.phases
    }

    pub(super) fn len(&self) -> usize {
        self.ring[0].codes.len()
    }

    pub(super) fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        for row in self.ring.iter_mut().chain(&mut self.usual) {
            row.codes = if row.codes.is_empty() {
                Row::new(from.len()).codes
            } else {
                renumbered(&row.codes, from)
            };
        }
        self.long = self.long.renumbered(from);
    }

    /// Returns the slot `back` slots before the next one; 1..=phases.
    pub(super) fn past(&self, back: usize) -> &Row {
        let at = (self.slots as usize + self.phases - back) % self.phases;
        &self.ring[at]
    }

    /// Returns the usual load of the slot `ahead` slots after the next one.
    pub(super) fn usual(&self, ahead: usize) -> &Row {
        &self.usual[(self.slots as usize + ahead) % self.phases]
    }

    /// Returns the average of all requests of a slot, over some seasons.
    pub(super) fn long_total(&self) -> f64 {
        self.long_total
    }

    /// Adds a slot that has ended.
    pub(super) fn push(&mut self, heat: &HeatCounters) {
        let at = self.slots as usize % self.phases;
        let first = self.slots < self.phases as u64;
        let gain = if first { 1.0 } else { USUAL_GAIN };
        let total: f64 = heat.unordered().map(|(_, n)| f64::from(n)).sum();
        let row = &mut self.ring[at];
        row.codes.fill(0);
        row.total = total;
        for (no, n) in heat.unordered() {
            row.codes[no as usize] = coarse::encode(n as f32);
        }
        let usual = &mut self.usual[at];
        usual.total += gain * (total - usual.total);
        let gain = gain as f32;
        for (code, new) in usual.codes.iter_mut().zip(&row.codes) {
            let old = coarse::decode(*code);
            let value = old + gain * (coarse::decode(*new) - old);
            // Tiny values become 0, because their codes would make stored states long.
            *code = if value < 1e-3 {
                0
            } else {
                coarse::encode(value)
            };
        }
        self.long.observe(heat.unordered());
        let keep = Averages::keep_of(LONG_SEASONS * self.phases as f64);
        self.long_total = keep * self.long_total + (1.0 - keep) * total;
        self.slots += 1;
    }
}
