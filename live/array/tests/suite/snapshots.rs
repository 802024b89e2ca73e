//! Snapshots: shared slots, changes between two snapshots, and refusals.

use std::collections::{BTreeMap, BTreeSet};

use algo::Rng;
use array::{
    Array, ArrayError, Change, Health, MoveRecord, Refusal, SNAPSHOTS_MAX, SnapshotOf, VolumeRecord,
};
use crashdisk::CrashDisk;
use testkit::seeds;
use units::{Bytes, BytesPerSec, DeviceId, VolumeId};
use volume::Location;

use crate::support::world::{EXTENT, ID, World, device, snapshot_of, tier, volume};

const V: VolumeId = VolumeId(3);
const FIRST: VolumeId = VolumeId(10);
const SECOND: VolumeId = VolumeId(11);

fn at(slot: u32) -> Location {
    let device = DeviceId(1);
    Location { device, slot }
}

fn place(volume: VolumeId, extent: u32, slot: u32) -> Change {
    let at = at(slot);
    Change::Place { volume, extent, at }
}

fn copy_up(volume: VolumeId, extent: u32, slot: u32) -> Change {
    let at = at(slot);
    Change::CopyUp { volume, extent, at }
}

fn vacate(volume: VolumeId, extent: u32) -> Change {
    Change::Vacate { volume, extent }
}

fn take(id: VolumeId, sequence: u32) -> Change {
    Change::TakeSnapshot(snapshot_of(&volume(V.0, 10), id.0, sequence))
}

/// Returns an array with a volume of ten extents, of which the first four are in the slots of the same numbers, and
/// another volume.
fn array() -> Array {
    let array = Array::create_on(CrashDisk::new(0), ID, EXTENT).unwrap();
    let mut changes = vec![
        Change::AddTier(tier(0)),
        Change::AddDevice(device(1, 0)),
        Change::AddVolume(volume(V.0, 10)),
        Change::AddVolume(volume(4, 10)),
    ];
    changes.extend((0..4).map(|e| place(V, e, e)));
    array.commit(&changes).unwrap();
    array
}

fn slots(array: &Array, volume: VolumeId) -> Vec<Option<u32>> {
    let places = array.places(volume).unwrap();
    places.iter().map(|at| at.map(|at| at.slot)).collect()
}

fn changed(array: &Array, from: impl Into<Option<VolumeId>>, to: VolumeId) -> Vec<u32> {
    array.changed_between(from.into(), to).unwrap()
}

fn refusal(array: &Array, changes: &[Change]) -> String {
    match array.commit(changes).unwrap_err() {
        ArrayError::Refused { refusal, .. } => refusal.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn snapshot_has_the_locations_of_its_volume() {
    let array = array();
    array.commit(&[take(FIRST, 0)]).unwrap();
    let then = slots(&array, V);
    assert_eq!(then[..5], [Some(0), Some(1), Some(2), Some(3), None]);
    assert_eq!(slots(&array, FIRST), then);
    assert_eq!(changed(&array, FIRST, V), [0; 0]);
    array
        .commit(&[copy_up(V, 1, 20), vacate(V, 2), place(V, 7, 21)])
        .unwrap();
    assert_eq!(slots(&array, FIRST), then);
    assert_eq!(changed(&array, FIRST, V), [1, 2, 7]);
    assert_eq!(changed(&array, None, V), [0, 1, 3, 7]);
    assert_eq!(changed(&array, None, FIRST), [0, 1, 2, 3]);
    array
        .commit(&[take(SECOND, 5), copy_up(V, 1, 22), copy_up(V, 3, 23)])
        .unwrap();
    assert_eq!(changed(&array, FIRST, SECOND), [1, 2, 7]);
    assert_eq!(changed(&array, SECOND, V), [1, 3]);
    assert_eq!(changed(&array, FIRST, V), [1, 2, 3, 7]);
    let record = array.volumes().unwrap().pop().unwrap();
    assert_eq!((record.id, record.family()), (SECOND, V));
    assert_eq!(record, snapshot_of(&volume(V.0, 10), SECOND.0, 5));
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn removed_snapshot_passes_its_changed_extents_to_the_next() {
    let array = array();
    let third = VolumeId(12);
    array
        .commit(&[
            take(FIRST, 0),
            copy_up(V, 0, 20),
            take(SECOND, 1),
            copy_up(V, 1, 21),
            take(third, 2),
            copy_up(V, 2, 22),
        ])
        .unwrap();
    array.commit(&[Change::RemoveVolume(SECOND)]).unwrap();
    assert_eq!(changed(&array, FIRST, third), [0, 1]);
    array.commit(&[Change::RemoveVolume(third)]).unwrap();
    assert_eq!(changed(&array, FIRST, V), [0, 1, 2]);
    array.commit(&[Change::RemoveVolume(FIRST)]).unwrap();
    // Nothing is left of the removed snapshots, and their sequences may be reused.
    array.commit(&[take(FIRST, 0)]).unwrap();
    assert_eq!(changed(&array, FIRST, V), [0; 0]);
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn volume_is_reverted_to_a_snapshot() {
    let array = array();
    array
        .commit(&[
            take(FIRST, 0),
            copy_up(V, 0, 20),
            vacate(V, 1),
            Change::SetVolume(volume(V.0, 12)),
            place(V, 11, 21),
        ])
        .unwrap();
    let second = snapshot_of(&volume(V.0, 12), SECOND.0, 1);
    array
        .commit(&[
            Change::TakeSnapshot(second),
            copy_up(V, 2, 22),
            place(V, 5, 23),
        ])
        .unwrap();
    array.commit(&[Change::RestoreSnapshot(FIRST)]).unwrap();
    assert_eq!(slots(&array, V), slots(&array, FIRST));
    let record = array.volumes().unwrap().remove(0);
    assert_eq!(record, volume(V.0, 10), "it has the size of then");
    // 9 is the last extent of the former size, so other bytes of it are valid now. 11 does not exist any more.
    assert_eq!(changed(&array, SECOND, V), [0, 1, 9]);
    assert_eq!(changed(&array, FIRST, V), [0, 1, 9]);
    array.commit(&[Change::RestoreSnapshot(SECOND)]).unwrap();
    assert_eq!(slots(&array, V), slots(&array, SECOND));
    assert_eq!(changed(&array, SECOND, V), [0; 0]);
    assert_eq!(changed(&array, FIRST, V), [0, 1, 9, 11]);
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn moved_extent_is_unshared_and_counts_as_changed() {
    let array = array();
    array
        .commit(&[take(FIRST, 0), take(SECOND, 1), place(V, 0, 20)])
        .unwrap();
    assert_eq!(changed(&array, SECOND, V), [0]);
    // A moved snapshot keeps its content. If it is the newest one, the volume is now the only owner of the slot.
    array
        .commit(&[place(FIRST, 1, 21), place(SECOND, 2, 22)])
        .unwrap();
    assert_eq!(changed(&array, FIRST, SECOND), [0; 0]);
    assert_eq!(changed(&array, SECOND, V), [0, 2]);
    // With the previous snapshot as the newest one, more extents are in no snapshot.
    array.commit(&[Change::RemoveVolume(SECOND)]).unwrap();
    assert_eq!(changed(&array, FIRST, V), [0, 1, 2]);
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn invalid_snapshot_change_is_refused() {
    let array = array();
    array
        .commit(&[take(FIRST, 4), copy_up(V, 0, 20), take(SECOND, 5)])
        .unwrap();
    let before = World::read(&array).unwrap();
    let of = |change: &dyn Fn(&mut VolumeRecord)| {
        let mut record = snapshot_of(&volume(V.0, 10), 30, 6);
        change(&mut record);
        Change::TakeSnapshot(record)
    };
    let snapshot = |r: &mut VolumeRecord, change: &dyn Fn(&mut SnapshotOf)| {
        change(r.snapshot.as_mut().unwrap());
    };
    let a_move = |volume| {
        Change::SetMove(MoveRecord {
            volume,
            to: DeviceId(1),
            bandwidth: BytesPerSec(1),
            extents: None,
        })
    };
    let first = snapshot_of(&volume(V.0, 10), FIRST.0, 4);
    let set = |change: &dyn Fn(&mut VolumeRecord)| {
        let mut record = first.clone();
        change(&mut record);
        Change::SetVolume(record)
    };
    let cases: Vec<(Vec<Change>, &str)> = vec![
        (vec![of(&|r| r.snapshot = None)], "it is not a snapshot"),
        (vec![of(&|r| r.id = V)], "volume 3 already exists"),
        (
            vec![of(&|r| r.name = "volume 4".into())],
            "already belongs to volume 4",
        ),
        (
            vec![of(&|r| snapshot(r, &|s| s.volume = VolumeId(9)))],
            "no volume 9",
        ),
        (
            vec![of(&|r| snapshot(r, &|s| s.volume = FIRST))],
            "volume 10 is a snapshot",
        ),
        (
            vec![of(&|r| r.size = Bytes(r.size.0 + 1))],
            "a snapshot with 654849 B of a volume with 654848 B",
        ),
        (
            vec![of(&|r| snapshot(r, &|s| s.sequence = 5))],
            "sequence 5 does not come after 5, that of snapshot 11",
        ),
        (
            vec![Change::AddVolume(snapshot_of(&volume(V.0, 10), 30, 6))],
            "a snapshot cannot be added",
        ),
        (
            vec![Change::RemoveVolume(V)],
            "volume 3 has snapshots: snapshot 10, snapshot 11: delete them first",
        ),
        (vec![Change::RestoreSnapshot(V)], "it is not a snapshot"),
        (vec![Change::RestoreSnapshot(VolumeId(9))], "no volume 9"),
        (
            vec![a_move(V), Change::RestoreSnapshot(FIRST)],
            "volume 3 is moving",
        ),
        (
            vec![set(&|r| r.size = Bytes(1))],
            "a snapshot cannot change its size",
        ),
        (
            vec![set(&|r| r.snapshot = None)],
            "it cannot become or cease to be a snapshot",
        ),
        (
            vec![set(&|r| snapshot(r, &|s| s.taken_s += 1))],
            "it cannot become or cease to be a snapshot",
        ),
        (
            vec![Change::SetVolume(snapshot_of(&volume(V.0, 10), V.0, 6))],
            "it cannot become or cease to be a snapshot",
        ),
        (vec![vacate(FIRST, 1)], "a snapshot cannot be trimmed"),
        (vec![copy_up(FIRST, 1, 30)], "a snapshot cannot be written"),
        (
            vec![place(FIRST, 6, 30)],
            "extent 6 is not allocated, and a snapshot never changes",
        ),
        (
            vec![copy_up(V, 6, 30)],
            "extent 6 of volume 3 is not allocated",
        ),
        (
            vec![
                Change::SetVolume(VolumeRecord {
                    health: Health::Damaged,
                    ..volume(V.0, 10)
                }),
                of(&|_| {}),
            ],
            "volume 3 is damaged",
        ),
    ];
    for (changes, text) in cases {
        let error = refusal(&array, &changes);
        assert!(error.contains(text), "{changes:?}: {error}");
        assert!(World::read(&array).unwrap().same(&before), "{changes:?}");
    }
    for (from, to, text) in [
        (
            SECOND,
            FIRST,
            "the first snapshot is not older than the second",
        ),
        (V, FIRST, "the first snapshot is not older"),
        (FIRST, FIRST, "the first snapshot is not older"),
        (FIRST, VolumeId(4), "they do not belong to the same volume"),
        (VolumeId(9), V, "no volume 9"),
        (FIRST, VolumeId(9), "no volume 9"),
    ] {
        let error = array.changed_between(Some(from), to).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    // A snapshot can be moved and renamed.
    array
        .commit(&[a_move(FIRST), set(&|r| r.name = "yesterday".into())])
        .unwrap();
}

#[test]
fn volume_has_at_most_a_thousand_snapshots() {
    let array = array();
    let all: Vec<Change> = (0..SNAPSHOTS_MAX as u32)
        .map(|n| take(VolumeId(100 + n), n))
        .collect();
    array.commit(&all).unwrap();
    let error = refusal(&array, &[take(FIRST, 5000)]);
    assert!(error.contains("has 1000 snapshots"), "{error}");
    let refused = array.commit(&[Change::RemoveVolume(V)]).unwrap_err();
    let ArrayError::Refused {
        refusal: Refusal::HasSnapshots { names, .. },
        ..
    } = refused
    else {
        panic!("{refused}");
    };
    assert!(names.ends_with("snapshot 104 and 995 more"), "{names}");
    array
        .commit(&[Change::RemoveVolume(VolumeId(500)), take(FIRST, 5000)])
        .unwrap();
    assert!(array.check().unwrap().is_clean());
}

#[test]
fn snapshot_state_matches_the_map_after_a_refused_commit() {
    let array = array();
    array.commit(&[take(FIRST, 0)]).unwrap();
    // These take and remove snapshots, and are refused at their last change.
    let nonsense = Change::RemoveVolume(VolumeId(77));
    for change in [take(SECOND, 1), Change::RemoveVolume(FIRST)] {
        refusal(&array, &[change, nonsense.clone()]);
    }
    array.commit(&[copy_up(V, 3, 20)]).unwrap();
    assert_eq!(changed(&array, FIRST, V), [3]);
    array
        .commit(&[Change::RemoveVolume(FIRST), Change::RemoveVolume(V)])
        .unwrap();
}

/// Content of the slots. A guest writes to every slot with one owner.
#[derive(Default)]
struct Contents {
    slots: BTreeMap<Location, u64>,
    written: u64,
}

impl Contents {
    fn write(&mut self, at: Location) {
        self.written += 1;
        self.slots.insert(at, self.written);
    }

    /// Does the work of an engine before it commits a change.
    fn prepare(&mut self, world: &World, change: &Change) {
        match *change {
            Change::Place { volume, extent, at } => match world.places.get(&(volume, extent)) {
                Some(from) => drop(self.slots.insert(at, self.slots[from])),
                None => self.write(at),
            },
            Change::CopyUp { at, .. } => self.write(at),
            _ => {}
        }
    }

    fn write_in_place(&mut self, world: &World, rng: &mut Rng) {
        let mut owners: BTreeMap<Location, u32> = BTreeMap::new();
        for at in world.places.values() {
            *owners.entry(*at).or_default() += 1;
        }
        for ((volume, _), at) in &world.places {
            let written = world.volumes[volume].snapshot.is_none() && owners[at] == 1;
            if written && rng.below(10) == 0 {
                self.write(*at);
            }
        }
    }

    fn of(&self, world: &World, volume: VolumeId, extent: u32) -> u64 {
        let place = world.places.get(&(volume, extent));
        place.map_or(0, |at| self.slots[at])
    }
}

/// More seeds: `TERRACE_SEEDS=0..20000 cargo test --release -p array snapshots::`.
#[test]
fn extents_reported_as_unchanged_are_unchanged() {
    let (mut differ, mut said, mut pairs) = (0, 0, 0);
    let count = seeds::run(0..60, |seed| {
        let mut rng = Rng::new(seed, 8);
        let array = Array::create_on(CrashDisk::new(0), ID, EXTENT).unwrap();
        let (mut world, mut contents) = (World::default(), Contents::default());
        for _ in 0..40 {
            let (changes, next) = world.commit(&mut rng);
            array.commit(&changes).unwrap();
            for change in changes {
                contents.prepare(&world, &change);
                world.apply(&change);
            }
            assert!(world.same(&next));
            contents.write_in_place(&world, &mut rng);
            for states in world.families() {
                for (n, to) in states.iter().enumerate() {
                    let placed = world.places.range((*to, 0)..=(*to, u32::MAX));
                    let placed: Vec<u32> = placed.map(|((_, extent), _)| *extent).collect();
                    assert_eq!(changed(&array, None, *to), placed);
                    for from in &states[..n] {
                        let found = changed(&array, *from, *to);
                        let found: BTreeSet<u32> = found.into_iter().collect();
                        let extents = world.volumes[to].extents(EXTENT) as u32;
                        let of = |state, extent| contents.of(&world, state, extent);
                        let different = (0..extents).filter(|e| of(*from, *e) != of(*to, *e));
                        for extent in different {
                            differ += 1;
                            assert!(found.contains(&extent), "{from:?} {to:?} {extent}");
                        }
                        said += found.len();
                        pairs += extents as usize;
                    }
                }
            }
        }
        assert!(World::read(&array).unwrap().same(&world));
        assert!(array.check().unwrap().is_clean());
        Ok(())
    });
    println!("{differ} differ, {said} are said to, of {pairs}");
    // Some extents count as unchanged.
    if count == 60 {
        assert!(differ > 1000 && said < pairs / 2, "{differ} {said} {pairs}");
    }
}
