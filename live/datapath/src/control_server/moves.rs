//! Orders for moves of a volume or of extents: the checks before an order is durable.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use array::{Change, DeviceRecord, MOVE_RANGES_MAX, MoveRecord, VolumeRecord};
use model::ExtentRanges;
use units::{Bytes, BytesPerSec, TierId, VolumeId, counted};

use super::volumes::record_of;
use super::{
    ControlAnswer, ControlServer, DatapathError, Result, done, refused, tier_name, tier_named,
};
use crate::engine::{MoveOrder, Purpose};
use crate::keeper::Keeper;
use crate::worker::{Answer, Question};

#[derive(Debug)]
pub(super) struct MoveGoal {
    pub(super) tier: String,
    /// Device of that tier; the one with the most space if left out.
    pub(super) device: Option<String>,
    /// Extents; all if left out.
    pub(super) extents: Option<ExtentRanges>,
}

impl std::fmt::Display for MoveGoal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{}, device {device}", self.tier),
            None => write!(f, "{}", self.tier),
        }
    }
}

/// Exclusive right to order a move of a volume, until it is dropped.
pub(super) struct Ordering<'a> {
    all: &'a Mutex<BTreeSet<VolumeId>>,
    volume: VolumeId,
}

impl Drop for Ordering<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.volume);
    }
}

impl MoveGoal {
    /// Returns the number of ranges of extents if an order cannot have this number.
    pub(super) fn wrong_ranges(&self) -> Option<usize> {
        let ranges = self.extents.as_ref().map(|e| e.ranges().len());
        ranges.filter(|r| !(1..=MOVE_RANGES_MAX).contains(r))
    }
}

pub(super) fn unexpected() -> DatapathError {
    DatapathError::Refused("unexpected reply of its worker".into())
}

impl ControlServer {
    pub(super) fn start_move(
        &self,
        name: &str,
        goal: MoveGoal,
        bandwidth: BytesPerSec,
    ) -> Result<ControlAnswer> {
        if bandwidth.0 == 0 {
            return Err(DatapathError::Invalid(
                "the bandwidth of a move must be above 0".into(),
            ));
        }
        if let Some(ranges) = goal.wrong_ranges() {
            return Err(DatapathError::Invalid(format!(
                "a move takes 1 to {MOVE_RANGES_MAX} ranges of extents, not {ranges}: use several moves, one after the other"
            )));
        }
        let id = self.volume(name)?.id;
        let _ordering = self.ordering_alone(id)?;
        // The volume is addressed by its number, because another one may get its name meanwhile.
        let order = |question| {
            let answer = self.ask_worker(id, question);
            answer.map_err(|why| why.of_volume(name))
        };
        let Answer::Status(status) = order(Question::Status)? else {
            return Err(unexpected());
        };
        if let Some(moving) = &status.moving {
            return Err(DatapathError::Busy(format!(
                "the volume is already moving: {} left",
                moving.left
            )));
        }
        if status.mirror.is_some() {
            self.without_mirror(id, "a move");
        }
        let done_line = match &goal.extents {
            None => format!("started to move volume {name} to {goal}"),
            Some(e) => format!(
                "started to move {} of volume {name} to {goal}",
                counted(e.count(), "extent")
            ),
        };
        let MoveGoal {
            tier,
            device,
            extents,
        } = goal;
        let target =
            self.with_keeper(move |keeper| target(keeper, &tier, device.as_deref()).cloned())??;
        let wanted = MoveOrder {
            to: target.id,
            bandwidth,
            extents,
            purpose: Purpose::Move,
        };
        let asked = Question::Elsewhere(wanted.clone());
        let Answer::Bytes(need) = order(asked)? else {
            return Err(unexpected());
        };
        let record = MoveRecord {
            volume: id,
            to: wanted.to,
            bandwidth,
            extents: wanted.extents.clone(),
        };
        self.with_keeper(move |keeper| begin(keeper, &target, need, record))??;
        let begun = self.tell_worker(id, Question::Move(wanted));
        begun.map_err(|why| why.of_volume(name))?;
        done(done_line)
    }

    /// Claims the right to order a move of this volume.
    pub(super) fn ordering_alone(&self, volume: VolumeId) -> Result<Ordering<'_>> {
        let all = &self.ordering;
        let first = all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(volume);
        let busy = "another order to move the volume is in progress: try again";
        first
            .then(|| Ordering { all, volume })
            .ok_or_else(|| DatapathError::Busy(busy.into()))
    }
}

/// Makes a move durable, if the target has enough space.
fn begin(
    keeper: &mut Keeper,
    target: &DeviceRecord,
    need: Bytes,
    record: MoveRecord,
) -> Result<()> {
    let free = Bytes(u64::from(keeper.slots.free(target.id)) * keeper.map.extent().0);
    if need > free {
        let what = match record.extents {
            None => "volume",
            Some(_) => "move",
        };
        return Err(DatapathError::Refused(format!(
            "device {:?} has {free} free, the {what} needs {need}",
            target.name
        )));
    }
    let volume = record_of(keeper, record.volume)?;
    let volume = match record.extents {
        None => VolumeRecord {
            home: target.tier,
            ..volume
        },
        // New extents do not follow a move of some extents, so the home stays.
        Some(_) => volume,
    };
    let changes = [Change::SetVolume(volume.clone()), Change::SetMove(record)];
    keeper.commit(&changes).map_err(refused)?;
    keeper.volumes.insert(volume.id, volume);
    Ok(())
}

/// Returns the target device of a move.
pub(super) fn target<'a>(
    keeper: &'a Keeper,
    tier: &str,
    device: Option<&str>,
) -> Result<&'a DeviceRecord> {
    let tier = tier_named(keeper, tier)?;
    match device {
        Some(name) => device_of(keeper, tier, name),
        None => roomiest(keeper, tier)
            .ok_or_else(|| DatapathError::Refused("the tier has no usable device".into())),
    }
}

/// Returns the device of a tier with the most free space.
fn roomiest(keeper: &Keeper, tier: TierId) -> Option<&DeviceRecord> {
    let of_tier = keeper.records.values().filter(|d| d.tier == tier);
    of_tier.max_by_key(|d| (keeper.slots.free(d.id), u16::MAX - d.id.0))
}

/// Returns the device of a tier with this name.
fn device_of<'a>(keeper: &'a Keeper, tier: TierId, name: &str) -> Result<&'a DeviceRecord> {
    let found = keeper.records.values().find(|d| d.name == name);
    match found {
        Some(device) if device.tier == tier => Ok(device),
        Some(device) => Err(DatapathError::Refused(format!(
            "device {name:?} belongs to tier {:?}, not to {:?}",
            tier_name(keeper, device.tier),
            tier_name(keeper, tier)
        ))),
        None => {
            let of_tier = keeper.records.values().filter(|d| d.tier == tier);
            let names = of_tier.map(|d| d.name.as_str());
            Err(DatapathError::unknown("device", name, names))
        }
    }
}
