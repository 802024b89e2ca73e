//! Gates that a strategy's wish must pass before its volume moves: moves cost, and predictions are noisy.
//!
//! Only moves with the goal latency are checked.

use std::collections::BTreeMap;

use model::{Facts, Goal, Rejection, VolumeFacts};
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::{Context, Wish};

/// Number of consecutive decisions in which a strategy wanted a volume on the same tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hold {
    /// Name of the tier.
    tier: String,
    /// Consecutive placement decisions.
    decisions: u32,
}

/// Holds of volumes that are wanted on another tier, by volume name. Ids are valid for one inventory only.
pub(crate) type Holds = BTreeMap<String, Hold>;

/// Returns the holds after a placement decision with these wishes.
pub(crate) fn remembered(facts: &Facts, wishes: &[Wish], before: &Holds) -> Holds {
    let elsewhere = wishes.iter().filter(|w| w.moves(facts));
    let hold = |wish: &Wish| {
        let name = facts.volumes[wish.volume.index()].name.clone();
        let tier = facts.topology.tier(wish.tier).name.clone();
        let seen = before.get(&name).filter(|h| h.tier == tier);
        let decisions = seen.map_or(0, |h| h.decisions).saturating_add(1);
        (name, Hold { tier, decisions })
    };
    elsewhere.map(hold).collect()
}

/// Rejects wishes that do not pass the gates, then wishes that only make room for rejected ones.
pub(crate) fn gate(context: &Context<'_>, holds: &Holds, wishes: &mut [Wish]) {
    let facts = context.facts;
    let mut dropped = false;
    for wish in wishes.iter_mut().filter(|w| pending(facts, w)) {
        if wish.goal == Goal::Latency {
            wish.refused = passes(context, holds, wish).err();
            dropped |= wish.refused.is_some();
        }
    }
    if dropped {
        refuse_without_beneficiary(facts, wishes);
    }
}

/// Returns true if the wish may still become a move.
fn pending(facts: &Facts, wish: &Wish) -> bool {
    wish.refused.is_none() && wish.moves(facts)
}

fn passes(context: &Context<'_>, holds: &Holds, wish: &Wish) -> Result<(), Rejection> {
    let Context { facts, policy, .. } = *context;
    let gates = &policy.gates;
    let volume = &facts.volumes[wish.volume.index()];
    if let Some(left) = cooldown_left(facts.at, volume, gates.cooldown) {
        return Err(Rejection::Cooldown { left });
    }
    let seen = holds.get(&volume.name).map_or(0, |h| h.decisions);
    if seen < gates.hold {
        let needed = gates.hold;
        return Err(Rejection::Hold { seen, needed });
    }
    let Some((before_us, after_us)) = promise(wish).filter(|(before, after)| after < before) else {
        return Ok(());
    };
    let latency_us = volume.measured.and_then(|m| m.latency_mean_us());
    let latency_us = latency_us.unwrap_or(before_us);
    let threshold_us = gates.threshold.as_micros_f64();
    if latency_us < threshold_us {
        return Err(Rejection::Threshold {
            latency_us,
            threshold_us,
        });
    }
    let (gain, needed) = (1.0 - after_us / before_us, gates.margin);
    if gain < needed {
        return Err(Rejection::Margin { gain, needed });
    }
    Ok(())
}

/// Returns the rest of a volume's cooldown after its last move; `None` if it is over.
pub(crate) fn cooldown_left(at: Nanos, volume: &VolumeFacts, cooldown: Nanos) -> Option<Nanos> {
    let rested = at.saturating_sub(volume.last_moved?);
    (rested < cooldown).then(|| cooldown - rested)
}

/// Returns the predicted mean latency before and after the move, if both are known.
fn promise(wish: &Wish) -> Option<(f64, f64)> {
    Some((
        wish.effect.latency_before_us?,
        wish.effect.latency_after_us?,
    ))
}

/// Rejects moves that make their volume slower or only make room, if no volume moves to the tier that they leave. Repeats
/// until nothing changes, because a rejected move may have been the one for which another made room.
fn refuse_without_beneficiary(facts: &Facts, wishes: &mut [Wish]) {
    loop {
        let mut coming = vec![false; facts.topology.tiers.len()];
        for wish in wishes.iter().filter(|w| pending(facts, w)) {
            coming[wish.tier.index()] = true;
        }
        let in_vain = |w: &&mut Wish| {
            let slower = promise(w).is_some_and(|(before, after)| after > before);
            let from = facts.topology.tier_of(w.here);
            pending(facts, w)
                && w.goal == Goal::Latency
                && (slower || w.makes_room)
                && !w.relieves
                && !coming[from.index()]
        };
        let mut changed = false;
        for wish in wishes.iter_mut().filter(in_vain) {
            wish.refused = Some(Rejection::NoBeneficiary);
            changed = true;
        }
        if !changed {
            return;
        }
    }
}
