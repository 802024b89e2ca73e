//! Crashes of the data path: many worlds, each killed or cut from power several times, at any moment.
//!
//! `cargo run --release -p datapath --example crash_seeds -- FROM COUNT` runs more of them.

mod sim;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Worlds to run.
const SEEDS: u64 = 250;

#[test]
fn no_crash_loses_what_was_promised() {
    let mut tally = sim::Tally::default();
    for seed in 0..SEEDS {
        let run = AssertUnwindSafe(|| sim::run(seed, &mut tally));
        match catch_unwind(run) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => panic!("seed {seed}: {why}"),
            Err(panic) => {
                eprintln!("seed {seed} panics");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{tally:#?}");
    // Of both kinds of moves there is enough to be worth something.
    for part in [
        tally.moves_of_extents,
        tally.resumed_of_extents,
        tally.done,
        tally.stopped,
    ] {
        assert!(part > 50, "{tally:#?}");
    }
}
