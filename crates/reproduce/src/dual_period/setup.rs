//! What is run.

use serde::Serialize;
use thiserror::Error;
use trace::conditions::condition_names;

use super::job::{Job, Purpose};
use super::sensitivity;

/// Shares of the fast tier, percent of the capacity (published).
pub(crate) const FAST_SHARES: [u8; 6] = [5, 10, 15, 20, 25, 30];

/// Conditions that are run with every seed; the others with the first one.
pub(crate) const SEEDED: [&str; 10] = [
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
/// Two more stand-ins for condition A, first seed.
pub(crate) const OTHER_STAND_INS: [&str; 2] = ["A2", "A3"];

/// Days of which the first two do not count.
const DAYS_MIN: u32 = 4;

/// What is run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    /// Loads are drawn from each.
    pub seeds: Vec<u64>,
    /// Length of the load, days.
    pub days: u32,
    /// Shares of the fast tier, percent.
    pub fast_shares: Vec<u8>,
    /// All conditions, run with the first seed.
    pub conditions: Vec<String>,
    /// Those that are run with all seeds.
    pub seeded: Vec<&'static str>,
}

/// What makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// No interval from one seed.
    #[error("at least 2 seeds are needed, not {0}: one has no interval")]
    Seeds(u64),
    /// Nothing would count.
    #[error("at least {DAYS_MIN} days are needed, not {0}: the first two do not count")]
    Days(u32),
}

impl Setup {
    /// From the first seed on, `seeds` of them.
    pub fn new(seeds: u64, first: u64, days: u32) -> Result<Self, SetupError> {
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
            conditions: condition_names(),
            seeded: SEEDED.into(),
        })
    }

    /// Everything to be run, the longest first. They share nothing.
    pub fn jobs(&self) -> Vec<Job> {
        let first = self.seeds[0];
        let mut jobs: Vec<Job> = Vec::new();
        let mut add = |purpose: Purpose, condition: &str, seed: u64| {
            jobs.push(Job::named(purpose, condition, seed, self.days));
        };
        for name in &self.conditions {
            let seeds = if SEEDED.contains(&name.as_str()) {
                &self.seeds[..]
            } else {
                &self.seeds[..1]
            };
            seeds.iter().for_each(|s| add(Purpose::Grid, name, *s));
        }
        for name in OTHER_STAND_INS {
            add(Purpose::Grid, name, first);
        }
        jobs.extend(sensitivity::jobs(first, self.days));
        jobs
    }

    /// What is not published, and what was assumed.
    pub fn assumptions(&self) -> Vec<String> {
        [
            "cello99 is not to be had: condition A is a generator whose parameters were selected, out of 520 random draws, for results near the paper's; agreement on A is a calibration and no confirmation.",
            "Size of a movement I/O: 128 KiB; each extent moved is read and written, up and down. 8 KiB, the size of the paper's application I/O, would make M of a stationary load about 200 %, which cannot be meant.",
            "Total = P / (1 + M); the paper's \"P − M %\" subtracts a percentage from IOPS. P · (1 − M) is reported beside it.",
            "Movement is charged to the hour that follows the decision; the first 48 hours do not count.",
            "Locality of C to G: k = 8.5, 7, 6, 5, 4 (B: k = 10, which gives the published curve).",
            "Areas that move: a random permutation for each part of the day, the same every day; the hottest 5 % of the pages stay.",
            "Each page's intensity varies log-normally (σ = 0.5) from hour to hour of a day's slice, and from day to day; the three hours are repeated page by page, count by count.",
            "Ties stay where they are, then the lower page; what changes areas does not move.",
            "Which C figures 8 and 9 are drawn for is not said: the best of the nine is taken for each condition, and the best of the five L; C = 20 % is beside it.",
            "\"Four hours\" as the best existing period at 5 and 10 % is no tested period: read 24 hours.",
        ]
        .map(String::from)
        .into()
    }
}
