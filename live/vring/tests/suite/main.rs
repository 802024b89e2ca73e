//! Integration tests of this crate in one program.

mod blk;
mod hostile;
mod memory;
mod model;
mod restart;
mod robustness;
mod site;
