//! Two I/O measurement periods, with an area of the fast tier for each: the method of paper 1 (section 3).

use algo::{Choice, Fill};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::periods::{MeasurementPeriod, MinGain};
use super::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote};
use crate::ConfigError;

/// The long area holds the hottest extents of the long period. The short area holds the hottest of the short period among
/// all others.
///
/// ```text
///   fast tier, K extents:  | A_long: K − K_short          | A_short: K_short = round(C·K) |
///   at the end of          | each long period (first)     | each short and long period    |
/// ```
///
/// Extents of the long area are excluded from the short one. If both periods end, the long one is processed first, and the
/// moves are the difference of the unions: an extent that changes areas does not move (the paper does not mention this
/// case). If only a long period ends, the short area is chosen again from the counts of the short period so far, because its
/// extents may have changed to the long area.
///
/// With C = 0 the method is `period` with the long period; with C = 1, it is `period` with the short one, except that the
/// short area is also chosen at ends of long periods that are no ends of short ones.
///
/// When not to use it: for loads without recurrence. On a stationary load, the short area only follows noise. On a load that
/// moves at random, the long area only remembers the past (`docs/reproduce/dual-period.md` has both).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DualPeriod {
    long: MeasurementPeriod,
    short: MeasurementPeriod,
    share: f64,
    min_gain: MinGain,
    /// Extents of the long area; `None` before the first decision, when all extents on the fast tier count as long.
    long_area: Option<FastSet>,
    #[serde(skip)]
    chosen: FastSet,
}

/// Parameters of `dual-period`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DualPeriodConfig {
    /// Long I/O measurement period (paper 1: 24 hours).
    pub long: Nanos,
    /// Short I/O measurement period (paper 1: 1 hour).
    pub short: Nanos,
    /// Share C of the fast tier that follows the short period, 0..=1. Paper 1 tests 0.1 to 0.9; 0.2 to 0.3 is best on its
    /// trace.
    pub share: f64,
    /// Smallest gain for a replacement: an extent replaces another only if it had more than (1 + this) times its requests,
    /// in the period of the area. 0 is the paper's plain ranking.
    pub min_gain: f64,
}

impl Default for DualPeriodConfig {
    fn default() -> Self {
        Self {
            long: Nanos::from_secs(24 * 3600),
            short: Nanos::from_secs(3600),
            share: 0.2,
            min_gain: 0.0,
        }
    }
}

impl ExtentPolicy for DualPeriod {
    type Config = DualPeriodConfig;
    const NAME: &'static str = "dual-period";
    const SUMMARY: &'static str = "divides the fast tier between the hottest extents of a long and of a short period (paper 1)";

    fn new(config: &DualPeriodConfig) -> Result<Self, ConfigError> {
        let fault = |key: &str, why: String| ConfigError::new(Self::NAME, key, why);
        if !(0.0..=1.0).contains(&config.share) {
            return Err(fault(
                "share",
                format!("{} must be between 0 and 1", config.share),
            ));
        }
        if config.short > config.long {
            let why = format!(
                "{} must be at most the long period, {}",
                config.short, config.long
            );
            return Err(fault("short", why));
        }
        Ok(Self {
            long: MeasurementPeriod::new(Self::NAME, "long", config.long)?,
            short: MeasurementPeriod::new(Self::NAME, "short", config.short)?,
            share: config.share,
            min_gain: MinGain::new(Self::NAME, config.min_gain)?,
            long_area: None,
            chosen: FastSet::default(),
        })
    }

    fn periods(&self) -> Vec<(&'static str, Nanos)> {
        vec![("long", self.long.length()), ("short", self.short.length())]
    }

    fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        self.long.renumber(from);
        self.short.renumber(from);
        self.long_area = self.long_area.take().map(|a| a.renumbered(from));
    }

    fn observe(&mut self, _: Nanos, heat: &Heat<'_>) {
        self.long.observe(heat);
        self.short.observe(heat);
    }

    fn decide(&mut self, at: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote {
        let (long_ends, short_ends) = (self.long.ends(at), self.short.ends(at));
        let in_short = (self.share * f64::from(capacity)).round() as u32;
        let in_long = capacity - in_short;
        let mut long_area = self.long_area.take().unwrap_or_else(|| fast.clone());
        if long_ends {
            let choice = Choice {
                k: in_long,
                resident: fast,
                excluded: None,
                fill: Fill::Any,
            };
            self.long.hottest(&choice, &mut self.chosen);
            self.min_gain
                .apply(&self.long, &long_area, fast, &mut self.chosen);
            std::mem::swap(&mut long_area, &mut self.chosen);
            self.long.begin();
        } else if short_ends && long_area.count() > in_long {
            // The fast tier has become smaller: the long area keeps its hottest extents.
            self.long
                .hottest_within(&long_area, in_long, &mut self.chosen);
            std::mem::swap(&mut long_area, &mut self.chosen);
        }
        if long_ends || short_ends {
            self.choose_short(in_short, &long_area, fast);
        }
        self.long_area = Some(long_area);
        if short_ends {
            self.short.begin();
        }
        let ended = match (long_ends, short_ends) {
            (true, _) => Some(self.long.length()),
            (false, true) => Some(self.short.length()),
            (false, false) => None,
        };
        PolicyNote {
            ended,
            share: Some(self.share),
            price: None,
        }
    }
}

impl DualPeriod {
    /// Fills the short area; `fast` becomes the union of both.
    fn choose_short(&mut self, k: u32, long_area: &FastSet, fast: &mut FastSet) {
        let choice = Choice {
            k,
            resident: fast,
            excluded: Some(long_area),
            fill: Fill::Any,
        };
        self.short.hottest(&choice, &mut self.chosen);
        let mut before = fast.clone();
        long_area.iter().for_each(|no| {
            before.remove(no);
        });
        self.min_gain
            .apply(&self.short, &before, fast, &mut self.chosen);
        fast.assign_union(long_area, &self.chosen);
    }

    /// Returns the extents of the long area; `None` before the first decision.
    pub fn long_area(&self) -> Option<&FastSet> {
        self.long_area.as_ref()
    }
}
