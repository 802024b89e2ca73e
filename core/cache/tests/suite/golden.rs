//! Exact counts of every policy on one trace, and its memory use.
//!
//! A changed count means a changed definition of a policy. It must be intended.

use algo::{Popularity, Rng};
use cache::{
    AnyPolicy, Belady, Counts, DenseIds, EvaluateOptions, Policy, PolicyKind, REGISTRY,
    ReferencesBuilder, ReferencesConfig, ResponseTimes, StackSizes, evaluate,
};

const SIZES: [u32; 3] = [50, 500, 2500];

/// 60,000 references to about 5,000 pages: a skewed part, loops, scans, and a hot set that moves half-way.
fn trace() -> (Vec<u32>, u32) {
    let popularity = Popularity::new(4000, 0.9);
    let mut rng = Rng::new(20_101_122, 0);
    let keys: Vec<u64> = (0..60_000u64)
        .map(|i| match (i / 1000) % 10 {
            2 => i % 700,
            5 => 10_000 + i % 5000,
            _ => popularity.page(rng.next_u64()) + i / 30_000 * 300,
        })
        .collect();
    let mut ids = DenseIds::new();
    let mut pages = Vec::new();
    assert!(ids.number(&keys, &mut pages));
    (pages, ids.len())
}

fn hits(kind: PolicyKind, capacity: u32, pages: &[u32], universe: u32) -> u64 {
    let mut policy = AnyPolicy::new(kind, capacity, universe);
    let mut hits = 0;
    // Slices of 5,000 references, hours of twelve slices.
    for (i, slice) in pages.chunks(5000).enumerate() {
        hits += policy.replay(slice).hits;
        policy.slice_ended();
        if i % 12 == 11 {
            policy.hour_ended();
        }
    }
    hits
}

#[test]
fn hit_counts_are_unchanged() {
    let (pages, universe) = trace();
    assert_eq!((pages.len(), universe), (60_000, UNIVERSE));
    let counted: Vec<(&str, [u64; 3])> = REGISTRY
        .iter()
        .map(|e| (e.name, SIZES.map(|c| hits(e.kind, c, &pages, universe))))
        .collect();
    assert_eq!(counted, EXPECTED);
    let belady = Belady::new(pages.clone(), universe).unwrap();
    let best = SIZES.map(|c| belady.count(c).hits);
    assert_eq!(best, BEST);
    for (name, counts) in counted {
        assert!(counts.iter().zip(best).all(|(c, b)| *c <= b), "{name}");
    }
    let mut stack = StackSizes::new(&SIZES, universe);
    stack.replay(&pages);
    let lru = EXPECTED.iter().find(|e| e.0 == "lru").unwrap();
    assert_eq!(
        stack.counts().iter().map(|c| c.1.hits).collect::<Vec<_>>(),
        lru.1
    );
}

/// All tables; those by page number for twice the capacity.
#[test]
fn cached_page_of_any_policy_takes_at_most_32_bytes() {
    let (capacity, universe) = (20_000, 40_000);
    let popularity = Popularity::new(u64::from(universe), 0.6);
    let mut rng = Rng::new(1, 0);
    let pages: Vec<u32> = (0..800_000)
        .map(|_| popularity.page(rng.next_u64()) as u32)
        .collect();
    for entry in REGISTRY {
        let mut policy = AnyPolicy::new(entry.kind, capacity, universe);
        let mut most = 0;
        for part in pages.chunks(10_000) {
            policy.replay(part);
            most = most.max(policy.memory_bytes());
        }
        assert_eq!(policy.len(), capacity);
        let each = most as f64 / f64::from(capacity);
        println!("{:<20}{each:.1} bytes a page", entry.name);
        assert!(each <= 32.0, "{} takes {each} bytes a page", entry.name);
    }
}

/// Two volumes for three hours, one skewed and one uniform: the second misses its response time and gets better
/// positions.
#[test]
fn slow_volume_gets_more_hits_under_priority_lru() {
    let config = ReferencesConfig {
        page_bytes: 65_536,
        sample: None,
        seed: 0,
    };
    let mut builder = ReferencesBuilder::new(config).unwrap();
    let skewed = Popularity::new(3000, 0.9);
    let flat = Popularity::new(3000, 0.4);
    let mut rng = Rng::new(20_101_122, 1);
    for i in 0..60_000u64 {
        let (volume, page) = match rng.below(2) {
            0 => (0, skewed.page(rng.next_u64())),
            _ => (1, flat.page(rng.next_u64())),
        };
        let pushed = builder.push(Some(i * 180_000_000), volume, page << 16, 65_536);
        pushed.unwrap();
    }
    let references = builder.finish().unwrap();
    let options = EvaluateOptions {
        response: Some(ResponseTimes {
            hit_ns: 20_000,
            miss_ns: 6_000_000,
            target_ns: 3_500_000,
        }),
        ..EvaluateOptions::default()
    };
    let hits = |kind| {
        let found = evaluate(&references, kind, 1500, &options, &mut |_| ());
        found
            .volumes
            .iter()
            .map(|v: &Counts| v.hits)
            .collect::<Vec<_>>()
    };
    let found = [PolicyKind::Lru, PolicyKind::HrLru, PolicyKind::PriorityLru].map(hits);
    assert_eq!(found, BY_VOLUME);
    let [_, alike, moved] = BY_VOLUME;
    assert!(moved[0] < alike[0] && moved[1] > alike[1]);
}

const BY_VOLUME: [[u64; 2]; 3] = [[18658, 11141], [19867, 10472], [18320, 12248]];
const UNIVERSE: u32 = 5_197;
const BEST: [u64; 3] = [21_289, 36_992, 50_668];
const EXPECTED: &[(&str, [u64; 3])] = &[
    ("fifo", [8609, 23196, 37929]),
    ("clock", [10768, 25573, 41368]),
    ("lru", [10101, 25192, 40383]),
    ("slru", [15532, 28819, 44365]),
    ("two-q", [15341, 28485, 40751]),
    ("lfu", [12723, 26947, 42782]),
    ("lfu-plain", [8187, 21068, 43988]),
    ("arc", [15920, 29350, 40674]),
    ("lirs", [16152, 29452, 45756]),
    ("s3-fifo", [16535, 29581, 43870]),
    ("sieve", [16245, 28743, 43988]),
    ("w-tinylfu", [16664, 29436, 44764]),
    ("hr-lru", [14073, 28158, 43974]),
    ("priority-lru", [14073, 28158, 43974]),
];
