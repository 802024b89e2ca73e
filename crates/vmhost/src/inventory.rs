//! Domains, disks and places put together as an agent reports an array.

use manager::agent::{Counts, DeviceSnapshot, Snapshot, VolumeSnapshot};
use manager::wire::{Bound, DeviceIoCounts, HandMove, Load, LoadOf, Placed};

use crate::builds::By;
use crate::commands::by_hand;
use crate::hash::hashed;
use crate::stored::{Storage, StoredVolume, volume_at};
use crate::{At, BlockStats, Direction, Disk, DomainStats, Fixed, Known, Pool, directory_of};

/// A place for images: a pool, a directory, an export, a device, or a [`Storage`] that a tier names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The device's name: that of the pool, or its path.
    pub name: String,
    pub tier: String,
    /// Where it is in the file system, without a slash at its end; of an export its URI, and of a
    /// [`Storage`] its name.
    pub path: String,
    /// Bytes of its file system or storage.
    pub size: u64,
    /// Bytes that are taken.
    pub used: u64,
    /// The kernel's counters of its device; none where there are none, as for a network file system.
    pub io: Option<DeviceIoCounts>,
    /// Whether it is there now.
    pub connected: bool,
}

/// What there is on a host.
#[derive(Debug, Clone)]
pub struct Inventory<'a> {
    /// Names of tiers, high end first.
    pub tiers: &'a [String],
    /// Places, in order of tier.
    pub places: &'a [Place],
    /// Pools by name, whether a tier names them or not.
    pub pools: &'a [Pool],
    /// Volumes of LVM and ZFS.
    pub stored: &'a [StoredVolume],
    /// Running domains.
    pub domains: Vec<&'a Known>,
    /// Their counters.
    pub stats: &'a [DomainStats],
    /// The agent's way to move disks.
    pub by: By,
}

/// Bytes that must remain free next to an image, for its metadata and for other files.
pub const SPARE_BYTES: u64 = 64 << 20;

/// Bytes that must be free where an image is copied to: of a disk of this size, whose image takes
/// `physical` bytes. A copy in raw may take all of it: zeroes are written where nothing may be
/// given back.
pub fn needed_bytes(format: &str, capacity: u64, physical: Option<u64>) -> u64 {
    let image = match format {
        "raw" => capacity,
        _ => physical.unwrap_or(capacity).min(capacity),
    };
    image.saturating_add(SPARE_BYTES)
}

/// The name of a disk as a volume: no target has a colon. Characters that deceive a terminal are
/// escaped, since the hypervisor allows them in a name.
pub fn volume_name(domain: &str, target: &str) -> String {
    units::shown(&format!("{domain}:{target}")).into_owned()
}

/// A disk that is a volume.
struct Found<'a> {
    known: &'a Known,
    disk: &'a Disk,
    place: &'a Place,
    stats: Option<&'a BlockStats>,
}

impl<'a> Inventory<'a> {
    /// The array; `class_of` says which class a volume is of.
    pub fn snapshot(&self, class_of: impl Fn(&str) -> String) -> Snapshot {
        let found: Vec<Found<'_>> = self.found().filter_map(Result::ok).collect();
        let storages = self
            .places
            .iter()
            .filter_map(|p| Storage::of(&p.path)?.ok());
        let storages: Vec<Storage> = storages.collect();
        let volume = |f: &Found<'_>| {
            let name = volume_name(&f.known.domain.name, &f.disk.target);
            let capacity = f.stats.and_then(|s| s.capacity);
            let physical = self.taken(f).unwrap_or(0);
            VolumeSnapshot {
                class: class_of(&name),
                name,
                size_bytes: capacity.unwrap_or(physical),
                home: f.place.tier.clone(),
                placed: vec![Placed {
                    device: f.place.name.clone(),
                    bytes: physical,
                }],
                movable: true,
                bound: f.known.verdict(f.disk, self.by).err().map(|why| Bound {
                    by_hand: why.is_for_people(),
                    why: why.to_string(),
                }),
                by_hand: Some(match self.by {
                    By::Us => HandMove::None {
                        why: "plain QEMU has no command that moves a disk: let the agent move it (`--moves`)"
                            .into(),
                    },
                    By::Libvirt | By::Person => {
                        let sizes = (f.stats.and_then(|s| s.capacity), self.taken(f));
                        let at = f.disk.source.at(|pool| self.directory_of(pool));
                        by_hand(f.known, f.disk, at.as_ref(), sizes, &storages)
                    }
                }),
                throttle: None,
                moving: None,
                last_move: None,
                counts: f.stats.and_then(|s| counts(f.known.id, s)),
                cache: None,
                can_mirror: false,
                mirror: None,
                reuse: None,
                extents: None,
                node: None,
            }
        };
        let devices = self.places.iter().map(|place| device(place, &found));
        Snapshot {
            tiers: self.tiers.to_vec(),
            devices: devices.collect(),
            volumes: found.iter().map(volume).collect(),
            problems: vec![],
            second: None,
        }
    }

    /// Disks that are no volumes, with the reason: what a guest cannot keep data on is not named.
    pub fn left_out(&self) -> Vec<(String, String)> {
        self.found().filter_map(Result::err).collect()
    }

    /// The disk that a volume is.
    pub fn disk_of(&self, volume: &str) -> Option<(&'a Known, &'a Disk)> {
        let f = self.volume(volume)?;
        Some((f.known, f.disk))
    }

    /// What the guest sees of a volume, and what it takes, in bytes.
    pub fn sizes_of(&self, volume: &str) -> (Option<u64>, Option<u64>) {
        let found = self.volume(volume);
        let stats = found.as_ref().and_then(|f| f.stats);
        let taken = found.as_ref().and_then(|f| self.taken(f));
        (stats.and_then(|s| s.capacity), taken)
    }

    /// Bytes that a disk takes. QEMU knows it only of files: of a block device it reports the
    /// size, and of a network nothing. Neither snapshots of a volume nor the rest of a larger device
    /// are the disk's.
    fn taken(&self, f: &Found<'_>) -> Option<u64> {
        let capacity = f.stats.and_then(|s| s.capacity);
        match f.disk.source.at(|pool| self.directory_of(pool))? {
            At::Block { path, .. } => {
                let volume = volume_at(self.stored, &path);
                let used = volume.map_or(capacity, |v| Some(v.used));
                used.map(|used| used.min(capacity.unwrap_or(used)))
            }
            At::Network { .. } => capacity,
            At::File(_) | At::Nbd { .. } => f.stats?.physical,
        }
    }

    fn volume(&self, volume: &str) -> Option<Found<'a>> {
        let mut found = self.found().filter_map(Result::ok);
        found.find(|f| volume_name(&f.known.domain.name, &f.disk.target) == volume)
    }

    /// Images of disks, wherever they are, with the bytes of each disk.
    pub fn images(&self) -> impl Iterator<Item = (String, Option<u64>)> + '_ {
        self.disks().filter_map(|(known, disk)| {
            let capacity = self.stats_of(known, disk).and_then(|s| s.capacity);
            Some((self.path(disk)?, capacity))
        })
    }

    fn stats_of(&self, known: &Known, disk: &Disk) -> Option<&'a BlockStats> {
        let stats = self.stats.iter().find(|s| s.domain == known.domain.name)?;
        stats.blocks.iter().find(|b| b.target == disk.target)
    }

    /// Disks that data may be kept on.
    fn disks(&self) -> impl Iterator<Item = (&'a Known, &'a Disk)> + '_ {
        let disks = |known: &'a Known| known.domain.disks.iter().map(move |d| (known, d));
        let disks = self.domains.iter().copied().flat_map(disks);
        disks.filter(|(known, disk)| {
            let fixed = disk.fixed(&known.domain);
            !matches!(fixed, Some(Fixed::NoDisk | Fixed::Empty))
        })
    }

    fn found(&self) -> impl Iterator<Item = Result<Found<'a>, (String, String)>> + '_ {
        self.disks().map(|(known, disk)| self.look_at(known, disk))
    }

    fn look_at(&self, known: &'a Known, disk: &'a Disk) -> Result<Found<'a>, (String, String)> {
        let name = || volume_name(&known.domain.name, &disk.target);
        let Some(path) = self.path(disk) else {
            let why = match disk.fixed(&known.domain) {
                Some(why) => why.to_string(),
                None => "its pool is unknown".into(),
            };
            return Err((name(), why));
        };
        // The innermost, where one place is inside another.
        let places = self.places.iter().filter(|p| is_below(&path, &p.path));
        let place = places.max_by_key(|p| p.path.len());
        let place =
            place.ok_or_else(|| (name(), format!("{path} is not in the storage of any tier")))?;
        Ok(Found {
            known,
            disk,
            place,
            stats: self.stats_of(known, disk),
        })
    }

    fn path(&self, disk: &Disk) -> Option<String> {
        let at = disk.source.at(|name| self.directory_of(name))?;
        let volume = at.device().and_then(|path| volume_at(self.stored, path));
        Some(volume.map_or_else(|| at.to_string(), |v| v.name.clone()))
    }

    /// Where a pool's volumes are.
    pub fn directory_of(&self, pool: &str) -> Option<&'a str> {
        directory_of(self.pools, pool)
    }
}

/// Whether an image is in a place: below a directory, or the one that an export is.
fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a hypervisor counts, as a load: percentiles only where it has histograms, and in flight is what times add up to. Flushes count as writes without bytes.
pub(crate) fn counts(id: u32, stats: &BlockStats) -> Option<Counts> {
    let of = |all: &[Direction], buckets: &[(u16, u64)]| LoadOf {
        ios: all.iter().map(|d| d.requests).sum(),
        bytes: all.iter().map(|d| d.bytes).sum(),
        sum_ns: all.iter().map(|d| d.time_ns).sum(),
        held_ns: 0,
        buckets: buckets.to_vec(),
    };
    let (reads, writes) = (stats.reads?, stats.writes?);
    let latencies = stats.latencies.clone().unwrap_or_default();
    let reads = of(&[reads], &latencies.reads);
    let writes = [writes, stats.flushes.unwrap_or_default()];
    let writes = of(&writes, &latencies.writes);
    Some(Counts {
        // Who takes how much of what devices can do, QEMU does not tell: that is estimated where it is needed.
        sample: None,
        since_ns: u64::from(id),
        total: Load {
            depth_ns: reads.sum_ns.saturating_add(writes.sum_ns),
            reads,
            writes,
            errors: 0,
            waiting: vec![],
            devices: None,
        },
    })
}

fn device(place: &Place, found: &[Found<'_>]) -> DeviceSnapshot {
    let here = found.iter().filter(|f| f.place.name == place.name);
    // Where the kernel does not count, what disks do; that begins anew when other disks are there.
    let (since_ns, io) = match place.io {
        Some(io) => (0, io),
        None => here.fold((1, DeviceIoCounts::default()), |(since, io), f| {
            let both = |d: Option<Direction>| d.map_or((0, 0), |d| (d.requests, d.bytes));
            let (reads, read_bytes) = both(f.stats.and_then(|s| s.reads));
            let (writes, write_bytes) = both(f.stats.and_then(|s| s.writes));
            let name = f.known.domain.uuid.bytes().chain(f.disk.target.bytes());
            let name = name.chain(f.known.id.to_le_bytes());
            let since = hashed(since, name);
            let io = DeviceIoCounts {
                reads: io.reads + reads,
                writes: io.writes + writes,
                read_bytes: io.read_bytes + read_bytes,
                write_bytes: io.write_bytes + write_bytes,
                busy_ns: None,
            };
            (since, io)
        }),
    };
    DeviceSnapshot {
        name: place.name.clone(),
        tier: place.tier.clone(),
        size_bytes: place.size,
        used_bytes: place.used,
        emulate: None,
        connected: place.connected,
        // A device is no directory in which a command could create a file.
        place: Some(match place.path.starts_with("/dev/") {
            true => format!("device:{}", place.path),
            false => place.path.clone(),
        }),
        since_ns,
        io,
        errors: vec![],
        node: None,
    }
}
