//! Least frequently used with aging: a comparator.

use algo::{Choice, Fill, HeatCounters, TopCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote};
use crate::ConfigError;

/// Least frequently used with aging: counters that are halved at intervals. The extents with the highest counters are on the
/// fast tier.
///
/// This is LFU with aging of caches, applied to extents. It weighs no costs: a lead of one request causes a move.
///
/// When not to use it: for loads whose hot extents change within the time in which counters are halved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgedFrequency {
    every: Nanos,
    halve: Nanos,
    asked: Nanos,
    counters: HeatCounters,
    #[serde(skip)]
    top: TopCounts,
    #[serde(skip)]
    chosen: FastSet,
}

/// Parameters of `aged-frequency`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgedFrequencyConfig {
    /// Time between two decisions.
    pub every: Nanos,
    /// Time after which all counters are halved.
    pub halve: Nanos,
}

/// The best of eight settings over nine conditions of paper 1.
impl Default for AgedFrequencyConfig {
    fn default() -> Self {
        Self {
            every: Nanos::from_secs(3600),
            halve: Nanos::from_secs(96 * 3600),
        }
    }
}

impl ExtentPolicy for AgedFrequency {
    type Config = AgedFrequencyConfig;
    const NAME: &'static str = "aged-frequency";
    const SUMMARY: &'static str = "keeps the extents with the highest request counters, which are halved at intervals (LFU with aging)";

    fn new(config: &AgedFrequencyConfig) -> Result<Self, ConfigError> {
        for (key, value) in [("every", config.every), ("halve", config.halve)] {
            if value == Nanos::ZERO {
                return Err(ConfigError::new(Self::NAME, key, "must be above 0"));
            }
        }
        Ok(Self {
            every: config.every,
            halve: config.halve,
            asked: Nanos::ZERO,
            counters: HeatCounters::default(),
            top: TopCounts::default(),
            chosen: FastSet::default(),
        })
    }

    fn periods(&self) -> Vec<(&'static str, Nanos)> {
        vec![("every", self.every), ("halve", self.halve)]
    }

    fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        self.counters = self.counters.renumbered(from);
    }

    fn observe(&mut self, _: Nanos, heat: &Heat<'_>) {
        self.counters.add_all(heat.touched);
    }

    fn decide(&mut self, at: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote {
        let before = std::mem::replace(&mut self.asked, at);
        let multiple = |length: Nanos| at.0 / length.0 > before.0 / length.0;
        let mut note = PolicyNote::default();
        if multiple(self.every) {
            let choice = Choice {
                k: capacity,
                resident: fast,
                excluded: None,
                fill: Fill::Any,
            };
            self.top
                .select(self.counters.unordered(), &choice, &mut self.chosen);
            std::mem::swap(fast, &mut self.chosen);
            note.ended = Some(self.every);
        }
        if multiple(self.halve) {
            self.counters.halve();
        }
        note
    }
}
