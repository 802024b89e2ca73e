//! The keeper with devices and maps that are told what to do.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use array::{
    Array, ArrayError, ArrayId, Change, CopyHealth, CopyId, CopyPlace, DeviceKind, DeviceRecord,
    FilePlace, Fresh, Health, NotJoined, Superblock, TierRecord, VolumeRecord,
};
use crashdisk::CrashDisk;
use model::DirectIo;
use tempfile::TempDir;
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use super::{AcceptLoss, FoundCopy, Held, Host, Keeper, with_superblock};
use crate::device::{SlotSpace, Space, StampError, ZeroError, Zeroed, superblock_of};
use crate::engine::{Fault, StoreReply, StoreRequest};

const ID: ArrayId = ArrayId([7; 16]);
const VOLUME: VolumeId = VolumeId(0);
const DEVICE: DeviceId = DeviceId(0);

/// A device that can do everything, unless it is told not to.
struct Memory {
    superblock: Mutex<Superblock>,
    /// No space is there in time.
    silent: AtomicBool,
    /// Superblocks cannot be written.
    stuck: AtomicBool,
    /// Another program has overwritten the superblocks.
    overwritten: AtomicBool,
    /// Nothing can be flushed.
    unflushable: AtomicBool,
    /// Zeroing takes long; what is being zeroed.
    slow: AtomicBool,
    zeroing: Mutex<Vec<u32>>,
}

impl Memory {
    fn new(superblock: Superblock) -> Self {
        Self {
            superblock: Mutex::new(superblock),
            silent: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            overwritten: AtomicBool::new(false),
            unflushable: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            zeroing: Mutex::default(),
        }
    }
}

fn is(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

fn set(flag: &AtomicBool, to: bool) {
    flag.store(to, Ordering::Relaxed);
}

impl SlotSpace for Memory {
    fn zero(&self, slots: &[u32], _: Bytes) -> Result<(), ZeroError> {
        if !is(&self.slow) {
            return Ok(());
        }
        *self.zeroing.lock().unwrap() = slots.to_vec();
        Err(ZeroError {
            why: "it takes long".into(),
            flush: false,
            late: true,
        })
    }

    fn is_zeroing(&self) -> bool {
        !self.zeroing.lock().unwrap().is_empty()
    }

    fn zeroed_late(&self) -> Option<Zeroed> {
        let over = self.is_zeroing() && !is(&self.slow);
        over.then(|| (std::mem::take(&mut *self.zeroing.lock().unwrap()), Ok(())))
    }

    fn may_hold(&self) -> bool {
        true
    }

    fn hold(&self, _: u32, _: Bytes) -> Space {
        match is(&self.silent) {
            true => Space::NotInTime,
            false => Space::Held,
        }
    }

    fn read_superblock(&self) -> Result<Superblock, String> {
        Ok(*self.superblock.lock().unwrap())
    }

    fn write_superblock(&self, superblock: &Superblock) -> Result<(), StampError> {
        if is(&self.overwritten) {
            let now = "an ext4 file system".into();
            return Err(StampError::Overwritten { now });
        }
        // One that is stuck has it all the same, late.
        *self.superblock.lock().unwrap() = *superblock;
        match is(&self.stuck) {
            true => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            false => Ok(()),
        }
    }

    fn flush_all(&self) -> std::io::Result<()> {
        match is(&self.unflushable) {
            true => Err(std::io::Error::other("it cannot be flushed")),
            false => Ok(()),
        }
    }
}

/// A place for a copy of the map, on a disk that can stop.
#[derive(Debug, Clone)]
struct OnDisk(CrashDisk);

impl CopyPlace for OnDisk {
    fn name(&self) -> String {
        "a disk".into()
    }

    fn look(&self) -> Result<Array, ArrayError> {
        Array::look_on(self.0.clone())
    }

    fn open(&self) -> Result<Array, ArrayError> {
        Array::open_on(self.0.clone())
    }

    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<Fresh, ArrayError> {
        let array = Array::create_on(self.0.clone(), id, extent)?;
        let put = Box::new(|| Ok(()));
        Ok(Fresh { array, put })
    }
}

struct Bench {
    keeper: Keeper<Memory>,
    dir: TempDir,
}

fn open(dir: &Path) -> Keeper<Memory> {
    let place = FilePlace(dir.join(array::MAP_FILE));
    let found = FoundCopy {
        copy: CopyId::First,
        array: place.look(),
        place: Box::new(place),
    };
    let accept = AcceptLoss::default();
    let open = |extent, records: &[DeviceRecord]| {
        let one = |r: &DeviceRecord| with_superblock(Memory::new(superblock_of(ID, extent, r)));
        records.iter().map(one).collect()
    };
    Keeper::open_with(vec![found], Host::this(), &accept, open).unwrap()
}

impl Bench {
    /// One device of eight slots, none of them ever used.
    fn new(kind: DeviceKind) -> Self {
        Self::with(kind, 1)
    }

    /// So many devices, each in a tier of its own.
    fn with(kind: DeviceKind, devices: u16) -> Self {
        let dir = TempDir::new().unwrap();
        let array = Array::create(dir.path(), ID, Bytes::mib(1)).unwrap();
        let mut changes = vec![];
        for number in 0..devices {
            let tier = TierId(number);
            changes.push(Change::AddTier(TierRecord {
                id: tier,
                name: format!("tier{number}"),
            }));
            changes.push(Change::AddDevice(DeviceRecord {
                id: DeviceId(number),
                tier,
                name: format!("tier{number}-0"),
                kind,
                path: format!("somewhere/{number}"),
                slots: 8,
                high_water: if kind.begins_as_zeroes() { 0 } else { 8 },
                emulate: None,
                direct: DirectIo::Off,
            }));
        }
        let volume = VolumeRecord {
            id: VOLUME,
            name: "data".into(),
            size: Bytes::mib(8),
            home: TierId(0),
            class: "default".into(),
            logical_block: 512,
            health: Health::Whole,
            snapshot: None,
            source: None,
        };
        changes.push(Change::AddVolume(volume));
        array.commit(&changes).unwrap();
        drop(array);
        let keeper = open(dir.path());
        Self { keeper, dir }
    }

    /// Serves it, with a second copy of the map that is up to date; its disk.
    fn serve_with_second_copy(&mut self) -> CrashDisk {
        let disk = CrashDisk::new(0);
        let place = Box::new(OnDisk(disk.clone()));
        self.keeper
            .map
            .add(CopyId::Second, place, None, "it is new");
        self.keeper.begin_serving().unwrap();
        for _ in 0..2 {
            self.keeper.look_at_copies(true);
        }
        let health = self.keeper.map.health();
        assert!(health.iter().all(|h| h.2 == CopyHealth::Member));
        assert_eq!(health.len(), 2);
        disk
    }

    /// Asks for a place as a worker does; whether there is an answer.
    fn answered(&mut self, extent: u32) -> bool {
        let (extents, prefer) = (vec![extent], None);
        let request = StoreRequest::Place { extents, prefer };
        !self.keeper.carry_out(vec![(0, VOLUME, request)]).is_empty()
    }

    /// Generations that devices carry.
    fn generations(&self) -> Vec<u64> {
        let of = |d: &std::sync::Arc<Memory>| d.superblock.lock().unwrap().stamp.generation;
        self.keeper.devices.values().map(of).collect()
    }

    /// The process ends, and another one begins.
    fn restarted(self) -> Self {
        let Self { keeper, dir } = self;
        drop(keeper);
        let keeper = open(dir.path());
        Self { keeper, dir }
    }

    /// Asks for something; the marks that were committed with it, and the answer.
    fn ask(&mut self, request: StoreRequest, durable: bool) -> (Vec<u32>, Option<StoreReply>) {
        let mut changes = vec![];
        let reply = self.keeper.prepare(0, VOLUME, request, &mut changes);
        let mut marks = vec![];
        for change in &changes {
            if let Change::HighWater { device, slots } = change
                && *device == DEVICE
            {
                marks.push(*slots);
            }
        }
        let done = durable && self.keeper.commit(&changes).is_ok();
        let mut answers: Vec<_> = reply.into_iter().map(|r| (0, VOLUME, r)).collect();
        if !done {
            answers = self.keeper.undone(answers, Fault::Io);
        }
        (marks, answers.pop().map(|answer| answer.2))
    }

    fn place(&mut self, extents: &[u32], durable: bool) -> (Vec<u32>, Option<StoreReply>) {
        let extents = extents.to_vec();
        let prefer = None;
        self.ask(StoreRequest::Place { extents, prefer }, durable)
    }

    fn reserve(&mut self, count: usize) -> (Vec<u32>, Vec<u32>) {
        let device = DEVICE;
        match self.ask(StoreRequest::Reserve { device, count }, true) {
            (marks, Some(StoreReply::Reserved(Ok(slots)))) => {
                (marks, slots.iter().map(|s| s.slot).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    fn give_back(&mut self, slots: &[u32]) {
        let at = |slot: &u32| Location {
            device: DEVICE,
            slot: *slot,
        };
        let slots = slots.iter().map(at).collect();
        assert_eq!(self.ask(StoreRequest::Free { slots }, true).1, None);
    }

    fn device(&self, number: u16) -> &Memory {
        &self.keeper.devices[&DeviceId(number)]
    }

    /// Places an extent; on which device.
    fn placed(&mut self, extent: u32) -> Option<u16> {
        match self.place(&[extent], true).1 {
            Some(StoreReply::Placed { places, .. }) => Some(places.unwrap()[0].device.0),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    fn mark(&self) -> u32 {
        self.keeper.records[&DEVICE].high_water
    }
}

fn slots_of(reply: Option<StoreReply>) -> Vec<u32> {
    match reply {
        Some(StoreReply::Placed { places, .. }) => places.unwrap().iter().map(|p| p.slot).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slot_that_was_never_used_comes_with_its_mark() {
    let mut bench = Bench::new(DeviceKind::File);
    let (marks, reply) = bench.place(&[0, 1], true);
    assert_eq!((marks, slots_of(reply)), (vec![1, 2], vec![0, 1]));
    assert_eq!(bench.mark(), 2);
    let mut bench = bench.restarted();
    assert_eq!(bench.mark(), 2, "it is durable");
    let (marks, reply) = bench.place(&[2], true);
    assert_eq!((marks, slots_of(reply)), (vec![3], vec![2]));
}

#[test]
fn a_slot_below_the_mark_needs_none() {
    let mut bench = Bench::new(DeviceKind::File);
    let (marks, slots) = bench.reserve(3);
    assert_eq!((marks, slots), (vec![3], vec![0, 1, 2]), "the highest one");
    bench.give_back(&[0, 1, 2]);
    let (marks, _) = bench.reserve(2);
    assert!(marks.is_empty());
    bench.give_back(&[0, 1]);
    bench.keeper.clean_a_little();
    let (marks, reply) = bench.place(&[0], true);
    assert_eq!((marks, slots_of(reply).len()), (vec![], 1));
    assert_eq!(bench.mark(), 3);
}

#[test]
fn a_mark_that_did_not_become_durable_is_asked_for_again() {
    let mut bench = Bench::new(DeviceKind::File);
    let (marks, reply) = bench.place(&[0, 1], false);
    assert_eq!(marks, [1, 2]);
    let failed = matches!(reply, Some(StoreReply::Placed { places: Err(_), .. }));
    assert!(failed, "{reply:?}");
    assert_eq!(bench.mark(), 0);
    // Both slots are free again, and clean: not new to the allocator, but above the mark on disk.
    bench.keeper.clean_a_little();
    let (marks, reply) = bench.place(&[0, 1], true);
    let mut slots = slots_of(reply);
    slots.sort_unstable();
    assert_eq!(slots, [0, 1]);
    assert_eq!(marks.iter().max(), Some(&2), "{marks:?}");
    assert_eq!(bench.restarted().mark(), 2);
}

#[test]
fn a_mark_of_a_commit_that_is_refused_is_none() {
    let mut bench = Bench::new(DeviceKind::File);
    let mark = Change::HighWater {
        device: DEVICE,
        slots: 4,
    };
    let missing = Change::ClearMove(VolumeId(9));
    assert!(bench.keeper.commit(&[mark, missing]).is_err());
    assert_eq!(bench.mark(), 0);
    assert_eq!(bench.place(&[0], true).0, [1]);
}

#[test]
fn a_device_that_may_hold_anything_is_marked_from_the_start() {
    let mut bench = Bench::new(DeviceKind::Block);
    assert!(bench.reserve(2).0.is_empty());
    let (marks, _) = bench.place(&[0], true);
    assert_eq!((marks, bench.mark()), (vec![], 8));
}

#[test]
fn a_device_that_does_not_answer_is_passed_over() {
    let mut bench = Bench::with(DeviceKind::File, 2);
    assert_eq!(bench.placed(0), Some(0));
    set(&bench.device(0).silent, true);
    assert_eq!(bench.placed(1), Some(1));
    // It is not asked again at once.
    set(&bench.device(0).silent, false);
    assert_eq!(bench.placed(2), Some(1));
    // But if there is no other.
    set(&bench.device(1).silent, true);
    assert_eq!(bench.placed(3), Some(0));
    assert_eq!(bench.placed(4), Some(0), "and from then on as before");
}

#[test]
fn a_place_waits_for_a_device_where_no_other_has_room() {
    let mut bench = Bench::new(DeviceKind::File);
    set(&bench.device(0).silent, true);
    assert_eq!(bench.placed(0), None, "no answer yet");
    assert!(bench.keeper.place_waiting().is_empty());
    set(&bench.device(0).silent, false);
    let mut answers = bench.keeper.place_waiting();
    let (worker, volume, reply) = answers.pop().unwrap();
    assert_eq!((worker, volume), (0, VOLUME));
    assert_eq!(slots_of(Some(reply)).len(), 1);
    assert!(answers.is_empty() && bench.keeper.place_waiting().is_empty());
    let places = bench.keeper.map.places(VOLUME).unwrap();
    assert!(places[0].is_some(), "it is durable");
    // Nobody waits for a place of a volume that is gone.
    set(&bench.device(0).silent, true);
    assert_eq!(bench.placed(1), None);
    bench.keeper.volumes.clear();
    assert!(bench.keeper.place_waiting().is_empty());
    assert_eq!(bench.keeper.slots.free(DEVICE), 7);
}

fn place(extent: u32) -> Vec<(usize, VolumeId, StoreRequest)> {
    let (extents, prefer) = (vec![extent], None);
    vec![(0, VOLUME, StoreRequest::Place { extents, prefer })]
}

/// The slots in the only answer.
fn one_placed(mut answers: Vec<(usize, VolumeId, StoreReply)>) -> Vec<u32> {
    let slots = slots_of(answers.pop().map(|a| a.2));
    assert!(answers.is_empty());
    slots
}

#[test]
fn a_place_waits_while_it_is_not_known_whether_a_commit_is_durable() {
    let mut bench = Bench::new(DeviceKind::File);
    let (extents, places) = (vec![7], Err(Fault::Io));
    bench.keeper.held = Some(Held {
        durable: Some(true),
        changes: vec![],
        answers: vec![(0, VOLUME, StoreReply::Placed { extents, places })],
    });
    assert!(bench.keeper.carry_out(place(0)).is_empty(), "no error yet");
    assert!(bench.keeper.place_waiting().is_empty());
    // What was held is answered as before.
    assert_eq!(bench.keeper.settle().len(), 1);
    assert_eq!(one_placed(bench.keeper.place_waiting()), [0]);
    let places = bench.keeper.map.places(VOLUME).unwrap();
    assert!(places[0].is_some(), "it is durable");
}

#[test]
fn a_map_that_is_left_alone_for_a_while_fails_no_write() {
    let mut bench = Bench::new(DeviceKind::File);
    let keeper = &mut bench.keeper;
    keeper.map_failing = Some("it was slow".into());
    keeper.pause_if_failing();
    assert!(keeper.carry_out_or_pause(place(0)).is_empty());
    // Once it can be written it is not left alone any more.
    keeper.map_failing = None;
    assert_eq!(one_placed(keeper.carry_out_or_pause(place(1))), [0]);
    assert_eq!(one_placed(keeper.place_waiting()), [1]);
}

#[test]
fn slots_that_may_be_zeroed_late_are_nobodys() {
    let mut bench = Bench::new(DeviceKind::File);
    let (_, all) = bench.reserve(7);
    bench.give_back(&all[..3]);
    set(&bench.device(0).slow, true);
    bench.keeper.clean_a_little();
    assert!(bench.device(0).is_zeroing());
    let (_, reply) = bench.place(&[0], true);
    assert_eq!(slots_of(reply), [7]);
    // There is nothing else: neither as a place nor for a move.
    let count = 1;
    let device = DEVICE;
    let (_, reply) = bench.ask(StoreRequest::Reserve { device, count }, true);
    assert_eq!(reply, Some(StoreReply::Reserved(Err(Fault::NoSpace))));
    assert_eq!(bench.placed(1), None, "it waits");
    // Its end is heard of.
    set(&bench.device(0).slow, false);
    let answers = bench.keeper.place_waiting();
    let (_, _, reply) = answers.into_iter().next().unwrap();
    assert_eq!(slots_of(Some(reply)), [0]);
}

/// A device of a start that cannot be stamped; it has the stamp all the same, later.
fn stuck_at_the_start() -> (Bench, Superblock) {
    let mut bench = Bench::with(DeviceKind::File, 2);
    let found = *bench.device(1).superblock.lock().unwrap();
    assert!(found.flushed);
    let stuck = bench.keeper.devices[&DeviceId(1)].clone();
    set(&stuck.stuck, true);
    bench.keeper.begin_serving().unwrap();
    assert!(!bench.keeper.devices.contains_key(&DeviceId(1)));
    let late = *stuck.superblock.lock().unwrap();
    assert!(!late.flushed && late.stamp != found.stamp);
    (bench, late)
}

#[test]
fn a_device_that_no_guest_used_is_taken_when_it_answers() {
    let (mut bench, late) = stuck_at_the_start();
    let id = DeviceId(1);
    assert!(!bench.keeper.lost[&id].in_use);
    // Once more it cannot be stamped: no guest has used it for that.
    let again = Memory::new(late);
    set(&again.stuck, true);
    assert!(bench.keeper.join(id, (again, late), false).is_err());
    assert!(!bench.keeper.lost[&id].in_use);
    let late = Memory::new(late);
    let found = late.read_superblock().unwrap();
    bench.keeper.join(id, (late, found), false).unwrap();
    // From here on guests may have written to it.
    let used = *bench.device(1).superblock.lock().unwrap();
    bench.keeper.lose(id, "it fails".into());
    assert!(bench.keeper.lost[&id].in_use);
    let older = (Memory::new(found), found);
    let refused = bench.keeper.join(id, older, false).unwrap_err();
    assert!(refused.contains("an older copy"), "{refused}");
    let generation = Some(NotJoined::Generation {
        found: found.stamp,
        expected: used.stamp,
    });
    assert_eq!(bench.keeper.lost[&id].refused, generation);
    // Its guests were told that writes may be lost.
    bench
        .keeper
        .join(id, (Memory::new(used), used), false)
        .unwrap();
    assert!(bench.keeper.devices.contains_key(&id));
}

#[test]
fn device_overwritten_in_use_is_not_taken_back_without_consent() {
    let mut bench = Bench::with(DeviceKind::File, 2);
    bench.keeper.begin_serving().unwrap();
    let id = DeviceId(1);
    let used = *bench.device(1).superblock.lock().unwrap();
    set(&bench.device(1).overwritten, true);
    bench.keeper.renew().unwrap();
    let back = || (Memory::new(used), used);
    assert!(bench.keeper.join(id, back(), false).is_err());
    bench.keeper.join(id, back(), true).unwrap();
}

#[test]
fn device_with_unflushed_writes_is_taken_back_if_guests_were_told() {
    let (mut bench, late) = stuck_at_the_start();
    let id = DeviceId(1);
    let before = bench.keeper.unstamped.get_mut(&id).unwrap();
    (before.flushed, before.boot) = (false, late.boot);
    bench.keeper.lost.get_mut(&id).unwrap().unflushed = false;
    let refused = bench.keeper.join(id, (Memory::new(late), late), false);
    assert!(refused.is_err());
    let lost = bench.keeper.lost.get_mut(&id).unwrap();
    assert_eq!(lost.refused, Some(NotJoined::Unflushed));
    lost.unflushed = true;
    bench
        .keeper
        .join(id, (Memory::new(late), late), false)
        .unwrap();
}

#[test]
fn a_device_that_was_given_up_meanwhile_is_not_taken() {
    let (mut bench, late) = stuck_at_the_start();
    let id = DeviceId(1);
    let record = bench.keeper.records.get_mut(&id).unwrap();
    record.kind = DeviceKind::Gone;
    let back = (Memory::new(late), late);
    let refused = bench.keeper.join(id, back, true);
    assert_eq!(refused, Err("an operator accepted its loss".into()));
}

#[test]
fn a_commit_of_one_copy_alone_is_answered_when_the_devices_know() {
    let mut bench = Bench::with(DeviceKind::File, 3);
    let disk = bench.serve_with_second_copy();
    assert!(bench.answered(0));
    let before = bench.generations();
    disk.stop();
    assert!(bench.answered(1));
    let after = bench.generations();
    assert!(after.iter().zip(&before).all(|(a, b)| a > b), "{after:?}");

    // Where they cannot be told, nobody hears that it is durable.
    let mut bench = Bench::with(DeviceKind::File, 3);
    let disk = bench.serve_with_second_copy();
    disk.stop();
    (0..3).for_each(|d| set(&bench.device(d).stuck, true));
    assert!(!bench.answered(0));
    assert!(bench.keeper.is_held() && bench.keeper.settle().is_empty());
}

#[test]
fn a_device_that_cannot_be_flushed_at_the_end_is_not_said_to_be() {
    let mut bench = Bench::with(DeviceKind::File, 2);
    bench.keeper.begin_serving().unwrap();
    let devices = bench.keeper.devices.clone();
    set(&bench.device(1).unflushable, true);
    bench.keeper.close();
    let flushed = |d| devices[&DeviceId(d)].superblock.lock().unwrap().flushed;
    assert_eq!((flushed(0), flushed(1)), (true, false));
    assert!(bench.keeper.lost.contains_key(&DeviceId(1)));
}

#[test]
fn device_overwritten_while_served_is_lost_and_not_stamped_at_the_stop() {
    let mut bench = Bench::with(DeviceKind::File, 3);
    bench.keeper.begin_serving().unwrap();
    let devices = bench.keeper.devices.clone();
    // Before a stamp: other devices are stamped, and guests no longer use this one.
    set(&bench.device(1).overwritten, true);
    bench.keeper.renew().unwrap();
    let lost = &bench.keeper.lost[&DeviceId(1)];
    assert!(lost.overwritten && lost.in_use, "{lost:?}");
    assert!(lost.why.contains("an ext4 file system"), "{lost:?}");
    // Before the orderly stop.
    set(&bench.device(2).overwritten, true);
    bench.keeper.close();
    assert!(bench.keeper.lost[&DeviceId(2)].overwritten);
    let flushed = |d| devices[&DeviceId(d)].superblock.lock().unwrap().flushed;
    assert_eq!((flushed(0), flushed(2)), (true, false));
}

#[test]
fn a_stamp_that_a_lost_device_carries_never_comes_to_hold() {
    let mut bench = Bench::with(DeviceKind::File, 3);
    let disk = bench.serve_with_second_copy();
    let first = bench.keeper.devices[&DEVICE].clone();
    disk.stop();
    // Too few can be told of the membership that is proposed then; one of them is.
    (1..3).for_each(|d| set(&bench.device(d).stuck, true));
    assert!(!bench.answered(0));
    let carried = first.superblock.lock().unwrap().stamp;
    let pending = bench.keeper.map.state().pending;
    assert_eq!(pending.map(|p| p.stamp), Some(carried));
    // It is lost before the membership holds, and would look as if it had been there.
    bench.keeper.lose(DEVICE, "it fails".into());
    bench.keeper.accepts_map = true;
    bench.keeper.renew().unwrap();
    assert_ne!(bench.keeper.map.state().confirmed.stamp, carried);
}
