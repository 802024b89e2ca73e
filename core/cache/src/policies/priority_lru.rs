//! Priority-LRU: HR-LRU, with higher insertion positions for volumes that miss their response time.

use crate::layout::PageLayout;
use crate::policy::{Outcome, Policy};
use crate::position::Position;
use crate::priorities::{Priorities, insertion};
use crate::rates::{ExtentRates, RatesConfig};
use crate::segmented::SegmentedLru;

/// Priority-LRU: a missed page is inserted at the position given by its extent's hit ratio, moved by the priority of
/// its volume ([`Priorities`]).
///
/// Without response times, or with one class of volumes on target, it is HR-LRU. Not suited if slow volumes are slow
/// for another reason than misses: it then takes space from volumes that need it. Callers with separate parts, like a
/// simulated array, use queue, rates and priorities directly.
#[derive(Debug, Clone)]
pub struct PriorityLru {
    queue: SegmentedLru,
    rates: ExtentRates,
    priorities: Priorities,
    layout: PageLayout,
}

impl PriorityLru {
    /// Combines an empty queue with statistics and priorities, over pages `0..universe`.
    pub fn new(queue: SegmentedLru, universe: u32, layout: PageLayout, rates: RatesConfig) -> Self {
        Self {
            queue,
            rates: ExtentRates::new(layout.extents(universe), rates),
            priorities: Priorities::new(layout.volumes()),
            layout,
        }
    }

    /// Returns the statistics of extents.
    pub fn rates(&self) -> &ExtentRates {
        &self.rates
    }

    /// Replaces the layout. Statistics of existing extents and volumes are kept.
    pub fn relayout(&mut self, layout: PageLayout) {
        self.rates.grow(layout.extents(0));
        self.priorities.grow(layout.volumes());
        self.layout = layout;
    }

    /// Clears the statistics of a volume and of extents.
    pub fn forget(&mut self, volume: u32, extents: std::ops::Range<usize>) {
        self.rates.forget(extents);
        self.priorities.forget(volume);
    }

    /// Returns the priority of a volume in percent.
    pub fn priority(&self, volume: u32) -> i32 {
        self.priorities.of(volume)
    }

    /// Returns the priorities of volumes. They need response times at the end of each slice.
    pub fn priorities(&mut self) -> &mut Priorities {
        &mut self.priorities
    }
}

impl Policy for PriorityLru {
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
