//! Arrays with files that are put back to an older state: no old file is used silently. Kills and
//! losses of power at every step of a new generation: no current file is refused.
//!
//! `TERRACE_SEEDS=0..2000 cargo test --release -p datapath old_states` runs 2000 arrays.

use std::collections::BTreeSet;
use std::sync::Arc;

use algo::Rng;
use array::{
    Array, ArrayId, Change, CopyId, CopyPlace, DeviceKind, DeviceRecord, Health, SecondCopy, Stamp,
    TierRecord, VolumeRecord,
};
use crashdisk::CrashDisk;
use datapath::device::{SlotSpace, superblock_of};
use datapath::keeper::{AcceptLoss, FoundCopy, Host, Keeper, with_superblock};
use model::DirectIo;
use testkit::seeds;
use units::{Bytes, DeviceId, TierId, VolumeId};

use crate::crash::sim::copies::SimPlace;
use crate::crash::sim::device::SimDevice;
use crate::crash::sim::plan::{EXTENT, Faults};

/// Number of arrays in a normal test run.
const BOUNDED: u64 = 200;

const ID: ArrayId = ArrayId([3; 16]);
const SLOTS: u32 = 8;

/// All files of an array: copies of the map first, then devices.
#[derive(Clone)]
struct Files {
    maps: Vec<CrashDisk>,
    devices: Vec<CrashDisk>,
}

impl Files {
    fn all(&self) -> impl Iterator<Item = &CrashDisk> {
        self.maps.iter().chain(&self.devices)
    }

    fn each(&self, state: impl Fn(&CrashDisk) -> CrashDisk) -> Files {
        Files {
            maps: self.maps.iter().map(&state).collect(),
            devices: self.devices.iter().map(&state).collect(),
        }
    }

    fn count(&self) -> usize {
        self.maps.len() + self.devices.len()
    }

    /// Returns true if a file carries a later stamp than in an older state. A device that was not in use
    /// in between does not, and after a loss of power it may carry an earlier one.
    fn is_later(&self, file: usize, old: &Files) -> bool {
        let Some(i) = file.checked_sub(self.maps.len()) else {
            return true;
        };
        let stamp = |files: &Files| device(&files.devices[i]).read_superblock().map(|s| s.stamp);
        stamp(self).is_ok_and(|now| stamp(old).is_ok_and(|then| now.generation > then.generation))
    }

    fn put_back(&mut self, file: usize, old: &Files) {
        match file.checked_sub(self.maps.len()) {
            None => self.maps[file] = old.maps[file].killed(),
            Some(device) => self.devices[device] = old.devices[device].killed(),
        }
    }
}

/// Files at one time, and the newest generation that was confirmed then.
struct OldFiles {
    files: Files,
    confirmed: u64,
}

fn record(i: u16) -> DeviceRecord {
    DeviceRecord {
        id: DeviceId(i),
        tier: TierId(0),
        name: format!("device{i}"),
        kind: DeviceKind::File,
        path: format!("/device{i}"),
        slots: SLOTS,
        high_water: 0,
        emulate: None,
        direct: DirectIo::Off,
    }
}

fn device(disk: &CrashDisk) -> SimDevice {
    SimDevice::new(disk.clone(), SLOTS, 0, Faults::default())
}

fn create(copies: usize, devices: u16) -> Files {
    let map = CrashDisk::new(0);
    let array = Array::create_on(map.clone(), ID, Bytes(EXTENT)).unwrap();
    let second = match copies {
        1 => SecondCopy::Off,
        _ => SecondCopy::At("second".into()),
    };
    let tier = TierRecord {
        id: TierId(0),
        name: "tier".into(),
    };
    let mut changes = vec![Change::SetSecondCopy(second), Change::AddTier(tier)];
    changes.extend((0..devices).map(|i| Change::AddDevice(record(i))));
    array.commit(&changes).unwrap();
    let disks = (0..devices).map(|i| {
        let disk = CrashDisk::new(u64::from(SLOTS) * EXTENT + 8192);
        let superblock = superblock_of(ID, Bytes(EXTENT), &record(i));
        device(&disk).write_superblock(&superblock).unwrap();
        disk
    });
    Files {
        devices: disks.collect(),
        maps: vec![map, CrashDisk::new(0)][..copies].to_vec(),
    }
}

/// Starts a keeper on the files. Returns it with the files that are in use; a copy of the map is in
/// use if it receives commits.
fn start(
    files: &Files,
    boot: u128,
    rng: &mut Rng,
) -> Result<(Keeper<SimDevice>, Vec<bool>), String> {
    let found = CopyId::ALL
        .into_iter()
        .zip(&files.maps)
        .map(|(copy, disk)| {
            let place = SimPlace::new("a copy", Some(disk.clone()));
            FoundCopy {
                copy,
                array: place.look(),
                place: Box::new(place),
            }
        });
    let mut nonces = Rng::new(rng.next_u64(), 1);
    let host = Host {
        boot,
        nonce: Box::new(move || nonces.next_u64()),
        claimant: Arc::default(),
    };
    let open = |_: Bytes, records: &[DeviceRecord]| {
        let one = |r: &DeviceRecord| with_superblock(device(&files.devices[r.id.index()]));
        records.iter().map(one).collect()
    };
    let accept = AcceptLoss::default();
    let keeper = Keeper::open_with(found.collect(), host, &accept, open);
    let keeper = keeper.map_err(|e| e.to_string())?;
    let used = files_in_use(&keeper, files);
    Ok((keeper, used))
}

fn files_in_use(keeper: &Keeper<SimDevice>, files: &Files) -> Vec<bool> {
    let members = keeper.map.members();
    let mut used: Vec<bool> = CopyId::ALL
        .into_iter()
        .take(files.maps.len())
        .map(|c| members.contains(c))
        .collect();
    used.extend((0..files.devices.len()).map(|i| keeper.devices.contains_key(&DeviceId(i as u16))));
    used
}

/// Checks that every file that the previous process used is in use again.
fn check(when: &str, expected: &[bool], used: &[bool]) -> Result<(), String> {
    match expected
        .iter()
        .zip(used)
        .all(|(expected, used)| *used || !expected)
    {
        true => Ok(()),
        false => Err(format!("{when}: of {expected:?} only {used:?} are used")),
    }
}

fn write_something(keeper: &mut Keeper<SimDevice>, number: u32, rng: &mut Rng) {
    let any = rng.below(keeper.devices.len() as u64) as usize;
    if let Some(device) = keeper.devices.values().nth(any) {
        let at = rng.below(u64::from(SLOTS)) * EXTENT;
        let _ = device.disk.write(at, &number.to_le_bytes());
    }
    if rng.below(2) == 0 {
        let _ = keeper.commit(&[Change::AddVolume(VolumeRecord {
            id: VolumeId(number),
            name: format!("volume{number}"),
            size: Bytes(EXTENT),
            home: TierId(0),
            class: "any".into(),
            logical_block: 512,
            health: Health::Whole,
            snapshot: None,
            source: None,
        })]);
    }
}

/// Stops one of the disks after some changes; returns their number.
fn stop_a_disk(files: &Files, rng: &mut Rng) -> u64 {
    let all: Vec<&CrashDisk> = files.all().collect();
    let step = rng.below(12);
    all[rng.below(all.len() as u64) as usize].fail_after(step);
    step
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Closed,
    Killed,
    PowerLost,
}

#[test]
fn device_file_of_an_older_generation_is_refused_and_no_other() {
    let (mut put_back, mut undisturbed, mut steps) = (0, 0, BTreeSet::new());
    let arrays = seeds::run(0..BOUNDED, |seed| {
        let mut rng = Rng::new(seed, 0x01d);
        let copies = 1 + rng.below(2) as usize;
        let mut files = create(copies, 1 + rng.below(4) as u16);
        let mut old: Vec<OldFiles> = vec![];
        let mut boot = 1;
        let mut number = 0;
        let lives = 1 + rng.below(3);
        let mut expected = vec![false; files.count()];
        for life in 0..lives {
            let (mut keeper, used) = start(&files, boot, &mut rng)?;
            check(&format!("life {life}"), &expected, &used)?;
            undisturbed += u64::from(life > 0);
            // A disk stops during the start, and with it the process.
            let ends_at_start = life > 0 && rng.below(4) == 0;
            if ends_at_start {
                steps.insert(("start", stop_a_disk(&files, &mut rng)));
            }
            match keeper.begin_serving() {
                Err(error) if !ends_at_start => return Err(error.to_string()),
                _ => {}
            }
            if copies == 2 && !ends_at_start && !keeper.map.members().second {
                let place = SimPlace::new("second", Some(files.maps[1].clone()));
                let second = Box::new(place.clone());
                keeper.map.add(CopyId::Second, second, None, "it is new");
                keeper.map.begin_rebuild(CopyId::Second).unwrap();
                assert!(keeper.map.end_rebuild(), "{:?}", keeper.map.health());
                keeper.renew().map_err(|e| e.to_string())?;
                files.maps[1] = place.disk().expect("it was made");
            }
            for _ in 0..(1 + rng.below(4)) * u64::from(!ends_at_start) {
                for _ in 0..rng.below(4) {
                    number += 1;
                    write_something(&mut keeper, number, &mut rng);
                }
                let confirmed = keeper.map.state().confirmed.stamp.generation;
                old.push(OldFiles {
                    files: files.each(CrashDisk::killed),
                    confirmed,
                });
                keeper.refresh().map_err(|e| e.to_string())?;
            }
            let end = match ends_at_start {
                true => [End::Killed, End::PowerLost][rng.below(2) as usize],
                false => [End::Closed, End::Killed, End::PowerLost][rng.below(3) as usize],
            };
            if end != End::Closed && !ends_at_start {
                let step = stop_a_disk(&files, &mut rng);
                if rng.below(2) == 0 {
                    let _ = keeper.refresh();
                    steps.insert(("generation", step));
                } else {
                    keeper.close();
                    steps.insert(("stop", step));
                }
            } else if end == End::Closed {
                keeper.close();
            }
            expected = files_in_use(&keeper, &files);
            drop(keeper);
            files = match end {
                End::PowerLost => {
                    boot += 1;
                    let bits = rng.next_u64();
                    files.each(|disk| disk.power_loss(bits))
                }
                End::Closed | End::Killed => files.each(CrashDisk::killed),
            };
        }
        // Undisturbed files are all used again.
        let (keeper, used) = start(&files.each(CrashDisk::killed), boot, &mut rng)?;
        check("the last start", &expected, &used)?;
        let newest = keeper.map.state().confirmed.stamp;
        drop(keeper);
        let older: Vec<&OldFiles> = old
            .iter()
            .filter(|o| o.confirmed < newest.generation)
            .collect();
        if older.is_empty() || newest == Stamp::NONE {
            return Ok(());
        }
        let which = older[rng.below(older.len() as u64) as usize];
        let mut tampered = files.each(CrashDisk::killed);
        // A device that was lost in the last life does not carry the newest stamp.
        let newest_is_on = |file: usize| match file.checked_sub(files.maps.len()) {
            None => true,
            Some(i) => device(&files.devices[i])
                .read_superblock()
                .is_ok_and(|s| s.stamp == newest),
        };
        let newest: Vec<usize> = (0..files.count())
            .filter(|f| used[*f] && newest_is_on(*f))
            .collect();
        let stays = newest[rng.below(newest.len() as u64) as usize];
        let mut back = vec![false; files.count()];
        for file in (0..files.count()).filter(|f| *f != stays) {
            back[file] = rng.below(2) == 0 && files.is_later(file, &which.files);
            if back[file] {
                tampered.put_back(file, &which.files);
                put_back += 1;
            }
        }
        let Ok((_, used)) = start(&tampered, boot, &mut rng) else {
            return Ok(());
        };
        match used
            .iter()
            .zip(&back)
            .position(|(used, back)| *used && *back)
        {
            None => Ok(()),
            Some(file) => Err(format!(
                "file {file} is used: put back {back:?}, used {used:?}"
            )),
        }
    });
    println!(
        "{arrays} arrays, {undisturbed} starts of files as they were, {put_back} files put back, {} steps",
        steps.len()
    );
    assert!(put_back > 0 && (arrays < BOUNDED || steps.len() > 25));
}
