//! Tests that compare times. They need an idle machine.
//!
//! `cargo test --workspace` and `cargo nextest run --workspace` leave this program out. Run it by itself, one test after the other:
//! `cargo test -p cli --test timing -- --test-threads 1`. `.ci/full` does.

mod agreement;
#[path = "../suite/support/mod.rs"]
mod support;
mod takeover;
