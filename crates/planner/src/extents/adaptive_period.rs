//! Periods and shares that adapt themselves: this project's own method for extents.
//!
//! ```text
//!   heat ─▶ slots ─┬─ learn: which period, which memory of the season said best what came (ghosts → weights)
//!                  └─ history: last season, what is usual, long average
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
use price::Priced;

pub use forecast::Recurrence;

/// Moves an extent where the requests that it is expected to get are worth more than the move.
///
/// What paper 1 fixes by hand is learnt here. *Periods*: each of 1, 3, 6, 12 and 24 slots is a ghost, a method with that
/// period alone that is only asked what it would say; so are a long average, the same slot of the season before, and what is usual
/// for that slot. Each slot the ghosts are held against what came, and the forecast is the combination that would have
/// been best, where the past counts less and less; after a break, when a forecast was wrong beyond its custom, other weights
/// are used, learnt after breaks. *Share*: there are no areas; an extent is on the fast tier for what it
/// will get in the next slots or in all of a season, whichever is worth a place. The share C of those that are there for the
/// short view only comes out, and is reported. *Moves*: each extent has a price for a place, from which its
/// move and the undoing of it are paid (`price.rs` has the formula), so noise moves nothing.
///
/// It looks ahead one season: what comes at the same time every day is there before it is asked for, if that pays.
///
/// Not where a few hundred bytes per extent matter (a season of 24 slots takes 100), nor for extents that are so rarely asked for
/// that nothing can be learnt. It believes that what a hit is worth is paper 1's formula, with the ratio of speeds it is
/// told ([`Terms`]); where tiers are limited by something else, that is wrong.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AdaptivePeriod {
    slot: Nanos,
    terms: Terms,
    /// When it was asked last.
    asked: Nanos,
    /// The slot that runs.
    current: HeatCounters,
    history: History,
    forecast: Forecast,
    worth: Worth,
    #[serde(skip)]
    priced: Vec<Priced>,
    #[serde(skip)]
    top: TopCounts,
    #[serde(skip)]
    chosen: FastSet,
}

/// Parameters of `adaptive-period`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdaptivePeriodConfig {
    /// The shortest time in which heat is measured, and between two decisions.
    pub slot: Nanos,
    /// After how long load may repeat itself: a whole number of slots, 168 at most. It is also how far the method looks ahead.
    pub season: Nanos,
    /// Whether the same time of earlier seasons is looked at.
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

/// Slots of a season, at most: a week of hours.
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

    /// What the last extent in was ready to pay.
    fn last_price(&self) -> u32 {
        let chosen = self.priced.iter().filter(|p| self.chosen.contains(p.no));
        chosen.map(|p| p.price).min().unwrap_or(0)
    }

    /// The share of what is on the fast tier that would not be worth its place for what it gets over a whole season.
    fn short_share(&self, price: u32, fast: &FastSet) -> f64 {
        let here = self.priced.iter().filter(|p| fast.contains(p.no));
        let short = here.filter(|p| p.lasting < price).count();
        short as f64 / f64::from(fast.count().max(1))
    }
}
