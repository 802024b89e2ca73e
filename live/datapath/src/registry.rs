//! Exports by name, with the worker that serves each.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use array::LOGICAL_BLOCK_MIN;
use nbd::{BlockSizes, DirtyRanges, Export, ExportFlags, Exports};
use units::VolumeId;

/// Largest request in bytes. Bounds the buffer of one request.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Worker and volume behind an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    pub worker: usize,
    pub volume: VolumeId,
}

/// Returns the sector size in bytes that guests of an export see.
pub(crate) fn logical_block(export: &Export) -> u32 {
    export.block.minimum.max(LOGICAL_BLOCK_MIN)
}

/// Access of guests to an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Guests may read and write.
    ReadWrite,
    /// Guests may only read.
    ReadOnly,
}

/// Exported snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotExport {
    /// Volume of the snapshot, and number of the snapshot in this volume.
    pub of: (VolumeId, u32),
    /// Number of the previous snapshot.
    pub after: Option<u32>,
    /// Name of the snapshot without that of the volume.
    pub name: String,
    /// Extent size in bytes.
    pub extent: u64,
    /// Extents that may have changed since the snapshot before it.
    pub changed: Arc<[u32]>,
}

/// All exports and snapshots.
#[derive(Debug, Default)]
pub struct Registry {
    exports: RwLock<BTreeMap<String, (Export, Home)>>,
    /// Snapshots by the names of their exports.
    snapshots: RwLock<BTreeMap<String, SnapshotExport>>,
}

impl Registry {
    /// Adds an export of a volume. `logical_block` is its logical block size in bytes.
    pub fn add(&self, name: &str, size: u64, logical_block: u32, access: Access, home: Home) {
        let offered = [
            ExportFlags::SEND_FLUSH,
            ExportFlags::SEND_FUA,
            ExportFlags::SEND_TRIM,
            ExportFlags::SEND_WRITE_ZEROES,
            ExportFlags::CAN_MULTI_CONN,
            ExportFlags::SEND_CACHE,
        ];
        let mut flags = offered
            .into_iter()
            .fold(ExportFlags::HAS_FLAGS, |all, flag| all.with(flag));
        if access == Access::ReadOnly {
            flags = flags.with(ExportFlags::READ_ONLY);
        }
        let export = Export {
            name: name.to_owned(),
            description: String::new(),
            size,
            flags,
            block: BlockSizes {
                // Clients use a larger minimum as the sector size of the disk.
                minimum: match logical_block {
                    LOGICAL_BLOCK_MIN => 1,
                    larger => larger,
                },
                preferred: 4096,
                maximum: REQUEST_BYTES_MAX,
            },
        };
        self.insert(export, home);
    }

    /// Adds a complete export.
    pub fn insert(&self, export: Export, home: Home) {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        exports.insert(export.name.clone(), (export, home));
    }

    /// Returns all exports, each with its worker and volume.
    pub fn all(&self) -> Vec<(Export, Home)> {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        exports.values().cloned().collect()
    }

    /// Removes an export, so no client can connect to it. Returns the entry for [`Registry::restore`].
    pub fn remove(&self, name: &str) -> Option<(Export, Home)> {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        exports.remove(name)
    }

    /// Changes an export for clients that connect later.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Export)) {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((mut export, home)) = exports.remove(name) {
            change(&mut export);
            exports.insert(export.name.clone(), (export, home));
        }
    }

    /// Undoes [`Registry::remove`].
    pub fn restore(&self, name: &str, entry: Option<(Export, Home)>) {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        exports.extend(entry.map(|entry| (name.to_owned(), entry)));
    }

    /// Adds or replaces the description of an exported snapshot.
    pub fn set_snapshot(&self, export: &str, snapshot: SnapshotExport) {
        let mut all = self
            .snapshots
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert(export.to_owned(), snapshot);
    }

    /// Removes the description of a snapshot.
    pub fn forget_snapshot(&self, export: &str) {
        let mut all = self
            .snapshots
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.remove(export);
    }

    /// Returns a snapshot and its predecessors in the same volume, in order, back to the first one that is not
    /// exported.
    fn past_of(&self, export: &str) -> Vec<SnapshotExport> {
        let all = self
            .snapshots
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(SnapshotExport {
            of: (volume, last), ..
        }) = all.get(export)
        else {
            return vec![];
        };
        let before = |s: &&SnapshotExport| s.of.0 == *volume && s.of.1 <= *last;
        let mut past: Vec<_> = all.values().filter(before).cloned().collect();
        past.sort_by_key(|s| s.of);
        let gap = past
            .windows(2)
            .rposition(|two| two[1].after != Some(two[0].of.1));
        past.drain(..gap.map_or(0, |at| at + 1));
        past
    }

    /// Returns worker and volume of an export. The empty name selects the only export, if exactly one exists.
    pub fn home(&self, name: &str) -> Option<Home> {
        self.look_up(name).map(|found| found.1)
    }

    fn look_up(&self, name: &str) -> Option<(Export, Home)> {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        if name.is_empty() && exports.len() == 1 {
            return exports.values().next().cloned();
        }
        exports.get(name).cloned()
    }
}

impl Exports for Registry {
    fn find(&self, name: &str) -> Option<Export> {
        self.look_up(name).map(|found| found.0)
    }

    fn list(&self) -> Vec<Export> {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        exports.values().map(|e| e.0.clone()).collect()
    }

    fn known_since(&self, export: &str) -> Vec<String> {
        let mut past = self.past_of(export);
        past.pop(); // itself
        past.into_iter().map(|s| s.name).collect()
    }

    fn changed_since(&self, export: &str, since: &str) -> Option<Arc<DirtyRanges>> {
        let past = self.past_of(export);
        let since = past.iter().position(|s| s.name == since)?;
        let later = past.get(since + 1..).filter(|later| !later.is_empty())?;
        let changed = later.iter().flat_map(|s| s.changed.iter().copied());
        Some(Arc::new(DirtyRanges::new(
            past[since].extent,
            changed.collect(),
        )))
    }
}
