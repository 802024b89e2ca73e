//! Results of a run of an array, by hour and class.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sim::{GroupKind, RunResult, Stretch, StretchGroup};

use super::array::Array;

/// Flash wear of the drives of one kind in the measured hours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WearResult {
    /// Kind of device.
    pub kind: String,
    /// Write amplification: ratio of programmed bytes to written bytes; `None` before the first write.
    pub waf: Option<f64>,
    /// Bytes written to the drives, including copies of exchanges.
    pub host_bytes: u64,
    /// Share of these bytes that each class wrote, 0..=1. Copies of exchanges are the rest.
    pub written_share: Vec<f64>,
    /// Drive writes: mean ratio of written bytes to the capacity of a drive.
    pub drive_writes: f64,
    /// Lifetime in years of the most worn drive at this rate, with perfect wear levelling; `None` if nothing was erased.
    pub years: Option<f64>,
}

/// Measurements of a group of requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GroupResult {
    /// Number of requests.
    pub requests: u64,
    /// Mean response time over all requests, milliseconds; `None` without requests.
    pub response_mean_ms: Option<f64>,
    /// Mean response time without the slowest requests ([`sim::TRIMMED`]), milliseconds. A short overload does not dominate it.
    pub response_trimmed_ms: Option<f64>,
    /// Median response time, milliseconds.
    pub response_p50_ms: Option<f64>,
    /// 95th percentile of the response time, milliseconds.
    pub response_p95_ms: Option<f64>,
    /// 99th percentile of the response time, milliseconds.
    pub response_p99_ms: Option<f64>,
    /// Share of requests that the cache served, 0..=1.
    pub cached_share: Option<f64>,
    /// Shares of the kinds of devices in the requests that devices served, 0..=1.
    pub device_share: Vec<Option<f64>>,
}

/// Measurements of one hour.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HourResult {
    /// Number of the hour, from 0.
    pub hour: u32,
    /// Groups by class.
    pub classes: Vec<GroupResult>,
    /// All classes together.
    pub total: GroupResult,
    /// Mean priority of the volumes of each class at the end of the hour, percent; `None` for policies without priorities.
    pub priorities: Option<Vec<f64>>,
    /// Number of extents whose move was planned at the start of the hour.
    pub extents_planned: u32,
    /// Number of these extents whose move ended before the next decision.
    pub extents_moved: u32,
    /// Mean utilization of the devices of each kind, including copies, 0..=1.
    pub utilization: Vec<f64>,
}

/// Measurements of the whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ArrayResult {
    /// Groups by class, without the warm-up.
    pub classes: Vec<GroupResult>,
    /// Share of volume-hours by class whose mean response time is within the class's target, 0..=1.
    pub within_target: Vec<Option<f64>>,
    /// All classes together, without the warm-up.
    pub total: GroupResult,
    /// Wear by kind of device, for kinds with simulated flash.
    pub wear: Vec<WearResult>,
    /// All hours, including the warm-up.
    pub hours: Vec<HourResult>,
}

impl ArrayResult {
    pub(super) fn new(array: &Array, run: &RunResult) -> Self {
        let stretches = run.stretches.as_ref().expect("the scenario asks for them");
        let group = |g: &StretchGroup| group(array, g);
        let counted = &stretches.counted;
        Self {
            classes: counted.classes.iter().map(group).collect(),
            within_target: within_target(array, run),
            total: group(&counted.total),
            wear: wear(array, run),
            hours: hours(array, run, &stretches.each),
        }
    }
}

fn group(array: &Array, g: &StretchGroup) -> GroupResult {
    let ms = |us: Option<f64>| us.map(|us| us * 1e-3);
    let at = |name: &str| {
        let by = g.answered.iter().find(|a| a.by == name);
        by.map_or(0, |a| a.ios)
    };
    let devices: u64 = array.kinds.iter().map(|k| at(k.name)).sum();
    let share = |name: &str| (devices > 0).then(|| at(name) as f64 / devices as f64);
    GroupResult {
        requests: g.ios,
        response_mean_ms: ms(g.mean_us),
        response_trimmed_ms: ms(g.trimmed_us),
        response_p50_ms: ms(g.p50_us),
        response_p95_ms: ms(g.p95_us),
        response_p99_ms: ms(g.p99_us),
        cached_share: g.share_of("cache"),
        device_share: array.kinds.iter().map(|k| share(k.name)).collect(),
    }
}

fn hours(array: &Array, run: &RunResult, each: &[Stretch]) -> Vec<HourResult> {
    let hour_s = array.hour.as_secs_f64();
    let of = |at_s: f64| (at_s / hour_s + 1e-6) as usize;
    let mut moves = vec![(0u32, 0u32); each.len() + 1];
    for m in &run.move_log {
        let hour = of(m.planned_s).min(each.len());
        let extents = m.extents.unwrap_or(0);
        moves[hour].0 += extents;
        let done = m.state == model::JobStatus::Done;
        let in_time = done && m.ended_s.is_some_and(|s| s <= (hour + 1) as f64 * hour_s);
        moves[hour].1 += if in_time { extents } else { 0 };
    }
    let priorities = |s: &Stretch| -> Option<Vec<f64>> {
        s.classes.iter().map(|c| c.priority_percent).collect()
    };
    let hour = |(h, s): (usize, &Stretch)| HourResult {
        hour: h as u32,
        classes: s.classes.iter().map(|c| group(array, c)).collect(),
        total: group(array, &s.total),
        priorities: priorities(s),
        extents_planned: moves[h].0,
        extents_moved: moves[h].1,
        utilization: utilization(array, run, (s.from_s, s.to_s)),
    };
    each.iter().enumerate().map(hour).collect()
}

/// Returns the mean utilization of the devices of each kind over the windows of an hour.
fn utilization(array: &Array, run: &RunResult, (from_s, to_s): (f64, f64)) -> Vec<f64> {
    let series = run.series.as_ref().expect("series are kept");
    let window = |at_s: f64| (at_s / series.window_s + 1e-6) as usize;
    let windows = window(from_s)..window(to_s);
    let of = |name: &str| {
        let devices = series.devices.iter().filter(|d| d.tier == name);
        let values = devices.flat_map(|d| &d.utilization[windows.clone()]);
        let (sum, n) = values.fold((0.0, 0u32), |(sum, n), u| (sum + u, n + 1));
        sum / f64::from(n.max(1))
    };
    array.kinds.iter().map(|k| of(k.name)).collect()
}

/// Returns by class the share of measured volume-hours whose mean response time is within the target.
fn within_target(array: &Array, run: &RunResult) -> Vec<Option<f64>> {
    let series = run.series.as_ref().expect("series are kept");
    let per_hour = (array.hour.as_secs_f64() / series.window_s).round() as usize;
    let first = per_hour * array.warmup_hours as usize;
    let classes: BTreeMap<&str, usize> = array
        .volumes
        .iter()
        .map(|v| (v.name.as_str(), v.class))
        .collect();
    let mut counts = vec![(0u32, 0u32); array.classes.len()];
    let volumes = series.groups.iter().filter(|g| g.kind == GroupKind::Volume);
    for volume in volumes {
        let class = classes[volume.name.as_str()];
        let target_us = array.classes[class].target.as_micros_f64();
        let windows = volume.reads.iops.len();
        for begin in (first..windows).step_by(per_hour) {
            let hour = begin..(begin + per_hour).min(windows);
            let (mut ios, mut sum_us) = (0.0, 0.0);
            for of in [&volume.reads, &volume.writes] {
                let both = of.iops[hour.clone()].iter().zip(&of.mean_us[hour.clone()]);
                for (iops, mean_us) in both {
                    ios += iops;
                    sum_us += iops * mean_us;
                }
            }
            if ios > 0.0 {
                counts[class].1 += 1;
                counts[class].0 += u32::from(sum_us / ios <= target_us);
            }
        }
    }
    let share = |(n, of): &(u32, u32)| (*of > 0).then(|| f64::from(*n) / f64::from(*of));
    counts.iter().map(share).collect()
}

fn wear(array: &Array, run: &RunResult) -> Vec<WearResult> {
    let Some(wear) = &run.wear else {
        return vec![];
    };
    let days = run.counted_s / 86_400.0;
    let of_kind = |name: &str| {
        let devices: Vec<_> = wear.devices.iter().filter(|d| d.tier == name).collect();
        let copied: u64 = devices.iter().map(|d| d.copied_bytes).sum();
        let host = copied + devices.iter().map(|d| d.guest_bytes).sum::<u64>();
        let flash: u64 = devices.iter().map(|d| d.flash_bytes).sum();
        let by = |class: &str| {
            let classes = devices.iter().flat_map(|d| &d.classes);
            let bytes: u64 = classes
                .filter(|c| c.class == class)
                .map(|c| c.guest_bytes)
                .sum();
            bytes as f64 / host.max(1) as f64
        };
        let of_host = |bytes: u64| (host > 0).then(|| bytes as f64 / host as f64);
        let writes = devices.iter().map(|d| d.drive_writes_per_day * days);
        let years = devices.iter().filter_map(|d| d.years);
        (!devices.is_empty()).then(|| WearResult {
            kind: name.into(),
            waf: of_host(flash),
            host_bytes: host,
            written_share: array.classes.iter().map(|c| by(c.name)).collect(),
            drive_writes: writes.sum::<f64>() / devices.len() as f64,
            years: years.reduce(f64::min),
        })
    };
    let kinds = array.kinds.iter();
    kinds.filter_map(|k| of_kind(k.name)).collect()
}
