//! Objective of AutoTiering (paper 0, Eq. 6 and the cost in Eq. 7), without the prediction of loads.
//!
//! One rule scores predicted demand in a decision and true demand in the comparison with the best possible decisions
//! (`sim`'s optimum). Values of two different objectives could not be compared.

use std::collections::BTreeMap;

use model::{Headroom, MeasuredLoad, Policy, Topology};
use units::{Bytes, TierId};

use crate::assign::{Place, RESOURCES, Shares};
use crate::ledger::Demand;
use crate::strategies::AutoTieringConfig;

/// Weights of Eq. 6 and 7, by tier.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreWeights {
    all: Weights,
    /// Weights of tiers with weights of their own.
    own: BTreeMap<String, Weights>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Weights {
    performance: f64,
    bandwidth: f64,
    space: f64,
    migration: f64,
}

impl Weights {
    /// Returns the weights of Eq. 6 alone.
    fn of_match(self) -> Shares {
        [self.performance, self.bandwidth, self.space]
    }

    /// Returns the first invalid weight and the reason.
    fn fault(self) -> Option<(&'static str, &'static str)> {
        let of_match = self.of_match();
        let sum = of_match.iter().sum::<f64>();
        if of_match.iter().any(|w| w.is_nan() || *w < 0.0) || sum <= 0.0 || sum > 1e9 {
            let why = "the three weights must be at least 0, not all 0, and their sum at most 1e9";
            return Some(("performance", why));
        }
        let sound = self.migration.is_finite() && self.migration >= 0.0;
        (!sound).then_some(("migration", "must be at least 0"))
    }
}

impl ScoreWeights {
    /// Returns the weights of a configuration of AutoTiering.
    pub fn new(config: &AutoTieringConfig) -> Self {
        let all = Weights {
            performance: config.weight_performance,
            bandwidth: config.weight_bandwidth,
            space: config.weight_space,
            migration: config.weight_migration,
        };
        let own = config.tier_weights.iter().map(|(tier, own)| {
            let weights = Weights {
                performance: own.performance.unwrap_or(all.performance),
                bandwidth: own.bandwidth.unwrap_or(all.bandwidth),
                space: own.space.unwrap_or(all.space),
                migration: own.migration.unwrap_or(all.migration),
            };
            (tier.clone(), weights)
        });
        Self {
            all,
            own: own.collect(),
        }
    }

    /// Returns the key of the first invalid weight, and the reason.
    pub(crate) fn fault(&self) -> Option<(String, &'static str)> {
        let all = self.all.fault();
        let own = |(tier, w): (&String, &Weights)| {
            let (weight, why) = w.fault()?;
            Some((format!("tier_weights.{tier}.{weight}"), why))
        };
        all.map(|(weight, why)| (format!("weight_{weight}"), why))
            .or_else(|| self.own.iter().find_map(own))
    }

    /// Returns a tier name that has weights but is not among `tiers`.
    pub(crate) fn unknown_tier<'a>(&'a self, tiers: &[String]) -> Option<&'a str> {
        let mut own = self.own.keys().map(String::as_str);
        own.find(|t| tiers.iter().all(|there| there != t))
    }

    fn of(&self, topology: &Topology, tier: TierId) -> Weights {
        if self.own.is_empty() {
            return self.all;
        }
        let own = self.own.get(&topology.tier(tier).name);
        own.copied().unwrap_or(self.all)
    }

    /// Returns the weights of IOPS, bandwidth and space on a tier; their sum is 1.
    pub fn weights(&self, topology: &Topology, tier: TierId) -> Shares {
        let weights = self.of(topology, tier).of_match();
        let sum: f64 = weights.iter().sum();
        weights.map(|w| w / sum)
    }

    /// Returns the score of one volume that uses the whole capability of the tier: IOPS, bandwidth, space. `importance` is
    /// the weight of the volume's class, times the confidence in its prediction.
    pub fn worth(&self, topology: &Topology, tier: TierId, importance: f64) -> Shares {
        let special = topology.tier(tier).specialty;
        let w = self.of(topology, tier);
        let each = importance / (w.performance + w.bandwidth + w.space);
        [
            special.performance * w.performance * each,
            special.bandwidth * w.bandwidth * each,
            special.space * w.space * each,
        ]
    }

    /// Returns the cost of a move to a tier that takes `seconds`, in units of the score.
    pub fn move_cost(
        &self,
        topology: &Topology,
        tier: TierId,
        policy: &Policy,
        seconds: f64,
    ) -> f64 {
        self.of(topology, tier).migration * seconds / policy.epochs.migration.as_secs_f64()
    }

    /// Returns the match (Eq. 6; space counts on the last tier only) and the resource use of a volume with a known load on a
    /// tier. Its demand is limited to the plannable share of one device.
    pub fn place(
        &self,
        topology: &Topology,
        headroom: &Headroom,
        tier: TierId,
        weight: f64,
        load: &MeasuredLoad,
        size: Bytes,
    ) -> Place {
        let demand = Demand::on_tier(topology, tier, load, load.iops(), size);
        let demand = demand.within_one_device(topology, headroom, tier);
        let uses = demand.shares(topology.capacity(tier));
        let mut worth = self.worth(topology, tier, weight);
        if tier.index() + 1 < topology.tiers.len() {
            worth[2] = 0.0;
        }
        Place {
            score: (0..RESOURCES).map(|k| worth[k] * uses[k]).sum(),
            uses,
        }
    }
}
