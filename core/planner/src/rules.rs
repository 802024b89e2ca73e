//! Placement rules of the operator as wishes: no strategy has to repeat them.

use model::{AffinityKind, Effect, Facts, Goal, Reason};
use units::{TierId, VolumeId};

use crate::ledger::{device_now, tier_now};
use crate::{Context, Wish};

/// Sends each pinned volume to its tier, regardless of the strategy's wish.
pub(crate) fn apply_pins(context: &Context<'_>, wishes: &mut Vec<Wish>) {
    for pin in &context.policy.pins {
        let here = context
            .facts
            .topology
            .tier_of(context.facts.volumes[pin.volume.index()].device);
        match wishes.iter_mut().find(|w| w.volume == pin.volume) {
            Some(wish) if wish.tier == pin.tier => {
                wish.goal = Goal::Rules;
            }
            Some(wish) => {
                let pinned = pin_wish(context.facts, pin.volume, pin.tier);
                *wish = Wish {
                    options: std::mem::take(&mut wish.options),
                    ..pinned
                };
            }
            None if here != pin.tier => wishes.push(pin_wish(context.facts, pin.volume, pin.tier)),
            None => {}
        }
    }
    wishes.sort_by_key(|w| w.volume);
}

/// Gives wishes of bound volumes the goal of rules: if the volumes of a same-tier rule are apart, or if one of them moves
/// for a rule or a drain.
pub(crate) fn serve_rules(context: &Context<'_>, wishes: &mut [Wish]) {
    let facts = context.facts;
    let same_tier = |r: &&model::Affinity| r.kind == AffinityKind::SameTier;
    for rule in context.policy.affinity.iter().filter(same_tier) {
        let mut tiers = rule.volumes.iter().map(|v| tier_now(facts, *v));
        let first = tiers.next();
        let apart = tiers.any(|t| Some(t) != first);
        let member = |w: &Wish| rule.volumes.contains(&w.volume);
        let bound = wishes
            .iter()
            .any(|w| member(w) && w.goal < Goal::Latency && w.tier != tier_now(facts, w.volume));
        if apart || bound {
            let members = wishes.iter_mut().filter(|w| member(w));
            members
                .filter(|w| w.goal == Goal::Latency)
                .for_each(|w| w.goal = Goal::Rules);
        }
    }
}

/// Returns the wish of an operator's pin.
fn pin_wish(facts: &Facts, volume: VolumeId, tier: TierId) -> Wish {
    let size = facts.volumes[volume.index()].taken();
    Wish {
        volume,
        tier,
        goal: Goal::Rules,
        reason: Reason::pinned(),
        effect: Effect::default(),
        // Rules come before latency, for every size.
        device: None,
        here: device_now(facts, volume),
        extents: None,
        relieves: false,
        makes_room: false,
        value: 1e6 * size.as_gib_f64().max(1.0),
        device_share: 0.0,
        options: vec![],
        evidence: Default::default(),
        notes: vec![],
        refused: None,
        elsewhere: vec![],
    }
}
