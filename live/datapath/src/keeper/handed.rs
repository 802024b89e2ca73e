//! Transfer of an array between processes: open files and decisions about devices. All other state is read from the
//! map.
//!
//! State that a restart would lose, and that is too complex to send, prevents a hand-over: the server then continues
//! to serve.

use std::fs::File;
use std::sync::{Arc, Weak};

use array::DeviceKind;
use rustix::fs::OFlags;
use units::{DeviceId, VolumeId};

use super::{AcceptLoss, FoundCopy, Host, Keeper, KeeperError, Places, open};
use crate::device::{Device, HandedDevice, reopened};
use crate::text::explain;

impl Keeper {
    /// Returns the reason why the array cannot be handed over now.
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

    /// Returns the devices in the form in which another process adopts them.
    pub fn handed_devices(&self) -> Vec<HandedDevice> {
        let devices = self.devices.values();
        devices.filter_map(|d| d.handed()).collect()
    }

    /// Returns true if the number of places matches the volume's size in the map.
    pub fn fit(&self, volume: VolumeId, places: usize) -> bool {
        let record = self.volumes.get(&volume);
        record.is_some_and(|v| v.extents(self.map.extent()) == places as u64)
    }

    /// Opens an array whose files another process has opened and locked, after that process has closed the map.
    /// Changes nothing.
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

/// Opens each device's file again, to flush the guests' writes. An error that one opening reports is reported to the
/// other one too.
pub fn openings_of(devices: &[HandedDevice]) -> Vec<std::io::Result<File>> {
    devices
        .iter()
        .map(|d| reopened(&d.file, OFlags::empty()))
        .collect()
}

/// Returns all files of an array in the order of the hand-over.
pub fn files_of(copies: &[Arc<File>], devices: &[HandedDevice]) -> Vec<Arc<File>> {
    let devices = devices.iter();
    let devices = devices.flat_map(|d| [d.file.clone(), d.lock.clone()]);
    copies.iter().cloned().chain(devices).collect()
}
