//! Learnt corrections of device models, copy speeds, and errors of predictions.

use std::collections::BTreeMap;

use model::{DeviceSpec, Facts, Flow, MeasuredLoad, Op, VolumeFacts};
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::floor::MoveOutcomes;
use super::history::{CALM, REQUESTS_MIN, Sample};
use super::latency::{Arrivals, DeviceLoad, Latency, Use};
use super::residuals::{Cell, Residuals};
use super::view::{is_rest, kept_under};

/// Weight that earlier knowledge keeps after one more epoch.
const KEEPS: f64 = 0.8;
/// Weight of the device's specification relative to measurements, in epochs.
const PRIOR: f64 = 0.5;
/// Use of a device from which its measurements count.
const USE_MIN: f64 = 0.03;
/// Weight that earlier copy speeds keep after one more copy.
const COPY_KEEPS: f64 = 0.7;
/// Initial share of the planned rate that copies reach, by [`Pace`].
const COPY_PRIOR: [f64; 3] = [0.95, 0.7, 0.3];
/// Initial ratios of waiting to that of an open queue: behind requests of other volumes, and behind the volume's own
/// requests, which most volumes do not issue at random.
const WAITS_PRIOR: [f64; 2] = [0.7, 0.4];
/// Weight of the prior in observations, and weight that earlier knowledge keeps after one more epoch.
const WAITS_WEIGHT: f64 = 3.0;
const WAITS_KEEP: f64 = 0.9;
/// Largest ratio of waiting to that of an open queue.
const WAITS_MAX: f64 = 2.0;
/// Share of all waiting from which other volumes count as its cause.
const OTHERS_MIN: f64 = 0.8;
/// Waiting time below which no ratio is learnt, seconds.
const WAITED_MIN_S: f64 = 5e-6;
/// Use of a device up to which at least half of all requests do not wait.
const MEDIAN_MAX: f64 = 0.5;

/// Learnt values of devices, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LearnedValues {
    devices: BTreeMap<String, DeviceLearned>,
    /// Weighted sum of the ratio of waiting behind other volumes to that of an open queue, and the weight; `own` has the
    /// same for waiting behind the volume's own requests.
    others: (f64, f64),
    own: (f64, f64),
    /// Decayed sum of squared logarithmic errors of predictions, and their number.
    errors: (f64, f64),
    residuals: Residuals,
    /// Copies under way, by volume; pieces of a rest have one name.
    copies: BTreeMap<String, CopyUnderWay>,
    /// Logarithms of reached over planned speed, by [`Pace`].
    speeds: [Option<f64>; 3],
    /// Outcomes of completed moves.
    pub(super) landed: MoveOutcomes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct DeviceLearned {
    /// Weighted sum of logarithms of measured over modelled latency, and the weight.
    latency: (f64, f64),
    /// The same sums for the use of the device.
    usage: (f64, f64),
}

/// Ordered copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CopyUnderWay {
    /// Name of the target device.
    to: String,
    /// Time at which the copy was first seen under way.
    begun: Option<Nanos>,
    /// Seconds that the copy takes at the planned rate.
    planned_s: f64,
    #[serde(default)]
    pace: Pace,
}

/// Condition that slows a copy down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Pace {
    /// None.
    #[default]
    Calm,
    /// A volume on one of its devices violates an objective.
    Strained,
    /// One of its devices is full.
    Full,
}

/// Condition of a device in the last epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceNow {
    /// Load by its measured use.
    pub busy: DeviceLoad,
    /// True if a copy from or to the device ran.
    pub disturbed: bool,
    /// Present estimate of measured over predicted latency; `usage` is the same for the use of the device.
    pub slower: f64,
    pub usage: f64,
}

/// Returns measured over predicted latency of a volume's device; `None` if it is unknown. If at least half of all requests
/// do not wait, it compares medians: waiting behind the volume's own requests is not a property of the device.
fn slower(
    spec: &DeviceSpec,
    m: &MeasuredLoad,
    busy: &DeviceLoad,
    learned: &LearnedValues,
) -> Option<f64> {
    let each = [(Op::Read, &m.reads), (Op::Write, &m.writes)];
    let known = |f: &Flow| f.ios > 0 && f.latency.p50_us > 0.0;
    if busy.rho <= MEDIAN_MAX && each.iter().any(|(_, f)| known(f)) {
        let (mut logs, mut ios) = (0.0, 0.0);
        for (op, f) in each.iter().filter(|(_, f)| known(f)) {
            let predicted = Latency::median_us(spec, *op, m.mean_bytes(*op), busy.rho);
            logs += f.ios as f64 * libm::log(f.latency.p50_us / predicted);
            ios += f.ios as f64;
        }
        return Some(libm::exp(logs / ios));
    }
    let load = Sample::of(0, m).load();
    let own = Use::of(spec, &load, m.outstanding.max(1.0), 1.0);
    let wait = busy.wait(&own, &learned.arrivals(None));
    let plain = Latency::of(spec, &load, busy.rho, wait).mean_us;
    let mean = m.latency_mean_us()?;
    (mean > 0.0 && plain > 0.0).then(|| mean / plain)
}

/// Returns the lower median by weight: one volume whose requests wait for each other does not make a device slow.
fn median(mut of: Vec<(f64, f64)>) -> Option<f64> {
    of.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = of.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let reached = |(value, weight): (f64, f64)| {
        below += weight;
        (below >= half).then_some(value)
    };
    of.into_iter().find_map(reached)
}

/// Returns the mean of a sum and its prior.
fn waits((sum, weight): (f64, f64), prior: f64) -> f64 {
    ((sum + WAITS_WEIGHT * prior) / (weight + WAITS_WEIGHT)).clamp(0.0, WAITS_MAX)
}

fn factor((sum, weight): (f64, f64)) -> f64 {
    libm::exp(sum / (weight + PRIOR))
}

impl LearnedValues {
    /// Returns the state after the last epoch, and the devices' condition in it.
    pub(super) fn absorbed(&self, facts: &Facts) -> (Self, Vec<DeviceNow>) {
        let mut next = self.clone();
        next.look_at_copies(facts);
        for of in [&mut next.others, &mut next.own] {
            *of = (WAITS_KEEP * of.0, WAITS_KEEP * of.1);
        }
        let mut by_device: Vec<Vec<usize>> = vec![vec![]; facts.topology.devices.len()];
        for (i, v) in facts.volumes.iter().enumerate() {
            by_device[v.device.index()].push(i);
        }
        let mut now = Vec::with_capacity(by_device.len());
        for (d, (device, on)) in facts.topology.devices.iter().zip(&by_device).enumerate() {
            let measured = || {
                let volumes = on.iter().map(|i| &facts.volumes[*i]);
                volumes.filter_map(|v| Some((v, v.measured?)))
            };
            let copying = |m: &model::RunningMove| m.from.index() == d || m.to.index() == d;
            let lately = |at: Nanos, window: Nanos| facts.at.saturating_sub(at) < window;
            let disturbed = facts.moves.iter().any(copying)
                || measured().any(|(v, m)| v.last_moved.is_some_and(|at| lately(at, m.window)));
            let rho = facts.devices[d].utilization;
            let uses: Vec<Use> = measured()
                .map(|(_, m)| {
                    let load = Sample::of(facts.epoch, &m).load();
                    Use::of(&device.spec, &load, m.outstanding.max(1.0), 1.0)
                })
                .collect();
            let predicted: f64 = uses.iter().map(|u| u.share).sum();
            // Scaled as in forecasts.
            let usage = self.usage(facts, d);
            let uses = uses.iter().map(|u| u.on_slower(usage));
            let busy = DeviceLoad::of(uses, rho - usage * predicted);
            now.push(DeviceNow {
                busy,
                disturbed,
                slower: 1.0,
                usage,
            });
            if facts.moves.iter().any(copying) {
                continue;
            }
            let mut ratios = vec![];
            for (v, m) in measured() {
                if m.ios() < REQUESTS_MIN || v.calibrating || rho > CALM {
                    continue;
                }
                let by = slower(&device.spec, &m, &busy, &next);
                let weight = libm::sqrt(m.ios() as f64);
                ratios.extend(by.map(|by| (libm::log(by).clamp(-2.0, 2.0), weight)));
            }
            let own = next.devices.entry(device.name.clone()).or_default();
            if let Some(ratio) = median(ratios) {
                own.latency.0 = KEEPS * own.latency.0 + ratio;
                own.latency.1 = KEEPS * own.latency.1 + 1.0;
            }
            if predicted > USE_MIN && rho > USE_MIN && rho < 0.95 {
                own.usage.0 = KEEPS * own.usage.0 + libm::log(rho / predicted).clamp(-2.0, 2.0);
                own.usage.1 = KEEPS * own.usage.1 + 1.0;
            }
        }
        for (d, now) in now.iter_mut().enumerate() {
            now.slower = next.latency(facts, d);
        }
        (next, now)
    }

    fn of(&self, facts: &Facts, device: usize) -> DeviceLearned {
        let name = &facts.topology.devices[device].name;
        let own = self.devices.get(name).copied().unwrap_or_default();
        if own.latency.1 + own.usage.1 > 0.0 {
            return own;
        }
        // Without own measurements, use those of the other devices of the tier.
        let tier = facts.topology.devices[device].tier;
        let mut like = DeviceLearned::default();
        for other in facts.topology.devices.iter().filter(|o| o.tier == tier) {
            let of = self.devices.get(&other.name).copied().unwrap_or_default();
            like.latency = (like.latency.0 + of.latency.0, like.latency.1 + of.latency.1);
            like.usage = (like.usage.0 + of.usage.0, like.usage.1 + of.usage.1);
        }
        like
    }

    /// Returns measured over modelled latency of a device.
    pub(super) fn latency(&self, facts: &Facts, device: usize) -> f64 {
        factor(self.of(facts, device).latency)
    }

    /// Returns measured over predicted use of a device.
    pub(super) fn usage(&self, facts: &Facts, device: usize) -> f64 {
        factor(self.of(facts, device).usage)
    }

    /// Returns the arrivals of a volume's requests. `queue` is the number of its own requests that one of them waits behind,
    /// if known.
    pub(super) fn arrivals(&self, queue: Option<f64>) -> Arrivals {
        Arrivals {
            others: waits(self.others, WAITS_PRIOR[0]),
            own: waits(self.own, WAITS_PRIOR[1]),
            queue,
        }
    }

    /// Learns from the waiting time of a volume's requests on a device. Returns the number of its own requests that one of
    /// them waited behind.
    pub(super) fn waited(&mut self, busy: &DeviceLoad, own: &Use, waits_s: f64) -> f64 {
        let (others_s, own_s) = (busy.behind_others_s(own), busy.open_s(own.residual_s));
        let add = |of: &mut (f64, f64), ratio: f64| {
            *of = (of.0 + ratio.clamp(0.0, WAITS_MAX), of.1 + 1.0);
        };
        if others_s > OTHERS_MIN * (others_s + own_s) && others_s > WAITED_MIN_S {
            add(&mut self.others, waits_s / others_s);
        }
        let behind_s = (waits_s - waits(self.others, WAITS_PRIOR[0]) * others_s).max(0.0);
        if own_s > WAITED_MIN_S {
            add(&mut self.own, behind_s / own_s);
        }
        behind_s * own.share / own.residual_s.max(1e-18)
    }

    /// Returns the bounds of a prediction for another device, as factors.
    pub(super) fn factors(&self, cell: &Cell) -> (f64, f64) {
        self.residuals.bounds(cell, 1.0)
    }

    /// Adds the error of a prediction: the logarithm of observed over predicted.
    pub(super) fn outcome(&mut self, error: f64, cell: &Cell) {
        self.residuals.add(cell, error);
        self.errors.0 = 0.95 * self.errors.0 + error * error;
        self.errors.1 = 0.95 * self.errors.1 + 1.0;
    }

    /// Returns the spread of predictions for other devices.
    pub(super) fn sigma(&self, at_first: f64) -> f64 {
        let prior = 3.0;
        let squares = self.errors.0 + prior * at_first * at_first;
        libm::sqrt(squares / (self.errors.1 + prior)).clamp(0.05, 1.0)
    }

    /// Records an ordered copy that would take `planned_s` seconds at the planned rate.
    pub(super) fn asked_for(&mut self, volume: &str, to: &str, planned_s: f64, pace: Pace) {
        let copy = CopyUnderWay {
            to: to.into(),
            begun: None,
            planned_s,
            pace,
        };
        self.copies.insert(volume.into(), copy);
    }

    /// Returns the share of the planned rate that copies reach.
    pub(super) fn speed(&self, pace: Pace) -> f64 {
        let known = self.speeds[pace as usize];
        known.map_or(COPY_PRIOR[pace as usize], libm::exp)
    }

    /// Returns the largest share of all paces.
    pub(super) fn fastest(&self) -> f64 {
        let of = [Pace::Calm, Pace::Strained, Pace::Full].map(|pace| self.speed(pace));
        of.into_iter().fold(0.0, f64::max)
    }

    /// Returns the remaining seconds of a copy under way; `None` for an unknown copy.
    pub(super) fn left_s(&self, volume: &str, now: Nanos) -> Option<f64> {
        let copy = self.copies.get(volume)?;
        let begun = copy.begun.unwrap_or(now);
        let whole_s = copy.planned_s / self.speed(copy.pace);
        Some((whole_s - now.saturating_sub(begun).as_secs_f64()).max(0.2 * whole_s))
    }

    fn look_at_copies(&mut self, facts: &Facts) {
        if self.copies.is_empty() {
            return;
        }
        let speed = &mut self.speeds;
        self.copies.retain(|name, copy| {
            let mine = |v: &VolumeFacts| kept_under(&v.name) == name;
            let Some(volume) = facts.volumes.iter().find(|v| mine(v)) else {
                return false;
            };
            let moving = |m: &model::RunningMove| mine(&facts.volumes[m.volume.index()]);
            if facts.moves.iter().any(moving) {
                copy.begun.get_or_insert(facts.at);
                return true;
            }
            let there = facts.topology.device(volume.device).name == copy.to;
            let arrived = there || is_rest(name);
            let ended = volume.last_moved.filter(|at| copy.begun <= Some(*at));
            let (Some(begun), Some(ended), true) = (copy.begun, ended, arrived) else {
                // Keeps a copy that has not begun yet, unless another plan came.
                return copy.begun.is_none() && !there;
            };
            // It began at a random time in the epoch before it was first seen.
            let window = volume.measured.map_or(0.0, |m| m.window.as_secs_f64());
            let took_s = ended.saturating_sub(begun).as_secs_f64() + 0.5 * window;
            let reached = (copy.planned_s / took_s.max(0.1)).clamp(0.02, 1.5);
            let of = &mut speed[copy.pace as usize];
            let before = of.unwrap_or(libm::log(COPY_PRIOR[copy.pace as usize]));
            *of = Some(COPY_KEEPS * before + (1.0 - COPY_KEEPS) * libm::log(reached));
            false
        });
    }
}
