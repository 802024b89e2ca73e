//! Integration tests of this crate in one program.

mod contract;
mod crash;
mod open;
mod retention;
