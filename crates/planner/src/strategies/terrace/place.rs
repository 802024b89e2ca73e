//! What a volume that does not exist yet would miss on every device, and what others would miss more with it there.
//!
//! The volume's latency is what is known of the device at the use that it would have. Others are taken to be slower by as much as the model
//! says that the added use makes them, from what is measured of them now. Of volumes whose load is not known no harm is foreseen: they only
//! count in their device's use.

use algo::{normal_cdf, objective::excess};
use model::{Facts, LatencySummary, Measured, SloClass, SloStatistic};
use units::DeviceId;

use super::history::Sample;
use super::learned::{Learned, model_mean_us, occupancy, plain_mean_us};
use super::rates::RATES;
use crate::{DeviceOption, Newcomer, PlaceCost};

/// Requests in flight of a volume that never had to wait.
const DEPTH_MIN: f64 = 3.0;

/// Every device as a place for the volume.
pub(super) fn options(facts: &Facts, learned: &Learned, newcomer: &Newcomer) -> Vec<DeviceOption> {
    let devices = 0..facts.topology.devices.len();
    devices
        .map(|d| option(facts, learned, newcomer, d))
        .collect()
}

fn option(facts: &Facts, learned: &Learned, newcomer: &Newcomer, d: usize) -> DeviceOption {
    let spec = &facts.topology.devices[d].spec;
    let sample = Sample::of(facts.epoch, &newcomer.load);
    let there = on(facts, d);
    let in_flight: f64 = there.iter().map(|(_, m)| depth(m)).sum();
    let now = (usage(facts, learned, d, &there), in_flight);
    let added = learned.usage(facts, d) * occupancy(spec, &sample);
    let after = (now.0 + added, now.1 + depth(&newcomer.load));
    let (mut own, mut latency_us, mut range_us) = (0.0, None, None);
    let mean_us = model_mean_us(facts, d, &sample, after.0, after.1, learned);
    if sample.total() > 0.0 && mean_us > 0.0 {
        let class = &facts.classes[newcomer.class.index()];
        let sigma = learned.sigma();
        let ratio = ratio(class, &newcomer.load, spec.jitter_sigma);
        own = missed(class, mean_us, ratio, sigma, sample.total());
        let wide = libm::exp(RATES.interval_z * sigma);
        latency_us = Some(mean_us);
        range_us = Some((mean_us / wide, mean_us * wide));
    }
    let harm = |(v, m): &(usize, &Measured)| {
        let Some(mean_us) = m.latency_mean_us().filter(|us| *us > 0.0) else {
            return 0.0;
        };
        let class = &facts.classes[facts.volumes[*v].class.index()];
        let sample = Sample::of(facts.epoch, m);
        let plain = |(rho, in_flight)| plain_mean_us(spec, &sample, rho, in_flight);
        let slower = plain(after) / plain(now).max(1e-6);
        let ratio = ratio(class, m, spec.jitter_sigma);
        let at = |us: f64| missed(class, us, ratio, RATES.sigma_here, sample.total());
        (at(mean_us * slower) - at(mean_us)).max(0.0)
    };
    DeviceOption {
        device: DeviceId::from_index(d),
        cost: PlaceCost {
            own,
            others: Some(there.iter().map(harm).sum()),
        },
        latency_us,
        range_us,
        use_after: after.0,
    }
}

/// Volumes whose load is known that are on a device, or will be when what moves has moved.
fn on(facts: &Facts, d: usize) -> Vec<(usize, &Measured)> {
    let place = |v: usize| {
        let whole = |m: &&model::RunningMove| m.volume.index() == v && m.extents.is_none();
        let moving = facts.moves.iter().find(whole);
        moving.map_or(facts.volumes[v].device, |m| m.to).index()
    };
    let measured = |v: usize| Some((v, facts.volumes[v].measured.as_ref()?));
    let all = (0..facts.volumes.len()).filter(|v| place(*v) == d);
    all.filter_map(measured).collect()
}

/// Share of a device's time in use: what is measured, or where something is copied what those ask for that will be there.
fn usage(facts: &Facts, learned: &Learned, d: usize, there: &[(usize, &Measured)]) -> f64 {
    let copying = |m: &model::RunningMove| m.from.index() == d || m.to.index() == d;
    if !facts.moves.iter().any(copying) {
        return facts.devices[d].utilization;
    }
    let spec = &facts.topology.devices[d].spec;
    let asked = |(_, m): &(usize, &Measured)| occupancy(spec, &Sample::of(facts.epoch, m));
    learned.usage(facts, d) * there.iter().map(asked).sum::<f64>()
}

/// Requests that a volume keeps in flight where it has to wait.
fn depth(m: &Measured) -> f64 {
    match m.ios() {
        0 => 0.0,
        _ => m.outstanding.max(DEPTH_MIN),
    }
}

/// The objective's statistic over the mean: as measured, or else as a device's jitter alone makes it.
fn ratio(class: &SloClass, m: &Measured, jitter_sigma: f64) -> f64 {
    let (of, z): (fn(&LatencySummary) -> f64, f64) = match class.target.map(|t| t.statistic) {
        None | Some(SloStatistic::Mean) => return 1.0,
        Some(SloStatistic::P95) => (|l| l.p95_us, 1.645),
        Some(SloStatistic::P99) => (|l| l.p99_us, 2.326),
    };
    let share = m.read_share();
    let statistic = share * of(&m.reads.latency) + (1.0 - share) * of(&m.writes.latency);
    match m.latency_mean_us() {
        Some(mean) if mean > 0.0 && statistic > 0.0 => (statistic / mean).clamp(0.5, 10.0),
        _ => libm::exp(z * jitter_sigma - jitter_sigma * jitter_sigma / 2.0),
    }
}

/// What a volume of a class misses per second at a mean latency, by the rates that moves are judged by.
fn missed(class: &SloClass, mean_us: f64, ratio: f64, sigma: f64, iops: f64) -> f64 {
    let Some(target) = class.target else {
        let counts = (iops / RATES.free_iops).min(1.0);
        return RATES.free * class.weight * counts * libm::log((mean_us / 10.0).max(1.0));
    };
    let used = mean_us * ratio / target.latency.as_micros_f64();
    let missed = normal_cdf(libm::log(used.max(1e-6)) / sigma);
    class.weight * (missed + RATES.excess * excess(used) + RATES.faster * used.min(1.0))
}
