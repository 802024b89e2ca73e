//! Who is in which slot, while a map is read: so that those who may share one are told from those who may not.
//!
//! Memory: 12 bytes for each slot in use, in pages of [`PAGE`] slots.

use std::collections::BTreeMap;

use units::{DeviceId, VolumeId};
use volume::Location;

/// The family of a volume, and the extent: what all who are in one slot have in common.
pub(crate) type Owner = (VolumeId, u32);

const PAGE: usize = 4096;

type Page = Box<[Option<Owner>]>;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    devices: BTreeMap<DeviceId, Vec<Option<Page>>>,
}

impl Claims {
    /// Notes the first who is in a slot.
    pub(crate) fn set(&mut self, at: Location, owner: Owner) {
        let (page, slot) = split(at.slot);
        let pages = self.devices.entry(at.device).or_default();
        if pages.len() <= page {
            pages.resize(page + 1, None);
        }
        let page = pages[page].get_or_insert_with(|| vec![None; PAGE].into());
        page[slot] = Some(owner);
    }

    /// Who was noted, if anybody.
    pub(crate) fn get(&self, at: Location) -> Option<Owner> {
        let (page, slot) = split(at.slot);
        let page = self.devices.get(&at.device)?.get(page)?.as_ref()?;
        page[slot]
    }
}

fn split(slot: u32) -> (usize, usize) {
    (slot as usize / PAGE, slot as usize % PAGE)
}
