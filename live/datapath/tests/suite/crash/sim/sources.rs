//! Volumes in import. The content of their sources exists from the beginning and never changes.

use std::sync::Arc;

use algo::Rng;
use array::{Change, SourceMark, SourceRecord, VolumeRecord};
use crashdisk::CrashDisk;
use units::{Bytes, BytesPerSec, DeviceId};

use super::device::SimDevice;
use super::oracle::{SECTOR, fill};
use super::plan::{DEVICES, EXTENT, Faults};

/// Number of the writer of source content, among requests of guests.
pub const BEFORE: u64 = 1 << 60;

#[derive(Debug, Clone)]
pub struct SourcePlan {
    /// Ranges of extents that have or may have data.
    pub extents: Vec<(u32, u32)>,
    /// Extents among them that contain only zeroes.
    pub zeroes: Vec<u32>,
    /// Limit of the copy rate, if there is one.
    pub bandwidth: Option<BytesPerSec>,
}

impl SourcePlan {
    pub fn of(rng: &mut Rng, size: u64) -> Self {
        let count = size.div_ceil(EXTENT) as u32;
        let (mut extents, mut zeroes): (Vec<(u32, u32)>, Vec<u32>) = (vec![], vec![]);
        let holes = rng.below(4);
        for extent in 0..count {
            if rng.below(8) < holes {
                continue;
            }
            if rng.below(6) == 0 {
                zeroes.push(extent);
            }
            match extents.last_mut() {
                Some(last) if last.1 == extent => last.1 += 1,
                _ => extents.push((extent, extent + 1)),
            }
        }
        let fast = rng.below(3) == 0;
        let bandwidth = BytesPerSec((4 << 20) << rng.below(8));
        Self {
            extents,
            zeroes,
            bandwidth: (!fast).then_some(bandwidth),
        }
    }

    fn holds(&self, extent: u32) -> bool {
        let inside = |r: &(u32, u32)| (r.0..r.1).contains(&extent);
        self.extents.iter().any(inside) && !self.zeroes.contains(&extent)
    }

    /// Returns the sectors with data.
    pub fn sectors(&self, size: u64) -> Vec<bool> {
        let of_extent = EXTENT as usize / SECTOR;
        let sectors = 0..size as usize / SECTOR;
        sectors
            .map(|s| self.holds((s / of_extent) as u32))
            .collect()
    }

    /// Returns the content as a device.
    pub fn device(&self, volume: usize, size: u64, seed: u64, faults: Faults) -> Arc<SimDevice> {
        let mut bytes = vec![0; size.next_multiple_of(EXTENT) as usize];
        let sectors = self.sectors(size);
        for (at, part) in bytes.chunks_mut(SECTOR).enumerate() {
            if sectors.get(at).copied().unwrap_or(false) {
                fill(volume as u32, (at * SECTOR) as u64, BEFORE, part);
            }
        }
        let slots = size.div_ceil(EXTENT) as u32;
        Arc::new(SimDevice::new(CrashDisk::of(bytes), slots, seed, faults))
    }

    /// Returns the change that creates the volume in the map.
    pub fn change(&self, volume: usize, record: VolumeRecord) -> Change {
        let source = SourceRecord {
            device: number(volume),
            from: format!("/source{volume}"),
            format: "raw".into(),
            mark: SourceMark {
                size: Bytes(record.size.0),
                file_bytes: record.size.0,
                modified_ns: 0,
                inode: 0,
            },
            bandwidth: BytesPerSec(0),
        };
        Change::Import {
            volume: VolumeRecord {
                source: Some(source),
                ..record
            },
            extents: self.extents.clone(),
        }
    }
}

/// Returns the device number of a volume's source.
pub fn number(volume: usize) -> DeviceId {
    DeviceId((DEVICES + volume) as u16)
}

/// Returns true if a number is that of a source.
pub fn is_source(device: DeviceId) -> bool {
    device.index() >= DEVICES
}
