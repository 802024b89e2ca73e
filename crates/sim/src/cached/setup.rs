//! What is simulated: volumes with their loads, a cache, devices, and who decides what.

use planner::exchange::{ExchangeTerms, Station};
use serde::Serialize;
use units::{Bytes, Nanos};

use super::sequence::Sequence;

/// Pages of an extent (paper 2: 3.75 MiB of 64 KiB pages).
pub const PAGES_PER_EXTENT: u32 = 60;
/// Slices of an hour.
pub const SLICES_PER_HOUR: u32 = 12;

/// A service class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServiceClass {
    /// Its name.
    pub name: String,
    /// Mean response time that its volumes should have (DRT).
    pub target: Nanos,
}

/// A volume with its load.
#[derive(Debug, Clone)]
pub struct CachedVolume {
    /// Its name.
    pub name: String,
    /// Index of its class.
    pub class: usize,
    /// Index of the sequence that it plays.
    pub sequence: usize,
    /// Requests per second, half hour by half hour.
    pub rates: Vec<f32>,
}

/// Devices of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceKind {
    /// The name of the kind.
    pub name: String,
    /// How many there are.
    pub count: u16,
    /// Share of all extents that the kind holds, 0..=1.
    pub share: f64,
    /// Its service times: how it works, and what the planner believes. Of drives with flash, only the latter.
    #[serde(skip)]
    pub station: Station,
    /// The inside of drives of flash, where that is simulated: collection, latency tails, wear.
    #[serde(skip)]
    pub flash: Option<flash::drive::DriveConfig>,
}

/// How pages are put into the read part of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackEndMode {
    /// Extents stay where they are.
    Fixed,
    /// Extents are exchanged, every volume counts the same.
    Regular,
    /// Extents are exchanged, volumes count by class and by how far they miss their target.
    Qos,
}

/// An array with a cache in front and devices of several kinds behind it.
#[derive(Debug, Clone)]
pub struct CachedArray {
    /// Recorded requests.
    pub sequences: Vec<Sequence>,
    /// Volumes.
    pub volumes: Vec<CachedVolume>,
    /// Service classes.
    pub classes: Vec<ServiceClass>,
    /// Devices, fastest first.
    pub kinds: Vec<DeviceKind>,
    /// All extents over those that are ever touched, 1 or more: the rest is idle and takes space.
    pub extents_over_touched: f64,
    /// Size of a page.
    pub page: Bytes,
    /// Pages of the whole cache.
    pub cache_pages: u32,
    /// Share of the cache for writes, 0..1.
    pub write_share: f64,
    /// Response time of what is satisfied in the cache.
    pub hit: Nanos,
    /// Requests that a volume has outstanding at most: past that its load waits.
    pub outstanding: u32,
    /// Length of the hour: between two decisions of the back end; half of it is a slot of rates.
    pub hour: Nanos,
    /// Hours that are simulated.
    pub hours: u32,
    /// Hours at the start that do not count.
    pub warmup_hours: u32,
    /// Time over which exchanges begin, at the start of an hour.
    pub exchange_spread: Nanos,
    /// Limits of exchanges.
    pub terms: ExchangeTerms,
    /// Of everything random.
    pub seed: u64,
}

impl CachedArray {
    /// Extents that volumes touch.
    pub fn touched_extents(&self) -> u32 {
        let of = |v: &CachedVolume| self.sequences[v.sequence].extents();
        self.volumes.iter().map(of).sum()
    }

    /// Devices.
    pub fn devices(&self) -> usize {
        self.kinds.iter().map(|k| usize::from(k.count)).sum()
    }

    /// Requests per second of all volumes together, half hour by half hour.
    pub fn rates(&self) -> Vec<f64> {
        let slots = self
            .volumes
            .iter()
            .map(|v| v.rates.len())
            .max()
            .unwrap_or(0);
        let at = |slot: usize| {
            let of = |v: &CachedVolume| f64::from(v.rates[slot % v.rates.len()]);
            self.volumes.iter().map(of).sum()
        };
        (0..slots).map(at).collect()
    }
}
