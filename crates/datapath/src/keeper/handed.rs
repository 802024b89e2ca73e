//! An array that goes to another process, and comes from one: open files and what was decided of devices; all else is read from the map.
//!
//! Whatever a restart would not know, and cannot be said in a few words, is a reason not to hand over: the server goes on as it is.

use std::fs::File;
use std::sync::{Arc, Weak};

use array::DeviceKind;
use rustix::fs::OFlags;
use units::{DeviceId, VolumeId};

use super::{AcceptLoss, FoundCopy, Host, Keeper, KeeperError, Places, open};
use crate::device::{Device, HandedDevice, reopened};
use crate::text::explain;

impl Keeper {
    /// Why the array cannot be handed over now, if so.
    pub fn why_not_handed(&self) -> Option<String> {
        let name = |id: &DeviceId| &self.records[id].name;
        if let Err(error) = self.check_believed() {
            return Some(explain(&error));
        }
        if self.held.is_some() || self.map_failing.is_some() {
            return Some("a change of the map is not durable yet".into());
        }
        if !self.serves || !self.guests || self.spoiled || !self.distrusted.is_empty() {
            return Some("some devices do not have their stamp of use yet".into());
        }
        if !self.waiting.is_empty() {
            return Some(
                "the allocation of an extent waits for a device that does not respond".into(),
            );
        }
        let in_use = |id: &&DeviceId| self.records[*id].kind != DeviceKind::Gone;
        if let Some(id) = self.lost.keys().find(in_use) {
            return Some(format!("device {} is lost", name(id)));
        }
        if let Some(id) = self.left.iter().find(|l| Weak::strong_count(l.1) > 0) {
            return Some(format!(
                "device {} was lost, and some of its I/O still hangs",
                name(id.0)
            ));
        }
        if let Some(volume) = self.volumes.values().find(|v| v.source.is_some()) {
            return Some(format!("volume {} is being imported", volume.name));
        }
        for (id, device) in &self.devices {
            let name = name(id);
            if device.handed().is_none() {
                return Some(format!("device {name} is an export of another server"));
            }
            if device.is_asked() {
                return Some(format!(
                    "device {name} does not respond, or is being zeroed"
                ));
            }
        }
        self.map.why_not_handed()
    }

    /// The devices, as another process goes on with them.
    pub fn handed_devices(&self) -> Vec<HandedDevice> {
        let devices = self.devices.values();
        devices.filter_map(|d| d.handed()).collect()
    }

    /// Whether these are the places of volumes as large as the map says.
    pub fn fit(&self, volume: VolumeId, places: usize) -> bool {
        let record = self.volumes.get(&volume);
        record.is_some_and(|v| v.extents(self.map.extent()) == places as u64)
    }

    /// Opens an array whose files another process has opened and locked, and has closed the map in. Nothing is changed by that.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub fn open_handed(
        found: Vec<FoundCopy>,
        mut devices: Vec<HandedDevice>,
        places: Places,
    ) -> Result<Self, KeeperError> {
        Self::open_knowing(
            found,
            Host::this(),
            &AcceptLoss::default(),
            |extent, records| {
                let one = |record: &array::DeviceRecord| {
                    let at = devices.iter().position(|d| d.id == record.id);
                    let at = at.ok_or("the old server did not hand the device over")?;
                    let device = Device::from_handed(extent, record, devices.swap_remove(at));
                    let device = device.map_err(|e| explain(&e))?;
                    open::with_superblock(device)
                };
                records.iter().map(one).collect()
            },
            places,
        )
    }
}

/// Files that make what was written durable, beside those that guests use: what these are told of a failure the others are told too.
pub fn openings_of(devices: &[HandedDevice]) -> Vec<std::io::Result<File>> {
    devices
        .iter()
        .map(|d| reopened(&d.file, OFlags::empty()))
        .collect()
}

/// All files of an array, in the order in which they are handed over.
pub fn files_of(copies: &[Arc<File>], devices: &[HandedDevice]) -> Vec<Arc<File>> {
    let devices = devices.iter();
    let devices = devices.flat_map(|d| [d.file.clone(), d.lock.clone()]);
    copies.iter().cloned().chain(devices).collect()
}
