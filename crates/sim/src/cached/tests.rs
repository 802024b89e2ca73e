use algo::{Rng, ServiceTime};
use model::Op;
use planner::exchange::{ExchangeTerms, Station};
use units::{Bytes, Nanos};

use super::*;

const PAGE: Bytes = Bytes(65536);

/// A hot set of some extents and a cold rest; every tenth request writes.
fn sequence(seed: u64, extents: u64, hot: u64) -> Sequence {
    let mut rng = Rng::new(seed, 0);
    let requests: Vec<(Op, u64, u64)> = (0..40_000)
        .map(|_| {
            let extent = if rng.below(10) < 8 {
                rng.below(hot)
            } else {
                rng.below(extents)
            };
            let op = if rng.below(10) == 0 {
                Op::Write
            } else {
                Op::Read
            };
            let page = extent * 60 + rng.below(60);
            (op, page * PAGE.0, 8192)
        })
        .collect();
    Sequence::new("made up", &requests, PAGE, PAGES_PER_EXTENT).unwrap()
}

fn kind(name: &str, count: u16, share: f64, service: ServiceTime) -> DeviceKind {
    DeviceKind {
        name: name.into(),
        count,
        share,
        station: Station {
            service,
            write_cost: 4.0,
            bare_ns: None,
        },
        flash: None,
    }
}

fn array(rate: f32) -> CachedArray {
    let class = |name: &str, ms: u64| ServiceClass {
        name: name.into(),
        target: Nanos::from_millis(ms),
    };
    let volume = |v: usize| CachedVolume {
        name: format!("v{v}"),
        class: v % 2,
        sequence: v % 3,
        rates: vec![rate],
    };
    let mut array = CachedArray {
        sequences: (0..3).map(|s| sequence(s, 400, 40)).collect(),
        volumes: (0..12).map(volume).collect(),
        classes: vec![class("high", 2), class("low", 12)],
        kinds: vec![
            kind("SSD", 1, 0.02, ServiceTime::flash_2010()),
            kind("SATA", 8, 0.98, ServiceTime::sata_7k2()),
        ],
        extents_over_touched: 2.0,
        page: PAGE,
        cache_pages: 0,
        write_share: 0.2,
        hit: Nanos(20_000),
        outstanding: 32,
        hour: Nanos::from_secs(600),
        hours: 5,
        warmup_hours: 2,
        exchange_spread: Nanos::from_secs(100),
        terms: ExchangeTerms {
            most: 2000,
            horizon: Nanos::from_secs(600),
            ..ExchangeTerms::default()
        },
        seed: 3,
    };
    array.cache_pages = array.touched_extents() * PAGES_PER_EXTENT / 20;
    array
}

fn run(array: &CachedArray, cache: CacheMode, back_end: BackEndMode) -> CachedResult {
    run_cached(array, cache, back_end, &mut |_| ()).unwrap()
}

fn mean(result: &CachedResult) -> f64 {
    result.total.response_mean_ms.unwrap()
}

#[test]
fn exchanges_pay_and_are_charged() {
    let array = array(20.0);
    let fixed = run(&array, CacheMode::Lru, BackEndMode::Fixed);
    let moved = run(&array, CacheMode::Lru, BackEndMode::Regular);
    assert!(
        mean(&moved) < 0.8 * mean(&fixed),
        "{} {}",
        mean(&moved),
        mean(&fixed)
    );
    assert!(fixed.hours.iter().all(|h| h.exchanges_planned == 0));
    let done: u32 = moved.hours.iter().map(|h| h.exchanges_done).sum();
    let copies: f64 = moved.hours.iter().map(|h| h.utilization_copies[1]).sum();
    assert!(done > 50 && copies > 0.0);
    // Each exchange reads and writes an extent on both of its devices: 30 pieces of 12 to 17 ms on a SATA disk.
    let seconds = copies * 600.0 * 8.0;
    let on_sata = seconds / (30.0 * 0.016);
    assert!(
        on_sata > 0.8 * f64::from(done) && on_sata < 2.2 * f64::from(done),
        "{on_sata} {done}"
    );
    assert!(
        moved
            .hours
            .iter()
            .all(|h| h.exchanges_done <= h.exchanges_planned)
    );
}

/// The class that is meant gains, at the other's cost if need be.
#[test]
fn classes_count_in_the_back_end() {
    let array = array(20.0);
    let regular = run(&array, CacheMode::Lru, BackEndMode::Regular);
    let qos = run(&array, CacheMode::Lru, BackEndMode::Qos);
    let high = |r: &CachedResult| r.classes[0].response_mean_ms.unwrap();
    assert!(
        high(&qos) < 0.9 * high(&regular),
        "{} {}",
        high(&qos),
        high(&regular)
    );
    let ssd = |r: &CachedResult| r.classes[0].device_share[0].unwrap();
    assert!(ssd(&qos) > ssd(&regular));
}

/// Places by hit ratio keep a hot set that scans would push out.
#[test]
fn places_resist_scans() {
    let mut array = array(20.0);
    let scan: Vec<(Op, u64, u64)> = (0..40_000)
        .map(|i| (Op::Read, i % 24_000 * PAGE.0, 65536))
        .collect();
    let scan = Sequence::new("scan", &scan, PAGE, PAGES_PER_EXTENT).unwrap();
    array.sequences[2] = scan;
    array.cache_pages = 6000;
    let cached = |mode| {
        run(&array, mode, BackEndMode::Fixed)
            .total
            .cached_share
            .unwrap()
    };
    let (lru, hr) = (cached(CacheMode::Lru), cached(CacheMode::HrLru));
    assert!(hr > lru + 0.03, "{hr} {lru}");
}

#[test]
fn all_requests_are_counted_once_and_runs_repeat() {
    let array = array(10.0);
    for mode in [
        CacheMode::Lru,
        CacheMode::HrLru,
        CacheMode::PriorityLru,
        CacheMode::PriorityLruCorrected,
    ] {
        let result = run(&array, mode, BackEndMode::Qos);
        let all: u64 = result.hours.iter().map(|h| h.total.requests).sum();
        // 12 volumes, 10 requests a second, 5 hours of 600 s.
        let expected = 12.0 * 10.0 * 3000.0;
        assert!((all as f64 / expected - 1.0).abs() < 0.02, "{all}");
        let counted = result.hours.iter().filter(|h| h.hour >= 2);
        let counted: u64 = counted.map(|h| h.total.requests).sum();
        assert_eq!(counted, result.total.requests);
        let classes: u64 = result.classes.iter().map(|c| c.requests).sum();
        assert_eq!(classes, result.total.requests);
        let again = run(&array, mode, BackEndMode::Qos);
        let text = |r: &CachedResult| serde_json::to_string(r).unwrap();
        assert_eq!(text(&result), text(&again));
    }
}

/// Past what devices can do the loop closes: load waits, and response times stay bounded by what is outstanding.
#[test]
fn overload_closes_the_loop() {
    let mut array = array(2000.0);
    array.hours = 3;
    let result = run(&array, CacheMode::Lru, BackEndMode::Fixed);
    let offered = 12.0 * 2000.0 * 600.0;
    let served = result.hours[2].total.requests as f64;
    assert!(served < 0.9 * offered, "{served}");
    // 12 volumes with 32 requests each, at most all on one disk of 13.7 ms and more.
    let worst = result.total.response_p99_ms.unwrap();
    assert!(worst < 384.0 * 60.0, "{worst}");
    assert!(result.hours[2].utilization[1] > 0.5);
}

/// A drive of flash in place of the SSD: its collection is seen, and exchanges wear it.
#[test]
fn flash_is_worn_by_writes_and_exchanges() {
    let mut array = array(20.0);
    let mut drive = flash::drive::preset("tlc-nvme").unwrap();
    drive.ftl.spare_share = 0.25;
    array.kinds[0].flash = Some(drive);
    let fixed = run(&array, CacheMode::Lru, BackEndMode::Fixed);
    let moved = run(&array, CacheMode::Lru, BackEndMode::Regular);
    let [fixed, moved] = [&fixed, &moved].map(|r| r.wear[0].clone());
    assert_eq!(fixed.kind, "SSD");
    assert!(
        moved.host_bytes > 2 * fixed.host_bytes,
        "hot extents are written there"
    );
    assert!(moved.waf.unwrap() > 1.0);
    let by_classes: f64 = moved.written_share.iter().sum();
    assert!(
        by_classes > 0.0 && by_classes < 1.0,
        "the rest are copies: {by_classes}"
    );
    let all: f64 = fixed.written_share.iter().sum();
    assert!(
        (all - 1.0).abs() < 1e-9,
        "without exchanges only classes write: {all}"
    );
}
