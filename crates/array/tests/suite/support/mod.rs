//! Shared by the tests of this crate and its example: an oracle of the map, and crashes.

#![allow(dead_code, reason = "each of those that share it uses a part")]

pub mod crash;
pub mod world;
