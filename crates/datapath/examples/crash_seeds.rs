//! Runs many seeds of the crash simulation: `cargo run --release -p datapath --example crash_seeds -- FROM COUNT`.
//! With `trace` as a third argument it prints every event.

#[path = "../tests/suite/crash/sim/mod.rs"]
mod sim;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let [from, count] = numbers[..] else {
        eprintln!("usage: crash_seeds FROM COUNT [trace]");
        return ExitCode::from(2);
    };
    let mut tally = sim::Tally {
        trace: std::env::args().any(|a| a == "trace"),
        ..sim::Tally::default()
    };
    let started = std::time::Instant::now();
    for seed in from..from + count {
        let run = AssertUnwindSafe(|| sim::run(seed, &mut tally));
        let why = match catch_unwind(run) {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(why),
            Err(_) => Some("it panics".into()),
        };
        if let Some(why) = why {
            eprintln!("\nseed {seed}: {why}");
            eprintln!("again: cargo run --release -p datapath --example crash_seeds -- {seed} 1");
            return ExitCode::FAILURE;
        }
        let done = seed - from + 1;
        if done.is_multiple_of(1000) || done == count {
            let seconds = started.elapsed().as_secs_f64();
            eprint!("\r{done} of {count} seeds in {seconds:.0} s ");
        }
    }
    eprintln!("\n{tally:#?}");
    ExitCode::SUCCESS
}
