//! After any crash the map holds what was acknowledged, and at most the one commit in flight with it.
//!
//! More seeds: `cargo run --release -p array --example map_crash_seeds -- FROM COUNT`.

use crate::support::crash::{Met, run};

#[test]
fn acknowledged_commits_survive_and_none_is_half_there() {
    let mut met = Met::default();
    for seed in 0..300 {
        met.add(std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| {
            panic!(
                "seed {seed}: cargo run --release -p array --example map_crash_seeds -- {seed} 1"
            )
        }));
    }
    println!("{met:?}");
    // They are not all of one kind.
    assert!(met.commits > 1000 && met.in_commit > 100, "{met:?}");
    assert!(met.survived > 10 && met.survived < met.in_commit, "{met:?}");
    assert!(met.in_open > 20 && met.in_create > 5, "{met:?}");
}
