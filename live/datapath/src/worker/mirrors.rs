//! Mirrors: second copies of the extents that guests read most.

use std::borrow::Cow;

use model::{ExtentRanges, IoFailure};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use units::{Bytes, Nanos, VolumeId};

use super::Worker;
use super::messages::outside;
use super::volumes::LiveVolume;
use crate::engine::{MirrorEnd, MirrorRefusal, MoveOrder, StopReason};
use crate::error::{DatapathError, Result};

/// Extents with second copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MirrorProgress {
    /// Device of the second copies.
    pub to: String,
    /// Extents of the order; none for the whole volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<ExtentRanges>,
    /// Number of bytes that have or will have a second copy.
    pub bytes: Bytes,
    /// Number of copied bytes, including repeated copies.
    pub copied: Bytes,
    /// Share of the reads of mirrored extents that go to the second copy, 0..=1.
    pub read_share: f64,
    /// Number of reads by the first copy since the second copy has been complete.
    pub reads_first: u64,
    /// Number of reads by the second copy.
    pub reads_second: u64,
    pub phase: Cow<'static, str>,
    /// Time until the mirror ends, unless it is renewed; none without a time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Nanos>,
}

/// End of a mirror.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastMirror {
    /// Reason; includes the failed I/O.
    pub why: String,
    /// Number of copied bytes, including repeated copies.
    pub copied: Bytes,
    /// Failed I/O, if one is the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<IoFailure>,
}

impl Worker {
    /// Returns the mirror of a volume, if it has one.
    pub(super) fn mirroring(&self, live: &LiveVolume) -> Option<MirrorProgress> {
        let status = live.engine.mirror_status()?;
        let [reads_first, reads_second] = status.reads;
        let device = self.devices[status.to.index()].as_ref();
        Some(MirrorProgress {
            to: device.expect("places are on known devices").name.clone(),
            extents: status.extents,
            bytes: status.bytes,
            copied: status.copied,
            read_share: status.share,
            reads_first,
            reads_second,
            phase: Cow::Borrowed(status.phase),
            left: live
                .mirror_until_ns
                .map(|until_ns| Nanos(until_ns.saturating_sub(self.now_ns))),
        })
    }

    pub(super) fn start_mirror(
        &mut self,
        volume: VolumeId,
        order: MoveOrder,
        lasting: Option<Nanos>,
    ) -> Result<()> {
        let others = self.others(volume.index(), order.to);
        let now_ns = self.now_ns;
        let to = self.devices.get(order.to.index());
        let device = to.and_then(Option::as_ref).map(|d| d.name.clone());
        let live = self.volumes[volume.index()].as_mut();
        let live = live.expect("it was just looked at");
        outside(&order, live.engine.map())?;
        let started = live.engine.start_mirror(now_ns, order, others);
        started.map_err(|refusal| {
            let why = match refusal {
                MirrorRefusal::Moving => "the volume is moving: wait, or cancel the move first",
                MirrorRefusal::Mirrored => {
                    "the volume is already mirrored, or its last mirror is still being deleted"
                }
            };
            DatapathError::Busy(why.into())
        })?;
        live.mirror_until_ns = lasting.map(|lasting| now_ns.saturating_add(lasting.0));
        info!(volume = live.name, device, "mirror started");
        self.carry_out(volume.0);
        Ok(())
    }

    /// Extends the time of a mirror that was made by the same order with a time limit.
    pub(super) fn renew_mirror(
        &mut self,
        volume: VolumeId,
        order: &MoveOrder,
        lasting: Nanos,
    ) -> Result<()> {
        let live = self.volumes[volume.index()].as_mut();
        let live = live.expect("it was just looked at");
        match &mut live.mirror_until_ns {
            Some(until_ns) if live.engine.keeps_mirror(order) => {
                *until_ns = self.now_ns.saturating_add(lasting.0);
                Ok(())
            }
            _ => Err(DatapathError::Refused(
                "the volume has no such temporary mirror".into(),
            )),
        }
    }

    /// Stops a mirror with a time limit. A mirror that an operator has ordered stays.
    pub(super) fn stop_lent_mirror(&mut self, volume: VolumeId) -> Result<()> {
        let live = self.volumes[volume.index()].as_ref();
        match live.is_some_and(|live| live.mirror_until_ns.is_some()) {
            true => self.stop_mirror(volume, StopReason::MadeWay("the end of a remedy")),
            false => Err(DatapathError::Refused(
                "the volume has no temporary mirror".into(),
            )),
        }
    }

    /// Stops mirrors whose time is over. Runs at each tick.
    pub(super) fn end_old_mirrors(&mut self) {
        let now_ns = self.now_ns;
        for volume in 0..self.volumes.len() {
            let Some(live) = &mut self.volumes[volume] else {
                continue;
            };
            if live.mirror_until_ns.is_some_and(|until| until <= now_ns) {
                live.engine
                    .stop_mirror(now_ns, StopReason::MadeWay("the end of its duration"));
                self.carry_out(volume as u32);
            }
        }
    }

    pub(super) fn stop_mirror(&mut self, volume: VolumeId, why: StopReason) -> Result<()> {
        let live = self.volumes[volume.index()].as_mut();
        let live = live.expect("it was just looked at");
        if !live.engine.stop_mirror(self.now_ns, why) {
            return Err(DatapathError::Refused("the volume is not mirrored".into()));
        }
        self.carry_out(volume.0);
        Ok(())
    }

    pub(super) fn mirror_ended(&mut self, volume: u32, end: MirrorEnd) {
        let failed = end.why.and_then(StopReason::failure);
        let failed = failed.map(|failure| self.failed_io(failure));
        let why = match (&end.why, &failed) {
            (None, _) => "nothing to mirror".to_owned(),
            (Some(why), Some(io)) => format!("{why} ({io})"),
            (Some(why), None) => why.to_string(),
        };
        let live = self.volumes[volume as usize].as_mut();
        let live = live.expect("it was mirrored");
        let (volume, copied) = (live.name.as_str(), end.copied);
        match &failed {
            None => info!(volume, %copied, why, "mirror ended"),
            Some(io) => {
                let (device, errno) = (&io.device, &io.errno);
                warn!(volume, device, errno, %copied, why, "mirror stopped");
            }
        }
        (live.mirror_until_ns, live.copy) = (None, None);
        live.last_mirror = Some(LastMirror {
            why,
            copied,
            failed,
        });
    }
}
