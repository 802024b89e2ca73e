//! The tests of this crate, in one program.

mod guest;
mod run_test;
