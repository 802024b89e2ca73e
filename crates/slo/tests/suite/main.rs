//! The tests of this crate, in one program.

mod release;
mod support;
mod workflow;
