//! Step 4: which sizes of cache are worth looking at, for which workload?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::curve::Curve;

/// Sizes that are tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SizingConfig {
    /// Cache sizes, growing.
    pub sizes: Vec<Bytes>,
    /// Memory that an appliance needs for itself, on top (the paper gives a cache of 3 GB an appliance of 4 GB).
    pub own_memory: Bytes,
    /// Size of a page: reads that miss are of whole pages. 0 is as large as what is read.
    pub page: Bytes,
    /// Where a resource is full, so that nobody knows how much is asked of it, the size that takes most off it, to a twentieth of what it can do; else the least
    /// that is predicted to do.
    pub relief: bool,
}

impl Default for SizingConfig {
    fn default() -> Self {
        Self {
            sizes: [1, 2, 3, 4, 6, 8, 12, 16].map(Bytes::gib).into(),
            own_memory: Bytes::gib(1),
            page: Bytes::ZERO,
            relief: false,
        }
    }
}

impl SizingConfig {
    /// The largest size; nothing without any.
    pub fn largest(&self) -> Bytes {
        self.sizes.last().copied().unwrap_or(Bytes::ZERO)
    }

    /// Sizes with the miss ratio that is expected of each.
    pub fn candidates(&self, curve: &Curve) -> Vec<(Bytes, f64)> {
        self.sizes.iter().map(|s| (*s, curve.at(*s))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_candidate_never_misses_more() {
        let curve = Curve::new(vec![(Bytes::gib(2), 0.5), (Bytes::gib(5), 0.1)]);
        let config = SizingConfig::default();
        let candidates = config.candidates(&curve);
        assert_eq!(candidates.len(), 8);
        assert!(
            candidates
                .windows(2)
                .all(|w| w[0].0 < w[1].0 && w[0].1 >= w[1].1)
        );
        assert_eq!(candidates[1].1, 0.5);
        assert_eq!(config.largest(), Bytes::gib(16));
    }
}
