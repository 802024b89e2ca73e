//! One placement by service class and size, which never changes: the placement of an operator without measurements.

use std::collections::BTreeMap;

use model::{Effect, Facts, Reason, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{TierId, VolumeId};

use crate::ledger::{Demand, StayCheck};
use crate::{ConfigError, Context, Draft, Ledger, Strategy, Wish};

/// Puts higher service classes on higher tiers, and smaller volumes first within a class; by space alone. The placement is
/// decided at the first migration epoch, carried out in as many epochs as it takes, and never changed.
///
/// Use it as the baseline of a careful administrator. When not to use it: for loads that change, or if a low class does most
/// of the I/O, because it uses no measurements.
pub struct StaticOrder;

/// Parameters of `static`: none.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticOrderConfig {}

/// Decided placement: tier by volume, by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StaticOrderState {
    placement: BTreeMap<String, String>,
}

impl Strategy for StaticOrder {
    type Config = StaticOrderConfig;
    type State = StaticOrderState;
    const NAME: &'static str = "static";
    const SUMMARY: &'static str =
        "places volumes once by service class and size, then makes no moves";

    fn new(_: StaticOrderConfig) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &StaticOrderState,
        draft: &mut Draft,
    ) -> StaticOrderState {
        let facts = context.facts;
        if !facts.placement_due {
            return state.clone();
        }
        let volumes = (0..facts.volumes.len()).map(VolumeId::from_index);
        let weight = |v: VolumeId| facts.classes[facts.volumes[v.index()].class.index()].weight;
        if !state.placement.is_empty() {
            draft.wishes = volumes
                .map(|v| remembered(context, state, v, weight(v)))
                .collect();
            return state.clone();
        }
        let mut order: Vec<VolumeId> = volumes.collect();
        order.sort_by(|a, b| {
            let size = |v: &VolumeId| facts.volumes[v.index()].size;
            weight(*b)
                .total_cmp(&weight(*a))
                .then(size(a).cmp(&size(b)))
                .then(a.cmp(b))
        });
        let mut ledger = Ledger::new(context);
        let mut wishes: Vec<Wish> = order
            .iter()
            .map(|v| self.place(context, &mut ledger, *v, weight(*v)))
            .collect();
        wishes.sort_by_key(|w| w.volume);
        let name = |w: &Wish| {
            (
                facts.volumes[w.volume.index()].name.clone(),
                facts.topology.tier(w.tier).name.clone(),
            )
        };
        let placement = wishes.iter().map(name).collect();
        draft.wishes = wishes;
        StaticOrderState { placement }
    }
}

impl StaticOrder {
    fn place(
        &self,
        context: &Context<'_>,
        ledger: &mut Ledger<'_>,
        volume: VolumeId,
        weight: f64,
    ) -> Wish {
        let facts = context.facts;
        let space = facts.volumes[volume.index()].size;
        let demand = Demand::space_only(space);
        let mut wish = Wish::stay(context, volume);
        let mut taken: Option<TierId> = None;
        for tier in facts.topology.tier_ids() {
            if taken.is_some() {
                break;
            }
            match ledger.admits(volume, tier, &demand, StayCheck::Checked) {
                Ok(()) => taken = Some(tier),
                Err(by) => wish.options[tier.index()].verdict = Verdict::Rejected { by },
            }
        }
        let tier = taken.unwrap_or(wish.tier);
        ledger.assign(volume, tier, &demand);
        Wish {
            tier,
            reason: class_order(weight),
            effect: Effect::default(),
            value: weight,
            ..wish
        }
    }
}

/// Returns the wish for the decided tier; a volume that was created later stays.
fn remembered(
    context: &Context<'_>,
    state: &StaticOrderState,
    volume: VolumeId,
    weight: f64,
) -> Wish {
    let wish = Wish::stay(context, volume);
    let tier = decided_tier(context.facts, state, volume).unwrap_or(wish.tier);
    Wish {
        tier,
        reason: class_order(weight),
        value: weight,
        ..wish
    }
}

/// Reason of a placement by class: higher service classes are on higher tiers.
fn class_order(weight: f64) -> Reason {
    let text = format!("service class of weight {weight}");
    Reason::new("class-order", text).with("weight", weight)
}

fn decided_tier(facts: &Facts, state: &StaticOrderState, volume: VolumeId) -> Option<TierId> {
    let name = state.placement.get(&facts.volumes[volume.index()].name)?;
    facts
        .topology
        .tier_ids()
        .find(|t| facts.topology.tier(*t).name == *name)
}
