//! Integration tests of this crate in one program.

mod ahead;
mod release;
mod support;
mod workflow;
