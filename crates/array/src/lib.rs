//! The durable part of an array: which tiers, devices and volumes exist, where every extent is, which moves are under way.
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
//! [`Array::commit`] makes a list of [`Change`]s in one step: all of them are durable when it returns, or none ever was.
//! Every record has a checksum that is verified when it is read; [`Array::check`] reads all of them and says what does not
//! fit together, [`Array::repair`] does what is safe about it. `docs/formats/array.md` has the bytes.
//!
//! # When a slot may be written
//!
//! ```text
//!              take_clean, take_any               place or switch committed
//!   free ───────────────────────────▶ taken ─────────────────────────────────▶ an extent's place
//!    ▲ ▲                                │ not used after all                      │ vacated, switched away, removed:
//!    │ └───────────── give_back ────────┘                                         │ committed
//!    └─────────────── give_back ◀── no request in flight knows it any more ◀──────┘
//! ```
//!
//! A slot that a snapshot has too is shared, and may not be written: the volume gets a copy first ([`Change::CopyUp`]).
//!
//! Before the first byte goes to a never-used slot, the device's high-water mark above it is durable
//! ([`Change::HighWater`]): what is above the mark was never written and reads as zeroes.
//!
//! A second copy of the map may be kept on another device ([`Copies`]); which of the copies, and which devices, a start may believe is
//! decided by generations (`membership`).
//!
//! # What it is not
//!
//! No data path: it reads and writes no guest data and opens no device. No routing (`volume`), no choices (`planner`), no
//! clock. Not for many processes: one has an array open, the next gets [`ArrayError::InUse`].

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
use view::{Shared, View};

pub use commit::Change;
pub use copies::{
    CommitError, Copies, CopyHealth, CopyPlace, FilePlace, Fresh, HANG_MAX, HandedCopy, Identity,
};
pub use copy::Image;
pub use create::{EXTENT_MAX, EXTENT_MIN, MAP_FILE};
pub use error::ArrayError;
pub use file::map_reads;
pub use membership::{
    Candidate, Choice, CopyId, DeviceStamp, MapState, Members, Membership, NotChosen, NotJoined,
    SecondCopy, Seen, Stamp, choose, choose_anyway, devices_needed, joins,
};
pub use problem::{CheckReport, Problem, Repair, Repaired};
pub use record::{
    ArrayId, DeviceKind, DeviceRecord, Extent, Health, LOGICAL_BLOCK_MAX, LOGICAL_BLOCK_MIN,
    LeaseRecord, MoveRecord, SnapshotOf, SourceMark, SourceRecord, TierRecord, VolumeRecord,
};
pub use refusal::{
    DEVICE_ID_MAX, DEVICE_SLOTS_MAX, MOVE_RANGES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, Refusal,
    SNAPSHOTS_MAX, VOLUME_EXTENTS_MAX,
};
pub use salvage::Salvage;
pub use slots::{Slots, SlotsError, Taken, Used};
pub use superblock::{
    DATA_START, SUPERBLOCK_BYTES, SUPERBLOCKS_BYTES, Superblock, SuperblockError,
};
pub use tables::FORMAT_VERSION;

/// An array's map, open. All methods may be called from several threads; commits take turns.
#[derive(Debug)]
pub struct Array {
    db: Store,
    id: ArrayId,
    extent: Bytes,
    /// As the last commit left them, if they are known. Held by a commit while it is made.
    families: Mutex<Option<Families>>,
    /// Set if the map is open read-only.
    view: Option<View>,
    storage: Shared,
    /// The file that it is in, if it is in one, with the lock on it. Last, so that the store is closed before the lock goes.
    file: Option<Arc<file::MapFile>>,
}

impl Array {
    /// The array's id, which its devices carry too.
    pub fn id(&self) -> ArrayId {
        self.id
    }

    /// Size of an extent.
    pub fn extent(&self) -> Bytes {
        self.extent
    }
}
