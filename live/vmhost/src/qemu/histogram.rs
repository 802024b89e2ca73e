//! Conversion of QEMU's latency histograms to our buckets.
//!
//! QEMU counts a disk's requests between bounds that a client sets. Ours are [`bounds`]: 24 from 20 µs to 2 s, each
//! 1.65 times the previous one. All requests between two bounds count at their geometric mean, so a percentile is
//! between 0.78 and 1.29 times its true value. Requests below the first bound count as 0.78 times it, and requests
//! above the last as 1.29 times it. Both may be far off.

use crate::HostError;
use crate::qemu::value::PathValue;

/// First and last bound.
pub const BOUNDS_NS: (u64, u64) = (20_000, 2_000_000_000);
const BOUNDS: usize = 24;
/// Ratio of successive bounds: the 23rd root of 100,000.
const STEP: f64 = 1.6496480740980204;

/// Returns the bounds of our histograms in nanoseconds.
pub fn bounds() -> Vec<u64> {
    let (first, last) = (BOUNDS_NS.0 as f64, BOUNDS_NS.1 as f64);
    let bound = |i: usize| match i + 1 {
        BOUNDS => last as u64,
        _ => (first * STEP.powi(i as i32)).round() as u64,
    };
    (0..BOUNDS).map(bound).collect()
}

/// Returns the bucket for QEMU's count below each bound, and for its count above the last.
fn buckets() -> Vec<u16> {
    let half = STEP.sqrt();
    let middles = bounds().into_iter().map(|bound| bound as f64 / half);
    let above = BOUNDS_NS.1 as f64 * half;
    let values = middles.chain([above]);
    values.map(|ns| algo::bucket_of(ns as u64) as u16).collect()
}

/// Histogram in a disk's statistics.
pub(super) enum Histogram {
    None,
    /// Histogram with our bounds: requests by bucket.
    Ours(Vec<(u16, u64)>),
    Others,
}

impl Histogram {
    pub(super) fn of(field: &PathValue<'_>) -> Result<Self, HostError> {
        if !field.is_there() {
            return Ok(Self::None);
        }
        let numbers = |name: &str| -> Result<Vec<u64>, HostError> {
            let items = field.field(name).items()?;
            items.iter().map(PathValue::number).collect()
        };
        if numbers("boundaries")? != bounds() {
            return Ok(Self::Others);
        }
        let bins = numbers("bins")?;
        if bins.len() != BOUNDS + 1 {
            return Err(field
                .field("bins")
                .fault("the number of bins must be the number of bounds plus one"));
        }
        let counted = buckets().into_iter().zip(bins);
        Ok(Self::Ours(counted.filter(|(_, n)| *n > 0).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_bounds_are_even_and_buckets_within_their_error() {
        let bounds = bounds();
        assert_eq!(bounds.len(), 24);
        assert_eq!((bounds[0], bounds[23]), BOUNDS_NS);
        let buckets = buckets();
        assert!(buckets.windows(2).all(|b| b[0] < b[1]), "{buckets:?}");
        for (pair, bucket) in bounds.windows(2).zip(&buckets[1..]) {
            let value = algo::bucket_value_ns(usize::from(*bucket)) as f64;
            let off = (value / pair[0] as f64, value / pair[1] as f64);
            assert!(off.0 < 1.31 && off.1 > 0.76, "{pair:?}: {value}, {off:?}");
        }
    }
}
