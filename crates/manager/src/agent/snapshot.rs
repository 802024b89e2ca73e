//! An array as it is at one moment: places and counters that only rise.

use model::{DeviceSpec, ExtentRanges, IoFailure};

use super::{ExtentsSnapshot, ReuseSnapshot};
use crate::wire::{
    ArrayProblem, Bound, DeviceIoCounts, FailedIo, HandMove, Load, MovingWindow, Placed, Throttle,
    VolumeSample,
};

/// The whole array.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Names of tiers, high end first.
    pub tiers: Vec<String>,
    /// Devices, in the array's order.
    pub devices: Vec<DeviceSnapshot>,
    /// Volumes, in the array's order.
    pub volumes: Vec<VolumeSnapshot>,
    /// What is wrong with the array, as it says itself.
    pub problems: Vec<ArrayProblem>,
    /// The second level of its cache, if it has or had one.
    pub second: Option<SecondSnapshot>,
}

/// A second level of a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecondSnapshot {
    /// The answer that it is ([`super::AgentAction::UseNode`]); none where a person has ordered it.
    pub answer: Option<u64>,
    /// Whether its device answers.
    pub ready: bool,
    /// Why there is none any more.
    pub ended: Option<String>,
}

impl SecondSnapshot {
    /// Whether it is there as a person has ordered it.
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
    /// Bytes that are taken.
    pub used_bytes: u64,
    /// The device that it behaves like.
    pub emulate: Option<DeviceSpec>,
    /// Whether it can be reached.
    pub connected: bool,
    /// Where it is on its host.
    pub place: Option<String>,
    /// When its counters began: another number means that they began again.
    pub since_ns: u64,
    /// I/O since then.
    pub io: DeviceIoCounts,
    /// I/Os that failed since then, by kind and errno.
    pub errors: Vec<FailedIo>,
}

impl DeviceSnapshot {
    /// I/O since an earlier snapshot; none if the counters began again.
    pub fn io_since(&self, earlier: &DeviceSnapshot) -> Option<DeviceIoCounts> {
        (self.since_ns == earlier.since_ns)
            .then(|| self.io.since(&earlier.io))
            .flatten()
    }
}

impl DeviceSnapshot {
    /// I/Os that failed since an earlier snapshot; all of them if the counters began again.
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
    /// Tier of its next extents.
    pub home: String,
    /// Bytes by device, those with any.
    pub placed: Vec<Placed>,
    /// Whether it is served, whole and can be moved.
    pub movable: bool,
    /// What keeps it from being moved by the agent.
    pub bound: Option<Bound>,
    /// How a person moves it, on hosts of virtual machines.
    pub by_hand: Option<HandMove>,
    /// What it is limited to by a [`super::AgentAction::Throttle`], with the time that is left of it.
    pub throttle: Option<Throttle>,
    /// The move under way.
    pub moving: Option<MovingWindow>,
    /// How the last move ended, if it is known.
    pub last_move: Option<MoveEnd>,
    /// Counters; none when it is not measured.
    pub counts: Option<Counts>,
    /// Its place in a cache in memory, if it has one.
    pub cache: Option<CacheSnapshot>,
    /// Whether extents of it can have second copies.
    pub can_mirror: bool,
    /// Those that it has, or that are being made.
    pub mirror: Option<MirrorSnapshot>,
    /// How its pages are read again, where that was looked at ([`super::Agent::wanted_reuse`]).
    pub reuse: Option<ReuseSnapshot>,
    /// Its extents, where they were looked at ([`super::Agent::wanted_extents`]).
    pub extents: Option<ExtentsSnapshot>,
}

impl VolumeSnapshot {
    /// Whether all of it is on a device, or would be: a volume without data goes where its home is.
    pub fn is_on(&self, device: &str, tier: &str) -> bool {
        self.moving.is_none()
            && self.home == tier
            && self
                .placed
                .iter()
                .all(|p| p.device == device || p.bytes == 0)
    }

    /// What answers to broken objectives are judged by since an earlier snapshot; none if it is not counted, or was not all the time.
    pub fn sample_since(&self, earlier: &VolumeSnapshot) -> Option<VolumeSample> {
        let (now, old) = (self.counts.as_ref()?, earlier.counts.as_ref()?);
        let same = now.since_ns == old.since_ns;
        let both = now.sample.as_ref().zip(old.sample.as_ref());
        both.filter(|_| same).and_then(|(now, old)| now.since(old))
    }

    /// Load since an earlier snapshot; none if it is not measured, or was not all the time.
    pub fn load_since(&self, earlier: &VolumeSnapshot) -> Option<Load> {
        let (now, old) = (self.counts.as_ref()?, earlier.counts.as_ref()?);
        (now.since_ns == old.since_ns)
            .then(|| now.total.since(&old.total))
            .flatten()
    }
}

/// What a volume has of a cache in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheSnapshot {
    /// Which cache.
    pub pool: u32,
    /// What it holds.
    pub pool_bytes: u64,
    /// Size of its pages.
    pub page_bytes: u64,
    /// Whether volumes can be given parts of it.
    pub in_parts: bool,
    /// The part that the volume was given by hand.
    pub given_bytes: Option<u64>,
    /// The part that it has by a [`super::AgentAction::LendCache`], and the time that is left of it.
    pub lent: Option<(u64, u64)>,
}

/// Second copies of a volume's extents.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorSnapshot {
    /// Where they are.
    pub device: String,
    /// Of which extents; none is all.
    pub extents: Option<ExtentRanges>,
    /// Their bytes.
    pub bytes: u64,
    /// Share of the reads that go to them, 0..=1; none before they are there.
    pub read_share: f64,
    /// The time that is left of them, where they are by a [`super::AgentAction::Mirror`]; none where a person has ordered them.
    pub left_ns: Option<u64>,
}

/// Counters of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// When they began: another number means that they began again.
    pub since_ns: u64,
    /// All since then.
    pub total: Load,
    /// What answers to broken objectives are judged by, counted likewise, with the requests that wait now; none where it is not
    /// counted.
    pub sample: Option<VolumeSample>,
}

/// How a move ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveEnd {
    /// Everything is on the target.
    Done {
        /// Bytes copied, those copied again included.
        copied_bytes: u64,
    },
    /// Given up; what was switched stays on the target.
    Stopped {
        why: String,
        copied_bytes: u64,
        /// The I/O that failed, if one did.
        failed_io: Option<IoFailure>,
    },
}
