//! The live path of guest I/O.
pub mod engine;
mod io;
