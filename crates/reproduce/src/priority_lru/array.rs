//! An array with its load, before it is a scenario.

use std::sync::Arc;

use algo::{RequestLoad, ServiceTime};
use model::Op;
use serde::{Deserialize, Serialize};
use sim::{RunError, ScenarioError};
use thiserror::Error;
use trace::{LoadedTrace, TraceError};
use units::Nanos;

use super::sequence::{EXTENT, PAGE, PAGES_PER_EXTENT, Sequence};

/// Why an array cannot be simulated.
#[derive(Debug, Error)]
pub enum ArrayError {
    /// A recording makes no trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What was made of it is no scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Nothing could be decided.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// How pages are put into the read part of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CacheMode {
    /// Least recently used.
    Lru,
    /// In the place that an extent's hit ratio gives (paper 2, section III).
    HrLru,
    /// The same, shifted by the volume's priority (paper 2, section IV), as printed.
    PriorityLru,
    /// With age-out, and ratios that need enough accesses to count.
    PriorityLruCorrected,
}

/// What the back end is told about service classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BackEndMode {
    /// Extents stay where they are.
    Fixed,
    /// Extents are exchanged, every volume counts the same.
    Regular,
    /// Extents are exchanged, volumes count by class and by how far they miss their target.
    Qos,
}

/// A volume with its load.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    pub(super) name: String,
    /// Index of its class.
    pub(super) class: usize,
    /// What it plays.
    pub(super) plays: Arc<Played>,
    /// Requests per second, half hour by half hour.
    pub(super) rates: Vec<f32>,
}

/// What a volume plays, and what that is like.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) trace: Arc<LoadedTrace>,
    pub(super) extents: u32,
    pages_mean: f64,
    write_share: f64,
}

impl Played {
    pub(super) fn new(sequence: &Sequence, volume: &str) -> Result<Self, TraceError> {
        Ok(Self {
            trace: sequence.trace(volume)?,
            extents: sequence.extents(),
            pages_mean: sequence.pages_mean(),
            write_share: sequence.write_share(),
        })
    }
}

/// What is inside the devices of a kind.
#[derive(Debug, Clone, Copy)]
pub(super) enum Inside {
    /// One group of disks of a preset of the simulator, with RAID 5 unless there is but one.
    Disks(&'static str),
    /// Drives of flash of a preset, one page in so many simulated.
    Flash(&'static str, u32),
}

/// Devices of one kind.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// How many there are.
    pub(super) count: u32,
    /// Share of all extents that the kind has room for, 0..=1.
    pub(super) share: f64,
    /// Service times: what the planner believes, and of disks how they work.
    pub(super) service: ServiceTime,
    pub(super) inside: Inside,
}

impl Kind {
    /// I/Os that a small write costs.
    pub(super) fn write_cost(&self) -> f64 {
        match self.inside {
            Inside::Disks(_) if self.count > 1 => RAID_5,
            Inside::Disks(_) | Inside::Flash(..) => 1.0,
        }
    }
}

/// RAID 5 reads and writes data and parity.
const RAID_5: f64 = 4.0;

/// A service class.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) name: &'static str,
    /// Mean response time that its volumes should have.
    pub(super) target: Nanos,
}

/// An array with a cache in front and devices of several kinds behind it.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub(super) volumes: Vec<Volume>,
    pub(super) classes: Vec<Class>,
    /// Fastest first.
    pub(super) kinds: Vec<Kind>,
    /// All extents that there is room for over those that are ever touched, 1 or more.
    pub(super) extents_over_touched: f64,
    /// Pages of the cache over those that are ever touched.
    pub(super) cache_over_touched: f64,
    /// Response time of what is satisfied in the cache.
    pub(super) hit: Nanos,
    /// Between two decisions of the back end; half of it is a slot of rates.
    pub(super) hour: Nanos,
    pub(super) hours: u32,
    /// Hours at the start that do not count.
    pub(super) warmup_hours: u32,
    /// Exchanges of an hour at most.
    pub(super) exchanges: u32,
    /// Of everything random.
    pub(super) seed: u64,
}

impl Array {
    /// Extents that volumes touch.
    pub(super) fn touched_extents(&self) -> u32 {
        self.volumes.iter().map(|v| v.plays.extents).sum()
    }

    /// Bytes of the cache.
    pub(super) fn cache_bytes(&self) -> u64 {
        let pages = f64::from(self.touched_extents() * PAGES_PER_EXTENT);
        (pages * self.cache_over_touched) as u64 * PAGE.0
    }

    /// Bytes of one device of each kind. A group of disks is one device.
    pub(super) fn capacities(&self) -> Vec<u64> {
        let all = f64::from(self.touched_extents()) * self.extents_over_touched;
        let of = |k: &Kind| {
            let devices = match k.inside {
                Inside::Disks(_) => 1.0,
                Inside::Flash(..) => f64::from(k.count),
            };
            ((all * k.share / devices).ceil() as u64) * EXTENT.0
        };
        self.kinds.iter().map(of).collect()
    }

    /// With every rate times a factor of its volume.
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

    /// Requests per second of all volumes together, half hour by half hour.
    pub(super) fn rates(&self) -> Vec<f64> {
        let at = |slot: usize| {
            let of = |v: &Volume| f64::from(v.rates[slot % v.rates.len()]);
            self.volumes.iter().map(of).sum()
        };
        (0..self.slots()).map(at).collect()
    }

    /// Share of time that the busiest half hour would keep the slowest kind busy without a cache, from the recordings alone.
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
