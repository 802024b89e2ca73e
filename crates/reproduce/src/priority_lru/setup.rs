//! The arrays that are simulated.

use algo::{RequestLoad, ServiceTime};
use flash::drive::DriveConfig;
use model::Op;
use planner::exchange::{ExchangeTerms, Station};
use serde::Serialize;
use sim::cached::{
    BackEndMode, CacheMode, CachedArray, DeviceKind, PAGES_PER_EXTENT, ServiceClass, run_cached,
};
use thiserror::Error;
use units::{Bytes, Nanos};

use super::customer::{Customer, Role, Sources, customers, volumes};
use super::job::{Job, Variant};

const PAGE: Bytes = Bytes(64 << 10);
/// Load of the run that a customer's own load is scaled by: low, so that nothing queues.
const PROBE_LOAD: f64 = 0.3;
/// The paper drops its first two hours.
const WARMUP_HOURS: u32 = 2;
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

/// What to run.
#[derive(Debug, Clone, Serialize)]
pub struct Setup {
    /// Of everything random.
    pub seed: u64,
    /// Hours that are simulated; the first two do not count.
    pub hours: u32,
    /// What customers are made of.
    pub sources: String,
    /// Recordings and what they are taken for.
    pub recordings: Vec<(String, Role)>,
    /// The customers.
    pub customers: Vec<Customer>,
    #[serde(skip)]
    made_of: Sources,
}

/// A setup that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// Too short.
    #[error("--hours: the first two do not count, so at least 4 are needed, at most 168")]
    Hours,
    /// A role without recordings.
    #[error("customers need recordings of transactions, of scans and of files; there is none of {}", match .0 { Role::Transactions => "transactions", Role::Scans => "scans", Role::Files => "files" })]
    NoRecording(Role),
}

impl Setup {
    /// From recordings and intensities; intensities are drawn where there are none.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(mut sources: Sources, seed: u64, hours: u32) -> Result<Self, SetupError> {
        if !(4..=168).contains(&hours) {
            return Err(SetupError::Hours);
        }
        for role in [Role::Transactions, Role::Scans, Role::Files] {
            if !sources
                .recordings
                .iter()
                .any(|r| r.role == role && !r.requests.is_empty())
            {
                return Err(SetupError::NoRecording(role));
            }
        }
        if sources.intensities.is_empty() {
            sources.intensities = Sources::drawn_intensities(seed);
        }
        Ok(Self {
            seed,
            hours,
            sources: sources.about.clone(),
            recordings: sources
                .recordings
                .iter()
                .map(|r| (r.name.clone(), r.role))
                .collect(),
            customers: customers(seed).into(),
            made_of: sources,
        })
    }

    /// Everything that is to be run.
    pub fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for customer in &self.customers {
            let array = std::sync::Arc::new(self.disk_array(customer));
            jobs.extend(Variant::ALL.map(|v| Job::new(customer.name, v, &array)));
        }
        let array = std::sync::Arc::new(self.flash_array(&self.customers[1]));
        jobs.extend(Variant::ALL.map(|v| Job::new("all-flash", v, &array)));
        jobs
    }

    /// The paper's array: 1 SSD, 6 FC disks, 100 SATA disks.
    fn disk_array(&self, customer: &Customer) -> CachedArray {
        let kind = |name: &str, count, share, service| DeviceKind {
            name: name.into(),
            count,
            share,
            station: Station {
                service,
                write_cost: RAID_5,
                bare_ns: None,
            },
            flash: None,
        };
        let kinds = vec![
            kind("SSD", 1, 0.03, ServiceTime::flash_2010()),
            kind("FC", 6, 0.18, ServiceTime::fc_15k()),
            kind("SATA", 100, 0.79, ServiceTime::sata_7k2()),
        ];
        let classes = classes([2_000, 6_000, 12_000]);
        let terms = ExchangeTerms {
            burst: BURST,
            ..ExchangeTerms::default()
        };
        let spread = Nanos::from_secs(600);
        let hour = Nanos::from_secs(3600);
        self.array(
            customer,
            kinds,
            classes,
            terms,
            (hour, spread),
            Nanos(20_000),
        )
    }

    /// A modern one: two TLC and six QLC drives. Its day is compressed, an hour is a minute, so that the number of requests stays
    /// what can be simulated.
    fn flash_array(&self, customer: &Customer) -> CachedArray {
        let kind = |name: &str, count, share, service, preset| DeviceKind {
            name: name.into(),
            count,
            share,
            station: Station {
                service,
                write_cost: RAID_5,
                bare_ns: None,
            },
            flash: Some(DriveConfig {
                scale: FLASH_SCALE,
                ..flash::drive::preset(preset).expect("a preset of the crate")
            }),
        };
        let kinds = vec![
            kind("TLC", 2, 0.1, ServiceTime::nvme_tlc(), "tlc-nvme"),
            kind("QLC", 6, 0.9, ServiceTime::nvme_qlc(), "qlc-nvme"),
        ];
        let classes = classes([150, 300, 600]);
        let hour = Nanos::from_secs(60);
        let terms = ExchangeTerms {
            most: 15_000 / 60,
            horizon: hour,
            burst: BURST,
            ..ExchangeTerms::default()
        };
        let spread = Nanos::from_secs(10);
        self.array(
            customer,
            kinds,
            classes,
            terms,
            (hour, spread),
            Nanos(10_000),
        )
    }

    fn array(
        &self,
        customer: &Customer,
        kinds: Vec<DeviceKind>,
        classes: Vec<ServiceClass>,
        terms: ExchangeTerms,
        (hour, exchange_spread): (Nanos, Nanos),
        hit: Nanos,
    ) -> CachedArray {
        let (sequences, volumes) = volumes(customer, &self.made_of, PAGE);
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
            hours: self.hours,
            warmup_hours: WARMUP_HOURS,
            exchange_spread,
            terms,
            seed: customer.seed,
        };
        let pages = f64::from(array.touched_extents() * PAGES_PER_EXTENT);
        array.cache_pages = (pages * CACHE_OVER_TOUCHED) as u32;
        let factor = PROBE_LOAD / busiest_uncached(&array);
        scale(&mut array, factor);
        let factor = customer.load / busiest(&array);
        scale(&mut array, factor);
        array
    }

    /// Hours at the start that do not count.
    pub fn warmup_hours(&self) -> u32 {
        WARMUP_HOURS
    }

    /// What is not published, and what stands in for it.
    pub fn assumptions(&self) -> Vec<String> {
        let texts = [
            "The paper's traces (four customers of a storage vendor) are private. A customer here is 98 volumes; each plays pieces of 4,096 requests of one recording in an order that is drawn, at times of a Poisson process whose rate follows an intensity half hour by half hour.",
            "How customers differ is not published but for their results. Ours differ in what they are made of (`roles`) and how busy they are (`load`: the share of its time that the busiest half hour keeps a SATA disk busy behind an LRU cache, extents where they lie). Loads were set so that response times are of the order of the published ones: that is a calibration, which method is better is not.",
            "Classes are drawn: 20 % of the volumes high, 40 % medium, 40 % low; targets 2, 6 and 12 ms as published.",
            "Cache: 4 % of the pages that the day touches, a fifth of it for writes (the paper: 100 GB, no split given). Touched extents are a fifth of all.",
            "Extents lie at random, 3 % on the SSD, 18 % on FC, 79 % on SATA. RAID 5 everywhere: a destaged page costs four I/Os, half of them on another device of the kind (all on the SSD itself, which is alone).",
            "Service times: FC 5.6 ms, SATA 12.9 ms before the transfer, SSD 0.25 ms (reads) and 0.6 ms (writes); a request that begins where the one before it ended needs no positioning. What is satisfied in the cache takes 0.02 ms.",
            "Back end (its paper could not be read beyond the abstract): at most 15,000 exchanges an hour, begun over the first 600 s, copied in gaps; weights by class and by how far a volume missed its target. \"Regular\" is the same with equal weights. Loads count twice, since the hour to come is not the one before: with loads as they were the SSD is overloaded hour after hour (for all methods; totals are 1.1 to 8 times as high then).",
            "A volume has 32 requests outstanding at most. Overload closes the loop then: what is late comes later, and is not counted before.",
            "The all-flash array: 2 TLC and 6 QLC drives with translation layer, garbage collection and wear (presets `tlc-nvme` and `qlc-nvme`, a sixteenth of their pages simulated, aged by two overwrites), targets 0.15, 0.3 and 0.6 ms, an hour compressed to a minute, and 250 exchanges in it. The planner believes in service times of 0.08 and 0.12 ms for reads, 0.025 and 0.4 ms for writes, 16 at once.",
        ];
        texts.map(String::from).into()
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
fn busiest(array: &CachedArray) -> f64 {
    let probe = CachedArray {
        hours: WARMUP_HOURS + 2,
        ..array.clone()
    };
    let run = run_cached(&probe, CacheMode::Lru, BackEndMode::Fixed, &mut |_| ());
    let run = run.expect("the cache of a customer has both parts");
    let rates = array.rates();
    let (mut busy, mut rate) = (0.0, 0.0);
    for hour in &run.hours[WARMUP_HOURS as usize..] {
        busy += hour.utilization.last().copied().unwrap_or(0.0);
        let slot = 2 * hour.hour as usize;
        rate += 0.5 * (rates[slot % rates.len()] + rates[(slot + 1) % rates.len()]);
    }
    busy / rate * rates.iter().copied().fold(0.0, f64::max)
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
