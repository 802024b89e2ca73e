//! Speed of miss-ratio curves in references per second and core, and errors of the estimators.
//!
//! Usage: `mrc-speed [MILLION_REFERENCES [THOUSAND_BLOCKS [RUNS]]]`. References have Zipf popularity 0.9 over the blocks. Prints medians of
//! the runs. It is not a test, because the speed depends on the machine.

use std::hint::black_box;

use algo::mrc::{ExactCurve, FixedRate, FixedSize, ReuseTimes, Sampler, WorkingSets};
use algo::{DenseIds, Popularity, ReuseStack, Rng};

use crate::BenchResult;

fn seconds<T>(runs: usize, mut work: impl FnMut() -> T) -> f64 {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = std::time::Instant::now();
            black_box(work());
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

pub(crate) fn main(args: &[String]) -> BenchResult {
    let number = |at: usize, or: usize| {
        let given = args.get(at - 1).and_then(|text| text.parse().ok());
        given.unwrap_or(or)
    };
    let (references, blocks, runs) = (
        number(1, 20) * 1_000_000,
        number(2, 1000) * 1000,
        number(3, 5),
    );
    let (popularity, mut rng) = (Popularity::new(blocks as u64, 0.9), Rng::new(1, 0));
    let names: Vec<u64> = (0..references)
        .map(|_| popularity.page(rng.next_u64()) << 4)
        .collect();
    let mut ids = Vec::new();
    DenseIds::new().ids(&names, &mut ids);
    let touched = ids.iter().max().map_or(0, |id| id + 1);
    println!("{references} references to {touched} blocks, medians of {runs} runs");
    let show = |what: &str, seconds: f64| {
        let (rate, each) = (
            references as f64 / seconds / 1e6,
            seconds * 1e9 / references as f64,
        );
        println!("{what:<40} {rate:8.1} M references/s {each:8.1} ns each");
    };
    show(
        "dense numbers",
        seconds(runs, || {
            let mut out = Vec::new();
            DenseIds::new().ids(&names, &mut out);
            out
        }),
    );
    show(
        "reuse distances only",
        seconds(runs, || {
            let (mut stack, mut sum) = (ReuseStack::new(), 0u64);
            stack.access_all(&ids, |d| sum += u64::from(d.unwrap_or(0)));
            sum
        }),
    );
    show(
        "exact curve, all sizes",
        seconds(runs, || {
            let mut exact = ExactCurve::new();
            exact.feed(&ids);
            exact.curve()
        }),
    );
    show(
        "dense numbers and exact curve",
        seconds(runs, || {
            let (mut table, mut exact, mut out) = (DenseIds::new(), ExactCurve::new(), Vec::new());
            for part in names.chunks(1 << 16) {
                out.clear();
                table.ids(part, &mut out);
                exact.feed(&out);
            }
            exact.curve()
        }),
    );
    show(
        "reuse times",
        seconds(runs, || {
            let mut times = ReuseTimes::new();
            times.feed(&ids, 0);
            times.curve()
        }),
    );
    show(
        "working sets",
        seconds(runs, || {
            let mut sets = WorkingSets::new();
            names.iter().for_each(|n| sets.reference(*n));
            sets.curve()
        }),
    );
    show(
        "shards, rate 0.01",
        seconds(runs, || {
            let mut shards = FixedRate::new(Sampler::new(0.01, 1));
            names.iter().for_each(|n| shards.reference(*n));
            shards.curve()
        }),
    );
    show(
        "shards, 8,192 blocks",
        seconds(runs, || {
            let mut shards = FixedSize::new(8192, 1);
            names.iter().for_each(|n| shards.reference(*n));
            shards.curve()
        }),
    );
    let mut exact = ExactCurve::new();
    exact.feed(&ids);
    let truth = exact.curve();
    let mut times = ReuseTimes::new();
    times.feed(&ids, 0);
    let mut sets = WorkingSets::new();
    names.iter().for_each(|n| sets.reference(*n));
    println!("reuse times: {:?}", times.curve().error_against(&truth));
    println!("working sets: {:?}", sets.curve().error_against(&truth));
    let (mut rate_sum, mut size_sum) = (0.0, 0.0);
    let rate = (8192.0 / f64::from(touched)).min(1.0);
    for seed in 0..20 {
        let (mut at_rate, mut of_size) = (
            FixedRate::new(Sampler::new(rate, seed)),
            FixedSize::new(8192, seed),
        );
        for name in &names {
            at_rate.reference(*name);
            of_size.reference(*name);
        }
        rate_sum += at_rate.curve().error_against(&truth).mean / 20.0;
        size_sum += of_size.curve().error_against(&truth).mean / 20.0;
    }
    println!(
        "mean absolute error over 20 seeds, 8,192 blocks: rate {rate:.4} {rate_sum:.5}, fixed size {size_sum:.5}"
    );
    Ok(())
}
