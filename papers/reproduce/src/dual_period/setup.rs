//! Setup of the runs.

use serde::Serialize;
use thiserror::Error;
use trace::conditions::condition_names;

use super::choice::CONSTRUCTIONS;
use super::job::{Job, MethodSet, Purpose};
use super::sensitivity;

/// Shares of the fast tier in percent of the capacity (published).
pub(crate) const FAST_SHARES: [u8; 6] = [5, 10, 15, 20, 25, 30];

/// Two more stand-ins for condition A, run with the first seed.
pub(crate) const OTHER_STAND_INS: [&str; 2] = ["A2", "A3"];

/// Conditions of a quick run.
pub(crate) const SOME: [&str; 10] = [
    "A",
    "B-1h",
    "B-6h",
    "B-not-move",
    "D-1h",
    "D-6h",
    "D-not-move",
    "G-1h",
    "G-6h",
    "G-not-move",
];

/// Set of conditions to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conditions {
    /// All 31.
    All,
    /// A, and three of B to G with three of five cycles.
    Some,
}

/// Minimum number of days; the first two do not count.
const DAYS_MIN: u32 = 4;

/// Setup of the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Seeds of the loads.
    pub seeds: Vec<u64>,
    /// Length of the load in days.
    pub days: u32,
    /// Shares of the fast tier in percent.
    pub fast_shares: Vec<u8>,
    /// Conditions.
    pub conditions: Vec<String>,
}

/// Invalid setup.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// One seed gives no interval.
    #[error("at least 2 seeds are required, not {0}: one seed gives no interval")]
    Seeds(u64),
    /// No day would be counted.
    #[error("at least {DAYS_MIN} days are required, not {0}: the first two are not measured")]
    Days(u32),
}

impl Setup {
    /// Creates a setup with `seeds` seeds from the first one on.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(
        seeds: u64,
        first: u64,
        days: u32,
        conditions: Conditions,
    ) -> Result<Self, SetupError> {
        if seeds < 2 {
            return Err(SetupError::Seeds(seeds));
        }
        if days < DAYS_MIN {
            return Err(SetupError::Days(days));
        }
        Ok(Self {
            seeds: (first..first + seeds).collect(),
            days,
            fast_shares: FAST_SHARES.into(),
            conditions: match conditions {
                Conditions::All => condition_names(),
                Conditions::Some => SOME.map(String::from).into(),
            },
        })
    }

    /// Returns all jobs, by seed. They are independent.
    pub fn jobs(&self) -> Vec<Job> {
        let (first, days) = (self.seeds[0], self.days);
        let mut jobs: Vec<Job> = Vec::new();
        for seed in &self.seeds {
            for name in self
                .conditions
                .iter()
                .map(String::as_str)
                .chain(OTHER_STAND_INS)
            {
                let mut purposes = CONSTRUCTIONS.map(|c| Purpose::of(name, c)).to_vec();
                purposes.dedup();
                let compared = match name.contains('-') && *seed != first {
                    true => MethodSet::Published,
                    false => MethodSet::All,
                };
                let named = |purpose| Job {
                    compared,
                    ..Job::named(purpose, name, *seed, days)
                };
                jobs.extend(purposes.into_iter().map(named));
            }
        }
        jobs.extend(sensitivity::jobs(first, days));
        jobs
    }

    /// Returns the assumptions for details that are not published.
    pub fn assumptions(&self) -> Vec<String> {
        [
            "cello99 is not available: condition A is a generator whose parameters were selected from 520 random draws for results near the paper's; agreement on A is a calibration, not a confirmation.",
            "Size of a movement I/O: 128 KiB in figures, 64 and 256 KiB in other readings; each moved extent is read and written, in both directions. 8 KiB, the size of the paper's application I/O, would give an M of about 200 % for a stationary load, which is implausible.",
            "Total = P / (1 + M); the paper's \"P − M %\" subtracts a percentage from IOPS. P · (1 − M) is also reported.",
            "Movement is charged to the hour that follows the decision; the first 48 hours are not measured.",
            "Locality of C to G: k = 8.5, 7, 6, 5, 4 (B: k = 10, which gives the published curve).",
            "Moving areas: a random permutation for each part of the day, the same every day; the hottest 5 % of the pages stay.",
            "Cut from A: the stable part has the condition's locality and mean intensity, sessions and bursts are those of the stand-in for A, which continues during the 21 hours between two slices. Joined slices need eight days of A for one day of the condition, more than a month of a log provides.",
            "Independent jitter: each page's intensity varies log-normally (σ = 0.5) from hour to hour of a day's slice, and from day to day.",
            "A repeated slice repeats the exact counts of every page.",
            "Ties: pages that are already there stay, then the lower page wins; a change of the area alone moves no page.",
            "The paper does not give the C of figures 8 and 9: the best of the nine is taken for each condition, and the best of the five L; C = 20 % is also shown.",
            "\"Four hours\" as the best existing period at 5 and 10 % is not a tested period: it is read as 24 hours.",
        ]
        .map(String::from)
        .into()
    }
}
