//! What tests of several crates share: which seeds a simulation runs through, what is done where a test cannot run, a server of NBD in memory, a
//! guest that checks its disk, damage to good input, certificates, the guest's side of virtqueues and of vhost-user.
//!
//! # What it is not
//!
//! No part of the product, and no helpers of one crate's tests: those are in its `tests/suite`.

pub mod certificates;
pub mod damage;
pub mod export;
pub mod flag;
pub mod guest;
pub mod needs;
pub mod seeds;
pub mod vhost_user;
pub mod virtio;
