//! Two copies of a map: commits go to both; one may fail, hang or be lost; a dropped copy is rebuilt.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a disk that hangs, and the deadline that ends a test that hangs"
)]

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use array::{
    Array, ArrayError, Change, CommitError, Copies, CopyHealth, CopyId, CopyPlace, FilePlace,
    HANG_MAX, Members, Membership, NewMap, Stamp,
};
use crashdisk::CrashDisk;
use units::{Bytes, DeviceId, VolumeId};
use volume::Location;

use crate::support::world::{EXTENT, ID, World, device, snapshot_of, tier, volume};

/// Place on a simulated disk.
#[derive(Debug, Clone)]
struct Place(Arc<Mutex<CrashDisk>>);

impl Place {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(CrashDisk::new(0))))
    }

    fn fresh(&self, disk: CrashDisk, array: Array) -> NewMap {
        let place = self.0.clone();
        let put = Box::new(move || {
            *place.lock().unwrap() = disk;
            Ok(())
        });
        NewMap { array, put }
    }

    fn disk(&self) -> CrashDisk {
        self.0.lock().unwrap().clone()
    }
}

impl CopyPlace for Place {
    fn name(&self) -> String {
        "simulated".into()
    }

    fn look(&self) -> Result<Array, ArrayError> {
        Array::look_on(self.disk())
    }

    fn open(&self) -> Result<Array, ArrayError> {
        Array::open_on(self.disk())
    }

    fn begin(&self, id: array::ArrayId, extent: Bytes) -> Result<NewMap, ArrayError> {
        let fresh = CrashDisk::new(0);
        let array = Array::create_on(fresh.clone(), id, extent)?;
        Ok(self.fresh(fresh, array))
    }
}

fn furnish(n: u32) -> Vec<Change> {
    match n {
        0 => vec![
            Change::AddTier(tier(0)),
            Change::AddDevice(device(0, 0)),
            Change::AddVolume(volume(0, 9)),
        ],
        n => vec![Change::AddVolume(volume(n, 9))],
    }
}

/// Confirms a membership of the present copies. There are no devices to stamp.
fn renew(copies: &mut Copies, generation: u64) {
    let stamp = Stamp {
        generation,
        nonce: 1,
    };
    let members = copies.members();
    let membership = Membership { stamp, members };
    let propose = Change::Propose {
        membership,
        devices: vec![],
    };
    copies.commit(&[propose]).unwrap();
    copies
        .commit(&[Change::Confirm { devices: vec![] }])
        .unwrap();
    assert!(copies.confirmed());
}

/// Returns two copies, both members.
fn two() -> (Copies, Place, Place) {
    let (a, b) = (Place::new(), Place::new());
    let array = Array::create_on(a.disk(), ID, EXTENT).unwrap();
    let mut copies = Copies::new(CopyId::First, Box::new(a.clone()), array).unwrap();
    copies.commit(&furnish(0)).unwrap();
    copies.add(CopyId::Second, Box::new(b.clone()), None, "it is new");
    copies.begin_rebuild(CopyId::Second).unwrap();
    copies.commit(&furnish(1)).unwrap(); // made again in the rebuilt copy
    assert!(copies.end_rebuild());
    assert!(!copies.confirmed());
    renew(&mut copies, 1);
    (copies, a, b)
}

fn world(place: &Place) -> World {
    let array = Array::open_on(place.disk().killed()).unwrap();
    World::read(&array).unwrap()
}

#[test]
fn both_copies_have_each_commit() {
    let (mut copies, a, b) = two();
    copies.commit(&furnish(2)).unwrap();
    assert_eq!(world(&a), world(&b));
    assert!(world(&a).volumes.contains_key(&VolumeId(2)));
    let members: Vec<bool> = copies
        .health()
        .iter()
        .map(|h| h.2 == CopyHealth::Member)
        .collect();
    assert_eq!(members, [true, true]);
}

#[test]
fn failed_copy_is_dropped_and_rebuilt() {
    let (mut copies, a, b) = two();
    a.disk().fail_once_after(3, false);
    copies.commit(&furnish(2)).unwrap();
    assert!(!copies.confirmed(), "nothing may be acknowledged yet");
    assert_eq!(
        copies.members(),
        Members {
            first: false,
            second: true
        }
    );
    renew(&mut copies, 2);
    copies.commit(&furnish(3)).unwrap();
    assert!(!world(&a).volumes.contains_key(&VolumeId(3)));
    copies.begin_rebuild(CopyId::First).unwrap();
    copies.commit(&furnish(4)).unwrap();
    assert!(copies.end_rebuild());
    renew(&mut copies, 3);
    assert_eq!(world(&a), world(&b));
    assert_eq!(world(&a).volumes.len(), 5);
}

#[test]
fn invalid_change_is_refused_by_both_copies() {
    let (mut copies, a, b) = two();
    let error = copies
        .commit(&[Change::RemoveVolume(VolumeId(9))])
        .unwrap_err();
    assert!(matches!(error, CommitError::Refused(_)), "{error:?}");
    assert!(copies.confirmed());
    assert_eq!(world(&a), world(&b));
}

#[test]
fn commit_of_unknown_outcome_is_read_back() {
    // The disk of one copy fails once, at each operation of a commit in turn, after or before the operation takes
    // effect.
    for made in [false, true] {
        let (mut durable, mut not) = (0, 0);
        for operation in 0..40 {
            let place = Place::new();
            let array = Array::create_on(place.disk(), ID, EXTENT).unwrap();
            let mut copies = Copies::new(CopyId::First, Box::new(place.clone()), array).unwrap();
            copies.commit(&furnish(0)).unwrap();
            place.disk().fail_once_after(operation, made);
            let done = copies.commit(&furnish(1));
            let there = world(&place).volumes.contains_key(&VolumeId(1));
            match done {
                Ok(()) => {
                    assert!(there);
                    durable += 1;
                }
                Err(CommitError::NotDone(_)) => {
                    assert!(!there);
                    not += 1;
                }
                Err(other) => panic!("operation {operation}: {other:?}"),
            }
            assert_eq!(copies.state().commits, 1 + u64::from(there));
            // Later commits work in any case, even if the disk failed only at the second attempt.
            if copies.commit(&furnish(2)).is_err() {
                copies.commit(&furnish(2)).unwrap();
            }
            assert!(world(&place).volumes.contains_key(&VolumeId(2)));
        }
        assert!(durable > 0 && not > 0, "{durable} {not}");
    }
}

#[test]
fn unknown_outcome_is_resolved_when_a_copy_is_readable() {
    let place = Place::new();
    let array = Array::create_on(place.disk(), ID, EXTENT).unwrap();
    let mut copies = Copies::new(CopyId::First, Box::new(place.clone()), array).unwrap();
    copies.commit(&furnish(0)).unwrap();
    let disk = place.disk();
    disk.fail_after(2);
    let error = copies.commit(&furnish(1)).unwrap_err();
    assert!(matches!(error, CommitError::InDoubt(_)), "{error:?}");
    assert_eq!(copies.resolve(), None);
    let error = copies.commit(&furnish(2)).unwrap_err();
    assert!(matches!(error, CommitError::NotDone(_)), "{error:?}");
    // The disk works again.
    *place.0.lock().unwrap() = disk.killed();
    assert_eq!(copies.resolve(), Some(false));
    copies.commit(&furnish(1)).unwrap();
    assert!(world(&place).volumes.contains_key(&VolumeId(1)));
}

/// Gate that a disk passes before it syncs. While the gate is closed, the disk hangs. A call that returns meanwhile
/// does not wait for the disk.
#[derive(Debug, Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn close(&self) {
        *self.0.0.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = false;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let closed = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(closed, |closed| *closed).unwrap());
    }
}

/// Storage on a disk that syncs only while its gate is open.
#[derive(Debug)]
struct GatedStorage {
    disk: CrashDisk,
    gate: Gate,
}

impl redb::StorageBackend for GatedStorage {
    fn len(&self) -> std::io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.gate.pass();
        self.disk.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.disk.write(offset, data)
    }
}

#[test]
fn commit_with_a_hanging_copy_returns_and_drops_the_copy() {
    let (first, second) = (Place::new(), Place::new());
    let array = Array::create_on(first.disk(), ID, EXTENT).unwrap();
    let gate = Gate::default();
    let gated = GatedStorage {
        disk: second.disk(),
        gate: gate.clone(),
    };
    let other = Array::create_on(gated, ID, EXTENT).unwrap();
    let mut copies = Copies::new(CopyId::First, Box::new(first.clone()), array).unwrap();
    copies.add(CopyId::Second, Box::new(second), Some(other), "");
    copies.run_in_threads();
    renew(&mut copies, 1);
    copies.commit(&furnish(0)).unwrap();
    gate.close();
    copies.commit(&furnish(1)).unwrap();
    assert_eq!(copies.members(), Members::FIRST);
    assert!(!copies.confirmed());
    renew(&mut copies, 2);
    assert!(world(&first).volumes.contains_key(&VolumeId(1)));
    gate.open();
}

#[test]
fn rebuilt_copy_has_snapshots_and_changed_extents() {
    let (a, b) = (Place::new(), Place::new());
    let array = Array::create_on(a.disk(), ID, EXTENT).unwrap();
    let mut copies = Copies::new(CopyId::First, Box::new(a.clone()), array).unwrap();
    copies.commit(&furnish(0)).unwrap();
    let at = |slot| Location {
        device: DeviceId(0),
        slot,
    };
    let place = |extent, slot| Change::Place {
        volume: VolumeId(0),
        extent,
        at: at(slot),
    };
    let copy_up = |extent, slot| Change::CopyUp {
        volume: VolumeId(0),
        extent,
        at: at(slot),
    };
    let take = |id, sequence| Change::TakeSnapshot(snapshot_of(&volume(0, 9), id, sequence));
    let mark = Change::HighWater {
        device: DeviceId(0),
        slots: 100,
    };
    copies
        .commit(&[mark, place(0, 0), place(1, 1), take(5, 0), copy_up(1, 2)])
        .unwrap();
    copies.add(CopyId::Second, Box::new(b.clone()), None, "it is new");
    copies.begin_rebuild(CopyId::Second).unwrap();
    // More commits arrive meanwhile.
    copies.commit(&[take(6, 1), copy_up(0, 3)]).unwrap();
    copies.commit(&[place(2, 4)]).unwrap();
    copies
        .commit(&[take(7, 2), Change::RestoreSnapshot(VolumeId(5))])
        .unwrap();
    copies.commit(&[Change::RemoveVolume(VolumeId(6))]).unwrap();
    assert!(copies.end_rebuild());
    renew(&mut copies, 1);
    copies.commit(&[copy_up(0, 9)]).unwrap();
    let first = world(&a);
    assert_eq!(first, world(&b));
    let said = |id| first.changed[&VolumeId(id)].iter().copied();
    assert_eq!(said(7).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(said(0).collect::<Vec<_>>(), [0, 1, 2]);
    // A backup has them too.
    let backup = Place::new();
    let image = Array::open_on(a.disk().killed()).unwrap().image().unwrap();
    let NewMap { array: copy, put } = image.make_in(&backup).unwrap();
    copy.commit(&[Change::SetAside]).unwrap();
    put().unwrap();
    assert_eq!(world(&backup), first);
    assert!(copy.check().unwrap().is_clean());
}

#[test]
fn slow_snapshot_commit_does_not_drop_the_copy() {
    let (mut copies, first, second) = one_and_a_gated_place();
    copies.begin_rebuild(CopyId::Second).unwrap();
    until(|| copies.end_rebuild());
    renew(&mut copies, 1);
    let snapshot = Change::TakeSnapshot(snapshot_of(&volume(0, 9), 5, 0));
    for change in [
        snapshot,
        Change::RestoreSnapshot(VolumeId(5)),
        Change::RemoveVolume(VolumeId(5)),
    ] {
        second.gate.close();
        let gate = second.gate.clone();
        let opens = std::thread::spawn(move || {
            // Longer than the limit of any other commit, and far shorter than the limit of these.
            std::thread::sleep(HANG_MAX + Duration::from_millis(200));
            gate.open();
        });
        copies.commit(&[change]).unwrap();
        assert!(copies.confirmed());
        opens.join().unwrap();
    }
    assert_eq!(world(&first), world(&second.place));
}

#[test]
fn copy_in_a_file_replaces_the_existing_file() {
    let dir = tempfile::tempdir().unwrap();
    let place = FilePlace(dir.path().join("copy.redb"));
    assert!(matches!(place.open(), Err(ArrayError::Missing { .. })));
    let source = Array::create_on(CrashDisk::new(0), ID, EXTENT).unwrap();
    source.commit(&furnish(0)).unwrap();
    for n in 1..3 {
        source.commit(&furnish(n)).unwrap();
        let image = source.image().unwrap();
        assert_eq!(image.commits, u64::from(n) + 1);
        let NewMap { array: copy, put } = image.make_in(&place).unwrap();
        put().unwrap();
        drop(copy);
        let found = place.open().unwrap();
        assert_eq!(World::read(&found).unwrap(), World::read(&source).unwrap());
        assert_eq!(found.state().unwrap(), source.state().unwrap());
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// Place on a disk that syncs only while its gate is open.
#[derive(Debug, Clone)]
struct GatedPlace {
    place: Place,
    gate: Gate,
    /// Disks of the copies that were created here.
    begun: Arc<Mutex<Vec<CrashDisk>>>,
    /// Number of copies that moved to their place. An unfinished copy holds a reference, too.
    replaced: Arc<Mutex<u32>>,
}

impl GatedPlace {
    fn new() -> Self {
        Self {
            place: Place::new(),
            gate: Gate::default(),
            begun: Arc::default(),
            replaced: Arc::default(),
        }
    }

    fn on(&self, disk: CrashDisk) -> GatedStorage {
        GatedStorage {
            disk,
            gate: self.gate.clone(),
        }
    }
}

impl CopyPlace for GatedPlace {
    fn name(&self) -> String {
        "gated".into()
    }

    fn look(&self) -> Result<Array, ArrayError> {
        self.gate.pass();
        Array::look_on(self.on(self.place.disk()))
    }

    fn open(&self) -> Result<Array, ArrayError> {
        self.gate.pass();
        Array::open_on(self.on(self.place.disk()))
    }

    fn begin(&self, id: array::ArrayId, extent: Bytes) -> Result<NewMap, ArrayError> {
        let fresh = CrashDisk::new(0);
        let array = Array::create_on(self.on(fresh.clone()), id, extent)?;
        self.begun.lock().unwrap().push(fresh.clone());
        let NewMap { array, put } = self.place.fresh(fresh, array);
        let replaced = self.replaced.clone();
        let put = Box::new(move || {
            *replaced.lock().unwrap() += 1;
            put()
        });
        Ok(NewMap { array, put })
    }
}

/// Returns one copy in use, and a place for the second one on a disk that can hang.
fn one_and_a_gated_place() -> (Copies, Place, GatedPlace) {
    let (first, second) = (Place::new(), GatedPlace::new());
    let array = Array::create_on(first.disk(), ID, EXTENT).unwrap();
    let mut copies = Copies::new(CopyId::First, Box::new(first.clone()), array).unwrap();
    copies.run_in_threads();
    copies.commit(&furnish(0)).unwrap();
    copies.add(CopyId::Second, Box::new(second.clone()), None, "it is new");
    (copies, first, second)
}

/// Waits until a condition is true. The deadline only ends a test that hangs.
fn until(mut what: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !what() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn rebuild_on_a_hanging_disk_does_not_block_commits() {
    let (mut copies, first, second) = one_and_a_gated_place();
    second.gate.close();
    copies.begin_rebuild(CopyId::Second).unwrap();
    for n in 1..100 {
        copies.commit(&furnish(n)).unwrap();
        assert!(!copies.end_rebuild(), "it cannot be there yet");
    }
    // The disk works again, and the copy gets the missed commits.
    second.gate.open();
    until(|| copies.end_rebuild());
    renew(&mut copies, 1);
    copies.commit(&furnish(100)).unwrap();
    assert_eq!(world(&first), world(&second.place));
}

#[test]
fn rebuild_that_hangs_at_its_end_does_not_replace_the_file_later() {
    let (mut copies, _, second) = one_and_a_gated_place();
    copies.begin_rebuild(CopyId::Second).unwrap();
    // The first volume may be in the image that fills the copy. The commit of the next one comes after that.
    for volume in [1, 3] {
        copies.commit(&furnish(volume)).unwrap();
        until(|| {
            let begun = second.begun.lock().unwrap().first().cloned();
            let opened = begun.and_then(|disk| Array::open_on(disk.killed()).ok());
            let world = opened.and_then(|array| World::read(&array).ok());
            world.is_some_and(|w| w.volumes.contains_key(&VolumeId(volume)))
        });
    }
    second.gate.close();
    copies.commit(&furnish(2)).unwrap();
    assert!(!copies.end_rebuild());
    let dropped = CopyHealth::Dropped {
        why: "it did not answer within a second".into(),
    };
    assert_eq!(copies.health()[1].2, dropped);
    second.gate.open();
    // After the copy has ended, two references are left: that of this test and that of the place in `copies`.
    until(|| Arc::strong_count(&second.replaced) == 2);
    assert_eq!(*second.replaced.lock().unwrap(), 0);
    // The next copy takes its place.
    copies.begin_rebuild(CopyId::Second).unwrap();
    until(|| copies.end_rebuild());
    assert_eq!(*second.replaced.lock().unwrap(), 1);
}

#[test]
fn unknown_outcome_on_hanging_disks_does_not_block() {
    let (mut copies, first, second) = one_and_a_gated_place();
    copies.begin_rebuild(CopyId::Second).unwrap();
    until(|| copies.end_rebuild());
    renew(&mut copies, 1);
    // The first disk fails for good. The second one hangs, in the commit and during the reopening.
    first.disk().fail_after(0);
    second.gate.close();
    let error = copies.commit(&furnish(1)).unwrap_err();
    assert!(matches!(error, CommitError::InDoubt(_)), "{error:?}");
    assert_eq!(copies.resolve(), None);
    second.gate.open();
    let mut said = None;
    until(|| {
        said = copies.resolve();
        said.is_some()
    });
    let durable = said == Some(true);
    let there = world(&second.place).volumes.contains_key(&VolumeId(1));
    assert_eq!(durable, there);
    assert!(!copies.members().first);
}

#[test]
fn readable_copy_is_available_while_the_other_disk_hangs() {
    let (mut copies, first, second) = one_and_a_gated_place();
    second.gate.close();
    copies.begin_rebuild(CopyId::Second).unwrap();
    // Reopening a failed copy requires that no other user of its file exists, so the disk hangs only after the fill has
    // ended.
    until(|| Arc::strong_count(&copies.reader().unwrap()) == 2);
    assert!(first.disk().len().unwrap() > 0);
    second.gate.open();
}

/// Creates a map with two current copies in files.
fn in_two_files(dir: &tempfile::TempDir) -> (Copies, [FilePlace; 2]) {
    let places = ["a", "b"].map(|name| FilePlace(dir.path().join(name)));
    let NewMap { array, put } = places[0].begin(ID, EXTENT).unwrap();
    put().unwrap();
    let mut copies = Copies::new(CopyId::First, Box::new(places[0].clone()), array).unwrap();
    copies.add(
        CopyId::Second,
        Box::new(places[1].clone()),
        None,
        "it is new",
    );
    copies.run_in_threads();
    copies.commit(&furnish(0)).unwrap();
    copies.begin_rebuild(CopyId::Second).unwrap();
    until(|| copies.end_rebuild());
    renew(&mut copies, 1);
    (copies, places)
}

/// Flips a bit in every page of a file that is not zero, except the first.
fn damage(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).unwrap();
    for page in bytes.chunks_mut(4096).skip(1) {
        if page.iter().any(|b| *b != 0) {
            page[100] ^= 1;
        }
    }
    // The bytes are replaced in place: the open file stays the same.
    let file = std::fs::File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
}

fn check(copies: &mut Copies) {
    copies.begin_check();
    until(|| copies.end_check());
}

#[test]
fn copy_with_a_damaged_file_is_dropped_if_the_other_one_is_intact() {
    // In memory, because a commit that takes a second on a busy disk would drop a copy.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (mut copies, places) = in_two_files(&dir);
    for n in 1..20 {
        copies.begin_check();
        copies.commit(&furnish(n)).unwrap(); // during the verification
        until(|| copies.end_check());
    }
    assert!(copies.confirmed(), "{:?}", copies.health());
    damage(&places[1].0);
    check(&mut copies);
    let (_, _, health) = copies.health().pop().unwrap();
    let CopyHealth::Dropped { why } = health else {
        panic!("{health:?}")
    };
    assert!(why.contains("the map is damaged"), "{why}");
    renew(&mut copies, 2);
    copies.begin_rebuild(CopyId::Second).unwrap();
    until(|| copies.end_rebuild());
    renew(&mut copies, 3);
    check(&mut copies);
    assert!(copies.confirmed() && places[1].look().is_err()); // the lock of the open copy refuses `look`
    let health = copies.health().into_iter().map(|h| h.2);
    assert!(health.eq([CopyHealth::Member, CopyHealth::Member]));
}

#[test]
fn damage_of_both_copies_is_reported_and_neither_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (mut copies, places) = in_two_files(&dir);
    places.iter().for_each(|place| damage(&place.0));
    check(&mut copies);
    for (_, _, health) in copies.health() {
        assert!(matches!(health, CopyHealth::Damaged { .. }), "{health:?}");
    }
    assert!(copies.confirmed());
}

#[test]
fn copy_with_a_removed_file_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let (mut copies, places) = in_two_files(&dir);
    // Both files are removed while the server runs; the copies are rebuilt one after the other.
    for place in &places {
        std::fs::remove_file(&place.0).unwrap();
    }
    for generation in [2, 4] {
        until(|| {
            copies.look_at_places();
            !copies.confirmed()
        });
        renew(&mut copies, generation);
        let dropped = |h: &&(CopyId, String, CopyHealth)| matches!(h.2, CopyHealth::Dropped { .. });
        let copy = copies.health().iter().find(dropped).unwrap().0;
        copies.begin_rebuild(copy).unwrap();
        until(|| copies.end_rebuild());
        renew(&mut copies, generation + 1);
    }
    copies.commit(&furnish(1)).unwrap();
    let commits = copies.state().commits;
    drop(copies);
    for place in &places {
        until(|| place.open().is_ok()); // after the end of the threads that use the file
        assert_eq!(place.open().unwrap().state().unwrap().commits, commits);
    }
}
