//! Method that knows the future: a bound, not a practical method.

use algo::{Choice, Fill, HeatCounters, TopCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::swaps::keep_worthwhile;
use super::worth::Worth;
use super::{ExtentNo, ExtentPolicy, FastSet, Heat, PolicyNote, Terms};
use crate::ConfigError;

/// Puts the extents with the most requests in the next interval on the fast tier.
///
/// With `hits`, no method can have more hits in any interval, so its fast-tier share is an upper bound. It pays any price in
/// moves, so its total performance is no bound. With `net`, it makes moves that gain more in the next interval alone than
/// they cost. This is a reference for methods that weigh costs, but no bound: a method that looks further ahead can do
/// better.
///
/// The future comes from the evaluation by counting ([`ExtentPolicy::foresee`]). In simulation and live there is none, and
/// the method does nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Clairvoyant {
    foresight: Foresight,
    terms: Terms,
    worth: Worth,
    next: HeatCounters,
    #[serde(skip)]
    top: TopCounts,
    #[serde(skip)]
    chosen: FastSet,
}

/// Goal of the method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Foresight {
    /// Most hits, whatever the moves cost.
    #[default]
    Hits,
    /// Only moves that pay within the next interval.
    Net,
}

/// Parameters of `clairvoyant`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClairvoyantConfig {
    /// Goal of the method.
    pub foresight: Foresight,
}

impl ExtentPolicy for Clairvoyant {
    type Config = ClairvoyantConfig;
    const NAME: &'static str = "clairvoyant";
    const SUMMARY: &'static str =
        "uses the requests of the next interval: a bound, only for evaluation by counting";

    fn new(config: &ClairvoyantConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            foresight: config.foresight,
            terms: Terms::default(),
            worth: Worth::default(),
            next: HeatCounters::default(),
            top: TopCounts::default(),
            chosen: FastSet::default(),
        })
    }

    fn agree(&mut self, terms: &Terms) {
        self.terms = *terms;
    }

    fn renumber(&mut self, from: &[Option<ExtentNo>]) {
        self.next = self.next.renumbered(from);
        self.worth.renumber(from);
    }

    fn observe(&mut self, _: Nanos, heat: &Heat<'_>) {
        self.worth.observe(heat, &self.terms);
        self.next.reset();
    }

    fn foresee(&mut self, next: &Heat<'_>) {
        for (no, n) in next.touched {
            self.next.add(*no, *n);
        }
    }

    fn decide(&mut self, _: Nanos, capacity: u32, fast: &mut FastSet) -> PolicyNote {
        if self.next.is_empty() {
            return PolicyNote::default();
        }
        let choice = Choice {
            k: capacity,
            resident: fast,
            excluded: None,
            fill: Fill::Residents,
        };
        self.top
            .select(self.next.unordered(), &choice, &mut self.chosen);
        if self.foresight == Foresight::Net {
            let worth = self.worth.of_a_hit(&self.terms);
            let cost = 2.0 * self.terms.ios_per_move();
            let pays = |new: u32, old: u32| f64::from(new - old) * worth > cost;
            keep_worthwhile(fast, fast, &mut self.chosen, |no| self.next.count(no), pays);
        }
        self.worth.decided(fast, &self.chosen);
        std::mem::swap(fast, &mut self.chosen);
        PolicyNote::default()
    }
}
