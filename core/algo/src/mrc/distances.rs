//! Histograms of distances (or of times): bounded memory, mergeable, in units of whole references.

use serde::{Deserialize, Serialize};

use super::{Confidence, Curve};
use crate::packed;

/// Limit below which each value has its own bucket. Above it there are half as many buckets per power of two, 0.4 %
/// wide.
const EXACT: u64 = 512;
const PER_OCTAVE: u64 = EXACT / 2;
const OCTAVE_FIRST: u32 = EXACT.trailing_zeros();
const BUCKETS_MAX: usize = (EXACT + (64 - OCTAVE_FIRST as u64) * PER_OCTAVE) as usize;

/// Number of references by distance.
///
/// Counts are weights: a reference sampled at rate R counts 1/R, so histograms of different rates, windows and hosts
/// can be added. Memory is below 120 KiB for any input.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distances {
    #[serde(with = "packed_weights")]
    counts: Vec<f64>,
    #[serde(deserialize_with = "weight")]
    never: f64,
    /// Largest weight of a reference. Distances of a sample are multiples of the inverse of its rate.
    #[serde(deserialize_with = "weight")]
    step: f64,
}

/// Deserializes a weight, which must be finite and not negative.
fn weight<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let weight = f64::deserialize(from)?;
    if weight.is_finite() && weight >= 0.0 {
        return Ok(weight);
    }
    Err(serde::de::Error::custom(
        "the weight of references is invalid",
    ))
}

/// Serialization of weights as packed text, by their bits.
mod packed_weights {
    use serde::{Deserializer, Serializer};

    use super::packed;

    pub fn serialize<S: Serializer>(counts: &[f64], to: S) -> Result<S::Ok, S::Error> {
        let bits: Vec<u64> = counts.iter().map(|c| c.to_bits()).collect();
        packed::u64s::serialize(&bits, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        let bits: Vec<u64> = packed::u64s::deserialize(from)?;
        let counts: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        let sound = |c: &f64| c.is_finite() && *c >= 0.0;
        if counts.len() > super::BUCKETS_MAX || !counts.iter().all(sound) {
            return Err(serde::de::Error::custom(
                "the histogram of distances is invalid",
            ));
        }
        Ok(counts)
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros();
    let within = (value >> (octave - OCTAVE_FIRST + 1)) - PER_OCTAVE;
    (EXACT + u64::from(octave - OCTAVE_FIRST) * PER_OCTAVE + within) as usize
}

/// Returns the largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let (octave, within) = ((bucket - EXACT) / PER_OCTAVE, (bucket - EXACT) % PER_OCTAVE);
    let next = u128::from(PER_OCTAVE + within + 1) << (octave + 1);
    (next - 1).min(u128::from(u64::MAX)) as u64
}

impl Distances {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a reference of weight `weight` at `distance`; `None` for the first reference to a block.
    #[inline]
    pub fn add(&mut self, distance: Option<u64>, weight: f64) {
        self.step = self.step.max(weight);
        let Some(distance) = distance else {
            self.never += weight;
            return;
        };
        let bucket = bucket(distance);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0.0);
        }
        self.counts[bucket] += weight;
    }

    /// Adds the counts of another window or host.
    pub fn merge(&mut self, other: &Distances) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0.0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.never += other.never;
        self.step = self.step.max(other.step);
    }

    /// Returns the counts since an earlier reading of the same counters. If those are corrected for their sample, a
    /// bucket may have decreased slightly; it then counts as zero.
    pub fn since(&self, earlier: &Distances) -> Distances {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0.0));
        let counts = self.counts.iter().zip(before);
        Distances {
            counts: counts.map(|(now, old)| (now - old).max(0.0)).collect(),
            never: (self.never - earlier.never).max(0.0),
            step: self.step,
        }
    }

    /// Returns the sum of all weights.
    pub fn total(&self) -> f64 {
        self.counts.iter().sum::<f64>() + self.never
    }

    /// Returns the weight of first references to blocks.
    pub fn never(&self) -> f64 {
        self.never
    }

    /// Returns the bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<f64>()
    }

    /// Returns the weight by bucket.
    pub(super) fn weights(&self) -> &[f64] {
        &self.counts
    }

    /// Returns the smallest and the largest value of a bucket.
    pub(super) fn range(bucket: usize) -> (u64, u64) {
        (
            bucket.checked_sub(1).map_or(0, |i| upper(i) + 1),
            upper(bucket),
        )
    }

    /// Returns the histogram with each bucket multiplied by a factor for its distance; `None` stands for first
    /// references.
    pub(super) fn scaled(&self, factor: impl Fn(Option<u64>) -> f64) -> Distances {
        let counts = self.counts.iter().enumerate();
        Distances {
            counts: counts
                .map(|(i, count)| count * factor(Some(upper(i))))
                .collect(),
            never: self.never * factor(None),
            step: self.step,
        }
    }

    /// Returns the histogram with added references of this weight that hit in the smallest cache.
    pub(super) fn with_hits(&self, weight: f64) -> Distances {
        let mut more = self.clone();
        let smallest = bucket(1);
        more.counts.resize(more.counts.len().max(smallest + 1), 0.0);
        more.counts[smallest] += weight;
        more
    }

    /// Returns the miss-ratio curve of these stack distances.
    pub fn curve(&self, confidence: Confidence) -> Curve {
        let references = self.total();
        if references <= 0.0 {
            return Curve::new([], confidence);
        }
        // From the far end, so that the ratio of references that never hit has no rounding of large sums.
        let mut points: Vec<(u64, f64)> = Vec::new();
        let mut misses = self.never;
        for (i, count) in self.counts.iter().enumerate().rev() {
            if *count > 0.0 {
                points.push((upper(i), misses / references));
                misses += count;
                // Flat from the point below, except for the step size of the sample: a loop is not a slope.
                let (lower, _) = Self::range(i);
                points.push((lower.saturating_sub(self.step as u64), misses / references));
            }
        }
        points.reverse();
        // Neighbours may be closer than a step: drop points that would go back.
        let mut last = 0;
        points.retain(|(size, _)| {
            let on = *size > last;
            last = last.max(*size);
            on
        });
        Curve::new(points, confidence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_values_in_order() {
        let mut rng = crate::Rng::new(1, 0);
        let edges = [0, 1, 511, 512, 513, 514, 1023, 1024, u64::MAX - 1, u64::MAX];
        let random = (0..10_000).map(|_| rng.next_u64() >> rng.below(64));
        for value in edges.into_iter().chain(random) {
            let at = bucket(value);
            assert!(at < BUCKETS_MAX && upper(at) >= value, "{value}");
            assert!(at == 0 || upper(at - 1) < value, "{value}");
            assert!((upper(at) - value) as f64 <= value as f64 / 256.0);
        }
        const { assert!(BUCKETS_MAX * 8 < 120 << 10) };
    }

    #[test]
    fn merged_distances_add_up_and_stored_ones_are_validated() {
        let (mut a, mut b, mut both) = (Distances::new(), Distances::new(), Distances::new());
        for i in 0..1000u64 {
            let (part, d) = if i % 3 == 0 {
                (&mut a, i * i)
            } else {
                (&mut b, i)
            };
            let distance = (i % 7 != 0).then_some(d);
            part.add(distance, 2.0);
            both.add(distance, 2.0);
        }
        a.merge(&b);
        assert_eq!(a, both);
        assert_eq!(a.total(), 2000.0);
        let text = serde_json::to_string(&a).unwrap();
        assert_eq!(serde_json::from_str::<Distances>(&text).unwrap(), a);
        let never = format!("\"never\":{:?}", a.never);
        for (from, to) in [
            ("\"never\"", "\"nevermore\""),
            (&never[..], "\"never\":-1.0"),
            ("\"step\":2.0", "\"step\":-2.0"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let bad = text.replace(from, to);
            assert!(serde_json::from_str::<Distances>(&bad).is_err(), "{to}");
        }
    }

    #[test]
    fn difference_of_distances_is_the_added_part() {
        let mut distances = Distances::new();
        distances.add(Some(10), 60.0);
        distances.add(None, 20.0);
        let earlier = distances.clone();
        assert_eq!(distances.since(&earlier).total(), 0.0);
        distances.add(Some(700), 4.0);
        distances.add(None, 4.0);
        let since = distances.since(&earlier);
        assert_eq!((since.total(), since.never()), (8.0, 4.0));
        // 700 shares its bucket with 701, so that size holds it.
        assert_eq!(since.curve(Confidence::default()).at(701), 0.5);
        assert_eq!(earlier.since(&distances).total(), 0.0, "less is nothing");
    }

    #[test]
    fn scaled_buckets_give_the_scaled_curve() {
        let mut distances = Distances::new();
        distances.add(Some(10), 60.0);
        distances.add(None, 20.0);
        let raw = distances.curve(Confidence::default());
        // The step of these samples is 60, so the hits may be anywhere below.
        assert_eq!((raw.at(10), raw.at(9) > 0.25), (0.25, true));
        let more = distances.scaled(|distance| if distance == Some(10) { 3.0 } else { 1.0 });
        assert_eq!(more.total(), 200.0);
        assert_eq!(more.curve(Confidence::default()).at(10), 0.1);
    }
}
