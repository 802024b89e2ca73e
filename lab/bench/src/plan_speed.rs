//! Time of a decision about many volumes, and gap between its assignment and the upper bound.
//!
//! - `plan-speed [VOLUMES [TIERS [RUNS [DEVICES]]]]`, for `bench/plan.sh`, measures the strategy `autotiering`. DEVICES is the number of
//!   devices per tier.
//! - `plan-objectives [VOLUMES [TIERS [RUNS [DEVICES [IN_USE]]]]]`, for `bench/plan-objectives.sh`, measures the strategy `terrace` with
//!   objectives. IN_USE is the share of each volume's extents that receives requests; without it, the facts have no extents.
//!
//! Each run has a new inventory with three classes. Loads range over four orders of magnitude, sizes over three. Each tier is larger and
//! slower than the one before. The tiers are two thirds full.

use std::time::Instant;

use algo::Rng;
use model::{
    CalibrationWindow, Device, DeviceFacts, DeviceSpec, ExtentFacts, ExtentHeat, ExtentPlaces,
    Facts, Flow, LatencySummary, LoadCurve, MeasuredLoad, Op, Policy, SloClass, Specialty, Tier,
    Topology, VolumeFacts,
};
use planner::assign::{bound, solve};
use planner::{build, decide};
use units::{Bytes, BytesPerSec, ClassId, DeviceId, Nanos, TierId, VmId};

use crate::BenchResult;

/// Default number of devices per tier.
const DEVICES: usize = 8;

/// Parses the numbers of volumes, tiers, runs, and devices per tier.
fn sizes(args: &[String]) -> (usize, usize, usize, usize) {
    let of = |a: &String| a.parse::<usize>().expect("a number");
    let mut args = args.iter().take(4).map(of);
    (
        args.next().unwrap_or(10_000),
        args.next().unwrap_or(5),
        args.next().unwrap_or(5),
        args.next().unwrap_or(DEVICES),
    )
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let (volumes, tiers, runs, devices) = sizes(args);
    println!("volumes tiers seed decide_ms assign_ms bound_ms gap wanted_moves");
    for seed in 0..runs as u64 {
        let facts = inventory(seed, volumes, (tiers, devices));
        let policy = Policy::default();
        let strategy = build("autotiering", serde_json::Value::Null).expect("defaults");
        // The first decision reads the calibration, so the timed decision only decides.
        let state = strategy.initial_state();
        let first = decide(&*strategy, &facts, &policy, &state, seed).expect("a plan");
        let mut facts = facts;
        facts.volumes.iter_mut().for_each(|v| v.calibration.clear());
        let begun = Instant::now();
        let decision = decide(&*strategy, &facts, &policy, &first.state, seed).expect("a plan");
        let decide_ms = begun.elapsed().as_secs_f64() * 1e3;
        let taken = decision.assignment.expect("autotiering assigns");
        let begun = Instant::now();
        let solved = solve(&taken.problem).expect("everything has a home");
        let assign_ms = begun.elapsed().as_secs_f64() * 1e3;
        assert_eq!(solved, taken.placement);
        let begun = Instant::now();
        let most = bound(&taken.problem, Some(solved.value)).value;
        let bound_ms = begun.elapsed().as_secs_f64() * 1e3;
        let stay = taken
            .problem
            .present()
            .expect("everything has a home")
            .value;
        let gap = (most - solved.value) as f64 / (most - stay).max(1) as f64;
        let moves = (0..taken.problem.len())
            .filter(|i| Some(solved.tiers[*i]) != taken.problem.home(*i))
            .count();
        println!(
            "{volumes} {tiers} {seed} {decide_ms:.1} {assign_ms:.1} {bound_ms:.1} {gap:.5} {moves}"
        );
    }
    Ok(())
}

/// Number of monitor epochs up to the timed decision: as many as `terrace` remembers.
const EPOCHS: u64 = 17;

/// Measures `terrace` with objectives and loads that vary between epochs. Only the last epoch makes a plan; `absorb_ms` is the time of the
/// epoch before it, which only reads measurements.
pub(crate) fn objectives(args: &[String]) -> BenchResult {
    let (volumes, tiers, runs, devices) = sizes(args);
    let in_use = args.get(4).map(|a| a.parse::<f64>().expect("a share"));
    println!("volumes tiers seed decide_ms absorb_ms peak_mib wanted_moves");
    for seed in 0..runs as u64 {
        let mut facts = inventory(seed, volumes, (tiers, devices));
        // The strategy has no calibrations; they would take more memory than anything else.
        facts
            .volumes
            .iter_mut()
            .for_each(|v| v.calibration = vec![]);
        for (i, class) in facts.classes.iter_mut().enumerate() {
            class.target = Some(model::Objective {
                latency: Nanos::from_micros(3_000 >> i),
                statistic: model::SloStatistic::P95,
            });
        }
        if let Some(share) = in_use {
            facts.volumes.iter_mut().for_each(|v| known(v, share));
        }
        let usual: Vec<Option<MeasuredLoad>> = facts.volumes.iter().map(|v| v.measured).collect();
        let mut rng = Rng::new(seed, 2);
        let policy = Policy::default();
        let strategy = build("terrace", serde_json::Value::Null).expect("defaults");
        let mut state = strategy.initial_state();
        let (mut absorb_ms, mut decide_ms, mut moves) = (0.0, 0.0, 0);
        for epoch in 0..EPOCHS {
            for (v, usual) in facts.volumes.iter_mut().zip(&usual) {
                let by = 0.8 + 0.4 * rng.below(1 << 20) as f64 / f64::from(1 << 20);
                v.measured = usual.map(|mut m| {
                    for flow in [&mut m.reads, &mut m.writes] {
                        flow.ios = (flow.ios as f64 * by) as u64;
                        flow.bytes = flow.ios * 4096;
                        let mean = flow.latency.mean_us;
                        (flow.latency.p50_us, flow.latency.p95_us) = (mean, 2.0 * mean);
                        (flow.latency.p99_us, flow.latency.p999_us) = (3.0 * mean, 5.0 * mean);
                    }
                    m
                });
            }
            (facts.epoch, facts.at) = (epoch, Nanos::from_secs(60 * epoch));
            facts.placement_due = epoch + 1 == EPOCHS;
            let begun = Instant::now();
            let decision = decide(&*strategy, &facts, &policy, &state, seed).expect("a plan");
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            match facts.placement_due {
                true => (decide_ms, moves) = (ms, decision.plan.actions.len()),
                false => absorb_ms = ms,
            }
            state = decision.state;
        }
        let peak_mib = peak_mib();
        println!("{volumes} {tiers} {seed} {decide_ms:.1} {absorb_ms:.1} {peak_mib:.0} {moves}");
    }
    Ok(())
}

/// Returns the peak memory of the process in MiB: facts, states before and after, and the decision.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|p| p.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// Adds extents to a volume. The first extents, up to the given share, receive all requests.
fn known(v: &mut VolumeFacts, share: f64) {
    let extent = Bytes::mib(64);
    let count = v.size.0.div_ceil(extent.0) as u32;
    let hot = (f64::from(count) * share).ceil() as u32;
    let requests = v.measured.map_or(0, |m| m.ios());
    let each = requests / u64::from(hot.max(1)) + 1;
    v.extents = Some(ExtentFacts {
        extent,
        places: ExtentPlaces::of_runs([(count, Some(v.device))]),
        heat: Some(ExtentHeat::of((0..hot).map(|e| (e, each as u32)).collect())),
    });
}

fn inventory(seed: u64, volumes: usize, (tiers, devices_per_tier): (usize, usize)) -> Facts {
    let mut rng = Rng::new(seed, 1);
    let mut unit = move || rng.below(1 << 30) as f64 / f64::from(1 << 30);
    let sizes: Vec<f64> = (0..volumes).map(|_| 10f64.powf(3.0 * unit())).collect();
    let loads: Vec<f64> = (0..volumes).map(|_| 10f64.powf(4.0 * unit())).collect();
    let gib: f64 = sizes.iter().sum();
    let iops: f64 = loads.iter().sum();
    let weights: Vec<f64> = (0..tiers).map(|t| f64::from(1u32 << t)).collect();
    let weight: f64 = weights.iter().sum();
    let mut topology = Topology {
        tiers: vec![],
        devices: vec![],
    };
    for (t, w) in weights.iter().enumerate() {
        let first = topology.devices.len();
        for d in 0..devices_per_tier {
            let each = devices_per_tier as f64;
            // A third of all load on every tier would fill it.
            let cap = iops / each / 3.0;
            topology.devices.push(Device {
                name: format!("t{t}-{d}"),
                tier: TierId::from_index(t),
                spec: DeviceSpec {
                    model: "made up".into(),
                    capacity: Bytes((gib * 1.5 * w / weight / each * (1u64 << 30) as f64) as u64)
                        .max(Bytes::gib(1_001)),
                    read_iops: cap,
                    write_iops: cap / 3.0,
                    read_bandwidth: BytesPerSec((cap * 16_384.0) as u64),
                    write_bandwidth: BytesPerSec((cap * 8_192.0) as u64),
                    read_latency: Nanos::from_micros(80 + 40 * t as u64),
                    write_latency: Nanos::from_micros(30 + 30 * t as u64),
                    curve: LoadCurve::new(vec![(0.0, 1.0), (0.7, 1.4), (1.0, 4.0)])
                        .expect("a curve"),
                    jitter_sigma: 0.2,
                    usd_per_gb: 0.6,
                },
            });
        }
        topology.tiers.push(Tier {
            name: format!("tier-{t}"),
            specialty: Specialty::for_tier(t, tiers),
            devices: (first..topology.devices.len())
                .map(DeviceId::from_index)
                .collect(),
        });
    }
    let mut devices = vec![DeviceFacts::default(); topology.devices.len()];
    let volumes = (0..volumes)
        .map(|i| {
            let size = Bytes((sizes[i] * (1u64 << 30) as f64) as u64);
            // Chooses the device with the largest share of free space.
            let free = |d: &usize| {
                1.0 - devices[*d].used.as_f64() / topology.devices[*d].spec.capacity.as_f64()
            };
            let device = (0..devices.len())
                .max_by(|a, b| free(a).total_cmp(&free(b)))
                .expect("there are devices");
            let spec = &topology.devices[device].spec;
            devices[device].used += size;
            devices[device].utilization = (devices[device].utilization
                + loads[i] * spec.occupancy_s(Op::Read, 4096.0))
            .min(1.0);
            let mean_us = spec.bare_latency_us(Op::Read, 4096.0) * (1.0 + unit());
            let ios = (loads[i] * 60.0) as u64;
            let flow = |share: f64| Flow {
                ios: (ios as f64 * share) as u64,
                bytes: (ios as f64 * share) as u64 * 4096,
                latency: LatencySummary {
                    mean_us,
                    ..LatencySummary::default()
                },
            };
            let reads = unit();
            let slope = 0.3 + 0.9 * unit();
            let window = |k: u64| CalibrationWindow {
                wanted_us: 25.0 * (k % 5) as f64,
                injected_us: 25.0 * (k % 5) as f64,
                duration: Nanos::from_secs(1),
                reads: 1_000,
                writes: 1_000,
                read_mean_us: mean_us + slope * 25.0 * (k % 5) as f64 + (k % 3) as f64,
                write_mean_us: mean_us + slope * 25.0 * (k % 5) as f64 + (k % 2) as f64,
                device: DeviceId::from_index(device),
                last: k == 24,
            };
            VolumeFacts {
                name: format!("volume-{i}"),
                vm: VmId(0),
                class: ClassId::from_index(i % 3),
                size,
                device: DeviceId::from_index(device),
                measured: Some(MeasuredLoad {
                    window: Nanos::from_secs(60),
                    reads: flow(reads),
                    writes: flow(1.0 - reads),
                    outstanding: loads[i] * mean_us / 1e6,
                }),
                calibration: (0..25).map(window).collect(),
                calibrating: false,
                last_moved: None,
                extents: None,
            }
        })
        .collect();
    let class = |i: usize| SloClass {
        name: format!("class-{i}"),
        weight: (1 << i) as f64,
        target: None,
        max_slowdown: None,
    };
    Facts {
        at: Nanos::from_secs(900),
        epoch: 15,
        placement_due: true,
        generation: 0,
        topology,
        classes: (0..3).map(class).collect(),
        vms: vec!["vm".into()],
        volumes,
        devices,
        moves: vec![],
        failed: vec![],
        nodes: Default::default(),
    }
}
