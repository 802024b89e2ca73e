//! A host of virtual machines as an array: what libvirt tells of domains, disks and pools, read and put together as what an agent reports.
//!
//! ```text
//!   virsh list      ─▶ listed        ─┐
//!   virsh dumpxml   ─▶ Domain         ├─▶ Inventory::snapshot ─▶ manager::agent
//!   virsh domstats  ─▶ DomainStats    │
//!   virsh pool-…    ─▶ Pool           │
//!   file systems    ─▶ Place         ─┘
//! ```
//!
//! Plain QEMU without libvirt tells the same by its own protocol, and becomes the same ([`qemu`]).
//!
//! Texts go in, facts come out, sans I/O: who runs programs and looks at file systems is the driver's affair. A *device* is a pool or a directory
//! that a tier names, a *volume* a disk of a running domain, called `DOMAIN:TARGET`. What is not known stays unknown: libvirt tells how many
//! requests there were and how long they took together, so there are means and no percentiles, and nothing of extents.
//!
//! What it is not: a way to change anything. Disks that could not be moved as they are say why ([`Fixed`]).

pub mod builds;
mod commands;
mod define;
mod domain;
mod error;
pub mod fuzzing;
mod hash;
mod image;
mod info;
mod inventory;
mod limits;
pub mod moving;
mod pool;
pub mod proxmox;
pub mod qemu;
mod stats;
pub mod stored;
mod tier;
mod verdict;
mod xml;

pub use commands::quoted;
pub use define::{copy_target, disk_of, vhost_user_disk, with_image};
pub use domain::{Chain, Disk, DiskKind, Domain, Fixed, Mirror, Platform, Source};
pub use error::HostError;
pub use image::{At, Image};
pub use info::{ImageInfo, Layout};
pub use inventory::{Inventory, Place, SPARE_BYTES, needed_bytes, volume_name};
pub use limits::Limits;
pub use pool::{Pool, directory_of};
pub use stats::{BlockStats, Direction, DomainStats, Latencies, Listed, domain_stats, listed};
pub use tier::{Guess, Medium, Transport, guessed};
pub use verdict::{DiskFacts, Known, Metadata};
