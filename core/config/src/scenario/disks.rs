//! Groups of disks behind the devices of a tier: `[disks.TIER]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec, Nanos};

/// Group of disks behind each device of a tier. The simulation models positioning and transfer of each disk instead
/// of the tier's caps and load curve, which remain the description that strategies get.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DisksConfig {
    /// Name of a disk preset: "disk-15k", "disk-7k2", or "ssd-2010", a flash drive that serves one request at a
    /// time (0.25 ms per read, 0.6 ms per write, 200 MB/s).
    pub preset: String,
    /// Number of disks in the group, including redundancy.
    pub count: u32,
    /// Redundancy within the group. Default: raid0.
    #[serde(default)]
    pub raid: Raid,
    /// Number of contiguous bytes on one disk. Default: 64 KiB.
    #[serde(default = "default_chunk")]
    pub chunk: Bytes,
    /// Mean time before the first byte of a non-sequential request. Default: the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positioning: Option<Nanos>,
    /// Uniform variation of the positioning time in both directions, as a share of its mean, 0 to 1. Default: the
    /// preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Transfer rate of one disk, at least 1 MiB/s. Default: the preset's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<BytesPerSec>,
    /// Disk time of each write if writes are acknowledged from non-volatile memory, which is never full. Each write
    /// occupies a parity disk for a tenth of this time, because writes are gathered into stripes. Default: none;
    /// writes are acknowledged when they are on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_back: Option<Nanos>,
}

/// Longest time of a disk operation. Protects against times in the wrong unit.
const DISK_TIME_MAX: Nanos = Nanos::from_secs(10);
/// Lowest transfer rate of a disk.
const BANDWIDTH_MIN: BytesPerSec = BytesPerSec(1 << 20);

impl DisksConfig {
    /// Returns the first invalid key and the reason, if any.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        for (key, time) in [
            ("positioning", self.positioning),
            ("write_back", self.write_back),
        ] {
            let can = |t: Nanos| t > Nanos::ZERO && t <= DISK_TIME_MAX;
            if let Some(time) = time.filter(|t| !can(*t)) {
                let why = format!("{time} is not a time above 0 and up to {DISK_TIME_MAX}");
                return Some((key, why));
            }
        }
        if let Some(spread) = self.spread.filter(|s| !(0.0..=1.0).contains(s)) {
            return Some((
                "spread",
                format!("must be a share from 0 to 1, not {spread}"),
            ));
        }
        let slow = self.bandwidth.filter(|b| *b < BANDWIDTH_MIN);
        slow.map(|b| ("bandwidth", format!("{b} is less than {BANDWIDTH_MIN}")))
    }
}

/// Layout and redundancy of a group of disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Raid {
    /// Striped, without redundancy.
    #[default]
    Raid0,
    /// Striped over pairs: a write goes to both disks, a read to the disk that is free first.
    Raid10,
    /// One parity disk. The utilization of the group is that of its data disks; the parity disk is extra.
    Raid4,
    /// Parity of one disk, rotating over all disks.
    Raid5,
    /// Parity of two disks, rotating over all disks.
    Raid6,
}

impl Raid {
    /// Returns the number of disks' worth of data among `count` disks.
    pub fn data_disks(self, count: u32) -> u32 {
        match self {
            Raid::Raid0 => count,
            Raid::Raid10 => count / 2,
            Raid::Raid4 | Raid::Raid5 => count.saturating_sub(1),
            Raid::Raid6 => count.saturating_sub(2),
        }
    }

    /// Returns the reason why a group cannot have this many disks, if it cannot.
    pub fn refusal(self, count: u32) -> Option<String> {
        let least = match self {
            Raid::Raid0 => 1,
            Raid::Raid10 => 2,
            Raid::Raid4 | Raid::Raid5 => 3,
            Raid::Raid6 => 4,
        };
        if count < least {
            return Some(format!(
                "{count} disks are too few: at least {least} are needed"
            ));
        }
        let odd = self == Raid::Raid10 && !count.is_multiple_of(2);
        odd.then(|| format!("{count} disks cannot form pairs: use an even number"))
    }
}

fn default_chunk() -> Bytes {
    Bytes(64 << 10)
}
