//! Step 4: cache sizes to evaluate, for each workload.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::curve::Curve;

/// Cache sizes of an appliance that are evaluated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SizingConfig {
    /// Cache sizes in ascending order. Default: 1, 2, 3, 4, 6, 8, 12 and 16 GiB.
    pub sizes: Vec<Bytes>,
    /// Memory that an appliance needs in addition to its cache. Default: 1 GiB, as in the paper: 4 GB for a cache
    /// of 3 GB.
    pub own_memory: Bytes,
    /// Size of a page of the appliance: a miss reads whole pages. 0, the default, assumes pages of the size of the
    /// reads.
    pub page: Bytes,
    /// Size to prefer if a resource is full, so its demand is unknown. true: the size that reduces its use most, in
    /// steps of 5 %. false, the default: the smallest size that is predicted to suffice.
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
    /// Returns the largest size; 0 without any.
    pub fn largest(&self) -> Bytes {
        self.sizes.last().copied().unwrap_or(Bytes::ZERO)
    }

    /// Returns all sizes with the expected miss ratio of each.
    pub fn candidates(&self, curve: &Curve) -> Vec<(Bytes, f64)> {
        self.sizes.iter().map(|s| (*s, curve.at(*s))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_cache_candidate_never_misses_more() {
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
