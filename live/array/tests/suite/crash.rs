//! After a crash the map has all acknowledged commits, and at most the commit that was in flight.
//!
//! More seeds: `TERRACE_SEEDS=0..20000 cargo test --release -p array crash::`.

use testkit::seeds;

use crate::support::crash::{CrashCounts, run};

/// Seeds of a normal test run.
const BOUNDED: u64 = 300;

#[test]
fn acknowledged_commits_survive_a_crash_and_are_atomic() {
    let mut met = CrashCounts::default();
    let count = seeds::run(0..BOUNDED, |seed| {
        met.add(run(seed));
        Ok(())
    });
    println!("{met:?}");
    if count < BOUNDED {
        return;
    }
    // Crashes of all kinds occurred.
    assert!(met.commits > 1000 && met.in_commit > 100, "{met:?}");
    assert!(met.survived > 10 && met.survived < met.in_commit, "{met:?}");
    assert!(met.snapshots.iter().all(|n| *n > 100), "{met:?}");
    assert!(met.in_open > 20 && met.in_create > 5, "{met:?}");
}
