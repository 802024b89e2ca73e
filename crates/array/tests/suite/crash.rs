//! After any crash the map holds what was acknowledged, and at most the one commit in flight with it.
//!
//! More seeds: `TERRACE_SEEDS=0..20000 cargo test --release -p array crash::`.

use testkit::seeds;

use crate::support::crash::{Met, run};

/// Seeds that run with the other tests.
const BOUNDED: u64 = 300;

#[test]
fn acknowledged_commits_survive_and_none_is_half_there() {
    let mut met = Met::default();
    let count = seeds::run(0..BOUNDED, |seed| {
        met.add(run(seed));
        Ok(())
    });
    println!("{met:?}");
    if count < BOUNDED {
        return;
    }
    // They are not all of one kind.
    assert!(met.commits > 1000 && met.in_commit > 100, "{met:?}");
    assert!(met.survived > 10 && met.survived < met.in_commit, "{met:?}");
    assert!(met.snapshots.iter().all(|n| *n > 100), "{met:?}");
    assert!(met.in_open > 20 && met.in_create > 5, "{met:?}");
}
