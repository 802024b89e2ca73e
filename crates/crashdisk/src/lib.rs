//! A simulated disk for crash tests: it can stop at any operation, and be found again as a killed process or a power
//! loss would have left it.
//!
//! ```text
//!   write, zero, set_len                sync
//!  ─────────────────────▶ page cache ─────────────▶ medium
//!                          │ un-synced changes        │
//!    killed() ─────────────┴── all of them ───────────┤   the change in flight may be torn
//!    power_loss(seed) ──────── some, any order ───────┘   each torn at sectors; what was synced is there
//! ```
//!
//! [`CrashDisk::fail_after`] stops it: after so many changes every operation fails, as it looks from inside when the
//! process is killed or the machine stops. [`CrashDisk::killed`] and [`CrashDisk::power_loss`] then give the disk that
//! the next process finds; the old one stays as it is, so that one moment can be found in many ways. Everything is a
//! function of the operations and the seed.
//!
//! # The model of a power loss
//!
//! Of the changes since the last sync an arbitrary subset survives, and those that overlap may land in any order. Each
//! may be torn: an arbitrary subset of its sectors ([`SECTOR`]) survives. A sector itself is written as a whole or not
//! at all. Lengths are kept by a journal: they survive in order, up to some point. A write beyond the length that
//! survived is cut off there, or has made the file longer.
//!
//! [`CrashDisk::sync_range`] is the sync of one durable write. [`CrashDisk::fail_sync`] is a sync that fails: what it does
//! not bring to the medium is forgotten, as by a kernel that marks the pages of a failed write-back as clean.
//!
//! # What it is not
//!
//! No bit rot, no misdirected writes, no sync that lies, and no file system above it: one disk is one file or one
//! device. Not for volumes of data: it is held in memory, twice.

mod backend;
mod change;
mod disk;
mod loss;

pub use disk::{CrashDisk, Operations};

/// What a disk writes as a whole or not at all, in bytes.
pub const SECTOR: u64 = 512;
