//! A naive oracle of the map: what it must hold after each commit, and random commits that are valid.

use std::collections::BTreeMap;

use algo::Rng;
use array::{
    Array, ArrayError, ArrayId, Change, DeviceKind, DeviceRecord, Health, MoveRecord, TierRecord,
    VolumeRecord,
};
use model::DirectIo;
use units::{Bytes, BytesPerSec, DeviceId, TierId, VolumeId};
use volume::Location;

pub const ID: ArrayId = ArrayId(*b"sixteen bytes id");
pub const EXTENT: Bytes = Bytes(64 << 10);

/// Everything that can be read from a map.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct World {
    pub tiers: BTreeMap<TierId, TierRecord>,
    pub devices: BTreeMap<DeviceId, DeviceRecord>,
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    pub places: BTreeMap<(VolumeId, u32), Location>,
    pub moves: BTreeMap<VolumeId, MoveRecord>,
    /// Ids are not used again.
    pub volumes_made: u32,
}

impl World {
    /// What a map holds.
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
        Ok(world)
    }

    /// The same map, whatever was made and removed again.
    pub fn same(&self, other: &World) -> bool {
        let made = self.volumes_made;
        *self
            == World {
                volumes_made: made,
                ..other.clone()
            }
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
                self.volumes.insert(r.id, r);
            }
            Change::RemoveVolume(id) => {
                self.volumes.remove(&id);
                self.places.retain(|(volume, _), _| *volume != id);
                self.moves.remove(&id);
            }
            Change::Place { volume, extent, at } => {
                self.places.insert((volume, extent), at);
            }
            Change::Vacate { volume, extent } => {
                self.places.remove(&(volume, extent));
            }
            Change::SetMove(r) => drop(self.moves.insert(r.volume, r)),
            Change::ClearMove(id) => drop(self.moves.remove(&id)),
            Change::RemoveDevice(id) => drop(self.devices.remove(&id)),
            Change::SetDevice(r) => drop(self.devices.insert(r.id, r)),
            Change::RemoveTier(id) => drop(self.tiers.remove(&id)),
            other => unreachable!("it is not made here: {other:?}"),
        }
    }

    /// A valid list of changes, and the world after it.
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
        if self.volumes.is_empty() || self.volumes.len() < 8 && rng.below(15) == 0 {
            let record = volume(self.volumes_made, 1 + rng.below(200));
            return vec![Change::AddVolume(record)];
        }
        let id = pick(self.volumes.keys(), rng);
        let to = pick(self.devices.keys(), rng);
        let extents = self.volumes[&id].extents(EXTENT);
        let extent = rng.below(extents) as u32;
        match rng.below(40) {
            0 => vec![Change::RemoveVolume(id)],
            1..4 => {
                let mut record = self.volumes[&id].clone();
                record.class = format!("class {}", rng.below(9));
                record.size = Bytes(record.size.0 + rng.below(2) * EXTENT.0);
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
            9..14 => vec![Change::Vacate { volume: id, extent }],
            _ => self.some_place(id, extent, to, rng).unwrap_or_default(),
        }
    }

    /// A place nobody has, with the mark that it needs, before or after it.
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
    let kind = [DeviceKind::File, DeviceKind::Block, DeviceKind::BareNbd][usize::from(id % 3)];
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
        health: Health::Whole,
    }
}
