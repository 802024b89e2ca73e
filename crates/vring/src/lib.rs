//! Split virtqueues over a guest's memory, the device's side, and virtio-blk on them, sans I/O.
//!
//! ```text
//!        guest                                      device
//!          │  descriptors ◀── available ring ──────── │  Queue::pop ─▶ Chain ─▶ blk::parse
//!          │  buffers     ◀─────────────────────────▶ │  Chain::read, Chain::write
//!          │              ◀── used ring ───────────── │  Queue::push, Queue::publish
//!      who runs it                                    │
//!          │  inflight    ◀── what is in flight ───── │  Account, read again by the next process
//! ```
//!
//! Memory comes mapped; who maps it, and who waits for kicks and sends interrupts, is the driver's affair. Nothing that a guest wrote
//! is believed: lengths, addresses and indices are read once, checked, and used from the copy. What cannot be answered with an error is
//! a [`RingError`], after which the queue must not be used any more; nothing panics, and what is kept is bounded by the size of the
//! queue.
//!
//! What it is not: no packed queues, no device but block devices, no dirty log (so no live migration), no IOMMU. A guest whose memory
//! is cut short by the process that runs it ends this process with a signal: whoever maps memory has to see to that.

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

/// Descriptors of a queue at most: what QEMU allows.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// Queues of a guest at most. Bounds its descriptors of files, of which a queue takes two.
pub const QUEUES_MAX: u16 = 64;

/// Descriptors of one request at most, those in a table of their own included. Protects the worker from chains without an end.
pub const CHAIN_MAX: u32 = 1024;
