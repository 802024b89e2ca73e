//! Changing the map: a list of changes, all or nothing.
//!
//! The changes are made one after the other inside one transaction of the store, each checked against what is there by
//! then; the first that is not valid drops the transaction. Records that many changes look at (volumes, devices) are
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

/// One change of the map.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A new tier.
    AddTier(TierRecord),
    /// A new device.
    AddDevice(DeviceRecord),
    /// Slots below a mark may hold bytes. A mark never falls: a lower one than there is changes nothing.
    HighWater {
        device: DeviceId,
        /// The mark.
        slots: u32,
    },
    /// A new volume.
    AddVolume(VolumeRecord),
    /// A new volume that is imported: these extents of it, each range a first one and the one after its last, are at its source.
    Import {
        /// The volume, with its source.
        volume: VolumeRecord,
        /// Ascending, and apart.
        extents: Vec<(u32, u32)>,
    },
    /// Other properties for a volume. Its size may only fall where nothing has a place. It has no source any more only when no extent is there.
    SetVolume(VolumeRecord),
    /// A volume is gone, with all its places and its move. Refused while there are snapshots of it. What counts as changed in a snapshot that
    /// goes does so in the next one, or in the volume.
    RemoveVolume(VolumeId),
    /// An extent's place: the first one, or another one (a switch). Of a snapshot only another one. Counts as changed, if the volume has
    /// snapshots: what is alone in its slot is written to without a commit.
    Place {
        volume: VolumeId,
        extent: u32,
        /// Where it is from now on.
        at: Location,
    },
    /// A snapshot is made: a volume of its own, in which all extents are where those of the volume are that it is of.
    TakeSnapshot(VolumeRecord),
    /// The volume that a snapshot is of has the snapshot's size, places and health again. Refused while the volume moves.
    RestoreSnapshot(VolumeId),
    /// An extent that has a place gets one of its own, because it is written to, and a snapshot shares the place that it has. Counts as changed.
    CopyUp {
        volume: VolumeId,
        extent: u32,
        /// Where it is from now on.
        at: Location,
    },
    /// An extent becomes a hole.
    Vacate {
        volume: VolumeId,
        extent: u32,
    },
    /// A move begins, or has other properties.
    SetMove(MoveRecord),
    /// A move is over, or given up.
    ClearMove(VolumeId),
    /// A device is gone, with its stamp. Refused while an extent or a move is on it.
    RemoveDevice(DeviceId),
    /// Other properties for a device, but its tier; extents keep their places on it.
    SetDevice(DeviceRecord),
    /// A tier is gone. Refused while it has devices, or volumes whose next extents would go there.
    RemoveTier(TierId),
    /// A membership is proposed; devices have the stamps that were found on them until they are stamped anew.
    Propose {
        membership: Membership,
        /// Devices that are to be part of it, and their stamps.
        devices: Vec<(DeviceId, Stamp)>,
    },
    /// What was proposed holds; these devices carry its stamp.
    Confirm {
        devices: Vec<DeviceId>,
    },
    SetSecondCopy(SecondCopy),
    /// Another controller's orders are carried out from now on.
    SetLease(LeaseRecord),
    /// This map is a backup: it takes no part in memberships any more, and is only believed where the devices say that nothing happened since.
    SetAside,
    /// What a check has found is repaired.
    Repair(Repair),
}

/// Why a change could not be made: it is refused, or a record it needs cannot be read.
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
    /// Makes all changes, in order, durably and in one step; or, if one of them is not valid, none. When the store fails,
    /// whether the commit is durable is not known before the array was opened again.
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
        // If this does not come to its end they are not known any more, and read again.
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

    /// A transaction whose commit is durable. Waits for the one before.
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
