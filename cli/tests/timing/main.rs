//! Tests that compare times. They need an idle machine.
//!
//! `cargo test --workspace` and `cargo nextest run --workspace` skip this program; `.ci/full` runs it. Run it alone, one test after
//! the other: `cargo test -p cli --test timing -- --test-threads 1`.

mod agreement;
#[path = "../suite/support/mod.rs"]
mod support;
mod takeover;
