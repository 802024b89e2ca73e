//! Which extents of a volume carry its load, by the epochs of late in which something was asked of them.

use model::{ExtentFacts, Objective, SloStatistic};
use serde::{Deserialize, Serialize};
use units::DeviceId;

/// Parts that a volume is looked at in, at most: neighbouring extents together.
const BUCKETS_MAX: u32 = 512;
/// Epochs of which it is known what was asked for, out of the last 32 with requests, from which a part of a volume is in use: a scan comes by once.
const IN_USE: u32 = 2;
/// What an epoch keeps of what is known of requests that went elsewhere.
const KEEPS: f64 = 0.8;
/// Requests that are taken to have gone elsewhere unseen: of few requests not much is known.
const UNSEEN: f64 = 2.0;
/// Epochs after which that is known.
const EPOCHS_MIN: u32 = 4;
/// Share of a percentile's tail that requests to what is not in use may be, ...
const OF_TAIL: f64 = 0.5;
/// ... of all requests where the objective is a mean, and where there is none.
const OF_MEAN: f64 = 0.01;
const OF_FREE: f64 = 0.02;

/// What was asked of a volume's parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Touched {
    /// Extents, and how many of them are one part.
    extents: u32,
    per_bucket: u32,
    /// By part, a bit for each epoch with requests, the newest lowest.
    epochs: Vec<u32>,
    /// Epochs with requests so far.
    seen: u32,
    /// Requests of late that went to what was not in use when they came, and all of them.
    elsewhere: f64,
    requests: f64,
}

/// Neighbouring extents in one place and one part of their volume.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub first: u32,
    pub end: u32,
    pub device: DeviceId,
    /// Epochs of late in which something was asked of them.
    pub epochs: u32,
}

impl Run {
    /// Whether they carry some of their volume's load.
    pub(super) fn in_use(&self) -> bool {
        self.epochs >= IN_USE
    }
}

/// The share of requests that may go to what is not in use, for the rest to count as all of the volume.
fn elsewhere_max(target: Option<Objective>) -> f64 {
    match target.map(|t| t.statistic) {
        Some(SloStatistic::P95) => OF_TAIL * 0.05,
        Some(SloStatistic::P99) => OF_TAIL * 0.01,
        Some(SloStatistic::Mean) => OF_MEAN,
        None => OF_FREE,
    }
}

/// Whether so large a share of requests elsewhere is too much for a volume with such an objective.
pub(super) fn astray(share: f64, target: Option<Objective>) -> bool {
    share > elsewhere_max(target)
}

impl Touched {
    /// One more epoch, if it says something: one of a silent volume does not.
    pub(super) fn absorb(&mut self, facts: &ExtentFacts, requests_min: u64) {
        let extents = facts.places.count();
        if self.extents != extents || self.per_bucket == 0 {
            let per_bucket = extents.div_ceil(BUCKETS_MAX).max(1);
            let buckets = extents.div_ceil(per_bucket) as usize;
            *self = Self {
                extents,
                per_bucket,
                epochs: vec![0; buckets],
                ..Self::default()
            };
        }
        let Some(heat) = &facts.heat else { return };
        let of = |(extent, ios): &(u32, u32)| {
            let bucket = (extent / self.per_bucket) as usize;
            (bucket.min(self.epochs.len() - 1), u64::from(*ios))
        };
        let touched: Vec<(usize, u64)> = match self.epochs.is_empty() {
            true => return,
            false => heat.touched().iter().map(of).collect(),
        };
        let total: u64 = touched.iter().map(|t| t.1).sum();
        if total < requests_min {
            return;
        }
        if self.seen >= IN_USE {
            let unused = |t: &&(usize, u64)| self.epochs[t.0].count_ones() < IN_USE;
            let elsewhere: u64 = touched.iter().filter(unused).map(|t| t.1).sum();
            self.elsewhere = KEEPS * self.elsewhere + elsewhere as f64;
            self.requests = KEEPS * self.requests + total as f64;
        }
        self.epochs.iter_mut().for_each(|e| *e <<= 1);
        touched.iter().for_each(|t| self.epochs[t.0] |= 1);
        self.seen = self.seen.saturating_add(1);
    }

    /// Whether what is in use can be taken for all of a volume with such an objective.
    pub(super) fn holds(&self, target: Option<Objective>) -> bool {
        let elsewhere = (self.elsewhere + UNSEEN) / self.requests.max(1.0);
        self.seen >= IN_USE + EPOCHS_MIN && elsewhere <= elsewhere_max(target)
    }

    /// Its extents that have a place, in order.
    pub(super) fn runs<'a>(&'a self, facts: &'a ExtentFacts) -> impl Iterator<Item = Run> + 'a {
        let per = self.per_bucket.max(1);
        let mut next = 0;
        let with_first = facts.places.runs().iter().map(move |(count, place)| {
            let first = next;
            next += count;
            (first, next, *place)
        });
        let placed = with_first.filter_map(|(first, end, place)| Some((first, end, place?)));
        placed.flat_map(move |(first, end, device)| {
            (first / per..=(end - 1) / per).map(move |bucket| Run {
                first: first.max(bucket * per),
                end: end.min((bucket + 1) * per),
                device,
                epochs: self
                    .epochs
                    .get(bucket as usize)
                    .map_or(0, |e| e.count_ones()),
            })
        })
    }
}
