use model::{Objective, SloClass, SloStatistic};
use units::{ClassId, DeviceId, Nanos};

use super::super::TerraceConfig;
use super::super::history::{History, Sample};
use super::super::learned::LearnedValues;
use super::super::tests::array;
use super::super::view::View;
use super::*;
use crate::Context;

/// Weight for a class without an objective; other weights are those of classes with one.
const FREE: f64 = 0.0;

/// Returns the volume harmed by moves, in an array of two devices with volumes of these weights and shares of a device, the
/// last one on the second device.
fn harm(volumes: &[(f64, f64)], moves: &[(usize, usize)]) -> Option<usize> {
    let spec = model::preset("pm863").expect("a preset").spec();
    let whole = 1.0 / spec.occupancy_s(model::Op::Read, 4096.0);
    let rates: Vec<f64> = volumes.iter().map(|(_, share)| share * whole).collect();
    let mut facts = array(&rates);
    let class = |(weight, _): &(f64, f64)| SloClass {
        name: format!("weight {weight}"),
        weight: weight.max(1.0),
        target: (*weight > FREE).then_some(Objective {
            statistic: SloStatistic::Mean,
            latency: Nanos::from_micros(400),
        }),
        max_slowdown: Some(2.0),
    };
    facts.classes = volumes.iter().map(class).collect();
    for (v, volume) in facts.volumes.iter_mut().enumerate() {
        volume.class = ClassId::from_index(v);
    }
    let history = |rate: &f64| {
        let mut h = History::default();
        let sample = Sample {
            epoch: 0,
            iops: [*rate, 0.0],
            bytes: [4096.0; 2],
            stat_us: None,
            mean_us: None,
            outstanding: 1.0,
            held_up: false,
            disturbed: false,
        };
        h.push(sample, false, false);
        h
    };
    let known: Vec<History> = rates.iter().map(history).collect();
    let histories: Vec<&History> = known.iter().collect();
    let policy = model::Policy::default();
    let context = Context {
        facts: &facts,
        policy: &policy,
        seed: 1,
    };
    let (view, learned) = (View::whole(&facts), LearnedValues::default());
    let config = TerraceConfig::default();
    let search = Search::new(&context, &view, &histories, &learned, &config, 0.0);
    let moves: Vec<UnitMove> = moves
        .iter()
        .map(|(volume, to)| UnitMove {
            volume: *volume,
            to: DeviceId::from_index(*to),
        })
        .collect();
    search.harms(&search.at, &moves).map(|harm| harm.volume)
}

#[test]
fn volume_within_its_objective_is_not_sacrificed_for_an_equal() {
    // Alone it meets its objective; with the second volume the device is full.
    assert_eq!(harm(&[(2.0, 0.4), (2.0, 0.3)], &[(1, 0)]), None);
    assert_eq!(harm(&[(2.0, 0.4), (2.0, 0.9)], &[(1, 0)]), Some(0));
    // The second one violates its own objective on its present device: it must have a larger weight.
    assert_eq!(harm(&[(2.0, 0.4), (2.0, 1.5)], &[(1, 0)]), Some(0));
    assert_eq!(harm(&[(2.0, 0.4), (4.0, 1.5)], &[(1, 0)]), None);
}

#[test]
fn volume_without_an_objective_keeps_its_limit_at_any_weight() {
    assert_eq!(harm(&[(FREE, 0.4), (4.0, 0.1)], &[(1, 0)]), None);
    assert_eq!(harm(&[(FREE, 0.4), (4.0, 1.5)], &[(1, 0)]), Some(0));
}

#[test]
fn volume_that_makes_room_does_not_join_the_one_it_makes_room_for() {
    // In the end each has a device of its own; in the meantime both are on the full one.
    let exchange = [(1, 0), (0, 1)];
    assert_eq!(harm(&[(4.0, 0.2), (4.0, 1.5)], &exchange), None);
    assert_eq!(harm(&[(FREE, 0.2), (4.0, 1.5)], &exchange), Some(0));
}
