//! Orders to move a volume, or some of its extents: what is checked before they are durable.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use array::{Change, DeviceRecord, MOVE_RANGES_MAX, MoveRecord, VolumeRecord};
use model::ExtentRanges;
use units::{Bytes, BytesPerSec, TierId, VolumeId};

use super::volumes::record_of;
use super::{ControlAnswer, ControlServer, Result, done, refused, tier_name, tier_named};
use crate::engine::{MoveOrder, Purpose};
use crate::keeper::Keeper;
use crate::text::unknown;
use crate::worker::{Answer, Question};

#[derive(Debug)]
pub(super) struct MoveGoal {
    pub(super) tier: String,
    /// The device of that tier; the one with most room if left out.
    pub(super) device: Option<String>,
    /// The extents; all, if left out.
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

/// A move of a volume is being ordered.
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
    /// The number of its ranges of extents, where an order does not take so many.
    pub(super) fn wrong_ranges(&self) -> Option<usize> {
        let ranges = self.extents.as_ref().map(|e| e.ranges().len());
        ranges.filter(|r| !(1..=MOVE_RANGES_MAX).contains(r))
    }
}

pub(super) const UNEXPECTED: &str = "unexpected reply of its worker";

impl ControlServer {
    pub(super) fn start_move(
        &self,
        name: &str,
        goal: MoveGoal,
        bandwidth: BytesPerSec,
    ) -> Result<ControlAnswer> {
        if bandwidth.0 == 0 {
            return Err("the bandwidth of a move must be above 0".into());
        }
        if let Some(ranges) = goal.wrong_ranges() {
            return Err(format!(
                "a move takes 1 to {MOVE_RANGES_MAX} ranges of extents, not {ranges}: use several moves, one after the other"
            ));
        }
        let id = self.volume(name)?.id;
        let _ordering = self.ordering_alone(id)?;
        // The volume is asked by its number: its name may come to be another's.
        let order = |question| {
            let answer = self.ask_worker(id, question);
            answer.map_err(|why| format!("volume {name:?}: {why}"))
        };
        let Answer::Status(status) = order(Question::Status)? else {
            return Err(UNEXPECTED.into());
        };
        if let Some(moving) = &status.moving {
            return Err(format!(
                "the volume is already moving: {} left",
                moving.left
            ));
        }
        if status.mirror.is_some() {
            self.without_mirror(id, "a move");
        }
        let done_line = match &goal.extents {
            None => format!("started to move volume {name} to {goal}"),
            Some(e) => format!(
                "started to move {} extent(s) of volume {name} to {goal}",
                e.count()
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
            return Err(UNEXPECTED.into());
        };
        let record = MoveRecord {
            volume: id,
            to: wanted.to,
            bandwidth,
            extents: wanted.extents.clone(),
        };
        self.with_keeper(move |keeper| begin(keeper, &target, need, record))??;
        let begun = self.tell_worker(id, Question::Move(wanted));
        begun.map_err(|why| format!("volume {name:?}: {why}"))?;
        done(done_line)
    }

    /// Nobody else orders a move of this volume until what is returned is dropped.
    pub(super) fn ordering_alone(&self, volume: VolumeId) -> Result<Ordering<'_>> {
        let all = &self.ordering;
        let first = all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(volume);
        first
            .then(|| Ordering { all, volume })
            .ok_or_else(|| "another order to move the volume is in progress: try again".into())
    }
}

/// Makes a move durable, if there is room for it.
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
        return Err(format!(
            "device {:?} has {free} free, the {what} needs {need}",
            target.name
        ));
    }
    let volume = record_of(keeper, record.volume)?;
    let volume = match record.extents {
        None => VolumeRecord {
            home: target.tier,
            ..volume
        },
        // Some extents are no reason for others, which are written first later on, to follow them.
        Some(_) => volume,
    };
    let changes = [Change::SetVolume(volume.clone()), Change::SetMove(record)];
    keeper.commit(&changes).map_err(refused)?;
    keeper.volumes.insert(volume.id, volume);
    Ok(())
}

/// The device that a move goes to.
pub(super) fn target<'a>(
    keeper: &'a Keeper,
    tier: &str,
    device: Option<&str>,
) -> Result<&'a DeviceRecord> {
    let tier = tier_named(keeper, tier)?;
    match device {
        Some(name) => device_of(keeper, tier, name),
        None => roomiest(keeper, tier).ok_or_else(|| "the tier has no usable device".into()),
    }
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
            "device {name:?} belongs to tier {:?}, not to {:?}",
            tier_name(keeper, device.tier),
            tier_name(keeper, tier)
        )),
        None => {
            let of_tier = keeper.records.values().filter(|d| d.tier == tier);
            Err(unknown("device", name, of_tier.map(|d| d.name.as_str())))
        }
    }
}
