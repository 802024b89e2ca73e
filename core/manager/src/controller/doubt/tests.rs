use model::{
    Action, Cost, Device, DeviceFacts, Flow, LatencySummary, MeasuredLoad, MoveLimits, Reason,
    SloClass, Specialty, Terms, Tier, Topology, VolumeFacts,
};
use units::{Bytes, BytesPerSec, ClassId, Nanos, TierId, VmId, VolumeId};

use super::*;

/// Facts of volumes with this device, number of reads and mean latency each; the devices are `fast` and `slow`.
fn facts(volumes: &[(&str, u16, u64, f64)]) -> Facts {
    let volume = |(name, device, ios, mean_us): &(&str, u16, u64, f64)| VolumeFacts {
        name: (*name).into(),
        vm: VmId(0),
        class: ClassId(0),
        size: Bytes::gib(1),
        device: DeviceId(*device),
        measured: Some(MeasuredLoad {
            window: Nanos::from_secs(60),
            reads: Flow {
                ios: *ios,
                bytes: ios * 4096,
                latency: LatencySummary {
                    mean_us: *mean_us,
                    ..LatencySummary::default()
                },
            },
            writes: Flow::default(),
            outstanding: 1.0,
        }),
        calibration: vec![],
        calibrating: false,
        last_moved: None,
        extents: None,
    };
    let names = ["fast", "slow"];
    let device = |(i, name): (usize, &&str)| Device {
        name: format!("/{name}"),
        tier: TierId::from_index(i),
        spec: model::preset("sata-ssd").expect("a preset").spec(),
    };
    let tier = |(i, name): (usize, &&str)| Tier {
        name: (*name).into(),
        specialty: Specialty::for_tier(i, 2),
        devices: vec![DeviceId::from_index(i)],
    };
    Facts {
        at: Nanos::from_secs(60),
        epoch: 1,
        placement_due: true,
        generation: 0,
        topology: Topology {
            tiers: names.iter().enumerate().map(tier).collect(),
            devices: names.iter().enumerate().map(device).collect(),
        },
        classes: vec![SloClass::none()],
        vms: vec!["vm".into()],
        volumes: volumes.iter().map(volume).collect(),
        devices: vec![DeviceFacts::default(); 2],
        moves: vec![],
        failed: vec![],
        nodes: Default::default(),
    }
}

/// Move of a volume to a device, with its latency before and after, and the upper bound.
fn to(volume: u32, device: u16, us: (f64, f64, f64)) -> Move {
    Move {
        volume: VolumeId(volume),
        from: DeviceId(1 - device),
        to: DeviceId(device),
        extents: None,
        size: Bytes::gib(1),
        after: vec![],
        bandwidth: BytesPerSec(1 << 20),
        terms: Terms {
            goal: Goal::Latency,
            reason: Reason::pinned(),
            effect: Effect {
                latency_before_us: Some(us.0),
                latency_after_us: Some(us.1),
                latency_after_range_us: Some((us.1 / 2.0, us.2)),
                ..Effect::default()
            },
            cost: Cost::default(),
        },
    }
}

fn all(facts: &Facts, moves: Vec<Move>, calibrated: bool) -> Vec<Option<String>> {
    let plan = Plan {
        generation: 1,
        parent: 0,
        at: Nanos::from_secs(60),
        strategy: "terrace".into(),
        actions: moves.into_iter().map(Action::Move).collect(),
        limits: MoveLimits {
            concurrent: 1,
            concurrent_per_device: 1,
        },
    };
    let known = HostKnowledge {
        of_machine: &|name| name != "array",
        calibrated: &|_| calibrated,
    };
    doubts(facts, &plan, &known)
}

fn one(facts: &Facts, m: Move, calibrated: bool) -> Option<String> {
    all(facts, vec![m], calibrated).pop().unwrap()
}

#[test]
fn prediction_contradicted_by_volumes_on_the_target_is_doubtful() {
    let known = facts(&[
        ("web", 1, 1000, 8000.0),
        ("idle", 0, 5, 100.0),
        ("log", 0, 1000, 9000.0),
        ("mail", 0, 1000, 6000.0),
    ]);
    let m = to(0, 0, (8000.0, 211.0, 519.0));
    assert_eq!(
        one(&known, m.clone(), true).unwrap(),
        "mail is already on fast and has 6ms there, above the predicted maximum of 519us"
    );
    let within = to(0, 0, (8000.0, 3000.0, 7000.0));
    assert_eq!(one(&known, within, false), None);
    // Drains need no prediction.
    let mut drain = m;
    drain.terms.goal = Goal::Drain;
    assert_eq!(one(&known, drain, true), None);
}

#[test]
fn prediction_with_a_bound_above_the_present_latency_is_doubtful() {
    let known = facts(&[("web", 1, 1000, 1000.0), ("log", 0, 1000, 300.0)]);
    let why = one(&known, to(0, 0, (1000.0, 500.0, 1200.0)), true).unwrap();
    assert_eq!(
        why,
        "its latency of 1ms may not improve: 500us are predicted, with an upper bound of 1.2ms"
    );
    assert_eq!(one(&known, to(0, 0, (1000.0, 400.0, 900.0)), true), None);
    // Who leaves for the sake of others may become slower.
    assert_eq!(one(&known, to(0, 0, (1000.0, 1100.0, 1500.0)), true), None);
}

#[test]
fn prediction_without_evidence_and_calibration_is_doubtful() {
    let known = facts(&[("web", 1, 1000, 8000.0), ("idle", 0, 5, 100.0)]);
    let m = to(0, 0, (8000.0, 211.0, 519.0));
    let why = one(&known, m.clone(), false).unwrap();
    assert!(why.starts_with("nothing was measured on /fast"), "{why}");
    assert_eq!(one(&known, m, true), None);
    // An array of Terrace describes its devices.
    let array = facts(&[("array", 1, 1000, 8000.0)]);
    assert_eq!(one(&array, to(0, 0, (8000.0, 211.0, 519.0)), false), None);
}

#[test]
fn moves_that_depend_on_a_doubtful_move_are_doubtful() {
    let known = facts(&[
        ("web", 1, 1000, 8000.0),
        ("old", 0, 1000, 6000.0),
        ("db", 1, 1000, 8000.0),
    ]);
    let room = to(1, 1, (6000.0, 7000.0, 9000.0));
    let doubtful = Move {
        after: vec![0],
        ..to(0, 0, (8000.0, 211.0, 519.0))
    };
    let found = all(&known, vec![room.clone(), doubtful.clone()], true);
    assert_eq!(
        found[0].as_deref(),
        Some("it makes room for web, whose move is doubtful")
    );
    // It also makes room for a move that is not doubtful.
    let good = Move {
        after: vec![0],
        ..to(2, 0, (8000.0, 3000.0, 7000.0))
    };
    let found = all(&known, vec![room.clone(), doubtful, good.clone()], true);
    assert_eq!((&found[0], &found[2]), (&None, &None));
    assert!(found[1].is_some());
    // A move into the room of a doubtful one.
    let wide = to(1, 1, (6000.0, 5000.0, 9000.0));
    let found = all(&known, vec![wide, good], true);
    assert!(found[0].is_some());
    assert_eq!(
        found[1].as_deref(),
        Some("it needs the room of old, whose move is doubtful")
    );
}
