//! Which extents get a second copy, on another device: read-mostly ones of volumes whose device is busy, while another has time and room.
//!
//! A second copy is good for reads alone: a write then goes to both. So only extents that are hardly written to are taken, the hottest for
//! their size first, as far as the budget and the room of the target go. A volume has one set of mirrored extents at a time, on one device. How many reads
//! go to which copy is not decided here (`volume::Offload`), but every few hundred milliseconds.
//!
//! A set is left as it is while it has most of the reads that another choice would have: each change of it is a copy of all of it.

use std::collections::BTreeMap;

use model::{ExtentHeat, ExtentRanges};
use units::{Bytes, DeviceId, VolumeId};

/// Bounds of what is mirrored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MirrorTerms {
    /// Bytes of second copies, of all volumes together.
    pub budget: Bytes,
    /// Share of an extent's requests that read, at least.
    pub read_share: f64,
    /// Utilization of a device from which its volumes are worth a second copy, 0..=1.
    pub busy: f64,
    /// Share of a device that stays free of second copies and all else.
    pub free: f64,
}

/// A device, as it was over the last while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MirrorDevice {
    /// Share of the time in use, 0..=1.
    pub utilization: f64,
    /// Its space.
    pub capacity: Bytes,
    /// What is on it, without second copies.
    pub used: Bytes,
}

/// An extent that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorExtent {
    /// Its number in the volume.
    pub extent: u32,
    /// Its size.
    pub bytes: Bytes,
    /// Reads, over the same while.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Reads and writes of each extent that was asked for, by extent.
pub fn touched(reads: &ExtentHeat, writes: &ExtentHeat) -> BTreeMap<u32, [u64; 2]> {
    let mut ios: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for (dir, heat) in [reads, writes].into_iter().enumerate() {
        for (extent, n) in heat.touched() {
            ios.entry(*extent).or_default()[dir] += u64::from(*n);
        }
    }
    ios
}

/// A volume, over the same while.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Where most of it lies.
    pub device: DeviceId,
    /// Weight of its class.
    pub weight: f64,
    /// Extents that were asked for and lie on `device`.
    pub extents: Vec<MirrorExtent>,
    /// What is mirrored, and where.
    pub mirrored: Option<(DeviceId, ExtentRanges)>,
    /// Whether something else is done to it, such as a move.
    pub is_busy: bool,
}

/// What a volume is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorSet {
    /// The volume.
    pub volume: VolumeId,
    /// The device of the second copies.
    pub to: DeviceId,
    /// The extents.
    pub extents: ExtentRanges,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Utilization by which the target has to be below the source for a set to be begun.
const LESS_BUSY: f64 = 0.15;
/// Share of the busy mark below which a set is given up.
const QUIET: f64 = 0.6;
/// Share of the mean of the extents that are taken which the coldest of them has at least, requests for its size.
const COLDEST: f64 = 0.25;
/// Share of the reads of what would be chosen anew that a set has to have to stay as it is: among extents that are alike hot, which of them are the
/// hottest is chance.
const STAYS: f64 = 0.7;
/// Share of a set that may have come to be written to before it is chosen anew.
const WRITTEN: f64 = 0.1;

/// What every volume is to have from now on, by volume; one that is not named has nothing mirrored any more.
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
        // What the second copies answer was the source's to do.
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

/// Reads for each byte of what could be mirrored.
fn heat(v: &MirrorVolume, terms: &MirrorTerms) -> f64 {
    let fit = v.extents.iter().filter(|e| is_read_mostly(e, terms));
    let (reads, bytes) = fit.fold((0, 0), |sum, e| (sum.0 + e.reads, sum.1 + e.bytes.0));
    reads as f64 / (bytes as f64).max(1.0)
}

/// The device with most time to spare, of those with room.
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

/// The hottest extents for their size that hold `most` bytes, in order of number; and their bytes.
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

/// Bytes of extents of a volume; those that nobody asked for are as large as the others.
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
    fn hot_extents_that_are_read_go_where_there_is_time_and_room() {
        let devices = [device(0.95, 5), device(0.5, 5), device(0.2, 5)];
        let v = volume(&[(100, 0), (900, 500), (800, 10), (790, 0), (2, 0)]);
        let sets = mirrors(&devices, std::slice::from_ref(&v), &TERMS);
        // Extent 1 is written to, extents 0 and 4 are cold beside the others.
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
        // Room on neither, time on neither, nothing to do.
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
    fn a_set_stays_while_it_is_mostly_right_and_is_given_up_when_its_device_rests() {
        let set = |text: &str| Some((DeviceId(1), text.parse().unwrap()));
        let mut v = volume(&[(800, 0), (790, 0), (780, 0), (0, 0)]);
        v.mirrored = set("0-3");
        // The target is as busy as the source by what it answers for it: that is how it is to be.
        let devices = [device(0.8, 5), device(0.8, 5)];
        let sets = mirrors(&devices, std::slice::from_ref(&v), &TERMS);
        assert_eq!(ranges(&sets), ["0-3"]);
        v.mirrored = set("2-3");
        let sets = mirrors(&devices, std::slice::from_ref(&v), &TERMS);
        assert_eq!(ranges(&sets), ["0-2"], "another one");
        // The source has little to do since the target does it.
        let helped = [device(0.3, 5), device(0.2, 5)];
        v.mirrored = set("0-2");
        assert_eq!(
            ranges(&mirrors(&helped, std::slice::from_ref(&v), &TERMS)),
            ["0-2"]
        );
        // What came to be written to has no second copy any more.
        v.extents[1].writes = 500;
        assert_eq!(
            ranges(&mirrors(&helped, std::slice::from_ref(&v), &TERMS)),
            ["0,2"]
        );
        v.extents[1].writes = 0;
        let rests = [device(0.2, 5), device(0.2, 5)];
        assert_eq!(mirrors(&rests, std::slice::from_ref(&v), &TERMS), []);
        // Somebody else needs the space.
        let needed = [device(0.8, 5), device(0.8, 9)];
        assert_eq!(mirrors(&needed, std::slice::from_ref(&v), &TERMS), []);
    }

    #[test]
    fn who_matters_more_comes_first() {
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
