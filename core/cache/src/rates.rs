//! Hit ratio of each extent, and the resulting insertion position of its missed pages (HR-LRU).
//!
//! ```text
//!   HR(extent) = hits / accesses of the hour          index = HR / MaxHR
//!   MaxHR = the best HR among extents touched in this slice (present value) or in the previous one (value at its end)
//!
//!   index  [0, .2)  [.2, .4)  [.4, .7)  [.7, 1]
//!   place    20 %      40 %      70 %     100 %       of the queue, from the end where pages are evicted
//! ```
//!
//! Taken literally, the method has two weaknesses, which [`RatesConfig`] can correct. First, the best hit ratio is an
//! extreme value: one extent with a single access that hits sets it to 100 % for all. Second, at each full hour the
//! statistics of every extent are lost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Position of pages in extents without statistics, and the lowest position of Priority-LRU, in percent.
pub const POSITION_MIN_PERCENT: f64 = 20.0;

/// Position of pages in extents that were not accessed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownExtent {
    /// 20 %, as if all accesses had missed: resistant to scans. Literal reading of the paper.
    #[default]
    Lowest,
    /// 100 %, as in LRU.
    Top,
}

/// Options of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RatesConfig {
    /// Minimum number of accesses in a slice for an extent's hit ratio to count as the best. 0 or 1 is literal.
    pub accesses_for_best_min: u32,
    /// Weight of the previous hour in the hit ratio, 0..=1. 0 is literal.
    pub previous_hour_weight: f64,
    /// Position of pages in extents that were not accessed before.
    pub unknown_extent: UnknownExtent,
}

impl RatesConfig {
    /// Returns the options of the paper.
    pub fn literal() -> Self {
        Self {
            accesses_for_best_min: 0,
            previous_hour_weight: 0.0,
            unknown_extent: UnknownExtent::Lowest,
        }
    }

    /// Returns the options of the paper, or the corrected ones.
    pub fn of(literal: bool) -> Self {
        match literal {
            true => Self::literal(),
            false => Self::corrected(),
        }
    }

    /// Returns options with a minimum number of accesses (20) and half the weight for the previous hour.
    pub fn corrected() -> Self {
        Self {
            accesses_for_best_min: 20,
            previous_hour_weight: 0.5,
            unknown_extent: UnknownExtent::Lowest,
        }
    }
}

impl Default for RatesConfig {
    fn default() -> Self {
        Self::corrected()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    hits: u32,
    accesses: u32,
    hits_before: u32,
    accesses_before: u32,
    accesses_slice: u32,
}

/// Statistics of the extents `0..n`. The driver ends slices (5 minutes) and hours.
#[derive(Debug, Clone)]
pub struct ExtentRates {
    config: RatesConfig,
    extents: Vec<Extent>,
    /// Extents accessed in the present slice.
    touched: Vec<u32>,
    /// Best hit ratio of the present slice, and of the previous one at its end.
    best: [f64; 2],
    /// Extent with the best ratio of the present slice.
    holder: Option<u32>,
    /// True if its ratio has fallen since the last search.
    is_stale: bool,
    /// Number of accesses since the last search.
    unsearched: usize,
}

/// Minimum number of accesses between two searches for the best hit ratio.
const SEARCH_EVERY_MIN: usize = 1024;

impl ExtentRates {
    /// Creates statistics for `extents` extents without accesses.
    pub fn new(extents: u32, config: RatesConfig) -> Self {
        Self {
            config,
            extents: vec![Extent::default(); extents as usize],
            touched: Vec::new(),
            best: [0.0; 2],
            holder: None,
            is_stale: false,
            unsearched: 0,
        }
    }

    /// Raises the number of extents to `extents` at least.
    pub fn grow(&mut self, extents: u32) {
        let extents = (extents as usize).max(self.extents.len());
        self.extents.resize(extents, Extent::default());
    }

    /// Clears the statistics of extents. They still count as touched in the present slice.
    pub fn forget(&mut self, extents: std::ops::Range<usize>) {
        for extent in &mut self.extents[extents] {
            *extent = Extent {
                accesses_slice: extent.accesses_slice,
                ..Extent::default()
            };
        }
        self.is_stale = true;
    }

    /// Counts an access to a page of an extent.
    #[inline]
    pub fn record(&mut self, extent: u32, hit: bool) {
        let e = &mut self.extents[extent as usize];
        if e.accesses_slice == 0 {
            self.touched.push(extent);
        }
        e.accesses_slice = e.accesses_slice.saturating_add(1);
        e.accesses = e.accesses.saturating_add(1);
        e.hits = e.hits.saturating_add(u32::from(hit));
        let least = self.config.accesses_for_best_min.max(1);
        let is_holder = self.holder == Some(extent);
        // A miss can only lower the ratio. But an extent joins the comparison when it reaches the minimum number of
        // accesses.
        if (hit && e.accesses_slice >= least) || e.accesses_slice == least {
            let (hits, accesses) = weighted(e, self.config.previous_hour_weight);
            // Divides only for a new best value, because a division per hit would dominate the cost.
            if hits > self.best[0] * accesses || is_holder && hits >= self.best[0] * accesses {
                self.best[0] = hits / accesses;
                self.holder = Some(extent);
                self.is_stale = false;
            }
        }
        self.is_stale |= is_holder && !hit;
        self.unsearched += 1;
        if self.is_stale && self.unsearched >= self.touched.len().max(SEARCH_EVERY_MIN) {
            self.search();
        }
    }

    /// Searches for the best hit ratio of the present slice.
    #[cold]
    #[inline(never)]
    fn search(&mut self) {
        (self.best[0], self.holder) = (0.0, None);
        for extent in &self.touched {
            let e = &self.extents[*extent as usize];
            if e.accesses_slice >= self.config.accesses_for_best_min {
                let ratio = ratio(e, self.config.previous_hour_weight).unwrap_or(0.0);
                if ratio > self.best[0] {
                    (self.best[0], self.holder) = (ratio, Some(*extent));
                }
            }
        }
        self.is_stale = false;
        self.unsearched = 0;
    }

    /// Returns the hit ratio of an extent, 0..=1; `None` without accesses in the relevant time.
    pub fn hit_ratio(&self, extent: u32) -> Option<f64> {
        ratio(
            &self.extents[extent as usize],
            self.config.previous_hour_weight,
        )
    }

    /// Returns the best hit ratio, 0..=1: the maximum over extents touched in the present slice, or at the end of the
    /// previous one. 0 if no ratio is known.
    ///
    /// In the present slice the value rises at once. When the ratio of the best extent falls, the value may be too high
    /// until the next search over the slice's extents. Searches are at least 1,024 accesses apart, or the number of
    /// touched extents if that is more. So an access examines at most one other extent on average.
    pub fn best_hit_ratio(&self) -> f64 {
        self.best[0].max(self.best[1])
    }

    /// Returns the insertion position of a missed page of an extent in percent: 20, 40, 70 or 100.
    #[inline]
    pub fn position(&self, extent: u32) -> f64 {
        let best = self.best_hit_ratio();
        if best <= 0.0 {
            // No extent has hits: LRU.
            return 100.0;
        }
        match self.hit_ratio(extent) {
            Some(ratio) => interval(ratio / best),
            None if self.config.unknown_extent == UnknownExtent::Top => 100.0,
            None => POSITION_MIN_PERCENT,
        }
    }

    /// Returns the bytes of all tables.
    pub fn memory_bytes(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>() + self.touched.capacity() * size_of::<u32>()
    }

    /// Ends a slice.
    pub fn end_slice(&mut self) {
        self.search();
        for extent in self.touched.drain(..) {
            self.extents[extent as usize].accesses_slice = 0;
        }
        self.best = [0.0, self.best[0]];
        self.holder = None;
    }

    /// Ends an hour. If a slice ends at the same time, end the slice first.
    pub fn end_hour(&mut self) {
        for e in &mut self.extents {
            (e.hits_before, e.accesses_before) = (e.hits, e.accesses);
            (e.hits, e.accesses) = (0, 0);
        }
        self.is_stale = self.holder.is_some();
    }
}

fn ratio(e: &Extent, before: f64) -> Option<f64> {
    let (hits, accesses) = weighted(e, before);
    (accesses > 0.0).then(|| hits / accesses)
}

/// Returns hits and accesses of this hour, plus those of the previous hour with their weight.
#[inline]
fn weighted(e: &Extent, before: f64) -> (f64, f64) {
    (
        f64::from(e.hits) + before * f64::from(e.hits_before),
        f64::from(e.accesses) + before * f64::from(e.accesses_before),
    )
}

/// Returns the position for an index, the upper end of its interval, in percent.
#[inline]
pub fn interval(index: f64) -> f64 {
    if index < 0.2 {
        20.0
    } else if index < 0.4 {
        40.0
    } else if index < 0.7 {
        70.0
    } else {
        100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(rates: &mut ExtentRates, extent: u32, accesses: u32, hits: u32) {
        for i in 0..accesses {
            rates.record(extent, i < hits);
        }
    }

    #[test]
    fn position_matches_the_published_example_and_interval_ends() {
        for (index, percent) in [
            (0.45, 70.0),
            (0.0, 20.0),
            (0.1, 20.0),
            (0.2, 40.0),
            (0.4, 70.0),
            (0.7, 100.0),
            (1.0, 100.0),
        ] {
            assert_eq!(interval(index), percent, "{index}");
        }
        let mut rates = ExtentRates::new(3, RatesConfig::corrected());
        assert_eq!(rates.position(0), 100.0, "nothing is hit: LRU");
        feed(&mut rates, 0, 100, 80);
        feed(&mut rates, 1, 100, 36);
        assert_eq!(rates.hit_ratio(1), Some(0.36));
        rates.end_slice();
        assert_eq!(rates.best_hit_ratio(), 0.8);
        // .36 / .8 = .45.
        assert_eq!(rates.position(1), 70.0);
        assert_eq!(rates.position(2), 20.0, "unknown");
    }

    /// A tiny extent sets the best ratio of all, unless a minimum number of accesses is set.
    #[test]
    fn best_ratio_requires_a_minimum_of_accesses() {
        for (config, percent) in [
            (RatesConfig::literal(), 70.0),
            (RatesConfig::corrected(), 100.0),
        ] {
            let mut rates = ExtentRates::new(2, config);
            feed(&mut rates, 0, 1000, 500);
            rates.end_slice();
            feed(&mut rates, 0, 1000, 500);
            feed(&mut rates, 1, 1, 1);
            rates.end_slice();
            assert_eq!(rates.position(0), percent, "{config:?}");
        }
    }

    /// A hit with the first access is 100 %, but not for the rest of the slice.
    #[test]
    fn best_ratio_falls_with_its_extent() {
        let mut rates = ExtentRates::new(2, RatesConfig::literal());
        rates.record(1, true);
        assert_eq!(rates.best_hit_ratio(), 1.0);
        feed(&mut rates, 1, 9, 0);
        feed(&mut rates, 0, 1000, 500);
        assert_eq!(rates.best_hit_ratio(), 1.0, "not looked for yet");
        feed(&mut rates, 0, 100, 0);
        assert!((rates.best_hit_ratio() - 0.5).abs() < 0.01);
        assert_eq!(rates.position(0), 100.0);
        assert_eq!(rates.position(1), 40.0, "a tenth over a half");
    }

    /// The best value is the result of a search, or was within the last accesses.
    #[test]
    fn best_ratio_is_outdated_for_a_limited_number_of_accesses() {
        for config in [RatesConfig::literal(), RatesConfig::corrected()] {
            let extents = 50;
            let mut rng = algo::Rng::new(9, 0);
            let mut rates = ExtentRates::new(extents, config);
            let mut too_high = 0;
            for step in 0..60_000u32 {
                let extent = rng.below(u64::from(extents)) as u32;
                let hit = rng.below(100) < u64::from((extent + step / 3000) % extents);
                rates.record(extent, hit);
                let mut searched = rates.clone();
                searched.search();
                assert!(rates.best[0] >= searched.best[0], "step {step}");
                too_high = match rates.best[0] > searched.best[0] {
                    true => too_high + 1,
                    false => 0,
                };
                assert!(too_high <= SEARCH_EVERY_MIN, "step {step}");
                match step % 9000 {
                    8999 => rates.end_slice(),
                    _ if step % 31_000 == 30_999 => rates.end_hour(),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn previous_hour_counts_half_or_not_at_all() {
        let mut corrected = ExtentRates::new(2, RatesConfig::corrected());
        let mut literal = ExtentRates::new(2, RatesConfig::literal());
        for rates in [&mut corrected, &mut literal] {
            feed(rates, 0, 100, 100);
            rates.end_slice();
            rates.end_hour();
        }
        assert_eq!(corrected.hit_ratio(0), Some(1.0));
        assert_eq!(corrected.position(0), 100.0);
        assert_eq!(literal.hit_ratio(0), None);
        assert_eq!(literal.position(0), 20.0);
        feed(&mut corrected, 0, 50, 0);
        assert_eq!(corrected.hit_ratio(0), Some(0.5));
        corrected.end_hour();
        corrected.end_hour();
        assert_eq!(corrected.hit_ratio(0), None);
    }

    /// The best value is that of this slice or the previous one, not of all time.
    #[test]
    fn best_ratio_expires_after_two_slices() {
        let mut rates = ExtentRates::new(2, RatesConfig::literal());
        feed(&mut rates, 0, 10, 10);
        feed(&mut rates, 1, 10, 5);
        rates.end_slice();
        feed(&mut rates, 1, 10, 5);
        rates.end_slice();
        assert_eq!(rates.best_hit_ratio(), 0.5);
        rates.end_slice();
        assert_eq!(rates.best_hit_ratio(), 0.0);
    }
}
