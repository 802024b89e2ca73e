//! vhost-user-blk for guests on this host. Their memory is mapped here, so requests are not copied through a socket.
//!
//! ```text
//!                 DIR/VOLUME.sock
//!  QEMU ══ messages ══▶ thread of the connection ── orders ──▶ worker of the volume
//!   │                    features, memory, rings                 │
//!   └── guest's memory: rings, buffers ◀═══ mapped ══════════════┘  kicks and interrupts: event counters
//! ```
//!
//! Messages are rare and may block: each connection has a thread for them, which handles no requests. The worker
//! reads the rings (`crate::worker::rings`). Their requests take the same path as those from sockets.
//!
//! # Trust
//!
//! The guest is not trusted: its memory may contain anything and change at any time. The process that runs it (QEMU)
//! is trusted in one respect. It hands over its memory, and access to a mapping of a truncated file ends this process
//! with a signal. Therefore the memory must be on a memory file system, which cannot hang, and must be large enough
//! when it is mapped. The socket is accessible only to users who may write to it. The record of requests in flight is
//! in a sealed file, which cannot be truncated.
//!
//! # Limits
//!
//! Live migration is not supported: changes of memory are not logged (`LOG_ALL` and `LOG_SHMFD` are refused), so QEMU
//! blocks it. Packed rings, rings polled without kicks, and resizing are not supported either.

mod memory;
mod session;
mod sockets;

pub use sockets::{ConnectionLimits, CountGuard, DESCRIPTORS_EACH, Sockets};
