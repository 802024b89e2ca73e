//! What the guests saw: latencies by class and stretch of time, and objectives that were missed.

use std::sync::{Mutex, PoisonError};

use algo::Histogram;

use crate::loads::{CLASSES, LOADS};

/// A stretch of the demonstration that the table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// Before the first move of the first half can have begun.
    Begin,
    /// The end of the first half.
    Settled,
    /// Just after the loads have changed.
    Changed,
    /// The end.
    End,
}

impl Stretch {
    /// All, in order.
    pub const ALL: [Stretch; 4] = [
        Stretch::Begin,
        Stretch::Settled,
        Stretch::Changed,
        Stretch::End,
    ];

    /// As shown.
    pub fn name(self) -> &'static str {
        match self {
            Stretch::Begin => "begin",
            Stretch::Settled => "settled",
            Stretch::Changed => "changed",
            Stretch::End => "end",
        }
    }
}

/// Numbers of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassNumbers {
    /// The class.
    pub class: &'static str,
    /// By stretch: requests per second, mean and 99th percentile in microseconds.
    pub stretches: Vec<(f64, f64, f64)>,
    /// Volume-seconds in which the objective was missed, over the whole time.
    pub missed_s: u64,
    /// Requests, over the whole time.
    pub ios: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Mean latency over the whole time, microseconds.
    pub mean_us: f64,
    /// 99th percentile over the whole time, microseconds.
    pub p99_us: f64,
}

/// Counts what clients see. One lock per volume, taken a few hundred times a second.
pub(crate) struct Tally {
    length_s: f64,
    volumes: Vec<Mutex<VolumeTally>>,
}

#[derive(Default)]
struct VolumeTally {
    second: u64,
    now: Histogram,
    stretches: [Histogram; 4],
    all: Histogram,
    missed_s: u64,
    errors: u64,
}

/// Parts of the whole time that the stretches are: begin and end.
const PARTS: [(f64, f64); 4] = [(0.0, 0.1), (0.4, 0.5), (0.5, 0.6), (0.9, 1.0)];

impl Tally {
    pub(crate) fn new(length_s: f64) -> Self {
        Self {
            length_s,
            volumes: LOADS.iter().map(|_| Mutex::default()).collect(),
        }
    }

    /// A request of a volume has ended, `at_s` after the beginning.
    pub(crate) fn count(&self, volume: usize, at_s: f64, latency_ns: u64, ok: bool) {
        let mut v = self.volumes[volume]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !ok {
            v.errors += 1;
            return;
        }
        v.roll(volume, at_s as u64);
        v.now.record(latency_ns);
        v.all.record(latency_ns);
        let part = at_s / self.length_s;
        for (i, (from, to)) in PARTS.iter().enumerate() {
            if (*from..*to).contains(&part) {
                v.stretches[i].record(latency_ns);
            }
        }
    }

    /// Numbers by class.
    pub(crate) fn numbers(&self) -> Vec<ClassNumbers> {
        let classes = CLASSES.iter();
        classes.map(|class| self.of_class(class.name)).collect()
    }

    fn of_class(&self, class: &'static str) -> ClassNumbers {
        let mut sum = VolumeTally::default();
        for (i, load) in LOADS.iter().enumerate().filter(|(_, l)| l.class == class) {
            let mut v = self.volumes[i]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            v.roll(i, u64::MAX);
            debug_assert_eq!(load.class, class);
            for (to, from) in sum.stretches.iter_mut().zip(&v.stretches) {
                to.merge(from);
            }
            sum.all.merge(&v.all);
            sum.missed_s += v.missed_s;
            sum.errors += v.errors;
        }
        let us = |h: &Histogram| (h.mean_us(), h.quantile_ns(0.99) as f64 / 1e3);
        let stretches = sum.stretches.iter().zip(PARTS).map(|(h, (from, to))| {
            let (mean, p99) = us(h);
            (h.count() as f64 / ((to - from) * self.length_s), mean, p99)
        });
        let (mean_us, p99_us) = us(&sum.all);
        ClassNumbers {
            class,
            stretches: stretches.collect(),
            missed_s: sum.missed_s,
            ios: sum.all.count(),
            errors: sum.errors,
            mean_us,
            p99_us,
        }
    }
}

impl VolumeTally {
    /// Ends the second that is over.
    fn roll(&mut self, volume: usize, second: u64) {
        if second == self.second {
            return;
        }
        let class = CLASSES.iter().find(|c| c.name == LOADS[volume].class);
        let target_ns = class.map_or(u128::MAX, |c| c.p99.as_nanos());
        if u128::from(self.now.quantile_ns(0.99)) > target_ns {
            self.missed_s += 1;
        }
        self.now.clear();
        self.second = second;
    }
}
