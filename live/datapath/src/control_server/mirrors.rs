//! Orders for mirrors. Mirrors are not durable, so the map has no record of them.

use std::thread;
use std::time::{Duration, Instant};

use array::MOVE_RANGES_MAX;
use units::{Bytes, BytesPerSec, Nanos, VolumeId, counted};

use super::moves::{MoveGoal, target, unexpected};
use super::{ControlAnswer, ControlServer, DatapathError, Result, done};
use crate::engine::{MoveOrder, Purpose};
use crate::keeper::Keeper;
use crate::worker::{Answer, Question};

/// Largest distance from the first to the last extent of a mirror. Bounds the memory of its volume: a few bytes for each 64
/// KiB between them.
pub const MIRROR_SPAN_MAX: Bytes = Bytes(256 << 30);

/// Share of a device that second copies leave free, in percent. Reserves space for new extents of guests.
const FREE_PERCENT: u64 = 10;

/// Time limit for the end of a mirror that another operation waits for. It takes milliseconds, unless a device hangs.
const ENDS_IN: Duration = Duration::from_secs(5);

impl ControlServer {
    pub(super) fn start_mirror(
        &self,
        name: &str,
        goal: MoveGoal,
        bandwidth: BytesPerSec,
        lasting: Option<Nanos>,
    ) -> Result<ControlAnswer> {
        if bandwidth.0 == 0 {
            return Err(DatapathError::Invalid(
                "the bandwidth of a mirror must be above 0".into(),
            ));
        }
        if let Some(ranges) = goal.wrong_ranges() {
            return Err(DatapathError::Invalid(format!(
                "a mirror takes 1 to {MOVE_RANGES_MAX} ranges of extents, not {ranges}"
            )));
        }
        let volume = self.volume(name)?;
        let (id, size) = (volume.id, volume.size);
        let _ordering = self.ordering_alone(id)?;
        let order = |question| {
            let answer = self.ask_worker(id, question);
            answer.map_err(|why| why.of_volume(name))
        };
        let extents = goal.extents.clone();
        let what = match &extents {
            None => format!("volume {name}"),
            Some(e) => format!("{} of volume {name}", counted(e.count(), "extent")),
        };
        let done_line = format!("started to mirror {what} on {goal}");
        let MoveGoal { tier, device, .. } = goal;
        let (target, free, total, extent) = self.with_keeper(move |keeper| -> Result<_> {
            let target = target(keeper, &tier, device.as_deref())?.clone();
            let extent = keeper.map.extent();
            let bytes = |slots: u32| Bytes(u64::from(slots) * extent.0);
            let free = bytes(keeper.slots.free(target.id));
            let total = bytes(keeper.slots.total(target.id));
            Ok((target, free, total, extent))
        })??;
        let span = match extents
            .as_ref()
            .and_then(|e| Some((e.iter().next()?, e.last()?)))
        {
            None => size,
            Some((first, last)) => Bytes(u64::from(last - first + 1) * extent.0),
        };
        if span > MIRROR_SPAN_MAX {
            return Err(DatapathError::Refused(format!(
                "a mirror spans at most {MIRROR_SPAN_MAX} of a volume, and these extents span {span}: choose extents that are closer together (`terrace volume heat` shows the most used ones)"
            )));
        }
        let wanted = MoveOrder {
            to: target.id,
            bandwidth,
            extents,
            purpose: Purpose::Mirror,
        };
        if let Some(lasting) = lasting
            && order(Question::RenewMirror(wanted.clone(), lasting)).is_ok()
        {
            return done(format!("extended the mirror of volume {name}"));
        }
        let Answer::Bytes(need) = order(Question::Elsewhere(wanted.clone()))? else {
            return Err(unexpected());
        };
        if need == Bytes::ZERO {
            return Err(DatapathError::Refused(format!(
                "nothing to mirror: all its allocated extents are already on device {:?}",
                target.name
            )));
        }
        let stays = Bytes(total.0 / 100 * FREE_PERCENT);
        if need + stays > free {
            return Err(DatapathError::Refused(format!(
                "device {:?} has {free} free, the mirror needs {need}, and {FREE_PERCENT} % of the device ({stays}) must stay free for writes of guests",
                target.name
            )));
        }
        order(Question::Mirror(wanted, lasting))?;
        done(done_line)
    }

    /// Stops the mirror of a volume, if it has one, for another operation. Its slots are free afterwards.
    pub(super) fn without_mirror(&self, id: VolumeId, why: &'static str) {
        if self
            .ask_worker(id, Question::StopMirror(Some(why)))
            .is_err()
        {
            return; // the volume has no mirror, or is not served
        }
        let until = Instant::now() + ENDS_IN;
        let mirrored = || {
            let answer = self.ask_worker(id, Question::Status);
            matches!(answer, Ok(Answer::Status(status)) if status.mirror.is_some())
        };
        while mirrored() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        // The keeper handles messages in order, so it has taken the slots back when this returns.
        let _ = self.with_keeper(|_: &mut Keeper| ());
    }
}
