//! Volumes that domains use, and the space of storages.

use std::collections::BTreeSet;
use std::fs;

use vmhost::stored::{Space, Storage, StoredVolume, volume_at};

use super::lvm::{LVM, is_kernel_name};
use super::zfs::Zfs;
use crate::error::{AgentError, Result, in_context};

/// Lists the volumes that have the devices at these paths. A failed program yields a warning; the disks on its volumes
/// are not managed then.
pub(crate) fn volumes_of(paths: &BTreeSet<String>) -> (Vec<StoredVolume>, Vec<String>) {
    let (of_zfs, others): (Vec<&String>, Vec<&String>) =
        paths.iter().partition(|path| is_of_zfs(path));
    let (mut volumes, mut warnings) = (vec![], vec![]);
    let mut take = |listed: Result<Vec<StoredVolume>>| match listed {
        Ok(listed) => volumes.extend(listed),
        Err(why) => warnings.push(why.to_string()),
    };
    if others.iter().any(|path| !is_kernel_name(path)) {
        take(LVM.list());
    }
    if !of_zfs.is_empty() {
        take(Zfs.list());
    }
    for path in paths {
        let known = volume_at(&volumes, path).is_some();
        let device = fs::canonicalize(path).ok().filter(|_| !known);
        let is_it = |v: &&mut StoredVolume| {
            let of = |p: &String| fs::canonicalize(p).ok();
            device.is_some() && v.paths.iter().any(|p| of(p) == device)
        };
        if let Some(volume) = volumes.iter_mut().find(is_it) {
            volume.aliases.push(path.clone());
        }
    }
    volumes.retain(|v| paths.iter().any(|p| v.has(p)));
    let of_zfs = volumes.iter_mut().filter(|v| v.name.starts_with("zfs:"));
    let mut of_zfs: Vec<&mut StoredVolume> = of_zfs.collect();
    let read = Zfs.read_snapshots(&mut of_zfs);
    warnings.extend(read.err().map(|e| e.to_string()));
    (volumes, warnings)
}

fn is_of_zfs(path: &str) -> bool {
    path.starts_with("/dev/zvol/") || path.starts_with("/dev/zd")
}

/// Returns the space of LVM or ZFS, and the unit in bytes to which the size of a volume is rounded up.
///
/// # Errors
/// The program failed, or has no such storage.
pub(crate) fn space(storage: &Storage) -> Result<(Space, u64)> {
    let space = match storage {
        Storage::Lvm { group, pool } => LVM.space(group, pool.as_deref()),
        Storage::Zfs { dataset } => Zfs.space(dataset).map(|s| (s, super::zfs::ROUND)),
        Storage::Network { .. } => {
            Err(AgentError::Unsupported("the agent does not read it".into()))
        }
    };
    space.map_err(in_context(storage))
}
