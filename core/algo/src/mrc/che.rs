//! Miss-ratio curve of a load with known rates only.

use super::{Confidence, Curve};

/// Result of Che's approximation for one cache size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Che {
    /// Time that an unreferenced block stays in the cache, in the inverse unit of the rates.
    pub characteristic_time: f64,
    /// Share of the references that hit.
    pub hit_ratio: f64,
}

/// Computes the hit ratio of an LRU cache of `size` blocks under independent references. Finds the time t with Σ (1 −
/// e^(−λ·t)) = size; block i hits with 1 − e^(−λᵢ·t) (Che, Tung, Wang, IEEE JSAC 2002).
///
/// `None` if the cache holds every referenced block. The error is one or two percent for independent references; loads
/// with phases, scans or loops are not independent.
pub fn che(rates: &[f64], size: u64) -> Option<Che> {
    let rates = || rates.iter().copied().filter(|r| *r > 0.0 && r.is_finite());
    let size = size as f64;
    if rates().count() as f64 <= size {
        return None;
    }
    let total: f64 = rates().sum();
    let filled = |t: f64| rates().map(|r| -libm::expm1(-r * t)).sum::<f64>();
    // Lower bound: touching `size` blocks takes `size` references.
    let (mut low, mut high) = (0.0, (size / total).max(f64::MIN_POSITIVE));
    while filled(high) < size {
        (low, high) = (high, high * 2.0);
        if !high.is_finite() {
            return None;
        }
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if filled(middle) < size {
            low = middle;
        } else {
            high = middle;
        }
    }
    let time = 0.5 * (low + high);
    let hits: f64 = rates().map(|r| -r * libm::expm1(-r * time)).sum();
    Some(Che {
        characteristic_time: time,
        hit_ratio: hits / total,
    })
}

impl Curve {
    /// Computes the curve of independent references at these rates, at these sizes. A cache that holds every block has
    /// no misses.
    pub fn of_rates(rates: &[f64], sizes: &[u64]) -> Self {
        let ratio = |size| che(rates, size).map_or(0.0, |c| 1.0 - c.hit_ratio);
        let blocks = rates.iter().filter(|r| **r > 0.0).count() as u64;
        let confidence = Confidence {
            references: 0,
            blocks,
            standard_error: None,
        };
        Curve::new(sizes.iter().map(|size| (*size, ratio(*size))), confidence)
    }
}
