//! Prediction of latency on every tier from the line (paper 0, Alg. 1 l. 34–35), and of the resulting IOPS.

use algo::Line;
use model::{Facts, MeasuredLoad, Op};
use units::{DeviceId, TierId, VolumeId};

use super::calibrate::{Origin, Sensitivity};
use super::config::{
    AutoTieringConfig, Concurrency, Confidence, Directions, Intercept, LatencyFloor, Switches,
    TierLatency,
};

/// Share of its rate that a load keeps under the largest injection, from which it counts as open-loop.
const OPEN_LOOP_RESPONSE: f64 = 0.97;
const CONFIDENCE_MIN: f64 = 0.05;
/// Utilization from which a device counts as full.
const SATURATED: f64 = 0.95;

/// Predicted mean latency and its confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    /// Microseconds; zero or less only in the literal form.
    pub(crate) mean_us: f64,
    /// 0..=1.
    pub(crate) confidence: f64,
}

/// Returns the mean latency of the volume's mix on an idle device of the tier; of one direction alone if given.
pub(crate) fn bare_us(facts: &Facts, tier: TierId, measured: &MeasuredLoad, op: Option<Op>) -> f64 {
    let n = facts.topology.tier(tier).devices.len() as f64;
    let of = |op: Op| {
        facts
            .topology
            .sum(tier, |s| s.bare_latency_us(op, measured.mean_bytes(op)))
            / n
    };
    match op {
        Some(op) => of(op),
        None => {
            let reads = measured.read_share();
            reads * of(Op::Read) + (1.0 - reads) * of(Op::Write)
        }
    }
}

/// Returns the factor of latency under load: on its present tier, that of the volume's own device; on another tier, the mean
/// of the tier's devices with the volume's load added.
fn load_factor(facts: &Facts, tier: TierId, volume: VolumeId, measured: &MeasuredLoad) -> f64 {
    let own = facts.volumes[volume.index()].device;
    let at = |d: DeviceId, more: f64| {
        let spec = &facts.topology.device(d).spec;
        let utilization = facts.devices[d.index()].utilization;
        spec.curve.factor((utilization + more).min(1.0))
    };
    if facts.topology.tier_of(own) == tier {
        return at(own, 0.0);
    }
    let devices = &facts.topology.tier(tier).devices;
    let n = devices.len() as f64;
    let factors = devices.iter().map(|d| {
        let spec = &facts.topology.device(*d).spec;
        let occupancy = |op| spec.occupancy_s(op, measured.mean_bytes(op));
        let reads = measured.read_share();
        let per_io = reads * occupancy(Op::Read) + (1.0 - reads) * occupancy(Op::Write);
        at(*d, measured.iops() * per_io / n)
    });
    factors.sum::<f64>() / n
}

/// Returns the predicted mean latency of the volume on `tier`.
pub(crate) fn latency(
    config: &AutoTieringConfig,
    switches: &Switches,
    facts: &Facts,
    volume: VolumeId,
    tier: TierId,
    measured: &MeasuredLoad,
    sensitivity: Option<&Sensitivity>,
) -> Latency {
    let calibrated_on = sensitivity
        .map_or(facts.volumes[volume.index()].device, |s: &Sensitivity| {
            s.device
        });
    let from = facts.topology.tier_of(calibrated_on);
    let factor = |t: TierId| match switches.tier_latency {
        TierLatency::Bare => 1.0,
        TierLatency::Loaded => load_factor(facts, t, volume, measured),
    };
    // On the axis of injected latency, the tier is at X − L_c. L_c is the latency at the line's zero: that of the device
    // under its load during the session, not under its present load.
    let zero = match (switches.tier_latency, sensitivity) {
        (TierLatency::Bare, _) => 1.0,
        (TierLatency::Loaded, Some(s)) => s.zero,
        (TierLatency::Loaded, None) => factor(from),
    };
    let x = |op: Option<Op>| {
        bare_us(facts, tier, measured, op) * factor(tier)
            - bare_us(facts, from, measured, op) * zero
    };
    // Alternative start: the latency measured now on the present tier.
    let here = facts.topology.tier_of(facts.volumes[volume.index()].device);
    let present = switches.intercept == Intercept::Present;
    let present = present && sensitivity.is_some_and(|s| s.origin == Origin::Injected);
    let from_here = |line: &Line, op: Option<Op>| {
        let now_us = match op {
            _ if !present => None,
            None => measured.latency_mean_us(),
            Some(op) => measured.latency_mean_of(op),
        }?;
        let distance = bare_us(facts, tier, measured, op) * factor(tier)
            - bare_us(facts, here, measured, op) * factor(here);
        Some(now_us + line.slope.max(0.0) * distance)
    };
    let along = |line: &Line, op: Option<Op>, s: &Sensitivity| {
        let by_line = along(line, x(op), s, switches);
        Latency {
            mean_us: from_here(line, op).unwrap_or(by_line.mean_us),
            ..by_line
        }
    };
    let mut predicted = match (sensitivity, switches.directions) {
        (None, _) => Latency {
            confidence: config.prior_confidence,
            ..unknown_line(facts, calibrated_on, measured, x(None))
        },
        (Some(s), Directions::Joint) => along(&s.joint, None, s),
        (Some(s), Directions::Separate) => {
            let reads = along(s.reads.as_ref().unwrap_or(&s.joint), Some(Op::Read), s);
            let writes = along(s.writes.as_ref().unwrap_or(&s.joint), Some(Op::Write), s);
            let share = measured.read_share();
            Latency {
                mean_us: share * reads.mean_us + (1.0 - share) * writes.mean_us,
                confidence: share * reads.confidence + (1.0 - share) * writes.confidence,
            }
        }
    };
    if switches.tier_latency == TierLatency::Loaded && saturated(facts, volume) {
        // The queue of a full device does not react to a few microseconds more, so the line is not valid. The requests in
        // flight now take the time that one device of the target needs to serve them.
        let n = facts.topology.tier(tier).devices.len() as f64;
        let (reads, writes) = (
            measured.mean_bytes(Op::Read),
            measured.mean_bytes(Op::Write),
        );
        let cap = facts
            .topology
            .sum(tier, |s| s.max_iops(measured.read_share(), reads, writes))
            / n;
        let served_us = measured.outstanding * 1e6 / cap;
        predicted.mean_us = served_us.max(bare_us(facts, tier, measured, None) * factor(tier));
    }
    if switches.latency_floor == LatencyFloor::Clamp {
        let floor = (bare_us(facts, tier, measured, None) * config.latency_floor_share).max(0.1);
        predicted.mean_us = predicted.mean_us.max(floor);
    }
    predicted
}

/// Returns true if the volume's device is full: the latency is then that of a queue, not of the device.
pub(crate) fn saturated(facts: &Facts, volume: VolumeId) -> bool {
    let device = facts.volumes[volume.index()].device;
    facts.devices[device.index()].utilization >= SATURATED
}

/// Predicts with slope 1 from the measured latency, if there are no two distinct injected latencies.
fn unknown_line(facts: &Facts, device: DeviceId, measured: &MeasuredLoad, x: f64) -> Latency {
    let here = facts.topology.tier_of(device);
    let b = measured
        .latency_mean_us()
        .unwrap_or_else(|| bare_us(facts, here, measured, None));
    Latency {
        mean_us: x + b,
        confidence: CONFIDENCE_MIN,
    }
}

fn along(line: &Line, x: f64, s: &Sensitivity, switches: &Switches) -> Latency {
    let slope = line.slope.max(0.0);
    let mean_us = slope * x + line.intercept;
    let confidence = match switches.confidence {
        Confidence::Variation if s.confidence <= 0.0 => CONFIDENCE_MIN,
        Confidence::Variation => s.confidence,
        Confidence::FlooredVariation => s.confidence.max(CONFIDENCE_MIN),
        Confidence::Extrapolation => {
            // Two points always lie on a line, so they give no confidence.
            let known = line.n >= 3 && mean_us > 0.0;
            let relative = if known {
                line.standard_error(x) / mean_us
            } else {
                1.0
            };
            (1.0 - relative).max(CONFIDENCE_MIN)
        }
    };
    Latency {
        mean_us,
        confidence,
    }
}

/// Returns the requests per second at this latency.
pub(crate) fn iops(
    switches: &Switches,
    measured: &MeasuredLoad,
    s: Option<&Sensitivity>,
    saturated: bool,
    latency_us: f64,
) -> f64 {
    if latency_us <= 0.0 || measured.ios() == 0 {
        return 0.0;
    }
    match switches.concurrency {
        Concurrency::One => 1e6 / latency_us,
        Concurrency::Little => {
            let by_latency = measured.outstanding * 1e6 / latency_us;
            let open = !saturated && s.is_some_and(|s| s.rate_response >= OPEN_LOOP_RESPONSE);
            if open {
                by_latency.min(measured.iops())
            } else {
                by_latency
            }
        }
    }
}
