use model::{ExtentHeat, ExtentPlaces};
use proptest::prelude::*;

use super::*;
use crate::settings::ManagerConfig;
use crate::wire::{
    BusyWindow, CopiesWindow, ExtentAccess, Load, LoadOf, MirrorWindow, MovingWindow, Placed,
    VolumeSample,
};

const WINDOW_NS: u64 = 10_000_000_000;
const MIB: u64 = 1 << 20;

/// A device of 1,000 reads or 500 writes per second, or 100 MiB of either.
const SETTINGS: &str = r#"
strategy = "noop"
[[tiers]]
name = "disk"
preset = "sata-ssd"
read_iops = "1000 IOPS"
write_iops = "500 IOPS"
read_bandwidth = "100 MiB/s"
write_bandwidth = "100 MiB/s"
"#;

fn settings() -> Settings {
    let (words, text) = config::read::<ManagerConfig>("test.toml", SETTINGS).unwrap();
    Settings::new(text, words).unwrap()
}

/// Requests per second of 4 KiB.
fn flow(per_s: u64) -> LoadOf {
    LoadOf {
        ios: 10 * per_s,
        bytes: 10 * per_s * 4096,
        ..LoadOf::default()
    }
}

fn volume(name: &str, on: &[&str], reads_per_s: u64, writes_per_s: u64) -> VolumeWindow {
    let placed = on.iter().map(|device| Placed {
        device: device.to_string(),
        bytes: MIB,
    });
    VolumeWindow {
        name: name.into(),
        vm: None,
        class: "default".into(),
        size_bytes: 8 * MIB,
        home: "disk".into(),
        placed: placed.collect(),
        movable: true,
        bound: None,
        by_hand: None,
        moving: None,
        calibrating: false,
        throttle: None,
        load: Some(Load {
            reads: flow(reads_per_s),
            writes: flow(writes_per_s),
            ..Load::default()
        }),
        extents: None,
        sample: None,
        cache: None,
        mirror: None,
        node: None,
    }
}

/// Device with these reads and writes per second, in use for this share of the window by the kernel's count.
fn device(name: &str, [reads, writes]: [u64; 2], kernel: Option<f64>) -> DeviceWindow {
    let io = DeviceIoCounts {
        reads: 10 * reads,
        writes: 10 * writes,
        read_bytes: 10 * reads * 4096,
        write_bytes: 10 * writes * 4096,
        busy_ns: kernel.map(|share| (share * WINDOW_NS as f64) as u64),
    };
    DeviceWindow {
        name: name.into(),
        tier: "disk".into(),
        size_bytes: 1 << 40,
        used_bytes: 0,
        emulate: None,
        connected: true,
        place: None,
        io: Some(io),
        errors: vec![],
        waf: None,
        node: None,
    }
}

fn report(devices: Vec<DeviceWindow>, volumes: Vec<VolumeWindow>) -> WindowReport {
    WindowReport {
        session: 1,
        seq: 1,
        as_of_ns: 0,
        window_ns: WINDOW_NS,
        tiers: vec!["disk".into()],
        devices,
        volumes,
        jobs: vec![],
        calibrations: vec![],
        problem: vec![],
        problems: vec![],
        second_by_hand: false,
        appliances: vec![],
        lends: None,
        lease: None,
    }
}

/// Shares of the window in thousandths, of reads and writes; none means unknown.
fn taken(in_use: &Utilization<'_>, volume: usize, device: &str) -> Option<[i64; 2]> {
    let of = in_use.taken(&in_use.report.volumes[volume], device)?;
    Some([of.reads, of.writes].map(|share| (share * 1000.0).round() as i64))
}

fn used(in_use: &Utilization<'_>, device: &str) -> Option<i64> {
    in_use.used(device).map(|u| (u * 1000.0).round() as i64)
}

fn known<'a>(report: &'a WindowReport, settings: &'a Settings) -> Utilization<'a> {
    Utilization::of(report, settings, |_| None)
}

#[test]
fn device_utilization_is_bounded_by_its_rating_and_the_kernel() {
    let settings = settings();
    let of = |did, kernel| {
        let report = report(vec![device("d", did, kernel)], vec![]);
        used(&known(&report, &settings), "d")
    };
    assert_eq!(of([300, 100], None), Some(500));
    // I/O is always in progress, but the device is far from saturated.
    assert_eq!(of([300, 100], Some(0.99)), Some(500));
    // It is faster than rated, as disks are with sequential requests.
    assert_eq!(of([5000, 0], Some(0.25)), Some(250));
    assert_eq!(of([5000, 0], None), Some(1000));
    assert_eq!(of([0, 0], Some(0.3)), Some(0));
    // An emulated device reports its utilization.
    let spec = model::preset("pm953").expect("a preset").spec();
    let emulated = DeviceWindow {
        emulate: Some(spec),
        ..device("d", [1, 1], Some(0.7))
    };
    let report = report(vec![emulated], vec![]);
    assert_eq!(used(&known(&report, &settings), "d"), Some(700));
}

#[test]
fn device_time_is_divided_by_request_cost() {
    let settings = settings();
    let volumes = || vec![volume("a", &["d"], 300, 0), volume("b", &["d"], 0, 100)];
    let of = |did, kernel| {
        let report = report(vec![device("d", did, kernel)], volumes());
        let in_use = known(&report, &settings);
        [taken(&in_use, 0, "d"), taken(&in_use, 1, "d")].map(|t| t.expect("it is known"))
    };
    assert_eq!(of([300, 100], None), [[300, 0], [0, 200]]);
    assert_eq!(of([300, 100], Some(0.25)), [[150, 0], [0, 100]]);
    // The rest is other I/O, such as copies.
    assert_eq!(of([600, 100], None), [[300, 0], [0, 200]]);
    assert_eq!(of([600, 100], Some(0.4)), [[150, 0], [0, 100]]);
    // Requests were merged.
    assert_eq!(of([50, 25], None), [[60, 0], [0, 40]]);
    assert_eq!(of([0, 0], Some(0.0)), [[0, 0], [0, 0]]);
}

#[test]
fn large_requests_are_charged_by_bytes() {
    let settings = settings();
    let mut large = volume("large", &["d"], 40, 0);
    let load = large.load.as_mut().expect("it has one");
    load.reads.bytes = 10 * 40 * MIB;
    let mut all = device("d", [240, 0], None);
    let io = all.io.as_mut().expect("it is counted");
    io.read_bytes = 10 * (40 * MIB + 200 * 4096);
    let report = report(vec![all], vec![large, volume("small", &["d"], 200, 0)]);
    let in_use = known(&report, &settings);
    let both = [0, 1].map(|v| taken(&in_use, v, "d").expect("it is known")[0]);
    assert!(both[0] == 2 * both[1], "{both:?}");
    assert!((both[0] + both[1] - 408).abs() < 3, "{both:?}");
}

#[test]
fn idle_device_has_no_utilization() {
    let settings = settings();
    let idle = report(
        vec![device("d", [0, 0], Some(0.0))],
        vec![volume("a", &["d"], 0, 0)],
    );
    let in_use = known(&idle, &settings);
    assert_eq!(used(&in_use, "d"), Some(0));
    assert_eq!(taken(&in_use, 0, "d"), Some([0, 0]));
}

#[test]
fn unknown_utilization_is_not_zero() {
    let settings = settings();
    let silent = DeviceWindow {
        io: None,
        ..device("silent", [0, 0], None)
    };
    let undescribed = DeviceWindow {
        tier: "other".into(),
        ..device("undescribed", [100, 0], Some(0.5))
    };
    let devices = vec![silent, undescribed, device("d", [400, 0], None)];
    let volumes = vec![
        volume("of-silent", &["silent"], 9, 0),
        volume("of-undescribed", &["undescribed"], 9, 0),
        VolumeWindow {
            load: None,
            ..volume("without-load", &["d"], 0, 0)
        },
        volume("on-two", &["d", "undescribed"], 100, 0),
        VolumeWindow {
            moving: Some(MovingWindow {
                device: "d".into(),
                extents: None,
                copied_bytes: 0,
                left_bytes: 1,
                rate_bytes_per_s: 1,
            }),
            ..volume("comes", &["silent"], 100, 0)
        },
        volume("a", &["d"], 100, 0),
        volume("without-data", &[], 50, 50),
    ];
    let report = report(devices, volumes);
    let in_use = known(&report, &settings);
    assert_eq!(used(&in_use, "silent"), None);
    assert_eq!(used(&in_use, "undescribed"), None);
    assert!(in_use.spec("undescribed").is_none());
    for (v, device) in [
        (0, "silent"),
        (1, "undescribed"),
        (2, "d"),
        (3, "d"),
        (4, "d"),
    ] {
        assert_eq!(taken(&in_use, v, device), None, "{v} of {device}");
    }
    // The volumes of unknown share used the rest of the device.
    assert_eq!(taken(&in_use, 5, "d"), Some([100, 0]));
    assert_eq!(taken(&in_use, 0, "d"), Some([0, 0]), "it is not there");
    assert_eq!(taken(&in_use, 6, "d"), Some([0, 0]), "it asks for holes");
    // A removed device is used by no volume, if the agent reports the shares.
    assert_eq!(taken(&in_use, 5, "gone"), None);
    let told = VolumeWindow {
        sample: Some(VolumeSample {
            busy: vec![BusyWindow {
                resource: "link".into(),
                reads_ns: WINDOW_NS / 4,
                writes_ns: 0,
            }],
            ..VolumeSample::default()
        }),
        ..volume("a", &["d"], 100, 0)
    };
    let of = |device| in_use.taken(&told, device).map(|b| b.reads);
    assert_eq!((of("gone"), of("link")), (Some(0.0), Some(0.25)));
}

#[test]
fn places_on_one_disk_have_its_utilization_and_separate_shares() {
    let settings = settings();
    // Both have the counters of the disk.
    let both = ["one", "two"].map(|name| device(name, [500, 0], Some(0.9)));
    let volumes = vec![volume("a", &["one"], 300, 0), volume("b", &["two"], 200, 0)];
    let report = report(both.into(), volumes);
    let in_use = known(&report, &settings);
    assert_eq!(
        (used(&in_use, "one"), used(&in_use, "two")),
        (Some(500), Some(500))
    );
    assert_eq!(taken(&in_use, 0, "one"), Some([300, 0]));
    assert_eq!(taken(&in_use, 1, "two"), Some([200, 0]));
    assert_eq!(taken(&in_use, 0, "two"), Some([0, 0]));
}

/// Reads and writes by extent.
type ExtentAccesses<'a> = [&'a [(u32, u32)]; 2];

fn mirror(
    copies: Option<CopiesWindow>,
    access: Option<(&str, ExtentAccesses<'_>)>,
) -> MirrorWindow {
    let access = access.map(|(places, [reads, writes])| ExtentAccess {
        extent_bytes: MIB,
        places: ExtentPlaces::try_from(places.to_string()).unwrap(),
        reads: ExtentHeat::of(reads.to_vec()),
        writes: ExtentHeat::of(writes.to_vec()),
    });
    MirrorWindow { copies, access }
}

#[test]
fn load_of_a_volume_on_two_devices_is_split_by_extent_requests() {
    let settings = settings();
    let devices = || vec![device("d", [300, 0], None), device("e", [80, 100], None)];
    // Two extents on the first device, two holes, four on the second device.
    let reads = [(0, 30), (1, 30), (2, 20), (7, 20)];
    let access = mirror(None, Some(("2x0,2x-,4x1", [&reads, &[(6, 9)]])));
    let split = VolumeWindow {
        mirror: Some(access),
        ..volume("v", &["d", "e"], 400, 100)
    };
    let all = report(devices(), vec![split.clone()]);
    let in_use = known(&all, &settings);
    assert_eq!(taken(&in_use, 0, "d"), Some([240, 0]));
    assert_eq!(taken(&in_use, 0, "e"), Some([80, 200]));
    // The extents have no requests but the volume has: their device is unknown.
    let untold = VolumeWindow {
        mirror: Some(mirror(None, Some(("2x0,2x-,4x1", [&[], &[]])))),
        ..split
    };
    let all = report(devices(), vec![untold]);
    let in_use = known(&all, &settings);
    assert_eq!(taken(&in_use, 0, "d"), None);
    assert_eq!(taken(&in_use, 0, "e"), None);
}

#[test]
fn mirror_reduces_reads_of_the_first_copy_and_doubles_writes() {
    let settings = settings();
    let copies = |by_hand| CopiesWindow {
        device: "e".into(),
        bytes: MIB,
        read_share: 0.5,
        by_hand,
    };
    let of = |by_hand, known: bool| {
        let mirrored = VolumeWindow {
            mirror: Some(mirror(Some(copies(by_hand)), None)),
            ..volume("v", &["d"], 400, 100)
        };
        // Four fifths of the reads are of mirrored extents, and half of them go to the mirror; so do a quarter of the writes.
        let devices = vec![device("d", [240, 100], None), device("e", [160, 25], None)];
        let all = report(devices, vec![mirrored]);
        let in_use = Utilization::of(&all, &settings, |_| {
            known.then_some(MirrorShares {
                from: "d",
                to: "e",
                reads: 0.8,
                writes: 0.25,
            })
        });
        [taken(&in_use, 0, "d"), taken(&in_use, 0, "e")]
    };
    assert_eq!(of(false, true), [Some([240, 200]), Some([160, 50])]);
    assert_eq!(
        of(true, true),
        [None, None],
        "an operator chose the extents"
    );
    assert_eq!(of(false, false), [None, None], "from before a restart");
}

proptest! {
    #[test]
    fn volume_shares_never_exceed_the_utilization(
        volumes in prop::collection::vec((0u64..3000, 0u64..3000), 0..6),
        did in (0u64..5000, 0u64..5000),
        kernel in prop::option::of(0.0f64..1.0),
    ) {
        let settings = settings();
        let volumes: Vec<VolumeWindow> = volumes
            .iter()
            .enumerate()
            .map(|(i, (reads, writes))| volume(&format!("v{i}"), &["d"], *reads, *writes))
            .collect();
        let report = report(vec![device("d", [did.0, did.1], kernel)], volumes);
        let in_use = known(&report, &settings);
        let used = in_use.used("d").unwrap();
        prop_assert!((0.0..=1.0).contains(&used));
        let taken = report.volumes.iter().map(|v| in_use.taken(v, "d").unwrap());
        let each: Vec<f64> = taken.map(|b| b.reads + b.writes).collect();
        prop_assert!(each.iter().all(|share| *share >= 0.0));
        prop_assert!(each.iter().sum::<f64>() <= used + 1e-9, "{each:?} of {used}");
    }
}

#[test]
fn device_without_kernel_times_is_utilized_by_its_rating() {
    let settings = settings();
    let used = |kernel| {
        let of = device("one", [800, 0], kernel);
        let spec = settings.spec_of(&of).unwrap();
        in_use(&of, of.io.as_ref().unwrap(), spec, 10.0)
    };
    assert_eq!((used(None), used(Some(0.0))), (0.8, 0.8));
    assert_eq!((used(Some(0.5)), used(Some(0.9))), (0.5, 0.8));
}
