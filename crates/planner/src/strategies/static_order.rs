//! Places once, by service class and size, and never again: what an operator does by hand without measurements.

use model::{Effect, Reason, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{TierId, VolumeId};

use crate::ledger::Demand;
use crate::{ConfigError, Context, Draft, Ledger, Strategy, Wish};

/// Higher service classes on higher tiers, smaller volumes first within a class; by space alone, at the first migration
/// epoch only.
///
/// Use it as the baseline of a careful administrator. Not for loads that change, and not where a low class does most of
/// the I/O: it looks at no measurement.
pub struct StaticOrder;

/// Nothing to configure.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticOrderConfig {}

/// Whether the one placement was made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StaticOrderState {
    placed: bool,
}

impl Strategy for StaticOrder {
    type Config = StaticOrderConfig;
    type State = StaticOrderState;
    const NAME: &'static str = "static";
    const SUMMARY: &'static str = "places once by service class and size, then moves nothing";

    fn new(_: StaticOrderConfig) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn plan(&self, context: &Context<'_>, state: &StaticOrderState, draft: &mut Draft) -> StaticOrderState {
        let facts = context.facts;
        if !facts.placement_due {
            return state.clone();
        }
        let volumes = (0..facts.volumes.len()).map(VolumeId::from_index);
        if state.placed {
            draft.wishes = volumes.map(|v| Wish::stay(context, v)).collect();
            draft.notes.push("placed once already".into());
            return state.clone();
        }
        let weight = |v: VolumeId| facts.classes[facts.volumes[v.index()].class.index()].weight;
        let mut order: Vec<VolumeId> = volumes.collect();
        order.sort_by(|a, b| {
            let size = |v: &VolumeId| facts.volumes[v.index()].size;
            weight(*b).total_cmp(&weight(*a)).then(size(a).cmp(&size(b))).then(a.cmp(b))
        });
        let mut ledger = Ledger::new(context);
        let mut wishes: Vec<Wish> = order.iter().map(|v| self.place(context, &mut ledger, *v, weight(*v))).collect();
        wishes.sort_by_key(|w| w.volume);
        draft.wishes = wishes;
        StaticOrderState { placed: true }
    }
}

impl StaticOrder {
    fn place(&self, context: &Context<'_>, ledger: &mut Ledger<'_>, volume: VolumeId, weight: f64) -> Wish {
        let facts = context.facts;
        let space = facts.volumes[volume.index()].size;
        let demand = Demand { iops: 0.0, iops_max: 1.0, bytes_per_s: 0.0, bytes_per_s_max: 1.0, space };
        let mut wish = Wish::stay(context, volume);
        let mut taken: Option<TierId> = None;
        for tier in facts.topology.tier_ids() {
            if taken.is_some() {
                break;
            }
            match ledger.admits(volume, tier, &demand) {
                Ok(()) => taken = Some(tier),
                Err(by) => wish.options[tier.index()].verdict = Verdict::Rejected { by },
            }
        }
        let tier = taken.unwrap_or(wish.tier);
        ledger.assign(volume, tier, &demand);
        Wish { tier, reason: Reason::ClassOrder { weight }, effect: Effect::default(), value: weight, ..wish }
    }
}
