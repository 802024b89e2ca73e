//! Split virtqueues in a guest's memory (device side) and virtio-blk on top of them, sans I/O.
//!
//! ```text
//!        guest                                      device
//!          │  descriptors ◀── available ring ──────── │  Queue::pop ─▶ Chain ─▶ blk::parse
//!          │  buffers     ◀─────────────────────────▶ │  Chain::read, Chain::write
//!          │              ◀── used ring ───────────── │  Queue::push, Queue::publish
//!      its process (QEMU)                             │
//!          │  inflight    ◀── requests in flight ──── │  Account, read by the next device process
//! ```
//!
//! The driver maps the memory, waits for kicks and sends interrupts. All data that the guest writes is untrusted: lengths,
//! addresses and indices are read once, validated, and used from the copy. A violation that no request status can report is
//! a [`RingError`]; the queue must not be used after it. Nothing panics, and memory use is bounded by the queue size.
//!
//! Not supported: packed queues, devices other than block devices, a dirty log (hence no live migration), and an IOMMU. If
//! the process that runs the guest truncates its memory file, this process receives a fatal signal: the code that maps
//! memory must prevent it.

#![warn(missing_docs)]

pub mod blk;
mod chain;
mod error;
pub mod fuzzing;
mod inflight;
mod memory;
mod queue;

pub use chain::Chain;
pub use error::RingError;
pub use inflight::{Account, InflightBuffer};
pub use memory::{Memory, Region, Span};
pub use queue::{Interrupt, Queue, QueueSetup};

/// Largest number of descriptors of a queue: the limit of QEMU.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// Largest number of queues of a guest. Bounds its file descriptors: two per queue.
pub const QUEUES_MAX: u16 = 64;

/// Largest number of descriptors of one request, including indirect ones. Protects the worker from endless chains.
pub const CHAIN_MAX: u32 = 1024;
