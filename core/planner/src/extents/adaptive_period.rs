//! Method with self-adapting periods and shares: this project's own method for extents.
//!
//! ```text
//!   heat ─▶ slots ─┬─ learn: weight of each period and each memory of the season, by its past error (ghosts → weights)
//!                  └─ history: last season, usual load, long average
//!   weights × history ─▶ requests expected, slot by slot of the season ahead
//!   − cost of moves, in hits ─▶ a price per extent ─▶ the K highest
//! ```

mod forecast;
mod history;
mod price;

use algo::{Choice, Fill, HeatCounters, TopCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::worth::Worth;
use super::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote, Terms};
use crate::ConfigError;
use forecast::Forecast;
use history::History;
use price::ExtentPrice;

pub use forecast::Recurrence;

/// Moves an extent if the value of its expected requests exceeds the cost of the move.
///
/// The method learns the parameters that paper 1 sets by hand.
///
/// - *Periods*: each of 1, 3, 6, 12 and 24 slots is a ghost: the forecast that a method with that period alone would make. A
///   long average, the same slot of the last season, and the usual load of that slot are ghosts too. After each slot the
///   ghosts are compared with the measured requests. The forecast is their best combination so far, where older slots count
///   less. A break is a forecast error far above the usual error; after a break the method uses other weights, learnt after
///   breaks.
/// - *Share*: there are no areas. An extent is on the fast tier for its requests in the next slots or in a whole season,
///   whichever is worth a place. The share C of extents that are there for the short view is a result, and is reported.
/// - *Moves*: each extent has a price for a place, which pays for its move and the move back (`price.rs` has the formula),
///   so noise moves nothing.
///
/// The method looks ahead one season: an extent with requests at the same time every day is moved before these, if that
/// pays.
///
/// When not to use it: if a few hundred bytes per extent matter (a season of 24 slots takes 100), or for extents with so few
/// requests that nothing can be learnt. The value of a hit is paper 1's formula, with the given ratio of speeds ([`Terms`]);
/// it is wrong if something else limits the tiers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdaptivePeriod {
    slot: Nanos,
    terms: Terms,
    /// Time of the last decision.
    asked: Nanos,
    /// Requests of the current slot.
    current: HeatCounters,
    history: History,
    forecast: Forecast,
    worth: Worth,
    #[serde(skip)]
    priced: Vec<ExtentPrice>,
    #[serde(skip)]
    top: TopCounts,
    #[serde(skip)]
    chosen: FastSet,
}

/// Parameters of `adaptive-period`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptivePeriodConfig {
    /// Shortest time in which heat is measured, and between two decisions.
    pub slot: Nanos,
    /// Time after which load may recur: a whole number of slots, 168 at most. The method looks ahead for this time.
    pub season: Nanos,
    /// Use of the same time in earlier seasons.
    pub recurrence: Recurrence,
}

impl Default for AdaptivePeriodConfig {
    fn default() -> Self {
        Self {
            slot: Nanos::from_secs(3600),
            season: Nanos::from_secs(24 * 3600),
            recurrence: Recurrence::default(),
        }
    }
}

/// Largest number of slots in a season: a week of hours.
const SLOTS_MAX: u64 = 168;

impl ExtentPolicy for AdaptivePeriod {
    type Config = AdaptivePeriodConfig;
    const NAME: &'static str = "adaptive-period";
    const SUMMARY: &'static str = "chooses periods, shares and moves by expected gain less cost";

    fn new(config: &AdaptivePeriodConfig) -> Result<Self, ConfigError> {
        let fault = |key: &str, why: String| ConfigError::new(Self::NAME, key, why);
        if config.slot == Nanos::ZERO {
            return Err(fault("slot", "must be above 0".into()));
        }
        let slots = config.season.0 / config.slot.0;
        if !config.season.0.is_multiple_of(config.slot.0) || !(1..=SLOTS_MAX).contains(&slots) {
            let why = format!(
                "{} must be 1 to {SLOTS_MAX} slots of {}",
                config.season, config.slot
            );
            return Err(fault("season", why));
        }
        Ok(Self {
            slot: config.slot,
            terms: Terms::default(),
            asked: Nanos::ZERO,
            current: HeatCounters::default(),
            history: History::new(slots as usize),
            forecast: Forecast::new(config.recurrence, slots as usize),
            worth: Worth::default(),
            priced: vec![],
            top: TopCounts::default(),
            chosen: FastSet::default(),
        })
    }

    fn agree(&mut self, terms: &Terms) {
        self.terms = *terms;
    }

    fn periods(&self) -> Vec<(&'static str, Nanos)> {
        vec![("slot", self.slot)]
    }

    fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        self.current = self.current.renumbered(from);
        self.history.renumber(from);
        self.worth.renumber(from);
    }

    fn observe(&mut self, _: Nanos, heat: &Heat<'_>) {
        self.current.add_all(heat.touched);
        self.worth.observe(heat, &self.terms);
    }

    fn decide(&mut self, at: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote {
        let before = self.asked;
        self.asked = at.max(before);
        if at.0 / self.slot.0 <= before.0 / self.slot.0 {
            return PolicyNote::default();
        }
        self.forecast.learn(&self.history, &self.current);
        self.history.push(&self.current);
        self.current.reset();
        self.choose(capacity, fast);
        let price = self.last_price();
        self.worth.decided(fast, &self.chosen);
        std::mem::swap(fast, &mut self.chosen);
        PolicyNote {
            ended: Some(self.slot),
            share: Some(self.short_share(price, fast)),
            price: Some(f64::from(price) / f64::from(price::PRICE_UNIT)),
        }
    }
}

impl AdaptivePeriod {
    fn choose(&mut self, capacity: u32, fast: &FastSet) {
        let cost_hits = self.terms.ios_per_move() / self.worth.of_a_hit(&self.terms);
        let choice = Choice {
            k: capacity,
            resident: fast,
            excluded: None,
            fill: Fill::Residents,
        };
        price::prices(
            &self.history,
            &self.forecast,
            fast,
            cost_hits,
            &mut self.priced,
        );
        let prices = self.priced.iter().map(|p| (p.no, p.price));
        self.top.select(prices, &choice, &mut self.chosen);
    }

    /// Returns the lowest price among the chosen extents.
    fn last_price(&self) -> u32 {
        let chosen = self.priced.iter().filter(|p| self.chosen.contains(p.no));
        chosen.map(|p| p.price).min().unwrap_or(0)
    }

    /// Returns the share of the extents on the fast tier that would not be worth their place by their requests over a whole
    /// season.
    fn short_share(&self, price: u32, fast: &FastSet) -> f64 {
        let here = self.priced.iter().filter(|p| fast.contains(p.no));
        let short = here.filter(|p| p.lasting < price).count();
        short as f64 / f64::from(fast.count().max(1))
    }
}
