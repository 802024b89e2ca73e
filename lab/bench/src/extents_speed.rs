//! Time of extent policies with many extents: `cargo run --release -p bench -- extents-speed [EXTENTS]`.
//!
//! Simulates 36 hours of Zipf-like heat that drifts. Each policy observes and decides every hour. Prints the median and the slowest
//! decision, the median observation, and the size of the state as JSON.

use std::time::Instant;

use algo::{Popularity, Rng};
use planner::extents::{
    AdaptivePeriod, AgedFrequency, DualPeriod, ExtentNo, ExtentPolicy, FastSet, Heat,
    MovingAverages, Period, PeriodConfig,
};
use units::Nanos;

use crate::BenchResult;

const HOUR: Nanos = Nanos::from_secs(3600);
const HOURS: u64 = 36;

/// Generates the heat of an hour. With six requests per extent on average, most extents are touched.
fn heat(extents: u32, hour: u64) -> Vec<(ExtentNo, u32)> {
    let popularity = Popularity::new(u64::from(extents), 0.8);
    let mut rng = Rng::new(7, hour);
    let mut counts = vec![0u32; extents as usize];
    for _ in 0..u64::from(extents) * 6 {
        let page = popularity.page(rng.next_u64()) + hour * u64::from(extents) / 200;
        counts[(page % u64::from(extents)) as usize] += 1;
    }
    let touched = counts.iter().enumerate().filter(|(_, n)| **n > 0);
    touched.map(|(no, n)| (no as u32, *n)).collect()
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure<P: ExtentPolicy>(config: &P::Config, heats: &[Vec<(ExtentNo, u32)>], extents: u32) {
    let mut policy = P::new(config).expect("defaults make sense");
    policy.renumber(&vec![None; extents as usize]);
    let capacity = extents / 10;
    let mut fast = FastSet::first(extents, capacity);
    let (mut observing, mut deciding) = (vec![], vec![]);
    let mut at = Nanos::ZERO;
    for touched in heats {
        at += HOUR;
        let started = Instant::now();
        policy.observe(at, &Heat { touched });
        observing.push(started.elapsed().as_secs_f64() * 1e3);
        let started = Instant::now();
        policy.decide(at, capacity, &mut fast);
        deciding.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let slowest = deciding.iter().copied().fold(0.0, f64::max);
    let state = serde_json::to_string(&policy)
        .expect("states are plain data")
        .len();
    println!(
        "{:18} {:>10} extents: decide {:6.1} ms ({slowest:.1} at most), observe {:5.1} ms, state {:7.1} MiB",
        P::NAME,
        extents,
        median(&mut deciding),
        median(&mut observing),
        state as f64 / (1u64 << 20) as f64,
    );
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let extents = args
        .first()
        .map_or(1_000_000, |n| n.parse().expect("a number of extents"));
    let heats: Vec<_> = (0..HOURS).map(|h| heat(extents, h)).collect();
    let touched: usize = heats.iter().map(Vec::len).sum();
    println!(
        "{:.0} % of the extents touched each hour",
        100.0 * touched as f64 / HOURS as f64 / f64::from(extents)
    );
    let hourly = PeriodConfig {
        period: HOUR,
        ..PeriodConfig::default()
    };
    measure::<Period>(&hourly, &heats, extents);
    measure::<DualPeriod>(&Default::default(), &heats, extents);
    measure::<AgedFrequency>(&Default::default(), &heats, extents);
    measure::<MovingAverages>(&Default::default(), &heats, extents);
    measure::<AdaptivePeriod>(&Default::default(), &heats, extents);
    Ok(())
}
