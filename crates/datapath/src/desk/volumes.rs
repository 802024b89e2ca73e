//! Volumes: made, shown, moved, deleted.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::mpsc::channel;

use array::{Change, DeviceRecord, Health, MoveRecord, VolumeRecord};
use units::{Bytes, BytesPerSec, TierId, VolumeId};

use super::{
    Desk, Result, SECTOR_BYTES, Told, VolumeInfo, done, home_of, refused, text, tier_name,
    tier_named, unknown_volume,
};
use crate::engine::MoveOrder;
use crate::keeper::Keeper;
use crate::text::unknown;
use crate::worker::{Answer, Message, Question, VolumeStatus};

impl Desk {
    pub(super) fn volumes(&self, only: Option<String>) -> Result<Told> {
        let wanted = only.clone();
        let found = self.with_keeper(move |keeper| -> Result<_> {
            let moves = keeper.array.moves().map_err(text)?;
            let mut all = vec![];
            for volume in keeper.volumes.values() {
                if wanted.as_ref().is_some_and(|w| *w != volume.name) {
                    continue;
                }
                all.push((volume.id, info(keeper, volume, &moves)?));
            }
            if let (Some(wanted), true) = (&wanted, all.is_empty()) {
                return Err(unknown_volume(keeper, wanted));
            }
            Ok(all)
        })??;
        let mut volumes = vec![];
        for (id, mut info) in found {
            if let Ok(Answer::Status(status)) = self.ask_worker(id, Question::Status) {
                info.exported = true;
                info.status = Some(*status);
            }
            volumes.push(info);
        }
        Ok(Told::Volumes { volumes })
    }

    pub(super) fn create(
        &self,
        name: String,
        size: Bytes,
        tier: String,
        class: String,
    ) -> Result<Told> {
        if size.0 == 0 || size.0 > i64::MAX as u64 {
            return Err(format!("a volume has between 1 byte and 8 EiB, not {size}"));
        }
        if !size.0.is_multiple_of(SECTOR_BYTES) {
            return Err(format!(
                "the size of a volume is a multiple of {SECTOR_BYTES} bytes, {size} is not"
            ));
        }
        let told = name.clone();
        self.with_keeper(move |keeper| -> Result<()> {
            if keeper.volumes.values().any(|v| v.name == name) {
                return Err(format!("there is a volume {name:?} already"));
            }
            let home = tier_named(keeper, &tier)?;
            let id = keeper.volumes.keys().last().map_or(0, |v| v.0 + 1);
            let record = VolumeRecord {
                id: VolumeId(id),
                name,
                size,
                home,
                class,
                health: Health::Whole,
            };
            keeper
                .commit(&[Change::AddVolume(record.clone())])
                .map_err(refused)?;
            keeper.volumes.insert(record.id, record);
            Ok(())
        })??;
        if self.server.is_some() {
            self.export(&told)?;
        }
        done(format!("volume {told} of {size} is there"))
    }

    pub(super) fn delete(&self, name: &str) -> Result<Told> {
        let id = self.volume(name)?.id;
        if let Ok(Answer::Status(status)) = self.ask_worker(id, Question::Status)
            && status.moving.is_some()
        {
            return Err(format!(
                "volume {name:?} is being moved: `terrace volume cancel {name}` first"
            ));
        }
        if let Some(server) = &self.server {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let registry = server.shared.registry.clone();
            let entry = registry.remove(name);
            let worker = server.workers[home_of(id, server.workers.len())].clone();
            drop(server);
            let (answer, answered) = channel();
            worker.send(Message::Detach(id, answer));
            let detached = answered
                .recv()
                .map_err(|_| "its worker has ended".to_string())
                .and_then(|detached| detached);
            if let Err(why) = detached {
                registry.restore(name, entry);
                return Err(why);
            }
        }
        self.with_keeper(move |keeper| -> Result<()> {
            let places = keeper.array.extents(id).map_err(text)?;
            keeper
                .commit(&[Change::RemoveVolume(id)])
                .map_err(refused)?;
            let removed = keeper.volumes.remove(&id);
            if removed.is_none_or(|v| v.health == Health::Damaged) {
                // Another volume may have the same slots: they are only free when the map is read again.
                return Ok(());
            }
            for place in places {
                if let array::Extent::At(place) = place {
                    keeper.slots.give_back(place);
                }
            }
            Ok(())
        })??;
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.remove(&id);
        done(format!("volume {name} is gone"))
    }

    pub(super) fn set_class(&self, name: &str, class: String) -> Result<Told> {
        let id = self.volume(name)?.id;
        let told = class.clone();
        self.with_keeper(move |keeper| -> Result<()> {
            let record = VolumeRecord {
                class,
                ..record_of(keeper, id)?
            };
            let change = Change::SetVolume(record.clone());
            keeper.commit(&[change]).map_err(refused)?;
            keeper.volumes.insert(id, record);
            Ok(())
        })??;
        done(format!("volume {name} is of class {told}"))
    }

    pub(super) fn start_move(
        &self,
        name: &str,
        to: MoveGoal,
        bandwidth: BytesPerSec,
    ) -> Result<Told> {
        if bandwidth.0 == 0 {
            return Err("a move needs some bandwidth".into());
        }
        let id = self.volume(name)?.id;
        let Answer::Status(status) = self.order(name, Question::Status)? else {
            return Err("its worker answered something else".into());
        };
        let told = to.to_string();
        let order = self.with_keeper(move |keeper| -> Result<MoveOrder> {
            let target = move_target(keeper, &to, &status)?;
            let (target, home) = (target.id, target.tier);
            let record = VolumeRecord {
                home,
                ..record_of(keeper, id)?
            };
            let order = MoveRecord {
                volume: id,
                to: target,
                bandwidth,
            };
            let changes = [Change::SetVolume(record.clone()), Change::SetMove(order)];
            keeper.commit(&changes).map_err(refused)?;
            keeper.volumes.insert(id, record);
            Ok(MoveOrder {
                to: target,
                bandwidth,
            })
        })??;
        self.order(name, Question::Move(order))?;
        done(format!("volume {name} is moving to {told}"))
    }
}

/// Where a volume is to move.
#[derive(Debug)]
pub(super) struct MoveGoal {
    /// The tier.
    pub(super) tier: String,
    /// The device of that tier; the one with most room if left out.
    pub(super) device: Option<String>,
}

impl std::fmt::Display for MoveGoal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{}, device {device}", self.tier),
            None => write!(f, "{}", self.tier),
        }
    }
}

/// A volume as it is now: it may have changed, or gone, since it was looked up by its name.
fn record_of(keeper: &Keeper, id: VolumeId) -> Result<VolumeRecord> {
    let record = keeper.volumes.get(&id).cloned();
    record.ok_or_else(|| "the volume was deleted meanwhile".into())
}

/// The device that takes a whole volume.
fn move_target<'a>(
    keeper: &'a Keeper,
    to: &MoveGoal,
    status: &VolumeStatus,
) -> Result<&'a DeviceRecord> {
    if let Some(moving) = &status.moving {
        return Err(format!(
            "the volume is being moved already: {} left",
            moving.left
        ));
    }
    let tier = tier_named(keeper, &to.tier)?;
    let best = match &to.device {
        Some(name) => device_of(keeper, tier, name)?,
        None => roomiest(keeper, tier).ok_or("the tier has no device")?,
    };
    let elsewhere = status.placed.iter().filter(|(d, _)| *d != best.id.0);
    let need = elsewhere.map(|(_, bytes)| bytes).sum::<u64>();
    let free = u64::from(keeper.slots.free(best.id)) * keeper.array.extent().0;
    if need > free {
        let (free, need) = (Bytes(free), Bytes(need));
        return Err(format!(
            "device {:?} has {free} free, the volume needs {need}",
            best.name
        ));
    }
    Ok(best)
}

/// The device of a tier with most room.
fn roomiest(keeper: &Keeper, tier: TierId) -> Option<&DeviceRecord> {
    let of_tier = keeper.records.values().filter(|d| d.tier == tier);
    of_tier.max_by_key(|d| (keeper.slots.free(d.id), u16::MAX - d.id.0))
}

/// The device of a tier with this name.
fn device_of<'a>(keeper: &'a Keeper, tier: TierId, name: &str) -> Result<&'a DeviceRecord> {
    let found = keeper.records.values().find(|d| d.name == name);
    match found {
        Some(device) if device.tier == tier => Ok(device),
        Some(device) => Err(format!(
            "device {name:?} is of tier {:?}, not of {:?}",
            tier_name(keeper, device.tier),
            tier_name(keeper, tier)
        )),
        None => {
            let of_tier = keeper.records.values().filter(|d| d.tier == tier);
            Err(unknown("device", name, of_tier.map(|d| d.name.as_str())))
        }
    }
}

fn info(keeper: &Keeper, volume: &VolumeRecord, moves: &[MoveRecord]) -> Result<VolumeInfo> {
    let extent = keeper.array.extent().0;
    let mut by_tier: BTreeMap<TierId, u64> = BTreeMap::new();
    for place in keeper.array.extents(volume.id).map_err(text)? {
        if let array::Extent::At(place) = place {
            let tier = keeper.records[&place.device].tier;
            *by_tier.entry(tier).or_default() += extent;
        }
    }
    let moving = moves.iter().find(|m| m.volume == volume.id);
    Ok(VolumeInfo {
        name: volume.name.clone(),
        size: volume.size,
        allocated: Bytes(by_tier.values().sum()),
        tiers: by_tier
            .iter()
            .map(|(t, b)| (tier_name(keeper, *t), Bytes(*b)))
            .collect(),
        home: tier_name(keeper, volume.home),
        class: volume.class.clone(),
        healthy: volume.health == Health::Whole,
        exported: false,
        moving_to: moving.map(|m| tier_name(keeper, keeper.records[&m.to].tier)),
        status: None,
    })
}
