//! Plain QEMU: what its own protocol (QMP) tells of a machine and its disks, and what it is asked to do for a move.
//!
//! ```text
//!   query-block ─────────────┐
//!   query-blockstats ────────┤
//!   query-named-block-nodes ─┼─▶ Machine ─▶ Domain, DomainStats ─▶ Inventory
//!   query-block-jobs ────────┤        └───▶ Live
//!   query-iothreads ─────────┘
//! ```
//!
//! A disk is a tree of *nodes*. From the guest's device down there are filters (a throttle, a mirror), then the node of the image's format, then
//! the one of the file. QEMU does not tell which node is on which, but its statistics are nested as the nodes are.
//!
//! What it does not tell either, as of 7.2: whether a node gives discarded space back, and how it does I/O. Its command line does, for nodes that
//! were there at its start ([`Options`]); nodes that we made say it in their names.

mod command_line;
mod counted;
mod histogram;
mod machine;
mod orders;
mod value;

pub use command_line::{Aio, Options};
pub use counted::{CountedDevice, counted_devices};
pub use histogram::{BOUNDS_NS, bounds};
pub use machine::{Counted, Machine, Node, Tree, queries};
pub use orders::{Names, add_nodes, mirror};
pub(crate) use value::At as Field;
