//! Tests of the model against results that can be computed by hand.

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

/// Stream of uniform reads over `bytes`.
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
fn memory_is_shared_like_lru() {
    // Equal streams have equal shares of the memory.
    let two = [uniform(0, 500.0, 1000), uniform(1, 500.0, 1000)];
    let found = predict(&backend(), &two, &Change::None);
    assert!((found.disk_reads[0] - 0.5).abs() < 0.01, "{found:?}");
    assert!((found.uses[0] - 0.5).abs() < 0.01);
    assert!((found.uses[1] - 0.2).abs() < 1e-9);
    assert_eq!(found.fails, None);
    // A stream with a lower rate has a smaller share. With its miss ratio x = e^(−r·T/1000): x₁ = x₀^(1/4) and x₀ + x₁ = 1.
    let two = [uniform(0, 800.0, 1000), uniform(1, 200.0, 1000)];
    let found = predict(&backend(), &two, &Change::None);
    let sum = found.disk_reads[0] + found.disk_reads[1];
    assert!((sum - 1.0).abs() < 0.02, "{found:?}");
    let want = libm::pow(found.disk_reads[0], 0.25);
    assert!((found.disk_reads[1] - want).abs() < 0.02, "{found:?}");
}

#[test]
fn cache_relieves_link_disks_and_memory() {
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
fn request_rates_are_conserved() {
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

/// Workload 0 reads at twice the capacity of disks and link; nine tenths of its reads hit its appliance.
#[test]
fn reads_served_by_an_appliance_are_not_counted() {
    let mut two = [uniform(0, 2000.0, 100_000), uniform(1, 500.0, 100_000)];
    two[0].passes = 0.1;
    two[1].objective.rate_min_per_s = Some(500.0);
    let found = predict(&backend(), &two, &Change::None);
    assert_eq!(found.fails, None, "{found:?}");
    assert!((found.uses[1] - 0.0002 * (200.0 + 500.0)).abs() < 1e-9);
    assert!(found.uses[0] <= 0.001 * (200.0 + 500.0) + 1e-9);
    // A throttle of the other workload changes nothing for it; half of its load passes half as many reads.
    let held = |workload| Change::Throttled {
        workload: WorkloadId(workload),
        rate_per_s: 250.0 * if workload == 0 { 4.0 } else { 1.0 },
    };
    let uses = |change| predict(&backend(), &two, &change).uses[1];
    assert!((uses(held(1)) - 0.0002 * (200.0 + 250.0)).abs() < 1e-9);
    assert!((uses(held(0)) - 0.0002 * (100.0 + 500.0)).abs() < 1e-9);
    // Without a curve, memory misses are a fixed share of the arriving reads.
    two[0].curve = None;
    let found = predict(&backend(), &two, &Change::None);
    assert!((found.disk_reads[0] - 0.05).abs() < 1e-12);
    // The same without the appliance.
    two[0].passes = 1.0;
    let found = predict(&backend(), &two, &Change::None);
    assert!(found.fails.is_some(), "{found:?}");
}

#[test]
fn cache_share_is_counted_until_it_is_revoked() {
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

/// Workload 1 has random reads and no curve: its misses fill the memory nevertheless.
#[test]
fn workload_without_a_curve_occupies_memory() {
    let mut two = [uniform(0, 500.0, 1000), uniform(1, 500.0, 1000)];
    let with = |two: &[Stream]| predict(&backend(), two, &Change::None).disk_reads[0];
    two[1].curve = None;
    two[1].memory_misses = 0.0;
    assert!(with(&two) < 0.01, "it misses nothing, and so holds nothing");
    // With x = e^(-r T/1000) of workload 0, its content is 1 - x and that of the other one is r m T.
    two[1].memory_misses = 1.0;
    let x = with(&two);
    let filled = (1.0 - x) - libm::log(x);
    assert!((filled - 1.0).abs() < 0.03, "{x}");
    two[1].passes = 0.5;
    assert!(with(&two) < x, "half of it is answered before");
}
