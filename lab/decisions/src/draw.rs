//! Variation of a scenario by a seed: other classes, starting places, phases and rates, so no strategy is judged by one
//! example.

use std::collections::BTreeSet;

use algo::Rng;
use config::resolve_topology;
use config::scenario::Scenario;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sim::ScenarioFile;
use units::{Iops, Nanos};

/// Spread of a client's rate: sigma of a log-normal factor.
const RATE_SIGMA: f64 = 0.15;
/// Spread of the speed of traces.
const SPEED_SIGMA: f64 = 0.05;
/// Largest relative change of the first phase of clients; one draw for all clients, so they stay in step.
const PHASE_SHIFT: f64 = 0.3;
/// Largest relative change of the time between bursts.
const BURST_SHIFT: f64 = 0.15;
/// Largest delay of the start of traces; one draw for all traces.
const START_MAX: Nanos = Nanos::from_secs(60);
/// Number of draws of starting places before the scenario's own are kept.
const PLACES_TRIED: u32 = 64;

/// Part of a scenario that no seed changes, because it is the purpose of the scenario.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FixedParameter {
    /// Classes of volumes.
    Class,
    /// Starting places of volumes.
    Place,
    /// Times at which loads change.
    Phase,
    /// Request rates.
    Rate,
}

/// Returns the scenario of a seed: a pure function of its text, the fixed parts, and the seed.
///
/// These values are drawn: a permutation of the classes among volumes, a tier with room for each volume, a common shift of
/// the first phase, of bursts and of the starts of traces, and a log-normal factor of each rate (think times by its
/// inverse). Volumes and loads of `[[measurements]]` are not known here: their classes are permuted, and the simulator
/// places them.
pub fn draw(file: &ScenarioFile, fixed: &BTreeSet<FixedParameter>, seed: u64) -> ScenarioFile {
    let mut drawn = file.clone();
    let s = &mut drawn.scenario;
    s.seed = seed;
    if !fixed.contains(&FixedParameter::Class) {
        classes(s, &mut Rng::new(seed, 1));
    }
    if !fixed.contains(&FixedParameter::Phase) {
        phases(s, &mut Rng::new(seed, 2));
    }
    if !fixed.contains(&FixedParameter::Rate) {
        rates(s, &mut Rng::new(seed, 3));
    }
    if !fixed.contains(&FixedParameter::Place) {
        places(&mut drawn, &mut Rng::new(seed, 4));
    }
    drawn
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for i in (1..items.len()).rev() {
        let j = rng.below(i as u64 + 1) as usize;
        items.swap(i, j);
    }
}

fn classes(s: &mut Scenario, rng: &mut Rng) {
    let mut dealt: Vec<Option<String>> = s.volumes.iter().map(|v| v.class.clone()).collect();
    shuffle(&mut dealt, rng);
    for (volume, class) in s.volumes.iter_mut().zip(dealt) {
        volume.class = class;
    }
    for m in &mut s.measurements {
        shuffle(&mut m.classes, rng);
    }
}

/// Returns a number between 1 − most and 1 + most.
fn around_one(most: f64, rng: &mut Rng) -> f64 {
    1.0 + most * (2.0 * rng.unit() - 1.0)
}

fn times(t: Nanos, factor: f64) -> Nanos {
    Nanos((t.0 as f64 * factor).round() as u64)
}

fn phases(s: &mut Scenario, rng: &mut Rng) {
    let (first, between) = (around_one(PHASE_SHIFT, rng), around_one(BURST_SHIFT, rng));
    let start = times(START_MAX, rng.unit());
    for c in &mut s.clients {
        if let [head, .., tail] = c.phases.as_mut_slice() {
            let both = head.duration.0 + tail.duration.0;
            // The length of the cycle stays the same: one phase gets the time that the other loses.
            let longest = both.saturating_sub(s.window.0).max(1);
            head.duration = Nanos(times(head.duration, first).0.clamp(1, longest));
            tail.duration = Nanos(both - head.duration.0);
        }
        if let Some(bursts) = &mut c.bursts {
            bursts.every = times(bursts.every, between).max(bursts.length);
        }
    }
    for t in &mut s.traces {
        t.start = Nanos(t.start.0 + start.0);
    }
}

fn rates(s: &mut Scenario, rng: &mut Rng) {
    for c in &mut s.clients {
        let factor = libm::exp(RATE_SIGMA * rng.normal());
        let habits = c.phases.iter_mut().map(|p| &mut p.habits);
        for h in habits.chain([&mut c.habits]) {
            h.rate = h.rate.map(|r| Iops(r.0 * factor));
            h.think = h.think.map(|t| times(t, 1.0 / factor));
        }
    }
    // One draw for all traces: those of one recording stay in step.
    let factor = libm::exp(SPEED_SIGMA * rng.normal());
    for t in &mut s.traces {
        t.speed *= factor;
        // Slightly more, so rounding cannot make it shorter than the replay.
        t.period = t.period.map(|p| times(p, 1.001 / factor));
    }
}

/// Draws a random tier with room for every volume, also for volumes with a given tier, but not for those bound to a device.
fn places(file: &mut ScenarioFile, rng: &mut Rng) {
    let own: Vec<Option<String>> = file
        .scenario
        .volumes
        .iter()
        .map(|v| v.tier.clone())
        .collect();
    let Ok(topology) = resolve_topology(&file.source, &file.scenario.tiers) else {
        return; // building the scenario reports the fault
    };
    for _ in 0..PLACES_TRIED {
        let volumes = &mut file.scenario.volumes;
        for v in volumes.iter_mut().filter(|v| v.device.is_none()) {
            let tier = &topology.tiers[rng.below(topology.tiers.len() as u64) as usize];
            v.tier = Some(tier.name.clone());
        }
        if file.places_fit(&topology) {
            return;
        }
    }
    for (volume, tier) in file.scenario.volumes.iter_mut().zip(own) {
        volume.tier = tier;
    }
}
