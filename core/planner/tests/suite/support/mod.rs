//! Made-up facts, for tests of decisions.
use model::*;
use planner::{Decision, build, decide};
use proptest::prelude::*;
use units::*;

/// A volume: tier index, size in GiB, IOPS, share of reads, weight of its class.
#[derive(Debug, Clone)]
pub struct V {
    pub device: u16,
    pub gib: u64,
    pub iops: f64,
    pub reads: f64,
    pub weight: f64,
}

pub fn v(device: u16, gib: u64, iops: f64, reads: f64, weight: f64) -> V {
    V {
        device,
        gib,
        iops,
        reads,
        weight,
    }
}

/// Returns facts without volumes: tiers with devices that have space for these numbers of extents.
pub fn tiers_of_extents(tiers: &[&[u64]], extent: Bytes) -> Facts {
    let mut topology = Topology {
        tiers: vec![],
        devices: vec![],
    };
    for (t, devices) in tiers.iter().enumerate() {
        let tier = TierId::from_index(t);
        let first = topology.devices.len();
        for (d, extents) in devices.iter().enumerate() {
            let mut spec = preset_spec(["pm953", "pm1633", "pm863"][t]);
            spec.capacity = Bytes(extents * extent.0);
            let name = format!("t{t}-{d}");
            topology.devices.push(Device { name, tier, spec });
        }
        let devices = first..topology.devices.len();
        topology.tiers.push(Tier {
            name: format!("t{t}"),
            specialty: Specialty::for_tier(t, tiers.len()),
            devices: devices.map(DeviceId::from_index).collect(),
        });
    }
    Facts {
        at: Nanos::ZERO,
        epoch: 0,
        placement_due: true,
        generation: 0,
        classes: vec![SloClass::none()],
        vms: vec!["vm".into()],
        volumes: vec![],
        devices: vec![DeviceFacts::default(); topology.devices.len()],
        topology,
        moves: vec![],
        failed: vec![],
        nodes: Default::default(),
    }
}

/// Adds a volume without a measured load, with the device and the requests of each extent.
pub fn add_volume(
    facts: &mut Facts,
    size: Bytes,
    extent: Bytes,
    places: &[u16],
    heat: Option<ExtentHeat>,
) {
    let places = ExtentPlaces::of(places.iter().map(|d| Some(DeviceId(*d))));
    let held = places.held(size, extent);
    for (device, bytes) in &held {
        facts.devices[device.index()].used += *bytes;
    }
    let most = held.iter().max_by_key(|h| (h.1, std::cmp::Reverse(h.0)));
    facts.volumes.push(VolumeFacts {
        name: format!("v{}", facts.volumes.len()),
        vm: VmId(0),
        class: ClassId(0),
        size,
        device: most.unwrap().0,
        measured: None,
        calibration: vec![],
        calibrating: false,
        last_moved: None,
        extents: Some(ExtentFacts {
            extent,
            places,
            heat,
        }),
    });
}

/// Removes all volumes, before [`add_volume`].
pub fn clear_volumes(facts: &mut Facts) {
    facts.volumes.clear();
    facts.devices.iter_mut().for_each(|d| d.used = Bytes::ZERO);
}

pub fn topology() -> Topology {
    let mut topology = Topology {
        tiers: vec![],
        devices: vec![],
    };
    for (i, (name, preset, gib, n)) in [
        ("t1", "pm953", 100, 2),
        ("t2", "pm1633", 200, 1),
        ("t3", "pm863", 500, 2),
    ]
    .into_iter()
    .enumerate()
    {
        let tier = TierId::from_index(i);
        let first = topology.devices.len();
        for d in 0..n {
            let mut spec = preset_spec(preset);
            spec.capacity = Bytes::gib(gib);
            topology.devices.push(Device {
                name: format!("{name}-{d}"),
                tier,
                spec,
            });
        }
        let devices = (first..topology.devices.len())
            .map(DeviceId::from_index)
            .collect();
        topology.tiers.push(Tier {
            name: name.into(),
            specialty: Specialty::for_tier(i, 3),
            devices,
        });
    }
    topology
}

pub fn preset_spec(name: &str) -> DeviceSpec {
    model::preset(name).unwrap().spec()
}

/// Returns a complete calibration session of a closed loop: latency grows by 0.8 of the injected latency, the rate falls.
pub fn calibration(device: DeviceId, mean_us: f64, iops: f64) -> Vec<CalibrationWindow> {
    let levels = [0.0, 50.0, 0.0, 100.0, 0.0, 150.0, 0.0];
    let window = |(i, x): (usize, f64)| {
        let y = mean_us + 0.8 * x;
        let ios = (iops * mean_us / y) as u64 + 1000;
        CalibrationWindow {
            wanted_us: x,
            injected_us: x,
            duration: Nanos::from_secs(1),
            reads: ios,
            writes: ios,
            read_mean_us: y,
            write_mean_us: y,
            device,
            last: i + 1 == levels.len(),
        }
    };
    levels.into_iter().enumerate().map(window).collect()
}

/// Returns facts in which every volume has the latency of its idle device, and was calibrated recently.
pub fn facts(volumes: &[V]) -> Facts {
    let topology = topology();
    let mut classes = Vec::new();
    let mut devices = vec![DeviceFacts::default(); topology.devices.len()];
    let volumes = volumes
        .iter()
        .enumerate()
        .map(|(i, v)| {
            classes.push(SloClass {
                name: format!("c{i}"),
                weight: v.weight,
                target: None,
                max_slowdown: None,
            });
            devices[v.device as usize].used += Bytes::gib(v.gib);
            let spec = &topology.devices[v.device as usize].spec;
            let window = Nanos::from_secs(60);
            let flow = |op: Op, share: f64| {
                let ios = (v.iops * share * 60.0) as u64;
                let mean_us = spec.bare_latency_us(op, 4096.0);
                Flow {
                    ios,
                    bytes: ios * 4096,
                    latency: LatencySummary {
                        mean_us,
                        ..Default::default()
                    },
                }
            };
            let (reads, writes) = (flow(Op::Read, v.reads), flow(Op::Write, 1.0 - v.reads));
            let busy_us = reads.ios as f64 * reads.latency.mean_us
                + writes.ios as f64 * writes.latency.mean_us;
            let mean_us = busy_us / (reads.ios + writes.ios).max(1) as f64;
            VolumeFacts {
                name: format!("v{i}"),
                vm: VmId(0),
                class: ClassId::from_index(i),
                size: Bytes::gib(v.gib),
                device: DeviceId(v.device),
                measured: Some(MeasuredLoad {
                    window,
                    reads,
                    writes,
                    outstanding: busy_us / 60e6,
                }),
                calibration: calibration(DeviceId(v.device), mean_us.max(1.0), v.iops),
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
        topology,
        classes,
        vms: vec!["vm".into()],
        volumes,
        devices,
        moves: vec![],
        failed: vec![],
        nodes: Default::default(),
    }
}

pub fn plan_with(
    name: &str,
    config: serde_json::Value,
    facts: &Facts,
    policy: &Policy,
) -> Decision {
    let strategy = build(name, config).unwrap();
    decide(&*strategy, facts, policy, &strategy.initial_state(), 7).unwrap()
}

/// Returns one move of a plan, for changes.
pub fn change(plan: &mut Plan, position: usize) -> &mut Move {
    match &mut plan.actions[position] {
        Action::Move(m) => m,
        other => panic!("{other:?}"),
    }
}

pub fn volume() -> impl Strategy<Value = V> {
    (
        0u16..5,
        1u64..40,
        1.0f64..60_000.0,
        0.0f64..=1.0,
        prop::sample::select(vec![1.0, 2.0, 4.0]),
    )
        .prop_map(|(device, gib, iops, reads, weight)| V {
            device,
            gib,
            iops,
            reads,
            weight,
        })
}

/// Returns volumes that fit on their devices.
pub fn inventory() -> impl Strategy<Value = Vec<V>> {
    prop::collection::vec(volume(), 1..25).prop_filter("must fit", |volumes| {
        let f = facts(volumes);
        f.devices
            .iter()
            .zip(&f.topology.devices)
            .all(|(d, t)| d.used <= t.spec.capacity)
    })
}

pub const STRATEGIES: [(&str, &str); 11] = [
    ("noop", "{}"),
    ("static", "{}"),
    ("idt", "{}"),
    ("edt", "{}"),
    ("colloid", "{}"),
    ("arms", "{}"),
    (
        "autotiering",
        r#"{"form":"corrected","tier_latency":"bare","overload":"forbid"}"#,
    ),
    ("autotiering", r#"{"form":"corrected"}"#),
    (
        "autotiering",
        r#"{"form":"corrected","tier_latency":"bare"}"#,
    ),
    (
        "autotiering",
        r#"{"form":"corrected","tier_latency":"bare","assignment":"tier-major"}"#,
    ),
    ("autotiering", r#"{"form":"literal"}"#),
];
