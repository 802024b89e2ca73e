//! IDT: IOPS Dynamic Tiering, per volume (paper 0, Sec. V-A3; the baseline of the EDT paper, Guerra et al., FAST'11).

use model::{Effect, Reason, Rejection, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{TierId, VolumeId};

use crate::ledger::{Demand, StayCheck};
use crate::{ConfigError, Context, Draft, Ledger, Strategy, Wish};

/// Puts the busiest volumes on the tiers with the most IOPS.
///
/// A greedy criterion of measured IOPS alone: no bandwidth, no cost of moves, no history. The executor sets the same pace
/// for its moves as for those of other strategies. Tiers are ordered by the IOPS of their devices for each volume's own mix,
/// or by their nominal IOPS ([`TierOrder`]): the paper does not specify which. A tier is filled from empty, busiest volume
/// first, while the sum of IOPS and the sum of sizes fit; this also applies to volumes already on the tier.
///
/// When not to use it: for loads with spikes, because it follows each of them with whole volumes; or if tiers differ in
/// latency more than in IOPS, because it does not use latency.
pub struct Idt {
    order: TierOrder,
}

/// Parameters of `idt`: the order of tiers. Headroom and budgets are in the policy.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdtConfig {
    /// Measure of a tier's IOPS.
    pub order: TierOrder,
}

/// Measure of a tier's IOPS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TierOrder {
    /// IOPS of each volume's own mix of reads and writes.
    #[default]
    ByMix,
    /// IOPS of random reads, the number on data sheets: one order for all volumes.
    Nominal,
}

impl Strategy for Idt {
    type Config = IdtConfig;
    type State = ();
    const NAME: &'static str = "idt";
    const SUMMARY: &'static str =
        "busiest volumes to the tiers with the most IOPS (paper 0's baseline)";

    fn new(config: IdtConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            order: config.order,
        })
    }

    fn plan(&self, context: &Context<'_>, _: &(), draft: &mut Draft) {
        let facts = context.facts;
        if !facts.placement_due {
            return;
        }
        let mut ledger = Ledger::new(context);
        let mut ranked: Vec<(VolumeId, f64)> = Vec::new();
        for (i, v) in facts.volumes.iter().enumerate() {
            let volume = VolumeId::from_index(i);
            match &v.measured {
                Some(m) => ranked.push((volume, m.iops())),
                None => {
                    // An unknown load may not be idle: the volume keeps its place and its space.
                    let mut wish = Wish::stay(context, volume);
                    for option in &mut wish.options {
                        option.verdict = Verdict::Rejected {
                            by: Rejection::NoMeasurement,
                        };
                    }
                    let space = v.size;
                    let demand = Demand::space_only(space);
                    ledger.assign(volume, wish.tier, &demand);
                    draft.wishes.push(wish);
                }
            }
        }
        ranked.sort_by_key(|(v, iops)| (std::cmp::Reverse((iops * 1e3).round() as u64), *v));
        for (rank, (volume, iops)) in ranked.into_iter().enumerate() {
            let wish = self.place(context, &mut ledger, volume, rank as u32 + 1, iops);
            draft.wishes.push(wish);
        }
        draft.wishes.sort_by_key(|w| w.volume);
    }
}

impl Idt {
    fn place(
        &self,
        context: &Context<'_>,
        ledger: &mut Ledger<'_>,
        volume: VolumeId,
        rank: u32,
        iops: f64,
    ) -> Wish {
        let facts = context.facts;
        let v = &facts.volumes[volume.index()];
        let measured = v.measured.as_ref().expect("ranked volumes are measured");
        let mut wish = Wish::stay(context, volume);
        let demand_on = |tier: TierId| {
            // Bandwidth is not a criterion of IDT: it demands none.
            Demand {
                bytes_per_s: 0.0,
                ..Demand::on_tier(&facts.topology, tier, measured, iops, v.size)
            }
        };
        let mut by_capability: Vec<TierId> = facts.topology.tier_ids().collect();
        let capability = |tier: TierId| match self.order {
            TierOrder::ByMix => demand_on(tier).iops_max,
            TierOrder::Nominal => facts.topology.sum(tier, |s| s.max_iops(1.0, 0.0, 0.0)),
        };
        by_capability.sort_by_key(|t| (std::cmp::Reverse(capability(*t).round() as u64), *t));
        let mut taken = None;
        for tier in by_capability {
            let demand = demand_on(tier);
            match ledger.admits(volume, tier, &demand, StayCheck::Checked) {
                Ok(()) => {
                    taken = Some(tier);
                    break;
                }
                Err(by) => wish.options[tier.index()].verdict = Verdict::Rejected { by },
            }
        }
        let tier = taken.unwrap_or(wish.tier);
        let demand = demand_on(tier);
        ledger.assign(volume, tier, &demand);
        let devices = facts.topology.tier(tier).devices.len() as f64;
        wish.evidence.insert("iops".into(), iops);
        Wish {
            tier,
            reason: ranked_by_iops(rank, iops),
            effect: Effect {
                iops_before: Some(iops),
                ..Effect::default()
            },
            value: iops,
            device_share: demand.iops / demand.iops_max * devices,
            ..wish
        }
    }
}

/// Reason of a placement by IOPS: busier volumes are on faster tiers; rank 1 is the busiest.
fn ranked_by_iops(rank: u32, iops: f64) -> Reason {
    let text = format!("rank {rank} by IOPS ({iops:.0}/s)");
    Reason::new("ranked-by-iops", text)
        .with("rank", rank)
        .with("iops", iops)
}
