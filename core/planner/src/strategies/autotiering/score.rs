//! Demand, match, history and cost of one volume on one tier (paper 0, Alg. 2, Eq. 6–7).

use model::{AgedBy, Aging, MatchPart, MatchParts, MeasuredLoad, Prediction, Rejection, Specialty};
use units::{DeviceId, TierId, VolumeId};

use super::config::{History, MoveCost, OverDemand, SpaceTerm};
use super::{AutoTiering, VolumeState, predict};
use crate::Context;
use crate::assign::Shares;
use crate::ledger::Demand;
use crate::rate::{copy_bandwidth, spare_bandwidth};

/// Score of the literal form for an impossible tier, which is also added to the history.
const INFEASIBLE_SCORE: f64 = -1.0;
/// Smallest value of the paper's rate, bytes per second, however busy the devices are.
const MIGRATION_RATE_MIN: f64 = 1e6;

/// Score of a volume on a tier.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TierScore {
    pub(crate) demand: Demand,
    pub(crate) prediction: Prediction,
    pub(crate) score: f64,
    /// Parts of the score; `None` if it is only the mark of an impossible tier.
    pub(crate) parts: Option<MatchParts>,
    /// Increase of the score if this volume used the whole capability of the tier.
    pub(crate) worth: Shares,
    pub(crate) infeasible: Option<Rejection>,
    /// Seconds that a move to the tier takes; 0 on the present tier.
    pub(crate) move_s: f64,
}

pub(crate) fn score(
    strategy: &AutoTiering,
    context: &Context<'_>,
    volume: VolumeId,
    tier: TierId,
    measured: &MeasuredLoad,
    own: &mut VolumeState,
) -> TierScore {
    let AutoTiering {
        config,
        switches,
        objective,
    } = strategy;
    let facts = context.facts;
    let v = &facts.volumes[volume.index()];
    let here = facts.topology.tier_of(v.device);
    let sensitivity = own.sensitivity.as_ref();
    let latency = predict::latency(config, switches, facts, volume, tier, measured, sensitivity);
    let saturated = predict::saturated(facts, volume);
    let iops = predict::iops(switches, measured, sensitivity, saturated, latency.mean_us);
    let demand = Demand::on_tier(&facts.topology, tier, measured, iops, v.size);
    let demand = match switches.over_demand {
        OverDemand::Refuse => demand,
        OverDemand::Cap => {
            demand.within_one_device(&facts.topology, &context.policy.headroom, tier)
        }
    };
    let space_max = facts.topology.capacity(tier).as_f64();
    let infeasible = exceeds(&demand, space_max);

    let class_weight = facts.classes[v.class.index()].weight;
    let worth = objective.worth(&facts.topology, tier, class_weight * latency.confidence);
    let last = tier.index() + 1 == facts.topology.tiers.len();
    let space_counts = switches.space_term == SpaceTerm::Everywhere || last;
    let (shares, weights) = (
        demand.shares(facts.topology.capacity(tier)),
        objective.weights(&facts.topology, tier),
    );
    let part = |k: usize, specialty: fn(&Specialty) -> f64| {
        infeasible.is_none().then(|| MatchPart {
            share: shares[k],
            specialty: specialty(&facts.topology.tier(tier).specialty),
            weight: weights[k],
            adds: worth[k] * shares[k],
        })
    };
    // Eq. 7's g, on the device where it is least. The paper's rate is the whole spare bandwidth of source and target; ours
    // is the planned rate of the copy.
    let rate = |d: DeviceId| match switches.move_cost {
        MoveCost::Seconds | MoveCost::SecondsOfMoves => {
            spare_bandwidth(facts, volume, d).max(MIGRATION_RATE_MIN)
        }
        MoveCost::Epochs => copy_bandwidth(facts, context.policy, volume, d).as_f64(),
    };
    let devices = &facts.topology.tier(tier).devices;
    let move_s = devices
        .iter()
        .map(|d| v.size.as_f64() / rate(*d))
        .fold(f64::INFINITY, f64::min);
    let cost = match switches.move_cost {
        MoveCost::Epochs | MoveCost::SecondsOfMoves if tier == here => 0.0,
        // Seconds have the same weight as epochs, so the forms differ in the choices that are charged, not in the amount.
        MoveCost::Epochs | MoveCost::Seconds | MoveCost::SecondsOfMoves => {
            objective.move_cost(&facts.topology, tier, context.policy, move_s) / config.payback()
        }
    };
    let name = &facts.topology.tier(tier).name;
    let parts = MatchParts {
        class_weight,
        confidence: latency.confidence,
        performance: part(0, |s| s.performance),
        bandwidth: part(1, |s| s.bandwidth),
        space: part(2, |s| s.space).filter(|_| space_counts),
        aging: Aging {
            by: match switches.history {
                History::Ewma => AgedBy::Mean,
                History::Recursion => AgedBy::Sum,
            },
            keeps: config.aging,
            before: own.history.get(name).copied(),
        },
        move_cost: cost,
    };
    let (score, kept, parts) = match switches.history {
        History::Ewma => (parts.score(), parts.aged(), Some(parts)),
        History::Recursion if infeasible.is_some() => (INFEASIBLE_SCORE, INFEASIBLE_SCORE, None),
        History::Recursion => (parts.score(), parts.score(), Some(parts)),
    };
    own.history.insert(name.clone(), kept);
    TierScore {
        demand,
        prediction: Prediction {
            latency_us: latency.mean_us,
            iops: demand.iops,
            mib_per_s: demand.bytes_per_s / (1u64 << 20) as f64,
        },
        score,
        parts,
        worth,
        infeasible,
        move_s: if tier == here { 0.0 } else { move_s },
    }
}

fn exceeds(demand: &Demand, space_max: f64) -> Option<Rejection> {
    let over = |resource: &str, need: f64, max: f64| {
        (need > max).then(|| Rejection::ExceedsTier {
            resource: resource.into(),
            need,
            max,
        })
    };
    over("iops", demand.iops, demand.iops_max)
        .or_else(|| over("bandwidth", demand.bytes_per_s, demand.bytes_per_s_max))
        .or_else(|| over("space", demand.space.as_f64(), space_max))
}
