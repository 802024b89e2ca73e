//! What devices turned out to be, against what was told of them, and how well predictions did.

use std::collections::BTreeMap;

use model::{DeviceSpec, Facts, Op};
use serde::{Deserialize, Serialize};

use super::history::{CALM, REQUESTS_MIN, Sample};
use super::rates::RATES;

/// What an epoch keeps of what was known before.
const KEEPS: f64 = 0.8;
/// What the device's words count against what is measured, in epochs.
const PRIOR: f64 = 0.5;
/// Use of a device from which it says what it can do.
const USE_MIN: f64 = 0.03;
/// Nobody waits behind more requests than this.
const WAIT_MAX: f64 = 4096.0;

/// What is known of devices, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learned {
    devices: BTreeMap<String, DeviceLearned>,
    /// Squared logarithmic errors of predictions, and how many, decayed.
    errors: (f64, f64),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct DeviceLearned {
    /// Logarithms of measured over modelled latency, added up by weight, and the weight.
    latency: (f64, f64),
    /// The same of use.
    usage: (f64, f64),
}

fn factor((sum, weight): (f64, f64)) -> f64 {
    libm::exp(sum / (weight + PRIOR))
}

impl Learned {
    /// With the epoch that has just ended.
    pub(super) fn absorbed(&self, facts: &Facts) -> Self {
        let mut next = self.clone();
        for (d, device) in facts.topology.devices.iter().enumerate() {
            let copying = |m: &model::RunningMove| m.from.index() == d || m.to.index() == d;
            if facts.moves.iter().any(copying) {
                continue;
            }
            let rho = facts.devices[d].utilization;
            let (mut told, mut ratios, mut weights) = (0.0, 0.0, 0.0);
            for v in facts.volumes.iter().filter(|v| v.device.index() == d) {
                let Some(m) = v.measured else { continue };
                let sample = Sample::of(facts.epoch, &m);
                told += occupancy(&device.spec, &sample);
                if m.ios() < REQUESTS_MIN || v.calibrating || rho > CALM {
                    continue;
                }
                let plain = plain_mean_us(&device.spec, &sample, rho, f64::INFINITY);
                if let Some(mean) = sample.mean_us.filter(|us| *us > 0.0 && plain > 0.0) {
                    let weight = libm::sqrt(m.ios() as f64);
                    ratios += weight * libm::log(mean / plain).clamp(-2.0, 2.0);
                    weights += weight;
                }
            }
            let own = next.devices.entry(device.name.clone()).or_default();
            if weights > 0.0 {
                own.latency.0 = KEEPS * own.latency.0 + ratios / weights;
                own.latency.1 = KEEPS * own.latency.1 + 1.0;
            }
            if told > USE_MIN && rho > USE_MIN && rho < 0.95 {
                own.usage.0 = KEEPS * own.usage.0 + libm::log(rho / told).clamp(-2.0, 2.0);
                own.usage.1 = KEEPS * own.usage.1 + 1.0;
            }
        }
        next
    }

    fn of(&self, facts: &Facts, device: usize) -> DeviceLearned {
        let name = &facts.topology.devices[device].name;
        let own = self.devices.get(name).copied().unwrap_or_default();
        if own.latency.1 + own.usage.1 > 0.0 {
            return own;
        }
        // Nothing is known of it: what its tier's other devices turned out to be.
        let tier = facts.topology.devices[device].tier;
        let mut like = DeviceLearned::default();
        for other in facts.topology.devices.iter().filter(|o| o.tier == tier) {
            let of = self.devices.get(&other.name).copied().unwrap_or_default();
            like.latency = (like.latency.0 + of.latency.0, like.latency.1 + of.latency.1);
            like.usage = (like.usage.0 + of.usage.0, like.usage.1 + of.usage.1);
        }
        like
    }

    /// Measured over modelled latency of a device.
    pub(super) fn latency(&self, facts: &Facts, device: usize) -> f64 {
        factor(self.of(facts, device).latency)
    }

    /// Measured over told use.
    pub(super) fn usage(&self, facts: &Facts, device: usize) -> f64 {
        factor(self.of(facts, device).usage)
    }

    /// What came of a prediction: the logarithm of observed over predicted.
    pub(super) fn outcome(&mut self, error: f64) {
        self.errors.0 = 0.95 * self.errors.0 + error * error;
        self.errors.1 = 0.95 * self.errors.1 + 1.0;
    }

    /// Spread of predictions elsewhere.
    pub(super) fn sigma(&self) -> f64 {
        let prior = 3.0;
        let squares = self.errors.0 + prior * RATES.sigma_there * RATES.sigma_there;
        libm::sqrt(squares / (self.errors.1 + prior)).clamp(0.05, 1.0)
    }
}

/// Share of a device's time that a load takes, by what is told of it.
pub(super) fn occupancy(spec: &DeviceSpec, s: &Sample) -> f64 {
    s.iops[0] * spec.occupancy_s(Op::Read, s.bytes[0])
        + s.iops[1] * spec.occupancy_s(Op::Write, s.bytes[1])
}

/// Mean latency of a load on a device that is so busy, by what is told of it: the bare one on its load curve, and a wait for its turn
/// (Poisson arrivals, even service: Pollaczek and Khinchine), which stops growing where
/// all who wait for answers, `in_flight` requests of the device, do so.
pub(super) fn plain_mean_us(spec: &DeviceSpec, s: &Sample, rho: f64, in_flight: f64) -> f64 {
    let total = s.total();
    if total <= 0.0 {
        return 0.0;
    }
    let share = s.iops[0] / total;
    let bare = share * spec.bare_latency_us(Op::Read, s.bytes[0])
        + (1.0 - share) * spec.bare_latency_us(Op::Write, s.bytes[1]);
    let turn_us = occupancy(spec, s) / total * 1e6;
    let most = in_flight.min(WAIT_MAX);
    let wait = match rho < 0.995 {
        true => (rho / (2.0 * (1.0 - rho))).min(most),
        false => most,
    };
    bare * spec.curve.factor(rho.min(1.0)) + turn_us * wait
}

/// The same by what the device turned out to be.
pub(super) fn model_mean_us(
    facts: &Facts,
    device: usize,
    sample: &Sample,
    rho: f64,
    in_flight: f64,
    learned: &Learned,
) -> f64 {
    let spec = &facts.topology.devices[device].spec;
    plain_mean_us(spec, sample, rho, in_flight) * learned.latency(facts, device)
}
