//! Two I/O measurement periods, an area of the fast tier for each: the method that paper 1 proposes (section 3).

use algo::{Choice, Fill};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::periods::{Measured, MinGain};
use super::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote};
use crate::ConfigError;

/// The long area holds the hottest extents of the long period, the short area the hottest of the short period among all
/// others.
///
/// ```text
///   fast tier, K extents:  | A_long: K − K_short          | A_short: K_short = round(C·K) |
///   at the end of          | each long period (first)     | each short and long period    |
/// ```
///
/// What is in the long area is excluded from the short one. Where both periods end the long one goes first, and the moves
/// are the difference of the unions: an extent that changes areas does not move (the paper is silent on that). Where only a
/// long period ends, the short area is chosen anew from what the short period has counted so far, since its extents may
/// have gone into the long area.
///
/// With C = 0 it is `period` with the long period, with C = 1 `period` with the short one, but for what a short area does
/// at ends of long periods that are no ends of short ones.
///
/// Not for loads without recurrence: on a stationary load the short area only follows noise, and on one that moves at
/// random the long area only remembers the past (`docs/reproduce/dual-period.md` has both).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DualPeriod {
    long: Measured,
    short: Measured,
    share: f64,
    min_gain: MinGain,
    /// None before the first decision: what is on the fast tier then counts as long.
    long_area: Option<FastSet>,
    #[serde(skip)]
    chosen: FastSet,
}

/// Parameters of `dual-period`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DualPeriodConfig {
    /// The long I/O measurement period (paper 1: 24 hours).
    pub long: Nanos,
    /// The short one (paper 1: 1 hour).
    pub short: Nanos,
    /// The share C of the fast tier that follows the short period, 0..=1. Paper 1 tests 0.1 to 0.9 and finds 0.2 to 0.3
    /// best on its trace.
    pub share: f64,
    /// An extent takes the place of another only if it had more than (1 + this) times the requests of it, in the period of
    /// the area. 0 is the paper's plain ranking.
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
            long: Measured::new(Self::NAME, "long", config.long)?,
            short: Measured::new(Self::NAME, "short", config.short)?,
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
            // The fast tier has become smaller: the long area keeps its hottest.
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

    /// What the long period has put on the fast tier; none before the first decision.
    pub fn long_area(&self) -> Option<&FastSet> {
        self.long_area.as_ref()
    }
}
