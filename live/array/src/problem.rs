//! Problems that a check finds, and their repairs.

use std::fmt;

use units::{DeviceId, VolumeId};

/// Repair that loses no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// Drop the record of an extent whose volume does not exist.
    DropExtent {
        /// Volume that does not exist.
        volume: VolumeId,
        extent: u32,
    },
    /// Drop a move that cannot continue. The extents of its volume stay in place.
    DropMove(VolumeId),
    /// Raise a device's high-water mark above a slot in use.
    RaiseHighWater {
        device: DeviceId,
        /// New mark.
        slots: u32,
    },
    /// Mark a volume as damaged, so nothing is written to it. The damage itself stays.
    MarkDamaged(VolumeId),
    /// Count all extents of a volume as changed that may differ from the previous snapshot.
    CountChanged(VolumeId),
    /// Drop the change records of a volume without snapshots.
    DropChanged(VolumeId),
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repair::DropExtent { volume, extent } => {
                write!(f, "drop the record of extent {}:{extent}", volume.0)
            }
            Repair::DropMove(volume) => write!(f, "drop the move of volume {}", volume.0),
            Repair::RaiseHighWater { device, slots } => {
                write!(
                    f,
                    "raise the high-water mark of device {} to {slots}",
                    device.0
                )
            }
            Repair::MarkDamaged(volume) => write!(f, "mark volume {} as damaged", volume.0),
            Repair::CountChanged(volume) => write!(
                f,
                "mark all extents of volume {} that may differ from the snapshot before it as changed",
                volume.0
            ),
            Repair::DropChanged(volume) => {
                write!(f, "drop the records of changes in volume {}", volume.0)
            }
        }
    }
}

/// Inconsistency in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub table: &'static str,
    /// Key; `volume:extent` for an extent.
    pub key: String,
    /// Description of the defect.
    pub what: String,
    /// Repair that [`Array::repair`](crate::Array::repair) makes.
    pub repair: Option<Repair>,
    /// Action for the operator, in one phrase.
    pub advice: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            table, key, what, ..
        } = self;
        write!(f, "table {table}, key {key}: {what}; ")?;
        match &self.repair {
            Some(repair) => write!(f, "repair: {repair}")?,
            None => f.write_str("no safe repair")?,
        }
        match self.advice.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.advice),
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of tiers read.
    pub tiers: u64,
    /// Number of devices read.
    pub devices: u64,
    /// Number of volumes read.
    pub volumes: u64,
    /// Number of places read.
    pub extents: u64,
    /// Number of moves read.
    pub moves: u64,
    /// Problems in order of table and key.
    pub problems: Vec<Problem>,
}

impl CheckReport {
    /// Returns true if there are no problems.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Repair that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairRecord {
    /// The repair.
    pub repair: Repair,
    /// Problems that caused it, as text.
    pub because: Vec<String>,
}

impl fmt::Display for RepairRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.repair, self.because.join("; "))
    }
}
