//! Named drives, with the sources of their numbers.

use units::{Bytes, Nanos};

use super::config::{Collection, DriveConfig, Layout};
use crate::ftl::{FtlConfig, Streams};

/// Named drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Name.
    pub name: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Source of its numbers.
    pub source: &'static str,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "paper4",
        summary: "paper 4's table on one unit, which processes one page at a time",
        source: "Kim, Lee, Noh, Towards SLO complying SSDs through OPS isolation (FAST 2015, slides): page 4 KiB, block 512 KiB, 60 us, \
                 800 us, 1.5 ms, 102 us a page, OPS 5 %; one unit, two free blocks in reserve and no write buffer are assumed",
    },
    Preset {
        name: "disksim",
        summary: "eight elements with one log each, as in DiskSim's SSD extension",
        source: "stock parameters of the SSD extension for DiskSim (Agrawal et al., USENIX ATC 2008): page 4 KiB, 64 pages a block, 25 us, \
                 200 us, 1.5 ms, 0.025 us a byte with 16 spare bytes to each 512, reserve 15 %, 5 % of blocks kept free, summary page, copy-back",
    },
    Preset {
        name: "tlc-nvme",
        summary: "8 channels x 4 dies x 2 planes of TLC, superblocks, paced collection",
        source: "512 Gb TLC of ISSCC 2019 (82 MB/s program throughput of a die, read 45 us, 1.2 Gb/s a pin), as times of 4 KiB on one of two planes; \
                 erasure 3.5 ms, OPS 7 %, buffer 16 MiB, 6 us a command and 3,000 cycles are assumed",
    },
    Preset {
        name: "qlc-nvme",
        summary: "the same with QLC",
        source: "1 Tb QLC of ISSCC 2018 (12 MB/s program throughput of a die, read 145 us); erasure 10 ms, 1.2 Gb/s a pin, OPS 7 %, buffer 16 MiB \
                 without pseudo-SLC, 6 us a command and 1,000 cycles are assumed",
    },
];

/// Returns the configuration of a preset, or `None` for an unknown name.
pub fn preset(name: &str) -> Option<DriveConfig> {
    match name {
        "paper4" => Some(DriveConfig::default()),
        "disksim" => Some(DriveConfig {
            ftl: FtlConfig {
                spare_share: 0.15,
                summary_page: true,
                ..FtlConfig::default()
            },
            pages_per_block: 64,
            reserve_share: 0.05,
            channels: 8,
            read: Nanos(25_000),
            program: Nanos(200_000),
            transfer: Nanos(102_400),
            oob_bytes: 16,
            read_modify_write: true,
            endurance: 100_000,
            ..DriveConfig::default()
        }),
        "tlc-nvme" => Some(nvme()),
        "qlc-nvme" => Some(DriveConfig {
            read: Nanos(145_000),
            program: Nanos(683_000),
            erase: Nanos(10_000_000),
            endurance: 1000,
            ..nvme()
        }),
        _ => None,
    }
}

fn nvme() -> DriveConfig {
    DriveConfig {
        ftl: FtlConfig {
            spare_share: 0.07,
            reserve_blocks: 4,
            streams: Streams::HostAndCollected,
            ..FtlConfig::default()
        },
        page: Bytes(4096),
        pages_per_block: 64,
        reserve_share: 0.0,
        channels: 8,
        packages: 4,
        planes: 2,
        layout: Layout::Striped,
        read: Nanos(45_000),
        program: Nanos(100_000),
        erase: Nanos(3_500_000),
        transfer: Nanos(3_400),
        oob_bytes: 0,
        copy_back: false,
        cache_register: true,
        collection: Collection::Paced,
        buffer_pages: 4096,
        accept: Nanos(600),
        command: Nanos(6_000),
        tags: 256,
        read_modify_write: false,
        endurance: 3000,
        scale: 1,
    }
}
