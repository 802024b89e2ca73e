//! What AutoTiering maximizes (paper 0, Eq. 6 and the cost in Eq. 7), apart from how it predicts.
//!
//! The same rule scores a predicted demand when a strategy decides, and the true one when its decisions are held against
//! the best possible (`sim`'s optimum): a gap between values of two different objectives would say nothing.

use model::{Headroom, Measured, Policy, Topology};
use units::{Bytes, TierId};

use crate::assign::{Place, RESOURCES, Shares};
use crate::ledger::Demand;
use crate::strategies::AutoTieringConfig;

/// The weights of Eq. 6 and 7.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    performance: f64,
    bandwidth: f64,
    space: f64,
    migration: f64,
}

impl Objective {
    /// The weights of a configuration of AutoTiering.
    pub fn new(config: &AutoTieringConfig) -> Self {
        Self {
            performance: config.weight_performance,
            bandwidth: config.weight_bandwidth,
            space: config.weight_space,
            migration: config.weight_migration,
        }
    }

    /// What IOPS, bandwidth and space weigh; together 1.
    pub fn weights(&self) -> Shares {
        let sum = self.performance + self.bandwidth + self.space;
        [self.performance, self.bandwidth, self.space].map(|w| w / sum)
    }

    /// What a whole capability of the tier, used by one volume, is worth: IOPS, bandwidth, space. `importance` is the
    /// weight of its class, times the confidence in its prediction.
    pub fn worth(&self, topology: &Topology, tier: TierId, importance: f64) -> Shares {
        let special = topology.tier(tier).specialty;
        let each = importance / (self.performance + self.bandwidth + self.space);
        [
            special.performance * self.performance * each,
            special.bandwidth * self.bandwidth * each,
            special.space * self.space * each,
        ]
    }

    /// Score of a move that takes so long.
    pub fn move_cost(&self, policy: &Policy, seconds: f64) -> f64 {
        self.migration * seconds / policy.epochs.migration.as_secs_f64()
    }

    /// A volume with this load on this tier, known for certain: its match (Eq. 6, space counting on the last tier only)
    /// and what it uses. Its demand is at most what may be planned of one device.
    pub fn place(
        &self,
        topology: &Topology,
        headroom: &Headroom,
        tier: TierId,
        weight: f64,
        load: &Measured,
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
