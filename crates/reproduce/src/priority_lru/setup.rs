//! What is run.

use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;

use super::arrays::{Scale, WARMUP_HOURS};
use super::customer::{Customer, Role, Sources, customers};
use super::job::{ArrayKind, Job, Load};

/// What to run.
#[derive(Debug, Clone, Serialize)]
pub struct Setup {
    /// Of everything random: volumes, classes, sizes, arrivals.
    pub seeds: Vec<u64>,
    /// How much is simulated.
    pub scale: Scale,
    /// How busy customers are, in turn.
    pub loads: Vec<Load>,
    /// What customers are made of.
    pub sources: String,
    /// Recordings and what they are taken for.
    pub recordings: Vec<(String, Role)>,
    /// The customers, with the first seed.
    pub customers: Vec<Customer>,
    #[serde(skip)]
    made_of: Arc<Sources>,
}

/// A setup that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// Nothing to run.
    #[error("at least one seed and one load are needed")]
    Nothing,
    /// Too short.
    #[error("--hours: the first two do not count, so at least 4 are needed, at most 168")]
    Hours,
    /// A role without recordings.
    #[error("customers need recordings of transactions, of scans and of files; there is none of {}", match .0 { Role::Transactions => "transactions", Role::Scans => "scans", Role::Files => "files" })]
    NoRecording(Role),
}

impl Setup {
    /// From recordings and intensities; intensities are drawn, with each seed, where there are none.
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

    /// Everything that is to be run, seed by seed.
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
            // No claim rests on it: one look is enough.
            if *seed == self.seeds[0] {
                jobs.push(job(ArrayKind::Flash, &all[1], Load::AsDrawn));
            }
        }
        jobs
    }

    /// With intensities drawn from the seed, where none were measured.
    fn made_of_with(&self, seed: u64) -> Arc<Sources> {
        if !self.made_of.intensities.is_empty() {
            return Arc::clone(&self.made_of);
        }
        Arc::new(Sources {
            intensities: Sources::drawn_intensities(seed),
            ..(*self.made_of).clone()
        })
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
            "Matched loads: one factor for each class on the rates of its volumes, searched in a bounded number of runs of the first six hours for mean response times under LRU with the QoS back end near those of table I; what was reached is in a table. Response times of cached volumes hang more on what is cached than on load, so not every printed value can be reached.",
            "Classes are drawn: 20 % of the volumes high, 40 % medium, 40 % low; targets 2, 6 and 12 ms as published.",
            "Cache: 4 % of the pages that the day touches, a fifth of it for writes (the paper: 100 GB, no split given). Requests are of whole pages. A write is answered at once unless half of what may be dirty is on its way to the devices; pages that leave beside each other are written as one.",
            "Touched extents take a fifth of the room and lie at random, 3 % on the SSD, 18 % on FC, 79 % on SATA. What is never touched is not there: its place is free, and to exchange with it is one copy. FC and SATA are one group of disks each with RAID 5, in chunks of 4 MiB, so that an extent is on one disk or two: a destaged page is read and written on its disk and on that of its parity. The SSD is alone and has no redundancy.",
            "Service times: FC 5.6 ms, SATA 12.9 ms before the transfer, SSD 0.25 ms (reads) and 0.6 ms (writes); an access that begins where the one before it on its disk ended needs no positioning. What is satisfied in the cache takes 0.02 ms.",
            "Back end (its paper could not be read beyond the abstract): the strategy qos-exchange, at most 15,000 exchanges an hour between three tiers; which disk of a group an extent is on it does not know. Eight copies go at once, volume by volume, at 20 MB/s each at most and a fifth of that while a class on their devices misses its target; what is not done when the hour ends goes on. Weights by class and by how far a volume's requests to devices missed what its target leaves them in the last half hour. \"Regular\" is the same with equal weights. Loads count twice, since the hour to come is not the one before: with loads as they were the SSD is overloaded hour after hour (for all methods; totals are 1.1 to 8 times as high then).",
            "A volume has 32 requests outstanding at most. Overload closes the loop then: what is late comes later, and is not counted before.",
            "The all-flash array: 2 TLC and 6 QLC drives with translation layer, garbage collection and wear (presets `tlc-nvme` and `qlc-nvme`, a sixteenth of their pages simulated, aged by two overwrites), targets 0.15, 0.3 and 0.6 ms, an hour compressed to a minute, and 250 exchanges in it; drives are full, and there is no redundancy. The planner believes in service times of 0.08 and 0.12 ms for reads, 0.025 and 0.4 ms for writes, 16 at once.",
        ];
        texts.map(String::from).into()
    }
}
