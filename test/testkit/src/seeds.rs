//! Seeds of simulations in tests.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Environment variable with the seeds to run instead of the bounded default: `TERRACE_SEEDS=0..2000`.
pub const SEEDS: &str = "TERRACE_SEEDS";

/// Number of seeds between two lines of progress.
const PROGRESS: u64 = 1000;

/// Runs `one` for each seed: those of [`SEEDS`], or else `bounded`. Returns the number of seeds.
///
/// # Panics
/// The first seed fails with an error or a panic, or [`SEEDS`] is not a range.
pub fn run(bounded: Range<u64>, mut one: impl FnMut(u64) -> Result<(), String>) -> u64 {
    let seeds = wanted().unwrap_or(bounded);
    let count = seeds.end.saturating_sub(seeds.start);
    for (done, seed) in (1..).zip(seeds) {
        let again = || format!("run only this seed with {SEEDS}={seed}..{}", seed + 1);
        match catch_unwind(AssertUnwindSafe(|| one(seed))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => panic!("seed {seed}: {why}\n{}", again()),
            Err(panic) => {
                eprintln!("seed {seed}: panicked\n{}", again());
                resume_unwind(panic);
            }
        }
        if done % PROGRESS == 0 {
            eprintln!("{done} of {count} seeds");
        }
    }
    count
}

#[expect(
    clippy::disallowed_methods,
    reason = "which seeds run is the tester's choice, and no input of what is tested"
)]
fn wanted() -> Option<Range<u64>> {
    let text = std::env::var(SEEDS).ok()?;
    let range = text
        .split_once("..")
        .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    Some(range.unwrap_or_else(|| panic!("{SEEDS}={text:?} is no range: write 0..2000")))
}
