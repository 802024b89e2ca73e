//! Tests that compare times: they need most of the machine, and nothing else that runs on it.
//!
//! `cargo test --workspace` and `cargo nextest run --workspace` leave this program out. Run it by itself, one test after the other:
//! `cargo test -p cli --test timing -- --test-threads 1`. `.ci/full` does.

mod agreement;
#[path = "../suite/support/mod.rs"]
mod support;
mod takeover;
