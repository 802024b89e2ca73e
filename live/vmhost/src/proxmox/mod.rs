//! Proxmox VE: answers of its API, parsed and combined into an agent's report.
//!
//! ```text
//!   answers ─▶ Vm, VmStatus, Storage, … ─▶ Cluster::snapshot ─▶ manager::agent
//!                                          Cluster::stays     whether a disk may move
//!   intent, state of the task and of the VM ─▶ moving::next ─▶ the next step of a move
//! ```
//!
//! Values go in and facts come out: the caller sends the requests. A *device* is a storage, once for each node if it is
//! local. A *volume* is a disk of a running VM, named `VM:DISK`.
//!
//! Facts about the API are from its published sources, cited as file and function of the repositories
//! qemu-server, pve-storage and pve-manager.

mod answers;
mod cluster;
mod drive;
pub mod moving;
mod pace;
mod rights;
#[cfg(test)]
mod tests;

pub use answers::{
    Content, Identity, ListedVm, Progress, Storage, Task, TaskState, VmConfig, VmStatus, contents,
    pending_keys, replicated, snapshot_names, storages, task_state, tasks, vms,
};
pub use cluster::{Cluster, Disk, Place, TierStorages, Vm, VmFacts};
pub use drive::{Drive, LimitOptions, same_limits};
pub use pace::Pace;
pub use rights::{Right, missing, needed};
