//! Changes of the map: a list of changes, all or nothing.
//!
//! One transaction of the store applies the changes in order. Each change is checked against the state that the earlier
//! ones left; the first invalid change aborts the transaction. Records that many changes use (volumes, devices) are
//! read once per commit.

use std::sync::PoisonError;

use redb::{Durability, WriteTransaction};
use units::{DeviceId, TierId, VolumeId};
use volume::Location;

use crate::draft::Draft;
use crate::file::is_no_space;
use crate::membership::{Membership, SecondCopy, Stamp};
use crate::problem::Repair;
use crate::read::open;
use crate::record::{DeviceRecord, LeaseRecord, MoveRecord, TierRecord, VolumeRecord};
use crate::refusal::Refusal;
use crate::tables::{EXTENTS, Table, extent_key};
use crate::{Array, ArrayError};

/// Change of the map.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Adds a tier.
    AddTier(TierRecord),
    /// Adds a device.
    AddDevice(DeviceRecord),
    /// Raises the mark below which slots may hold bytes. A mark never falls: a value below the present mark has no
    /// effect.
    HighWater {
        device: DeviceId,
        /// New mark.
        slots: u32,
    },
    /// Adds a volume.
    AddVolume(VolumeRecord),
    /// Adds a volume that is imported. Each range of extents is the first one and the one after the last; these extents
    /// are read from the source.
    Import {
        /// Volume with its source.
        volume: VolumeRecord,
        /// Ranges in ascending order, not adjacent.
        extents: Vec<(u32, u32)>,
    },
    /// Changes the properties of a volume. Its size may shrink only where no extent has a place. Its source may be
    /// removed only when no extent is left at the source.
    SetVolume(VolumeRecord),
    /// Removes a volume with all its places and its move. Refused while the volume has snapshots. If a snapshot is
    /// removed, its changed extents count as changed in the next snapshot or in the volume.
    RemoveVolume(VolumeId),
    /// Sets the place of an extent: its first place or a new one (a switch). An extent of a snapshot can only get a new
    /// one. If the volume has snapshots, the extent counts as changed, because a slot with one owner is written without
    /// a commit.
    Place {
        volume: VolumeId,
        extent: u32,
        /// New place.
        at: Location,
    },
    /// Takes a snapshot. It is a volume of its own whose extents share the places of the original volume.
    TakeSnapshot(VolumeRecord),
    /// Restores size, places and health of a volume from this snapshot. Refused while the volume has a move.
    RestoreSnapshot(VolumeId),
    /// Gives an extent a place of its own before a write, because a snapshot shares its present place. Counts as
    /// changed.
    CopyUp {
        volume: VolumeId,
        extent: u32,
        /// New place.
        at: Location,
    },
    /// Makes an extent a hole.
    Vacate {
        volume: VolumeId,
        extent: u32,
    },
    /// Starts a move or changes its properties.
    SetMove(MoveRecord),
    /// Ends a move, completed or cancelled.
    ClearMove(VolumeId),
    /// Removes a device and its stamp. Refused while it has an extent or a move.
    RemoveDevice(DeviceId),
    /// Changes the properties of a device, except its tier. Extents keep their places.
    SetDevice(DeviceRecord),
    /// Removes a tier. Refused while it has devices, or while new extents of a volume would go to it.
    RemoveTier(TierId),
    /// Proposes a membership. Devices keep the stamps found on them until they are stamped again.
    Propose {
        membership: Membership,
        /// Devices of the new membership and their stamps.
        devices: Vec<(DeviceId, Stamp)>,
    },
    /// Confirms the proposed membership. These devices carry its stamp.
    Confirm {
        devices: Vec<DeviceId>,
    },
    SetSecondCopy(SecondCopy),
    /// Transfers the lease to another controller, whose orders are obeyed from now on.
    SetLease(LeaseRecord),
    /// Makes this map a backup. It takes no part in memberships and is trusted only if the stamps of the devices show
    /// no later change.
    SetAside,
    /// Repairs a problem that a check found.
    Repair(Repair),
}

/// Reason a change failed: it is refused, or a record that it needs is unreadable.
pub(crate) enum Failure {
    Refused(Refusal),
    Other(ArrayError),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Self {
        Failure::Other(error)
    }
}

pub(crate) fn store<E: Into<redb::Error>>(error: E) -> Failure {
    Failure::Other(ArrayError::store("change the map")(error))
}

impl Array {
    /// Makes all changes in order, durably and in one step, or none if one of them is invalid. After a failure of the
    /// store it is unknown whether the commit is durable, until the array is opened again.
    ///
    /// # Errors
    /// [`ArrayError::NoSpace`] for changes that add records, if the reserve of the file cannot be
    /// allocated; all others may use the reserve.
    pub fn commit(&self, changes: &[Change]) -> Result<(), ArrayError> {
        match changes {
            [] => Ok(()),
            _ => self.contained(|| {
                self.check_space(changes)?;
                self.change(changes)
            }),
        }
    }

    fn check_space(&self, changes: &[Change]) -> Result<(), ArrayError> {
        let Some(file) = self.file.as_ref().filter(|f| !f.has_reserve()) else {
            return Ok(());
        };
        if !self.add_records(changes)? {
            return Ok(());
        }
        file.take_reserve()
            .map_err(|error| match is_no_space(&error) {
                true => ArrayError::NoSpace {
                    place: "the map".into(),
                    needed: file.reserve_bytes(),
                },
                false => ArrayError::store("allocate the reserve")(redb::Error::Io(error)),
            })
    }

    /// Returns true if one of the changes adds records, in a number that guests or operators do
    /// not limit.
    fn add_records(&self, changes: &[Change]) -> Result<bool, ArrayError> {
        let txn = self.begin_read()?;
        let extents = open(&txn, EXTENTS, Table::Extents)?;
        for change in changes {
            let adds = match change {
                Change::Place { volume, extent, .. } => {
                    let known = extents.get(extent_key(*volume, *extent));
                    known.map_err(ArrayError::store("read a place"))?.is_none()
                }
                Change::AddVolume(_)
                | Change::Import { .. }
                | Change::TakeSnapshot(_)
                | Change::RestoreSnapshot(_)
                | Change::CopyUp { .. } => true,
                // A move replaces records. The others are one small record each, or remove some.
                Change::AddTier(_)
                | Change::AddDevice(_)
                | Change::HighWater { .. }
                | Change::SetVolume(_)
                | Change::RemoveVolume(_)
                | Change::Vacate { .. }
                | Change::SetMove(_)
                | Change::ClearMove(_)
                | Change::RemoveDevice(_)
                | Change::SetDevice(_)
                | Change::RemoveTier(_)
                | Change::Propose { .. }
                | Change::Confirm { .. }
                | Change::SetSecondCopy(_)
                | Change::SetAside
                | Change::SetLease(_)
                | Change::Repair(_) => false,
            };
            if adds {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn change(&self, changes: &[Change]) -> Result<(), ArrayError> {
        let known = self.families.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let txn = self.begin_write()?;
        // If the commit fails, the families stay unknown and are read again.
        let mut draft = Draft::open(&txn, self.extent, known.take())?;
        for (index, change) in changes.iter().enumerate() {
            draft
                .make(index, change)
                .map_err(|failure| at_index(index, failure))?;
        }
        draft.check_marks()?;
        draft.count_commit()?;
        let families = draft.into_families();
        txn.commit().map_err(ArrayError::store("commit"))?;
        *known = families;
        Ok(())
    }

    /// Begins a durable transaction, after the previous one has ended.
    pub(crate) fn begin_write(&self) -> Result<WriteTransaction, ArrayError> {
        if self.view.is_some() {
            let why = "it is open for reading only".into();
            return Err(ArrayError::Away { why });
        }
        let txn = self.db.begin_write();
        let mut txn = txn.map_err(ArrayError::store("begin a commit"))?;
        txn.set_durability(Durability::Immediate)
            .map_err(ArrayError::store("begin a commit"))?;
        Ok(txn)
    }
}

pub(crate) fn at_index(index: usize, failure: Failure) -> ArrayError {
    match failure {
        Failure::Refused(refusal) => ArrayError::Refused { index, refusal },
        Failure::Other(error) => error,
    }
}

pub(crate) fn unknown(what: &'static str, id: u32) -> Failure {
    Failure::Refused(Refusal::Unknown { what, id })
}

pub(crate) fn refused(refusal: Option<Refusal>) -> Result<(), Failure> {
    refusal.map_or(Ok(()), |r| Err(Failure::Refused(r)))
}
