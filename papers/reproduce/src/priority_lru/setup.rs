//! Setup of the experiment: seeds, customers, loads and assumptions.

use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use super::arrays::{Scale, WARMUP_HOURS};
use super::customer::{Customer, Role, Sources, customers};
use super::job::{ArrayKind, Job, Load};

/// Setup of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Setup {
    /// Seeds of all random values: volumes, classes, sizes, arrivals.
    pub seeds: Vec<u64>,
    /// Amount of simulation.
    pub scale: Scale,
    /// Methods that set the load of the customers; each is run.
    pub loads: Vec<Load>,
    /// Description of the recordings and intensities of the customers.
    pub sources: String,
    /// Names of the recordings with their roles.
    pub recordings: Vec<(String, Role)>,
    /// Customers of the first seed.
    pub customers: Vec<Customer>,
    #[serde(skip)]
    made_of: Arc<Sources>,
}

/// Invalid setup.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// Seeds or loads are missing.
    #[error("at least one seed and one load are required")]
    Nothing,
    /// The number of hours is out of its range.
    #[error("--hours: must be between 4 and 168, since the first two hours are not measured")]
    Hours,
    /// A role has no recordings.
    #[error("customers need recordings of transactions, of scans and of files; a recording of {} is missing", match .0 { Role::Transactions => "transactions", Role::Scans => "scans", Role::Files => "files" })]
    NoRecording(Role),
}

impl Setup {
    /// Makes a setup from recordings and intensities. Without measured intensities, random ones are generated for each seed.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(
        sources: Sources,
        seeds: Vec<u64>,
        loads: Vec<Load>,
        scale: Scale,
    ) -> Result<Self, SetupError> {
        let (Some(first), false) = (seeds.first(), loads.is_empty()) else {
            return Err(SetupError::Nothing);
        };
        if !(4..=168).contains(&scale.hours) {
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
        Ok(Self {
            customers: customers(*first).into(),
            seeds,
            scale,
            loads,
            sources: sources.about.clone(),
            recordings: sources
                .recordings
                .iter()
                .map(|r| (r.name.clone(), r.role))
                .collect(),
            made_of: Arc::new(sources),
        })
    }

    /// Returns all jobs, by seed.
    pub fn jobs(&self) -> Vec<Job> {
        let fingerprint = self.made_of.fingerprint();
        let mut jobs = Vec::new();
        for seed in &self.seeds {
            let made_of = self.made_of_with(*seed);
            let job = |array, customer: &Customer, load| Job {
                seed: *seed,
                array,
                customer: customer.clone(),
                load,
                scale: self.scale,
                fingerprint,
                made_of: Arc::clone(&made_of),
            };
            let all = customers(*seed);
            for load in &self.loads {
                jobs.extend(all.iter().map(|c| job(ArrayKind::Disks, c, *load)));
            }
            // No claim uses the all-flash array, so one run is enough.
            if *seed == self.seeds[0] {
                jobs.push(job(ArrayKind::Flash, &all[1], Load::AsDrawn));
            }
        }
        jobs
    }

    /// Returns the sources, with random intensities of the seed if no intensities were measured.
    fn made_of_with(&self, seed: u64) -> Arc<Sources> {
        if !self.made_of.intensities.is_empty() {
            return Arc::clone(&self.made_of);
        }
        Arc::new(Sources {
            intensities: Sources::drawn_intensities(seed),
            ..(*self.made_of).clone()
        })
    }

    /// Returns the number of unmeasured hours at the start.
    pub fn warmup_hours(&self) -> u32 {
        WARMUP_HOURS
    }

    /// Returns the assumptions in place of unpublished details, as text.
    pub fn assumptions(&self) -> Vec<String> {
        let texts = [
            "The paper's traces (four customers of a storage vendor) are private. A customer here has 98 volumes. Each plays pieces of 4,096 requests of one recording in random order, at the times of a Poisson process whose rate follows an intensity per half hour.",
            "The paper publishes only results of the customers. Ours differ in their recordings (`roles`) and in their load (`load`: the share of time that a SATA disk is busy in the busiest half hour behind an LRU cache, without moves). Loads were chosen for response times of the published order of magnitude, which is a calibration; the comparison of methods is not.",
            "Matched loads: one factor per class on the rates of its volumes. A limited number of runs of the first six hours searches for mean response times under LRU with the QoS back end near table I; a table shows the result. Response times of cached volumes depend more on the cached data than on load, so some published values cannot be reached.",
            "Classes are assigned at random: 20 % of the volumes high, 40 % medium, 40 % low; targets 2, 6 and 12 ms as published.",
            "Cache: 4 % of the pages that the day touches, a fifth of it for writes (the paper: 100 GB, no split given). Requests are of whole pages. A write is acknowledged at once unless half of the permitted dirty pages are being written to the devices; adjacent evicted pages are written together.",
            "Accessed extents take a fifth of the space at random places, 3 % on the SSD, 18 % on FC, 79 % on SATA. Extents that are never accessed are not simulated: their slots are free, and an exchange with one is a single copy. FC and SATA are one group of disks each with RAID 5, in chunks of 4 MiB, which places an extent on one or two disks: a destaged page is read and written on its disk and on the disk of its parity. The single SSD has no redundancy.",
            "Service times: FC 5.6 ms, SATA 12.9 ms before the transfer, SSD 0.25 ms (reads) and 0.6 ms (writes); an access that starts at the end of the previous access on its disk needs no positioning. A request that the cache serves takes 0.02 ms.",
            "Back end (its paper could not be read beyond the abstract): the strategy qos-exchange, at most 15,000 exchanges an hour between three tiers, without knowledge of the disk within a group. Eight copies run concurrently, volume by volume, at up to 20 MB/s each, or a fifth of that while a class on their devices violates its target; unfinished copies continue in the next hour. Weights depend on the class and on the violation of a volume's targets by its device requests in the last half hour. \"Regular\" is the same with equal weights. Loads count twice, since the next hour differs from the last one: with single loads the SSD is overloaded hour after hour (for all methods; totals are then 1.1 to 8 times as high).",
            "A volume has at most 32 outstanding requests. Under overload the loop is closed: late requests are issued later and counted then.",
            "The all-flash array: 2 TLC and 6 QLC drives with translation layer, garbage collection and wear (presets `tlc-nvme` and `qlc-nvme`, a sixteenth of their pages simulated, aged by two overwrites), targets 0.15, 0.3 and 0.6 ms, an hour compressed to a minute, and 250 exchanges in it; drives are full, and there is no redundancy. The planner assumes service times of 0.08 and 0.12 ms for reads, 0.025 and 0.4 ms for writes, 16 at once.",
        ];
        texts.map(String::from).into()
    }
}
