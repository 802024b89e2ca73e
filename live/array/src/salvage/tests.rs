//! Random damage to copies of a map: a start reads the written state or refuses, and salvage finds
//! the intact volumes.

use std::sync::Arc;

use algo::Rng;
use crashdisk::CrashDisk;
use testkit::seeds;
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use super::*;
use crate::view::SharedStorage;
use crate::{ArrayId, Change, DeviceKind, DeviceRecord, Health, TierRecord};

const PAGE: usize = 4096;
const EXTENT: Bytes = Bytes(1 << 20);
const VOLUMES: u32 = 12;
const EXTENTS: u32 = 160;

/// Locations of the extents of each volume, by name.
type Truth = Vec<(String, Vec<Option<Location>>)>;

/// A copy of the map: its bytes, its bytes at earlier times, and its content.
struct Subject {
    now: Vec<u8>,
    before: Vec<Vec<u8>>,
    truth: Truth,
}

fn first_changes() -> Vec<Change> {
    let device = DeviceRecord {
        id: DeviceId(0),
        tier: TierId(0),
        name: "fast-0".into(),
        kind: DeviceKind::File,
        path: "/dev/null/0".into(),
        slots: 100_000,
        high_water: 100_000,
        emulate: None,
        direct: model::DirectIo::Off,
    };
    let tier = TierRecord {
        id: TierId(0),
        name: "fast".into(),
    };
    let volume = |id| {
        Change::AddVolume(VolumeRecord {
            id: VolumeId(id),
            size: Bytes(u64::from(EXTENTS) * EXTENT.0),
            home: TierId(0),
            logical_block: 512,
            health: Health::Whole,
            name: format!("volume-{id}"),
            class: "gold".into(),
            snapshot: None,
            source: None,
        })
    };
    let first = [Change::AddTier(tier), Change::AddDevice(device)];
    first.into_iter().chain((0..VOLUMES).map(volume)).collect()
}

fn contents(disk: &CrashDisk) -> Vec<u8> {
    let mut bytes = vec![0; disk.len().unwrap() as usize];
    disk.read(0, &mut bytes).unwrap();
    bytes
}

fn truth(array: &Array) -> Result<Truth, ArrayError> {
    let volumes = array.volumes()?.into_iter();
    volumes.map(|v| Ok((v.name, array.places(v.id)?))).collect()
}

/// Creates a map with many commits. `closed` closes it in an orderly way.
fn subject(seed: u64, closed: bool) -> Subject {
    let mut rng = Rng::new(seed, 0x53);
    let disk = CrashDisk::new(0);
    let array = Array::create_on(disk.clone(), ArrayId([7; 16]), EXTENT).unwrap();
    array.commit(&first_changes()).unwrap();
    let mut before = vec![];
    for round in 0..40 {
        let changes = (0..40).map(|_| {
            let volume = VolumeId(rng.below(u64::from(VOLUMES)) as u32);
            let extent = rng.below(u64::from(EXTENTS)) as u32;
            let at = Location {
                device: DeviceId(0),
                slot: rng.below(100_000) as u32,
            };
            match rng.below(8) {
                0 => Change::Vacate { volume, extent },
                _ => Change::Place { volume, extent, at },
            }
        });
        array.commit(&changes.collect::<Vec<_>>()).unwrap();
        if round % 10 == 5 {
            before.push(contents(&disk.killed()));
        }
    }
    let truth = truth(&array).unwrap();
    if closed {
        drop(array);
        let now = contents(&disk);
        return Subject { now, before, truth };
    }
    let now = contents(&disk.killed());
    Subject { now, before, truth }
}

/// Returns the bytes of a map with damage in pages that are in use.
fn damage(rng: &mut Rng, subject: &Subject) -> Vec<u8> {
    let mut bytes = subject.now.clone();
    let used: Vec<usize> = (0..bytes.len() / PAGE)
        .filter(|page| bytes[page * PAGE..][..PAGE].iter().any(|b| *b != 0))
        .collect();
    let page = |rng: &mut Rng| used[rng.below(used.len() as u64) as usize] * PAGE;
    match rng.below(8) {
        0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
        1 => {
            let (a, b) = (page(rng), page(rng));
            let first = bytes[a..a + PAGE].to_vec();
            bytes.copy_within(b..b + PAGE, a);
            bytes[b..b + PAGE].copy_from_slice(&first);
        }
        2 => {
            let old = &subject.before[rng.below(subject.before.len() as u64) as usize];
            for _ in 0..=rng.below(3) {
                let at = page(rng);
                if let Some(from) = old.get(at..at + PAGE) {
                    bytes[at..at + PAGE].copy_from_slice(from);
                }
            }
        }
        _ => {
            let at = page(rng);
            for _ in 0..=rng.below(64) {
                let bit = rng.below(PAGE as u64 * 8) as usize;
                bytes[at + bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    bytes
}

/// Number of damaged maps in a normal test run.
const BOUNDED: u64 = 400;

fn subjects() -> Vec<Subject> {
    let of = |seed| [subject(seed, true), subject(seed, false)];
    (0..3).flat_map(of).collect()
}

#[test]
fn map_with_one_damaged_copy_is_read_as_written_or_refused() {
    let subjects = subjects();
    let (mut noticed, mut harmless, mut misread_before) = (0_u64, 0_u64, 0_u64);
    let damages = seeds::run(0..BOUNDED, |seed| {
        let mut rng = Rng::new(seed, 0x0e);
        let subject = &subjects[seed as usize % subjects.len()];
        let bytes = damage(&mut rng, subject);
        let raw = Array::open_on(CrashDisk::of(bytes.clone())).and_then(|a| truth(&a));
        misread_before += u64::from(raw.is_ok_and(|read| read != subject.truth));
        match Array::look_on(CrashDisk::of(bytes)) {
            // A return to the previous commit counts as noticed: the other copy has more commits.
            Ok(array) if array.is_rolled_back() => noticed += 1,
            Ok(array) => {
                assert!(truth(&array).unwrap() == subject.truth, "seed {seed}");
                let read = array.open_for_changes().and_then(|a| truth(&a));
                let read = read.unwrap_or_else(|e| panic!("seed {seed}: {e:?}"));
                assert!(read == subject.truth, "seed {seed}");
                harmless += 1;
            }
            Err(ArrayError::Damaged { .. } | ArrayError::NotAnArray { .. }) => noticed += 1,
            Err(ArrayError::Store { .. } | ArrayError::Corrupt { .. }) => noticed += 1,
            Err(other) => return Err(other.to_string()),
        }
        Ok(())
    });
    println!(
        "{damages} damages: {noticed} noticed, {harmless} in unused pages; {misread_before} misread without verification"
    );
    assert!(damages < BOUNDED || noticed > 0 && misread_before > 0);
}

#[test]
fn volumes_of_two_damaged_copies_are_read_as_written_or_left_out() {
    let subjects = subjects();
    let (mut found, mut possible, mut none) = (0, 0, 0);
    let damages = seeds::run(0..BOUNDED, |seed| {
        let mut rng = Rng::new(seed, 0x2d);
        let subject = &subjects[seed as usize % subjects.len()];
        let copy = |rng: &mut Rng, copy| {
            let storage = SharedStorage(Arc::new(CrashDisk::of(damage(rng, subject))));
            let array = Array::look_unverified(storage, "a copy").ok()?;
            Some((copy, array))
        };
        let copies = CopyId::ALL.into_iter().filter_map(|id| copy(&mut rng, id));
        possible += subject.truth.len();
        let Ok(salvage) = Salvage::of(copies.collect()) else {
            none += 1;
            return Ok(());
        };
        let read = truth(&salvage.array).unwrap();
        assert_eq!(read.len(), salvage.intact.len(), "seed {seed}");
        for (name, places) in &read {
            let is = subject.truth.iter().find(|t| t.0 == *name);
            assert!(is.is_some_and(|t| t.1 == *places), "seed {seed}: {name}");
        }
        let all = salvage.intact.len() + salvage.lost.len();
        assert_eq!(all, subject.truth.len(), "seed {seed}");
        found += read.len();
        Ok(())
    });
    println!(
        "{damages} damages: {found} of {possible} volumes recovered; {none} arrays without any"
    );
    assert!(damages < BOUNDED || found > 0);
}

#[test]
fn flipped_header_bit_of_a_closed_map_changes_no_location() {
    let subject = subject(9, true);
    for bit in 0..320 * 8 {
        let mut bytes = subject.now.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let read = Array::look_on(CrashDisk::of(bytes)).and_then(Array::open_for_changes);
        if let Ok(array) = read {
            assert!(truth(&array).unwrap() == subject.truth, "bit {bit}");
        }
    }
}
