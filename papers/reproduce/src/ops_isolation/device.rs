//! Devices of the experiments, and the simulated drives that represent them.

use flash::drive::{DriveConfig, preset};
use serde::Serialize;

use super::mode::Mode;

/// Device of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// Hard disk.
    Disk,
    /// SSD with much free flash.
    Clean,
    /// SSD in its steady state.
    Aged,
    /// Simulated SSD of the slides: one unit, one request at a time.
    Simulated,
    /// Simulated SSD with four parallel elements.
    Elements,
    /// SSD of part 2.
    Ssd,
    /// SSD of part 2 without its write buffer.
    NoBuffer,
    /// SSD of part 2 with one channel.
    OneChannel,
    /// SSD of part 2 with NCQ disabled.
    NoNcq,
}

impl Device {
    /// Returns the printed name.
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

    /// Returns the number of concurrent requests.
    pub(super) fn tags(self) -> u32 {
        match self {
            Self::Disk | Self::Simulated | Self::NoNcq => 1,
            _ => 32,
        }
    }

    /// Returns the number of flash units of a simulated SSD, which scales its work per second; 1 for the others, whose
    /// spare space is not adjusted.
    pub(super) fn elements(self) -> u64 {
        if self == Self::Elements { 4 } else { 1 }
    }

    /// Returns the drive for a number of tenants in a mode; not meaningful for a disk.
    pub(super) fn drive(self, mode: Mode, tenants: u32) -> DriveConfig {
        let mut config = preset("paper4").unwrap_or_default();
        config.ftl.sharing = mode.sharing.on_flash();
        config.ftl.handles = tenants;
        // With persistent handles, collection writes to one block per tenant and may need a new one for each. With
        // fewer free blocks the translation layer refuses to work. They are part of the same spare space (listed among
        // the assumptions).
        config.ftl = config.ftl.with_reserve_for_streams();
        if self != Self::Simulated {
            // Scaled down with its capacity, so each unit has as many erase blocks as in a larger drive.
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
