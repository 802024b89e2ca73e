//! Miss-ratio curves: the share of reads that miss a cache, as a function of its size.
//!
//! [`algo::mrc`] measures curves in blocks. This module keeps them in bytes, with few enough points to be stored with a
//! decision. The paper builds its curves from working-set sizes and omits the method (sec. 5.2). Reuse times
//! ([`algo::mrc::ReuseTimes`]) give the same function, the slope of the working-set curve, and include pages that writes
//! drop.
//!
//! When not to use: for policies other than LRU, or before the number of references is a few times the pages of the cache.

use serde::{Deserialize, Serialize};
use units::Bytes;

/// Smallest number of reads, among the sampled ones, for a valid curve.
pub const READS_MIN: f64 = 1_000.0;

/// Largest difference of a stored curve from its source.
pub const ROUGH: f64 = 0.004;

/// Miss ratios by cache size: 1 at size 0, straight lines between points, flat after the last one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredCurve")]
pub struct Curve {
    points: Vec<(Bytes, f64)>,
}

/// Serialized form, unchecked.
#[derive(Deserialize)]
struct StoredCurve {
    points: Vec<(Bytes, f64)>,
}

impl From<StoredCurve> for Curve {
    fn from(stored: StoredCurve) -> Self {
        Self::new(stored.points)
    }
}

impl Curve {
    /// Creates a curve from points in any order. Points with a NaN ratio are dropped. A larger cache never misses more than
    /// a smaller one: a higher ratio is lowered to that of the smaller cache.
    pub fn new(mut points: Vec<(Bytes, f64)>) -> Self {
        points.retain(|p| !p.1.is_nan());
        points.sort_by_key(|p| p.0);
        points.dedup_by_key(|p| p.0);
        let mut least = 1.0f64;
        for (_, ratio) in &mut points {
            least = least.min(ratio.clamp(0.0, 1.0));
            *ratio = least;
        }
        Self { points }
    }

    /// Creates a curve from one in blocks of `block` bytes, with the fewest points that keep it exact to [`ROUGH`].
    pub fn of_blocks(curve: &algo::mrc::Curve, block: Bytes) -> Self {
        let mut points: Vec<(Bytes, f64)> = Vec::new();
        let mut kept = 1.0;
        let mut skipped = None;
        for (size, ratio) in curve.points() {
            let point = (Bytes(size.saturating_mul(block.0)), *ratio);
            if kept - ratio < ROUGH {
                skipped = Some(point);
                continue;
            }
            // Keeps the last point before a step, or the step would become a slope.
            points.extend(skipped.take());
            points.push(point);
            kept = *ratio;
        }
        points.extend(skipped);
        Self::new(points)
    }

    /// Returns the miss ratio of a cache of `size`, 0..=1.
    pub fn at(&self, size: Bytes) -> f64 {
        let after = self.points.partition_point(|p| p.0 <= size);
        let before = match after.checked_sub(1) {
            Some(i) => self.points[i],
            None => (Bytes::ZERO, 1.0),
        };
        let Some(next) = self.points.get(after) else {
            return before.1;
        };
        let share = (size - before.0).as_f64() / (next.0 - before.0).as_f64();
        before.1 + share * (next.1 - before.1)
    }

    pub fn points(&self) -> &[(Bytes, f64)] {
        &self.points
    }

    /// Returns the content of an initially empty cache after `seconds` of reads of `bytes_per_s`, in bytes. It fills by its
    /// misses.
    pub(crate) fn held_after(&self, seconds: f64, bytes_per_s: f64) -> f64 {
        let mut left = seconds;
        let (mut c, mut m) = (0.0, 1.0);
        for (size, ratio) in &self.points {
            let (c1, m1) = (size.as_f64(), *ratio);
            if c1 <= c {
                m = m1;
                continue;
            }
            if bytes_per_s * m <= 0.0 {
                return c;
            }
            let slope = (m1 - m) / (c1 - c);
            // dc/dt = rate · m(c), with m straight in c.
            let takes = if slope.abs() < 1e-18 {
                (c1 - c) / (bytes_per_s * m)
            } else if m1 <= 0.0 {
                f64::INFINITY
            } else {
                libm::log(m1 / m) / (slope * bytes_per_s)
            };
            if takes >= left {
                return if slope.abs() < 1e-18 {
                    c + bytes_per_s * m * left
                } else {
                    c + m * (libm::exp(slope * bytes_per_s * left) - 1.0) / slope
                };
            }
            left -= takes;
            (c, m) = (c1, m1);
        }
        c + bytes_per_s * m * left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algo::{Popularity, Rng};

    #[test]
    fn curve_is_linear_between_points_and_flat_outside() {
        let curve = Curve::new(vec![
            (Bytes(200), 0.6),
            (Bytes(100), 0.5),
            (Bytes(300), 0.1),
        ]);
        assert_eq!(curve.at(Bytes(0)), 1.0);
        assert_eq!(curve.at(Bytes(50)), 0.75);
        assert_eq!(curve.at(Bytes(200)), 0.5, "never rises");
        assert!((curve.at(Bytes(250)) - 0.3).abs() < 1e-12);
        assert_eq!(curve.at(Bytes(900)), 0.1);
        assert_eq!(Curve::default().at(Bytes(5)), 1.0);
        // The serialized form must give the same curve.
        let text = serde_json::to_string(&curve).unwrap();
        assert_eq!(serde_json::from_str::<Curve>(&text).unwrap(), curve);
        let odd = text.replace(r#"["300 B",0.1]"#, r#"["50 B",7.5]"#);
        assert_ne!(odd, text);
        let read: Curve = serde_json::from_str(&odd).unwrap();
        assert_eq!((read.at(Bytes(50)), read.at(Bytes(300))), (1.0, 0.5));
    }

    #[test]
    fn stored_curve_is_small_and_accurate() {
        let popularity = Popularity::new(20_000, 0.9);
        let mut rng = Rng::new(1, 1);
        let mut times = algo::mrc::ReuseTimes::new();
        for now in 0..200_000u64 {
            // A loop over a range of its own pages causes a step.
            let page = if now % 3 == 0 {
                20_000 + (now / 3 % 3_000) as u32
            } else {
                popularity.page(rng.next_u64()) as u32
            };
            times.reference(page, now, 1.0);
        }
        let whole = times.curve();
        let stored = Curve::of_blocks(&whole, Bytes(4096));
        let points = stored.points().len();
        assert!(
            points <= 520 && 4 * points < whole.points().len(),
            "{points}"
        );
        for size in (1..30_000u64).step_by(7) {
            let (ours, want) = (stored.at(Bytes(4096 * size)), whole.at(size));
            assert!(
                (ours - want).abs() < 1.5 * ROUGH,
                "size {size}: {ours} {want}"
            );
        }
        let nothing = algo::mrc::ReuseTimes::new().curve();
        assert_eq!(Curve::of_blocks(&nothing, Bytes(4096)), Curve::default());
    }

    #[test]
    fn cache_fills_at_the_rate_of_its_misses() {
        // Uniform reads over 1000 bytes: held = 1000 (1 − e^(−t·rate/1000)).
        let points = (1..=1000).map(|c| (Bytes(c), 1.0 - c as f64 / 1000.0));
        let curve = Curve::new(points.collect());
        for t in [1.0, 5.0, 20.0] {
            let want = 1000.0 * (1.0 - libm::exp(-t * 100.0 / 1000.0));
            let held = curve.held_after(t, 100.0);
            assert!((held - want).abs() < 1.0, "{t}: {held} {want}");
        }
    }
}
