//! Commits to the map, and the handling of commits that cannot be acknowledged yet.
//!
//! ```text
//!   changes ──▶ every copy ─┬─ durable, and the membership is confirmed ─▶ replies
//!                           ├─ durable, but a copy was dropped ──────────▶ held ──renewed──▶ replies
//!                           ├─ in doubt ─────────────────────────────────▶ held ──read back──▶ replies, or undone
//!                           └─ failed ───────────────────────────────────▶ undone
//! ```

use array::{ArrayError, Change, CommitError};
use units::VolumeId;

use super::{Keeper, LostDevice};
use crate::device::SlotSpace;
use crate::engine::{Fault, StoreReply};

/// Commit that is not acknowledged yet. Either its durability is unknown, or a copy of the map was dropped and the
/// membership without it is not confirmed yet.
pub(super) struct PendingCommit {
    /// `None` while the durability is unknown.
    pub(super) durable: Option<bool>,
    pub(super) changes: Vec<Change>,
    pub(super) answers: Vec<(usize, VolumeId, StoreReply)>,
}

impl<D: SlotSpace> Keeper<D> {
    /// Commits changes and returns the replies that may be sent now.
    pub(super) fn make_durable(
        &mut self,
        changes: &[Change],
        answers: Vec<(usize, VolumeId, StoreReply)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        let done = self.commit(changes);
        self.answers_of(done, answers)
    }

    /// Returns the replies that may be sent after a commit.
    pub(super) fn answers_of(
        &mut self,
        done: Result<(), ArrayError>,
        answers: Vec<(usize, VolumeId, StoreReply)>,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        if let Some(held) = &mut self.held {
            held.answers = answers;
            return vec![];
        }
        match done {
            Ok(()) => answers,
            Err(error) if error.is_no_space() => self.undone(answers, Fault::NoSpace),
            Err(_) => self.undone(answers, Fault::Io),
        }
    }

    /// Returns the replies of a commit that has certainly failed. Slots that were allocated for it become free.
    pub(super) fn undone(
        &mut self,
        answers: Vec<(usize, VolumeId, StoreReply)>,
        fault: Fault,
    ) -> Vec<(usize, VolumeId, StoreReply)> {
        let replies = answers.into_iter().map(|(worker, volume, reply)| {
            let taken = match &reply {
                StoreReply::Placed { places, .. } => places.as_ref().ok(),
                StoreReply::Reserved(slots) | StoreReply::Gathered(slots) => slots.as_ref().ok(),
                StoreReply::Unshared { to, .. } => {
                    let taken = to.ok().flatten();
                    taken
                        .into_iter()
                        .for_each(|slot| self.slots.give_back(slot));
                    None
                }
                StoreReply::Vacated { .. }
                | StoreReply::Switched(_)
                | StoreReply::Arrived { .. }
                | StoreReply::Imported(_)
                | StoreReply::CopiedUp { .. } => None,
            };
            for slot in taken.into_iter().flatten() {
                self.slots.give_back(*slot);
            }
            (worker, volume, failed(reply, fault))
        });
        replies.collect()
    }

    /// Makes changes durable in every copy of the map that is a member.
    ///
    /// # Errors
    /// The commit failed, its durability is unknown, or it cannot be acknowledged yet. In the last two cases
    /// [`Keeper::settle`] continues it.
    pub fn commit(&mut self, changes: &[Change]) -> Result<(), ArrayError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.known.clear();
        let done = self.try_commit(changes);
        match &done {
            Ok(()) => {
                self.map_failing = None;
                self.remember_marks(changes);
                self.source_is_over(changes);
            }
            Err(error @ (ArrayError::Refused { .. } | ArrayError::NoSpace { .. })) => {
                self.store_error = Some(error.to_string());
            }
            Err(error) => {
                let why = crate::text::explain(error);
                self.store_error = Some(why.clone());
                self.map_failing = Some(why);
            }
        }
        done
    }

    /// Returns true if a commit is held: it may be durable, or is durable and cannot be acknowledged yet.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn try_commit(&mut self, changes: &[Change]) -> Result<(), ArrayError> {
        self.check_believed()?;
        self.check_owned()?;
        if self.held.is_some() {
            return Err(ArrayError::Away {
                why: "an earlier change may not be durable yet".into(),
            });
        }
        if !self.map.confirmed() {
            self.renew()?;
        }
        let held = |changes: &[Change], durable| PendingCommit {
            durable,
            changes: changes.to_vec(),
            answers: vec![],
        };
        match self.map.commit(changes) {
            Ok(()) if self.map.confirmed() => Ok(()),
            // A copy was dropped: nothing is acknowledged before the other members know it.
            Ok(()) => self
                .renew()
                .inspect_err(|_| self.held = Some(held(changes, Some(true)))),
            Err(error) => {
                if matches!(error, CommitError::InDoubt(_)) {
                    self.held = Some(held(changes, None));
                }
                Err(error.into_error())
            }
        }
    }

    /// Tries to complete a held commit. Returns its replies.
    pub fn settle(&mut self) -> Vec<(usize, VolumeId, StoreReply)> {
        // No other commit is made while one is in doubt, so the result is that of the held commit, if there is one.
        if self.map.in_doubt() {
            let Some(durable) = self.map.resolve() else {
                return vec![];
            };
            if let Some(held) = &mut self.held {
                held.durable.get_or_insert(durable);
            }
        }
        if let Some(PendingCommit {
            changes, answers, ..
        }) = self.held.take_if(|h| h.durable == Some(false))
        {
            self.read_records();
            self.snapshots_undone(&changes);
            return self.undone(answers, Fault::Io);
        }
        if !self.map.confirmed() && self.renew().is_err() {
            return vec![];
        }
        let Some(PendingCommit {
            changes, answers, ..
        }) = self.held.take()
        else {
            return vec![];
        };
        self.map_failing = None;
        self.read_records();
        self.remember_marks(&changes);
        answers
    }

    /// Reads the records again. An operator's change may be durable although the reply said that this is unknown.
    pub(super) fn read_records(&mut self) {
        if let (Ok(tiers), Ok(devices), Ok(volumes)) =
            (self.map.tiers(), self.map.devices(), self.map.volumes())
        {
            self.tiers = tiers;
            self.volumes = volumes.into_iter().map(|v| (v.id, v)).collect();
            for device in devices {
                match self.records.get_mut(&device.id) {
                    Some(known) => *known = device,
                    // The device was being added. It is treated as one that was absent.
                    None => {
                        self.slots.add_device(&device);
                        let why = "the device was added and is not in use yet";
                        let lost = LostDevice::new(why.into(), false);
                        self.lost.insert(device.id, lost);
                        self.records.insert(device.id, device);
                    }
                }
            }
        }
    }

    pub(super) fn remember_marks(&mut self, changes: &[Change]) {
        for change in changes {
            if let Change::HighWater { device, slots } = change
                && let Some(record) = self.records.get_mut(device)
            {
                record.high_water = record.high_water.max(*slots);
            }
        }
    }
}

/// Returns the reply for a failed commit.
fn failed(reply: StoreReply, fault: Fault) -> StoreReply {
    match reply {
        StoreReply::Placed { extents, places } => StoreReply::Placed {
            extents,
            places: Err(places.err().unwrap_or(fault)),
        },
        StoreReply::Vacated { extents, .. } => StoreReply::Vacated {
            extents,
            done: Err(fault),
        },
        StoreReply::Reserved(slots) => StoreReply::Reserved(Err(slots.err().unwrap_or(fault))),
        StoreReply::Switched(_) => StoreReply::Switched(Err(fault)),
        StoreReply::Gathered(slots) => StoreReply::Gathered(Err(slots.err().unwrap_or(fault))),
        StoreReply::Arrived { group, .. } => StoreReply::Arrived {
            group,
            done: Err(fault),
        },
        StoreReply::Imported(_) => StoreReply::Imported(Err(fault)),
        StoreReply::Unshared { extent, to } => StoreReply::Unshared {
            extent,
            to: Err(to.err().unwrap_or(fault)),
        },
        StoreReply::CopiedUp { extent, .. } => StoreReply::CopiedUp {
            extent,
            done: Err(fault),
        },
    }
}
