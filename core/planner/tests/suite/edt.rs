//! Tests of EDT against its formulas, computed by hand.

use model::*;
use planner::{Decision, build, decide};
use units::*;

/// Two tiers of one device: 100 dollars for 100 GB with 10,000 IOPS and 100 MB/s, and 10 dollars for 100 GB with 1,000
/// IOPS and 50 MB/s.
fn facts(volumes: &[(u16, u64, f64, f64)]) -> Facts {
    let device = |name: &str, tier: u16, iops: f64, mb_per_s: u64, usd_per_gb: f64| Device {
        name: name.into(),
        tier: TierId(tier),
        spec: DeviceSpec {
            model: name.into(),
            capacity: Bytes(100_000_000_000),
            read_iops: iops,
            write_iops: iops,
            read_bandwidth: BytesPerSec(mb_per_s * 1_000_000),
            write_bandwidth: BytesPerSec(mb_per_s * 1_000_000),
            read_latency: Nanos::from_micros(100),
            write_latency: Nanos::from_micros(100),
            curve: LoadCurve::flat(),
            jitter_sigma: 0.0,
            usd_per_gb,
        },
    };
    let tier = |name: &str, i: u16| Tier {
        name: name.into(),
        specialty: Specialty::for_tier(i.into(), 2),
        devices: vec![DeviceId(i)],
    };
    let mut devices = vec![DeviceFacts::default(); 2];
    let volumes = volumes
        .iter()
        .enumerate()
        .map(|(i, (device, gb, iops, latency_factor))| {
            let size = Bytes(gb * 1_000_000_000);
            devices[usize::from(*device)].used += size;
            let ios = (iops * 60.0) as u64;
            // Latency of an idle device for 4,000 bytes, times the factor.
            let idle_us = 100.0 + 4_000.0 / [100.0, 50.0][usize::from(*device)];
            let reads = Flow {
                ios,
                bytes: ios * 4_000,
                latency: LatencySummary {
                    mean_us: idle_us * latency_factor,
                    ..Default::default()
                },
            };
            VolumeFacts {
                name: format!("v{i}"),
                vm: VmId(0),
                class: ClassId(0),
                size,
                device: DeviceId(*device),
                measured: Some(MeasuredLoad {
                    window: Nanos::from_secs(60),
                    reads,
                    writes: Flow::default(),
                    outstanding: 1.0,
                }),
                calibration: vec![],
                calibrating: false,
                last_moved: None,
                extents: None,
            }
        })
        .collect();
    Facts {
        at: Nanos::from_secs(900),
        epoch: 15,
        placement_due: true,
        generation: 0,
        topology: Topology {
            tiers: vec![tier("dear", 0), tier("cheap", 1)],
            devices: vec![
                device("d0", 0, 10_000.0, 100, 1.0),
                device("d1", 1, 1_000.0, 50, 0.1),
            ],
        },
        classes: vec![SloClass::none()],
        vms: vec!["vm".into()],
        volumes,
        devices,
        moves: vec![],
        failed: vec![],
        nodes: Default::default(),
    }
}

fn plan(facts: &Facts, config: &str) -> Decision {
    let edt = build("edt", serde_json::from_str(config).unwrap()).unwrap();
    decide(&*edt, facts, &Policy::default(), &edt.initial_state(), 1).unwrap()
}

fn consumption(d: &Decision, volume: usize, tier: &str) -> f64 {
    d.report.volumes[volume].evidence[&format!("consumption_{tier}")]
}

#[test]
fn consumption_is_the_maximum_of_space_and_added_load() {
    let d = plan(&facts(&[(0, 10, 500.0, 1.0), (0, 40, 100.0, 1.0)]), "{}");
    // 500 IOPS of 10,000 and 2 MB/s of 100, against a tenth of the space.
    assert!((consumption(&d, 0, "dear") - 0.1).abs() < 1e-9);
    // 500 of 1,000 and 2 MB/s of 50.
    assert!((consumption(&d, 0, "cheap") - 0.54).abs() < 1e-9);
    assert!((consumption(&d, 1, "cheap") - 0.4).abs() < 1e-9);
}

#[test]
fn edt_score_is_the_price_of_the_largest_share() {
    let d = plan(&facts(&[(0, 10, 500.0, 1.0)]), "{}");
    let option = &d.report.volumes[0].options[1];
    let Some(ScoreParts::Price(parts)) = option.parts else {
        panic!("{option:?}");
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(parts.tier_usd, 10.0);
    near(parts.space, 0.1);
    near(parts.iops, 0.5);
    near(parts.bandwidth, 0.04);
    near(option.score.unwrap(), -5.4);
    assert_eq!(parts.score(), option.score.unwrap());
}

#[test]
fn volume_goes_to_the_cheapest_tier_and_stays_within_hysteresis() {
    // 0.54 of 10 dollars against 0.1 of 100: the cheap tier; the price counts, not the speed.
    let d = plan(&facts(&[(0, 10, 500.0, 1.0)]), "{}");
    assert_eq!(d.plan.moves().len(), 1);
    assert_eq!(d.plan.moves()[0].to, DeviceId(1));
    let reason = &d.plan.moves()[0].terms.reason;
    assert_eq!(reason.kind(), "cheapest-tier");
    let usd = |name| reason.number(name).unwrap();
    assert!((usd("usd") - 5.4).abs() < 1e-6 && (usd("usd_here") - 10.0).abs() < 1e-6);
    // With a hysteresis of twice the price it stays.
    assert!(
        plan(&facts(&[(0, 10, 500.0, 1.0)]), r#"{"hysteresis":2.0}"#)
            .plan
            .moves()
            .is_empty()
    );
}

#[test]
fn volumes_without_space_go_to_the_next_cheapest_tier_by_size() {
    // Both are cheapest on the cheap tier, which has 800 plannable IOPS.
    let d = plan(&facts(&[(0, 5, 450.0, 1.0), (0, 5, 500.0, 1.0)]), "{}");
    assert_eq!(d.plan.moves().len(), 1);
    assert_eq!(
        (d.plan.moves()[0].volume, d.plan.moves()[0].to),
        (VolumeId(1), DeviceId(1))
    );
    let refused = &d.report.volumes[0].options[1].verdict;
    assert!(
        matches!(refused, Verdict::Rejected { by: Rejection::Headroom { resource, .. } } if resource == "iops"),
        "{refused:?}"
    );
}

#[test]
fn throttled_device_loses_its_largest_load_and_other_moves_wait() {
    // The cheap device gets twice its capability, and v1 is the larger half; v2 would go to the cheap tier.
    let volumes = [(1, 5, 450.0, 5.0), (1, 5, 600.0, 5.0), (0, 10, 100.0, 1.0)];
    let d = plan(&facts(&volumes), "{}");
    assert_eq!(d.plan.moves().len(), 1);
    assert_eq!(
        (d.plan.moves()[0].volume, d.plan.moves()[0].to),
        (VolumeId(1), DeviceId(0))
    );
    let reason = &d.plan.moves()[0].terms.reason;
    assert_eq!(reason.kind(), "relief");
    assert_eq!(reason.value("device"), Some(&ReasonValue::from("d1")));
    assert_eq!(
        d.report.notes,
        ["throttled devices: d1; other moves are suspended"]
    );
    // Latency at the threshold is no queueing; v2 then goes to its cheapest tier.
    let volumes = [(1, 5, 450.0, 1.9), (1, 5, 300.0, 1.9), (0, 10, 10.0, 1.0)];
    let d = plan(&facts(&volumes), "{}");
    assert!(d.report.notes.is_empty());
    assert_eq!(d.plan.moves().len(), 1);
    assert_eq!(d.plan.moves()[0].volume, VolumeId(2));
}

#[test]
fn throttled_device_is_not_relieved_without_the_correction() {
    let d = plan(
        &facts(&[(1, 5, 450.0, 5.0), (1, 5, 300.0, 5.0)]),
        r#"{"correction":false}"#,
    );
    assert!(d.plan.moves().is_empty());
    assert!(d.report.notes.is_empty());
}

#[test]
fn throttled_device_is_not_relieved_to_another_throttled_one() {
    let volumes = [
        (1, 5, 450.0, 5.0),
        (1, 5, 600.0, 5.0),
        (0, 5, 6_000.0, 5.0),
        (0, 5, 6_500.0, 5.0),
    ];
    let d = plan(&facts(&volumes), "{}");
    assert_eq!(
        d.report.notes,
        ["throttled devices: d0, d1; other moves are suspended"]
    );
    assert!(d.plan.moves().is_empty(), "{:?}", d.plan.moves());
}

#[test]
fn correction_counts_the_volumes_already_on_the_target() {
    // The dear device is not throttled, but its share of IOPS is used up: no volume can come.
    let volumes = [(1, 5, 450.0, 5.0), (1, 5, 600.0, 5.0), (0, 5, 7_900.0, 1.0)];
    assert!(plan(&facts(&volumes), "{}").plan.moves().is_empty());
}
