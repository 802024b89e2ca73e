//! Choice of extents for a second copy on another device: read-mostly extents of volumes on a busy device, if another device
//! has time and room.
//!
//! A second copy helps reads alone, because writes go to both copies. So only extents with few writes are mirrored, the
//! hottest for their size first, within the budget and the room of the target. A volume has one set of mirrored extents at a
//! time, on one device. `volume::Offload` divides the reads between the copies, every few hundred milliseconds.
//!
//! A set is kept while it has most of the reads that another choice would have: each change costs a copy of the whole set.

use std::collections::BTreeMap;

use model::{ExtentHeat, ExtentRanges};
use units::{Bytes, DeviceId, VolumeId};

/// Limits of mirroring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MirrorTerms {
    /// Bytes of second copies of all volumes together.
    pub budget: Bytes,
    /// Smallest share of reads in an extent's requests.
    pub read_share: f64,
    /// Utilization of a device from which its volumes get second copies, 0..=1.
    pub busy: f64,
    /// Share of a device that always stays free.
    pub free: f64,
}

/// Device, measured over an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MirrorDevice {
    /// Share of the time in use, 0..=1.
    pub utilization: f64,
    /// Capacity.
    pub capacity: Bytes,
    /// Used space without second copies.
    pub used: Bytes,
}

/// Extent with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorExtent {
    /// Number of the extent in the volume.
    pub extent: u32,
    /// Size.
    pub bytes: Bytes,
    /// Reads in the same interval.
    pub reads: u64,
    /// Writes in the same interval.
    pub writes: u64,
}

/// Returns the reads and writes of each extent that had requests, by extent.
pub fn touched(reads: &ExtentHeat, writes: &ExtentHeat) -> BTreeMap<u32, [u64; 2]> {
    let mut ios: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for (dir, heat) in [reads, writes].into_iter().enumerate() {
        for (extent, n) in heat.touched() {
            ios.entry(*extent).or_default()[dir] += u64::from(*n);
        }
    }
    ios
}

/// Volume, measured over the same interval.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Device with most of its data.
    pub device: DeviceId,
    /// Weight of its class.
    pub weight: f64,
    /// Extents on `device` that had requests.
    pub extents: Vec<MirrorExtent>,
    /// Mirrored extents and the device of their second copies.
    pub mirrored: Option<(DeviceId, ExtentRanges)>,
    /// True during another operation on the volume, such as a move.
    pub is_busy: bool,
}

/// Mirrored extents that a volume should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSet {
    /// The volume.
    pub volume: VolumeId,
    /// Device of the second copies.
    pub to: DeviceId,
    /// Mirrored extents.
    pub extents: ExtentRanges,
    /// Bytes of the extents.
    pub bytes: Bytes,
}

/// Smallest difference of utilization between source and target at which a set is started.
const LESS_BUSY: f64 = 0.15;
/// Share of the busy mark below which a set is removed.
const QUIET: f64 = 0.6;
/// Smallest heat of a chosen extent, as a share of the mean of the chosen extents, in requests for its size.
const COLDEST: f64 = 0.25;
/// Smallest share of the reads of a new choice that a set must have to be kept: among equally hot extents, the choice of the
/// hottest is chance.
const STAYS: f64 = 0.7;
/// Largest share of a set that may have turned write-heavy before a new set is chosen.
const WRITTEN: f64 = 0.1;

/// Returns the mirrored sets that volumes should have from now on, by volume. A volume without a set has no second copies
/// any more.
pub fn mirrors(
    devices: &[MirrorDevice],
    volumes: &[MirrorVolume],
    terms: &MirrorTerms,
) -> Vec<MirrorSet> {
    let mut left = terms.budget;
    let mut room: Vec<Bytes> = devices
        .iter()
        .map(|d| {
            let most = Bytes((d.capacity.as_f64() * (1.0 - terms.free)) as u64);
            most.saturating_sub(d.used)
        })
        .collect();
    let mut out = Vec::new();
    let mut order: Vec<(f64, &MirrorVolume)> = volumes
        .iter()
        .filter(|v| !v.is_busy)
        .map(|v| (v.weight * heat(v, terms), v))
        .filter(|(value, _)| *value > 0.0)
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.volume.cmp(&b.1.volume)));
    for (_, v) in order {
        let source = devices[v.device.index()].utilization;
        // Reads of the second copies would be load of the source without them.
        let (target, enough, source) = match &v.mirrored {
            Some((to, _)) => {
                let both = source + devices[to.index()].utilization;
                (Some(*to), terms.busy * QUIET, both)
            }
            None => (target(devices, &room, v.device), terms.busy, source),
        };
        let Some(to) = target.filter(|_| source >= enough) else {
            continue;
        };
        let most = left.min(room[to.index()]);
        let (mut extents, mut bytes) = hottest(v, terms, most);
        if let Some((_, present)) = &v.mirrored {
            let own: Bytes = chosen_bytes(v, present);
            let reads = |of: &dyn Fn(u32) -> bool| -> u64 {
                let there = v.extents.iter().filter(|e| of(e.extent));
                there.map(|e| e.reads).sum()
            };
            let chosen = |e: u32| extents.binary_search(&e).is_ok();
            let (had, wanted) = (reads(&|e| present.contains(e)), reads(&chosen));
            let written = |e: &&MirrorExtent| {
                present.contains(e.extent) && e.writes > 0 && !is_read_mostly(e, terms)
            };
            let written = v.extents.iter().filter(written).count() as f64;
            let fits = written <= WRITTEN * f64::from(present.count());
            if had as f64 >= STAYS * wanted as f64 && own <= most && fits {
                (extents, bytes) = (present.iter().collect(), own);
            }
        }
        if extents.is_empty() {
            continue;
        }
        left = left.saturating_sub(bytes);
        room[to.index()] = room[to.index()].saturating_sub(bytes);
        out.push(MirrorSet {
            volume: v.volume,
            to,
            extents: ExtentRanges::from_sorted(extents),
            bytes,
        });
    }
    out.sort_by_key(|s| s.volume);
    out
}

fn is_read_mostly(e: &MirrorExtent, terms: &MirrorTerms) -> bool {
    let all = (e.reads + e.writes) as f64;
    e.reads > 0 && e.reads as f64 >= terms.read_share * all
}

/// Returns the reads per byte of the extents that could be mirrored.
fn heat(v: &MirrorVolume, terms: &MirrorTerms) -> f64 {
    let fit = v.extents.iter().filter(|e| is_read_mostly(e, terms));
    let (reads, bytes) = fit.fold((0, 0), |sum, e| (sum.0 + e.reads, sum.1 + e.bytes.0));
    reads as f64 / (bytes as f64).max(1.0)
}

/// Returns the device with the lowest utilization among those with room.
fn target(devices: &[MirrorDevice], room: &[Bytes], source: DeviceId) -> Option<DeviceId> {
    let most = devices[source.index()].utilization - LESS_BUSY;
    let fits = |d: &usize| {
        *d != source.index() && room[*d] > Bytes::ZERO && devices[*d].utilization <= most
    };
    let all = (0..devices.len()).filter(fits);
    let least = all.min_by(|a, b| {
        let of = |d: &usize| devices[*d].utilization;
        of(a).total_cmp(&of(b))
    });
    least.map(DeviceId::from_index)
}

/// Returns the hottest extents for their size up to `most` bytes, in order of number, and their bytes.
fn hottest(v: &MirrorVolume, terms: &MirrorTerms, most: Bytes) -> (Vec<u32>, Bytes) {
    let of_byte = |e: &MirrorExtent| e.reads as f64 / e.bytes.as_f64().max(1.0);
    let fit = v.extents.iter().filter(|e| is_read_mostly(e, terms));
    let mut fit: Vec<&MirrorExtent> = fit.collect();
    fit.sort_by(|a, b| {
        let order = of_byte(b).total_cmp(&of_byte(a));
        order.then(a.extent.cmp(&b.extent))
    });
    let (mut taken, mut bytes, mut reads) = (Vec::new(), Bytes::ZERO, 0);
    for e in fit {
        let mean = reads as f64 / bytes.as_f64().max(1.0);
        if bytes + e.bytes > most || of_byte(e) < COLDEST * mean {
            break;
        }
        taken.push(e.extent);
        bytes += e.bytes;
        reads += e.reads;
    }
    taken.sort_unstable();
    (taken, bytes)
}

/// Returns the bytes of extents of a volume; extents without requests count as large as the others.
fn chosen_bytes(v: &MirrorVolume, extents: &ExtentRanges) -> Bytes {
    let each = v.extents.iter().map(|e| e.bytes).max().unwrap_or_default();
    Bytes(each.0 * u64::from(extents.count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: MirrorTerms = MirrorTerms {
        budget: Bytes::gib(1),
        read_share: 0.9,
        busy: 0.7,
        free: 0.1,
    };

    fn device(utilization: f64, used_gib: u64) -> MirrorDevice {
        MirrorDevice {
            utilization,
            capacity: Bytes::gib(10),
            used: Bytes::gib(used_gib),
        }
    }

    fn volume(extents: &[(u64, u64)]) -> MirrorVolume {
        let extents = extents
            .iter()
            .enumerate()
            .map(|(e, (reads, writes))| MirrorExtent {
                extent: e as u32,
                bytes: Bytes::mib(256),
                reads: *reads,
                writes: *writes,
            });
        MirrorVolume {
            volume: VolumeId(0),
            device: DeviceId(0),
            weight: 1.0,
            extents: extents.collect(),
            mirrored: None,
            is_busy: false,
        }
    }

    fn ranges(sets: &[MirrorSet]) -> Vec<String> {
        sets.iter().map(|s| s.extents.to_string()).collect()
    }

    #[test]
    fn hot_read_extents_are_mirrored_to_a_device_with_time_and_space() {
        let devices = [device(0.95, 5), device(0.5, 5), device(0.2, 5)];
        let v = volume(&[(100, 0), (900, 500), (800, 10), (790, 0), (2, 0)]);
        let sets = mirrors(&devices, std::slice::from_ref(&v), &TERMS);
        // Extent 1 has many writes; extents 0 and 4 are cold compared to the others.
        assert_eq!(ranges(&sets), ["2-3"]);
        assert_eq!((sets[0].to, sets[0].bytes), (DeviceId(2), Bytes::mib(512)));
        // A budget of one.
        let small = MirrorTerms {
            budget: Bytes::mib(300),
            ..TERMS
        };
        assert_eq!(
            ranges(&mirrors(&devices, std::slice::from_ref(&v), &small)),
            ["2"]
        );
        // No room on either device, no time on either, no load.
        let full = [device(0.95, 5), device(0.5, 9), device(0.2, 9)];
        assert_eq!(mirrors(&full, std::slice::from_ref(&v), &TERMS), []);
        let alike = [device(0.95, 5), device(0.9, 5), device(0.85, 5)];
        assert_eq!(mirrors(&alike, std::slice::from_ref(&v), &TERMS), []);
        let quiet = [device(0.6, 5), device(0.1, 5), device(0.2, 5)];
        assert_eq!(mirrors(&quiet, std::slice::from_ref(&v), &TERMS), []);
        let busy = MirrorVolume { is_busy: true, ..v };
        assert_eq!(mirrors(&devices, &[busy], &TERMS), []);
    }

    #[test]
    fn mirror_set_persists_while_mostly_valid_and_ends_on_low_load() {
        let set = |text: &str| Some((DeviceId(1), text.parse().unwrap()));
        let mut v = volume(&[(800, 0), (790, 0), (780, 0), (0, 0)]);
        v.mirrored = set("0-3");
        // The target is as busy as the source because it serves reads for the source: that is intended.
        let devices = [device(0.8, 5), device(0.8, 5)];
        let sets = mirrors(&devices, std::slice::from_ref(&v), &TERMS);
        assert_eq!(ranges(&sets), ["0-3"]);
        v.mirrored = set("2-3");
        let sets = mirrors(&devices, std::slice::from_ref(&v), &TERMS);
        assert_eq!(ranges(&sets), ["0-2"], "another one");
        // The source has little load because the target serves its reads.
        let helped = [device(0.3, 5), device(0.2, 5)];
        v.mirrored = set("0-2");
        assert_eq!(
            ranges(&mirrors(&helped, std::slice::from_ref(&v), &TERMS)),
            ["0-2"]
        );
        // An extent with new writes loses its second copy.
        v.extents[1].writes = 500;
        assert_eq!(
            ranges(&mirrors(&helped, std::slice::from_ref(&v), &TERMS)),
            ["0,2"]
        );
        v.extents[1].writes = 0;
        let rests = [device(0.2, 5), device(0.2, 5)];
        assert_eq!(mirrors(&rests, std::slice::from_ref(&v), &TERMS), []);
        // Another volume needs the space.
        let needed = [device(0.8, 5), device(0.8, 9)];
        assert_eq!(mirrors(&needed, std::slice::from_ref(&v), &TERMS), []);
    }

    #[test]
    fn mirrors_of_the_volume_with_more_weight_come_first() {
        let devices = [device(0.95, 5), device(0.2, 5)];
        let mut all = vec![volume(&[(800, 0); 4]), volume(&[(700, 0); 4])];
        all[1].volume = VolumeId(1);
        let sets = mirrors(&devices, &all, &TERMS);
        assert_eq!((sets.len(), sets[0].volume), (1, VolumeId(0)));
        all[1].weight = 4.0;
        let sets = mirrors(&devices, &all, &TERMS);
        assert_eq!((sets.len(), sets[0].volume), (1, VolumeId(1)));
    }
}
