//! Load and loaded latency of each tier, for strategies that compare tiers by their present latency.
//!
//! ```text
//!  volumes: requests, mean latency ─┐
//!                                   ├─▶ TierLoad of an epoch ─▶ Averages ─▶ latency, share of requests, Pair
//!  extents: place, requests ────────┘
//! ```
//!
//! Latency is measured by volume, not by device. If the extents of a volume are on several tiers, its requests in flight are
//! divided by expectation maximization: each tier's part is proportional to its requests times the tier's latency, and the
//! latency follows from the parts. The result is exact if all tiers have whole volumes only.

use std::collections::BTreeMap;

use model::{Facts, Op};
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, TierId, VolumeId};

use crate::Context;
use crate::rate::extents_bandwidth;

/// Mean size of requests above which they do not count for the latency of a tier: their transfer dominates.
const TIMED_BYTES_MAX: u64 = 64 << 10;
/// Requests per second below which a tier counts as idle: its latency is that of its devices without load.
const IDLE_RATE: f64 = 1.0;
/// Rounds of the division of latency among tiers. The error of a volume on two tiers shrinks by a constant factor in each.
const ROUNDS: u32 = 24;
/// Bytes that a copy reads or writes at once (`copy_chunk` of a scenario, at most).
const CHUNK: f64 = (1 << 20) as f64;
/// Largest assumed utilization of a device, which keeps the price of a copy finite.
const UTILIZATION_MAX: f64 = 0.95;

/// Load of a tier, without copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TierLoad {
    /// Requests per second.
    pub rate: f64,
    /// Requests per second whose latency counts.
    timed_rate: f64,
    /// Mean number of these requests in flight.
    outstanding: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

impl TierLoad {
    /// Mean latency by Little's law, microseconds.
    fn latency_us(&self) -> Option<f64> {
        (self.timed_rate >= IDLE_RATE).then(|| 1e6 * self.outstanding / self.timed_rate)
    }

    fn approach(&mut self, now: &TierLoad, weight: f64) {
        let toward = |value: &mut f64, new: f64| *value += weight * (new - *value);
        toward(&mut self.rate, now.rate);
        toward(&mut self.timed_rate, now.timed_rate);
        toward(&mut self.outstanding, now.outstanding);
        toward(&mut self.bytes_per_s, now.bytes_per_s);
    }
}

/// Requests of one volume and direction whose latency counts.
struct TimedFlow {
    /// Mean number in flight.
    outstanding: f64,
    /// Share of each tier in the requests.
    shares: Vec<(TierId, f64)>,
}

/// Returns the share of a volume's requests by tier: by its extents' requests, or by its bytes if these are unknown.
pub(crate) fn request_shares(facts: &Facts, volume: VolumeId) -> Vec<(TierId, f64)> {
    let v = &facts.volumes[volume.index()];
    let mut by_tier: BTreeMap<TierId, f64> = BTreeMap::new();
    if let Some((extents, heat)) = v.extents.as_ref().and_then(|e| Some((e, e.heat.as_ref()?))) {
        let mut touched = heat.touched().iter().peekable();
        let mut end = 0;
        for (count, place) in extents.places.runs() {
            end += count;
            while let Some((_, ios)) = touched.next_if(|t| t.0 < end) {
                if let Some(device) = place {
                    *by_tier.entry(facts.topology.tier_of(*device)).or_default() += f64::from(*ios);
                }
            }
        }
    }
    if by_tier.is_empty() {
        for (device, bytes) in v.held() {
            *by_tier.entry(facts.topology.tier_of(device)).or_default() += bytes.as_f64();
        }
    }
    let total: f64 = by_tier.values().sum();
    if total == 0.0 {
        return vec![(facts.topology.tier_of(v.device), 1.0)];
    }
    by_tier.into_iter().map(|(t, x)| (t, x / total)).collect()
}

/// Load of each tier over the last monitor epoch.
fn tier_loads(facts: &Facts) -> Vec<TierLoad> {
    let mut loads = vec![TierLoad::default(); facts.topology.tiers.len()];
    let mut flows: Vec<TimedFlow> = Vec::new();
    for (i, v) in facts.volumes.iter().enumerate() {
        let Some(m) = &v.measured else { continue };
        let shares = request_shares(facts, VolumeId::from_index(i));
        let per_s = 1.0 / m.window.as_secs_f64().max(1e-9);
        for flow in [&m.reads, &m.writes].into_iter().filter(|f| f.ios > 0) {
            let rate = flow.ios as f64 * per_s;
            let timed = flow.bytes <= flow.ios * TIMED_BYTES_MAX;
            for (tier, share) in &shares {
                let load = &mut loads[tier.index()];
                load.rate += rate * share;
                load.bytes_per_s += flow.bytes as f64 * per_s * share;
                if timed {
                    load.timed_rate += rate * share;
                }
            }
            if timed {
                flows.push(TimedFlow {
                    outstanding: rate * 1e-6 * flow.latency.mean_us,
                    shares: shares.clone(),
                });
            }
        }
    }
    let mut latency_us: Vec<f64> = facts
        .topology
        .tier_ids()
        .map(|t| bare_latency_us(facts, t))
        .collect();
    let parted = flows.iter().any(|f| f.shares.len() > 1);
    for _ in 0..if parted { ROUNDS } else { 1 } {
        loads.iter_mut().for_each(|l| l.outstanding = 0.0);
        for flow in &flows {
            let time = |(tier, share): &(TierId, f64)| share * latency_us[tier.index()];
            let whole: f64 = flow.shares.iter().map(time).sum();
            for part in &flow.shares {
                loads[part.0.index()].outstanding += flow.outstanding * time(part) / whole;
            }
        }
        for (latency, load) in latency_us.iter_mut().zip(&loads) {
            if load.timed_rate > 0.0 && load.outstanding > 0.0 {
                *latency = 1e6 * load.outstanding / load.timed_rate;
            }
        }
    }
    loads
}

/// Latency of a tier without load: half reads, half writes, of 4 KiB.
fn bare_latency_us(facts: &Facts, tier: TierId) -> f64 {
    let device = facts.topology.tier(tier).devices[0];
    let spec = &facts.topology.device(device).spec;
    let bare = |op| spec.bare_latency_us(op, 4096.0);
    (0.5 * (bare(Op::Read) + bare(Op::Write))).max(1e-3)
}

/// Mean utilization of the devices of a tier, 0 or more.
pub(crate) fn utilization(facts: &Facts, tier: TierId) -> f64 {
    let devices = &facts.topology.tier(tier).devices;
    let used = devices.iter().map(|d| facts.devices[d.index()].utilization);
    (used.sum::<f64>() / devices.len() as f64).max(0.0)
}

/// Loads of tiers as exponentially weighted moving averages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Averages {
    at: Option<Nanos>,
    /// Load by name of the tier.
    tiers: BTreeMap<String, TierLoad>,
}

impl Averages {
    /// Adds the loads of a monitor epoch to the averages, and returns these loads by tier. `alpha` is the weight of a sample
    /// of one second; the mean of an epoch counts as that many equal samples.
    pub(crate) fn observe(&mut self, context: &Context<'_>, alpha: f64) -> Vec<TierLoad> {
        let facts = context.facts;
        let monitor = context.policy.epochs.monitor;
        let since = self.at.map_or(monitor, |at| facts.at.saturating_sub(at));
        let weight = 1.0 - libm::pow(1.0 - alpha, since.as_secs_f64());
        let topology = &facts.topology;
        let loads = tier_loads(facts);
        let tiers = topology.tiers.iter().zip(&loads);
        let tiers = tiers.map(|(tier, now)| {
            let before = self.tiers.get(&tier.name).copied();
            let mut load = before.unwrap_or(*now);
            load.approach(now, weight);
            (tier.name.clone(), load)
        });
        *self = Self {
            tiers: tiers.collect(),
            at: Some(facts.at),
        };
        loads
    }

    pub(crate) fn load(&self, facts: &Facts, tier: TierId) -> TierLoad {
        let name = &facts.topology.tier(tier).name;
        self.tiers.get(name).copied().unwrap_or_default()
    }

    /// Returns the mean latency of a request on a tier, microseconds; for an idle tier, the latency of its devices without
    /// load.
    pub(crate) fn latency_us(&self, facts: &Facts, tier: TierId) -> f64 {
        let measured = self.load(facts, tier).latency_us();
        measured.unwrap_or_else(|| bare_latency_us(facts, tier))
    }
}

/// The two tiers to which a strategy for two tiers is applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    /// The higher of the two in the order of tiers.
    pub fast: TierId,
    /// The lower one.
    pub slow: TierId,
    /// Latency of the higher one, microseconds.
    pub fast_us: f64,
    /// Latency of the lower one, microseconds.
    pub slow_us: f64,
}

impl Pair {
    /// Returns the tier with the largest latency among those with requests and the one with the smallest, among tiers that
    /// accept data.
    pub(crate) fn extremes(context: &Context<'_>, averages: &Averages) -> Option<Self> {
        let facts = context.facts;
        let open: Vec<(u64, TierId)> = facts
            .topology
            .tier_ids()
            .filter(|t| !context.policy.takes_no_data(*t))
            // Whole nanoseconds: rounding cannot change the order.
            .map(|t| ((averages.latency_us(facts, t) * 1e3).round() as u64, t))
            .collect();
        let busy = |t: TierId| averages.load(facts, t).rate >= IDLE_RATE;
        let slowest = open.iter().filter(|(_, t)| busy(*t)).max()?;
        let others = open.iter().filter(|(_, t)| *t != slowest.1);
        let quickest = others.min()?;
        let (fast, slow) = (slowest.1.min(quickest.1), slowest.1.max(quickest.1));
        Some(Self {
            fast,
            slow,
            fast_us: averages.latency_us(facts, fast),
            slow_us: averages.latency_us(facts, slow),
        })
    }

    /// Returns the tier with the larger latency now, and the other one.
    pub(crate) fn slower_and_quicker(&self) -> (TierId, TierId) {
        match self.fast_us > self.slow_us {
            true => (self.fast, self.slow),
            false => (self.slow, self.fast),
        }
    }

    /// Returns the names of both tiers, as a key of stored state.
    pub(crate) fn key(&self, facts: &Facts) -> String {
        let name = |t: TierId| facts.topology.tier(t).name.as_str();
        format!("{}/{}", name(self.fast), name(self.slow))
    }
}

/// Price of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CopyPrice {
    /// Additional waiting of guest requests on both devices, all requests together, microseconds.
    pub wait_us: f64,
    /// Time that the copy takes of both devices if they are idle, microseconds.
    pub device_us: f64,
    /// Duration, seconds.
    pub copy_s: f64,
}

/// Returns the price of copying `bytes` from one tier to another. Devices of a tier count as equal.
///
/// A chunk occupies a device for C = chunk / bandwidth, and the copy a share u of its time. A request that comes meanwhile
/// waits for the rest of the chunk: u·C/2 / (1 − ρ) on average (non-preemptive, one chunk at a time).
pub(crate) fn copy_price(
    context: &Context<'_>,
    averages: &Averages,
    from: TierId,
    to: TierId,
    bytes: Bytes,
) -> CopyPrice {
    let Context { facts, policy, .. } = *context;
    let first = |t: TierId| facts.topology.tier(t).devices[0];
    let rate = extents_bandwidth(facts, policy, first(from), first(to)).as_f64();
    let copy_s = bytes.as_f64() / rate;
    let mut price = CopyPrice {
        wait_us: 0.0,
        device_us: 0.0,
        copy_s,
    };
    let spec = |t: TierId| &facts.topology.device(first(t)).spec;
    let sides = [
        (from, spec(from).read_bandwidth),
        (to, spec(to).write_bandwidth),
    ];
    for (tier, bandwidth) in sides {
        let bandwidth = bandwidth.as_f64();
        let n = facts.topology.tier(tier).devices.len() as f64;
        let utilization = utilization(facts, tier).min(UTILIZATION_MAX);
        let chunk_us = 1e6 * CHUNK / bandwidth;
        let share = (rate / bandwidth).min(1.0);
        let requests = averages.load(facts, tier).rate / n * copy_s;
        price.wait_us += requests * share * chunk_us / 2.0 / (1.0 - utilization);
        price.device_us += 1e6 * bytes.as_f64() / bandwidth;
    }
    price
}
