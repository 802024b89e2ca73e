//! Controller, agents and arrays in one thread under a clock of their own: messages are lost, late and doubled, agents and the
//! controller are killed, the store fails, clocks jump, moves get stuck, tiers are full, operators press every button. Whatever
//! happens: no slot has two owners, no device holds more than it has, no move begins without a plan that is alive, nothing is
//! decided on what is old. And when the trouble is over, everything that was begun comes to an end.
//!
//! A bounded number of seeds runs with the other tests. More: `TERRACE_SEEDS=0..2000 cargo test --release -p manager --test
//! simulation`. A seed that fails says so: `TERRACE_SEEDS=17..18` runs it alone.

mod array;
mod store;
mod world;

use std::ops::Range;

/// Seeds that run with the other tests.
const BOUNDED: Range<u64> = 0..60;

#[expect(
    clippy::disallowed_methods,
    reason = "which seeds run is the tester's choice, and no input of the core"
)]
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("TERRACE_SEEDS") else {
        return BOUNDED;
    };
    let range = text
        .split_once("..")
        .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    range.unwrap_or_else(|| panic!("TERRACE_SEEDS={text:?} is no range: write 0..2000"))
}

#[test]
fn every_seed_keeps_the_promises() {
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    let mut sums = world::Sums::default();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| world::run(seed));
        match run {
            Ok(sum) => sums.add(&sum),
            Err(cause) => {
                eprintln!(
                    "seed {seed} fails: TERRACE_SEEDS={seed}..{} runs it alone",
                    seed + 1
                );
                std::panic::resume_unwind(cause);
            }
        }
    }
    eprintln!("{count} seeds: {sums:?}");
    // A simulation in which nothing happens proves nothing.
    if count >= 20 {
        assert!(
            sums.moves_begun > count && sums.moves_done > count && sums.extents_done > count,
            "{sums:?}"
        );
        assert!(
            sums.lost > count && sums.late > count && sums.kills > count / 2,
            "{sums:?}"
        );
        assert!(sums.calibrations > 0 && sums.decisions > count, "{sums:?}");
        assert!(
            sums.stale_refused > 0 && sums.store_failures > 0 && sums.adopted > 0 && sums.full > 0,
            "{sums:?}"
        );
    }
}
