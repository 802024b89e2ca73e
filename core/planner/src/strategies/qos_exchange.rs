//! Exchanges of extents between tiers by response time, with service classes: the back end of paper 2 as a strategy.

use std::collections::BTreeMap;

use algo::{HeatCounters, ServiceTime};
use model::{DeviceSpec, ExtentRanges, Goal, Op};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, TierId, VolumeId};

use crate::exchange::{ExchangeTerms, ExtentLoad, Station, exchange, next_factor};
use crate::extents::ExtentReason;
use crate::extents::layout::{Layout, PlacedVolume, View, space_share};
use crate::{ConfigError, Context, Draft, ExtentWish, Granularity, SpaceLimit, Strategy};

/// Target if no class has one: that of the paper's slowest class.
const TARGET_NONE: Nanos = Nanos::from_millis(12);

/// At every migration epoch, exchanges extents between tiers to lower Σ weight · reads · response time, the best exchanges
/// first ([`mod@crate::exchange`] has the model; a tier is one station with the parallel units of all its devices). A
/// volume's weight is the reciprocal of its class's target, times a factor. The factor is multiplied by the root of latency
/// over target at every epoch, within ¼ and 4. Volumes without a target count as the slowest class. (This is our reading of
/// paper 2's reference 13, of which only the abstract was available.)
///
/// Use it if classes have latency targets and tiers queue. When not to use it: for load in bursts within an epoch, because
/// it knows only means (`burst` plans for more). Volumes without measurements stay.
pub struct QosExchange {
    config: QosExchangeConfig,
}

/// Parameters of `qos-exchange`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QosExchangeConfig {
    /// True to weigh volumes by their class and by their ratio of latency to target; false for equal weights.
    pub classes: bool,
    /// Largest number of exchanges in a migration epoch (paper 2: 15,000 per hour). Each exchanges two extents, or moves one
    /// into free space.
    pub exchanges: u32,
    /// Factor by which planned loads exceed measured loads, 1 to 10.
    pub burst: f64,
    /// Weight of a write's response relative to a read's, 0..=1.
    pub write_share: f64,
}

impl Default for QosExchangeConfig {
    fn default() -> Self {
        Self {
            classes: true,
            exchanges: 15_000,
            burst: 2.0,
            write_share: 1.0,
        }
    }
}

/// State between decisions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct QosExchangeState {
    layout: Layout,
    /// Requests since the last placement.
    since: HeatCounters,
    counted_from: Nanos,
    /// Factors of volumes, by name.
    factors: BTreeMap<String, f64>,
}

impl Strategy for QosExchange {
    type Config = QosExchangeConfig;
    type State = QosExchangeState;
    const NAME: &'static str = "qos-exchange";
    const SUMMARY: &'static str =
        "exchanges extents by the ratio of response time to target, with a price for congestion";
    const GRANULARITY: Granularity = Granularity::Extent;

    fn new(config: QosExchangeConfig) -> Result<Self, ConfigError> {
        let fault = |key: &str, why: &str| Err(ConfigError::new(Self::NAME, key, why));
        if !(1.0..=10.0).contains(&config.burst) {
            return fault("burst", "must be between 1 and 10");
        }
        if !(0.0..=1.0).contains(&config.write_share) {
            return fault("write_share", "must be between 0 and 1");
        }
        Ok(Self { config })
    }

    fn plan(
        &self,
        context: &Context<'_>,
        state: &QosExchangeState,
        draft: &mut Draft,
    ) -> QosExchangeState {
        let facts = context.facts;
        let Some(view) = View::new(context) else {
            if facts.placement_due {
                let why = "no moves: extents on two tiers that accept data are required";
                draft.notes.push(why.into());
            }
            return state.clone();
        };
        let mut state = carried_over(context, &view, state);
        for (no, ios) in view.heat(facts) {
            state.since.add(no, ios);
        }
        if facts.placement_due {
            let weights = self.weights(context, &mut state);
            self.exchange(context, &view, &state, &weights, draft);
            state.since.reset();
            state.counted_from = facts.at;
        }
        state
    }
}

/// Returns the state for the present extents.
fn carried_over(context: &Context<'_>, view: &View, before: &QosExchangeState) -> QosExchangeState {
    let facts = context.facts;
    let mut state = before.clone();
    let layout = view.layout(facts);
    if state.layout.len() == 0 {
        // The first facts have the load of one monitor epoch.
        state.counted_from = facts.at.saturating_sub(context.policy.epochs.monitor);
    }
    if state.layout != layout {
        state.since = state.since.renumbered(&layout.numbers_in(&state.layout));
        state.layout = layout;
    }
    state
        .factors
        .retain(|name, _| facts.volumes.iter().any(|v| v.name == *name));
    state
}

impl QosExchange {
    /// Returns the weight of each volume. Factors follow latency over target.
    fn weights(&self, context: &Context<'_>, state: &mut QosExchangeState) -> Vec<f64> {
        let facts = context.facts;
        let first = |(n, c): &(usize, &model::SloClass)| {
            facts.classes[..*n].iter().all(|other| other.name != c.name)
        };
        let classes = facts.classes.iter().enumerate().filter(first);
        let targets = classes.filter_map(|(_, c)| c.target);
        let slowest = targets.map(|t| t.latency).max().unwrap_or(TARGET_NONE);
        let weight = |v: &model::VolumeFacts| {
            if !self.config.classes {
                return 1.0;
            }
            let class = &facts.classes[v.class.index()];
            // Behind a cache, a volume's class has the target of the devices, with which their latency is compared. A
            // nanosecond of waiting is weighed by the target promised to guests: that of the first class with the name.
            let promised = facts.classes.iter().find(|c| c.name == class.name);
            let promised = promised.and_then(|c| c.target);
            // A volume without a target counts as the slowest class, and its factor stays 1.
            let Some(promised) = promised else {
                return 1000.0 / slowest.as_micros_f64();
            };
            let factor = state.factors.entry(v.name.clone()).or_insert(1.0);
            let measured = v.measured.as_ref().and_then(|m| m.latency_mean_us());
            if let (Some(us), Some(target)) = (measured, class.target) {
                *factor = next_factor(*factor, us / target.latency.as_micros_f64());
            }
            *factor * 1000.0 / promised.latency.as_micros_f64()
        };
        facts.volumes.iter().map(weight).collect()
    }

    fn exchange(
        &self,
        context: &Context<'_>,
        view: &View,
        state: &QosExchangeState,
        weights: &[f64],
        draft: &mut Draft,
    ) {
        let facts = context.facts;
        let period = facts.at.saturating_sub(state.counted_from);
        let open: Vec<TierId> = facts
            .topology
            .tier_ids()
            .filter(|t| !context.policy.takes_no_data(*t))
            .collect();
        let request = mean_request(context, view);
        let stations: Vec<Station> = open.iter().map(|t| station(context, *t, request)).collect();
        let (mut loads, mut owners) = (Vec::new(), Vec::new());
        let per_s = 1.0 / period.as_secs_f64().max(1e-9);
        // Volumes that are being moved or have no measurements are left out, with their load.
        for placed in view.volumes.iter().filter(|p| p.frozen.is_none()) {
            for (extent, station) in on_stations(context, placed, &open) {
                let ios = f64::from(state.since.count(placed.first + extent)) * per_s;
                let facts = &facts.volumes[placed.volume.index()];
                let reads = facts.measured.as_ref().map_or(0.5, |m| m.read_share());
                loads.push(ExtentLoad {
                    volume: placed.volume.index() as u32,
                    device: station,
                    reads: (ios * reads) as f32,
                    writes: (ios * (1.0 - reads)) as f32,
                });
                owners.push((placed.volume, extent));
            }
        }
        let real = loads.len();
        add_free(context, view, &open, &mut loads);
        let terms = ExchangeTerms {
            most: self.config.exchanges,
            request,
            extent: view.extent,
            horizon: context.policy.epochs.migration,
            burst: self.config.burst,
            write_share: self.config.write_share,
        };
        // Free space belongs to an extra volume of weight 0: it has no requests.
        let mut weights = weights.to_vec();
        weights.push(0.0);
        let found = exchange(&stations, &loads, &weights, &terms);
        let mut to: Vec<Option<TierId>> = vec![None; real];
        for x in &found.list {
            for (extent, other) in [(x.a, x.b), (x.b, x.a)] {
                if let Some(to) = to.get_mut(extent as usize) {
                    *to = Some(open[usize::from(loads[other as usize].device)]);
                }
            }
        }
        let gain = 1.0 - found.after / found.before.max(f64::MIN_POSITIVE);
        draft.notes.push(format!(
            "{} exchanges; the model predicts a weighted response time {:.1} % lower",
            found.list.len(),
            100.0 * gain
        ));
        for placed in &view.volumes {
            wish(context, placed, state, period, &owners, &to, draft);
        }
    }
}

/// Returns a tier as one station.
fn station(context: &Context<'_>, tier: TierId, request: Bytes) -> Station {
    let topology = &context.facts.topology;
    let devices = &topology.tier(tier).devices;
    let spec: &DeviceSpec = &topology.device(devices[0]).spec;
    // The parallel units of a device follow from its latency and its caps (Little's law).
    let read_s = spec.read_latency.as_secs_f64();
    let units = (spec.read_iops * read_s).round().max(1.0);
    let write_ns = 1e9 * units / spec.write_iops;
    let bare = |op| 1e3 * spec.bare_latency_us(op, request.as_f64());
    let bare_ns = [bare(Op::Read), bare(Op::Write)];
    Station {
        service: ServiceTime {
            read_ns: spec.read_latency.as_f64().max(1e9 * units / spec.read_iops),
            write_ns: spec.write_latency.as_f64().max(write_ns),
            byte_ns: 1e9 * units / spec.read_bandwidth.as_f64(),
            second_moment: 1.1,
            units: units as u32 * devices.len() as u32,
            sequential_ns: spec.read_latency.as_f64(),
        },
        bare_ns: Some(bare_ns),
    }
}

/// Returns the mean size of a request over all volumes, at least a page.
fn mean_request(context: &Context<'_>, view: &View) -> Bytes {
    let (mut ios, mut bytes) = (0u64, 0u64);
    for placed in &view.volumes {
        if let Some(m) = &context.facts.volumes[placed.volume.index()].measured {
            ios += m.ios();
            bytes += m.reads.bytes + m.writes.bytes;
        }
    }
    Bytes((bytes / ios.max(1)).max(4096))
}

/// Returns the extents of a volume with their stations. Extents on tiers that accept no data are left out, and so are
/// extents that were never written.
fn on_stations(context: &Context<'_>, placed: &PlacedVolume, open: &[TierId]) -> Vec<(u32, u16)> {
    let facts = context.facts;
    let extents = facts.volumes[placed.volume.index()].extents.as_ref();
    let (mut found, mut number) = (Vec::new(), 0);
    for (count, device) in extents.into_iter().flat_map(|e| e.places.runs()) {
        let tier = device.map(|d| facts.topology.tier_of(d));
        if let Some(station) = open.iter().position(|o| Some(*o) == tier) {
            found.extend((number..number + count).map(|extent| (extent, station as u16)));
        }
        number += count;
    }
    found
}

/// Adds free space as extents without load, as much as exchanges can use. They belong to the volume after the last.
fn add_free(context: &Context<'_>, view: &View, open: &[TierId], loads: &mut Vec<ExtentLoad>) {
    let facts = context.facts;
    let nobody = facts.volumes.len() as u32;
    let extents = loads.len();
    for (station, tier) in open.iter().enumerate() {
        let devices = facts.topology.tier(*tier).devices.iter();
        let used: Bytes = devices
            .map(|d| facts.devices[d.index()].used + facts.devices[d.index()].reserved)
            .sum();
        let room = facts.topology.capacity(*tier).as_f64() * space_share(context.policy);
        let free = ((room - used.as_f64()) / view.extent.as_f64()).max(0.0) as usize;
        let empty = ExtentLoad {
            volume: nobody,
            device: station as u16,
            reads: 0.0,
            writes: 0.0,
        };
        loads.extend(std::iter::repeat_n(empty, free.min(extents)));
    }
}

/// Adds wishes for the extents of one volume that change tier.
fn wish(
    context: &Context<'_>,
    placed: &PlacedVolume,
    state: &QosExchangeState,
    period: Nanos,
    owners: &[(VolumeId, u32)],
    to: &[Option<TierId>],
    draft: &mut Draft,
) {
    let first = owners.partition_point(|o| o.0 < placed.volume);
    let end = owners.partition_point(|o| o.0 <= placed.volume);
    for tier in context.facts.topology.tier_ids() {
        let moving = (first..end).filter(|i| to[*i] == Some(tier));
        let extents: Vec<u32> = moving.map(|i| owners[i].1).collect();
        if extents.is_empty() {
            continue;
        }
        let ios = |e: &u32| (*e, state.since.count(placed.first + e));
        let heat: Vec<(u32, u32)> = extents.iter().map(ios).filter(|h| h.1 > 0).collect();
        let up = tier == TierId::from_index(0);
        draft.extent_wishes.push(ExtentWish {
            volume: placed.volume,
            extents: ExtentRanges::from_sorted(extents),
            tiers: vec![tier],
            goal: Goal::Latency,
            reason: if up {
                ExtentReason::Hot { period }
            } else {
                ExtentReason::Cool { period }
            },
            heat,
            space: SpaceLimit::Planned,
            refused: None,
        });
    }
}
