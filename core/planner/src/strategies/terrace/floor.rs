//! Floor of predictions: a volume is not predicted to be faster on a device than comparable volumes measure there now.
//!
//! ```text
//!  comparable   both mostly reads or both mostly writes; mean sizes of requests in the same or in adjacent classes, which are powers of
//!               two: below a factor of 4
//!  floor        least mean latency of a comparable volume on the device, by pattern, in epochs without copies; or less, if a completed
//!               move of a comparable volume measured less there
//!  scaled       × bare latency of this load / of that load, if below 1; × modelled latency after the plan / now, if below 1: a plan may
//!               relieve the device
//!  host         least excess of measured over modelled latency, over all volumes of at least two kinds of devices: the part that
//!               every device of the array has, such as the time of the host's processors; no prediction is below the model plus that
//! ```
//!
//! The work is one entry per volume and pattern to build, and one look-up per prediction.

use std::collections::BTreeMap;

use model::DeviceSpec;
use serde::{Deserialize, Serialize};

use super::history::Sample;
use super::latency::{DeviceLoad, Latency, Load, Wait};

/// Number of size classes of requests. The first begins at `SMALLEST` bytes, each other at twice the size of the previous
/// one.
const SIZES: usize = 14;
const SMALLEST: f64 = 512.0;
/// Classes of loads: reads and writes, by size.
const CLASSES: usize = 2 * SIZES;
/// Monitor epochs for which the outcome of a completed move counts.
const LANDED_EPOCHS: u64 = 80;
/// Kinds of devices that must measure an excess before it counts as the host's.
const KINDS_MIN: usize = 2;

/// Class of a load, by its dominant operation and the mean size of its requests.
fn class(load: &Load) -> usize {
    let writes = usize::from(load.iops[1] > load.iops[0]);
    let bytes = load.iops[0] * load.bytes[0] + load.iops[1] * load.bytes[1];
    let times = (bytes / load.total().max(1e-9) / SMALLEST).max(1.0);
    // The position of the highest bit needs no logarithm.
    let size = (times as u64).ilog2() as usize;
    writes * SIZES + size.min(SIZES - 1)
}

/// Latency of a load on the idle device, microseconds.
fn bare_us(spec: &DeviceSpec, load: &Load) -> f64 {
    Latency::of(spec, load, 0.0, Wait::default()).mean_us
}

/// Lowest latency of a class on a device.
#[derive(Debug, Clone, Copy)]
struct Least {
    mean_us: f64,
    /// Modelled latency of its load on the idle device.
    bare_us: f64,
}

/// Outcomes of completed moves, by name of the device and class: the newest of each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct MoveOutcomes(BTreeMap<String, BTreeMap<usize, Sample>>);

impl MoveOutcomes {
    /// Records the measurement of a volume after its move to a device.
    pub(super) fn note(&mut self, device: &str, sample: &Sample) {
        let known = self.0.entry(device.into()).or_default();
        known.retain(|_, s| sample.epoch.saturating_sub(s.epoch) <= LANDED_EPOCHS);
        known.insert(class(&sample.load()), *sample);
    }
}

/// Floors of all devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Floors {
    patterns: usize,
    /// Least latency by device, pattern and class.
    least: Vec<Option<Least>>,
    /// Measured load of each device in each pattern.
    busy: Vec<DeviceLoad>,
    /// Least excess over the model, by kind of device.
    excess_us: BTreeMap<usize, f64>,
    /// Latency that every device adds to its model.
    host_us: f64,
}

impl Floors {
    /// Creates an empty collection for this number of devices and patterns.
    pub(super) fn new(devices: usize, patterns: usize) -> Self {
        Self {
            patterns,
            least: vec![None; devices * patterns * CLASSES],
            busy: vec![DeviceLoad::default(); devices * patterns],
            ..Self::default()
        }
    }

    /// Records the measured load of a device in a pattern.
    pub(super) fn see_device(&mut self, d: usize, p: usize, busy: DeviceLoad) {
        self.busy[d * self.patterns + p] = busy;
    }

    /// Records the mean latency that a volume measures on its device, of this kind, in a pattern, and the modelled latency.
    pub(super) fn see(
        &mut self,
        (d, p, kind): (usize, usize, usize),
        spec: &DeviceSpec,
        load: &Load,
        mean_us: f64,
        model: &Latency,
    ) {
        self.lower((d, p), spec, load, mean_us, true);
        let excess_us = self.excess_us.entry(kind).or_insert(f64::INFINITY);
        *excess_us = excess_us.min(mean_us - model.mean_us);
    }

    /// Ends the collection, with the outcomes of moves: they lower floors and create none.
    pub(super) fn settle(&mut self, devices: &[model::Device], landed: &MoveOutcomes, epoch: u64) {
        if self.excess_us.len() >= KINDS_MIN {
            let least_us = self
                .excess_us
                .values()
                .fold(f64::INFINITY, |a, b| a.min(*b));
            self.host_us = least_us.max(0.0);
        }
        for (d, device) in devices.iter().enumerate() {
            let outcomes = landed.0.get(&device.name).into_iter().flatten();
            for (_, sample) in outcomes {
                let recent = epoch.saturating_sub(sample.epoch) <= LANDED_EPOCHS;
                let Some(mean_us) = sample.mean_us.filter(|_| recent) else {
                    continue;
                };
                for p in 0..self.patterns {
                    self.lower((d, p), &device.spec, &sample.load(), mean_us, false);
                }
            }
        }
    }

    /// Lowers the floors of comparable loads. With `creates`, a class without a floor gets one.
    fn lower(
        &mut self,
        (d, p): (usize, usize),
        spec: &DeviceSpec,
        load: &Load,
        mean_us: f64,
        creates: bool,
    ) {
        let own = class(load);
        let size = own % SIZES;
        let found = Least {
            mean_us,
            bare_us: bare_us(spec, load),
        };
        let first = (d * self.patterns + p) * CLASSES + own - size;
        let near = size.saturating_sub(1)..=(size + 1).min(SIZES - 1);
        for least in &mut self.least[first..][near] {
            match least {
                Some(known) if mean_us < known.mean_us => *known = found,
                None if creates => *least = Some(found),
                Some(_) | None => {}
            }
        }
    }

    /// Returns a prediction for a load on another device, raised to the floor. `model` is the modelled latency on the device
    /// after the plan, and `modelled` computes it for another load of the device.
    pub(super) fn raised(
        &self,
        (d, p): (usize, usize),
        spec: &DeviceSpec,
        load: &Load,
        latency: Latency,
        model: &Latency,
        modelled: impl Fn(&DeviceLoad) -> Latency,
    ) -> Latency {
        // A device may be faster than its model, unless every kind of device is slower.
        let with_host_us = match self.host_us > 0.0 {
            true => model.mean_us + self.host_us,
            false => 0.0,
        };
        let at_least = |us: f64| Latency {
            mean_us: latency.mean_us.max(with_host_us).max(us),
            ..latency
        };
        let at = d * self.patterns + p;
        let least = self.least.get(at * CLASSES + class(load)).copied();
        let Some(least) = least.flatten().filter(|l| l.mean_us > latency.mean_us) else {
            return at_least(0.0);
        };
        let lighter = (bare_us(spec, load) / least.bare_us.max(1e-3)).min(1.0);
        let now_us = modelled(&self.busy[at]).mean_us;
        let relieved = (model.mean_us / now_us.max(1e-3)).min(1.0);
        at_least(least.mean_us * lighter * relieved)
    }
}

#[cfg(test)]
mod tests;
