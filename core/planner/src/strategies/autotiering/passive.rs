//! Sensitivity without injection, for volumes that must not be delayed: estimated from natural variation of latency (our
//! method, not paper 0's).
//!
//! ```text
//!  each monitor epoch, of the volumes on one device:
//!    neighbours:  r = median of (measured / bare latency of their own mix)     slowness of the device
//!    the volume:  x = its bare latency · (r − 1),   y = its mean latency       one point
//!  over the last epochs:  y = m·x + b                                         b: on the bare device
//! ```
//!
//! The volume itself is not part of r, so effects on its own requests only (an odd mix, a pause in the guest) do not appear
//! on both axes. The effect of its load on the *device* is part of r, because neighbours see it too. Injection differs,
//! because it delays this volume alone. Here m is the share of the device's latency that reaches the guest: 1 for plain
//! requests, less behind a cache, more for requests that are split into dependent ones. m does not include the relief of the
//! device when a closed loop is slowed down. The zero of x also differs: it is the bare device, not the device at its
//! present load.
//!
//! *Errors in x.* r is a mean over finitely many requests. Its error biases the slope towards zero. The error is estimated
//! from the neighbours' percentiles and removed (method of moments). If it is more than half of the variation, there is no
//! estimate. The remaining bias is towards zero, never away from it.
//!
//! *Known errors*: bursts much shorter than an epoch (r is a mean over the neighbours' requests, which are in the burst; y
//! over the volume's requests, which are spread over time: m is too small); neighbours whose latency is not the device's
//! (behind a cache); devices without neighbours or with steady ones (no estimate: the volume counts as uncalibrated).

use std::collections::VecDeque;

use algo::{Line, fit_line};
use model::{DeviceSpec, Facts, Flow, MeasuredLoad, Op, Policy};
use serde::{Deserialize, Serialize};
use units::{DeviceId, VolumeId};

use super::VolumeState;
use super::calibrate::{Origin, Sensitivity};
use super::config::{SensitivitySource, Switches};

/// Number of epochs stored per volume: two hours at the default length. Bounds the state, and forgets old behaviour.
const WINDOWS_MAX: usize = 120;
/// Smallest number of epochs for an estimate.
const WINDOWS_MIN: usize = 12;
/// Smallest standard deviation of x relative to the bare latency: without variation there is no estimate.
const SPREAD_MIN: f64 = 0.05;
/// Smallest share of the variance of x that is not error.
const RELIABILITY_MIN: f64 = 0.5;
/// Smallest number of requests in an epoch with which a volume counts, as a neighbour or itself.
const IOS_MIN: u64 = 100;
/// Smallest number of requests of one direction for its own line.
const IOS_MIN_DIRECTION: u64 = 25;
/// (95th percentile − median) over the standard deviation, for a normal distribution.
const NORMAL_P95: f64 = 1.645;

/// Measured epochs of a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PassiveHistory {
    /// Device of the volume in all of the epochs.
    device: Option<DeviceId>,
    epochs: VecDeque<PassiveEpoch>,
}

/// Measurements of one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct PassiveEpoch {
    /// r − 1.
    excess: f64,
    /// Variance of the error of `excess`.
    excess_variance: f64,
    iops: f64,
    /// Bare and measured latency, microseconds.
    all: (f64, f64),
    reads: Option<(f64, f64)>,
    writes: Option<(f64, f64)>,
}

impl PassiveHistory {
    pub(crate) fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }
}

/// Slowness of the devices in the last epoch, from the measurements of their volumes.
pub(crate) struct Slowness {
    /// Ratios of measured to bare latency with the variances of their errors, by device; ascending.
    by_device: Vec<Vec<(f64, f64)>>,
    /// Device of each volume, and its position in that device's list.
    places: Vec<(DeviceId, Option<usize>)>,
}

impl Slowness {
    pub(crate) fn of(facts: &Facts) -> Self {
        let mut lists: Vec<Vec<(f64, f64, usize)>> = vec![vec![]; facts.topology.devices.len()];
        let moving = moving(facts);
        for (i, v) in facts.volumes.iter().enumerate() {
            let spec = &facts.topology.device(v.device).spec;
            let counts = v.measured.filter(|m| m.ios() >= IOS_MIN && !moving[i]);
            if let Some((r, variance)) = counts.and_then(|m| ratio(spec, &m)) {
                lists[v.device.index()].push((r, variance, i));
            }
        }
        let mut places: Vec<_> = facts.volumes.iter().map(|v| (v.device, None)).collect();
        for list in &mut lists {
            list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
            for (place, (_, _, volume)) in list.iter().enumerate() {
                places[*volume].1 = Some(place);
            }
        }
        let by_device = lists
            .iter()
            .map(|l| l.iter().map(|(r, variance, _)| (*r, *variance)).collect())
            .collect();
        Self { by_device, places }
    }

    /// Returns the median over the other volumes on a volume's device: one outlier does not change it much.
    fn beside(&self, volume: VolumeId) -> Option<(f64, f64)> {
        let (device, own) = self.places[volume.index()];
        let list = &self.by_device[device.index()];
        let n = list.len() - usize::from(own.is_some());
        let at = |i: usize| list[i + usize::from(own.is_some_and(|own| i >= own))];
        (n > 0).then(|| {
            let (low, high) = (at((n - 1) / 2), at(n / 2));
            (0.5 * (low.0 + high.0), 0.5 * (low.1 + high.1))
        })
    }
}

fn moving(facts: &Facts) -> Vec<bool> {
    let mut out = vec![false; facts.volumes.len()];
    facts
        .moves
        .iter()
        .for_each(|m| out[m.volume.index()] = true);
    out
}

/// Adds the last epoch, and sets the volume's sensitivity if there is none by injection.
pub(crate) fn absorb(
    switches: &Switches,
    facts: &Facts,
    policy: &Policy,
    slowness: &Slowness,
    volume: VolumeId,
    own: &mut VolumeState,
) {
    let wanted = match switches.sensitivity {
        SensitivitySource::Injected => false,
        SensitivitySource::Passive => true,
        // Injection is not allowed, or a session gave no line.
        SensitivitySource::InjectedElsePassive => {
            let injected = own
                .sensitivity
                .as_ref()
                .is_some_and(|s| s.origin == Origin::Injected);
            let under_way = facts.volumes[volume.index()].calibrating || !own.windows.is_empty();
            !policy.may_inject(volume) || (own.asked.is_some() && !injected && !under_way)
        }
    };
    if !wanted {
        own.passive = PassiveHistory::default();
        return;
    }
    let device = facts.volumes[volume.index()].device;
    if own.passive.device != Some(device) {
        own.passive = PassiveHistory {
            device: Some(device),
            epochs: VecDeque::new(),
        };
    }
    if let Some(epoch) = epoch(facts, slowness, volume) {
        if own.passive.epochs.len() == WINDOWS_MAX {
            own.passive.epochs.pop_front();
        }
        own.passive.epochs.push_back(epoch);
    }
    own.sensitivity = fit(&own.passive);
}

/// Returns the measurements of the last epoch; `None` if it cannot be used for this volume.
fn epoch(facts: &Facts, slowness: &Slowness, volume: VolumeId) -> Option<PassiveEpoch> {
    let v = &facts.volumes[volume.index()];
    let measured = v.measured.filter(|m| m.ios() >= IOS_MIN)?;
    // An injected delay would be in y, and so would a copy.
    let moved = facts.moves.iter().any(|m| m.volume == volume);
    if v.calibrating || !v.calibration.is_empty() || moved {
        return None;
    }
    // The queue of a full device delays all requests by the same time, however different their bare latencies: r is then no
    // factor.
    if super::predict::saturated(facts, volume) {
        return None;
    }
    let spec = &facts.topology.device(v.device).spec;
    let (r, excess_variance) = slowness.beside(volume)?;
    let flow = |flow: &Flow, op: Op| {
        let bare = spec.bare_latency_us(op, measured.mean_bytes(op));
        (flow.ios >= IOS_MIN_DIRECTION).then_some((bare, flow.latency.mean_us))
    };
    Some(PassiveEpoch {
        excess: r - 1.0,
        excess_variance,
        iops: measured.iops(),
        all: (bare_us(spec, &measured), measured.latency_mean_us()?),
        reads: flow(&measured.reads, Op::Read),
        writes: flow(&measured.writes, Op::Write),
    })
}

fn bare_us(spec: &DeviceSpec, m: &MeasuredLoad) -> f64 {
    let of = |op| spec.bare_latency_us(op, m.mean_bytes(op));
    m.read_share() * of(Op::Read) + (1.0 - m.read_share()) * of(Op::Write)
}

/// Returns measured over bare latency, and the variance of its error.
fn ratio(spec: &DeviceSpec, m: &MeasuredLoad) -> Option<(f64, f64)> {
    let bare = bare_us(spec, m);
    let deviation = |f: &Flow| ((f.latency.p95_us - f.latency.p50_us) / NORMAL_P95).max(0.0);
    let squares: f64 = [&m.reads, &m.writes]
        .map(|f| f.ios as f64 * deviation(f) * deviation(f))
        .iter()
        .sum();
    let ios = m.ios() as f64;
    let r = m.latency_mean_us()? / bare;
    (r.is_finite()).then(|| (r, squares / ios / ios / (bare * bare)))
}

/// Returns the lines; `None` with too few epochs or too little variation.
fn fit(history: &PassiveHistory) -> Option<Sensitivity> {
    let epochs = &history.epochs;
    let line = |of: &dyn Fn(&PassiveEpoch) -> Option<(f64, f64)>| {
        let used: Vec<(&PassiveEpoch, (f64, f64))> =
            epochs.iter().filter_map(|e| Some((e, of(e)?))).collect();
        corrected_line(&used)
    };
    let joint = line(&|e| Some(e.all))?;
    let (mut by_excess, n) = (Vec::from_iter(epochs), epochs.len());
    by_excess.sort_by(|a, b| a.excess.total_cmp(&b.excess));
    let rate =
        |part: &[&PassiveEpoch]| part.iter().map(|e| e.iops).sum::<f64>() / part.len() as f64;
    let third = n.div_ceil(3);
    let y_mean = epochs.iter().map(|e| e.all.1).sum::<f64>() / n as f64;
    Some(Sensitivity {
        joint,
        reads: line(&|e| e.reads),
        writes: line(&|e| e.writes),
        confidence: 1.0 - joint.sigma / y_mean,
        windows: n as u32,
        device: history.device?,
        rate_response: rate(&by_excess[n - third..]) / rate(&by_excess[..third]),
        origin: Origin::Passive,
        zero: 1.0,
    })
}

/// Returns the line of least squares, with the error of x removed from its variance.
fn corrected_line(epochs: &[(&PassiveEpoch, (f64, f64))]) -> Option<Line> {
    if epochs.len() < WINDOWS_MIN {
        return None;
    }
    let n = epochs.len() as f64;
    let points: Vec<(f64, f64)> = epochs
        .iter()
        .map(|(e, (bare, y))| (bare * e.excess, *y))
        .collect();
    let line = fit_line(&points)?;
    let bare = epochs.iter().map(|(_, (bare, _))| bare).sum::<f64>() / n;
    let variance = line.sxx / n;
    let error = epochs
        .iter()
        .map(|(e, (bare, _))| bare * bare * e.excess_variance)
        .sum::<f64>()
        / n;
    let reliability = 1.0 - error / variance;
    if variance.sqrt() < SPREAD_MIN * bare || reliability < RELIABILITY_MIN {
        return None;
    }
    let y_mean = line.at(line.x_mean);
    let slope = line.slope / reliability;
    Some(Line {
        slope,
        intercept: y_mean - slope * line.x_mean,
        // Only the true part of the variation is information.
        sxx: line.sxx * reliability,
        ..line
    })
}

#[cfg(test)]
mod tests;
