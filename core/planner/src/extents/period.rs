//! One I/O measurement period: the dynamic tier control on which paper 1 is based (Hayashi and Komoda, section 2.1).

use algo::{Choice, Fill};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::periods::{MeasurementPeriod, MinGain};
use super::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote};
use crate::ConfigError;

/// At the end of each period, puts the extents with the most requests in it on the fast tier, as many as it holds.
///
/// The fast tier is always full, so each extent that comes up sends one down. Of extents with equal counts, those on the
/// fast tier stay (the paper does not mention this case; any other rule moves data without a gain), then the lower number
/// wins.
///
/// When not to use it: for loads whose hot extents change faster than the period, because they are cold again when they
/// arrive; or with a short period and small counts, because noise alone then moves data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Period {
    measured: MeasurementPeriod,
    min_gain: MinGain,
    #[serde(skip)]
    chosen: FastSet,
}

/// Parameters of `period`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PeriodConfig {
    /// I/O measurement period L (paper 1 tests 1, 3, 6, 12 and 24 hours).
    pub period: Nanos,
    /// Smallest gain for a replacement: an extent replaces another only if it had more than (1 + this) times its requests. 0
    /// is the paper's plain ranking.
    pub min_gain: f64,
}

impl Default for PeriodConfig {
    fn default() -> Self {
        Self {
            period: Nanos::from_secs(24 * 3600),
            min_gain: 0.0,
        }
    }
}

impl ExtentPolicy for Period {
    type Config = PeriodConfig;
    const NAME: &'static str = "period";
    const SUMMARY: &'static str = "moves the hottest extents of the last measurement period to the fast tier (paper 1's baseline)";

    fn new(config: &PeriodConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            measured: MeasurementPeriod::new(Self::NAME, "period", config.period)?,
            min_gain: MinGain::new(Self::NAME, config.min_gain)?,
            chosen: FastSet::default(),
        })
    }

    fn periods(&self) -> Vec<(&'static str, Nanos)> {
        vec![("period", self.measured.length())]
    }

    fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        self.measured.renumber(from);
    }

    fn observe(&mut self, _: Nanos, heat: &Heat<'_>) {
        self.measured.observe(heat);
    }

    fn decide(&mut self, at: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote {
        if !self.measured.ends(at) {
            return PolicyNote::default();
        }
        let choice = Choice {
            k: capacity,
            resident: fast,
            excluded: None,
            fill: Fill::Any,
        };
        self.measured.hottest(&choice, &mut self.chosen);
        self.min_gain
            .apply(&self.measured, fast, fast, &mut self.chosen);
        std::mem::swap(fast, &mut self.chosen);
        self.measured.begin();
        PolicyNote {
            ended: Some(self.measured.length()),
            ..PolicyNote::default()
        }
    }
}
