//! Simulated arrays.

use algo::ServiceTime;
use serde::Serialize;
use units::Nanos;

use super::array::{Array, ArrayError, BackEndMode, CacheMode, Class, InternalModel, Kind};
use super::customer::volumes;
use super::job::{ArrayKind, Job};

/// Load of the run that calibrates the customer's load: low enough to avoid queues.
const PROBE_LOAD: f64 = 0.3;
/// Number of unmeasured hours at the start. The paper drops two hours too.
pub(super) const WARMUP_HOURS: u32 = 2;
/// Ratio of all flash pages to simulated pages in the all-flash array.
const FLASH_SCALE: u32 = 16;
/// Ratio of the space for extents to the extents that the day accesses.
const EXTENTS_OVER_TOUCHED: f64 = 5.0;
/// Ratio of the cache to the data that the day accesses: the 100 GB of the paper, scaled.
const CACHE_OVER_TOUCHED: f64 = 0.04;
/// Largest number of exchanges per hour (published).
const EXCHANGES: u64 = 15_000;

/// Amount of simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Number of hours; the first two are not measured.
    pub hours: u32,
    /// Length of an hour of the disk array, seconds. Less than 3,600 compresses the day and reduces the exchanges in proportion.
    pub hour_s: u64,
    /// Largest number of runs of the search for a matched load.
    pub match_runs: u32,
}

impl Job {
    /// Returns the array with its load as drawn.
    pub(super) fn array(&self) -> Result<Array, ArrayError> {
        match self.array {
            ArrayKind::Disks => self.disk_array(),
            ArrayKind::Flash => self.flash_array(),
        }
    }

    /// Returns the array of the paper: 1 SSD, 6 FC disks, 100 SATA disks.
    fn disk_array(&self) -> Result<Array, ArrayError> {
        let kind = |name, count, share, service, disk| Kind {
            name,
            count,
            share,
            service,
            inside: InternalModel::Disks(disk),
        };
        let kinds = vec![
            kind("SSD", 1, 0.03, ServiceTime::flash_2010(), "ssd-2010"),
            kind("FC", 6, 0.18, ServiceTime::fc_15k(), "disk-15k"),
            kind("SATA", 100, 0.79, ServiceTime::sata_7k2(), "disk-7k2"),
        ];
        let classes = classes([2_000, 6_000, 12_000]);
        self.array_of(kinds, classes, self.scale.hour_s, Nanos(20_000))
    }

    /// Returns a modern array: two TLC and six QLC drives. An hour of its day is compressed to a minute to bound the number of simulated
    /// requests.
    fn flash_array(&self) -> Result<Array, ArrayError> {
        let kind = |name, count, share, service, drive| Kind {
            name,
            count,
            share,
            service,
            inside: InternalModel::Flash(drive, FLASH_SCALE),
        };
        let kinds = vec![
            kind("TLC", 2, 0.1, ServiceTime::nvme_tlc(), "tlc-nvme"),
            kind("QLC", 6, 0.9, ServiceTime::nvme_qlc(), "qlc-nvme"),
        ];
        let classes = classes([150, 300, 600]);
        self.array_of(kinds, classes, 60, Nanos(10_000))
    }

    /// Makes an array with hours of `hour_s` seconds and scales its rates to the customer's load.
    fn array_of(
        &self,
        kinds: Vec<Kind>,
        classes: Vec<Class>,
        hour_s: u64,
        hit: Nanos,
    ) -> Result<Array, ArrayError> {
        let array = Array {
            volumes: volumes(&self.customer, &self.made_of)?,
            classes,
            kinds,
            extents_over_touched: EXTENTS_OVER_TOUCHED,
            cache_over_touched: CACHE_OVER_TOUCHED,
            hit,
            hour: Nanos::from_secs(hour_s),
            hours: self.scale.hours,
            warmup_hours: WARMUP_HOURS,
            exchanges: (EXCHANGES * hour_s / 3600) as u32,
            seed: self.customer.seed,
        };
        let factor = PROBE_LOAD / array.busiest_uncached();
        let array = array.scaled(|_| factor);
        let factor = self.customer.load / busiest(&array)?;
        Ok(array.scaled(|_| factor))
    }
}

fn classes(targets_us: [u64; 3]) -> Vec<Class> {
    let named = ["high", "medium", "low"].into_iter().zip(targets_us);
    let class = |(name, us)| Class {
        name,
        target: Nanos::from_micros(us),
    };
    named.map(class).collect()
}

/// Returns the utilization of the slowest kind in the busiest half hour, behind an LRU cache and without exchanges. It simulates the
/// first hours and scales their utilization by the rates of all half hours.
fn busiest(array: &Array) -> Result<f64, ArrayError> {
    let probe = Array {
        hours: WARMUP_HOURS + 2,
        ..array.clone()
    };
    let run = probe.run(CacheMode::Lru, BackEndMode::Fixed)?;
    let rates = array.rates();
    let (mut busy, mut rate) = (0.0, 0.0);
    for hour in &run.hours[WARMUP_HOURS as usize..] {
        busy += hour.utilization.last().copied().unwrap_or(0.0);
        let slot = 2 * hour.hour as usize;
        rate += 0.5 * (rates[slot % rates.len()] + rates[(slot + 1) % rates.len()]);
    }
    Ok(busy / rate * rates.iter().copied().fold(0.0, f64::max))
}
