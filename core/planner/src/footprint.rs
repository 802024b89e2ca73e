//! Bytes of each volume by device, and the bytes that a move takes from one device and brings to another.
//!
//! A volume whose extents are placed individually is on several devices; so may be a volume whose move was cancelled.

use model::{Facts, Move};
use units::{Bytes, DeviceId, VolumeId};

/// Bytes of every volume by device.
#[derive(Debug, Clone)]
pub(crate) struct Footprint {
    held: Vec<Vec<(DeviceId, Bytes)>>,
}

impl Footprint {
    pub(crate) fn new(facts: &Facts) -> Self {
        let held = facts.volumes.iter().map(|v| v.held()).collect();
        Self { held }
    }

    /// Returns the bytes of a volume by device, in order of device.
    pub(crate) fn held(&self, volume: VolumeId) -> &[(DeviceId, Bytes)] {
        &self.held[volume.index()]
    }

    /// Returns the bytes of a volume on one device.
    pub(crate) fn on(&self, volume: VolumeId, device: DeviceId) -> Bytes {
        let mut held = self.held(volume).iter();
        held.find(|h| h.0 == device).map_or(Bytes::ZERO, |h| h.1)
    }

    /// Returns the bytes that a move of the whole volume would bring to a device.
    pub(crate) fn elsewhere(&self, volume: VolumeId, device: DeviceId) -> Bytes {
        let others = self.held(volume).iter().filter(|h| h.0 != device);
        others.map(|h| h.1).sum()
    }

    /// Returns the bytes that a move brings to its target.
    pub(crate) fn arriving(&self, m: &Move) -> Bytes {
        match m.extents {
            Some(_) => m.size,
            None => self.elsewhere(m.volume, m.to),
        }
    }

    /// Returns the bytes that a move frees on a device.
    pub(crate) fn leaving(&self, m: &Move, device: DeviceId) -> Bytes {
        match m.extents {
            _ if device == m.to => Bytes::ZERO,
            Some(_) if device == m.from => m.size,
            Some(_) => Bytes::ZERO,
            None => self.on(m.volume, device),
        }
    }
}
