//! Cost of a control cycle: a controller with its store receives windows of many volumes, decides and commits.
//!
//! `cargo run --release -p bench -- control-cycle [VOLUMES] [MINUTES]`

use std::time::{Duration, Instant};

use algo::Rng;
use manager::managed::ManagedController;
use manager::service::{Now, Service};
use manager::settings::{ManagerConfig, Settings};
use manager::wire::{
    DeviceIoCounts, DeviceWindow, Load, LoadOf, PROTOCOL, Placed, Register, VolumeWindow,
    WindowReport,
};
use store::{Retention, SqliteStore};
use units::Nanos;

use crate::BenchResult;

const WINDOW_NS: u64 = 10_000_000_000;
const GIB: u64 = 1 << 30;
/// Tiers with device preset and number of devices, high end first.
const TIERS: [(&str, &str, usize); 3] = [
    ("fast", "pm953", 3),
    ("mid", "pm1633", 4),
    ("slow", "pm863", 5),
];

const CONFIG: &str = r#"
[[classes]]
name = "gold"
weight = 4.0
latency = "2ms"
[[classes]]
name = "silver"
weight = 2.0
latency = "10ms"
[[classes]]
name = "bronze"
"#;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let mut arguments = args.iter().filter_map(|a| a.parse::<u64>().ok());
    let volumes = arguments.next().unwrap_or(1000);
    let minutes = arguments.next().unwrap_or(60);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (words, text) =
        config::read::<ManagerConfig>("example", CONFIG).expect("it is well formed");
    let settings = Settings::new(text, words).expect("it makes sense");
    let store = SqliteStore::open(&dir.path().join("terrace.db"), Retention::default())
        .expect("a new store");
    let mut managed = ManagedController::new(settings, store, 1_790_000_000_000, 1);
    let mut at_ns = WINDOW_NS;
    let now = |at_ns: u64| Now {
        at: Nanos(at_ns),
        unix_ms: 1_790_000_000_000 + at_ns / 1_000_000,
    };
    let register = Register {
        protocol: PROTOCOL,
        session: 1,
        version: "example".into(),
    };
    managed
        .register(now(at_ns), "host", register)
        .expect("it is welcome");
    let mut rng = Rng::new(7, 7);
    let (mut plain, mut monitor, mut placement) = (vec![], vec![], vec![]);
    let (mut parse, mut total) = (vec![], Duration::ZERO);
    let windows = minutes * 6;
    for seq in 1..=windows {
        at_ns += WINDOW_NS;
        let json = serde_json::to_vec(&report(seq, at_ns, volumes, &mut rng)).expect("plain data");
        let began = Instant::now();
        let message: WindowReport = serde_json::from_slice(&json).expect("its own words");
        let parsed = began.elapsed();
        managed
            .report(now(at_ns), "host", message)
            .expect("it is taken");
        managed.tick(now(at_ns));
        let took = began.elapsed();
        parse.push(parsed);
        total += took;
        // Monitor epochs take a minute, migration epochs fifteen minutes.
        match (seq % 6, seq % 90) {
            (_, 0) => placement.push(took),
            (0, _) => monitor.push(took),
            _ => plain.push(took),
        }
        if seq == windows {
            println!("{volumes} volumes, report of {} KiB JSON", json.len() >> 10);
        }
    }
    let show = |name: &str, mut list: Vec<Duration>| {
        list.sort();
        if let (Some(median), Some(most)) = (list.get(list.len() / 2), list.last()) {
            let ms = |d: &Duration| d.as_secs_f64() * 1e3;
            println!(
                "{name:34} {:6} times  median {:7.2} ms  most {:7.2} ms",
                list.len(),
                ms(median),
                ms(most)
            );
        }
    };
    show("reading a report", parse);
    show("window, all of it", plain);
    show("window with a monitor epoch's end", monitor);
    show("window with a placement decision", placement);
    let share = total.as_secs_f64() / (windows * WINDOW_NS) as f64 * 1e9;
    println!("share of one core, windows of 10 s: {:.2} %", share * 100.0);
    Ok(())
}

fn report(seq: u64, at_ns: u64, volumes: u64, rng: &mut Rng) -> WindowReport {
    let names: Vec<(String, &str, &str)> = TIERS
        .iter()
        .flat_map(|(tier, model, n)| (0..*n).map(move |i| (format!("{tier}-{i}"), *tier, *model)))
        .collect();
    let volumes: Vec<VolumeWindow> = (0..volumes)
        .map(|i| {
            let (device, tier, _) = &names[(i * 7 % names.len() as u64) as usize];
            VolumeWindow {
                name: format!("vm{:04}/disk{}", i / 3, i % 3),
                vm: None,
                class: ["gold", "silver", "bronze"][(i % 3) as usize].into(),
                size_bytes: 64 * GIB,
                home: (*tier).into(),
                placed: vec![Placed {
                    device: device.clone(),
                    bytes: (1 + i % 40) * GIB,
                }],
                movable: true,
                bound: None,
                by_hand: None,
                moving: None,
                calibrating: false,
                sample: None,
                cache: None,
                mirror: None,
                throttle: None,
                load: Some(load(i, rng)),
                extents: None,
                node: None,
            }
        })
        .collect();
    let used = |name: &str| {
        let here = volumes
            .iter()
            .flat_map(|v| &v.placed)
            .filter(|p| p.device == name);
        here.map(|p| p.bytes).sum::<u64>()
    };
    let devices = names
        .iter()
        .map(|(name, tier, model)| DeviceWindow {
            name: name.clone(),
            tier: (*tier).into(),
            size_bytes: 4096 * GIB,
            used_bytes: used(name),
            emulate: Some(model::preset(model).expect("a preset").spec()),
            connected: true,
            place: None,
            io: Some(DeviceIoCounts {
                reads: 20_000 + rng.below(20_000),
                writes: 10_000 + rng.below(10_000),
                read_bytes: 200 << 20,
                write_bytes: 100 << 20,
                busy_ns: None,
            }),
            waf: None,
            errors: vec![],
            node: None,
        })
        .collect();
    WindowReport {
        session: 1,
        seq,
        as_of_ns: at_ns,
        window_ns: WINDOW_NS,
        tiers: TIERS.iter().map(|t| t.0.into()).collect(),
        devices,
        volumes,
        jobs: vec![],
        calibrations: vec![],
        problem: vec![],
        second_by_hand: false,
        appliances: vec![],
        lends: None,
        lease: None,
        problems: vec![],
    }
}

/// Generates a load of some hundred requests per second, with latencies in 24 buckets per direction.
fn load(volume: u64, rng: &mut Rng) -> Load {
    let flow = |rng: &mut Rng, base_us: u64| {
        let first = algo::bucket_of(base_us * 1000) as u16;
        let buckets: Vec<(u16, u64)> = (0..24)
            .map(|i| (first + i * 3, 1 + rng.below(200)))
            .collect();
        let ios = buckets.iter().map(|b| b.1).sum();
        LoadOf {
            ios,
            bytes: ios * 8192,
            sum_ns: buckets
                .iter()
                .map(|(b, n)| algo::bucket_value_ns(usize::from(*b)) * n)
                .sum(),
            held_ns: 0,
            buckets,
        }
    };
    let base_us = 100 + volume % 300;
    let (reads, writes) = (flow(rng, base_us), flow(rng, base_us * 2));
    Load {
        depth_ns: reads.sum_ns + writes.sum_ns,
        reads,
        writes,
        errors: 0,
        waiting: vec![],
        devices: None,
    }
}
