//! The drive whose speed is measured, so that its agreement with the event-accurate mode is tested on the same one.

use flash::drive::{DriveConfig, preset};
use flash::ftl::{FtlConfig, Streams};
use units::Nanos;

/// The NVMe preset with short erase blocks.
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
        // Of a block a sixteenth as large as the preset's: erasures keep their share of the time.
        erase: Nanos(nvme.erase.0 / 16),
        tags: 32,
        ..nvme
    }
}
