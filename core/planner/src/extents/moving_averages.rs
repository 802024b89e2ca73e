//! Short and long moving averages, with moves that pay: a comparison method in the manner of ARMS.

use algo::{Averages, Choice, Fill, TopCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::swaps::keep_worthwhile;
use super::worth::Worth;
use super::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote, Terms};
use crate::ConfigError;

/// Scores extents by a short and a long exponential average of their requests. Swaps two extents if the difference of their
/// scores, over its assumed duration, is worth more than both moves.
///
/// In the manner of ARMS (2025: memory tiering by short and long averages with a cost and benefit of each migration, without
/// thresholds). Its full text was not available: the blend of the averages and the duration `lasts` are this project's
/// choices.
///
/// When not to use it: for loads that recur, because averages do not know the time of day.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MovingAverages {
    config: MovingAveragesConfig,
    terms: Terms,
    asked: Nanos,
    short: Averages,
    long: Averages,
    worth: Worth,
    #[serde(skip)]
    top: TopCounts,
    #[serde(skip)]
    chosen: FastSet,
}

/// Parameters of `moving-averages`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MovingAveragesConfig {
    /// Time between two decisions, and length of one step of the averages: heat should come in intervals of this length.
    pub every: Nanos,
    /// Half-life of the short average.
    pub short: Nanos,
    /// Half-life of the long average.
    pub long: Nanos,
    /// Combination of the two averages to a score.
    pub blend: Blend,
    /// Assumed duration of a difference between two extents; at least `every`.
    pub lasts: Nanos,
}

/// Combination of two averages to a score.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Blend {
    /// Larger of the two: extents come fast and leave slowly.
    Larger,
    /// Mean of the two.
    #[default]
    Mean,
}

/// The best of eight settings over nine conditions of paper 1.
impl Default for MovingAveragesConfig {
    fn default() -> Self {
        Self {
            every: Nanos::from_secs(3600),
            short: Nanos::from_secs(3600),
            long: Nanos::from_secs(24 * 3600),
            blend: Blend::default(),
            lasts: Nanos::from_secs(3 * 3600),
        }
    }
}

/// Units per request and interval: scores are compared as integers in this unit.
const SCORE_UNIT: f64 = 256.0;

impl ExtentPolicy for MovingAverages {
    type Config = MovingAveragesConfig;
    const NAME: &'static str = "moving-averages";
    const SUMMARY: &'static str = "compares short and long moving averages, with the cost and benefit of each swap (after ARMS)";

    fn new(config: &MovingAveragesConfig) -> Result<Self, ConfigError> {
        let lengths = [
            ("every", config.every),
            ("short", config.short),
            ("long", config.long),
            ("lasts", config.lasts),
        ];
        for (key, value) in lengths {
            if value == Nanos::ZERO {
                return Err(ConfigError::new(Self::NAME, key, "must be above 0"));
            }
        }
        if config.lasts < config.every {
            return Err(ConfigError::new(
                Self::NAME,
                "lasts",
                format!(
                    "{} must be at least the interval between decisions",
                    config.lasts
                ),
            ));
        }
        let steps = |length: Nanos| length.as_f64() / config.every.as_f64();
        Ok(Self {
            terms: Terms::default(),
            asked: Nanos::ZERO,
            short: Averages::new(0, steps(config.short)),
            long: Averages::new(0, steps(config.long)),
            worth: Worth::default(),
            config: config.clone(),
            top: TopCounts::default(),
            chosen: FastSet::default(),
        })
    }

    fn agree(&mut self, terms: &Terms) {
        self.terms = *terms;
    }

    fn periods(&self) -> Vec<(&'static str, Nanos)> {
        vec![("every", self.config.every)]
    }

    fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        self.short = self.short.renumbered(from);
        self.long = self.long.renumbered(from);
        self.worth.renumber(from);
    }

    fn observe(&mut self, _: Nanos, heat: &Heat<'_>) {
        self.short.observe(heat.touched.iter().copied());
        self.long.observe(heat.touched.iter().copied());
        self.worth.observe(heat, &self.terms);
    }

    fn decide(&mut self, at: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote {
        let before = std::mem::replace(&mut self.asked, at);
        if at.0 / self.config.every.0 <= before.0 / self.config.every.0 {
            return PolicyNote::default();
        }
        let blend = self.config.blend;
        let ((short, short_scale), (long, long_scale)) = (self.short.scaled(), self.long.scaled());
        let score = |no: u32| {
            let of = |scaled: &[f32], scale: f64| f64::from(scaled[no as usize]) / scale;
            let (short, long) = (of(short, short_scale), of(long, long_scale));
            let score = match blend {
                Blend::Larger => short.max(long),
                Blend::Mean => (short + long) / 2.0,
            };
            (score * SCORE_UNIT).min(2e9) as u32
        };
        let choice = Choice {
            k: capacity,
            resident: fast,
            excluded: None,
            fill: Fill::Residents,
        };
        let scores = (0..fast.len()).map(|no| (no, score(no)));
        self.top.select(scores, &choice, &mut self.chosen);
        let steps = self.config.lasts.as_f64() / self.config.every.as_f64();
        let hits = steps * self.worth.of_a_hit(&self.terms) / SCORE_UNIT;
        let cost = 2.0 * self.terms.ios_per_move();
        let pays = |new: u32, old: u32| f64::from(new.saturating_sub(old)) * hits > cost;
        keep_worthwhile(fast, fast, &mut self.chosen, score, pays);
        self.worth.decided(fast, &self.chosen);
        std::mem::swap(fast, &mut self.chosen);
        PolicyNote {
            ended: Some(self.config.every),
            ..PolicyNote::default()
        }
    }
}
