//! Durable map of an array: its tiers, devices and volumes, the place of every extent, and the moves in progress.
//!
//! ```text
//!   ARRAY/map.redb                                      each device
//!  ┌───────────────────────────────────────────┐       ┌────────────┬────────┬────────┬────────┬───
//!  │ meta     format version, array id, extent │       │ superblock │ slot 0 │ slot 1 │ slot 2 │ …
//!  │ tiers    name                             │       └────────────┴────────┴────────┴────────┴───
//!  │ devices  tier, path, slots, high-water ───┼──────▶ 0          1 MiB    + extent
//!  │ volumes  name, size, home, health         │
//!  │ extents  (volume, extent) → (device, slot)│       [`Slots`]: which slots are free, in memory,
//!  │ moves    volume, extents → device         │       derived from the map at every start
//!  │ state    commits, membership, copies      │
//!  │ stamps   device → generation ─────────────┼──────▶ must be that of its superblock
//!  │ changed  (volume, extent)                 │       since the snapshot before
//!  │ sums     of the records above             │       verified at every start (`view`)
//!  └───────────────────────────────────────────┘
//! ```
//!
//! [`Array::commit`] applies a list of [`Change`]s in one step: when it returns, either all or none are durable.
//! Every record has a checksum that is verified on each read. [`Array::check`] reads all records and reports
//! inconsistencies; [`Array::repair`] makes the safe repairs. `docs/formats/array.md` describes the bytes.
//!
//! # When a slot may be written
//!
//! ```text
//!              take_clean, take_any               place or switch committed
//!   free ───────────────────────────▶ taken ─────────────────────────────────▶ an extent's place
//!    ▲ ▲                                │ not used after all                      │ vacated, switched away, removed:
//!    │ └───────────── give_back ────────┘                                         │ committed
//!    └─────────────── give_back ◀── no request in flight uses it any more ◀───────┘
//! ```
//!
//! A slot that a snapshot shares must not be written: the volume gets a copy of the extent first ([`Change::CopyUp`]).
//!
//! Before the first byte is written to a never-used slot, a high-water mark above that slot is durable
//! ([`Change::HighWater`]). Slots above the mark were never written and read as zeroes.
//!
//! A second copy of the map may be kept on another device ([`Copies`]). Generations decide which copies and which
//! devices a start may trust (`membership`).
//!
//! # Limits
//!
//! No data path: the crate reads and writes no guest data and opens no device. No routing (`volume`), no choices
//! (`planner`), no clock. Only one process has an array open; the next one gets [`ArrayError::InUse`].

mod bitmap;
mod changed;
mod check;
mod claims;
mod codec;
mod commit;
mod copies;
mod copy;
mod create;
mod draft;
mod error;
mod families;
mod file;
mod membership;
mod panics;
mod problem;
mod read;
mod record;
mod refusal;
mod repair;
mod salvage;
mod slots;
mod sums;
mod superblock;
mod tables;
mod view;

use std::sync::{Arc, Mutex};

use units::Bytes;

use families::Families;
use panics::Store;
use view::{SharedStorage, View};

pub use commit::Change;
pub use copies::{
    CommitError, Copies, CopyHealth, CopyPlace, FilePlace, HANG_MAX, HandedCopy, Identity, NewMap,
};
pub use copy::Image;
pub use create::{EXTENT_MAX, EXTENT_MIN, MAP_FILE};
pub use error::ArrayError;
pub use file::map_reads;
pub use membership::{
    Candidate, Choice, CopyId, DeviceStamp, JoinError, MapChoiceError, MapState, Members,
    Membership, SecondCopy, Stamp, SuperblockInfo, choose, choose_anyway, devices_needed, joins,
};
pub use problem::{CheckReport, Problem, Repair, RepairRecord};
pub use record::{
    ArrayId, DeviceKind, DeviceRecord, Extent, Health, LOGICAL_BLOCK_MAX, LOGICAL_BLOCK_MIN,
    LeaseRecord, MoveRecord, SnapshotOf, SourceMark, SourceRecord, TierRecord, VolumeRecord,
};
pub use refusal::{
    DEVICE_ID_MAX, DEVICE_SLOTS_MAX, MOVE_RANGES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, Refusal,
    SNAPSHOTS_MAX, VOLUME_EXTENTS_MAX,
};
pub use salvage::Salvage;
pub use slots::{Slots, SlotsError, TakenSlot, UsedSlot};
pub use superblock::{
    DATA_START, SUPERBLOCK_BYTES, SUPERBLOCKS_BYTES, Superblock, SuperblockError,
};
pub use tables::FORMAT_VERSION;

/// Open map of an array. All methods may be called from several threads; commits take turns.
#[derive(Debug)]
pub struct Array {
    db: Store,
    id: ArrayId,
    extent: Bytes,
    /// State after the last commit, if known. A commit holds the lock while it runs.
    families: Mutex<Option<Families>>,
    /// Set if the map is open read-only.
    view: Option<View>,
    storage: SharedStorage,
    /// File of the map, with its lock, if the map is in a file. Last field, because the store must close before the
    /// lock is released.
    file: Option<Arc<file::MapFile>>,
}

impl Array {
    /// Returns the array's id, which its devices also carry.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// Size of an extent.
    pub fn extent(&self) -> Bytes {
        self.extent
    }
}
