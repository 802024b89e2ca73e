//! HR-LRU: pages of extents with a high hit ratio are inserted farther from eviction.

use crate::layout::PageLayout;
use crate::policy::{Outcome, Policy};
use crate::position::Position;
use crate::rates::{ExtentRates, RatesConfig};
use crate::segmented::SegmentedLru;

/// HR-LRU (first half of the paper on Priority-LRU; [`crate::ExtentRates`] has the rule). It is LRU except for the
/// insertion position of a missed page, which follows from the hit ratio of its extent. The type combines queue and
/// rates, for a cache by itself.
///
/// The driver ends slices and hours; otherwise the statistics are those of one hour. Not a stack algorithm. Not suited
/// if all extents are alike (it is then LRU with a smaller cache for new pages), or if pages are far smaller than the
/// units of access: an extent needs enough accesses in an hour to have a hit ratio.
#[derive(Debug, Clone)]
pub struct HrLru {
    queue: SegmentedLru,
    rates: ExtentRates,
    layout: PageLayout,
}

impl HrLru {
    /// Combines an empty queue with statistics, over pages `0..universe`.
    pub fn new(queue: SegmentedLru, universe: u32, layout: PageLayout, rates: RatesConfig) -> Self {
        Self {
            queue,
            rates: ExtentRates::new(layout.extents(universe), rates),
            layout,
        }
    }

    /// Replaces the layout. Statistics of existing extents are kept.
    pub fn relayout(&mut self, layout: PageLayout) {
        self.rates.grow(layout.extents(0));
        self.layout = layout;
    }

    /// Clears the statistics of extents.
    pub fn forget(&mut self, extents: std::ops::Range<usize>) {
        self.rates.forget(extents);
    }

    /// Returns the statistics.
    pub fn rates(&self) -> &ExtentRates {
        &self.rates
    }
}

impl Policy for HrLru {
    #[inline]
    fn access(&mut self, page: u32) -> Outcome {
        self.access_in(page, self.layout.extent(page))
    }

    #[inline]
    fn access_in(&mut self, page: u32, extent: u32) -> Outcome {
        let outcome = if self.queue.contains(page) && !self.queue.places_hits() {
            // A hit moves the page to the top, independent of its insertion position.
            self.queue.access(page)
        } else {
            // The statistics before this access decide.
            let position = Position::from_percent(self.rates.position(extent));
            self.queue.access_at(page, position)
        };
        self.rates.record(extent, outcome.is_hit());
        outcome
    }

    fn remove(&mut self, page: u32) -> bool {
        self.queue.remove(page)
    }

    fn contains(&self, page: u32) -> bool {
        self.queue.contains(page)
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn capacity(&self) -> u32 {
        self.queue.capacity()
    }

    fn memory_bytes(&self) -> usize {
        self.queue.memory_bytes() + self.rates.memory_bytes()
    }

    fn slice_ended(&mut self) {
        self.rates.end_slice();
        self.queue.slice_ended();
    }

    fn hour_ended(&mut self) {
        self.rates.end_hour();
    }

    #[inline]
    fn warm(&self, page: u32) -> u32 {
        self.queue.warm(page)
    }

    #[inline]
    fn warm_victims(&self) -> u32 {
        self.queue.warm_victims()
    }
}
