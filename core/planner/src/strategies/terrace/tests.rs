use model::{Device, DeviceFacts, Facts, SloClass, Specialty, Tier, Topology};
use units::{Bytes, ClassId, DeviceId, Nanos, TierId, VmId};

use super::crowd::{Costs, Crowd};
use super::forecast::Forecast;
use super::history::{EPOCHS, History, Sample};
use super::latency::{Arrivals, DeviceLoad, FULL, Latency, Load, Use};
use super::learned::LearnedValues;
use super::patterns::Patterns;
use super::{TerraceConfig, TerraceState};

fn sample(epoch: u64, iops: f64) -> Sample {
    Sample {
        epoch,
        iops: [iops, 0.0],
        bytes: [4096.0, 4096.0],
        stat_us: Some(200.0),
        mean_us: Some(100.0),
        outstanding: 1.0,
        held_up: false,
        disturbed: false,
    }
}

fn history(rates: impl IntoIterator<Item = f64>) -> History {
    let mut history = History::default();
    for (epoch, iops) in rates.into_iter().enumerate() {
        history.push(sample(epoch as u64, iops), false, false);
    }
    history
}

fn known(history: &History) -> Vec<f64> {
    history.samples.iter().map(Sample::total).collect()
}

#[test]
fn history_before_a_step_is_dropped_and_a_one_epoch_burst_is_no_step() {
    let step = history([100.0; 10].into_iter().chain([300.0; 3]));
    assert_eq!(known(&step), [300.0; 3]);
    assert_eq!(step.changed(), Some(12));
    let burst = history([100.0, 100.0, 100.0, 100.0, 900.0, 100.0, 100.0, 100.0]);
    assert_eq!(burst.samples.len(), 8);
    assert_eq!(burst.changed(), None);
    let noise = (0..40).map(|i| if i % 2 == 0 { 100.0 } else { 115.0 });
    assert_eq!(history(noise).samples.len(), EPOCHS);
}

#[test]
fn burst_over_two_epochs_is_no_step() {
    let mut rates = vec![100.0; 8];
    rates.extend([400.0, 500.0, 100.0, 100.0]);
    let burst = history(rates);
    assert_eq!((burst.samples.len(), burst.changed()), (12, None));
}

#[test]
fn alternating_load_keeps_its_history_and_is_no_change() {
    let turns = history((0..60).map(|i| if (i / 6) % 2 == 0 { 50.0 } else { 500.0 }));
    assert_eq!(turns.samples.len(), EPOCHS);
    let high = known(&turns).iter().filter(|r| **r > 100.0).count();
    assert!((5..=11).contains(&high), "{high} of {EPOCHS}");
    assert_eq!(turns.changed(), None);
}

#[test]
fn change_caused_by_own_actions_is_no_change() {
    let mut h = history([100.0; 6]);
    h.push(sample(6, 300.0), false, true);
    h.push(sample(7, 300.0), false, true);
    h.push(sample(8, 300.0), false, true);
    assert_eq!((known(&h), h.changed()), (vec![300.0; 3], None));
}

#[test]
fn failed_predictions_widen_the_bounds() {
    let mut learned = LearnedValues::default();
    let at_first = learned.sigma(0.3);
    let cell = super::residuals::Cell {
        tier: "t".into(),
        regime: super::residuals::Regime::Calm,
        faster: true,
    };
    (0..20).for_each(|_| learned.outcome(0.02, &cell));
    let good = learned.sigma(0.3);
    (0..20).for_each(|i| learned.outcome(if i % 2 == 0 { 0.8 } else { -0.8 }, &cell));
    let bad = learned.sigma(0.3);
    assert!(good < at_first && bad > at_first, "{good} {at_first} {bad}");
}

/// Returns the use by requests that take a millisecond each.
fn asks(share: f64, in_flight: f64) -> Use {
    Use {
        share,
        residual_s: share * 1e-3,
        queue_s: in_flight * 1e-3,
    }
}

/// Random arrivals.
const RANDOM: Arrivals = Arrivals {
    others: 1.0,
    queue: None,
    own: 1.0,
};

#[test]
fn wait_is_that_of_an_open_queue_until_all_closed_loops_wait() {
    let half = DeviceLoad::of([asks(0.2, 50.0), asks(0.3, 50.0)].into_iter(), 0.0);
    let wait = half.wait(&asks(0.2, 50.0), &RANDOM);
    assert!((wait.mean_s - 0.5e-3).abs() < 1e-9, "{wait:?}");
    assert!(!half.full());
    // Two requests in flight wait for at most two.
    let few = DeviceLoad::of([asks(0.95, 2.0)].into_iter(), 0.0);
    let wait = few.wait(&asks(0.95, 2.0), &RANDOM);
    assert!((wait.mean_s - 2e-3).abs() < 1e-9, "{wait:?}");
}

#[test]
fn even_arrivals_wait_for_others_and_bursts_also_for_themselves() {
    let [a, b] = [asks(0.2, 50.0), asks(0.3, 50.0)];
    let half = DeviceLoad::of([a, b].into_iter(), 0.0);
    let evenly = Arrivals {
        queue: Some(0.0),
        ..RANDOM
    };
    assert!((half.wait(&a, &evenly).mean_s - 0.3e-3).abs() < 1e-9);
    let together = Arrivals {
        queue: Some(4.0),
        ..RANDOM
    };
    assert!((half.wait(&a, &together).mean_s - 4.3e-3).abs() < 1e-9);
}

#[test]
fn latency_does_not_fall_with_more_load_of_others() {
    let spec = model::preset("pm863").expect("a preset").spec();
    let load = Load {
        iops: [100.0, 20.0],
        bytes: [4096.0; 2],
    };
    let own = Use::of(&spec, &load, 8.0, 1.0);
    for queue in [None, Some(0.0), Some(4.0), Some(30.0)] {
        let arrivals = Arrivals { queue, ..RANDOM };
        let latency = |others: f64| {
            let busy = DeviceLoad::of([own, asks(others, 64.0)].into_iter(), 0.0);
            let latency = Latency::of(&spec, &load, busy.rho, busy.wait(&own, &arrivals));
            let p95 = latency.mean_us * libm::exp(latency.ratio_ln(model::SloStatistic::P95));
            [latency.mean_us, p95]
        };
        for i in 1..90 {
            let [less, more] = [i - 1, i].map(|i| latency(f64::from(i) / 100.0));
            let rises = less.iter().zip(&more).all(|(a, b)| *b >= a * 0.999);
            assert!(rises, "{queue:?} at {i} %: {less:?}, then {more:?}");
        }
    }
}

#[test]
fn light_load_on_a_full_device_is_served_and_others_share_the_rest() {
    // The first demands a tenth, with more slots than it needs; the second demands more than the device has, with eight
    // slots.
    let busy = DeviceLoad::of([asks(0.1, 40.0), asks(2.0, 8.0)].into_iter(), 0.0);
    assert!(busy.full());
    let expected_s = 8e-3 / (FULL - 0.1);
    let wait_s = |b: &DeviceLoad| b.wait(&asks(0.1, 40.0), &RANDOM).mean_s;
    assert!((wait_s(&busy) / expected_s - 1.0).abs() < 0.01, "{busy:?}");
    let more = DeviceLoad::of([asks(0.1, 40.0), asks(3.0, 16.0)].into_iter(), 0.0);
    assert!(wait_s(&more) > 1.9 * wait_s(&busy), "{more:?}");
}

#[test]
fn steady_loads_have_one_pattern_and_alternating_loads_two() {
    let steady = vec![vec![0.1, 0.05]; 8];
    assert_eq!(Patterns::of(&steady, &[0, 1]).len(), 1);
    let turns: Vec<Vec<f64>> = (0..8)
        .map(|e| {
            if e % 4 < 2 {
                vec![0.5, 0.05]
            } else {
                vec![0.05, 0.5]
            }
        })
        .collect();
    let patterns = Patterns::of(&turns, &[0, 1]);
    assert_eq!(patterns.share, [0.5, 0.5]);
    assert_eq!(patterns.of, [1, 1, 0, 0, 1, 1, 0, 0]);
    assert!((patterns.mean(&[4.0, 2.0]) - 3.0).abs() < 1e-12);
}

#[test]
fn rising_load_has_one_change() {
    let ramp = history((0..12).map(|i| 100.0 * 1.3f64.powi(i)));
    assert!(ramp.samples.len() < 12, "what was before is forgotten");
    let longer = history((0..16).map(|i| 100.0 * 1.3f64.powi(i)));
    assert!(ramp.changed().is_some());
    assert_eq!(ramp.changed(), longer.changed());
}

/// Returns an array of two equal devices with volumes of these rates, reads of 4 KiB, the last one on the second device.
pub(super) fn array(rates: &[f64]) -> Facts {
    let device = |name: &str| Device {
        name: name.into(),
        tier: TierId(0),
        spec: model::preset("pm863").expect("a preset").spec(),
    };
    let volume = |(i, iops): (usize, &f64)| model::VolumeFacts {
        name: format!("v{i}"),
        vm: VmId(0),
        class: ClassId(0),
        size: Bytes::gib(1),
        device: DeviceId(u16::from(i + 1 == rates.len())),
        measured: Some(measured(*iops)),
        calibration: vec![],
        calibrating: false,
        last_moved: None,
        extents: None,
    };
    Facts {
        at: Nanos::from_secs(60),
        epoch: 0,
        placement_due: true,
        generation: 0,
        topology: Topology {
            tiers: vec![Tier {
                name: "t".into(),
                specialty: Specialty::for_tier(0, 1),
                devices: vec![DeviceId(0), DeviceId(1)],
            }],
            devices: vec![device("a"), device("b")],
        },
        classes: vec![SloClass {
            name: "gold".into(),
            weight: 4.0,
            target: Some(model::Objective {
                statistic: model::SloStatistic::Mean,
                latency: Nanos::from_micros(400),
            }),
            max_slowdown: None,
        }],
        vms: vec!["vm".into()],
        volumes: rates.iter().enumerate().map(volume).collect(),
        devices: vec![DeviceFacts::default(); 2],
        moves: vec![],
        failed: vec![],
        nodes: Default::default(),
    }
}

fn measured(iops: f64) -> model::MeasuredLoad {
    let ios = (iops * 60.0) as u64;
    model::MeasuredLoad {
        window: Nanos::from_secs(60),
        reads: model::Flow {
            ios,
            bytes: ios * 4096,
            latency: model::LatencySummary::default(),
        },
        writes: model::Flow::default(),
        outstanding: 1.0,
    }
}

#[test]
fn tabulated_cost_of_many_volumes_matches_the_computed_one() {
    let spec = model::preset("pm863").expect("a preset").spec();
    let whole = 1.0 / spec.occupancy_s(model::Op::Read, 4096.0);
    // Together they take this share of the device; the new volume takes a fiftieth.
    for share in [0.3, 0.6, 0.8] {
        let mut rates: Vec<f64> = (0..40)
            .map(|i| (0.5 + f64::from(i) / 40.0) * share * whole / 40.0)
            .collect();
        rates.push(whole / 50.0);
        let facts = array(&rates);
        let known: Vec<History> = rates
            .iter()
            .map(|r| {
                let mut h = History::default();
                let sample = Sample {
                    stat_us: None,
                    mean_us: None,
                    ..sample(0, *r)
                };
                h.push(sample, false, false);
                h
            })
            .collect();
        let histories: Vec<&History> = known.iter().collect();
        let config = TerraceConfig::default();
        let forecast = Forecast::new(&facts, &histories, &LearnedValues::default(), &config);
        let there: Vec<usize> = (0..40).collect();
        let crowd = Crowd::of(&forecast, 0, there.clone());
        let exact = |volumes: &[usize]| Costs {
            patterns: forecast.device_cost(0, volumes, 0.0),
            surge: forecast.surge_cost(0, volumes),
        };
        let near = |found: &Costs, expected: &Costs, what: &str| {
            let close = |a: f64, b: f64| (a - b).abs() <= 0.03 * b.abs() + 0.3;
            let same = close(found.patterns[0], expected.patterns[0])
                && close(found.surge, expected.surge);
            assert!(same, "{what} at {share}: {found:?}, not {expected:?}");
        };
        near(&crowd.now, &exact(&there), "as they are");
        let left: Vec<usize> = (0..38).collect();
        let leave = crowd.changed(&forecast, 0, &[38, 39], &[], 0.0);
        near(&leave, &exact(&left), "without two");
        let with: Vec<usize> = (0..41).collect();
        let come = crowd.changed(&forecast, 0, &[], &[40], 0.0);
        near(&come, &exact(&with), "with one more");
        let mut changed = crowd.clone();
        changed.change(&forecast, 0, &[38, 39], &[]);
        assert_eq!(changed.volumes, left);
        near(&changed.now, &exact(&left), "after two have left");
        changed.change(&forecast, 0, &[], &[38, 39, 40]);
        assert_eq!(changed.volumes, with);
        near(&changed.now, &exact(&with), "after three have come");
        let own = crowd.own(&forecast, 0, 40);
        let beside = forecast.cost(40, 0, 0, &forecast.busy(0, 0, &with, 0.0)).0;
        assert!((own.patterns[0] - beside).abs() < 1e-9, "{own:?} {beside}");
    }
}

/// Returns histories of one epoch at these rates, without latencies.
fn at_rates(rates: &[f64]) -> Vec<History> {
    let of = |rate: &f64| {
        let mut h = History::default();
        let sample = Sample {
            stat_us: None,
            mean_us: None,
            ..sample(0, *rate)
        };
        h.push(sample, false, false);
        h
    };
    rates.iter().map(of).collect()
}

#[test]
fn added_violation_of_others_is_the_same_before_and_after_a_move() {
    let spec = model::preset("pm863").expect("a preset").spec();
    let whole = 1.0 / spec.occupancy_s(model::Op::Read, 4096.0);
    // Few volumes are computed, many are looked up.
    for (count, tolerance) in [(6, 1e-9), (40, 0.3)] {
        let mut rates = vec![0.75 * whole / f64::from(count); count as usize];
        rates.push(whole / 5.0);
        let facts = array(&rates);
        let known = at_rates(&rates);
        let histories: Vec<&History> = known.iter().collect();
        let config = TerraceConfig::default();
        let forecast = Forecast::new(&facts, &histories, &LearnedValues::default(), &config);
        let last = rates.len() - 1;
        let others: Vec<usize> = (0..last).collect();
        let all: Vec<usize> = (0..=last).collect();
        let cost = |on: &[usize]| {
            let busy = forecast.busy(0, 0, on, 0.0);
            let of = |v: &usize| forecast.cost(*v, 0, 0, &busy).0;
            others.iter().map(of).sum::<f64>()
        };
        let expected = cost(&all) - cost(&others);
        assert!(expected > 0.5, "{expected}");
        for there in [&others, &all] {
            let crowd = Crowd::of(&forecast, 0, there.clone());
            let found = crowd.more_for_others(&forecast, 0, 0, last);
            let near = (found - expected).abs() <= tolerance + tolerance * expected;
            assert!(near, "{found}, not {expected}, of {count}");
        }
    }
}

#[test]
fn cost_parts_add_up_and_bounds_follow_their_spread() {
    let facts = array(&[2000.0, 300.0]);
    let known = at_rates(&[2000.0, 300.0]);
    let histories: Vec<&History> = known.iter().collect();
    let config = TerraceConfig::default();
    let forecast = Forecast::new(&facts, &histories, &LearnedValues::default(), &config);
    let busy = forecast.busy(0, 0, &[0], 0.0);
    let beside = forecast
        .beside(0, 0, 0, &busy)
        .expect("it asks for something");
    let factors = config.rates.factors(beside.sigma);
    let parts = super::reasons::violated_parts(&facts.classes[0], Some(&beside), factors, 0.5);
    let (cost, mean_us) = forecast.cost(0, 0, 0, &busy);
    assert!((parts.own() - cost).abs() < 1e-12, "{parts:?} {cost}");
    assert!((parts.score() + cost + 0.5).abs() < 1e-12);
    let us = parts.mean_us.expect("it asks for something");
    assert_eq!(
        (us.value, us.low, us.high),
        (mean_us, mean_us * factors.0, mean_us * factors.1)
    );
    let silent = super::reasons::violated_parts(&facts.classes[0], None, (1.0, 1.0), 0.0);
    assert_eq!((silent.score(), silent.mean_us), (0.0, None));
}

/// Returns the stored state after an epoch of an array.
fn absorbed(before: &TerraceState, facts: &Facts) -> TerraceState {
    let view = super::view::View::whole(facts);
    before.absorbed(&view, Default::default()).0
}

#[test]
fn samples_next_to_other_volumes_or_elsewhere_are_not_used() {
    let mut facts = array(&[100.0, 200.0, 300.0]);
    let mut state = TerraceState::default();
    let mut epoch = |facts: &mut Facts, e: u64| {
        (facts.epoch, facts.at) = (e, Nanos::from_secs(60 * (e + 1)));
        state = absorbed(&state, facts);
        let usable = |name: &str| {
            let samples = &state.volumes[name].samples;
            samples.iter().filter(|s| !s.disturbed).count()
        };
        ["v0", "v1", "v2"].map(usable)
    };
    (0..3).for_each(|e| _ = epoch(&mut facts, e));
    assert_eq!(epoch(&mut facts, 3), [4, 4, 4]);
    // The second volume moves to the device of the third, within one epoch.
    facts.volumes[1].device = DeviceId(1);
    facts.volumes[1].last_moved = Some(Nanos::from_secs(290));
    // The history of the remaining volume shows the change only after the next epoch.
    assert_eq!(epoch(&mut facts, 4), [4, 0, 4]);
    assert_eq!(epoch(&mut facts, 5), [1, 1, 1]);
}

#[test]
fn older_state_is_readable() {
    let facts = array(&[100.0, 200.0, 300.0]);
    let mut state = absorbed(&TerraceState::default(), &facts);
    state
        .learned
        .asked_for("v0", "b", 10.0, super::learned::Pace::Full);
    let mut stored = serde_json::to_value(&state).expect("a state");
    let object = |v: &mut serde_json::Value| v.as_object_mut().cloned().expect("an object");
    let mut learned = object(&mut stored["learned"]);
    learned.retain(|key, _| !["others", "own", "speeds"].contains(&key.as_str()));
    learned.insert("speed".into(), serde_json::json!([null, -0.5]));
    learned["copies"]["v0"] = serde_json::json!({
        "to": "b", "begun": null, "planned_s": 10.0, "strained": true
    });
    stored["learned"] = learned.into();
    for name in ["v0", "v1", "v2"] {
        let mut history = object(&mut stored["volumes"][name]);
        history.retain(|key, _| !["queues", "device"].contains(&key.as_str()));
        stored["volumes"][name] = history.into();
    }
    let read: TerraceState = serde_json::from_value(stored).expect("readable");
    assert_eq!(read.volumes["v0"].samples, state.volumes["v0"].samples);
    let next = absorbed(&read, &facts);
    assert_eq!(next.volumes.len(), 3);
}

#[test]
fn move_costs_stay_within_regret_and_grant() {
    let rates = super::rates::Rates::default();
    let offer = |price: f64, regret: f64, ahead: bool| super::search::Offer {
        moves: vec![],
        timed: vec![],
        gain: 10.0 * price,
        price,
        regret,
        ahead,
    };
    let mut account = super::Account {
        granted: 5.0,
        ..super::Account::default()
    };
    account.spend(&rates, &offer(3.0, 4.0, false));
    account.spend(&rates, &offer(5.0, 0.0, true));
    assert!(account.holds());
    let mut twice = account;
    twice.spend(&rates, &offer(1.0, 0.0, true));
    assert!(!twice.holds(), "more in advance than was granted");
    account.spend(&rates, &offer(3.0, 1.5, false));
    assert!(!account.holds(), "6 for 5.5 of regret");
}
