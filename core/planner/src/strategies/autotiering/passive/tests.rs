//! Passive estimates from facts with a known truth.

use algo::Rng;
use model::*;
use serde_json::json;
use units::*;

use super::super::config::AutoTieringConfig;
use super::super::{AutoTiering, AutoTieringState, VolumeState};
use super::*;
use crate::{Context, Draft, Strategy};

/// Bare latency of reads and of writes on the slow device.
const BARE_US: [f64; 2] = [200.0, 100.0];

fn topology() -> Topology {
    let device = |name: &str, tier: u16, latency_us: [f64; 2]| Device {
        name: name.into(),
        tier: TierId(tier),
        spec: DeviceSpec {
            model: "test".into(),
            capacity: Bytes::gib(100),
            read_iops: 1e6,
            write_iops: 1e6,
            read_bandwidth: BytesPerSec(1 << 50),
            write_bandwidth: BytesPerSec(1 << 50),
            read_latency: Nanos::from_micros_f64(latency_us[0]),
            write_latency: Nanos::from_micros_f64(latency_us[1]),
            curve: LoadCurve::new(vec![(0.0, 1.0), (1.0, 3.0)]).unwrap(),
            jitter_sigma: 0.0,
            usd_per_gb: 1.0,
        },
    };
    let tier = |name: &str, i: usize| Tier {
        name: name.into(),
        specialty: Specialty::for_tier(i, 2),
        devices: vec![DeviceId::from_index(i)],
    };
    Topology {
        tiers: vec![tier("fast", 0), tier("slow", 1)],
        devices: vec![device("f", 0, [50.0, 20.0]), device("s", 1, BARE_US)],
    }
}

/// Returns an epoch's load: reads and writes, their mean latencies, and their spread.
fn load(ios: [u64; 2], latency_us: [f64; 2], spread_us: f64) -> MeasuredLoad {
    let flow = |dir: usize| Flow {
        ios: ios[dir],
        bytes: ios[dir] * 4096,
        latency: LatencySummary {
            mean_us: latency_us[dir],
            p50_us: latency_us[dir],
            p95_us: latency_us[dir] + NORMAL_P95 * spread_us,
            ..LatencySummary::default()
        },
    };
    MeasuredLoad {
        window: Nanos::from_secs(60),
        reads: flow(0),
        writes: flow(1),
        outstanding: 1.0,
    }
}

/// Returns facts of the volume under test, followed by its neighbours, all on the slow device.
fn facts(epoch: u64, measured: &[MeasuredLoad]) -> Facts {
    let volumes = measured.iter().enumerate().map(|(i, m)| VolumeFacts {
        name: format!("v{i}"),
        vm: VmId(0),
        class: ClassId(0),
        size: Bytes::gib(1),
        device: DeviceId(1),
        measured: Some(*m),
        calibration: vec![],
        calibrating: false,
        last_moved: None,
        extents: None,
    });
    Facts {
        at: Nanos::from_secs(60 * epoch),
        epoch,
        placement_due: false,
        generation: 0,
        topology: topology(),
        classes: vec![SloClass::none()],
        vms: vec!["vm".into()],
        volumes: volumes.collect(),
        devices: vec![DeviceFacts::default(); 2],
        moves: vec![],
        failed: vec![],
        nodes: Default::default(),
    }
}

fn switches(value: serde_json::Value) -> Switches {
    serde_json::from_value::<AutoTieringConfig>(value)
        .unwrap()
        .switches()
}

fn passive_only() -> Switches {
    switches(json!({ "sensitivity": "passive" }))
}

const V: VolumeId = VolumeId(0);

fn take_in(switches: &Switches, facts: &Facts, policy: &Policy, own: &mut VolumeState) {
    let slowness = Slowness::of(facts);
    absorb(switches, facts, policy, &slowness, V, own);
}

/// Returns one epoch in which the device is `factor` times slower than bare, as seen by a neighbour with reads only and one
/// with writes only. The volume's reads have the latency `y_us`.
fn epoch_of(factor: f64, y_us: f64) -> [MeasuredLoad; 3] {
    [
        load([6000, 0], [y_us, 0.0], 0.0),
        load([6000, 0], [BARE_US[0] * factor, 0.0], 0.0),
        load([0, 6000], [0.0, BARE_US[1] * factor], 0.0),
    ]
}

/// Runs epochs with these factors; the volume's latency is m times the device's latency beyond bare, plus b.
fn learned(factors: &[f64], m: f64, b: f64) -> VolumeState {
    let mut own = VolumeState::default();
    for (i, factor) in factors.iter().enumerate() {
        let y = b + m * BARE_US[0] * (factor - 1.0);
        take_in(
            &passive_only(),
            &facts(i as u64, &epoch_of(*factor, y)),
            &Policy::default(),
            &mut own,
        );
    }
    own
}

fn rising(n: usize) -> Vec<f64> {
    (0..n).map(|i| 1.0 + 0.1 * i as f64).collect()
}

#[test]
fn passive_slope_is_that_of_the_volume() {
    for (m, b) in [(1.0, 200.0), (0.3, 80.0), (2.5, 520.0)] {
        let s = learned(&rising(15), m, b)
            .sensitivity
            .expect("enough and varied");
        assert!((s.joint.slope - m).abs() < 1e-6, "{m}: {s:?}");
        assert!((s.joint.intercept - b).abs() < 1e-3, "{b}: {s:?}");
        assert_eq!(
            (s.windows, s.origin, s.device),
            (15, Origin::Passive, DeviceId(1))
        );
        assert_eq!(s.reads.unwrap().slope, s.joint.slope);
        assert_eq!(s.writes, None, "it writes nothing");
        assert!((s.confidence - 1.0).abs() < 1e-3, "nothing scatters");
    }
}

#[test]
fn passive_line_needs_enough_epochs_and_variation() {
    assert!(learned(&rising(11), 1.0, 200.0).sensitivity.is_none());
    assert!(learned(&rising(12), 1.0, 200.0).sensitivity.is_some());
    let wobble = |by: f64| -> Vec<f64> {
        (0..40)
            .map(|i| 1.5 + if i % 2 == 0 { by } else { -by })
            .collect()
    };
    assert!(learned(&wobble(0.049), 1.0, 200.0).sensitivity.is_none());
    assert!(learned(&wobble(0.051), 1.0, 200.0).sensitivity.is_some());
    // The estimate is removed when the variation has ended.
    let mut factors = rising(20);
    factors.extend([1.5; WINDOWS_MAX]);
    let own = learned(&factors, 1.0, 200.0);
    assert!(own.sensitivity.is_none());
    assert_eq!(own.passive.epochs.len(), WINDOWS_MAX, "history is bounded");
}

#[test]
fn volume_is_excluded_from_its_slowness_axis() {
    // Only this volume is slow, in turns. x does not change, so there is no line, although its own ratio would give slope 1.
    let mut own = VolumeState::default();
    for i in 0..30u64 {
        let y = 200.0 + 20.0 * i as f64;
        take_in(
            &passive_only(),
            &facts(i, &epoch_of(1.4, y)),
            &Policy::default(),
            &mut own,
        );
    }
    assert_eq!(own.passive.epochs.len(), 30);
    assert!(
        own.passive
            .epochs
            .iter()
            .all(|e| (e.excess - 0.4).abs() < 1e-6),
        "{:?}",
        own.passive
    );
    assert!(own.sensitivity.is_none());
}

#[test]
fn slowness_is_the_median_of_the_other_volumes() {
    let loads: Vec<MeasuredLoad> = [9.0, 1.2, 7.0, 1.4, 1.3]
        .map(|f| load([6000, 0], [BARE_US[0] * f, 0.0], 0.0))
        .to_vec();
    let facts = facts(0, &loads);
    let slowness = Slowness::of(&facts);
    let without = |v: u32| slowness.beside(VolumeId(v)).unwrap().0;
    // Medians of 1.2 1.3 1.4 7 9 without one value.
    for (volume, median) in [(0, 1.35), (1, 4.2), (2, 1.35), (3, 4.15), (4, 4.2)] {
        assert!(
            (without(volume) - median).abs() < 1e-6,
            "{volume}: {}",
            without(volume)
        );
    }
}

#[test]
fn measurement_error_of_the_axis_is_corrected() {
    // The device's factor is uniform in 1..2. The neighbours' few requests have an error of a tenth of the bare latency,
    // whose variance is a fifth of the true one. Without the correction the slope is 1/1.12 of the truth.
    const IOS: u64 = 100;
    let (mut sum, mut plain) = (0.0, 0.0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed, 1);
        let mut own = VolumeState::default();
        for i in 0..100 {
            let factor = 1.0 + rng.unit();
            let normal = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
            let spread = 0.1 * BARE_US[0] * (IOS as f64).sqrt();
            let seen = BARE_US[0] * (factor + 0.1 * normal);
            let y = 200.0 + BARE_US[0] * (factor - 1.0);
            let loads = [
                load([6000, 0], [y, 0.0], 0.0),
                load([IOS, 0], [seen, 0.0], spread),
            ];
            take_in(
                &passive_only(),
                &facts(i, &loads),
                &Policy::default(),
                &mut own,
            );
        }
        sum += own.sensitivity.unwrap().joint.slope;
        let points: Vec<(f64, f64)> = own
            .passive
            .epochs
            .iter()
            .map(|e| (BARE_US[0] * e.excess, e.all.1))
            .collect();
        plain += fit_line(&points).unwrap().slope;
    }
    let (mean, plain) = (sum / 40.0, plain / 40.0);
    assert!((mean - 1.0).abs() < 0.03, "{mean}");
    assert!((plain - 1.0 / 1.12).abs() < 0.03, "{plain}");
}

#[test]
fn axis_dominated_by_errors_gives_no_line() {
    let mut own = VolumeState::default();
    for i in 0..40u64 {
        let factor = 1.0 + 0.1 * (i % 5) as f64;
        // The error is ten times the variation.
        let spread = BARE_US[0] * (100f64).sqrt();
        let loads = [
            load([6000, 0], [BARE_US[0] * factor, 0.0], 0.0),
            load([100, 0], [BARE_US[0] * factor, 0.0], spread),
        ];
        take_in(
            &passive_only(),
            &facts(i, &loads),
            &Policy::default(),
            &mut own,
        );
    }
    assert_eq!(own.passive.epochs.len(), 40);
    assert!(own.sensitivity.is_none());
}

#[test]
fn uninformative_epochs_are_skipped() {
    let count = |change: &dyn Fn(&mut Facts)| {
        let mut own = VolumeState::default();
        let mut facts = facts(0, &epoch_of(1.5, 300.0));
        change(&mut facts);
        take_in(&passive_only(), &facts, &Policy::default(), &mut own);
        own.passive.epochs.len()
    };
    assert_eq!(count(&|_| {}), 1);
    assert_eq!(count(&|f| f.volumes[0].measured = None), 0);
    assert_eq!(
        count(&|f| f.volumes[0].measured = Some(load([99, 0], [300.0, 0.0], 0.0))),
        0
    );
    assert_eq!(
        count(&|f| f.volumes[0].calibrating = true),
        0,
        "its own delay would be in y"
    );
    let full = |by: f64| count(&move |f: &mut Facts| f.devices[1].utilization = by);
    assert_eq!((full(0.94), full(0.95)), (1, 0), "a queue is no factor");
    let move_of = |v: u32| RunningMove {
        volume: VolumeId(v),
        from: DeviceId(1),
        to: DeviceId(0),
        extents: None,
    };
    assert_eq!(count(&|f| f.moves.push(move_of(0))), 0);
    assert_eq!(
        count(&|f| f.moves.push(move_of(1))),
        1,
        "another neighbour is left"
    );
    assert_eq!(count(&|f| f.moves.extend([move_of(1), move_of(2)])), 0);
    assert_eq!(
        count(&|f| f.volumes[1..]
            .iter_mut()
            .for_each(|v| v.device = DeviceId(0))),
        0,
        "no neighbours"
    );
}

#[test]
fn move_resets_the_passive_history() {
    let mut own = learned(&rising(15), 1.0, 200.0);
    let mut moved = facts(20, &epoch_of(1.5, 300.0));
    moved
        .volumes
        .iter_mut()
        .for_each(|v| v.device = DeviceId(0));
    take_in(&passive_only(), &moved, &Policy::default(), &mut own);
    assert_eq!((own.passive.epochs.len(), own.sensitivity), (1, None));
}

#[test]
fn reads_and_writes_have_separate_lines() {
    let mut own = VolumeState::default();
    for i in 0..15u64 {
        let factor = 1.0 + 0.1 * i as f64;
        let y = [
            200.0 + 0.5 * BARE_US[0] * (factor - 1.0),
            100.0 + 2.0 * BARE_US[1] * (factor - 1.0),
        ];
        let loads = [load([3000, 3000], y, 0.0), epoch_of(factor, 0.0)[1]];
        take_in(
            &passive_only(),
            &facts(i, &loads),
            &Policy::default(),
            &mut own,
        );
    }
    let s = own.sensitivity.unwrap();
    assert!(
        (s.reads.unwrap().slope - 0.5).abs() < 1e-6 && (s.writes.unwrap().slope - 2.0).abs() < 1e-6,
        "{s:?}"
    );
    // Half of 100 and half of 200 per unit of slowness, over a mixed bare latency of 150.
    assert!((s.joint.slope - 1.0).abs() < 1e-6, "{s:?}");
}

/// The zero of a passive line is the bare device: the present load of the volume's device does not count twice.
#[test]
fn predictions_start_from_the_bare_device() {
    let s = learned(&rising(15), 1.0, 200.0).sensitivity.unwrap();
    let mut now = facts(20, &epoch_of(2.0, 400.0));
    now.devices[1].utilization = 0.5; // a factor of 2 by its curve
    let config = AutoTieringConfig::default();
    let switches = config.switches();
    let measured = now.volumes[0].measured.unwrap();
    let on = |tier: u16| {
        let tier = TierId(tier);
        super::super::predict::latency(&config, &switches, &now, V, tier, &measured, Some(&s))
    };
    assert!(
        (on(1).mean_us - 400.0).abs() < 1e-3,
        "where it is: as measured, {:?}",
        on(1)
    );
    // On the idle fast device: 50 us; its own load there (100 IOPS of a million) adds next to nothing.
    assert!((on(0).mean_us - 50.0).abs() < 0.1, "{:?}", on(0));
    assert!(on(0).confidence > 0.99, "points on a line leave no doubt");
}

fn planned(config: serde_json::Value, policy: &Policy) -> Vec<VolumeId> {
    let config: AutoTieringConfig = serde_json::from_value(config).unwrap();
    let strategy = AutoTiering::new(config).unwrap();
    let facts = facts(1, &epoch_of(1.5, 300.0));
    let mut draft = Draft::default();
    let mut policy = policy.clone();
    // One slot: all volumes are due at once.
    policy.epochs = Epochs {
        monitor: Nanos::from_secs(60),
        migration: Nanos::from_secs(120),
    };
    let context = Context {
        facts: &facts,
        policy: &policy,
        seed: 1,
    };
    strategy.plan(&context, &AutoTieringState::default(), &mut draft);
    let mut volumes: Vec<VolumeId> = draft.actions.iter().map(Action::volume).collect();
    volumes.sort();
    volumes
}

#[test]
fn volume_excluded_from_injection_is_never_delayed() {
    let free = Policy::default();
    let bound = Policy {
        no_injection: vec![VolumeId(1)],
        ..Policy::default()
    };
    assert_eq!(
        planned(json!({}), &free),
        [VolumeId(0), VolumeId(1), VolumeId(2)]
    );
    for form in ["injected", "injected-else-passive"] {
        assert_eq!(
            planned(json!({ "sensitivity": form }), &bound),
            [VolumeId(0), VolumeId(2)],
            "{form}"
        );
    }
    assert_eq!(planned(json!({ "sensitivity": "passive" }), &free), []);
}

#[test]
fn injection_takes_precedence_over_passive_where_permitted() {
    let either = switches(json!({ "sensitivity": "injected-else-passive" }));
    let bound = Policy {
        no_injection: vec![V],
        ..Policy::default()
    };
    let loads = epoch_of(1.5, 300.0);
    let kept = |switches: &Switches, policy: &Policy, own: VolumeState| {
        let mut own = own;
        take_in(switches, &facts(1, &loads), policy, &mut own);
        own.passive.epochs.len()
    };
    let asked = || VolumeState {
        asked: Some(Nanos(1)),
        ..VolumeState::default()
    };
    let injected = || {
        let line = fit_line(&[(0.0, 1.0), (1.0, 2.0)]).unwrap();
        let passive = learned(&rising(15), 1.0, 200.0).sensitivity.unwrap();
        let s = Sensitivity {
            joint: line,
            origin: Origin::Injected,
            ..passive
        };
        VolumeState {
            sensitivity: Some(s),
            ..asked()
        }
    };
    assert_eq!(
        kept(&either, &Policy::default(), VolumeState::default()),
        0,
        "not asked yet"
    );
    assert_eq!(
        kept(&either, &Policy::default(), asked()),
        1,
        "asked, and nothing came of it"
    );
    assert_eq!(kept(&either, &Policy::default(), injected()), 0);
    assert_eq!(
        kept(&either, &bound, injected()),
        1,
        "no more injection from now on"
    );
    assert_eq!(kept(&either, &bound, VolumeState::default()), 1);
    assert_eq!(
        kept(
            &switches(json!({ "sensitivity": "injected" })),
            &bound,
            VolumeState::default()
        ),
        0
    );
    let mut own = injected();
    take_in(&either, &facts(1, &loads), &Policy::default(), &mut own);
    assert_eq!(
        own.sensitivity.unwrap().origin,
        Origin::Injected,
        "what injection found stays"
    );
}

#[test]
fn passive_state_survives_serialization() {
    let own = learned(&rising(15), 1.0, 200.0);
    let text = serde_json::to_string(&own).unwrap();
    let back: VolumeState = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&back.passive, &back.sensitivity),
        (&own.passive, &own.sensitivity)
    );
    let old: VolumeState = serde_json::from_value(
        json!({ "sensitivity": null, "windows": [], "asked": null, "history": {} }),
    )
    .unwrap();
    assert!(old.passive.is_empty(), "a state from before there was any");
}
