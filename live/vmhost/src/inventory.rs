//! Inventory of a host: domains, disks and places as an array that an agent reports.

use manager::agent::{Counts, DeviceSnapshot, Snapshot, VolumeSnapshot};
use manager::wire::{Bound, DeviceIoCounts, HandMove, Load, LoadOf, Placed};

use crate::builds::CopyInitiator;
use crate::commands::by_hand;
use crate::hash::hashed;
use crate::stored::{Storage, StoredVolume, volume_at};
use crate::{
    BlockStats, Direction, Disk, DomainStats, ImageLocation, Pool, RunningDomain, StayReason,
    directory_of,
};

/// Place for images: a pool, a directory, an export, a device, or a [`Storage`] that a tier names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the device: the name of the pool, or the path.
    pub name: String,
    pub tier: String,
    /// Path in the file system, without a slash at its end; the URI of an export; the name of a [`Storage`].
    pub path: String,
    /// Bytes of its file system or storage.
    pub size: u64,
    /// Used bytes.
    pub used: u64,
    /// Kernel's counters of its device; `None` without counters, as for a network file system.
    pub io: Option<DeviceIoCounts>,
    /// True if it is available now.
    pub connected: bool,
}

/// Inventory of a host.
#[derive(Debug, Clone)]
pub struct Inventory<'a> {
    /// Names of tiers, high end first.
    pub tiers: &'a [String],
    /// Places, in order of tier.
    pub places: &'a [Place],
    /// Pools, including those that no tier names.
    pub pools: &'a [Pool],
    /// Volumes of LVM and ZFS.
    pub stored: &'a [StoredVolume],
    /// Running domains.
    pub domains: Vec<&'a RunningDomain>,
    /// Their counters.
    pub stats: &'a [DomainStats],
    /// Program that moves disks for the agent.
    pub by: CopyInitiator,
}

/// Bytes that must remain free next to an image, for its metadata and for other files.
pub const SPARE_BYTES: u64 = 64 << 20;

/// Returns the free bytes that a copy needs at its target, for a disk of `capacity` bytes whose image occupies
/// `physical` bytes. A raw copy may occupy the full capacity: it writes zeroes if the target does not support discards.
pub fn needed_bytes(format: &str, capacity: u64, physical: Option<u64>) -> u64 {
    let image = match format {
        "raw" => capacity,
        _ => physical.unwrap_or(capacity).min(capacity),
    };
    image.saturating_add(SPARE_BYTES)
}

/// Returns the name of a disk as a volume. A target has no colon, so the name is unique. Characters that deceive a
/// terminal are escaped, because the hypervisor permits them in names.
pub fn volume_name(domain: &str, target: &str) -> String {
    units::shown(&format!("{domain}:{target}")).into_owned()
}

/// Disk that is a volume.
struct VolumeDisk<'a> {
    known: &'a RunningDomain,
    disk: &'a Disk,
    place: &'a Place,
    stats: Option<&'a BlockStats>,
}

impl<'a> Inventory<'a> {
    /// Returns the array; `class_of` returns the class of a volume.
    pub fn snapshot(&self, class_of: impl Fn(&str) -> String) -> Snapshot {
        let found: Vec<VolumeDisk<'_>> = self.found().filter_map(Result::ok).collect();
        let storages = self
            .places
            .iter()
            .filter_map(|p| Storage::of(&p.path)?.ok());
        let storages: Vec<Storage> = storages.collect();
        let volume = |f: &VolumeDisk<'_>| {
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
                    CopyInitiator::Us => HandMove::None {
                        why: "plain QEMU has no command that moves a disk: let the agent move it (`--moves`)"
                            .into(),
                    },
                    CopyInitiator::Libvirt | CopyInitiator::Person => {
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

    /// Returns disks that are not volumes, with the reason. Devices without permanent data are omitted.
    pub fn left_out(&self) -> Vec<(String, String)> {
        self.found().filter_map(Result::err).collect()
    }

    /// Returns the domain and the disk of a volume.
    pub fn disk_of(&self, volume: &str) -> Option<(&'a RunningDomain, &'a Disk)> {
        let f = self.volume(volume)?;
        Some((f.known, f.disk))
    }

    /// Returns the bytes that the guest sees of a volume, and the bytes that it occupies.
    pub fn sizes_of(&self, volume: &str) -> (Option<u64>, Option<u64>) {
        let found = self.volume(volume);
        let stats = found.as_ref().and_then(|f| f.stats);
        let taken = found.as_ref().and_then(|f| self.taken(f));
        (stats.and_then(|s| s.capacity), taken)
    }

    /// Returns the bytes that a disk occupies. QEMU knows them only for files: for a block device it reports the size,
    /// and for a network nothing. Snapshots of a volume and the rest of a larger device do not count.
    fn taken(&self, f: &VolumeDisk<'_>) -> Option<u64> {
        let capacity = f.stats.and_then(|s| s.capacity);
        match f.disk.source.at(|pool| self.directory_of(pool))? {
            ImageLocation::Block { path, .. } => {
                let volume = volume_at(self.stored, &path);
                let used = volume.map_or(capacity, |v| Some(v.used));
                used.map(|used| used.min(capacity.unwrap_or(used)))
            }
            ImageLocation::Network { .. } => capacity,
            ImageLocation::File(_) | ImageLocation::Nbd { .. } => f.stats?.physical,
        }
    }

    fn volume(&self, volume: &str) -> Option<VolumeDisk<'a>> {
        let mut found = self.found().filter_map(Result::ok);
        found.find(|f| volume_name(&f.known.domain.name, &f.disk.target) == volume)
    }

    /// Returns the images of disks in all places, with the bytes of each disk.
    pub fn images(&self) -> impl Iterator<Item = (String, Option<u64>)> + '_ {
        self.disks().filter_map(|(known, disk)| {
            let capacity = self.stats_of(known, disk).and_then(|s| s.capacity);
            Some((self.path(disk)?, capacity))
        })
    }

    fn stats_of(&self, known: &RunningDomain, disk: &Disk) -> Option<&'a BlockStats> {
        let stats = self.stats.iter().find(|s| s.domain == known.domain.name)?;
        stats.blocks.iter().find(|b| b.target == disk.target)
    }

    /// Returns the disks that can store data.
    fn disks(&self) -> impl Iterator<Item = (&'a RunningDomain, &'a Disk)> + '_ {
        let disks = |known: &'a RunningDomain| known.domain.disks.iter().map(move |d| (known, d));
        let disks = self.domains.iter().copied().flat_map(disks);
        disks.filter(|(known, disk)| {
            let fixed = disk.fixed(&known.domain);
            !matches!(fixed, Some(StayReason::NoDisk | StayReason::Empty))
        })
    }

    fn found(&self) -> impl Iterator<Item = Result<VolumeDisk<'a>, (String, String)>> + '_ {
        self.disks().map(|(known, disk)| self.look_at(known, disk))
    }

    fn look_at(
        &self,
        known: &'a RunningDomain,
        disk: &'a Disk,
    ) -> Result<VolumeDisk<'a>, (String, String)> {
        let name = || volume_name(&known.domain.name, &disk.target);
        let Some(path) = self.path(disk) else {
            let why = match disk.fixed(&known.domain) {
                Some(why) => why.to_string(),
                None => "its pool is unknown".into(),
            };
            return Err((name(), why));
        };
        // If places are nested, the innermost one has the image.
        let places = self.places.iter().filter(|p| is_below(&path, &p.path));
        let place = places.max_by_key(|p| p.path.len());
        let place =
            place.ok_or_else(|| (name(), format!("{path} is not in the storage of any tier")))?;
        Ok(VolumeDisk {
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

    /// Returns the directory of a pool's volumes.
    pub fn directory_of(&self, pool: &str) -> Option<&'a str> {
        directory_of(self.pools, pool)
    }
}

/// Returns true if an image is in a place: below a directory, or equal to an export or a device.
fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Converts a hypervisor's counters to a load. It has percentiles only if there are histograms. Requests in flight
/// follow from the sums of their times. Flushes count as writes without bytes.
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
        // QEMU does not report the shares of a device's capability that its users take: they are estimated where
        // needed.
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

fn device(place: &Place, found: &[VolumeDisk<'_>]) -> DeviceSnapshot {
    let here = found.iter().filter(|f| f.place.name == place.name);
    // Without counters of the kernel, add up those of the disks. The sum restarts when the set of disks changes.
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
        // A command cannot create a file in a device.
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
