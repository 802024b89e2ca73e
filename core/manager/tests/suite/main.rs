//! Integration tests of this crate in one program.

mod controller;
mod simulation;
