//! What requests go to, and the drive that stands for it.

use flash::drive::{DriveConfig, preset};
use serde::Serialize;

use super::mode::Mode;

/// What requests go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// A hard disk.
    Disk,
    /// An SSD with much free flash.
    Clean,
    /// An SSD in its steady state.
    Aged,
    /// The slides' simulated SSD: one unit, one request at a time.
    Simulated,
    /// The same with four elements that work side by side.
    Elements,
    /// Part 2's SSD.
    Ssd,
    /// The same without its write buffer.
    NoBuffer,
    /// The same with one channel.
    OneChannel,
    /// The same with its tags off.
    NoNcq,
}

impl Device {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "HDD",
            Self::Clean => "SSD, clean",
            Self::Aged => "SSD, aged",
            Self::Simulated => "simulated SSD",
            Self::Elements => "simulated SSD, four elements",
            Self::Ssd => "SSD",
            Self::NoBuffer => "SSD, WBuf off",
            Self::OneChannel => "SSD 1CH",
            Self::NoNcq => "SSD, NCQ off",
        }
    }

    /// Requests that it has at a time.
    pub(super) fn tags(self) -> u32 {
        match self {
            Self::Disk | Self::Simulated | Self::NoNcq => 1,
            _ => 32,
        }
    }

    /// Units of flash of the simulated SSDs, as many times as much is done in a second; of others 1, since nothing is adjusted there.
    pub(super) fn elements(self) -> u64 {
        if self == Self::Elements { 4 } else { 1 }
    }

    /// The drive for some tenants that share it in a mode; meaningless for a disk.
    pub(super) fn drive(self, mode: Mode, tenants: u32) -> DriveConfig {
        let mut config = preset("paper4").unwrap_or_default();
        config.ftl.sharing = mode.sharing.on_flash();
        config.ftl.handles = tenants;
        // Persistently kept apart, collection writes to a block of each tenant and may need a new one for each; with fewer free blocks the
        // translation layer refuses to work. They are out of the same spare space (declared among the assumptions).
        config.ftl = config.ftl.with_reserve_for_streams();
        if self != Self::Simulated {
            // Scaled down with its capacity, so that each unit has as many erase blocks as that of a larger drive.
            config.pages_per_block /= 4;
            config.erase.0 /= 4;
        }
        match self {
            Self::Disk | Self::Simulated => {}
            Self::Clean => {
                config.channels = 4;
                config.ftl.spare_share = 0.5;
            }
            Self::Aged | Self::Elements => config.channels = 4,
            Self::Ssd | Self::NoNcq => {
                config.channels = 8;
                config.buffer_pages = 2048;
            }
            Self::NoBuffer => config.channels = 8,
            Self::OneChannel => config.buffer_pages = 2048,
        }
        config
    }
}
