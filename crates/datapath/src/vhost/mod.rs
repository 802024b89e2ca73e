//! vhost-user-blk: guests on this host whose memory is mapped here, so that a request costs no copy through a socket.
//!
//! ```text
//!                 DIR/VOLUME.sock
//!  QEMU ══ messages ══▶ thread of the connection ── orders ──▶ worker of the volume
//!   │                    features, memory, rings                 │
//!   └── guest's memory: rings, buffers ◀═══ mapped ══════════════┘  kicks and interrupts: event counters
//! ```
//!
//! The messages are few, and may block: each connection has a thread for them, which touches no request. What is in the rings is
//! the worker's (`crate::worker::rings`), on the same path as requests from sockets.
//!
//! # Who is trusted
//!
//! The guest is not: what is in its memory may be anything, and change at any moment. The process that runs it is, as far as it has to
//! be: it hands over its memory, and a mapping of a file that is cut short ends this process with a signal. So memory has to be in
//! memory (no file system that hangs), large enough when it is mapped, and the socket is for those who may write to it. What is in
//! flight is kept in a file that is sealed, which nobody can cut short.
//!
//! # What it is not
//!
//! No live migration: changes of memory are not logged (`LOG_ALL`, `LOG_SHMFD` are refused), so QEMU blocks it. No packed rings, no rings
//! that are polled without kicks, no resizing.

mod memory;
mod session;
mod sockets;

pub use sockets::{Allowed, Counted, DESCRIPTORS_EACH, Sockets};
