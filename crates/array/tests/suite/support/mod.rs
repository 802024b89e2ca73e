//! Shared by the tests of this crate and its example: an oracle of the map, and crashes.

pub mod crash;
pub mod world;
