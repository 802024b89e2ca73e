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
    // There is enough of everything to be worth something.
    for (part, least) in [
        (tally.moves_of_extents, 50),
        (tally.resumed_of_extents, 50),
        (tally.done, 50),
        (tally.stopped, 50),
        (tally.in_start, 2),
        (tally.closed, 5),
        (tally.refused, 20),
        (tally.lost_at_start, 100),
        (tally.unflushed, 30),
        (tally.old_devices, 10),
        (tally.lost, 10),
        (tally.back, 3),
        (tally.first_alone, 100),
        (tally.second_alone, 10),
        (tally.commits_failed, 50),
        (tally.copies_old[0], 8),
        (tally.copies_old[1], 1),
        (tally.copies_torn, 8),
        (tally.copies_missing, 50),
        (tally.copies_anew, 80),
        (tally.proposals_by_both, 3),
    ] {
        assert!(part >= least, "{tally:#?}");
    }
}
