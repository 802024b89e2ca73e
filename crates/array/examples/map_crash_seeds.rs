//! The crash test with other seeds: `map_crash_seeds FROM COUNT`.
//!
//! Prints where it is and what it has met; ends with the first seed that fails, and exit status 101.

#![allow(clippy::disallowed_methods, reason = "it has arguments")]

#[path = "../tests/suite/support/mod.rs"]
mod support;

use support::crash::{Met, run};

/// Seeds between two lines of progress.
const PROGRESS_SEEDS: u64 = 500;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let (Some(Ok(from)), Some(Ok(count))) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: map_crash_seeds FROM COUNT");
        std::process::exit(2);
    };
    let mut met = Met::default();
    for done in 0..count {
        let seed = from + done;
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(more) => met.add(more),
            Err(_) => {
                println!("seed {seed} FAILED");
                std::process::exit(101);
            }
        }
        if (done + 1) % PROGRESS_SEEDS == 0 || done + 1 == count {
            println!("{} of {count} seeds, up to {seed}: {met:?}", done + 1);
        }
    }
}
