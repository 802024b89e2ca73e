//! Step 1: detection of violations that last long enough for a remedy.
//!
//! ```text
//!            43 of the last 44 samples violate
//!   kept ──────────────────────────────────────▶ broken
//!     ▲                                             │
//!     └─────────────────────────────────────────────┘
//!            fewer than 20 % of the last 44 violate
//! ```
//!
//! Forty-four samples are 7 min 20 s. Spikes of up to seven minutes start no remedy, as in the paper, which leaves those to
//! throttling (Dynamite, sec. 7.2). The cost is a response to a lasting violation that starts 20 s later than with the
//! shortest hold. The two thresholds are far apart, which prevents flapping.
//!
//! When not to use: where minutes of violation are not acceptable. Use a throttle first, or act on a prediction
//! ([`crate::seasonal`]).

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sample::{ObjectiveRelation, Promise, Sample};

/// Detection of a lasting violation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DetectConfig {
    /// Number of latest samples (windows) that are evaluated, at least 1. Default: 44.
    pub samples: usize,
    /// Number of violating samples among them that starts a violation, from 1 to `samples`. Default: 43.
    pub violating_min: usize,
    /// Share of violating samples below which the violation ends, above 0 and up to 1. Default: 0.2.
    pub clear_below: f64,
}

impl Default for DetectConfig {
    fn default() -> Self {
        Self {
            samples: 44,
            violating_min: 43,
            clear_below: 0.2,
        }
    }
}

/// Change of state that a sample caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The violation starts.
    Broken,
    /// The violation ends.
    Cleared,
}

/// Evidence of a detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetectEvidence {
    /// Number of violating samples.
    pub violating: usize,
    /// Number of samples in the window.
    pub samples: usize,
}

/// Detector of violations of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detector {
    config: DetectConfig,
    objective: Promise,
    recent: VecDeque<ObjectiveRelation>,
    broken: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Kept,
    Broken,
}

impl Detector {
    /// Creates a detector for one objective.
    pub fn new(mut config: DetectConfig, objective: Promise) -> Self {
        config.samples = config.samples.max(1);
        config.violating_min = config.violating_min.clamp(1, config.samples);
        Self {
            config,
            objective,
            recent: VecDeque::with_capacity(config.samples),
            broken: State::Kept,
        }
    }

    /// Processes the next sample and returns the change of state.
    pub fn tell(&mut self, sample: &Sample) -> Option<Change> {
        if self.recent.len() == self.config.samples {
            self.recent.pop_front();
        }
        self.recent
            .push_back(ObjectiveRelation::of(&self.objective, sample));
        let DetectEvidence { violating, .. } = self.evidence();
        // A window that is not full gives no result: the missing samples are unknown, not kept.
        if self.recent.len() < self.config.samples {
            return None;
        }
        let share = violating as f64 / self.config.samples as f64;
        match self.broken {
            State::Kept if violating >= self.config.violating_min => {
                self.broken = State::Broken;
                Some(Change::Broken)
            }
            State::Broken if share < self.config.clear_below => {
                self.broken = State::Kept;
                Some(Change::Cleared)
            }
            _ => None,
        }
    }

    /// Returns the standing of the last sample, [`ObjectiveRelation::Kept`] without samples.
    pub fn last(&self) -> ObjectiveRelation {
        self.recent
            .back()
            .copied()
            .unwrap_or(ObjectiveRelation::Kept)
    }

    /// Returns true during a violation.
    pub fn is_broken(&self) -> bool {
        self.broken == State::Broken
    }

    /// Returns the number of violating samples in the window.
    pub fn evidence(&self) -> DetectEvidence {
        DetectEvidence {
            violating: self.recent.iter().filter(|s| s.violates()).count(),
            samples: self.recent.len(),
        }
    }

    /// Returns the number of violating samples among the last `n`.
    pub fn violating_of_last(&self, n: usize) -> usize {
        let last = self.recent.iter().rev().take(n);
        last.filter(|s| s.violates()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector() -> Detector {
        let objective = Promise {
            rate_min_per_s: Some(1000.0),
            latency_max: None,
            ..Promise::default()
        };
        Detector::new(DetectConfig::default(), objective)
    }

    fn at(rate: f64) -> Sample {
        Sample {
            reads_per_s: rate,
            occupied: 1.0,
            waiting: 9,
            ..Sample::default()
        }
    }

    /// Returns the first change of state and the index of its sample.
    fn first_change(rates: impl Iterator<Item = f64>) -> Option<(usize, Change)> {
        let mut detector = detector();
        rates
            .enumerate()
            .find_map(|(i, r)| detector.tell(&at(r)).map(|c| (i, c)))
    }

    #[test]
    fn violation_starts_above_the_share_of_violating_samples() {
        let calm = std::iter::repeat_n(1500.0, 100);
        let spike = calm
            .clone()
            .chain(std::iter::repeat_n(500.0, 42))
            .chain(calm.clone());
        assert_eq!(first_change(spike), None);
        let lasting = calm.chain(std::iter::repeat_n(500.0, 60));
        // One of the 44 samples may be kept, so the 43rd violating sample starts the violation.
        assert_eq!(first_change(lasting), Some((142, Change::Broken)));
    }

    #[test]
    fn violation_ends_late_and_once() {
        let mut detector = detector();
        for _ in 0..44 {
            detector.tell(&at(500.0));
        }
        assert!(detector.is_broken());
        let changes: Vec<_> = (0..100)
            .filter_map(|i| detector.tell(&at(1500.0)).map(|c| (i, c)))
            .collect();
        // 8 of 44 are 18 %.
        assert_eq!(changes, [(35, Change::Cleared)]);
    }

    #[test]
    fn detection_window_has_at_least_one_sample() {
        let config = DetectConfig {
            samples: 0,
            violating_min: 0,
            clear_below: 0.2,
        };
        let mut detector = Detector::new(config, detector().objective);
        let changes: Vec<_> = [1500.0, 500.0, 500.0, 1500.0]
            .map(|r| detector.tell(&at(r)))
            .into();
        let want = [None, Some(Change::Broken), None, Some(Change::Cleared)];
        assert_eq!(changes, want);
    }

    #[test]
    fn detection_waits_for_a_full_window() {
        assert_eq!(first_change(std::iter::repeat_n(1.0, 43)), None);
    }
}
