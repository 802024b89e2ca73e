//! Groups of disks behind the devices of a tier: `[disks.TIER]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

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
    /// Mean time before the first byte of a request that has to be positioned for; the preset's if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positioning: Option<Nanos>,
    /// By how much of its mean that time is less or more, evenly distributed, 0 to 1; the preset's if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Rate at which a disk reads and writes what it has found; the preset's if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<BytesPerSec>,
    /// Writes are answered at once, from memory that outlasts a power loss and is never full. Later each takes so long of each disk that it goes to,
    /// whatever its size, and a tenth of it of a disk of parity, as writes are gathered to whole stripes. Without it they are answered when they are on
    /// the disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<Nanos>,
}

/// No disk takes longer for anything. Protects against a time that was meant in another unit.
const DISK_TIME_MAX: Nanos = Nanos::from_secs(10);
/// No disk is slower.
const BANDWIDTH_MIN: BytesPerSec = BytesPerSec(1 << 20);

impl DisksConfig {
    /// The key of what cannot be, and why; none if all can.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        for (key, time) in [
            ("positioning", self.positioning),
            ("write_back", self.write_back),
        ] {
            let can = |t: Nanos| t > Nanos::ZERO && t <= DISK_TIME_MAX;
            if let Some(time) = time.filter(|t| !can(*t)) {
                let why = format!("{time} is not above 0, up to {DISK_TIME_MAX}");
                return Some((key, why));
            }
        }
        if let Some(spread) = self.spread.filter(|s| !(0.0..=1.0).contains(s)) {
            return Some(("spread", format!("{spread} is not from 0 to 1")));
        }
        let slow = self.bandwidth.filter(|b| *b < BANDWIDTH_MIN);
        slow.map(|b| ("bandwidth", format!("{b} is less than {BANDWIDTH_MIN}")))
    }
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
    /// One disk of parity. Device and responder know the use of the disks that hold data; the one of parity is on top.
    Raid4,
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
            Raid::Raid4 | Raid::Raid5 => count.saturating_sub(1),
            Raid::Raid6 => count.saturating_sub(2),
        }
    }

    /// Why a group of so many disks cannot be; none if it can.
    pub fn refusal(self, count: u32) -> Option<String> {
        let least = match self {
            Raid::Raid0 => 1,
            Raid::Raid10 => 2,
            Raid::Raid4 | Raid::Raid5 => 3,
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
