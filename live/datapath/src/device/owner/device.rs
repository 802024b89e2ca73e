//! Claims of remote devices on behalf of the keeper.

use std::sync::{MutexGuard, PoisonError};

use array::{ArrayId, DeviceRecord, Superblock};

use super::super::{Device, DeviceError, Medium};
use super::{ClaimRequest, Claimant, End, Ownership, OwnershipState, Refusal};

impl Device {
    /// Claims an export for a new device of an array. `force` also replaces a claim that
    /// another server did not release.
    pub(in crate::device) fn claim_new(
        &self,
        array: ArrayId,
        record: &DeviceRecord,
        force: bool,
        claimant: &Claimant,
    ) -> Result<(), DeviceError> {
        self.claim_for(array, Some(force), claimant)
            .map_err(|why| DeviceError::NotOwned {
                name: record.name.clone(),
                path: record.path.clone(),
                why,
            })
    }

    /// Claims a remote device for this process, at once if the process owns it already. Its
    /// superblock must have been read. May wait for three intervals of heartbeats.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn claim(&self, claimant: &Claimant) -> Result<(), Refusal> {
        let known = self.expected().last().cloned();
        match known.map(|bytes| Superblock::decode_both(&bytes)) {
            Some(Ok(known)) => self.claim_for(known.array, None, claimant),
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// Claims a remote device. `new` is set for the export of a new device. `Some(true)` replaces a
    /// claim that another server did not release.
    fn claim_for(
        &self,
        array: ArrayId,
        new: Option<bool>,
        claimant: &Claimant,
    ) -> Result<(), Refusal> {
        let Medium::Nbd(uri) = &self.medium else {
            return Ok(());
        };
        let mut ownership = self.ownership();
        if let Some(ownership) = &*ownership {
            return match ownership.state() {
                OwnershipState::Lost(why) => Err(why),
                OwnershipState::Confirmed | OwnershipState::Paused(_) => Ok(()),
            };
        }
        let device = ClaimRequest {
            name: self.name.clone(),
            uri: uri.clone(),
            array,
            new: new.is_some(),
            force: new == Some(true),
            lease: self.lease.clone(),
            expected: self.superblock_places.clone(),
        };
        *ownership = Some(Ownership::claim(device, claimant)?);
        Ok(())
    }

    fn ownership(&self) -> MutexGuard<'_, Option<Ownership>> {
        self.ownership
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ownership state of a claimed remote device.
    pub(crate) fn owning(&self) -> Option<OwnershipState> {
        // Returns `None` while another thread makes a claim, which may take long.
        let ownership = self.ownership.try_lock().ok()?;
        ownership.as_ref().map(Ownership::state)
    }

    /// Releases a remote device for other servers, unless a write to it may still be under way.
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
