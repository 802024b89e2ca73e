//! Owner of each slot while a map is read. The check uses it to separate allowed sharing of a slot from a conflict.
//!
//! Memory: 12 bytes for each slot in use, in pages of [`PAGE`] slots.

use std::collections::BTreeMap;

use units::{DeviceId, VolumeId};
use volume::Location;

/// Family of a volume and extent number: common to all owners that may share a slot.
pub(crate) type Owner = (VolumeId, u32);

const PAGE: usize = 4096;

type Page = Box<[Option<Owner>]>;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    devices: BTreeMap<DeviceId, Vec<Option<Page>>>,
}

impl Claims {
    /// Records the first owner of a slot.
    pub(crate) fn set(&mut self, at: Location, owner: Owner) {
        let (page, slot) = split(at.slot);
        let pages = self.devices.entry(at.device).or_default();
        if pages.len() <= page {
            pages.resize(page + 1, None);
        }
        let page = pages[page].get_or_insert_with(|| vec![None; PAGE].into());
        page[slot] = Some(owner);
    }

    /// Returns the recorded owner, if any.
    pub(crate) fn get(&self, at: Location) -> Option<Owner> {
        let (page, slot) = split(at.slot);
        let page = self.devices.get(&at.device)?.get(page)?.as_ref()?;
        page[slot]
    }
}

fn split(slot: u32) -> (usize, usize) {
    (slot as usize / PAGE, slot as usize % PAGE)
}
