//! Support of the crate's tests and its example: an oracle of the map, and crashes.

pub mod crash;
pub mod world;
