//! Naive oracle of the map: its content after each commit, and random valid commits.

use std::collections::{BTreeMap, BTreeSet};

use algo::Rng;
use array::{
    Array, ArrayError, ArrayId, Change, DeviceKind, DeviceRecord, Health, MoveRecord, SnapshotOf,
    TierRecord, VolumeRecord,
};
use model::DirectIo;
use units::{Bytes, BytesPerSec, DeviceId, TierId, VolumeId};
use volume::Location;

pub const ID: ArrayId = ArrayId(*b"sixteen bytes id");
pub const EXTENT: Bytes = Bytes(64 << 10);

/// Content that can be read from a map.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct World {
    pub tiers: BTreeMap<TierId, TierRecord>,
    pub devices: BTreeMap<DeviceId, DeviceRecord>,
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    pub places: BTreeMap<(VolumeId, u32), Location>,
    pub moves: BTreeMap<VolumeId, MoveRecord>,
    /// For each state of a volume with snapshots: extents that may differ from the state before.
    pub changed: BTreeMap<VolumeId, BTreeSet<u32>>,
    /// Ids are not reused.
    pub volumes_made: u32,
}

impl World {
    /// Reads the content of a map.
    pub fn read(array: &Array) -> Result<Self, ArrayError> {
        let mut world = Self::default();
        let all = array.tiers()?;
        world.tiers = all.into_iter().map(|r| (r.id, r)).collect();
        let all = array.devices()?;
        world.devices = all.into_iter().map(|r| (r.id, r)).collect();
        let all = array.volumes()?;
        world.volumes = all.into_iter().map(|r| (r.id, r)).collect();
        let all = array.moves()?;
        world.moves = all.into_iter().map(|r| (r.volume, r)).collect();
        for (id, record) in &world.volumes {
            let places = array.places(*id)?;
            assert_eq!(places.len() as u64, record.extents(EXTENT));
            for (extent, at) in places.iter().enumerate() {
                if let Some(at) = at {
                    world.places.insert((*id, extent as u32), *at);
                }
            }
        }
        for states in world.families() {
            for pair in states.windows(2) {
                let changed = array.changed_between(Some(pair[0]), pair[1])?;
                world.changed.insert(pair[1], changed.into_iter().collect());
            }
        }
        Ok(world)
    }

    /// Compares two maps without regard to created and removed objects.
    pub fn same(&self, other: &World) -> bool {
        self.seen() == other.seen()
    }

    /// Returns the part that can be read.
    fn seen(&self) -> World {
        let mut seen = World {
            changed: BTreeMap::new(),
            volumes_made: 0,
            ..self.clone()
        };
        for states in self.families() {
            for state in &states[1..] {
                let extents = self.volumes[state].extents(EXTENT);
                let changed = self.changed.get(state).into_iter().flatten();
                let inside = changed.filter(|e| u64::from(**e) < extents).copied();
                seen.changed.insert(*state, inside.collect());
            }
        }
        seen
    }

    /// Returns the states of each volume with snapshots, in order of time.
    pub fn families(&self) -> Vec<Vec<VolumeId>> {
        let with_snapshots = self.volumes.keys().map(|id| self.states(*id));
        with_snapshots.filter(|states| states.len() > 1).collect()
    }

    /// Returns the snapshots of a volume in order of time, then the volume.
    fn states(&self, volume: VolumeId) -> Vec<VolumeId> {
        let of =
            |r: &VolumeRecord| Some((r.snapshot.filter(|s| s.volume == volume)?.sequence, r.id));
        let snapshots: BTreeSet<(u32, VolumeId)> = self.volumes.values().filter_map(of).collect();
        let ids = snapshots.into_iter().map(|s| s.1);
        ids.chain([volume]).collect()
    }

    fn newest(&self, volume: VolumeId) -> Option<VolumeId> {
        self.states(volume).into_iter().rev().nth(1)
    }

    fn mark(&mut self, volume: VolumeId, extent: u32) {
        if self.newest(volume).is_some() {
            self.changed.entry(volume).or_default().insert(extent);
        }
    }

    /// Marks each extent as changed whose place differs from that in the newest snapshot.
    fn compare_with_newest(&mut self, volume: VolumeId) {
        let Some(newest) = self.newest(volume) else {
            return;
        };
        for extent in 0..1000 {
            let of = |state| self.places.get(&(state, extent));
            if of(volume) != of(newest) {
                self.mark(volume, extent);
            }
        }
    }

    fn copy_places(&mut self, from: VolumeId, to: VolumeId) {
        self.places.retain(|(volume, _), _| *volume != to);
        let copied = self.places.range((from, 0)..=(from, u32::MAX));
        let copied: Vec<_> = copied.map(|((_, e), at)| ((to, *e), *at)).collect();
        self.places.extend(copied);
    }

    fn remove(&mut self, id: VolumeId) {
        if let Some(of) = self.volumes[&id].snapshot {
            let states = self.states(of.volume);
            let at = states.iter().position(|s| *s == id).unwrap();
            let was_newest = self.newest(of.volume) == Some(id);
            let said = self.changed.remove(&id).unwrap_or_default();
            self.changed.entry(states[at + 1]).or_default().extend(said);
            self.volumes.remove(&id);
            if was_newest {
                self.compare_with_newest(of.volume);
            }
            if self.newest(of.volume).is_none() {
                self.changed.remove(&of.volume);
            }
        }
        self.volumes.remove(&id);
        self.places.retain(|(volume, _), _| *volume != id);
        self.moves.remove(&id);
    }

    fn restore(&mut self, id: VolumeId) {
        let snapshot = self.volumes[&id].clone();
        let volume = snapshot.family();
        self.copy_places(id, volume);
        let record = self.volumes.get_mut(&volume).unwrap();
        (record.size, record.health) = (snapshot.size, snapshot.health);
        let states = self.states(volume);
        let at = states.iter().position(|s| *s == id).unwrap();
        let later = states[at + 1..states.len() - 1].iter();
        let said = later.flat_map(|s| self.changed.get(s).cloned().unwrap_or_default());
        let said = said.collect();
        self.changed.insert(volume, said);
        self.compare_with_newest(volume);
    }

    pub fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::AddTier(r) => drop(self.tiers.insert(r.id, r)),
            Change::AddDevice(r) => drop(self.devices.insert(r.id, r)),
            Change::HighWater { device, slots } => {
                let mark = &mut self.devices.get_mut(&device).unwrap().high_water;
                *mark = slots.max(*mark);
            }
            Change::AddVolume(r) | Change::SetVolume(r) => {
                self.volumes_made = self.volumes_made.max(r.id.0 + 1);
                let (id, size) = (r.id, r.size);
                let before = self.volumes.insert(id, r).map_or(size, |r| r.size);
                let end = before.0.min(size.0);
                if before != size && end % EXTENT.0 > 0 {
                    self.mark(id, (end / EXTENT.0) as u32);
                }
            }
            Change::TakeSnapshot(r) => {
                self.volumes_made = self.volumes_made.max(r.id.0 + 1);
                self.copy_places(r.family(), r.id);
                let said = self.changed.remove(&r.family()).unwrap_or_default();
                self.changed.insert(r.id, said);
                self.volumes.insert(r.id, r);
            }
            Change::RestoreSnapshot(id) => self.restore(id),
            Change::RemoveVolume(id) => self.remove(id),
            Change::Place { volume, extent, at } => {
                self.places.insert((volume, extent), at);
                let of = self.volumes[&volume].family();
                if of == volume || self.newest(of) == Some(volume) {
                    self.mark(of, extent);
                }
            }
            Change::CopyUp { volume, extent, at } => {
                self.places.insert((volume, extent), at);
                self.mark(volume, extent);
            }
            Change::Vacate { volume, extent } => {
                self.places.remove(&(volume, extent));
                self.mark(volume, extent);
            }
            Change::SetMove(r) => drop(self.moves.insert(r.volume, r)),
            Change::ClearMove(id) => drop(self.moves.remove(&id)),
            Change::RemoveDevice(id) => drop(self.devices.remove(&id)),
            Change::SetDevice(r) => drop(self.devices.insert(r.id, r)),
            Change::RemoveTier(id) => drop(self.tiers.remove(&id)),
            other => unreachable!("it is not made here: {other:?}"),
        }
    }

    /// Returns a valid list of changes, and the world after it.
    pub fn commit(&self, rng: &mut Rng) -> (Vec<Change>, World) {
        let mut next = self.clone();
        let count = [1, 2, 5, 40][rng.below(4) as usize];
        let mut changes = vec![];
        for _ in 0..1 + rng.below(count) {
            for change in next.some_change(rng) {
                next.apply(&change);
                changes.push(change);
            }
        }
        (changes, next)
    }

    fn some_change(&self, rng: &mut Rng) -> Vec<Change> {
        if self.tiers.is_empty() || self.tiers.len() < 5 && rng.below(40) == 0 {
            return vec![Change::AddTier(tier(self.tiers.len() as u16))];
        }
        if self.devices.is_empty() || self.devices.len() < 6 && rng.below(30) == 0 {
            let record = device(
                self.devices.len() as u16,
                rng.below(self.tiers.len() as u64) as u16,
            );
            return vec![Change::AddDevice(record)];
        }
        let is_volume = |r: &&VolumeRecord| r.snapshot.is_none();
        let volumes = self.volumes.values().filter(is_volume).count();
        if volumes == 0 || volumes < 8 && rng.below(15) == 0 {
            let record = volume(self.volumes_made, 1 + rng.below(200));
            return vec![Change::AddVolume(record)];
        }
        let id = pick(self.volumes.keys(), rng);
        let to = pick(self.devices.keys(), rng);
        let extents = self.volumes[&id].extents(EXTENT);
        let extent = rng.below(extents) as u32;
        let record = &self.volumes[&id];
        let snapshots = self.states(id).len() - 1;
        let is_snapshot = record.snapshot.is_some();
        match rng.below(56) {
            0 if snapshots > 0 => vec![],
            0 => vec![Change::RemoveVolume(id)],
            40..43 if !is_snapshot && snapshots < 4 => {
                let newest = self.newest(id).and_then(|s| self.volumes[&s].snapshot);
                let sequence = newest.map_or(0, |s| s.sequence + 1 + rng.below(3) as u32);
                let snapshot = self.volumes_made;
                vec![Change::TakeSnapshot(snapshot_of(
                    record, snapshot, sequence,
                ))]
            }
            40..45 if is_snapshot => vec![Change::RemoveVolume(id)],
            45.. if is_snapshot && !self.moves.contains_key(&record.family()) => {
                vec![Change::RestoreSnapshot(id)]
            }
            40.. if !is_snapshot => self.some_copy_up(id, to, rng).unwrap_or_default(),
            40.. => vec![],
            1..4 => {
                let mut record = self.volumes[&id].clone();
                record.class = format!("class {}", rng.below(9));
                if !is_snapshot {
                    record.size = Bytes(record.size.0 + rng.below(2) * EXTENT.0);
                }
                vec![Change::SetVolume(record)]
            }
            4..7 => vec![Change::SetMove(MoveRecord {
                volume: id,
                to,
                bandwidth: BytesPerSec(rng.next_u64()),
                extents: (rng.below(2) == 0).then(|| {
                    let some = (0..extent).filter(|_| rng.below(3) == 0);
                    model::ExtentRanges::from_sorted(
                        some.collect::<Vec<_>>().into_iter().chain([extent]),
                    )
                }),
            })],
            7..9 => vec![Change::ClearMove(id)],
            9..14 if is_snapshot => vec![],
            9..14 => vec![Change::Vacate { volume: id, extent }],
            _ if is_snapshot && !self.places.contains_key(&(id, extent)) => vec![],
            _ => self.some_place(id, extent, to, rng).unwrap_or_default(),
        }
    }

    /// Gives another place to one of the extents that have a place.
    fn some_copy_up(&self, id: VolumeId, to: DeviceId, rng: &mut Rng) -> Option<Vec<Change>> {
        let placed = self.places.range((id, 0)..=(id, u32::MAX));
        let placed: Vec<u32> = placed.map(|((_, extent), _)| *extent).collect();
        if placed.is_empty() {
            return None;
        }
        let extent = pick(placed.iter(), rng);
        let mut changes = self.some_place(id, extent, to, rng)?;
        for change in &mut changes {
            if let Change::Place { volume, extent, at } = *change {
                *change = Change::CopyUp { volume, extent, at };
            }
        }
        Some(changes)
    }

    /// Returns an unused place and the mark that it needs, before or after it.
    fn some_place(
        &self,
        volume: VolumeId,
        extent: u32,
        device: DeviceId,
        rng: &mut Rng,
    ) -> Option<Vec<Change>> {
        let slot = rng.below(self.devices[&device].slots.into()) as u32;
        let at = Location { device, slot };
        if self.places.values().any(|p| *p == at) {
            return None;
        }
        let mut changes = vec![Change::Place { volume, extent, at }];
        if slot >= self.devices[&device].high_water {
            let slots = slot + 1;
            let mark = Change::HighWater { device, slots };
            changes.insert(rng.below(2) as usize, mark);
        }
        Some(changes)
    }
}

fn pick<'a, T: Copy + 'a>(mut all: impl ExactSizeIterator<Item = &'a T>, rng: &mut Rng) -> T {
    let n = rng.below(all.len() as u64) as usize;
    *all.nth(n).unwrap()
}

pub fn tier(id: u16) -> TierRecord {
    TierRecord {
        id: TierId(id),
        name: format!("tier {id}"),
    }
}

pub fn device(id: u16, tier: u16) -> DeviceRecord {
    let slots = 300 + u32::from(id);
    let kind = [DeviceKind::File, DeviceKind::Block, DeviceKind::Nbd][usize::from(id % 3)];
    DeviceRecord {
        id: DeviceId(id),
        tier: TierId(tier),
        name: format!("device {id}"),
        kind,
        path: format!("somewhere/{id}"),
        slots,
        high_water: if kind == DeviceKind::File { 0 } else { slots },
        emulate: (id % 2 == 1).then(|| model::preset("pm953").unwrap().spec()),
        direct: [DirectIo::Off, DirectIo::On, DirectIo::Auto][usize::from(id % 3)],
    }
}

pub fn volume(id: u32, extents: u64) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(id),
        name: format!("volume {id}"),
        size: Bytes(extents * EXTENT.0 - 512),
        home: TierId(0),
        class: "default".into(),
        logical_block: 512,
        health: Health::Whole,
        snapshot: None,
        source: None,
    }
}

/// Returns a snapshot of the present state of a volume.
pub fn snapshot_of(of: &VolumeRecord, id: u32, sequence: u32) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(id),
        name: format!("snapshot {id}"),
        snapshot: Some(SnapshotOf {
            volume: of.id,
            sequence,
            taken_s: 1_700_000_000 + u64::from(id),
        }),
        ..of.clone()
    }
}
