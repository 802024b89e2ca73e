//! Properties of one seed's world: sizes, speeds, kinds and rates of faults.

use algo::Rng;
use array::DeviceKind;
use cache::{Ageing, OnHit, PolicyKind, REGISTRY, RatesConfig, WriteMode};
use datapath::EngineLimits;
use datapath::cached::CacheSettings;
use datapath::direct::Alignment;
use datapath::engine::MirrorLimits;
use units::{Bytes, Nanos};
use volume::OffloadLimits;

use super::sources::SourcePlan;

/// Extent size: the smallest that an array supports, so many extents fit in memory.
pub const EXTENT: u64 = 64 << 10;

/// Number of devices, one on each tier.
pub const DEVICES: usize = 3;

/// Time limit of a request; a longer one fails.
pub const TIMEOUT_NS: u64 = 300_000_000;

/// Rates of faults per thousand operations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// An I/O fails.
    pub io: u64,
    /// A flush fails, and its data is lost.
    pub flush: u64,
    /// The kernel loses written data, and reports it at the next flush.
    pub write_back: u64,
    /// An I/O exceeds the guest's time limit.
    pub hang: u64,
    /// The filesystem has no space for a slot.
    pub space: u64,
    /// A disk of a copy of the map fails once, in the middle of a commit.
    pub commit: u64,
    /// True if the process ends during its start, at about the time of the first stamp.
    pub stamps: bool,
}

/// Rates of faults at the start of a process, per thousand starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tampering {
    /// A device is missing, and may come back later.
    pub device_missing: u64,
    /// An old state of a device is put in its place.
    pub device_old: u64,
    /// A copy of the map is missing.
    pub copy_missing: u64,
    /// An old state of a copy is put in its place.
    pub copy_old: u64,
    /// A copy is damaged.
    pub copy_torn: u64,
}

/// Properties of a device.
#[derive(Debug, Clone, Copy)]
pub struct DevicePlan {
    /// Number of slots.
    pub slots: u32,
    /// Kind of device. A block device initially has foreign data.
    pub kind: DeviceKind,
    /// True if discards have no effect.
    pub ignores_discards: bool,
    /// Alignment of direct I/O, in larger blocks than those of guests; `None` for the page cache.
    pub direct: Option<Alignment>,
}

/// World of a seed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Sizes of the volumes.
    pub volumes: Vec<u64>,
    /// Volumes whose guests have rings; `true` if such a guest has its write cache off.
    pub rings: Vec<Option<bool>>,
    /// Devices, high end first.
    pub devices: Vec<DevicePlan>,
    pub limits: EngineLimits,
    /// Number of lives before the last one.
    pub rounds: u64,
    /// Number of guest requests in a life.
    pub requests: u64,
    /// Mean time between two requests of a volume.
    pub gap_ns: u64,
    /// Mean time until an I/O is executed, unless it hangs.
    pub io_ns: u64,
    /// Mean time until the process receives its completion.
    pub hear_ns: u64,
    /// Mean time until a flush is executed.
    pub flush_ns: u64,
    /// Mean time until the keeper takes queued requests, and until its reply arrives.
    pub store_ns: u64,
    /// Mean time between two orders to move.
    pub order_ns: u64,
    /// Bandwidth of moves.
    pub bandwidth: u64,
    /// A cache in front of all volumes.
    pub cache: Option<CacheSettings>,
    /// Rates of faults.
    pub faults: Faults,
    /// Rate, per thousand lives, at which a disk of the map fails before the process ends.
    pub store_dies: u64,
    /// True if the map has a second copy.
    pub second: bool,
    /// Rates of faults at starts.
    pub tampering: Tampering,
    /// Rate of orderly stops per thousand lives.
    pub closes: u64,
    /// Sources of imported volumes.
    pub sources: Vec<Option<SourcePlan>>,
    /// True if snapshots are taken.
    pub snapshots: bool,
    /// True for this sequence: once the map has two copies, one of them is missing for one life and the other one for
    /// the next, and neither start completes. Each copy may then have proposed to continue alone.
    pub alternates: bool,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn of(rng: &mut Rng) -> Self {
        let two = rng.below(4) == 0;
        let extents = |rng: &mut Rng| match two {
            true => 8 + rng.below(8),
            false => 10 + rng.below(20),
        };
        let volumes: Vec<u64> = (0..1 + u64::from(two))
            .map(|_| {
                // The last extent may be short.
                let cut = if rng.below(3) == 0 { rng.below(100) } else { 0 };
                extents(rng) * EXTENT - cut * 512
            })
            .collect();
        let needed: u64 = volumes.iter().map(|v| v.div_ceil(EXTENT)).sum();
        let devices = (0..DEVICES as u64).map(|tier| DevicePlan {
            slots: (needed / 4 + rng.below(needed / 3 * (tier + 1))) as u32 + 2,
            kind: match rng.below(5) {
                0 => DeviceKind::Block,
                _ => DeviceKind::File,
            },
            ignores_discards: rng.below(4) == 0,
            direct: None,
        });
        let mut devices: Vec<DevicePlan> = devices.collect();
        let mut often = |out_of: u64, most: u64| match rng.below(out_of) {
            0 => 1 + rng.below(most),
            _ => 0,
        };
        let faults = Faults {
            io: often(3, 20) << (3 * often(4, 1)),
            flush: often(3, 150),
            write_back: often(6, 5),
            hang: often(4, 8),
            space: often(5, 30),
            commit: often(5, 60),
            stamps: false,
        };
        let store_dies = often(5, 500);
        let second = often(2, 1) > 0;
        let tampering = Tampering {
            device_missing: often(3, 400),
            device_old: often(5, 300),
            copy_missing: often(3, 400),
            copy_old: often(4, 300),
            copy_torn: often(6, 200),
        };
        let closes = often(3, 400);
        let alternates = second && rng.below(3) == 0;
        let io_ns = 20_000 << rng.below(7);
        for device in &mut devices {
            device.direct = (rng.below(3) == 0).then(|| Alignment {
                memory: 512 << (3 * rng.below(2)),
                block: 1024 << rng.below(3),
            });
        }
        let rings = volumes.iter();
        let rings = rings
            .map(|_| (rng.below(3) == 0).then(|| rng.below(3) == 0))
            .collect();
        let snapshots = rng.below(2) == 0;
        let sources = volumes.iter();
        let sources = sources
            .map(|size| (rng.below(3) == 0).then(|| SourcePlan::of(rng, *size)))
            .collect();
        let cache = (rng.below(2) == 0).then(|| cache_of(rng));
        let import_piece = Bytes([16 << 10, 64 << 10, 1 << 20][rng.below(3) as usize]);
        Self {
            volumes,
            cache,
            snapshots,
            sources,
            rings,
            devices,
            limits: EngineLimits {
                timeout_ns: TIMEOUT_NS,
                copy_chunk: Bytes([8 << 10, 16 << 10, 64 << 10][rng.below(3) as usize]),
                copy_chunk_max: Bytes(16 << 10),
                batch: Bytes(EXTENT * (1 + rng.below(4))),
                import_piece,
                mirror: MirrorLimits {
                    look_ns: TIMEOUT_NS / 60,
                    late_ns: TIMEOUT_NS / 6,
                    offload: OffloadLimits {
                        least: 0.4,
                        most: 0.9,
                    },
                },
            },
            rounds: 2 + rng.below(3) + 3 * u64::from(alternates),
            requests: 40 + rng.below(160),
            gap_ns: 50_000 << rng.below(9),
            io_ns,
            hear_ns: io_ns << rng.below(4),
            flush_ns: io_ns << rng.below(8),
            store_ns: 20_000 << rng.below(12),
            order_ns: 1_000_000 << rng.below(6),
            bandwidth: (8 << 20) << rng.below(8),
            faults,
            store_dies,
            second,
            tampering,
            closes,
            alternates,
        }
    }
}

/// Draws settings of a cache that holds some pages of the volumes.
fn cache_of(rng: &mut Rng) -> CacheSettings {
    let page = 4096 << rng.below(3);
    let kinds: Vec<PolicyKind> = REGISTRY.iter().map(|e| e.kind).collect();
    let kinds: Vec<PolicyKind> = kinds.into_iter().filter(|k| !k.remembers()).collect();
    CacheSettings {
        size: Bytes(page * (1 + rng.below(100))),
        page: Bytes(page),
        extent_pages: 1 + rng.below(16) as u32,
        policy: kinds[rng.below(kinds.len() as u64) as usize],
        rates: RatesConfig::default(),
        ageing: Ageing::default(),
        on_hit: OnHit::default(),
        writes: match rng.below(3) {
            0 => WriteMode::WriteAround,
            _ => WriteMode::WriteThrough,
        },
        slice: Nanos(1_000_000_000),
        slices_per_hour: 12,
    }
}
