//! Stand-in for condition A: stable popularity, daily sessions, and bursts that do not recur.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PAGES;

/// Generator for condition A. Only the number of pages and the hours of the peak are published. The other parameters
/// were selected from 520 random draws for results near the paper's.
///
/// Each hour's requests have three parts: a stable part that decreases exponentially with a page's rank; sessions, each
/// on a page that is accessed in the same hours of every day; bursts, each on a page that is accessed for some hours
/// and then no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StandIn {
    /// Number of pages (published).
    #[serde(default = "pages")]
    pub pages: u32,
    /// Requests per second outside the peak (assumed; the paper's other conditions have 64 to 85).
    #[serde(default = "iops")]
    pub iops: f64,
    /// Factor of the rate in the peak from 03:00 to 06:00 (the hours are published, the factor is selected).
    pub peak: f64,
    /// Locality of the stable part (selected).
    pub k: f64,
    /// Share of requests in daily sessions (selected). With less than 0.1 the dual-period method mostly loses.
    pub recurring: f64,
    /// Length of a session, hours (selected).
    pub session_hours: u32,
    /// Number of sessions, each on a page drawn at random (selected).
    pub sessions: u32,
    /// Share of requests in bursts (selected).
    pub bursting: f64,
    /// Mean length of a burst, hours, geometrically distributed (selected).
    pub burst_hours: f64,
    /// Number of simultaneous bursts (selected).
    pub bursts: u32,
}

fn pages() -> u32 {
    PAGES
}

fn iops() -> f64 {
    80.0
}

impl StandIn {
    /// Returns the stand-in nearest to the paper's results.
    pub fn first() -> Self {
        Self {
            pages: pages(),
            iops: iops(),
            peak: 5.2,
            k: 6.6,
            recurring: 0.29,
            session_hours: 3,
            sessions: 1739,
            bursting: 0.21,
            burst_hours: 4.4,
            bursts: 137,
        }
    }

    /// Returns the second stand-in: a steeper stable part, short sessions, many bursts.
    pub fn second() -> Self {
        Self {
            peak: 5.8,
            k: 12.7,
            recurring: 0.11,
            session_hours: 1,
            sessions: 1915,
            bursting: 0.18,
            burst_hours: 5.8,
            bursts: 522,
            ..Self::first()
        }
    }

    /// Returns the third stand-in, the best one with movement I/Os of 256 KiB.
    pub fn third() -> Self {
        Self {
            peak: 3.0,
            k: 7.4,
            recurring: 0.15,
            session_hours: 1,
            sessions: 2165,
            bursting: 0.25,
            burst_hours: 5.1,
            bursts: 311,
            ..Self::first()
        }
    }

    /// Returns the stand-in with another share of recurring requests. The stable part takes the difference.
    ///
    /// # Panics
    /// If nothing remains for the stable part.
    pub fn with_recurring(self, recurring: f64) -> Self {
        assert!(
            recurring >= 0.0 && recurring + self.bursting <= 1.0,
            "shares {recurring} and {} do not leave a stable part",
            self.bursting
        );
        Self { recurring, ..self }
    }
}
