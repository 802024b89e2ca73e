//! What a seed makes of a scenario: other classes, starting places, phases and rates, so that no strategy is judged by one example.

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
/// By how much the first phase of clients is longer or shorter, as a share; one draw for all of them, so that they keep step.
const PHASE_SHIFT: f64 = 0.3;
/// By how much the time between bursts is longer or shorter.
const BURST_SHIFT: f64 = 0.15;
/// Traces begin later by up to so much; one draw for all of them.
const START_MAX: Nanos = Nanos::from_secs(60);
/// Draws of starting places before the scenario's own are kept.
const PLACES_TRIED: u32 = 64;

/// What of a scenario is the point of it, so that no seed changes it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Fixed {
    /// Which volumes are of which class.
    Class,
    /// Where volumes begin.
    Place,
    /// When loads change.
    Phase,
    /// How much is asked for.
    Rate,
}

/// The scenario of a seed: a pure function of its words, what is fixed, and the seed.
///
/// Drawn are a permutation of the classes among volumes, a tier with room for each volume, a common shift of the first phase, of bursts
/// and of traces' beginnings, and a log-normal factor on each rate (think times by its inverse). Volumes and loads of `[[measurements]]` are
/// not known here: their classes are dealt in another order, and they begin where the simulator puts them.
pub fn draw(file: &ScenarioFile, fixed: &BTreeSet<Fixed>, seed: u64) -> ScenarioFile {
    let mut drawn = file.clone();
    let s = &mut drawn.scenario;
    s.seed = seed;
    if !fixed.contains(&Fixed::Class) {
        classes(s, &mut Rng::new(seed, 1));
    }
    if !fixed.contains(&Fixed::Phase) {
        phases(s, &mut Rng::new(seed, 2));
    }
    if !fixed.contains(&Fixed::Rate) {
        rates(s, &mut Rng::new(seed, 3));
    }
    if !fixed.contains(&Fixed::Place) {
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

/// Between 1 − most and 1 + most.
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
            // The cycle stays as long as it is: what the one gets the other gives.
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
    // One draw for all traces: those of one recording keep step.
    let factor = libm::exp(SPEED_SIGMA * rng.normal());
    for t in &mut s.traces {
        t.speed *= factor;
        // A little more, so that no rounding makes it shorter than the replay.
        t.period = t.period.map(|p| times(p, 1.001 / factor));
    }
}

/// A random tier with room for every volume whose scenario names one or leaves it open, but not for those bound to a device.
fn places(file: &mut ScenarioFile, rng: &mut Rng) {
    let own: Vec<Option<String>> = file
        .scenario
        .volumes
        .iter()
        .map(|v| v.tier.clone())
        .collect();
    let Ok(topology) = resolve_topology(&file.source, &file.scenario.tiers) else {
        return; // the one who builds it says what is wrong
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
