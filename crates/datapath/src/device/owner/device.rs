//! Claims of a remote device, as the keeper asks for them.

use std::sync::{MutexGuard, PoisonError};

use array::{ArrayId, DeviceRecord};

use super::super::{Device, DeviceError, Medium};
use super::{Claimant, End, Ownership, Owning, Refusal, ToClaim};

impl Device {
    /// Claims an export that is to become a device of an array.
    pub(in crate::device) fn claim_new(
        &self,
        array: ArrayId,
        record: &DeviceRecord,
        claimant: &Claimant,
    ) -> Result<(), DeviceError> {
        self.claim_for(array, true, claimant)
            .map_err(|why| DeviceError::NotOwned {
                name: record.name.clone(),
                path: record.path.clone(),
                why,
            })
    }

    /// Claims a remote device, of which the superblock was read, for this process; at once, if it has it. May wait for three intervals of
    /// heartbeats.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn claim(&self, claimant: &Claimant) -> Result<(), Refusal> {
        let known = self.expected().known;
        match known {
            Some(known) => self.claim_for(known.array, false, claimant),
            None => Ok(()),
        }
    }

    /// [`Device::claim`] of a device whose superblock was not read.
    ///
    /// # Errors
    /// As it.
    pub(crate) fn claim_of(&self, array: ArrayId, claimant: &Claimant) -> Result<(), Refusal> {
        self.claim_for(array, false, claimant)
    }

    fn claim_for(&self, array: ArrayId, new: bool, claimant: &Claimant) -> Result<(), Refusal> {
        let Medium::Nbd(uri, start) = &self.medium else {
            return Ok(());
        };
        if *start == 0 {
            return Ok(());
        }
        let mut ownership = self.ownership();
        if let Some(ownership) = &*ownership {
            return match ownership.state() {
                Owning::Lost(why) => Err(why),
                Owning::Confirmed | Owning::Paused(_) => Ok(()),
            };
        }
        let device = ToClaim {
            name: self.name.clone(),
            uri: uri.clone(),
            array,
            new,
            lease: self.lease.clone(),
            expected: self.superblock.clone(),
        };
        *ownership = Some(Ownership::claim(device, claimant)?);
        Ok(())
    }

    fn ownership(&self) -> MutexGuard<'_, Option<Ownership>> {
        self.ownership
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// State of the ownership of a remote device that was claimed.
    pub(crate) fn owning(&self) -> Option<Owning> {
        // A claim that is being made may take long, and nobody waits for it here.
        let ownership = self.ownership.try_lock().ok()?;
        ownership.as_ref().map(Ownership::state)
    }

    /// Lets other servers claim a remote device at once, unless something may be written to it yet.
    pub fn unclaim(&self) {
        if !self.is_asked() {
            self.end_ownership(End::Release);
        }
    }

    pub(in crate::device) fn end_ownership(&self, how: End) {
        let ownership = self.ownership().take();
        if let Some(ownership) = ownership {
            ownership.end(how);
        }
    }
}
