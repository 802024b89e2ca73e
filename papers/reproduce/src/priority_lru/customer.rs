//! Customers that are composed of recordings and intensities.

use std::sync::Arc;

use algo::Rng;
use model::Op;
use serde::Serialize;
use trace::TraceError;

use super::array::{PlayedTrace, Volume};
use super::published::{CUSTOMERS, LRU_MS};
use super::sequence::Sequence;

/// Number of volumes of a customer, as in the paper.
pub(super) const VOLUMES: usize = 98;
/// Number of half hours in a day.
const SLOTS: usize = 48;
/// Largest number of extents of a volume. Volumes of the paper have up to hundreds of GB, but only recorded extents can be accessed.
const EXTENTS_MAX: u64 = 2048;
/// Largest number of extents of a volume with scans. It is larger, because data that is read once must not be read again soon.
const SCANNED_EXTENTS_MAX: u64 = 8192;
/// Smallest number of extents of a volume, unless its recording has fewer.
const EXTENTS_MIN: u64 = 64;
/// Shares of the volumes in the classes high, medium and low.
const CLASS_SHARES: [f64; 3] = [0.2, 0.4, 0.4];

/// Kind of load in a recording. Customers differ in the shares of the roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Small requests that access the same data again: databases, virtual machines.
    Transactions,
    /// Data that is read or written once.
    Scans,
    /// Personal computers and file systems.
    Files,
}

/// Recorded requests without times.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Name of the source.
    pub name: String,
    /// Kind of load.
    pub role: Role,
    /// Operation, offset and length in bytes of each request, in order.
    pub requests: Vec<(Op, u64, u64)>,
}

/// Rate of a measured volume, by half hour.
#[derive(Debug, Clone)]
pub struct Intensity {
    /// Name of the measured volume.
    pub name: String,
    /// Accesses per second by half hour, for a day or more.
    pub rates: Vec<f32>,
}

/// Recordings and intensities that customers are composed of.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Description of the sources for output.
    pub about: String,
    /// Recordings, at least one of each role.
    pub recordings: Vec<Recording>,
    /// Measured intensities. If empty, random ones are generated.
    pub intensities: Vec<Intensity>,
}

impl Sources {
    /// Returns a hash of recordings and intensities.
    pub fn fingerprint(&self) -> u64 {
        let mut print = 0;
        let mut add = |value: u64| print = algo::mix(print, value);
        for r in &self.recordings {
            add(r.role as u64);
            for (op, offset, length) in &r.requests {
                add(*op as u64);
                add(*offset);
                add(*length);
            }
        }
        for i in &self.intensities {
            i.rates
                .iter()
                .for_each(|rate| add(u64::from(rate.to_bits())));
        }
        print
    }

    /// Generates intensities like those of production disks, to replace measured ones. A few volumes have most of the load, rates follow the
    /// time of day, and half hours differ by a log-normal factor.
    pub fn drawn_intensities(seed: u64) -> Vec<Intensity> {
        let mut rng = Rng::new(seed, 0x1D7E);
        let volume = |n: usize| {
            let scale = libm::exp(1.6 * rng.normal());
            let peak = rng.unit() * SLOTS as f64;
            let rates = (0..SLOTS).map(|slot| {
                let hour = std::f64::consts::TAU * (slot as f64 - peak) / SLOTS as f64;
                let course = 1.0 + 0.6 * libm::cos(hour);
                (scale * course * libm::exp(0.5 * rng.normal())) as f32
            });
            Intensity {
                name: format!("drawn-{n}"),
                rates: rates.collect(),
            }
        };
        (0..60).map(volume).collect()
    }
}

/// Customer: shares of roles and load.
#[derive(Debug, Clone, Serialize)]
pub struct Customer {
    /// Name of the customer, as in the tables.
    pub name: &'static str,
    /// Weights of the roles from which the recordings of its volumes are drawn.
    pub roles: [(Role, u32); 3],
    /// Utilization of a device of the slowest kind in the busiest half hour, behind an LRU cache and without exchanges, 0..=1.
    pub load: f64,
    /// Seed of the customer's random values.
    pub seed: u64,
}

impl Customer {
    /// Returns the published mean response times under LRU with the QoS back end, milliseconds: high, medium, low.
    pub(super) fn published_lru_ms(&self) -> [f64; 3] {
        let at = CUSTOMERS.iter().position(|c| *c == self.name);
        let [high, medium, low, _] = LRU_MS[at.expect("a customer of the tables")];
        [high, medium, low]
    }
}

/// Returns the four customers of the paper. The paper describes them only by results: the second one is in the figures, and the third
/// one has no gain from a cache.
pub(super) fn customers(seed: u64) -> [Customer; 4] {
    use Role::{Files, Scans, Transactions};
    let customer = |name, n: u64, load, transactions, scans, files| Customer {
        name,
        roles: [(Transactions, transactions), (Scans, scans), (Files, files)],
        load,
        seed: algo::mix(seed, n),
    };
    [
        customer("customer 1", 1, 0.1, 8, 1, 1),
        customer("customer 2", 2, 0.12, 6, 1, 3),
        customer("customer 3", 3, 0.12, 1, 8, 1),
        customer("customer 4", 4, 0.12, 3, 2, 5),
    ]
}

/// Generates the volumes of a customer. Their rates are not scaled yet: only their ratios matter.
pub(super) fn volumes(customer: &Customer, sources: &Sources) -> Result<Vec<Volume>, TraceError> {
    let mut rng = Rng::new(customer.seed, 0);
    let whole: Vec<Option<Sequence>> = sources
        .recordings
        .iter()
        .map(|r| Sequence::new(&r.requests))
        .collect();
    let total: u32 = customer.roles.iter().map(|r| r.1).sum();
    let mut volumes = Vec::new();
    while volumes.len() < VOLUMES {
        let mut ticket = rng.below(u64::from(total)) as u32;
        let role = customer.roles.iter().find(|(_, weight)| {
            let hit = ticket < *weight;
            ticket = ticket.saturating_sub(*weight);
            hit
        });
        let role = role.expect("a ticket is below the sum").0;
        let of_role = sources.recordings.iter().enumerate();
        let of_role: Vec<usize> = of_role.filter(|r| r.1.role == role).map(|r| r.0).collect();
        let chosen = of_role[rng.below(of_role.len() as u64) as usize];
        // Sizes are distributed log-uniformly.
        let most = if role == Role::Scans {
            SCANNED_EXTENTS_MAX
        } else {
            EXTENTS_MAX
        };
        let spread = libm::log(most as f64 / EXTENTS_MIN as f64);
        let extents = EXTENTS_MIN as f64 * libm::exp(spread * rng.unit());
        let sequence = whole[chosen].as_ref();
        let sequence = sequence.and_then(|s| s.within(extents as u32));
        let intensity = &sources.intensities[rng.below(sources.intensities.len() as u64) as usize];
        let days = (intensity.rates.len() / SLOTS).max(1) as u64;
        let first = rng.below(days) as usize * SLOTS;
        let class = class_of(rng.unit());
        let Some(sequence) = sequence else { continue };
        let at = |slot: usize| intensity.rates[(first + slot) % intensity.rates.len()];
        let name = format!("lu-{:02}", volumes.len());
        volumes.push(Volume {
            class,
            plays: Arc::new(PlayedTrace::new(&sequence, &name)?),
            rates: (0..SLOTS).map(at).collect(),
            name,
        });
    }
    Ok(volumes)
}

fn class_of(unit: f64) -> usize {
    let mut below = 0.0;
    for (class, share) in CLASS_SHARES.iter().enumerate() {
        below += share;
        if unit < below {
            return class;
        }
    }
    CLASS_SHARES.len() - 1
}
