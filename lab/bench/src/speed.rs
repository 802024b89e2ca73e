//! Drive of the speed measurements. Tests compare the same drive with the event-driven model.

use flash::drive::{DriveConfig, preset};
use flash::ftl::{FtlConfig, Streams};
use units::Nanos;

/// Returns the NVMe preset with short erase blocks.
pub fn drive() -> DriveConfig {
    let nvme = preset("tlc-nvme").expect("the preset is there");
    DriveConfig {
        ftl: FtlConfig {
            spare_share: 0.15,
            reserve_blocks: 2,
            streams: Streams::One,
            ..nvme.ftl.clone()
        },
        pages_per_block: 4,
        // The erase blocks are a sixteenth of the preset's size, so erasures take the same share of time.
        erase: Nanos(nvme.erase.0 / 16),
        tags: 32,
        ..nvme
    }
}
