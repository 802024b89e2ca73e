//! How well the pages of each extent are hit, and where a missed page of it therefore begins (HR-LRU).
//!
//! ```text
//!   HR(extent) = hits / accesses of the hour          index = HR / MaxHR
//!   MaxHR = the best HR among extents touched in this slice, as it is now, or in the one before, as it was at its end
//!
//!   index  [0, .2)  [.2, .4)  [.4, .7)  [.7, 1]
//!   place    20 %      40 %      70 %     100 %       of the queue, from the end where pages are evicted
//! ```
//!
//! Taken literally the method has two weaknesses that this makes switches of ([`RatesConfig`]): the best hit ratio is an
//! extreme value, so that one extent with a single access and a hit sets it to 100 % for all; and at each full hour every
//! extent is unknown again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Place of a page whose extent nothing better is known of, and the lowest that Priority-LRU uses, percent.
pub const POSITION_MIN_PERCENT: f64 = 20.0;

/// Where pages of extents begin that were not accessed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownExtent {
    /// At 20 %, as if nothing of it had ever been hit: resistant to scans. The paper, literally.
    #[default]
    Lowest,
    /// At 100 %, as in LRU.
    Top,
}

/// Switches of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RatesConfig {
    /// Accesses that an extent must have had in a slice for its hit ratio to count as the best. 0 or 1 is literal.
    pub accesses_for_best_min: u32,
    /// Weight of the hour before in the hit ratio, 0..=1. 0 is literal.
    pub previous_hour_weight: f64,
    /// Where pages of extents begin that were not accessed before.
    pub unknown_extent: UnknownExtent,
}

impl RatesConfig {
    /// As in the paper.
    pub fn literal() -> Self {
        Self {
            accesses_for_best_min: 0,
            previous_hour_weight: 0.0,
            unknown_extent: UnknownExtent::Lowest,
        }
    }

    /// One of the two: as in the paper, or corrected.
    pub fn of(literal: bool) -> Self {
        match literal {
            true => Self::literal(),
            false => Self::corrected(),
        }
    }

    /// With a least number of accesses (20) and the hour before at half its weight.
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

/// Statistics of the extents `0..n`. The driver says when a slice (5 minutes) and when an hour is over.
#[derive(Debug, Clone)]
pub struct ExtentRates {
    config: RatesConfig,
    extents: Vec<Extent>,
    /// Extents that were accessed in the slice under way.
    touched: Vec<u32>,
    /// Best hit ratio of the slice under way, and of the one before at its end.
    best: [f64; 2],
    /// The extent that has or had the first of them.
    holder: Option<u32>,
    /// Its ratio has fallen since, and nobody has looked for the best since then.
    is_stale: bool,
    /// Accesses since the best was looked for.
    unsearched: usize,
}

/// Accesses between two searches for the best hit ratio, at least.
const SEARCH_EVERY_MIN: usize = 1024;

impl ExtentRates {
    /// For `extents` extents of which nothing is known.
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

    /// There are so many extents now, at least.
    pub fn grow(&mut self, extents: u32) {
        let extents = (extents as usize).max(self.extents.len());
        self.extents.resize(extents, Extent::default());
    }

    /// Nothing is known of these extents any more; in the slice under way they were touched as before.
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
        // A miss can only lower the ratio; but with the last access that it needs an extent enters the comparison.
        if (hit && e.accesses_slice >= least) || e.accesses_slice == least {
            let (hits, accesses) = weighted(e, self.config.previous_hour_weight);
            // Divided only if it is the best: a division for every hit costs more than all else here.
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

    /// Looks for the best hit ratio of the slice under way.
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

    /// Hit ratio of an extent, 0..=1; none if it was not accessed in the time that counts.
    pub fn hit_ratio(&self, extent: u32) -> Option<f64> {
        ratio(
            &self.extents[extent as usize],
            self.config.previous_hour_weight,
        )
    }

    /// The best hit ratio, 0..=1: the highest of extents touched in the slice under way, or at the end of the one before. 0 if
    /// none is known.
    ///
    /// That of the slice under way rises at once. When the ratio of the extent that has it falls, it may be too high, until
    /// a search over the extents of the slice; there is one at most every 1,024 accesses, or as many as extents were touched
    /// if these are more. So an access looks at no more than one extent besides its own, on average.
    pub fn best_hit_ratio(&self) -> f64 {
        self.best[0].max(self.best[1])
    }

    /// Where a missed page of an extent begins, percent: 20, 40, 70 or 100.
    #[inline]
    pub fn position(&self, extent: u32) -> f64 {
        let best = self.best_hit_ratio();
        if best <= 0.0 {
            // Nothing is hit anywhere: LRU.
            return 100.0;
        }
        match self.hit_ratio(extent) {
            Some(ratio) => interval(ratio / best),
            None if self.config.unknown_extent == UnknownExtent::Top => 100.0,
            None => POSITION_MIN_PERCENT,
        }
    }

    /// Bytes of all tables.
    pub fn memory_bytes(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>() + self.touched.capacity() * size_of::<u32>()
    }

    /// A slice is over.
    pub fn end_slice(&mut self) {
        self.search();
        for extent in self.touched.drain(..) {
            self.extents[extent as usize].accesses_slice = 0;
        }
        self.best = [0.0, self.best[0]];
        self.holder = None;
    }

    /// An hour is over. If a slice ends with it, its end comes first.
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

/// Hits and accesses of this hour, and those of the hour before with their weight.
#[inline]
fn weighted(e: &Extent, before: f64) -> (f64, f64) {
    (
        f64::from(e.hits) + before * f64::from(e.hits_before),
        f64::from(e.accesses) + before * f64::from(e.accesses_before),
    )
}

/// The place for an index, the upper end of its interval, percent.
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
    fn the_papers_example_and_the_ends_of_intervals() {
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

    /// One tiny extent sets the best ratio of all, unless accesses are asked for.
    #[test]
    fn the_best_ratio_needs_accesses() {
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
    fn the_best_falls_with_its_extent() {
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

    /// Whatever happens, the best is what a search would find, or has been within the last accesses.
    #[test]
    fn the_best_is_never_older_than_it_may_be() {
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
    fn the_hour_before_counts_half_or_not_at_all() {
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

    /// The best is that of this slice or the one before, not of all time.
    #[test]
    fn the_best_is_forgotten_after_two_slices() {
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
