//! Readings of the paper where it gives no details: fill rate of a cache.

use serde::{Deserialize, Serialize};
use units::{Bytes, BytesPerSec};

use crate::claim::Reading;

/// Published: the cache (sec. 7.1), and the time from its creation at minute 55 to its effect at 65 (sec. 7.2).
const CACHE_PUBLISHED: Bytes = Bytes::gib(3);
const FILL_PUBLISHED_S: u64 = 600;

/// Fill rate of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillRate {
    /// As fast as the backend delivers.
    Fast,
    /// Bounded: the published cache in the published ten minutes.
    Slow,
}

impl FillRate {
    /// Both rates.
    pub const ALL: [Self; 2] = [Self::Fast, Self::Slow];

    /// Returns the short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
        }
    }

    /// Returns the maximum fill rate of an appliance.
    pub(super) fn fill_max(self) -> Option<BytesPerSec> {
        let rate = || BytesPerSec(CACHE_PUBLISHED.0 / FILL_PUBLISHED_S);
        (self == Self::Slow).then(rate)
    }

    pub(super) fn reading(self) -> Reading {
        let (says, fill) = match self {
            Self::Fast => (
                "the cache keeps every read that the backend serves, so only the load limits the rate of its fill",
                "unbounded",
            ),
            Self::Slow => (
                "the fill of a cache is limited to its 3 GiB in ten minutes, the time in the paper; a warm-up precedes reads of the workload",
                "3 GiB in 10 min",
            ),
        };
        Reading {
            id: self.name().into(),
            says: says.into(),
            choices: vec![("fill", fill.into())],
        }
    }
}
