//! Storage without files: LVM, ZFS and networks, by the names that tiers use, and the volumes in it, as listed by its
//! programs.
//!
//! ```text
//!   lvs, vgs ─▶ lvm ─┐
//!   zfs list ─▶ zfs ─┴─▶ StoredVolume ─▶ Inventory: the volume of a disk by the path of its device
//! ```

pub mod lvm;
pub mod zfs;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{HostError, StayReason};

/// Longest name of a volume group, of a logical volume, or of a part of a dataset's name; LVM and ZFS permit more.
const NAME_MAX: usize = 100;

/// Longest name of a new volume. When its disk moves away, the volume gets a longer name.
const NEW_NAME_MAX: usize = 80;

/// Storage that is not a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    /// A volume group, or a thin pool in it.
    Lvm { group: String, pool: Option<String> },
    /// A dataset with volumes below it.
    Zfs { dataset: String },
    /// A pool of RBD or a target of iSCSI, which the agent neither reads nor changes.
    Network { protocol: String, name: String },
}

impl Storage {
    /// Parses a text with the prefix of a kind of storage: `lvm:GROUP`, `lvm:GROUP/POOL`, `zfs:DATASET`, `rbd:POOL`,
    /// `iscsi:TARGET`. `None` for any other text.
    ///
    /// # Errors
    /// [`HostError::StorageName`].
    pub fn of(text: &str) -> Option<Result<Self, HostError>> {
        let (kind, name) = text.split_once(':')?;
        let fault = |kind| {
            let name = name.into();
            Err(HostError::StorageName { name, kind })
        };
        let is_path = |name: &str| name.split('/').all(is_name);
        Some(match kind {
            "lvm" => match name.split_once('/') {
                None if is_name(name) => Ok(Self::Lvm {
                    group: name.into(),
                    pool: None,
                }),
                Some((group, pool)) if is_name(group) && is_name(pool) => Ok(Self::Lvm {
                    group: group.into(),
                    pool: Some(pool.into()),
                }),
                _ => fault("a volume group, or of a thin pool as GROUP/POOL"),
            },
            "zfs" if is_path(name) => Ok(Self::Zfs {
                dataset: name.into(),
            }),
            "zfs" => fault("a dataset"),
            "rbd" | "iscsi" if is_path(name) => Ok(Self::Network {
                protocol: kind.into(),
                name: name.into(),
            }),
            "rbd" => fault("a pool of RBD"),
            "iscsi" => fault("a target of iSCSI"),
            _ => return None,
        })
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Storage::Lvm { group, pool: None } => write!(f, "lvm:{group}"),
            Storage::Lvm {
                group,
                pool: Some(pool),
            } => write!(f, "lvm:{group}/{pool}"),
            Storage::Zfs { dataset } => write!(f, "zfs:{dataset}"),
            Storage::Network { protocol, name } => write!(f, "{protocol}:{name}"),
        }
    }
}

/// Returns true for names without a special meaning for programs and shells.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.+-:".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    begins && name.len() <= NAME_MAX && name.chars().all(is_plain)
}

/// Unique identity of a volume, independent of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeId {
    /// UUID of a logical volume.
    Lvm(String),
    /// GUID of a ZFS volume.
    Zfs(u64),
}

/// Volume of LVM or ZFS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVolume {
    /// Name below that of its [`Storage`], such as `lvm:vg0/web`; for a thin volume `lvm:vg0/pool/web`.
    pub name: String,
    /// Paths of its device that change with its name.
    pub paths: Vec<String>,
    /// Other paths of its device.
    pub aliases: Vec<String>,
    pub id: VolumeId,
    /// Bytes of its device.
    pub size: u64,
    /// Bytes that it occupies in its storage.
    pub used: u64,
    /// Names of snapshots and clones that depend on it. LVM reports only their existence.
    pub snapshots: Vec<String>,
}

impl StoredVolume {
    /// Returns true for each path of its device.
    pub fn has(&self, path: &str) -> bool {
        self.paths.iter().chain(&self.aliases).any(|p| p == path)
    }

    /// Returns the reason for which the agent does not move a disk with this path.
    pub fn fault(&self, path: &str) -> Option<StayReason> {
        if !self.paths.iter().any(|p| p == path) {
            return Some(StayReason::VolumeAlias(self.paths[0].clone()));
        }
        let snapshots = self.snapshots.join(", ");
        (!snapshots.is_empty()).then_some(StayReason::VolumeSnapshots(snapshots))
    }
}

/// Space of a storage in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub size: u64,
    pub used: u64,
}

/// Returns a name for a new volume of a disk, without special characters for any storage or shell.
pub fn volume_name(disk: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
    let plain = |c: char| if is_plain(c) { c } else { '-' };
    let name: String = disk.chars().map(plain).take(NEW_NAME_MAX).collect();
    match name.trim_start_matches(['-', '.']) {
        "" => "disk".into(),
        name => name.into(),
    }
}

/// Returns the volume with a device at this path.
pub fn volume_at<'a>(volumes: &'a [StoredVolume], path: &str) -> Option<&'a StoredVolume> {
    volumes.iter().find(|v| v.has(path))
}

/// Parses a number in a column of text.
fn number(text: &str, fault: impl FnOnce(&str) -> HostError) -> Result<u64, HostError> {
    text.parse().map_err(|_| fault("not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_names_parse_and_other_texts_do_not() {
        for name in [
            "lvm:vg0",
            "lvm:vg0/thin",
            "zfs:tank/vm/disks",
            "rbd:libvirt-pool",
            "iscsi:iqn.2013-07.com.example:target",
        ] {
            assert_eq!(Storage::of(name).unwrap().unwrap().to_string(), name);
        }
        for (text, said) in [
            ("lvm:", "is not the name of a volume group"),
            ("lvm:a/b/c", "is not the name of a volume group"),
            ("lvm:-y", "is not the name of a volume group"),
            ("lvm:a b", "is not the name of a volume group"),
            ("zfs:/tank", "is not the name of a dataset"),
            ("zfs:tank@now", "is not the name of a dataset"),
            ("rbd:a'", "is not the name of a pool"),
            ("iscsi:", "is not the name of a target"),
        ] {
            let why = Storage::of(text).unwrap().unwrap_err().to_string();
            assert!(why.contains(said), "{why}");
        }
        assert_eq!(Storage::of("images"), None);
        assert_eq!(Storage::of("nbd+unix:///a"), None);
    }
}
