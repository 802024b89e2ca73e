//! Keeping the copies of the map and the devices of one mind about who belongs to the array.
//!
//! ```text
//!   renew: propose (map) ─▶ superblocks of all devices in use ─▶ confirm (map)       before guests are let in, and whenever
//!                                                                                    a copy or a device comes or goes
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use array::{
    ArrayError, Change, CommitError, CopyHealth, CopyId, DeviceKind, DeviceRecord, DeviceStamp,
    Members, Membership, NotJoined, Stamp, Superblock, devices_needed, joins,
};
use tracing::warn;
use units::{Bytes, DeviceId};

use super::{Keeper, LostDevice};
use crate::device::{SlotSpace, StampError};
use crate::text::explain;

/// Proposals of which none was confirmed, after which one is used again: see [`Keeper::renew`].
const EARLIER_MAX: usize = 32;

impl<D: SlotSpace> Keeper<D> {
    /// What is in slots of a device that were never used is not known any more: its mark rises with the next membership.
    pub(super) fn distrust(&mut self, id: DeviceId) {
        self.slots.distrust(id);
        self.distrusted.insert(id);
    }

    /// Whether a device that is there belongs to the array, by its superblock.
    ///
    /// # Errors
    /// Why it is not taken without an operator's consent.
    pub(super) fn belongs(
        &self,
        id: DeviceId,
        expected: Option<&DeviceStamp>,
        found: &Superblock,
    ) -> Result<(), NotJoined> {
        match joins(self.map.state(), expected, found, self.host.boot) {
            Err(NotJoined::Unflushed) if self.told_of_loss(id, found) => Ok(()),
            joined => joined,
        }
    }

    /// Returns true if the guests of this process are told that unflushed writes to a lost device
    /// may be lost, so that it may come back without them. It has the stamp that the map expects,
    /// so nothing else was written to it.
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

    /// What was read may only be in a cache, if writing it did not come to its end: then it is written again. Otherwise a power loss
    /// could bring back one that nobody expects any more. Devices that cannot be written are lost.
    pub(super) fn settle_superblocks(&mut self, devices: &[DeviceId]) {
        let again = devices.iter().map(|id| (*id, self.superblocks[id]));
        let again = again.collect();
        self.put_superblocks_or_lose(again);
    }

    /// Writes superblocks, and remembers those that are written; what came of each.
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

    /// Remembers the superblock that a device carries.
    pub(super) fn wrote(&mut self, id: DeviceId, superblock: Superblock) {
        self.superblocks.insert(id, superblock);
        self.uncertain.remove(&id);
    }

    /// [`Keeper::put_superblocks`]; devices that cannot be written are lost. The others.
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

    /// Takes a device that is back, or that was opened anew, if it belongs to the array; it is used once the membership is renewed.
    /// `found` is its superblock.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn join(
        &mut self,
        id: DeviceId,
        (device, found): (D, Superblock),
        accepted: bool,
    ) -> Result<(), String> {
        let record = self.records.get(&id).ok_or("it was removed")?;
        if is_given_up(record) {
            return Err("an operator accepted its loss".into());
        }
        let blocked = |l: &&LostDevice| l.overwritten || self.why_not_owned(id).is_some();
        if let Some(lost) = self
            .lost
            .get(&id)
            .filter(blocked)
            .filter(|l| l.in_use && !accepted)
        {
            return Err(lost.why.clone());
        }
        whose(self.map.id(), self.map.extent(), record, &found)?;
        let stamps = self.map.stamps().map_err(|e| explain(&e))?;
        let stamp = stamps.iter().find(|s| s.device == id);
        if let Err(why) = self.belongs(id, stamp, &self.as_before(id, found)) {
            if !accepted {
                let text = why.to_string();
                if let Some(lost) = self.lost.get_mut(&id) {
                    lost.refused = Some(why);
                }
                return Err(text);
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
            let why = explain(&error);
            let lost = LostDevice {
                why: why.clone(),
                ..before
            };
            self.lost.insert(id, lost);
            return Err(why);
        }
        // It may have failed as it was stamped: no guest has used it meanwhile.
        match self.lost.get_mut(&id) {
            Some(lost) => {
                lost.in_use = before.in_use;
                Err(lost.why.clone())
            }
            None => {
                self.unstamped.remove(&id);
                Ok(())
            }
        }
    }

    /// A superblock as far as it says whether everything on its device is flushed. A device that was lost as it was stamped, before guests
    /// were let in, was given that stamp by this process and nothing else: what is said by the one from before holds.
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

    /// A new device of the array: nothing is on it.
    pub fn add(&mut self, record: &DeviceRecord, device: Arc<D>) {
        self.slots.add_device(record);
        self.devices.insert(record.id, device);
        let superblock = crate::device::superblock_of(self.map.id(), self.map.extent(), record);
        self.superblocks.insert(record.id, superblock);
        self.records.insert(record.id, record.clone());
    }

    /// A device cannot be used any more. Its guests are told. It is taken back when it works again
    /// and has the expected stamp ([`Keeper::join`]).
    pub fn lose(&mut self, id: DeviceId, why: String) {
        let Some(device) = self.devices.remove(&id) else {
            return;
        };
        self.left.insert(id, Arc::downgrade(&device));
        let stamp = self.superblocks.remove(&id).map(|s| s.stamp);
        // What it carries must not come to hold: it would look as if it had been there.
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

    /// Lets guests in: from here on nothing that another copy of the map, or another state of a device, says may be believed.
    ///
    /// # Errors
    /// When that cannot be made durable.
    pub fn begin_serving(&mut self) -> Result<(), ArrayError> {
        self.serves = true;
        let before = self.superblocks.clone();
        self.renew().inspect_err(|_| self.serves = false)?;
        self.guests = true;
        let lost = before.into_iter().filter(|b| self.lost.contains_key(&b.0));
        self.unstamped = lost.collect();
        // Devices that were given up go with the last extent that was on them.
        let given_up = self.records.values().filter(|r| is_given_up(r));
        let empty = given_up.filter(|r| !self.holds(r.id)).map(|r| r.id);
        for id in empty.collect::<Vec<_>>() {
            self.commit(&[Change::RemoveDevice(id)])?;
            self.forget(id);
        }
        Ok(())
    }

    /// Whether the array is open for guests.
    pub fn serves(&self) -> bool {
        self.serves
    }

    /// [`Keeper::renew`], while guests are let in.
    ///
    /// # Errors
    /// As it.
    pub fn renew_if_served(&mut self) -> Result<(), ArrayError> {
        match self.serves {
            true => self.renew(),
            false => Ok(()),
        }
    }

    /// A device was removed from the map.
    pub fn forget(&mut self, id: DeviceId) {
        self.slots.remove_device(id);
        self.devices.remove(&id);
        self.lost.remove(&id);
        self.superblocks.remove(&id);
        self.unstamped.remove(&id);
        self.left.remove(&id);
        self.records.remove(&id);
    }

    /// Makes a membership of the copies and devices as they are now, durably: propose, stamp, confirm. Devices that cannot be stamped are
    /// lost.
    ///
    /// # Errors
    /// When a copy is to go on alone and too few devices can be told, or when the map fails. Nothing may be acknowledged then.
    pub fn renew(&mut self) -> Result<(), ArrayError> {
        self.check_believed()?;
        self.finish_refresh();
        // Each turn but the last loses a copy or a device.
        loop {
            let members = self.map.members();
            let stamp = self.proposal(members);
            let before = self.map.state().may_be_members();
            // Where it is clear that too few can be told nothing is begun: a proposal that others do not know stands in their way.
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

    /// [`Keeper::renew`]; where it cannot be now, that is a trouble, and it is tried again before anything is committed.
    pub fn renew_or_note(&mut self) {
        if let Err(error) = self.renew() {
            self.map_failing = Some(explain(&error));
        }
    }

    /// Whether enough devices are told of a membership, if a copy goes on alone with it that did not before.
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

    /// Nothing is changed in a map that is only looked at.
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

    /// A commit that nobody waits for: one in doubt is found out, or begun anew with another generation.
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

    /// Makes a dropped copy of the map anew, if it may, and lets one that has been made belong to the membership.
    pub fn look_at_copies(&mut self, may_begin: bool) {
        self.map.look_at_places();
        self.map.end_rebuild();
        // A copy was dropped, or has been made: nothing is acknowledged before there is a membership for that. Where something is held,
        // settling it brings one.
        if self.held.is_none() && !self.map.confirmed() {
            self.renew_or_note();
        }
        let dropped = self.map.health().into_iter();
        let dropped = dropped.filter(|(_, _, h)| matches!(h, CopyHealth::Dropped { .. }));
        let first = dropped.map(|d| d.0).next();
        if let Some(copy) = first.filter(|_| may_begin) {
            // Why it cannot be is part of how the copy is.
            let _ = self.map.begin_rebuild(copy);
        }
    }

    /// Says on the devices that everything is flushed, when nobody uses the array any more; so a device that is away at the next start is
    /// known to hold all that it should when it comes back. One that cannot be flushed has lost something that its guests may still count
    /// on, and is not taken by itself at the next start.
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

    /// Writes on the devices, of which everything is flushed, how many commits there were then.
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
        // One that cannot be written does not say so: nothing is lost with that.
        for (id, result) in self.put_superblocks(closed) {
            if let Err(error) = result {
                self.lose_with(id, "the orderly stop cannot be recorded on it", &error);
            }
        }
    }

    /// What was changed while nobody is served is said to the devices: otherwise a backup from before it would look like the last state.
    pub fn note_changes(&mut self) {
        let commits = self.map.state().commits;
        let behind = |s: &Superblock| s.flushed && s.stamp != Stamp::NONE && s.commits != commits;
        if !self.serves && self.superblocks.values().any(behind) {
            self.say_closed();
        }
    }

    /// Whether a device holds extents, or is to.
    pub fn holds(&self, id: DeviceId) -> bool {
        self.slots.free(id) < self.slots.total(id)
    }
}

/// Returns true if the device was given up: its data is lost, and its superblock does not count.
pub(super) fn is_given_up(record: &DeviceRecord) -> bool {
    record.kind == DeviceKind::Gone
}

/// Whether a device's superblock may only be in a cache.
pub(super) fn is_unsettled(stamp: Option<&DeviceStamp>) -> bool {
    stamp.is_some_and(|s| !s.was.is_empty())
}

/// Whether a superblock is that of the device of a record.
pub(super) fn whose(
    array: array::ArrayId,
    extent: Bytes,
    record: &DeviceRecord,
    found: &Superblock,
) -> Result<(), String> {
    match found.is_of(array, record.id, extent, record.slots) {
        true => Ok(()),
        false => Err(format!(
            "its superblock belongs to device {} of array {} with {} slots of {}, not to the device of this name",
            found.device.0, found.array, found.slots, found.extent
        )),
    }
}
