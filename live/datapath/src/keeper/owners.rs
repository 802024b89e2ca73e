//! Ownership of remote devices. They are claimed before this process writes to them, and released
//! at an orderly stop.

use std::collections::BTreeMap;
use std::sync::Arc;

use array::{ArrayError, ArrayId, DeviceRecord, Superblock};
use units::{Bytes, DeviceId};

use super::{Keeper, KeeperError};
use crate::device::{Claimant, Device, OwnershipState, Refusal, SlotSpace};
use crate::error::DatapathError;
use crate::text::explain;

impl<D: SlotSpace> Keeper<D> {
    /// Returns the identity of this process in its claims of remote devices.
    pub fn claimant(&self) -> Arc<Claimant> {
        self.host.claimant.clone()
    }

    /// Returns the reason why this process does not own a remote device, if its server answered.
    pub(super) fn why_not_owned(&self, id: DeviceId) -> Option<&Refusal> {
        let why = self.not_owned.get(&id);
        why.filter(|why| **why != Refusal::NoReply)
    }

    /// Clears that reason when the device is in use again.
    pub(super) fn owned_again(&mut self, id: DeviceId) {
        self.not_owned.remove(&id);
    }

    /// Claims the remote devices among these that are not claimed yet. Returns the devices that
    /// this process does not own.
    pub(super) fn claim(
        &mut self,
        devices: impl Iterator<Item = DeviceId>,
    ) -> BTreeMap<DeviceId, Refusal> {
        let all = devices.filter_map(|id| Some((id, self.devices.get(&id)?.clone())));
        let refused: BTreeMap<_, _> = D::claim_each(all.collect(), &self.host.claimant)
            .into_iter()
            .collect();
        self.not_owned.extend(refused.clone());
        refused
    }

    /// Claims all remote devices, to serve or change the array. Devices whose server does not
    /// answer are lost for now.
    ///
    /// # Errors
    /// When another server owns a remote device or may own it.
    pub fn claim_remotes(&mut self) -> Result<(), KeeperError> {
        let all: Vec<DeviceId> = self.devices.keys().copied().collect();
        for (id, why) in self.claim(all.into_iter()) {
            if why == Refusal::NoReply {
                self.lose(id, why.to_string());
            }
        }
        let mut owned_by_others = self.not_owned.iter();
        match owned_by_others.find(|(_, why)| **why != Refusal::NoReply) {
            None => Ok(()),
            Some((id, why)) => Err(KeeperError::NotOwned {
                device: self.records[id].name.clone(),
                why: why.clone(),
            }),
        }
    }

    /// Refuses changes by a command if another server uses a remote device of the map.
    pub(super) fn check_owned(&mut self) -> Result<(), ArrayError> {
        if self.serves {
            return Ok(()); // they were claimed at the start
        }
        self.claim_remotes()
            .map_err(|e| ArrayError::Away { why: explain(&e) })
    }

    /// Releases the remote devices for other servers.
    pub(super) fn unclaim(&self) {
        D::unclaim_each(self.devices.values().cloned().collect());
    }
}

impl Keeper {
    /// Drops the devices that another server took over.
    pub(super) fn look_at_owners(&mut self) {
        let lost = |(id, device): (&DeviceId, &Arc<Device>)| match device.owning() {
            Some(OwnershipState::Lost(why)) => Some((*id, why)),
            _ => None,
        };
        let lost: Vec<_> = self.devices.iter().filter_map(lost).collect();
        if lost.is_empty() {
            return;
        }
        for (id, why) in lost {
            self.lose(id, why.to_string());
            self.not_owned.insert(id, why);
        }
        self.renew_or_note();
    }
}

/// Claims a remote device that was opened again, if it belongs to the array.
///
/// # Errors
/// [`DatapathError::Refused`]: this process does not own the device.
pub(crate) fn claim_opened(
    array: ArrayId,
    extent: Bytes,
    record: &DeviceRecord,
    (device, found): &(Device, Superblock),
    claimant: &Claimant,
) -> Result<(), DatapathError> {
    match found.is_of(array, record.id, extent, record.slots) {
        true => device
            .claim(claimant)
            .map_err(|why| DatapathError::Refused(why.to_string())),
        false => Ok(()),
    }
}
