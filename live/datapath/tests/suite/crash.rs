//! Crash tests of the data path: many simulated worlds, each killed or cut from power several times, at any moment.
//!
//! `TERRACE_SEEDS=0..20000 cargo test --release -p datapath crash::no_crash` runs more worlds. `TERRACE_TRACE=1`
//! prints every event.

pub mod sim;

use testkit::seeds;

/// Number of worlds in a normal test run.
const BOUNDED: u64 = 250;

#[test]
fn no_crash_loses_an_acknowledged_write() {
    let mut tally = sim::Tally {
        trace: std::env::var_os("TERRACE_TRACE").is_some(),
        ..sim::Tally::default()
    };
    let worlds = seeds::run(0..BOUNDED, |seed| sim::run(seed, &mut tally));
    println!("{tally:#?}");
    if worlds < BOUNDED {
        return;
    }
    // Every kind of event occurs often enough for a meaningful test.
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
        (tally.by_buffer, 5_000),
        (tally.merged, 2_000),
        (tally.in_order, 200),
        (tally.again, 100),
        (tally.mirrors, 2_000),
        (tally.mirror_reads, 300),
        (tally.mirror_again, 5),
        (tally.mirrors_failed, 30),
        (tally.mirrors_late, 3),
        (tally.mirrors_first, 50),
        (tally.mirrors_made_way, 300),
        (tally.grown, 200),
        (tally.snapshots, 800),
        (tally.snapshots_deleted, 400),
        (tally.copied_up, 1_500),
        (tally.restored, 5),
        (tally.arrived, 300),
        (tally.imported, 40),
        (tally.source_away, 5),
        (tally.from_memory, 300),
        (tally.read_again, 100),
    ] {
        assert!(part >= least, "{tally:#?}");
    }
}
