//! HR-LRU: pages of extents that are hit well begin nearer to the safe end.

use crate::layout::PageLayout;
use crate::policy::{Outcome, Policy};
use crate::position::Position;
use crate::rates::{ExtentRates, RatesConfig};
use crate::segmented::SegmentedLru;

/// HR-LRU (the paper on Priority-LRU, its first half; [`crate::ExtentRates`] has the rule): LRU but for the place where a missed
/// page begins, which follows from the hit ratio of its extent. The queue with its rates in one, for a cache by itself.
///
/// The driver says when slices and hours end; without that the statistics are those of one hour. Not a stack algorithm. Not
/// for loads whose extents are all alike (it is LRU with a smaller cache for what is new), nor for pages far smaller
/// than what is accessed together: extents must have enough accesses in an hour to have a hit ratio.
#[derive(Debug, Clone)]
pub struct HrLru {
    queue: SegmentedLru,
    rates: ExtentRates,
    layout: PageLayout,
}

impl HrLru {
    /// Around a queue that is empty, over pages `0..universe`.
    pub fn new(queue: SegmentedLru, universe: u32, layout: PageLayout, rates: RatesConfig) -> Self {
        Self {
            queue,
            rates: ExtentRates::new(layout.extents(universe), rates),
            layout,
        }
    }

    /// Extents are these from now on; of those that were there before, all that is known stays.
    pub fn relayout(&mut self, layout: PageLayout) {
        self.rates.grow(layout.extents(0));
        self.layout = layout;
    }

    /// Nothing is known of these extents any more.
    pub fn forget(&mut self, extents: std::ops::Range<usize>) {
        self.rates.forget(extents);
    }

    /// The statistics.
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
            // A hit goes to the top, wherever it would begin.
            self.queue.access(page)
        } else {
            // What was known before this access decides.
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
