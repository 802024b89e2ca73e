//! Goals that outrank a strategy's, for extents that are not with the rest of their volume. A pinned volume belongs on its
//! tier as a whole, and a draining tier loses every extent. Two kinds of volumes move as a whole instead (`rules`,
//! `evacuate`): those bound by a rule on a wrong tier, and those entirely on a draining tier.

use model::{Goal, Reason, Rejection};
use units::{TierId, VolumeId};

use super::ExtentReason;
use super::layout::parted;
use crate::evacuate::{drained, outwards};
use crate::ledger::tier_now;
use crate::{Context, ExtentWish, SpaceLimit, Wish};

/// Adds wishes to bring such extents to the tier with most of their volume, or near it. They replace the strategy's wishes
/// for these volumes.
pub(crate) fn gather(context: &Context<'_>, of_volumes: &mut [Wish], wishes: &mut Vec<ExtentWish>) {
    let Context { facts, policy, .. } = *context;
    let mut gathered = Vec::new();
    for (i, v) in facts.volumes.iter().enumerate() {
        let Some(extents) = &v.extents else { continue };
        let volume = VolumeId::from_index(i);
        let home = tier_now(facts, volume);
        let pinned = policy.pin_of(volume) == Some(home);
        let leaves_home = policy.draining.contains(&home);
        let goes_whole = leaves_home && !parted(context, volume);
        if goes_whole || (!pinned && policy.draining.is_empty()) {
            continue;
        }
        // Home first, then tiers by distance if home has no room.
        let mut tiers = vec![home];
        if !pinned {
            tiers.extend(outwards(facts, home));
        }
        if leaves_home {
            tiers.sort_by_key(|t| policy.takes_no_data(*t));
        }
        let mut leave = |goal: Goal, reason: Reason, leaves: &dyn Fn(TierId) -> bool| {
            let places = &extents.places;
            let extents = places.those_on(|d| leaves(facts.topology.tier_of(d)));
            if !extents.is_empty() {
                gathered.push(ExtentWish {
                    volume,
                    extents,
                    tiers: tiers.clone(),
                    goal,
                    reason: ExtentReason::Other(reason),
                    heat: vec![],
                    space: SpaceLimit::Planned,
                    refused: None,
                });
            }
        };
        if pinned {
            leave(Goal::Rules, Reason::pinned(), &|tier| tier != home);
            continue;
        }
        for tier in &policy.draining {
            let reason = drained(&facts.topology.tier(*tier).name);
            leave(Goal::Drain, reason, &|t| t == *tier);
        }
    }
    for wish in &gathered {
        let part = |w: &&mut Wish| w.volume == wish.volume && w.goal == Goal::Latency;
        let parts = of_volumes.iter_mut().filter(part);
        for w in parts.filter(|w| w.extents.is_some() && w.moves(facts)) {
            w.refused = Some(Rejection::OtherMove);
        }
        let mine = |w: &ExtentWish| w.volume == wish.volume;
        // No extent may stay on a draining tier; the strategy's wishes for this volume wait for the next plan.
        wishes.retain(|w| !mine(w));
    }
    wishes.extend(gathered);
}
