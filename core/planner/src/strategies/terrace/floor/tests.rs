use model::Facts;
use units::{DeviceId, TierId};

use super::super::TerraceConfig;
use super::super::forecast::Forecast;
use super::super::history::History;
use super::super::learned::LearnedValues;
use super::super::rates::Part;
use super::super::tests::array;
use super::*;

/// Returns a sample of these requests per second with these bytes each, reads or writes, and this mean latency.
fn sample(iops: [f64; 2], bytes: f64, mean_us: f64) -> Sample {
    Sample {
        epoch: 0,
        iops,
        bytes: [bytes; 2],
        stat_us: Some(mean_us),
        mean_us: Some(mean_us),
        outstanding: 1.0,
        held_up: false,
        disturbed: false,
    }
}

fn histories(samples: &[Sample]) -> Vec<History> {
    let of = |sample: &Sample| {
        let mut h = History::default();
        h.push(*sample, false, false);
        h
    };
    samples.iter().map(of).collect()
}

/// Returns the predicted mean latency of a volume on a device with these volumes, microseconds.
fn predicted_us(
    facts: &Facts,
    samples: &[Sample],
    learned: &LearnedValues,
    config: &TerraceConfig,
    (v, d, there): (usize, usize, &[usize]),
) -> f64 {
    let known = histories(samples);
    let known: Vec<&History> = known.iter().collect();
    let forecast = Forecast::new(facts, &known, learned, config);
    let p = forecast.newest();
    let busy = forecast.busy(d, p, there, 0.0);
    let beside = forecast.beside(v, d, p, &busy);
    beside.expect("it has requests").latency.mean_us
}

/// Returns the prediction for the second volume, reads of 4 KiB that take 400 µs, next to the first one on the first device.
fn beside_us(first: Sample, learned: &LearnedValues, config: &TerraceConfig) -> f64 {
    let facts = array(&[first.total(), 100.0]);
    let samples = [first, sample([100.0, 0.0], 4096.0, 400.0)];
    predicted_us(&facts, &samples, learned, config, (1, 0, &[0, 1]))
}

#[test]
fn prediction_is_at_least_that_measured_by_comparable_volumes() {
    let (none, config) = (LearnedValues::default(), TerraceConfig::default());
    let slow = sample([200.0, 0.0], 4096.0, 7000.0);
    let without = TerraceConfig {
        without: vec![Part::Floor],
        ..TerraceConfig::default()
    };
    let model_us = beside_us(slow, &none, &without);
    assert!(model_us < 300.0, "{model_us}");
    let us = beside_us(slow, &none, &config);
    assert!((us - 7000.0).abs() < 1.0, "{us}");
    // Writes and requests of 64 KiB are not comparable.
    let writes = sample([0.0, 200.0], 4096.0, 7000.0);
    let large = sample([200.0, 0.0], 65_536.0, 7000.0);
    for other in [writes, large] {
        let us = beside_us(other, &none, &config);
        assert!(us < 300.0, "{us} beside {other:?}");
    }
    // 7 KiB are comparable, and take longer on the idle device.
    let us = beside_us(sample([200.0, 0.0], 7168.0, 7000.0), &none, &config);
    assert!((6700.0..7000.0).contains(&us), "{us}");
    // Few requests are no measurement.
    let few = sample([0.1, 0.0], 4096.0, 7000.0);
    assert!(beside_us(few, &none, &config) < 300.0);
    // A copy disturbed the measurement.
    let disturbed = Sample {
        disturbed: true,
        ..slow
    };
    assert!(beside_us(disturbed, &none, &config) < 300.0);
}

#[test]
fn floor_is_the_least_of_several_volumes() {
    let facts = array(&[200.0, 200.0, 100.0]);
    let samples = [
        sample([200.0, 0.0], 4096.0, 7000.0),
        sample([200.0, 0.0], 4096.0, 900.0),
        sample([100.0, 0.0], 4096.0, 400.0),
    ];
    let (none, config) = (LearnedValues::default(), TerraceConfig::default());
    let us = predicted_us(&facts, &samples, &none, &config, (2, 0, &[0, 1, 2]));
    assert!((us - 900.0).abs() < 1.0, "{us}");
}

#[test]
fn completed_move_of_a_comparable_volume_lowers_the_floor() {
    let config = TerraceConfig::default();
    let slow = sample([200.0, 0.0], 4096.0, 7000.0);
    let mut learned = LearnedValues::default();
    learned
        .landed
        .note("a", &sample([0.0, 50.0], 4096.0, 500.0));
    let us = beside_us(slow, &learned, &config);
    assert!((us - 7000.0).abs() < 1.0, "writes landed: {us}");
    learned
        .landed
        .note("a", &sample([50.0, 0.0], 4096.0, 500.0));
    let us = beside_us(slow, &learned, &config);
    assert!((us - 500.0).abs() < 1.0, "{us}");
    // It creates no floor without a measurement now.
    let facts = array(&[0.0, 100.0]);
    let samples = [
        sample([0.0, 0.0], 4096.0, 0.0),
        sample([100.0, 0.0], 4096.0, 400.0),
    ];
    let us = predicted_us(&facts, &samples, &learned, &config, (1, 0, &[1]));
    assert!(us < 300.0, "{us}");
    // Outcomes expire.
    let later = Sample {
        epoch: LANDED_EPOCHS + 1,
        ..sample([0.0, 50.0], 4096.0, 500.0)
    };
    learned.landed.note("a", &later);
    assert_eq!(learned.landed.0["a"].len(), 1);
}

#[test]
fn plan_that_relieves_the_device_lowers_the_floor() {
    let (none, config) = (LearnedValues::default(), TerraceConfig::default());
    let spec = model::preset("pm863").expect("a preset").spec();
    let most = 1.0 / spec.occupancy_s(model::Op::Read, 4096.0);
    let facts = array(&[1.1 * most, 100.0]);
    let hog = Sample {
        outstanding: 64.0,
        ..sample([1.1 * most, 0.0], 4096.0, 5000.0)
    };
    let samples = [hog, sample([100.0, 0.0], 4096.0, 400.0)];
    let us = |there: &[usize]| predicted_us(&facts, &samples, &none, &config, (1, 0, there));
    let (with, alone) = (us(&[0, 1]), us(&[1]));
    assert!((with - 5000.0).abs() < 1.0, "{with}");
    assert!(alone < 1.2 * 5000.0 / 3.0, "{alone}");
}

#[test]
fn latency_added_on_each_kind_of_device_is_attributed_to_the_host() {
    let (none, config) = (LearnedValues::default(), TerraceConfig::default());
    let mut facts = array(&[100.0, 100.0]);
    let spec = |name: &str| model::preset(name).expect("a preset").spec();
    let third = model::Device {
        name: "c".into(),
        tier: TierId(0),
        spec: spec("pm953"),
    };
    facts.topology.devices.push(third);
    facts.topology.tiers[0].devices.push(DeviceId(2));
    facts.devices.push(model::DeviceFacts::default());
    let samples = [
        sample([100.0, 0.0], 4096.0, 500.0),
        sample([100.0, 0.0], 4096.0, 700.0),
    ];
    let us = |facts: &Facts| predicted_us(facts, &samples, &none, &config, (1, 2, &[1]));
    let one_kind = us(&facts);
    assert!(
        one_kind < 120.0,
        "the excess may be the devices' own: {one_kind}"
    );
    facts.topology.devices[1].spec = spec("pm1633");
    let two_kinds = us(&facts);
    // 500 µs are 347 above the model of a pm863.
    let added = two_kinds - one_kind;
    assert!((330.0..350.0).contains(&added), "{one_kind} {two_kinds}");
}

#[test]
fn comparable_sizes_are_within_a_factor_of_four() {
    let of = |bytes: f64| class(&sample([1.0, 0.0], bytes, 1.0).load()) as i64;
    for bytes in [512.0, 3000.0, 4096.0, 5000.0, 65_536.0, 1e6] {
        for times in [0.5, 0.99, 1.0, 1.5, 2.0] {
            assert!(
                (of(bytes * times) - of(bytes)).abs() <= 1,
                "{bytes} {times}"
            );
        }
        assert!(of(bytes * 4.0) - of(bytes) >= 2 || bytes >= 1e6, "{bytes}");
    }
    assert_eq!(of(0.0), 0);
    assert_eq!(of(1e12), SIZES as i64 - 1);
}

#[test]
fn device_faster_than_its_model_has_no_floor() {
    let spec = model::preset("pm863").expect("a preset").spec();
    let load = sample([100.0, 0.0], 4096.0, 100.0).load();
    let model = Latency::of(&spec, &load, 0.1, Wait::default());
    let floors = Floors::new(1, 1);
    let fast = model.times(0.5);
    let raised = floors.raised((0, 0), &spec, &load, fast, &model, |_| model);
    assert_eq!(raised, fast);
}
