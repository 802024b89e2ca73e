//! EDT: Extent-based Dynamic Tiering (Guerra et al., FAST'11), per volume as paper 0 uses it (Sec. V-A3).

use std::cmp::Reverse;

use model::{Effect, Facts, MeasuredLoad, PriceParts, Reason, Rejection, ScoreParts, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{DeviceId, TierId, VolumeId};

use crate::ledger::{Demand, StayCheck};
use crate::{ConfigError, Context, Draft, Ledger, Strategy, Wish};

/// Puts every volume on the tier where it consumes the least money: the share of the tier that it needs times the tier's
/// price.
///
/// ```text
///  RC(v, t)  =  max( size / space,  IOPS / max IOPS + bandwidth / max bandwidth )        resource consumption
///  tiering         argmin_t price(t) · RC(v, t), without regard to capacity
///  consolidation   per tier, filled from empty, largest RC first, while they fit; the others, including volumes
///                  already on the tier, go to their next-cheapest tier
///  correction      a device whose latency shows queueing hides its true demand: planned moves are suspended, and
///                  volumes leave it, largest load first, until its demand is below its capability
/// ```
///
/// The formulas of RC, tiering and consolidation are published, and that a correction exists. The choice of volumes that
/// leave a throttled device and the latency from which it counts as throttled are our reconstruction. All requests count as
/// random, because measurements do not distinguish them; the extent is the volume. Its moves have the same pace as those of
/// other strategies: one per device at a time.
///
/// When not to use it: if latency matters more than money, because latency is only a sign of throttling here; or with prices
/// unrelated to speed, because a slow tier that is cheap per GB attracts all volumes that it can hold.
pub struct Edt {
    config: EdtConfig,
}

/// Parameters of `edt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EdtConfig {
    /// Largest ratio of a volume's cost on its present tier to that on its cheapest tier at which it stays.
    pub hysteresis: f64,
    /// Ratio of a device's mean latency to that of an idle one from which it counts as throttled.
    pub throttled_latency: f64,
    /// True to relieve throttled devices before all other moves.
    pub correction: bool,
}

impl Default for EdtConfig {
    fn default() -> Self {
        Self {
            hysteresis: 1.05,
            throttled_latency: 2.0,
            correction: true,
        }
    }
}

/// Volume to be placed.
struct Item {
    volume: VolumeId,
    measured: MeasuredLoad,
    /// Resource consumption on each tier.
    takes: Vec<PriceParts>,
    /// Tiers with the volume's cost on each, cheapest first.
    preferred: Vec<(f64, TierId)>,
}

impl Strategy for Edt {
    type Config = EdtConfig;
    type State = ();
    const NAME: &'static str = "edt";
    const SUMMARY: &'static str = "cheapest tier by resource consumption, with a correction for throttled devices (paper 0's baseline)";

    fn new(config: EdtConfig) -> Result<Self, ConfigError> {
        let bad = |key: &str, why: &str| Err(ConfigError::new(Self::NAME, key, why));
        if !(config.hysteresis >= 1.0 && config.hysteresis.is_finite()) {
            return bad("hysteresis", "must be 1 or more");
        }
        if !(config.throttled_latency > 1.0 && config.throttled_latency.is_finite()) {
            return bad("throttled_latency", "must be above 1");
        }
        Ok(Self { config })
    }

    fn plan(&self, context: &Context<'_>, _: &(), draft: &mut Draft) {
        let facts = context.facts;
        if !facts.placement_due {
            return;
        }
        let mut ledger = Ledger::new(context);
        let mut wishes: Vec<Wish> = Vec::with_capacity(facts.volumes.len());
        let mut items: Vec<Item> = Vec::new();
        for (i, v) in facts.volumes.iter().enumerate() {
            let volume = VolumeId::from_index(i);
            let mut wish = Wish::stay(context, volume);
            match &v.measured {
                Some(m) => items.push(item(facts, volume, m)),
                None => {
                    // An unknown load may not be idle: the volume keeps its place and its space.
                    for option in &mut wish.options {
                        option.verdict = Verdict::Rejected {
                            by: Rejection::NoMeasurement,
                        };
                    }
                    ledger.assign(volume, wish.tier, &Demand::space_only(v.size));
                }
            }
            wishes.push(wish);
        }
        for item in &items {
            describe(&mut wishes[item.volume.index()], item);
        }
        // Moving volumes count at their targets, and are assigned before all others.
        for item in &items {
            if facts.moves.iter().any(|m| m.volume == item.volume) {
                let tier = wishes[item.volume.index()].tier;
                ledger.assign(item.volume, tier, &demand(facts, item, tier));
            }
        }
        items.retain(|item| ledger.assigned(item.volume).is_none());
        let throttled = self.throttled(facts);
        if throttled.is_empty() {
            self.tier_and_consolidate(facts, &items, &mut ledger, &mut wishes);
        } else {
            correct(facts, &items, &throttled, &mut ledger, &mut wishes);
            let names: Vec<&str> = throttled
                .iter()
                .map(|d| facts.topology.device(*d).name.as_str())
                .collect();
            draft.notes.push(format!(
                "throttled devices: {}; other moves are suspended",
                names.join(", ")
            ));
        }
        draft.wishes = wishes;
    }
}

/// Returns a volume's consumption of every tier, and the tiers by cost.
fn item(facts: &Facts, volume: VolumeId, measured: &MeasuredLoad) -> Item {
    let size = facts.volumes[volume.index()].size;
    let mut item = Item {
        volume,
        measured: *measured,
        takes: vec![],
        preferred: vec![],
    };
    for tier in facts.topology.tier_ids() {
        let d = Demand::on_tier(&facts.topology, tier, measured, measured.iops(), size);
        let takes = PriceParts {
            tier_usd: facts
                .topology
                .sum(tier, |s| s.usd_per_gb * s.capacity.as_f64() / 1e9),
            space: size.as_f64() / facts.topology.capacity(tier).as_f64(),
            iops: d.iops / d.iops_max,
            bandwidth: d.bytes_per_s / d.bytes_per_s_max,
        };
        item.preferred.push((takes.usd(), tier));
        item.takes.push(takes);
    }
    // Quantized, so rounding in the last bit cannot change an order.
    let cents = |usd: f64| (usd * 1e6).round() as i64;
    item.preferred.sort_by_key(|(usd, t)| (cents(*usd), *t));
    item
}

impl Edt {
    /// Returns devices whose volumes have a higher latency than on an idle device.
    fn throttled(&self, facts: &Facts) -> Vec<DeviceId> {
        if !self.config.correction {
            return vec![];
        }
        let mut latency = vec![(0.0, 0.0); facts.devices.len()];
        for v in &facts.volumes {
            let Some(m) = &v.measured else { continue };
            let Some(mean_us) = m.latency_mean_us() else {
                continue;
            };
            let spec = &facts.topology.device(v.device).spec;
            let bare = |op| spec.bare_latency_us(op, m.mean_bytes(op));
            let idle_us = m.read_share() * bare(model::Op::Read)
                + (1.0 - m.read_share()) * bare(model::Op::Write);
            let sum = &mut latency[v.device.index()];
            sum.0 += m.ios() as f64 * mean_us;
            sum.1 += m.ios() as f64 * idle_us;
        }
        let devices = latency.iter().enumerate();
        devices
            .filter(|(_, (got, idle))| *got > self.config.throttled_latency * idle)
            .map(|(d, _)| DeviceId::from_index(d))
            .collect()
    }

    fn tier_and_consolidate(
        &self,
        facts: &Facts,
        items: &[Item],
        ledger: &mut Ledger<'_>,
        wishes: &mut [Wish],
    ) {
        // Tiers for each volume, in order. A volume prefers its present tier if that is cheap enough.
        let order = |item: &Item| -> Vec<TierId> {
            let here = wishes[item.volume.index()].tier;
            let most = self.config.hysteresis * item.preferred[0].0;
            let stays = item
                .preferred
                .iter()
                .any(|(usd, t)| *t == here && *usd <= most);
            let others = item
                .preferred
                .iter()
                .map(|p| p.1)
                .filter(|t| !stays || *t != here);
            stays.then_some(here).into_iter().chain(others).collect()
        };
        let mut queue: Vec<(Vec<TierId>, &Item)> = items.iter().map(|i| (order(i), i)).collect();
        let mut choice = 0;
        // Tier by tier in the order of first choices. Volumes without room try again with the next tier in their order.
        while !queue.is_empty() {
            let mut rest: Vec<(Vec<TierId>, &Item)> = Vec::new();
            for tier in facts.topology.tier_ids() {
                let mut takers: Vec<&(Vec<TierId>, &Item)> = queue
                    .iter()
                    .filter(|(order, _)| order[choice] == tier)
                    .collect();
                takers.sort_by_key(|(_, item)| {
                    let rc = (item.takes[tier.index()].consumption() * 1e9).round() as i64;
                    (Reverse(rc), item.volume)
                });
                for (order, item) in takers {
                    let demand = demand(facts, item, tier);
                    match ledger.admits(item.volume, tier, &demand, StayCheck::Checked) {
                        Ok(()) => {
                            ledger.assign(item.volume, tier, &demand);
                            wish_for(facts, &mut wishes[item.volume.index()], item, tier);
                        }
                        Err(by) => {
                            let wish = &mut wishes[item.volume.index()];
                            wish.options[tier.index()].verdict = Verdict::Rejected { by };
                            rest.push((order.clone(), item));
                        }
                    }
                }
            }
            // A volume without a further tier keeps its place.
            choice += 1;
            rest.retain(|(order, _)| choice < order.len());
            queue = rest;
        }
    }
}

/// Moves the largest loads off throttled devices until the devices can serve the rest.
fn correct(
    facts: &Facts,
    items: &[Item],
    throttled: &[DeviceId],
    ledger: &mut Ledger<'_>,
    wishes: &mut [Wish],
) {
    // Every volume counts on its present tier until it leaves.
    for item in items {
        let tier = wishes[item.volume.index()].tier;
        ledger.assign(item.volume, tier, &demand(facts, item, tier));
    }
    for device in throttled {
        let tier = facts.topology.tier_of(*device);
        let devices = facts.topology.tier(tier).devices.len() as f64;
        let mut on_it: Vec<&Item> = items
            .iter()
            .filter(|i| facts.volumes[i.volume.index()].device == *device)
            .collect();
        on_it.sort_by_key(|item| {
            let load = (item.takes[tier.index()].load() * 1e9).round() as i64;
            (Reverse(load), item.volume)
        });
        // Loads as shares of one device of the tier.
        let mut load: f64 = on_it
            .iter()
            .map(|i| i.takes[tier.index()].load() * devices)
            .sum();
        for item in on_it {
            let own = item.takes[tier.index()].load() * devices;
            let target = (load >= 1.0)
                .then(|| absorber(facts, item, tier, throttled, ledger, wishes))
                .flatten();
            if let Some(to) = target {
                ledger.release(item.volume, tier, &demand(facts, item, tier));
                ledger.assign(item.volume, to, &demand(facts, item, to));
                load -= own;
                let wish = &mut wishes[item.volume.index()];
                wish_for(facts, wish, item, to);
                wish.reason = relief(&facts.topology.device(*device).name, own);
            }
        }
    }
}

/// Returns the cheapest other tier with room for the volume and a device that is not throttled. Other devices of the same
/// tier are not tried, because strategies choose tiers only.
fn absorber(
    facts: &Facts,
    item: &Item,
    from: TierId,
    throttled: &[DeviceId],
    ledger: &Ledger<'_>,
    wishes: &mut [Wish],
) -> Option<TierId> {
    let idle = |t: &TierId| {
        let devices = &facts.topology.tier(*t).devices;
        devices.iter().any(|d| !throttled.contains(d))
    };
    let others = item.preferred.iter().map(|p| p.1);
    let others = others.filter(|t| *t != from && idle(t));
    for tier in others {
        match ledger.admits(
            item.volume,
            tier,
            &demand(facts, item, tier),
            StayCheck::Checked,
        ) {
            Ok(()) => return Some(tier),
            Err(by) => {
                wishes[item.volume.index()].options[tier.index()].verdict =
                    Verdict::Rejected { by };
            }
        }
    }
    None
}

fn demand(facts: &Facts, item: &Item, tier: TierId) -> Demand {
    let size = facts.volumes[item.volume.index()].size;
    Demand::on_tier(
        &facts.topology,
        tier,
        &item.measured,
        item.measured.iops(),
        size,
    )
}

fn describe(wish: &mut Wish, item: &Item) {
    for (option, takes) in wish.options.iter_mut().zip(&item.takes) {
        option.score = Some(takes.score());
        option.parts = Some(ScoreParts::Price(*takes));
        let name = format!("consumption_{}", option.tier);
        wish.evidence.insert(name, takes.consumption());
    }
    wish.evidence.insert("iops".into(), item.measured.iops());
}

/// Reason of a move to the cheapest tier. A cost is the tier's price times the share that the volume needs, in USD of hardware.
fn cheapest_tier(usd: f64, usd_here: f64) -> Reason {
    let text = format!("consumes {usd:.2} USD of the target (current tier {usd_here:.2} USD)");
    Reason::new("cheapest-tier", text)
        .with("usd", usd)
        .with("usd_here", usd_here)
}

/// Reason of a move from an overloaded device (EDT's correction). `load` is the volume's load as a share of the device's capability.
fn relief(device: &str, load: f64) -> Reason {
    let text = format!(
        "relieves overloaded device {device} of {:.0} % of its capability",
        100.0 * load
    );
    Reason::new("relief", text)
        .with("device", device)
        .with("load", load)
}

fn wish_for(facts: &Facts, wish: &mut Wish, item: &Item, tier: TierId) {
    let here = wish.tier;
    if tier == here {
        return;
    }
    let cost = |t: TierId| {
        item.preferred
            .iter()
            .find(|p| p.1 == t)
            .map_or(0.0, |p| p.0)
    };
    wish.tier = tier;
    wish.reason = cheapest_tier(cost(tier), cost(here));
    wish.effect = Effect {
        iops_before: Some(item.measured.iops()),
        ..Effect::default()
    };
    wish.value = cost(here) - cost(tier);
    let devices = facts.topology.tier(tier).devices.len() as f64;
    wish.device_share = item.takes[tier.index()].load() * devices;
}
