//! Tests of the keeper with simulated devices and maps.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use array::{
    Array, ArrayError, ArrayId, Change, CopyHealth, CopyId, CopyPlace, DeviceKind, DeviceRecord,
    FilePlace, Health, JoinError, NewMap, Superblock, TierRecord, VolumeRecord,
};
use crashdisk::CrashDisk;
use model::DirectIo;
use tempfile::TempDir;
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use super::{AcceptLoss, FoundCopy, Host, Keeper, PendingCommit, with_superblock};
use crate::device::{SlotSpace, Space, StampError, ZeroError, ZeroResult, superblock_of};
use crate::engine::{Fault, StoreReply, StoreRequest};
use crate::error::DatapathError;

const ID: ArrayId = ArrayId([7; 16]);
const VOLUME: VolumeId = VolumeId(0);
const DEVICE: DeviceId = DeviceId(0);

/// Device without faults, except for those that are switched on.
struct Memory {
    superblock: Mutex<Superblock>,
    /// True to allocate no space in time.
    silent: AtomicBool,
    /// True to fail writes of superblocks.
    stuck: AtomicBool,
    /// True to report that another program has overwritten the superblocks.
    overwritten: AtomicBool,
    /// True to fail flushes.
    unflushable: AtomicBool,
    /// True to let zeroing exceed its time limit; `zeroing` has its slots.
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

    fn zeroed_late(&self) -> Option<ZeroResult> {
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

    fn read_superblock(&self) -> Result<Superblock, DatapathError> {
        Ok(*self.superblock.lock().unwrap())
    }

    fn write_superblock(&self, superblock: &Superblock) -> Result<(), StampError> {
        if is(&self.overwritten) {
            let now = "an ext4 file system".into();
            return Err(StampError::Overwritten { now });
        }
        // A stuck device gets the superblock nevertheless, late.
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

/// Place of a copy of the map, on a disk that can stop.
#[derive(Debug, Clone)]
struct DiskPlace(CrashDisk);

impl CopyPlace for DiskPlace {
    fn name(&self) -> String {
        "a disk".into()
    }

    fn look(&self) -> Result<Array, ArrayError> {
        Array::look_on(self.0.clone())
    }

    fn open(&self) -> Result<Array, ArrayError> {
        Array::open_on(self.0.clone())
    }

    fn begin(&self, id: ArrayId, extent: Bytes) -> Result<NewMap, ArrayError> {
        let array = Array::create_on(self.0.clone(), id, extent)?;
        let put = Box::new(|| Ok(()));
        Ok(NewMap { array, put })
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
    /// Creates an array with one device of eight never used slots.
    fn new(kind: DeviceKind) -> Self {
        Self::with(kind, 1)
    }

    /// Creates an array with several devices, each in its own tier.
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

    /// Serves the array with an up-to-date second copy of the map. Returns the disk of this copy.
    fn serve_with_second_copy(&mut self) -> CrashDisk {
        let disk = CrashDisk::new(0);
        let place = Box::new(DiskPlace(disk.clone()));
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

    /// Requests a place as a worker does. Returns true if a reply arrived.
    fn answered(&mut self, extent: u32) -> bool {
        let (extents, prefer) = (vec![extent], None);
        let request = StoreRequest::Place { extents, prefer };
        !self.keeper.carry_out(vec![(0, VOLUME, request)]).is_empty()
    }

    /// Returns the generations that the devices carry.
    fn generations(&self) -> Vec<u64> {
        let of = |d: &std::sync::Arc<Memory>| d.superblock.lock().unwrap().stamp.generation;
        self.keeper.devices.values().map(of).collect()
    }

    /// Simulates the end of the process and a new start.
    fn restarted(self) -> Self {
        let Self { keeper, dir } = self;
        drop(keeper);
        let keeper = open(dir.path());
        Self { keeper, dir }
    }

    /// Sends a request. Returns the high-water marks of its commit, and the reply.
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

    /// Places an extent and returns its device.
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
fn new_slot_is_returned_after_its_mark_is_stored() {
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
fn slot_below_the_mark_needs_no_new_mark() {
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
fn unstored_mark_is_requested_again() {
    let mut bench = Bench::new(DeviceKind::File);
    let (marks, reply) = bench.place(&[0, 1], false);
    assert_eq!(marks, [1, 2]);
    let failed = matches!(reply, Some(StoreReply::Placed { places: Err(_), .. }));
    assert!(failed, "{reply:?}");
    assert_eq!(bench.mark(), 0);
    // Both slots are free and clean again: not new to the allocator, but above the durable mark.
    bench.keeper.clean_a_little();
    let (marks, reply) = bench.place(&[0, 1], true);
    let mut slots = slots_of(reply);
    slots.sort_unstable();
    assert_eq!(slots, [0, 1]);
    assert_eq!(marks.iter().max(), Some(&2), "{marks:?}");
    assert_eq!(bench.restarted().mark(), 2);
}

#[test]
fn mark_of_a_refused_commit_is_not_stored() {
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
fn block_device_is_marked_completely_from_the_start() {
    let mut bench = Bench::new(DeviceKind::Block);
    assert!(bench.reserve(2).0.is_empty());
    let (marks, _) = bench.place(&[0], true);
    assert_eq!((marks, bench.mark()), (vec![], 8));
}

#[test]
fn unresponsive_device_is_skipped_for_new_extents() {
    let mut bench = Bench::with(DeviceKind::File, 2);
    assert_eq!(bench.placed(0), Some(0));
    set(&bench.device(0).silent, true);
    assert_eq!(bench.placed(1), Some(1));
    // The device is not tried again at once.
    set(&bench.device(0).silent, false);
    assert_eq!(bench.placed(2), Some(1));
    // It is tried again if no other device has room.
    set(&bench.device(1).silent, true);
    assert_eq!(bench.placed(3), Some(0));
    assert_eq!(bench.placed(4), Some(0), "and from then on as before");
}

#[test]
fn allocation_waits_for_a_device_if_no_other_has_space() {
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
    // A request of a deleted volume is dropped.
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

/// Returns the slots of the only reply.
fn one_placed(mut answers: Vec<(usize, VolumeId, StoreReply)>) -> Vec<u32> {
    let slots = slots_of(answers.pop().map(|a| a.2));
    assert!(answers.is_empty());
    slots
}

#[test]
fn allocation_waits_while_durability_of_a_commit_is_unknown() {
    let mut bench = Bench::new(DeviceKind::File);
    let (extents, places) = (vec![7], Err(Fault::Io));
    bench.keeper.held = Some(PendingCommit {
        durable: Some(true),
        changes: vec![],
        answers: vec![(0, VOLUME, StoreReply::Placed { extents, places })],
    });
    assert!(bench.keeper.carry_out(place(0)).is_empty(), "no error yet");
    assert!(bench.keeper.place_waiting().is_empty());
    // The held commit is acknowledged as usual.
    assert_eq!(bench.keeper.settle().len(), 1);
    assert_eq!(one_placed(bench.keeper.place_waiting()), [0]);
    let places = bench.keeper.map.places(VOLUME).unwrap();
    assert!(places[0].is_some(), "it is durable");
}

#[test]
fn paused_map_fails_no_write() {
    let mut bench = Bench::new(DeviceKind::File);
    let keeper = &mut bench.keeper;
    keeper.map_failing = Some("it was slow".into());
    keeper.pause_if_failing();
    assert!(keeper.carry_out_or_pause(place(0)).is_empty());
    // A map that can be written again is not paused any more.
    keeper.map_failing = None;
    assert_eq!(one_placed(keeper.carry_out_or_pause(place(1))), [0]);
    assert_eq!(one_placed(keeper.place_waiting()), [1]);
}

#[test]
fn slot_with_a_pending_zero_request_is_not_allocated() {
    let mut bench = Bench::new(DeviceKind::File);
    let (_, all) = bench.reserve(7);
    bench.give_back(&all[..3]);
    set(&bench.device(0).slow, true);
    bench.keeper.clean_a_little();
    assert!(bench.device(0).is_zeroing());
    let (_, reply) = bench.place(&[0], true);
    assert_eq!(slots_of(reply), [7]);
    // No other slot is free, neither for a place nor for a move.
    let count = 1;
    let device = DEVICE;
    let (_, reply) = bench.ask(StoreRequest::Reserve { device, count }, true);
    assert_eq!(reply, Some(StoreReply::Reserved(Err(Fault::NoSpace))));
    assert_eq!(bench.placed(1), None, "it waits");
    // The late end of the zeroing is received.
    set(&bench.device(0).slow, false);
    let answers = bench.keeper.place_waiting();
    let (_, _, reply) = answers.into_iter().next().unwrap();
    assert_eq!(slots_of(Some(reply)), [0]);
}

/// Returns an array with a device that could not be stamped at the start, but got the stamp later.
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
fn device_unused_by_guests_joins_when_it_responds() {
    let (mut bench, late) = stuck_at_the_start();
    let id = DeviceId(1);
    assert!(!bench.keeper.lost[&id].in_use);
    // The second stamp fails too: no guest has used the device.
    let again = Memory::new(late);
    set(&again.stuck, true);
    assert!(bench.keeper.join(id, (again, late), false).is_err());
    assert!(!bench.keeper.lost[&id].in_use);
    let late = Memory::new(late);
    let found = late.read_superblock().unwrap();
    bench.keeper.join(id, (late, found), false).unwrap();
    // From here on guests may have written to the device.
    let used = *bench.device(1).superblock.lock().unwrap();
    bench.keeper.lose(id, "it fails".into());
    assert!(bench.keeper.lost[&id].in_use);
    let older = (Memory::new(found), found);
    let refused = bench.keeper.join(id, older, false).unwrap_err().to_string();
    assert!(refused.contains("an older copy"), "{refused}");
    let generation = Some(JoinError::Generation {
        found: found.stamp,
        expected: used.stamp,
    });
    assert_eq!(bench.keeper.lost[&id].refused, generation);
    // Its guests got errors for the writes that may be lost.
    bench
        .keeper
        .join(id, (Memory::new(used), used), false)
        .unwrap();
    assert!(bench.keeper.devices.contains_key(&id));
}

#[test]
fn device_overwritten_in_use_needs_consent_to_join() {
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
fn device_with_unflushed_writes_joins_if_guests_got_errors() {
    let (mut bench, late) = stuck_at_the_start();
    let id = DeviceId(1);
    let before = bench.keeper.unstamped.get_mut(&id).unwrap();
    (before.flushed, before.boot) = (false, late.boot);
    bench.keeper.lost.get_mut(&id).unwrap().unflushed = false;
    let refused = bench.keeper.join(id, (Memory::new(late), late), false);
    assert!(refused.is_err());
    let lost = bench.keeper.lost.get_mut(&id).unwrap();
    assert_eq!(lost.refused, Some(JoinError::Unflushed));
    lost.unflushed = true;
    bench
        .keeper
        .join(id, (Memory::new(late), late), false)
        .unwrap();
}

#[test]
fn device_given_up_by_an_operator_does_not_join() {
    let (mut bench, late) = stuck_at_the_start();
    let id = DeviceId(1);
    let record = bench.keeper.records.get_mut(&id).unwrap();
    record.kind = DeviceKind::Gone;
    let back = (Memory::new(late), late);
    let refused = bench.keeper.join(id, back, true);
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "an operator accepted its loss");
}

#[test]
fn commit_to_a_single_copy_is_acknowledged_after_device_stamps() {
    let mut bench = Bench::with(DeviceKind::File, 3);
    let disk = bench.serve_with_second_copy();
    assert!(bench.answered(0));
    let before = bench.generations();
    disk.stop();
    assert!(bench.answered(1));
    let after = bench.generations();
    assert!(after.iter().zip(&before).all(|(a, b)| a > b), "{after:?}");

    // If the devices cannot be stamped, the commit is not acknowledged.
    let mut bench = Bench::with(DeviceKind::File, 3);
    let disk = bench.serve_with_second_copy();
    disk.stop();
    (0..3).for_each(|d| set(&bench.device(d).stuck, true));
    assert!(!bench.answered(0));
    assert!(bench.keeper.is_held() && bench.keeper.settle().is_empty());
}

#[test]
fn device_that_cannot_be_flushed_at_stop_is_not_stamped_as_flushed() {
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
fn device_overwritten_while_served_is_lost_and_not_stamped() {
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
fn stamp_on_a_lost_device_is_never_confirmed() {
    let mut bench = Bench::with(DeviceKind::File, 3);
    let disk = bench.serve_with_second_copy();
    let first = bench.keeper.devices[&DEVICE].clone();
    disk.stop();
    // Too few devices can be stamped for the proposed membership; one device gets the stamp.
    (1..3).for_each(|d| set(&bench.device(d).stuck, true));
    assert!(!bench.answered(0));
    let carried = first.superblock.lock().unwrap().stamp;
    let pending = bench.keeper.map.state().pending;
    assert_eq!(pending.map(|p| p.stamp), Some(carried));
    // The device is lost before the membership is confirmed, and would look as if it had been present.
    bench.keeper.lose(DEVICE, "it fails".into());
    bench.keeper.accepts_map = true;
    bench.keeper.renew().unwrap();
    assert_ne!(bench.keeper.map.state().confirmed.stamp, carried);
}
