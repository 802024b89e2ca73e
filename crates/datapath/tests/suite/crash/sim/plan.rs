//! What one seed's world is like: sizes, speeds, what fails and how often.

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

/// Size of an extent: the least that an array may have, so that many fit in memory.
pub const EXTENT: u64 = 64 << 10;

/// Devices, one on each tier.
pub const DEVICES: usize = 3;

/// A request that takes longer is answered with an error.
pub const TIMEOUT_NS: u64 = 300_000_000;

/// How often, of a thousand times, something goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// An I/O fails.
    pub io: u64,
    /// A flush fails, and what it was to bring to the medium is lost.
    pub flush: u64,
    /// The kernel loses written data on its own, and says so with the next flush.
    pub write_back: u64,
    /// An I/O takes longer than the guest is willing to wait.
    pub hang: u64,
    /// The filesystem has no space for a slot.
    pub space: u64,
    /// A disk of a copy of the map fails once, in the middle of a commit.
    pub commit: u64,
    /// The process ends in its start, about when the first devices are told of a membership.
    pub stamps: bool,
}

/// How often, of a thousand times, something is wrong when the process starts.
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

/// A device's slots.
#[derive(Debug, Clone, Copy)]
pub struct DevicePlan {
    /// How many.
    pub slots: u32,
    /// A block device begins with what somebody else left on it.
    pub kind: DeviceKind,
    /// Discards do nothing.
    pub ignores_discards: bool,
    /// I/O passes the page cache by, in blocks that are larger than guests'.
    pub direct: Option<Alignment>,
}

/// The world of a seed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Sizes of the volumes.
    pub volumes: Vec<u64>,
    /// Which of them have guests with rings, and whether those have their write cache off.
    pub rings: Vec<Option<bool>>,
    /// Devices, high end first.
    pub devices: Vec<DevicePlan>,
    pub limits: EngineLimits,
    /// Lives of the process before the last one.
    pub rounds: u64,
    /// Guest requests of a life.
    pub requests: u64,
    /// Mean time between two of them, by volume.
    pub gap_ns: u64,
    /// Mean time until an I/O is executed, when it does not hang.
    pub io_ns: u64,
    /// Mean time until the process hears of it.
    pub hear_ns: u64,
    /// As `io_ns`, of flushes.
    pub flush_ns: u64,
    /// Mean time until the keeper takes what waits, and until its answer arrives.
    pub store_ns: u64,
    /// Mean time between two orders to move.
    pub order_ns: u64,
    /// Bandwidth of moves.
    pub bandwidth: u64,
    /// A cache in front of all volumes.
    pub cache: Option<CacheSettings>,
    /// What goes wrong.
    pub faults: Faults,
    /// Of a thousand lives, in how many a disk of the map dies before the process does.
    pub store_dies: u64,
    /// Whether there is a second copy of the map.
    pub second: bool,
    /// What is wrong at starts.
    pub tampering: Tampering,
    /// Of a thousand lives, how many end in good order.
    pub closes: u64,
    /// Which of the volumes are imported.
    pub sources: Vec<Option<SourcePlan>>,
    /// Whether snapshots are taken.
    pub snapshots: bool,
    /// Once there are two copies of the map, one of them is missing for a life, and the other one for the next, and neither start comes to
    /// its end: each copy may have proposed then to go on alone.
    pub alternates: bool,
}

impl Plan {
    /// The plan of a seed.
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

/// A cache that some pages of the volumes fit into.
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
