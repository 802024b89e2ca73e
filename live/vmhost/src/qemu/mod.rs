//! Plain QEMU: parsing of its answers (QMP) about a machine and its disks, and its commands for a move.
//!
//! ```text
//!   query-block ─────────────┐
//!   query-blockstats ────────┤
//!   query-named-block-nodes ─┼─▶ Machine ─▶ Domain, DomainStats ─▶ Inventory
//!   query-block-jobs ────────┤        └───▶ Live
//!   query-iothreads ─────────┘
//! ```
//!
//! A disk is a tree of *nodes*. From the guest's device down there are filters (a throttle, a mirror), the node of the
//! image's format, and the node of its file. QEMU does not report the edges of the tree, but its statistics are nested
//! like the nodes.
//!
//! As of 7.2, QEMU does not report whether a node discards, and its method of I/O. For nodes from the start of QEMU,
//! the command line has these options ([`Options`]). Nodes that we create have them in their names.

mod command_line;
mod counted;
mod histogram;
mod machine;
mod orders;
mod value;

pub use command_line::{Aio, Options};
pub use counted::{CountedDevice, counted_devices};
pub use histogram::{BOUNDS_NS, bounds};
pub use machine::{HistogramOwner, Machine, Node, Tree, queries};
pub use orders::{Names, add_nodes, mirror};
pub(crate) use value::PathValue as Field;
