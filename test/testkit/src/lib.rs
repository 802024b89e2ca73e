//! Helpers for tests of several crates: seeds of simulations, skipped tests, an NBD server in memory, a guest that
//! verifies its disk, damage to valid input, certificates, and the guest's side of virtqueues and of vhost-user.
//!
//! This crate is not part of the product. Helpers for the tests of one crate are in its `tests/suite`.

pub mod certificates;
pub mod damage;
pub mod export;
pub mod flag;
pub mod guest;
pub mod needs;
pub mod seeds;
pub mod vhost_user;
pub mod virtio;
