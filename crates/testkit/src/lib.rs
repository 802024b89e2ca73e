//! What tests of several crates share: which seeds a simulation runs through, and what is done where a test cannot run, a server of NBD in memory.
//!
//! # What it is not
//!
//! No part of the product, and no helpers of one crate's tests: those are in its `tests/suite`.

pub mod export;
pub mod needs;
pub mod seeds;
