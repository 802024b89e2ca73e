//! The keeper's marks: a slot is written only when the mark above it is durable.

use std::path::Path;

use array::{
    Array, ArrayId, Change, CopyId, CopyPlace, DeviceKind, DeviceRecord, FilePlace, Health,
    Superblock, TierRecord, VolumeRecord,
};
use tempfile::TempDir;
use units::{Bytes, DeviceId, TierId, VolumeId};
use volume::Location;

use super::{AcceptLoss, FoundCopy, Host, Keeper, with_superblock};
use crate::device::{SlotSpace, Space, ZeroError, Zeroed, superblock_of};
use crate::engine::{StoreReply, StoreRequest};

const ID: ArrayId = ArrayId([7; 16]);
const VOLUME: VolumeId = VolumeId(0);
const DEVICE: DeviceId = DeviceId(0);

/// A device that can do everything.
struct Memory(Superblock);

impl SlotSpace for Memory {
    fn zero(&self, _: &[u32], _: Bytes) -> Result<(), ZeroError> {
        Ok(())
    }

    fn is_zeroing(&self) -> bool {
        false
    }

    fn zeroed_late(&self) -> Option<Zeroed> {
        None
    }

    fn hold(&self, _: u32, _: Bytes) -> Space {
        Space::Held
    }

    fn read_superblock(&self) -> Result<Superblock, String> {
        Ok(self.0)
    }

    fn write_superblock(&self, _: &Superblock) -> std::io::Result<()> {
        Ok(())
    }

    fn flush_all(&self) -> std::io::Result<()> {
        Ok(())
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
        array: place.open(),
        place: Box::new(place),
    };
    let accept = AcceptLoss::default();
    let open = |extent, records: &[DeviceRecord]| {
        let one = |r: &DeviceRecord| with_superblock(r, Memory(superblock_of(ID, extent, r)));
        records.iter().map(one).collect()
    };
    Keeper::open_with(vec![found], Host::this(), &accept, open).unwrap()
}

impl Bench {
    /// One device of eight slots, none of them ever used.
    fn new(kind: DeviceKind) -> Self {
        let dir = TempDir::new().unwrap();
        let array = Array::create(dir.path(), ID, Bytes::mib(1)).unwrap();
        let tier = TierRecord {
            id: TierId(0),
            name: "fast".into(),
        };
        let device = DeviceRecord {
            id: DEVICE,
            tier: tier.id,
            name: "fast-0".into(),
            kind,
            path: "somewhere".into(),
            slots: 8,
            high_water: if kind.begins_as_zeroes() { 0 } else { 8 },
            emulate: None,
        };
        let volume = VolumeRecord {
            id: VOLUME,
            name: "data".into(),
            size: Bytes::mib(8),
            home: tier.id,
            class: "default".into(),
            health: Health::Whole,
        };
        let changes = [
            Change::AddTier(tier),
            Change::AddDevice(device),
            Change::AddVolume(volume),
        ];
        array.commit(&changes).unwrap();
        drop(array);
        let keeper = open(dir.path());
        Self { keeper, dir }
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
            if let Change::HighWater { device, slots } = change {
                assert_eq!(*device, DEVICE);
                marks.push(*slots);
            }
        }
        let done = durable && self.keeper.commit(&changes).is_ok();
        let mut answers: Vec<_> = reply.into_iter().map(|r| (0, VOLUME, r)).collect();
        if !done {
            answers = self.keeper.undone(answers);
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
