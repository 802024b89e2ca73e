//! Host of virtual machines as an array: reports of hypervisors and storage programs about domains, disks and pools,
//! parsed and combined into an agent's report.
//!
//! ```text
//!   virsh list      ─▶ listed        ─┐
//!   virsh dumpxml   ─▶ Domain         ├─▶ Inventory::snapshot ─▶ manager::agent
//!   virsh domstats  ─▶ DomainStats    │
//!   virsh pool-…    ─▶ Pool           │
//!   file systems    ─▶ Place         ─┘
//! ```
//!
//! Plain QEMU without libvirt reports the same facts through QMP, and yields the same types ([`qemu`]).
//!
//! Texts go in and facts come out, sans I/O: the caller runs programs and inspects file systems. A *device* is a pool
//! or a directory that a tier names. A *volume* is a disk of a running domain, named `DOMAIN:TARGET`. Unknown facts
//! stay unknown. libvirt reports the number of requests and their total time, so there are means but no percentiles,
//! and no data about extents.
//!
//! The crate changes nothing. A disk that cannot move as it is has its reason ([`StayReason`]).

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
pub use domain::{Chain, Disk, DiskKind, Domain, Mirror, Platform, Source, StayReason};
pub use error::HostError;
pub use image::{Image, ImageLocation};
pub use info::{ImageInfo, Layout};
pub use inventory::{Inventory, Place, SPARE_BYTES, needed_bytes, volume_name};
pub use limits::Limits;
pub use pool::{Pool, directory_of};
pub use stats::{
    BlockStats, Direction, DomainStats, Latencies, ListedDomain, domain_stats, listed,
};
pub use tier::{Guess, Medium, Transport, guessed};
pub use verdict::{DiskFacts, Metadata, RunningDomain};
