//! Goals that outrank a strategy's: emptying a tier, and limiting the space use of devices.

use model::{Effect, ExtentRanges, Facts, Goal, Reason, Rejection, VolumeFacts};
use units::{Bytes, DeviceId, TierId, VolumeId};

use crate::arrange::{Arranger, PendingWishes};
use crate::extents::layout::{parted, stays_whole};
use crate::ledger::{device_now, tier_now};
use crate::{Context, Ledger, Wish};

/// Moves every volume off draining tiers, including volumes with unknown load. The target is the tier that its strategy or a
/// rule wants, if that tier is open, else the nearest open tier; `arrange` checks for room. For volumes with extents on
/// several devices, only the extents on the draining tier leave (`extents::goals`).
pub(crate) fn drain(context: &Context<'_>, wishes: &mut Vec<Wish>) {
    let Context { facts, policy, .. } = *context;
    if policy.draining.is_empty() {
        return;
    }
    let ledger = Ledger::new(context);
    for volume in (0..facts.volumes.len()).map(VolumeId::from_index) {
        let here = tier_now(facts, volume);
        if !policy.draining.contains(&here) || parted(context, volume) {
            continue;
        }
        let i = position(context, wishes, volume);
        let wish = &mut wishes[i];
        // A strategy's target for extents is not its target for the whole volume.
        let parted = wish.extents.is_some() || wish.here != device_now(facts, volume);
        wish.whole(facts);
        let wanted = Some(wish.tier).filter(|t| *t != here && !parted);
        let near = outwards(facts, here);
        let near = near.into_iter().filter(|t| Some(*t) != wanted);
        let tiers: Vec<TierId> = wanted.into_iter().chain(near).collect();
        let open: Vec<TierId> = tiers
            .iter()
            .copied()
            .filter(|t| ledger.permits(volume, *t).is_ok())
            .collect();
        // Without an open tier, the volume stays, with the rejection by the first tier.
        match open.first().or(tiers.first()) {
            Some(tier) if wanted == Some(*tier) => {}
            Some(tier) => leave_for(facts, wish, *tier),
            None => wish.refused = Some(nowhere(facts, volume)),
        }
        let gib = facts.volumes[volume.index()].taken().as_gib_f64();
        // The largest volumes move first: small ones find room anywhere.
        wish.value = gib * gib;
        wish.goal = Goal::Drain;
        wish.elsewhere = open;
        wish.reason = drained(&facts.topology.tier(here).name);
    }
    wishes.sort_by_key(|w| w.volume);
}

/// Moves the least used volumes off each device whose use of space exceeds the limit. A volume with unknown load stays: it
/// may be busy.
pub(crate) fn relieve(
    context: &Context<'_>,
    arranger: &mut Arranger<'_>,
    pending: &mut PendingWishes,
) {
    let Context { facts, policy, .. } = *context;
    let Some(high) = policy.space_high else {
        return;
    };
    for device in (0..facts.devices.len()).map(DeviceId::from_index) {
        let used_share = arranger.used_share(device);
        if used_share <= high || policy.draining.contains(&facts.topology.tier_of(device)) {
            continue;
        }
        let reason = space_relief(&facts.topology.device(device).name, used_share);
        for (volume, part) in least_used(context, device) {
            if arranger.used_share(device) <= high {
                break;
            }
            if !arranger.moves(volume) {
                let from = (device, part);
                send_away(context, arranger, pending, volume, from, &reason);
            }
        }
    }
}

/// Moves a volume, or its extents on the device, to the first tier with room.
fn send_away(
    context: &Context<'_>,
    arranger: &mut Arranger<'_>,
    pending: &mut PendingWishes,
    volume: VolumeId,
    (device, part): (DeviceId, Option<Extents>),
    reason: &Reason,
) {
    let facts = context.facts;
    let i = position(context, &mut pending.wishes, volume);
    pending.rejected.resize(pending.wishes.len(), None);
    let old = &pending.wishes[i];
    if old.goal < Goal::Space && old.tier != tier_now(facts, volume) {
        return; // a rule wants it on another tier and waits for room
    }
    let ledger = Ledger::new(context);
    let mut tiers = downwards(facts, facts.topology.tier_of(device));
    tiers.retain(|t| match &part {
        None => ledger.permits(volume, *t).is_ok(),
        Some((_, bytes)) => ledger.permits_part(volume, *t, *bytes).is_ok(),
    });
    let Some(first) = tiers.first() else {
        return; // a rule keeps it: only its own tier is always permitted
    };
    let mut wish = old.clone();
    leave_for(facts, &mut wish, *first);
    if let Some((extents, _)) = part {
        (wish.here, wish.extents) = (device, Some(extents));
    }
    wish.goal = Goal::Space;
    wish.reason = reason.clone();
    wish.elsewhere = tiers;
    wish.refused = None;
    let stays = !old.moves(facts);
    let old = std::mem::replace(&mut pending.wishes[i], wish);
    match arranger.accept(&[i], &pending.wishes) {
        Ok(_) => {
            for bundle in &mut pending.bundles {
                bundle.retain(|member| *member != i);
            }
            pending.bundles.retain(|bundle| !bundle.is_empty());
        }
        Err(by) if stays => pending.rejected[i] = Some(by),
        // Its strategy wants it elsewhere anyway.
        Err(_) => pending.wishes[i] = old,
    }
}

/// Extents of a volume, and their bytes.
type Extents = (ExtentRanges, Bytes);

/// Returns the extents of a volume on a device, if the volume has extents elsewhere and may be split.
fn part_on(context: &Context<'_>, volume: VolumeId, device: DeviceId) -> Option<Extents> {
    let Context { facts, policy, .. } = *context;
    let v = &facts.volumes[volume.index()];
    let extents = v.extents.as_ref()?;
    let mut places = extents.places.runs().iter().filter_map(|r| r.1);
    let elsewhere = places.any(|d| d != device);
    if !elsewhere || stays_whole(policy, volume).is_some() {
        return None;
    }
    let there = extents.places.those_on(|d| d == device);
    let bytes = there.bytes(v.size, extents.extent)?;
    (!there.is_empty()).then_some((there, bytes))
}

/// Changes a wish to another tier, without a prediction.
fn leave_for(facts: &Facts, wish: &mut Wish, tier: TierId) {
    wish.whole(facts);
    wish.tier = tier;
    wish.device = None;
    wish.effect = Effect::default();
    wish.value = 0.0;
    wish.device_share = 0.0;
}

/// Returns the position of the volume's wish. Adds a wish to stay if the volume has none.
fn position(context: &Context<'_>, wishes: &mut Vec<Wish>, volume: VolumeId) -> usize {
    let found = wishes.iter().position(|w| w.volume == volume);
    found.unwrap_or_else(|| {
        wishes.push(Wish::stay(context, volume));
        wishes.len() - 1
    })
}

/// Returns the volumes with data on a device, a known load and no running move, by bytes per second per stored byte, lowest
/// first. A split volume comes with its extents on the device. A volume that must stay whole counts only for the device with
/// most of its data.
fn least_used(context: &Context<'_>, device: DeviceId) -> Vec<(VolumeId, Option<Extents>)> {
    let facts = context.facts;
    let mut found: Vec<(u64, VolumeId, Option<Extents>)> = Vec::new();
    for (i, v) in facts.volumes.iter().enumerate() {
        let volume = VolumeId::from_index(i);
        let Some(m) = v.measured else { continue };
        if facts.moves.iter().any(|m| m.volume == volume) {
            continue;
        }
        let part = part_on(context, volume, device);
        let (share, bytes) = match &part {
            Some((extents, bytes)) => (asked_for(v, extents), *bytes),
            None if v.device == device => (1.0, v.taken()),
            None => continue,
        };
        // Quantized, so that rounding in the last bit cannot change the order.
        let per_byte = share * m.bytes_per_s() / bytes.as_f64().max(1.0);
        found.push(((per_byte * 1e12).round() as u64, volume, part));
    }
    found.sort_by_key(|f| (f.0, f.1));
    found.into_iter().map(|f| (f.1, f.2)).collect()
}

/// Returns the share of a volume's requests that go to these extents; 1 if it is unknown.
fn asked_for(v: &VolumeFacts, extents: &ExtentRanges) -> f64 {
    let heat = v.extents.as_ref().and_then(|e| e.heat.as_ref());
    let heat = heat.map_or(&[][..], |h| h.touched());
    let (mut there, mut all) = (0, 0);
    for (extent, ios) in heat {
        let ios = u64::from(*ios);
        all += ios;
        there += if extents.contains(*extent) { ios } else { 0 };
    }
    match all {
        0 => 1.0,
        all => there as f64 / all as f64,
    }
}

/// Returns the other tiers by distance; at equal distance, the lower tier first.
pub(crate) fn outwards(facts: &Facts, from: TierId) -> Vec<TierId> {
    let mut tiers: Vec<TierId> = facts.topology.tier_ids().filter(|t| *t != from).collect();
    tiers.sort_by_key(|t| (t.index().abs_diff(from.index()), *t < from));
    tiers
}

/// Returns the lower tiers, nearest first, then the tier itself, then the upper ones, nearest first.
fn downwards(facts: &Facts, from: TierId) -> Vec<TierId> {
    let mut tiers: Vec<TierId> = facts.topology.tier_ids().collect();
    tiers.sort_by_key(|t| {
        let side = match t.cmp(&from) {
            std::cmp::Ordering::Greater => 0,
            std::cmp::Ordering::Equal => 1,
            std::cmp::Ordering::Less => 2,
        };
        (side, t.index().abs_diff(from.index()))
    });
    tiers
}

/// Rejection for an array without another tier.
fn nowhere(facts: &Facts, volume: VolumeId) -> Rejection {
    Rejection::NoDevice {
        need: facts.volumes[volume.index()].taken(),
        most_free: Bytes::ZERO,
    }
}

/// Reason of a move away from a tier that is being drained.
pub(crate) fn drained(tier: &str) -> Reason {
    Reason::new("drained", format!("tier {tier} is being drained")).with("tier", tier)
}

/// Reason of a move that frees space: the device exceeds its limit and the volume has little load. `used_share`: 0..=1.
fn space_relief(device: &str, used_share: f64) -> Reason {
    let text = format!(
        "device {device} is {:.1} % full, and the volume has little load",
        used_share * 100.0
    );
    Reason::new("space-relief", text)
        .with("device", device)
        .with("used_share", used_share)
}
