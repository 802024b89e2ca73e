//! The arrays that are simulated.

use algo::{RequestLoad, ServiceTime};
use flash::drive::DriveConfig;
use model::Op;
use planner::exchange::{ExchangeTerms, Station};
use serde::Serialize;
use sim::cached::{
    BackEndMode, CacheMode, CachedArray, CachedError, DeviceKind, PAGES_PER_EXTENT, ServiceClass,
    run_cached,
};
use units::{Bytes, Nanos};

use super::customer::volumes;
use super::job::{ArrayKind, Job};

const PAGE: Bytes = Bytes(64 << 10);
/// Load of the run that a customer's own load is scaled by: low, so that nothing queues.
const PROBE_LOAD: f64 = 0.3;
/// The paper drops its first two hours.
pub(super) const WARMUP_HOURS: u32 = 2;
/// Writes of one page cost so many I/Os: RAID 5 reads and writes data and parity.
const RAID_5: f64 = 4.0;
/// Loads are planned with for twice what they were: next to nothing is known of the hour to come.
const BURST: f64 = 2.0;
/// Of the flash of the all-flash array's drives, one page in so many is simulated.
const FLASH_SCALE: u32 = 16;
/// All extents over those that the day touches.
const EXTENTS_OVER_TOUCHED: f64 = 5.0;
/// Cache over what the day touches: the paper's 100 GB, scaled.
const CACHE_OVER_TOUCHED: f64 = 0.04;
/// Exchanges in an hour at most (published).
const EXCHANGES: u64 = 15_000;

/// How much is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Hours; the first two do not count.
    pub hours: u32,
    /// Length of an hour of the array of disks, seconds: less than 3,600 compresses the day, and exchanges with it.
    pub hour_s: u64,
    /// Runs of the search for a matched load at most.
    pub match_runs: u32,
}

impl Job {
    /// The array with its load as drawn.
    pub(super) fn array(&self) -> Result<CachedArray, CachedError> {
        match self.array {
            ArrayKind::Disks => self.disk_array(),
            ArrayKind::Flash => self.flash_array(),
        }
    }

    /// The paper's array: 1 SSD, 6 FC disks, 100 SATA disks.
    fn disk_array(&self) -> Result<CachedArray, CachedError> {
        let kinds = vec![
            kind("SSD", 1, 0.03, ServiceTime::flash_2010(), None),
            kind("FC", 6, 0.18, ServiceTime::fc_15k(), None),
            kind("SATA", 100, 0.79, ServiceTime::sata_7k2(), None),
        ];
        let classes = classes([2_000, 6_000, 12_000]);
        self.array_of(kinds, classes, self.scale.hour_s, Nanos(20_000))
    }

    /// A modern one: two TLC and six QLC drives. Its day is compressed, an hour is a minute, so that the number of requests stays
    /// what can be simulated.
    fn flash_array(&self) -> Result<CachedArray, CachedError> {
        let drive = |preset| {
            Some(DriveConfig {
                scale: FLASH_SCALE,
                ..flash::drive::preset(preset).expect("a preset of the crate")
            })
        };
        let (tlc, qlc) = (drive("tlc-nvme"), drive("qlc-nvme"));
        let kinds = vec![
            kind("TLC", 2, 0.1, ServiceTime::nvme_tlc(), tlc),
            kind("QLC", 6, 0.9, ServiceTime::nvme_qlc(), qlc),
        ];
        let classes = classes([150, 300, 600]);
        self.array_of(kinds, classes, 60, Nanos(10_000))
    }

    /// With hours of `hour_s` seconds, in a sixth of which exchanges begin.
    fn array_of(
        &self,
        kinds: Vec<DeviceKind>,
        classes: Vec<ServiceClass>,
        hour_s: u64,
        hit: Nanos,
    ) -> Result<CachedArray, CachedError> {
        let (sequences, volumes) = volumes(&self.customer, &self.made_of, PAGE);
        let hour = Nanos::from_secs(hour_s);
        let mut array = CachedArray {
            sequences,
            volumes,
            classes,
            kinds,
            extents_over_touched: EXTENTS_OVER_TOUCHED,
            page: PAGE,
            cache_pages: 0,
            write_share: 0.2,
            hit,
            outstanding: 32,
            hour,
            hours: self.scale.hours,
            warmup_hours: WARMUP_HOURS,
            exchange_spread: Nanos(hour.0 / 6),
            terms: ExchangeTerms {
                most: (EXCHANGES * hour_s / 3600) as u32,
                horizon: hour,
                burst: BURST,
                ..ExchangeTerms::default()
            },
            seed: self.customer.seed,
        };
        let pages = f64::from(array.touched_extents() * PAGES_PER_EXTENT);
        array.cache_pages = (pages * CACHE_OVER_TOUCHED) as u32;
        let factor = PROBE_LOAD / busiest_uncached(&array);
        scale(&mut array, factor);
        let factor = self.customer.load / busiest(&array)?;
        scale(&mut array, factor);
        Ok(array)
    }
}

/// A kind of device behind RAID 5.
fn kind(
    name: &str,
    count: u16,
    share: f64,
    service: ServiceTime,
    flash: Option<DriveConfig>,
) -> DeviceKind {
    DeviceKind {
        name: name.into(),
        count,
        share,
        station: Station {
            service,
            write_cost: RAID_5,
            bare_ns: None,
        },
        flash,
    }
}

fn classes(targets_us: [u64; 3]) -> Vec<ServiceClass> {
    let named = ["high", "medium", "low"].into_iter().zip(targets_us);
    named
        .map(|(name, us)| ServiceClass {
            name: name.into(),
            target: Nanos(us * 1000),
        })
        .collect()
}

fn scale(array: &mut CachedArray, factor: f64) {
    for volume in &mut array.volumes {
        volume
            .rates
            .iter_mut()
            .for_each(|r| *r = (f64::from(*r) * factor) as f32);
    }
}

/// Share of time that the busiest half hour keeps the slowest kind busy, behind an LRU cache and with extents where they lie: by the
/// rates of all half hours from what some hours of a run come to.
fn busiest(array: &CachedArray) -> Result<f64, CachedError> {
    let probe = CachedArray {
        hours: WARMUP_HOURS + 2,
        ..array.clone()
    };
    let run = run_cached(&probe, CacheMode::Lru, BackEndMode::Fixed, &mut |_| ())?;
    let rates = array.rates();
    let (mut busy, mut rate) = (0.0, 0.0);
    for hour in &run.hours[WARMUP_HOURS as usize..] {
        busy += hour.utilization.last().copied().unwrap_or(0.0);
        let slot = 2 * hour.hour as usize;
        rate += 0.5 * (rates[slot % rates.len()] + rates[(slot + 1) % rates.len()]);
    }
    Ok(busy / rate * rates.iter().copied().fold(0.0, f64::max))
}

/// The same without a cache, from the recordings alone.
fn busiest_uncached(array: &CachedArray) -> f64 {
    let last = array.kinds.last().expect("there are devices");
    let of = |op| RequestLoad::of(&last.station.service, op, array.page.as_f64()).utilization;
    let (read, write) = (of(Op::Read), of(Op::Write) * last.station.write_cost);
    let slots = array
        .volumes
        .iter()
        .map(|v| v.rates.len())
        .max()
        .unwrap_or(0);
    let at = |slot: usize| -> f64 {
        let of = |v: &sim::cached::CachedVolume| {
            let sequence = &array.sequences[v.sequence];
            let writes = sequence.write_share();
            let per_page = (1.0 - writes) * read + writes * write;
            f64::from(v.rates[slot % v.rates.len()]) * sequence.pages_mean() * per_page
        };
        array.volumes.iter().map(of).sum::<f64>() * last.share / f64::from(last.count)
    };
    (0..slots).map(at).fold(0.0, f64::max)
}
