//! Groups of disks behind the devices of a tier: `[disks.TIER]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

/// Each device of the tier is a group of disks. The run then serves requests by positioning and transfer of each disk instead of by the tier's
/// caps and load curve; these stay what strategies believe of it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DisksConfig {
    /// A disk by name: "disk-15k" or "disk-7k2"; or "ssd-2010", a drive of flash that does one thing at a time (0.25 ms to read, 0.6 ms to write, 200 MB/s).
    pub preset: String,
    /// Disks of a group, those with redundancy among them.
    pub count: u32,
    /// Redundancy within the group.
    #[serde(default)]
    pub raid: Raid,
    /// Bytes that lie together on one disk.
    #[serde(default = "default_chunk")]
    pub chunk: Bytes,
}

/// How a group of disks is striped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Raid {
    /// Striped, without redundancy.
    #[default]
    Raid0,
    /// Striped over pairs: a write goes to both, a read to the one that is free first.
    Raid10,
    /// One disk's worth of parity, which rotates.
    Raid5,
    /// Two disks' worth.
    Raid6,
}

impl Raid {
    /// Disks' worth of data among `count`.
    pub fn data_disks(self, count: u32) -> u32 {
        match self {
            Raid::Raid0 => count,
            Raid::Raid10 => count / 2,
            Raid::Raid5 => count.saturating_sub(1),
            Raid::Raid6 => count.saturating_sub(2),
        }
    }

    /// Why a group of so many disks cannot be; none if it can.
    pub fn refusal(self, count: u32) -> Option<String> {
        let least = match self {
            Raid::Raid0 => 1,
            Raid::Raid10 => 2,
            Raid::Raid5 => 3,
            Raid::Raid6 => 4,
        };
        if count < least {
            return Some(format!("{count} disks are too few: at least {least}"));
        }
        let odd = self == Raid::Raid10 && !count.is_multiple_of(2);
        odd.then(|| format!("{count} disks are no pairs"))
    }
}

fn default_chunk() -> Bytes {
    Bytes(64 << 10)
}
