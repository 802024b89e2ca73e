//! Description of an array with its load. `scenario.rs` makes a scenario from it.

use std::sync::Arc;

use algo::{RequestLoad, ServiceTime};
use model::Op;
use serde::{Deserialize, Serialize};
use sim::{RunError, ScenarioError};
use thiserror::Error;
use trace::{LoadedTrace, TraceError};
use units::Nanos;

use super::sequence::{EXTENT, PAGE, PAGES_PER_EXTENT, Sequence};

/// Reason that an array cannot be simulated.
#[derive(Debug, Error)]
pub enum ArrayError {
    /// A recording cannot be converted to a trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The generated text is not a valid scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The simulation failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Policy that inserts pages into the read part of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CacheMode {
    /// Least recently used.
    Lru,
    /// HR-LRU: the hit ratio of a page's extent determines the position (paper 2, section III).
    HrLru,
    /// Priority-LRU as printed: HR-LRU with a position shifted by the volume's priority (paper 2, section IV).
    PriorityLru,
    /// Priority-LRU with ageing, where a hit ratio counts only after enough accesses.
    PriorityLruCorrected,
}

/// Use of service classes by the back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BackEndMode {
    /// Extents stay at their places.
    Fixed,
    /// Extents are exchanged. All volumes have the same weight.
    Regular,
    /// Extents are exchanged. The weight of a volume depends on its class and on the violation of its target.
    Qos,
}

/// Volume with its load.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    pub(super) name: String,
    /// Index of the volume's class.
    pub(super) class: usize,
    /// Recorded requests that the volume plays.
    pub(super) plays: Arc<PlayedTrace>,
    /// Requests per second, by half hour.
    pub(super) rates: Vec<f32>,
}

/// Recorded requests that a volume plays, with their statistics.
#[derive(Debug)]
pub(super) struct PlayedTrace {
    pub(super) trace: Arc<LoadedTrace>,
    pub(super) extents: u32,
    pages_mean: f64,
    write_share: f64,
}

impl PlayedTrace {
    pub(super) fn new(sequence: &Sequence, volume: &str) -> Result<Self, TraceError> {
        Ok(Self {
            trace: sequence.trace(volume)?,
            extents: sequence.extents(),
            pages_mean: sequence.pages_mean(),
            write_share: sequence.write_share(),
        })
    }
}

/// Internal model of the devices of a kind.
#[derive(Debug, Clone, Copy)]
pub(super) enum InternalModel {
    /// One group of disks with this preset of the simulator; RAID 5 if it has more than one disk.
    Disks(&'static str),
    /// Flash drives with this preset. The number is the ratio of all pages to simulated pages.
    Flash(&'static str, u32),
}

/// Devices of one kind.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Number of devices, or of disks in the group.
    pub(super) count: u32,
    /// Share of the space for all extents, 0..=1.
    pub(super) share: f64,
    /// Service times. The planner assumes them; disks also have them.
    pub(super) service: ServiceTime,
    pub(super) inside: InternalModel,
}

impl Kind {
    /// Returns the number of I/Os of a small write.
    pub(super) fn write_cost(&self) -> f64 {
        match self.inside {
            InternalModel::Disks(_) if self.count > 1 => RAID_5,
            InternalModel::Disks(_) | InternalModel::Flash(..) => 1.0,
        }
    }
}

/// I/Os of a small write with RAID 5: reads and writes of data and parity.
const RAID_5: f64 = 4.0;

/// Service class.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) name: &'static str,
    /// Objective for the mean response time of its volumes.
    pub(super) target: Nanos,
}

/// Array with a cache in front of devices of several kinds.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub(super) volumes: Vec<Volume>,
    pub(super) classes: Vec<Class>,
    /// Kinds of devices, fastest first.
    pub(super) kinds: Vec<Kind>,
    /// Ratio of the space for extents to the extents that are ever accessed, at least 1.
    pub(super) extents_over_touched: f64,
    /// Ratio of cache pages to the pages of the extents that are ever accessed.
    pub(super) cache_over_touched: f64,
    /// Response time of a cache hit.
    pub(super) hit: Nanos,
    /// Interval of decisions of the back end. Volumes have a rate for each half of it.
    pub(super) hour: Nanos,
    pub(super) hours: u32,
    /// Number of unmeasured hours at the start.
    pub(super) warmup_hours: u32,
    /// Largest number of exchanges per hour.
    pub(super) exchanges: u32,
    /// Seed of all random values.
    pub(super) seed: u64,
}

impl Array {
    /// Returns the number of extents that volumes access.
    pub(super) fn touched_extents(&self) -> u32 {
        self.volumes.iter().map(|v| v.plays.extents).sum()
    }

    /// Returns the size of the cache, bytes.
    pub(super) fn cache_bytes(&self) -> u64 {
        let pages = f64::from(self.touched_extents() * PAGES_PER_EXTENT);
        (pages * self.cache_over_touched) as u64 * PAGE.0
    }

    /// Returns the capacity of one device of each kind, bytes. A group of disks is one device.
    pub(super) fn capacities(&self) -> Vec<u64> {
        let all = f64::from(self.touched_extents()) * self.extents_over_touched;
        let of = |k: &Kind| {
            let devices = match k.inside {
                InternalModel::Disks(_) => 1.0,
                InternalModel::Flash(..) => f64::from(k.count),
            };
            ((all * k.share / devices).ceil() as u64) * EXTENT.0
        };
        self.kinds.iter().map(of).collect()
    }

    /// Returns the array with the rates of each volume multiplied by the volume's factor.
    #[must_use]
    pub(super) fn scaled(&self, factor: impl Fn(&Volume) -> f64) -> Self {
        let mut array = self.clone();
        for volume in &mut array.volumes {
            let factor = factor(volume);
            let scale = |r: &mut f32| *r = (f64::from(*r) * factor) as f32;
            volume.rates.iter_mut().for_each(scale);
        }
        array
    }

    fn slots(&self) -> usize {
        let slots = self.volumes.iter().map(|v| v.rates.len());
        slots.max().unwrap_or(0)
    }

    /// Returns the requests per second of all volumes together, by half hour.
    pub(super) fn rates(&self) -> Vec<f64> {
        let at = |slot: usize| {
            let of = |v: &Volume| f64::from(v.rates[slot % v.rates.len()]);
            self.volumes.iter().map(of).sum()
        };
        (0..self.slots()).map(at).collect()
    }

    /// Returns the utilization of the slowest kind in the busiest half hour without a cache, computed from the recordings alone.
    pub(super) fn busiest_uncached(&self) -> f64 {
        let last = self.kinds.last().expect("there are devices");
        let of = |op| RequestLoad::of(&last.service, op, PAGE.as_f64()).utilization;
        let (read, write) = (of(Op::Read), of(Op::Write) * last.write_cost());
        let at = |slot: usize| -> f64 {
            let of = |v: &Volume| {
                let writes = v.plays.write_share;
                let per_page = (1.0 - writes) * read + writes * write;
                f64::from(v.rates[slot % v.rates.len()]) * v.plays.pages_mean * per_page
            };
            self.volumes.iter().map(of).sum::<f64>() * last.share / f64::from(last.count)
        };
        (0..self.slots()).map(at).fold(0.0, f64::max)
    }
}
