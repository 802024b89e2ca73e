//! Tests of this crate in one program.

mod golden;
mod naive;
mod oracles;
mod page_cache;
mod places;
mod rated;
