//! Membership: agreement of the copies of the map and the devices on the members of the array.
//!
//! ```text
//!   renew: propose (map) ─▶ superblocks of all devices in use ─▶ confirm (map)       before guests connect, and whenever
//!                                                                                    a copy or a device comes or goes
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use array::{
    ArrayError, Change, CommitError, CopyHealth, CopyId, DeviceKind, DeviceRecord, DeviceStamp,
    JoinError, Members, Membership, Stamp, Superblock, devices_needed, joins,
};
use tracing::warn;
use units::{Bytes, DeviceId};

use super::{Keeper, LostDevice};
use crate::device::{SlotSpace, StampError};
use crate::error::DatapathError;
use crate::text::explain;

/// Number of unconfirmed proposals after which a stamp is used again: see [`Keeper::proposal`].
const EARLIER_MAX: usize = 32;

impl<D: SlotSpace> Keeper<D> {
    /// Treats the content of never used slots of a device as unknown. Its high-water mark rises with the next
    /// membership.
    pub(super) fn distrust(&mut self, id: DeviceId) {
        self.slots.distrust(id);
        self.distrusted.insert(id);
    }

    /// Checks by its superblock whether a device belongs to the array.
    ///
    /// # Errors
    /// Reason why the device is not used without an operator's consent.
    pub(super) fn belongs(
        &self,
        id: DeviceId,
        expected: Option<&DeviceStamp>,
        found: &Superblock,
    ) -> Result<(), JoinError> {
        match joins(self.map.state(), expected, found, self.host.boot) {
            Err(JoinError::Unflushed) if self.told_of_loss(id, found) => Ok(()),
            joined => joined,
        }
    }

    /// Returns true if the guests of this process get errors for unflushed writes to a lost device, which may be
    /// lost. The device may then be used again without these writes. It has the stamp that the map expects, so
    /// nothing else was written to it.
    fn told_of_loss(&self, id: DeviceId, found: &Superblock) -> bool {
        let Some(lost) = self.lost.get(&id).filter(|l| l.unflushed) else {
            return false;
        };
        let (state, stamps) = &self.at_start;
        let stamp = stamps.iter().find(|s| s.device == id);
        lost.in_use
            || self.unstamped.contains_key(&id)
            || joins(state, stamp, found, self.host.boot).is_ok()
    }

    /// Writes superblocks again whose write was not confirmed: the content that was read may only be in a cache.
    /// Otherwise a power loss could restore an older superblock that no rule expects. Devices that cannot be written
    /// are lost.
    pub(super) fn settle_superblocks(&mut self, devices: &[DeviceId]) {
        let again = devices.iter().map(|id| (*id, self.superblocks[id]));
        let again = again.collect();
        self.put_superblocks_or_lose(again);
    }

    /// Writes superblocks and stores the written ones. Returns the result of each.
    fn put_superblocks(
        &mut self,
        new: BTreeMap<DeviceId, Superblock>,
    ) -> Vec<(DeviceId, Result<(), StampError>)> {
        let refused = self.claim(new.keys().copied());
        let of = |(id, superblock): (&DeviceId, &Superblock)| {
            (*id, self.devices[id].clone(), *superblock)
        };
        let owned = new.iter().filter(|(id, _)| !refused.contains_key(id));
        let mut written = D::write_superblocks(owned.map(of).collect());
        let refused = refused.into_iter();
        written.extend(refused.map(|(id, why)| (id, Err(std::io::Error::other(why).into()))));
        for (id, _) in written.iter().filter(|w| w.1.is_ok()) {
            self.wrote(*id, new[id]);
        }
        written
    }

    /// Stores the superblock that a device carries.
    pub(super) fn wrote(&mut self, id: DeviceId, superblock: Superblock) {
        self.superblocks.insert(id, superblock);
        self.uncertain.remove(&id);
    }

    /// Like [`Keeper::put_superblocks`]. Devices that cannot be written are lost; returns the others.
    fn put_superblocks_or_lose(&mut self, new: BTreeMap<DeviceId, Superblock>) -> Vec<DeviceId> {
        let mut written = vec![];
        for (id, result) in self.put_superblocks(new) {
            match result {
                Ok(()) => written.push(id),
                Err(error) => self.lose_with(id, "its superblock cannot be written", &error),
            }
        }
        written
    }

    /// Adds a device that is back or newly opened, if it belongs to the array. It is used after the membership is
    /// renewed. `found` is its superblock.
    ///
    /// # Errors
    /// [`DatapathError`]: the device is refused, or the map failed.
    pub fn join(
        &mut self,
        id: DeviceId,
        (device, found): (D, Superblock),
        accepted: bool,
    ) -> Result<(), DatapathError> {
        let refused = |why: &str| DatapathError::Refused(why.into());
        let record = self.records.get(&id);
        let record = record.ok_or_else(|| refused("it was removed"))?;
        if is_given_up(record) {
            return Err(refused("an operator accepted its loss"));
        }
        let blocked = |l: &&LostDevice| l.overwritten || self.why_not_owned(id).is_some();
        if let Some(lost) = self
            .lost
            .get(&id)
            .filter(blocked)
            .filter(|l| l.in_use && !accepted)
        {
            return Err(refused(&lost.why));
        }
        whose(self.map.id(), self.map.extent(), record, &found)?;
        let stamps = self.map.stamps()?;
        let stamp = stamps.iter().find(|s| s.device == id);
        if let Err(why) = self.belongs(id, stamp, &self.as_before(id, found)) {
            if !accepted {
                let error = DatapathError::Refused(why.to_string());
                if let Some(lost) = self.lost.get_mut(&id) {
                    lost.refused = Some(why);
                }
                return Err(error);
            }
            self.distrust(id);
        }
        self.wrote(id, found);
        let before = self.lost.remove(&id);
        let before = before.unwrap_or_else(|| LostDevice::new(String::new(), true));
        self.devices.insert(id, Arc::new(device));
        self.owned_again(id);
        if is_unsettled(stamp) {
            self.settle_superblocks(&[id]);
        }
        if let Err(error) = self.renew_if_served() {
            self.devices.remove(&id);
            self.superblocks.remove(&id);
            let lost = LostDevice {
                why: explain(&error),
                ..before
            };
            self.lost.insert(id, lost);
            return Err(error.into());
        }
        // The stamp may have failed; no guest has used the device meanwhile.
        match self.lost.get_mut(&id) {
            Some(lost) => {
                lost.in_use = before.in_use;
                Err(refused(&lost.why))
            }
            None => {
                self.unstamped.remove(&id);
                Ok(())
            }
        }
    }

    /// Returns a superblock with valid information about unflushed data. A device that was lost while it was stamped,
    /// before guests could connect, got only this stamp from this process. Therefore the flush state of its earlier
    /// superblock applies.
    fn as_before(&self, id: DeviceId, found: Superblock) -> Superblock {
        match self.unstamped.get(&id) {
            Some(before) => Superblock {
                flushed: before.flushed,
                boot: before.boot,
                ..found
            },
            None => found,
        }
    }

    /// Adds a new, empty device to the array.
    pub fn add(&mut self, record: &DeviceRecord, device: Arc<D>) {
        self.slots.add_device(record);
        self.devices.insert(record.id, device);
        let superblock = crate::device::superblock_of(self.map.id(), self.map.extent(), record);
        self.superblocks.insert(record.id, superblock);
        self.records.insert(record.id, record.clone());
    }

    /// Drops a device that cannot be used any more, and makes its guests' requests fail. The device is used again
    /// when it works and has the expected stamp ([`Keeper::join`]).
    pub fn lose(&mut self, id: DeviceId, why: String) {
        let Some(device) = self.devices.remove(&id) else {
            return;
        };
        self.left.insert(id, Arc::downgrade(&device));
        let stamp = self.superblocks.remove(&id).map(|s| s.stamp);
        // Its stamp must not be confirmed: the device would look as if it had been present.
        let proposed = self.map.state().pending.map(|p| p.stamp);
        self.spoiled |= stamp.is_some() && stamp == proposed || self.writing.is_some();
        let lost = LostDevice {
            in_use: self.guests,
            ..LostDevice::new(why, true)
        };
        self.lost.insert(id, lost);
        self.tell_lost(id);
    }

    /// Drops a device because of an error. Marks the device if another program has overwritten its
    /// superblock.
    pub(super) fn lose_with(&mut self, id: DeviceId, what: &str, error: &StampError) {
        match error {
            StampError::Io(error) => self.lose(id, format!("{what}: {}", explain(error))),
            StampError::Overwritten { .. } => {
                self.lose(id, error.to_string());
                if let Some(lost) = self.lost.get_mut(&id) {
                    lost.overwritten = true;
                }
            }
        }
    }

    /// Opens the array for guests. From then on, other states of the map or of a device are no longer trusted.
    ///
    /// # Errors
    /// The membership cannot be made durable.
    pub fn begin_serving(&mut self) -> Result<(), ArrayError> {
        self.serves = true;
        let before = self.superblocks.clone();
        self.renew().inspect_err(|_| self.serves = false)?;
        self.guests = true;
        let lost = before.into_iter().filter(|b| self.lost.contains_key(&b.0));
        self.unstamped = lost.collect();
        // Given-up devices are removed together with the last extent on them.
        let given_up = self.records.values().filter(|r| is_given_up(r));
        let empty = given_up.filter(|r| !self.holds(r.id)).map(|r| r.id);
        for id in empty.collect::<Vec<_>>() {
            self.commit(&[Change::RemoveDevice(id)])?;
            self.forget(id);
        }
        Ok(())
    }

    /// Returns true if the array is open for guests.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// Calls [`Keeper::renew`] if the array is open for guests.
    ///
    /// # Errors
    /// Those of [`Keeper::renew`].
    pub fn renew_if_served(&mut self) -> Result<(), ArrayError> {
        match self.serves {
            true => self.renew(),
            false => Ok(()),
        }
    }

    /// Forgets a device that was removed from the map.
    pub fn forget(&mut self, id: DeviceId) {
        self.slots.remove_device(id);
        self.devices.remove(&id);
        self.lost.remove(&id);
        self.superblocks.remove(&id);
        self.unstamped.remove(&id);
        self.left.remove(&id);
        self.records.remove(&id);
    }

    /// Makes a membership of the present copies and devices durable: propose, stamp, confirm. Devices that cannot be
    /// stamped are lost.
    ///
    /// # Errors
    /// A copy would continue alone and too few devices can be stamped, or the map fails. Nothing may be acknowledged
    /// then.
    pub fn renew(&mut self) -> Result<(), ArrayError> {
        self.check_believed()?;
        self.finish_refresh();
        // Each pass except the last one loses a copy or a device.
        loop {
            let members = self.map.members();
            let stamp = self.proposal(members);
            let before = self.map.state().may_be_members();
            // Begin only if enough devices can be stamped: an unconfirmed proposal hinders later ones.
            self.check_stamped(members, before, self.superblocks.len())?;
            self.propose(stamp, members)?;
            if self.map.members() != members {
                continue;
            }
            let written = self.put_superblocks_or_lose(self.stamped(stamp));
            if self.spoiled {
                continue;
            }
            self.check_stamped(members, before, written.len())?;
            self.commit_directly(&[Change::Confirm { devices: written }])?;
            if self.map.confirmed() {
                return Ok(());
            }
        }
    }

    /// Returns the stamp to propose for these members. The stamp of the last proposal is used again
    /// if it was not confirmed, unless a copy that is left out knows it.
    pub(super) fn proposal(&mut self, members: Members) -> Stamp {
        let state = self.map.state();
        let again = state.pending.filter(|p| {
            // An earlier process's stamp may be in an old image of a device. It is used again only
            // when the list of unconfirmed stamps is full.
            let own = self.proposed == Some(p.stamp) || state.earlier.len() > EARLIER_MAX;
            let left_behind = |c: &CopyId| p.members.contains(*c) && !members.contains(*c);
            let latest = p.stamp.generation + 1 == self.next_generation;
            own && latest && !self.spoiled && !CopyId::ALL.iter().any(left_behind)
        });
        let stamp = again.map_or_else(|| self.new_stamp(), |p| p.stamp);
        self.proposed = Some(stamp);
        stamp
    }

    /// Proposes a membership durably in every remaining copy.
    pub(super) fn propose(&mut self, stamp: Stamp, members: Members) -> Result<(), ArrayError> {
        let membership = Membership { stamp, members };
        let certain = self.superblocks.iter().map(|(id, s)| (*id, s.stamp));
        let mut devices: Vec<(DeviceId, Stamp)> = certain.collect();
        let uncertain = self.uncertain.iter();
        let uncertain = uncertain.filter(|(id, _)| self.superblocks.contains_key(id));
        devices.extend(uncertain.flat_map(|(id, all)| all.iter().map(|stamp| (*id, *stamp))));
        let mut changes = vec![Change::Propose {
            membership,
            devices,
        }];
        changes.extend(self.distrusted.iter().map(|id| Change::HighWater {
            device: *id,
            slots: self.slots.total(*id),
        }));
        self.commit_directly(&changes)?;
        self.remember_marks(&changes);
        self.distrusted.clear();
        Ok(())
    }

    /// Calls [`Keeper::renew`]. A failure is reported as a problem, and the renewal is repeated before the next
    /// commit.
    pub fn renew_or_note(&mut self) {
        if let Err(error) = self.renew() {
            self.map_failing = Some(explain(&error));
        }
    }

    /// Checks that enough devices are stamped if a copy of the map continues alone that did not before.
    fn check_stamped(
        &self,
        members: Members,
        before: Members,
        stamped: usize,
    ) -> Result<(), ArrayError> {
        let goes_alone = CopyId::ALL.into_iter().find(|c| {
            members.contains(*c) && !members.contains(c.other()) && before.contains(c.other())
        });
        let Some(copy) = goes_alone.filter(|_| !self.accepts_map) else {
            return Ok(());
        };
        let all = self.records.values().filter(|r| !is_given_up(r)).count();
        let needed = devices_needed(copy, all);
        match stamped >= needed {
            true => Ok(()),
            false => Err(ArrayError::Away {
                why: format!(
                    "the other copy of the map is not kept up to date, and only {stamped} of {all} devices can record that: {needed} are needed (`--accept-loss map` continues without: then no other copy of the map may ever be used)"
                ),
            }),
        }
    }

    /// Refuses changes of a map that is open for reading only.
    pub(super) fn check_believed(&self) -> Result<(), ArrayError> {
        match &self.not_believed {
            None => Ok(()),
            Some(why) => Err(ArrayError::Away { why: explain(why) }),
        }
    }

    fn new_stamp(&mut self) -> Stamp {
        let generation = self.next_generation;
        self.next_generation += 1;
        self.spoiled = false;
        let nonce = (self.host.nonce)();
        Stamp { generation, nonce }
    }

    /// Commits changes that no request waits for. A commit in doubt is read back. If it failed, a later attempt uses
    /// another generation.
    pub(super) fn commit_directly(&mut self, changes: &[Change]) -> Result<(), ArrayError> {
        match self.map.commit(changes) {
            Ok(()) => Ok(()),
            Err(CommitError::InDoubt(_)) if self.map.resolve() == Some(true) => Ok(()),
            Err(error) => Err(error.into_error()),
        }
    }

    /// Returns the superblocks of all devices in use, with the given stamp.
    pub(super) fn stamped(&self, stamp: Stamp) -> BTreeMap<DeviceId, Superblock> {
        let of = |before: &Superblock| match self.serves {
            true => Superblock {
                stamp,
                flushed: false,
                boot: self.host.boot,
                commits: 0,
                ..*before
            },
            // A process that does not serve has written no data.
            false => Superblock { stamp, ..*before },
        };
        let all = self.superblocks.iter();
        all.map(|(id, before)| (*id, of(before))).collect()
    }

    /// Rebuilds a dropped copy of the map if `may_begin` is set, and adds a rebuilt copy to the membership.
    pub fn look_at_copies(&mut self, may_begin: bool) {
        self.map.look_at_places();
        self.map.end_rebuild();
        // A copy was dropped or rebuilt: nothing is acknowledged before the membership reflects it. If a commit is
        // held, settling it renews the membership.
        if self.held.is_none() && !self.map.confirmed() {
            self.renew_or_note();
        }
        let dropped = self.map.health().into_iter();
        let dropped = dropped.filter(|(_, _, h)| matches!(h, CopyHealth::Dropped { .. }));
        let first = dropped.map(|d| d.0).next();
        if let Some(copy) = first.filter(|_| may_begin) {
            // The state of the copy contains the error.
            let _ = self.map.begin_rebuild(copy);
        }
    }

    /// Records an orderly stop on the devices after all data is flushed. If such a device is absent at the next
    /// start, it is known to be complete when it returns. A device that cannot be flushed may have lost data that its
    /// guests rely on, and is not used automatically at the next start.
    pub fn close(&mut self) {
        if !self.serves {
            return self.unclaim();
        }
        let all: Vec<_> = self
            .devices
            .iter()
            .map(|(id, d)| (*id, d.clone()))
            .collect();
        for (id, result) in D::flush_each(all) {
            if let Err(error) = result {
                self.lose(id, format!("it cannot be flushed: {error}"));
            }
        }
        let settled = self.held.is_none() && self.map.confirmed();
        // The new generation exposes every older state that is put back, even if no device was
        // lost.
        let lost: Vec<DeviceId> = self.lost.keys().copied().collect();
        if settled && self.renew().is_ok() {
            self.say_closed();
        }
        for (id, now_lost) in self.lost.iter().filter(|(id, _)| !lost.contains(id)) {
            let device = &self.records[id].name;
            warn!(device, why = %now_lost.why, "the device was lost during the orderly stop");
        }
        self.unclaim();
    }

    /// Records the orderly stop with the present number of commits on all flushed devices.
    fn say_closed(&mut self) {
        let commits = self.map.state().commits;
        let closed = self.superblocks.iter().map(|(id, before)| {
            let superblock = Superblock {
                flushed: true,
                commits,
                ..*before
            };
            (*id, superblock)
        });
        let closed = closed.collect();
        // A device that cannot be written lacks the record, which loses no data.
        for (id, result) in self.put_superblocks(closed) {
            if let Err(error) = result {
                self.lose_with(id, "the orderly stop cannot be recorded on it", &error);
            }
        }
    }

    /// Records changes on the devices that were made while nothing was served. Otherwise a backup from before them
    /// would look like the last state.
    pub fn note_changes(&mut self) {
        let commits = self.map.state().commits;
        let behind = |s: &Superblock| s.flushed && s.stamp != Stamp::NONE && s.commits != commits;
        if !self.serves && self.superblocks.values().any(behind) {
            self.say_closed();
        }
    }

    /// Returns true if a device has or will have extents.
    pub fn holds(&self, id: DeviceId) -> bool {
        self.slots.free(id) < self.slots.total(id)
    }
}

/// Returns true if the device was given up: its data is lost, and its superblock does not count.
pub(super) fn is_given_up(record: &DeviceRecord) -> bool {
    record.kind == DeviceKind::Gone
}

/// Returns true if a device's superblock may only be in a cache.
pub(super) fn is_unsettled(stamp: Option<&DeviceStamp>) -> bool {
    stamp.is_some_and(|s| !s.was.is_empty())
}

/// Checks that a superblock belongs to the device of a record.
pub(super) fn whose(
    array: array::ArrayId,
    extent: Bytes,
    record: &DeviceRecord,
    found: &Superblock,
) -> Result<(), DatapathError> {
    match found.is_of(array, record.id, extent, record.slots) {
        true => Ok(()),
        false => Err(DatapathError::Refused(format!(
            "its superblock belongs to device {} of array {} with {} slots of {}, not to the device of this name",
            found.device.0, found.array, found.slots, found.extent
        ))),
    }
}
