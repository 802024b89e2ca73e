//! What a check finds, and what is done about it.

use std::fmt;

use units::{DeviceId, VolumeId};

/// What can be done about a problem without losing anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// Drop the record of an extent whose volume does not exist.
    DropExtent {
        /// The volume that does not exist.
        volume: VolumeId,
        extent: u32,
    },
    /// Drop a move that cannot go on. Its volume stays where its extents are.
    DropMove(VolumeId),
    /// Raise a device's high-water mark above a slot that an extent is in.
    RaiseHighWater {
        device: DeviceId,
        /// The mark.
        slots: u32,
    },
    /// Mark a volume as damaged, so that nothing is written to it. What is wrong with it stays as it is.
    MarkDamaged(VolumeId),
    /// Count all extents of a volume as changed that may differ from the snapshot before it.
    CountChanged(VolumeId),
    /// Drop what is said of changes in a volume that has no snapshots.
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

/// Something in the map that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub table: &'static str,
    /// The key; `volume:extent` for an extent.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What [`Array::repair`](crate::Array::repair) does about it.
    pub repair: Option<Repair>,
    /// What a person can do about it, in one phrase.
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

/// What a check has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Tiers read.
    pub tiers: u64,
    /// Devices read.
    pub devices: u64,
    /// Volumes read.
    pub volumes: u64,
    /// Places read.
    pub extents: u64,
    /// Moves read.
    pub moves: u64,
    /// What is wrong, in order of table and key.
    pub problems: Vec<Problem>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A repair that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// What was done.
    pub repair: Repair,
    /// The problems that it was done for, as text.
    pub because: Vec<String>,
}

impl fmt::Display for Repaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.repair, self.because.join("; "))
    }
}
