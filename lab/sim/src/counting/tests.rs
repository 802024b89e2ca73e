//! Test vectors of the formulas, and comparisons with a slow and simple simulation.

use config::scenario::{Aggregation, MovementReading};
use planner::extents::{
    DualPeriod, DualPeriodConfig, ExtentNo, ExtentPolicy, Period, PeriodConfig, Terms,
};
use proptest::prelude::*;
use units::{Bytes, Nanos};

use super::*;

const HOUR: Nanos = Nanos::from_secs(3600);

fn terms(movement_io: Bytes) -> Terms {
    Terms {
        movement_io,
        ..Terms::default()
    }
}

#[test]
fn storage_performance_matches_reference_values() {
    for (r, want) in [(0.632, 2.69), (0.865, 7.15), (0.95, 18.09)] {
        let p = storage_performance(r, 180.0);
        assert!((p - want).abs() < 0.005, "r {r}: {p}");
    }
    assert_eq!(storage_performance(0.0, 180.0), 1.0);
    assert!((storage_performance(1.0, 180.0) - 180.0).abs() < 1e-9);
}

#[test]
fn move_of_an_extent_in_8_kib_units_takes_1280_reads_and_writes() {
    assert_eq!(terms(Bytes(8 << 10)).ios_per_move(), 2.0 * 1280.0);
    assert_eq!(Terms::default().ios_per_move(), 2.0 * 80.0);
}

fn one_interval(count: IntervalCount) -> CellCounts {
    CellCounts {
        intervals: vec![count],
        ..CellCounts::default()
    }
}

#[test]
fn score_matches_a_manual_calculation_in_both_readings() {
    // 143 extents in each direction with 160 I/Os each, for 320,000 requests.
    let counted = one_interval(IntervalCount {
        requests: 320_000,
        hits: 304_000,
        promoted: 143,
        demoted: 143,
    });
    let mut formula = Formula {
        count_from: Nanos::ZERO,
        ..Formula::hourly(Terms::default())
    };
    let score = formula.score(&counted).unwrap();
    assert!((score.movement - 0.143).abs() < 1e-12);
    assert!((score.storage - 18.0905).abs() < 1e-4);
    assert!((score.total - 18.0905 / 1.143).abs() < 1e-4);
    assert_eq!(score.extents_moved, 286);
    assert_eq!(score.bytes_moved, 286 * (10 << 20));
    formula.reading = MovementReading::Subtract;
    assert!((formula.score(&counted).unwrap().total - 18.0905 * 0.857).abs() < 1e-4);
    formula.directions = Directions::Copies;
    assert!((formula.score(&counted).unwrap().movement - 0.0715).abs() < 1e-12);
    formula.directions = Directions::Up;
    assert!((formula.score(&counted).unwrap().movement - 0.03575).abs() < 1e-12);
    // No score remains if all intervals are excluded.
    formula.count_from = HOUR;
    assert_eq!(formula.score(&counted), None);
}

#[test]
fn performance_is_averaged_over_hours_not_hits() {
    let hour = |hits| IntervalCount {
        requests: 100,
        hits,
        ..IntervalCount::default()
    };
    let counted = CellCounts {
        intervals: vec![hour(0), hour(100)],
        ..CellCounts::default()
    };
    let mut formula = Formula {
        count_from: Nanos::ZERO,
        ..Formula::hourly(Terms::default())
    };
    assert!((formula.score(&counted).unwrap().total - 90.5).abs() < 1e-9);
    formula.aggregation = Aggregation::Whole;
    let whole = formula.score(&counted).unwrap().total;
    assert!((whole - storage_performance(0.5, 180.0)).abs() < 1e-9);
}

/// Simple specification of a method with sorted vectors.
#[derive(Clone, Copy, Debug)]
enum SlowMethod {
    Period {
        hours: usize,
    },
    Dual {
        long: usize,
        short: usize,
        share: f64,
    },
}

/// Returns the top `k` of `counts` that are not in `barred`. The order is: more requests, then resident, then the lower
/// number.
fn top(counts: &[u64], k: usize, resident: &[usize], barred: &[usize]) -> Vec<usize> {
    let mut all: Vec<usize> = (0..counts.len()).filter(|p| !barred.contains(p)).collect();
    all.sort_by_key(|p| (std::cmp::Reverse(counts[*p]), !resident.contains(p), *p));
    all.truncate(k);
    all.sort_unstable();
    all
}

fn sum(heats: &[Vec<(ExtentNo, u32)>], extents: usize) -> Vec<u64> {
    let mut counts = vec![0; extents];
    for (no, n) in heats.iter().flatten() {
        counts[*no as usize] += u64::from(*n);
    }
    counts
}

/// Returns the total performance of the slow method. Each hour is counted again from the heats.
fn slow_total(
    slow: SlowMethod,
    heats: &[Vec<(ExtentNo, u32)>],
    extents: usize,
    k: usize,
    skip: usize,
) -> f64 {
    let mut fast: Vec<usize> = (0..k).collect();
    let mut long_area = fast.clone();
    let (mut moves, mut total, mut hours) = (0usize, 0.0, 0.0);
    for (h, heat) in heats.iter().enumerate() {
        let requests: u64 = heat.iter().map(|(_, n)| u64::from(*n)).sum();
        let hits: u64 = heat
            .iter()
            .filter(|(p, _)| fast.contains(&(*p as usize)))
            .map(|(_, n)| u64::from(*n))
            .sum();
        if h >= skip && requests > 0 {
            let r = hits as f64 / requests as f64;
            let m = moves as f64 * 160.0 / requests as f64;
            total += 1.0 / (r / 180.0 + 1.0 - r) / (1.0 + m);
            hours += 1.0;
        }
        let ended = h + 1;
        let before = fast.clone();
        match slow {
            SlowMethod::Period { hours } => {
                if ended % hours == 0 {
                    fast = top(&sum(&heats[ended - hours..ended], extents), k, &before, &[]);
                }
            }
            SlowMethod::Dual { long, short, share } => {
                let k_short = (share * k as f64).round() as usize;
                if ended % long == 0 {
                    long_area = top(
                        &sum(&heats[ended - long..ended], extents),
                        k - k_short,
                        &before,
                        &[],
                    );
                }
                if ended % short == 0 && long_area.len() > k - k_short {
                    // Before the end of the first long period, the initial extents keep their hottest part.
                    let others: Vec<usize> =
                        (0..extents).filter(|p| !long_area.contains(p)).collect();
                    let counts = sum(&heats[(ended - 1) / long * long..ended], extents);
                    long_area = top(&counts, k - k_short, &before, &others);
                }
                if ended % long == 0 || ended % short == 0 {
                    let since = (ended - 1) / short * short;
                    let mut union = top(
                        &sum(&heats[since..ended], extents),
                        k_short,
                        &before,
                        &long_area,
                    );
                    assert!(union.iter().all(|p| !long_area.contains(p)));
                    union.extend(&long_area);
                    union.sort_unstable();
                    fast = union;
                }
            }
        }
        moves = fast.iter().filter(|p| !before.contains(p)).count()
            + before.iter().filter(|p| !fast.contains(p)).count();
    }
    total / hours
}

fn fast_total<P: ExtentPolicy>(
    config: &P::Config,
    heats: &[Vec<(ExtentNo, u32)>],
    extents: usize,
    k: usize,
    skip: usize,
) -> f64 {
    let count_from = Nanos(HOUR.0 * skip as u64);
    let spec = CellSpec {
        extents: extents as u32,
        capacity: k as u32,
        count_from,
        terms: Terms::default(),
    };
    let mut cells: Vec<Box<dyn Cell>> =
        vec![Box::new(PolicyCell::new(P::new(config).unwrap(), spec))];
    evaluate(HOUR, heats.iter().cloned(), &mut cells);
    let formula = Formula {
        count_from,
        ..Formula::hourly(Terms::default())
    };
    formula.score(&cells.remove(0).finish()).unwrap().total
}

fn hours(n: usize) -> Nanos {
    Nanos(HOUR.0 * n as u64)
}

/// Generates heats with ties, gaps and hours without requests.
fn heats() -> impl Strategy<Value = (usize, Vec<Vec<(ExtentNo, u32)>>)> {
    (3usize..24).prop_flat_map(|extents| {
        let hour = proptest::collection::vec(
            prop_oneof![3 => Just(0u32), 3 => 1u32..4, 1 => 50u32..90],
            extents,
        )
        .prop_map(|counts| {
            counts
                .into_iter()
                .enumerate()
                .filter(|(_, n)| *n > 0)
                .map(|(p, n)| (p as u32, n))
                .collect()
        });
        (Just(extents), proptest::collection::vec(hour, 30..60))
    })
}

proptest! {
    #[test]
    fn counting_matches_the_full_simulation(
        (extents, mut heats) in heats(),
        k_share in 0.1f64..0.9,
        share in 0.0f64..=1.0,
        long in 1usize..13,
        short in 1usize..7,
    ) {
        // Makes sure that the measured time has requests.
        heats[25] = vec![(0, 7)];
        let (short, k) = (short.min(long), ((k_share * extents as f64) as usize).max(1));
        let got = fast_total::<Period>(
            &PeriodConfig { period: hours(long), ..PeriodConfig::default() }, &heats, extents, k, 20);
        let want = slow_total(SlowMethod::Period { hours: long }, &heats, extents, k, 20);
        prop_assert!((got - want).abs() < 1e-9, "period: {got}, slow {want}");
        let config = DualPeriodConfig { long: hours(long), short: hours(short), share, ..DualPeriodConfig::default() };
        let got = fast_total::<DualPeriod>(&config, &heats, extents, k, 20);
        let want = slow_total(SlowMethod::Dual { long, short, share }, &heats, extents, k, 20);
        prop_assert!((got - want).abs() < 1e-9, "dual: {got}, slow {want}");
    }

    #[test]
    fn dual_period_without_a_short_area_is_a_single_period(
        (extents, mut heats) in heats(),
        k_share in 0.1f64..0.9,
        long in 1usize..5,
        min_gain in prop_oneof![Just(0.0), 0.0f64..2.0],
    ) {
        heats[25] = vec![(0, 7)];
        let k = ((k_share * extents as f64) as usize).max(1);
        let long = long * 3;
        let single = |n| fast_total::<Period>(&PeriodConfig { period: hours(n), min_gain }, &heats, extents, k, 20);
        let dual = |share| fast_total::<DualPeriod>(
            &DualPeriodConfig { long: hours(long), short: hours(3), share, min_gain }, &heats, extents, k, 20);
        prop_assert_eq!(dual(0.0), single(long));
        prop_assert_eq!(dual(1.0), single(3));
    }
}
