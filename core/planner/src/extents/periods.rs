//! Ends of periods, and counters of the current period.

use algo::{Choice, Fill, HeatCounters, TopCounts};
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::swaps::keep_worthwhile;
use super::{ExtentNo, FastSet, Heat};
use crate::ConfigError;

/// I/O measurement period: its length, and the heat since its beginning.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MeasurementPeriod {
    length: Nanos,
    /// Time of the last call of [`MeasurementPeriod::ends`].
    asked: Nanos,
    counters: HeatCounters,
    #[serde(skip)]
    top: TopCounts,
}

impl MeasurementPeriod {
    /// Creates a period of this length without counts. `key` is the parameter of the length.
    pub(crate) fn new(strategy: &str, key: &str, length: Nanos) -> Result<Self, ConfigError> {
        if length == Nanos::ZERO {
            return Err(ConfigError::new(strategy, key, "must be above 0"));
        }
        Ok(Self {
            length,
            asked: Nanos::ZERO,
            counters: HeatCounters::default(),
            top: TopCounts::default(),
        })
    }

    pub(crate) fn length(&self) -> Nanos {
        self.length
    }

    pub(crate) fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        self.counters = self.counters.renumbered(from);
    }

    pub(crate) fn observe(&mut self, heat: &Heat<'_>) {
        self.counters.add_all(heat.touched);
    }

    /// Returns true if a multiple of the length lies in (last call, `at`].
    pub(crate) fn ends(&mut self, at: Nanos) -> bool {
        let before = self.asked;
        self.asked = at.max(before);
        at.0 / self.length.0 > before.0 / self.length.0
    }

    /// Chooses the hottest extents of the period so far.
    pub(crate) fn hottest(&mut self, choice: &Choice<'_>, chosen: &mut FastSet) {
        self.top.select(self.counters.unordered(), choice, chosen);
    }

    /// Chooses the `k` hottest of some extents, of which there are more than `k`.
    pub(crate) fn hottest_within(&mut self, of: &FastSet, k: u32, chosen: &mut FastSet) {
        let choice = Choice {
            k,
            resident: of,
            excluded: None,
            fill: Fill::Any,
        };
        let inside = self.counters.unordered().filter(|(no, _)| of.contains(*no));
        self.top.select(inside, &choice, chosen);
    }

    /// Starts the next period.
    pub(crate) fn begin(&mut self) {
        self.counters.reset();
    }
}

/// Smallest gain of a replacement: an extent needs more than (1 + this) times the requests of the extent that it replaces.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct MinGain(f64);

impl MinGain {
    /// Checks the parameter `min_gain`.
    pub(crate) fn new(strategy: &str, min_gain: f64) -> Result<Self, ConfigError> {
        if !(0.0..=1000.0).contains(&min_gain) {
            return Err(ConfigError::new(
                strategy,
                "min_gain",
                format!("{min_gain} must be between 0 and 1000"),
            ));
        }
        Ok(Self(min_gain))
    }

    /// Cancels replacements that gain too little. At 0 there are none: of equal counts, the extent on the fast tier was
    /// chosen.
    pub(crate) fn apply(
        &self,
        measured: &MeasurementPeriod,
        before: &FastSet,
        fast: &FastSet,
        chosen: &mut FastSet,
    ) {
        if self.0 > 0.0 {
            let enough = |new: u32, old: u32| f64::from(new) > (1.0 + self.0) * f64::from(old);
            keep_worthwhile(
                before,
                fast,
                chosen,
                |no| measured.counters.count(no),
                enough,
            );
        }
    }
}
