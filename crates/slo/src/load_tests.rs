//! The model against what can be worked out by hand.

use super::*;

fn backend() -> Backend {
    Backend {
        resources: vec![
            Resource {
                name: "disks".into(),
                place: Place::BehindMemory,
            },
            Resource {
                name: "link".into(),
                place: Place::InFront,
            },
        ],
        memory: vec![Bytes(1000)],
        use_max: 0.8,
    }
}

/// Uniform reads over `bytes`.
fn uniform(id: u16, reads_per_s: f64, bytes: u64) -> Stream {
    let points = (0..=100).map(|i| (Bytes(bytes * i / 100), 1.0 - i as f64 / 100.0));
    Stream {
        workload: WorkloadId(id),
        reads_per_s,
        writes_per_s: 0.0,
        read_bytes: 1.0,
        costs: vec![
            Cost {
                read_s: 0.001,
                write_s: 0.001,
            },
            Cost {
                read_s: 0.0002,
                write_s: 0.0002,
            },
        ],
        pool: 0,
        passes: 1.0,
        memory_misses: 0.5,
        curve: Some(Curve::new(points.collect())),
        part: None,
        objective: Promise::default(),
    }
}

#[test]
fn memory_is_shared_as_lru_shares_it() {
    // Alike streams hold alike parts.
    let two = [uniform(0, 500.0, 1000), uniform(1, 500.0, 1000)];
    let found = predict(&backend(), &two, &Change::None);
    assert!((found.disk_reads[0] - 0.5).abs() < 0.01, "{found:?}");
    assert!((found.uses[0] - 0.5).abs() < 0.01);
    assert!((found.uses[1] - 0.2).abs() < 1e-9);
    assert_eq!(found.fails, None);
    // One that reads more slowly holds less: with x = e^(−r·T/1000) what it misses, x₁ = x₀^(1/4) and x₀ + x₁ = 1.
    let two = [uniform(0, 800.0, 1000), uniform(1, 200.0, 1000)];
    let found = predict(&backend(), &two, &Change::None);
    let sum = found.disk_reads[0] + found.disk_reads[1];
    assert!((sum - 1.0).abs() < 0.02, "{found:?}");
    let want = libm::pow(found.disk_reads[0], 0.25);
    assert!((found.disk_reads[1] - want).abs() < 0.02, "{found:?}");
}

#[test]
fn a_cache_takes_load_from_link_disks_and_memory() {
    let mut two = [uniform(0, 900.0, 1000), uniform(1, 900.0, 1000)];
    two[1].objective.rate_min_per_s = Some(900.0);
    let before = predict(&backend(), &two, &Change::None);
    assert!(
        before
            .fails
            .as_ref()
            .unwrap()
            .starts_with("disks would be 90 %")
    );
    let cached = Change::Cached {
        workload: WorkloadId(0),
        size: Bytes(900),
        grows: 1.0,
    };
    let found = predict(&backend(), &two, &cached);
    assert_eq!(found.fails, None, "{found:?}");
    assert!(found.disk_reads[0] <= 0.1 + 1e-9);
    assert!(
        found.disk_reads[1] < before.disk_reads[1],
        "memory is freed for the other"
    );
    assert!((found.uses[1] - 0.0002 * (90.0 + 900.0)).abs() < 1e-6);
}

#[test]
fn rates_are_conserved() {
    let mut two = [uniform(0, 700.0, 100_000), uniform(1, 500.0, 100_000)];
    two[1].objective.rate_min_per_s = Some(500.0);
    let mut backend = backend();
    backend.use_max = 2.0;
    let found = predict(&backend, &two, &Change::None);
    assert!(
        (300.0..320.0).contains(&found.available_per_s[1]),
        "{found:?}"
    );
    assert!(found.fails.unwrap().starts_with("workload 1 would get"));
    let held = Change::Throttled {
        workload: WorkloadId(0),
        rate_per_s: 400.0,
    };
    assert_eq!(predict(&backend, &two, &held).fails, None);
    two[0].objective.rate_min_per_s = Some(600.0);
    let found = predict(&backend, &two, &held);
    assert!(found.fails.unwrap().contains("below its guaranteed rate"));
}

/// Workload 0 reads twice what disks and link do, nine tenths of it from its appliance.
#[test]
fn what_an_appliance_serves_already_does_not_count() {
    let mut two = [uniform(0, 2000.0, 100_000), uniform(1, 500.0, 100_000)];
    two[0].passes = 0.1;
    two[1].objective.rate_min_per_s = Some(500.0);
    let found = predict(&backend(), &two, &Change::None);
    assert_eq!(found.fails, None, "{found:?}");
    assert!((found.uses[1] - 0.0002 * (200.0 + 500.0)).abs() < 1e-9);
    assert!(found.uses[0] <= 0.001 * (200.0 + 500.0) + 1e-9);
    // Another's throttle takes nothing of it away, and half the load of it passes half as much.
    let held = |workload| Change::Throttled {
        workload: WorkloadId(workload),
        rate_per_s: 250.0 * if workload == 0 { 4.0 } else { 1.0 },
    };
    let uses = |change| predict(&backend(), &two, &change).uses[1];
    assert!((uses(held(1)) - 0.0002 * (200.0 + 250.0)).abs() < 1e-9);
    assert!((uses(held(0)) - 0.0002 * (100.0 + 500.0)).abs() < 1e-9);
    // Without a curve, what misses the memory is a share of what gets there.
    two[0].curve = None;
    let found = predict(&backend(), &two, &Change::None);
    assert!((found.disk_reads[0] - 0.05).abs() < 1e-12);
    // Without the appliance.
    two[0].passes = 1.0;
    let found = predict(&backend(), &two, &Change::None);
    assert!(found.fails.is_some(), "{found:?}");
}

#[test]
fn a_part_of_its_own_counts_until_it_is_taken_back() {
    let mut two = [uniform(0, 500.0, 1000), uniform(1, 500.0, 1000)];
    two[0].part = Some(Bytes(800));
    let misses = |change| predict(&backend(), &two, &change).disk_reads;
    let near = |found: Vec<f64>, want: [f64; 2]| {
        let mut pairs = found.iter().zip(want);
        assert!(pairs.all(|(f, w)| (f - w).abs() < 0.01), "{found:?}");
    };
    near(misses(Change::None), [0.2, 0.8]);
    let workload = WorkloadId(0);
    near(misses(Change::MemoryShared { workload }), [0.5, 0.5]);
    let size = Bytes(300);
    near(misses(Change::MemoryFor { workload, size }), [0.7, 0.3]);
}

/// Workload 1 reads all over and has no curve: what it misses goes through the memory all the same.
#[test]
fn one_without_a_curve_takes_memory_too() {
    let mut two = [uniform(0, 500.0, 1000), uniform(1, 500.0, 1000)];
    let with = |two: &[Stream]| predict(&backend(), two, &Change::None).disk_reads[0];
    two[1].curve = None;
    two[1].memory_misses = 0.0;
    assert!(with(&two) < 0.01, "it misses nothing, and so holds nothing");
    // With x = e^(-r T/1000) of workload 0, 1 - x of it is held and r m T of the other's.
    two[1].memory_misses = 1.0;
    let x = with(&two);
    let filled = (1.0 - x) - libm::log(x);
    assert!((filled - 1.0).abs() < 0.03, "{x}");
    two[1].passes = 0.5;
    assert!(with(&two) < x, "half of it is answered before");
}
