//! Simulated disk for crash tests: it can stop at any operation, and returns its state after a killed process or a power
//! loss.
//!
//! ```text
//!   write, zero, set_len                sync
//!  ─────────────────────▶ page cache ─────────────▶ medium
//!                          │ unsynced changes         │
//!    killed() ─────────────┴── all changes ───────────┤   the change in flight may be torn
//!    power_loss(seed) ──────── some, any order ───────┘   each torn at sectors; synced data survives
//! ```
//!
//! [`CrashDisk::fail_after`] stops the disk: after a number of changes each operation fails, as if the process were killed
//! or the machine stopped. [`CrashDisk::killed`] and [`CrashDisk::power_loss`] return the disk that the next process finds.
//! The old disk does not change, so several results of one crash can be tested. All results are functions of the operations
//! and the seed.
//!
//! # Model of a power loss
//!
//! An arbitrary subset of the changes since the last sync survives, and overlapping changes may be applied in any order.
//! Each may be torn: an arbitrary subset of its sectors ([`SECTOR`]) survives. A sector is written completely or not at all.
//! Lengths are journalled: they survive in order, up to some point. A write beyond the surviving length is truncated, or has
//! extended the file.
//!
//! [`CrashDisk::sync_range`] is the sync of one durable write. [`CrashDisk::fail_sync`] is a failed sync: changes that do
//! not reach the medium are lost, as in a kernel that marks the pages of a failed write-back as clean.
//!
//! # Limits
//!
//! There is no bit rot, no misdirected write, no sync that reports false success, and no file system: a disk is one file or
//! one device. It is not suitable for volumes of data, because the content is in memory twice.

mod backend;
mod change;
mod disk;
mod loss;

pub use disk::{CrashDisk, Operations};

/// Bytes that a disk writes completely or not at all.
pub const SECTOR: u64 = 512;
