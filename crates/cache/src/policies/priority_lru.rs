//! Priority-LRU: HR-LRU, and volumes that are slower than they should be begin higher.

use crate::layout::PageLayout;
use crate::policy::{Outcome, Policy};
use crate::position::Position;
use crate::priorities::{Priorities, insertion};
use crate::rates::{ExtentRates, RatesConfig};

/// Priority-LRU: a missed page begins at the place that its extent's hit ratio gives, moved by the priority of its
/// volume ([`Priorities`]). Around an exact queue ([`crate::SegmentedLru`]) or a lazy one
/// ([`crate::LazySegmentedLru`]).
///
/// Without response times, or with one class of volumes that is on target, it is HR-LRU. Not where slow volumes are
/// slow for another reason than misses: places are then taken from volumes that had use for them. Whoever has the
/// parts apart, like a simulated array, uses queue, rates and priorities by themselves.
#[derive(Debug, Clone)]
pub struct PriorityLru<Q> {
    queue: Q,
    rates: ExtentRates,
    priorities: Priorities,
    layout: PageLayout,
}

impl<Q: Policy> PriorityLru<Q> {
    /// Around a queue that is empty, over pages `0..universe`.
    pub fn new(queue: Q, universe: u32, layout: PageLayout, rates: RatesConfig) -> Self {
        Self {
            queue,
            rates: ExtentRates::new(layout.extents(universe), rates),
            priorities: Priorities::new(layout.volumes()),
            layout,
        }
    }

    /// The statistics of extents.
    pub fn rates(&self) -> &ExtentRates {
        &self.rates
    }

    /// Extents and volumes are these from now on; of those that were there before, all that is known stays.
    pub fn relayout(&mut self, layout: PageLayout) {
        self.rates.grow(layout.extents(0));
        self.priorities.grow(layout.volumes());
        self.layout = layout;
    }

    /// Nothing is known of this volume and these extents any more.
    pub fn forget(&mut self, volume: u32, extents: std::ops::Range<usize>) {
        self.rates.forget(extents);
        self.priorities.forget(volume);
    }

    /// The priority of a volume, percent.
    pub fn priority(&self, volume: u32) -> i32 {
        self.priorities.of(volume)
    }

    /// The priorities of volumes, to be told response times at the end of each slice.
    pub fn priorities(&mut self) -> &mut Priorities {
        &mut self.priorities
    }
}

impl<Q: Policy> Policy for PriorityLru<Q> {
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
            let priority = self.priorities.of(self.layout.volume(extent));
            let percent = insertion(self.rates.position(extent), priority);
            self.queue.access_at(page, Position::from_percent(percent))
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
