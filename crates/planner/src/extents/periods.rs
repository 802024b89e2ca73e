//! When periods end, and what is counted until then.

use algo::{Choice, Fill, HeatCounters, TopCounts};
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::swaps::keep_worthwhile;
use super::{ExtentNo, FastSet, Heat};
use crate::ConfigError;

/// An I/O measurement period: its length, and the heat since it began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    length: Nanos,
    /// When it was asked last.
    asked: Nanos,
    counters: HeatCounters,
    #[serde(skip)]
    top: TopCounts,
}

impl Measured {
    /// A period of some length, nothing counted. `key` is the parameter that the length comes from.
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

    /// Whether a multiple of the length lies in (last call, `at`].
    pub(crate) fn ends(&mut self, at: Nanos) -> bool {
        let before = self.asked;
        self.asked = at.max(before);
        at.0 / self.length.0 > before.0 / self.length.0
    }

    /// The hottest of the period so far.
    pub(crate) fn hottest(&mut self, choice: &Choice<'_>, chosen: &mut FastSet) {
        self.top.select(self.counters.unordered(), choice, chosen);
    }

    /// The `k` hottest of some of the extents, which are more than `k`.
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

    /// The next period begins.
    pub(crate) fn begin(&mut self) {
        self.counters.reset();
    }
}

/// An extent that comes needs more than (1 + this) times the requests of the one whose place it takes.
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

    /// Takes moves back that gain too little. At 0 there are none: of equal counts the resident was chosen.
    pub(crate) fn apply(
        &self,
        measured: &Measured,
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
