//! State of an array at one moment: places, and counters that only increase.

use model::{DeviceSpec, ExtentRanges, IoFailure};

use super::{ExtentsSnapshot, ReuseSnapshot};
use crate::wire::{
    ArrayProblem, Bound, DeviceIoCounts, FailedIo, HandMove, Load, MovingWindow, Placed, Throttle,
    VolumeSample,
};

/// State of the whole array.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Names of tiers, fastest first.
    pub tiers: Vec<String>,
    /// Devices, in the array's order.
    pub devices: Vec<DeviceSnapshot>,
    /// Volumes, in the array's order.
    pub volumes: Vec<VolumeSnapshot>,
    /// Problems that the array reports.
    pub problems: Vec<ArrayProblem>,
    /// L2 cache of the array, present or ended.
    pub second: Option<SecondSnapshot>,
}

/// L2 cache of an array.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecondSnapshot {
    /// Number of its remedy ([`super::AgentAction::UseNode`]); none for an L2 cache of an operator.
    pub answer: Option<u64>,
    /// True if its device responds.
    pub ready: bool,
    /// Cause of its end, if it has ended.
    pub ended: Option<String>,
}

impl SecondSnapshot {
    /// Returns true for an L2 cache in use that an operator has ordered.
    pub fn is_by_hand(&self) -> bool {
        self.answer.is_none() && self.ended.is_none()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSnapshot {
    /// Unique in its array.
    pub name: String,
    pub tier: String,
    pub size_bytes: u64,
    /// Used bytes.
    pub used_bytes: u64,
    /// Emulated device.
    pub emulate: Option<DeviceSpec>,
    /// True if it is reachable.
    pub connected: bool,
    /// Path or URI on its host; name of the storage in a cluster.
    pub place: Option<String>,
    /// Node of a cluster that alone reaches it; none if all do.
    pub node: Option<String>,
    /// Begin of its counters: another value means that they were reset.
    pub since_ns: u64,
    /// I/O since the begin of the counters.
    pub io: DeviceIoCounts,
    /// Failed I/Os since the begin of the counters, by kind and errno.
    pub errors: Vec<FailedIo>,
}

impl DeviceSnapshot {
    /// I/O since an earlier snapshot; none if the counters were reset.
    pub fn io_since(&self, earlier: &DeviceSnapshot) -> Option<DeviceIoCounts> {
        (self.since_ns == earlier.since_ns)
            .then(|| self.io.since(&earlier.io))
            .flatten()
    }
}

impl DeviceSnapshot {
    /// Failed I/Os since an earlier snapshot; all if the counters were reset.
    pub fn errors_since(&self, earlier: &DeviceSnapshot) -> Vec<FailedIo> {
        let same = self.since_ns == earlier.since_ns;
        let before = |e: &FailedIo| {
            let of_kind = |o: &&FailedIo| o.op == e.op && o.errno == e.errno;
            let old = earlier.errors.iter().find(of_kind).filter(|_| same);
            old.map_or(0, |o| o.count)
        };
        let more = self.errors.iter().map(|e| FailedIo {
            count: e.count.saturating_sub(before(e)),
            ..e.clone()
        });
        more.filter(|e| e.count > 0).collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeSnapshot {
    /// Unique in its array.
    pub name: String,
    /// Service class.
    pub class: String,
    /// Size that the guest sees.
    pub size_bytes: u64,
    /// Tier for new extents.
    pub home: String,
    /// Bytes by device, without empty devices.
    pub placed: Vec<Placed>,
    /// Node of a cluster that its virtual machine runs on.
    pub node: Option<String>,
    /// True if it is served, complete and can be moved.
    pub movable: bool,
    /// Reason for which the agent cannot move it.
    pub bound: Option<Bound>,
    /// Move by hand, on hosts of virtual machines.
    pub by_hand: Option<HandMove>,
    /// Throttle by a [`super::AgentAction::Throttle`], with the time left.
    pub throttle: Option<Throttle>,
    /// Running move.
    pub moving: Option<MovingWindow>,
    /// End of the last move, if known.
    pub last_move: Option<MoveEnd>,
    /// Request counters; none if it is not measured.
    pub counts: Option<Counts>,
    /// Cache in memory, if any.
    pub cache: Option<CacheSnapshot>,
    /// True if it can have a mirror.
    pub can_mirror: bool,
    /// Mirror, complete or being created.
    pub mirror: Option<MirrorSnapshot>,
    /// Reuse distances of its pages, if requested ([`super::Agent::wanted_reuse`]).
    pub reuse: Option<ReuseSnapshot>,
    /// Extents, if requested ([`super::Agent::wanted_extents`]).
    pub extents: Option<ExtentsSnapshot>,
}

impl VolumeSnapshot {
    /// Returns true if all data is on a device; an empty volume is on its home tier.
    pub fn is_on(&self, device: &str, tier: &str) -> bool {
        self.moving.is_none()
            && self.home == tier
            && self
                .placed
                .iter()
                .all(|p| p.device == device || p.bytes == 0)
    }

    /// Measurements for remedies since an earlier snapshot; none if they were not counted all the time.
    pub fn sample_since(&self, earlier: &VolumeSnapshot) -> Option<VolumeSample> {
        let (now, old) = (self.counts.as_ref()?, earlier.counts.as_ref()?);
        let same = now.since_ns == old.since_ns;
        let both = now.sample.as_ref().zip(old.sample.as_ref());
        both.filter(|_| same).and_then(|(now, old)| now.since(old))
    }

    /// Load since an earlier snapshot; none if it was not measured all the time.
    pub fn load_since(&self, earlier: &VolumeSnapshot) -> Option<Load> {
        let (now, old) = (self.counts.as_ref()?, earlier.counts.as_ref()?);
        (now.since_ns == old.since_ns)
            .then(|| now.total.since(&old.total))
            .flatten()
    }
}

/// Cache in memory of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSnapshot {
    /// Number of the cache.
    pub pool: u32,
    /// Size of the cache.
    pub pool_bytes: u64,
    /// Size of a page.
    pub page_bytes: u64,
    /// True if volumes can have shares of it.
    pub in_parts: bool,
    /// Share that an operator has set.
    pub given_bytes: Option<u64>,
    /// Share by a [`super::AgentAction::LendCache`], with the time left, nanoseconds.
    pub lent: Option<(u64, u64)>,
}

/// Mirror of a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorSnapshot {
    /// Device of the mirror.
    pub device: String,
    /// Mirrored extents; none means all.
    pub extents: Option<ExtentRanges>,
    /// Mirrored bytes.
    pub bytes: u64,
    /// Share of the reads that the mirror serves, 0..=1; 0 while it is created.
    pub read_share: f64,
    /// Time left, nanoseconds, of a mirror by a [`super::AgentAction::Mirror`]; none for an operator's mirror.
    pub left_ns: Option<u64>,
}

/// Counters of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Begin of the counters: another value means that they were reset.
    pub since_ns: u64,
    /// Load since the begin of the counters.
    pub total: Load,
    /// Measurements for remedies since the begin of the counters, with the requests that are queued now; none if they are not
    /// counted.
    pub sample: Option<VolumeSample>,
}

/// End of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveEnd {
    /// All data is on the target.
    Done {
        /// Bytes copied, including repeated copies.
        copied_bytes: u64,
    },
    /// Cancelled; switched extents stay on the target.
    Stopped {
        why: String,
        copied_bytes: u64,
        /// Failed I/O, if any.
        failed_io: Option<IoFailure>,
    },
}
