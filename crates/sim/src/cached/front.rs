//! The cache in front, as the loop uses it: a read part under some policy, dirty pages in order of use, and what decides where in its
//! queue a missed page begins.

use cache::{ExtentRates, Lru, Outcome, Policy, Position, Priorities, insertion};

use super::setup::PAGES_PER_EXTENT;

/// The cache. A page that is dirty is read from the write part; a page in both is written in both.
pub(super) struct Front<P> {
    read: P,
    dirty: Lru,
    places: Option<Places>,
    /// What a slice's end does to pages that were not used for two of them.
    age_out: fn(&mut P),
}

/// Where missed pages begin (paper 2, sections III and IV).
pub(super) struct Places {
    rates: ExtentRates,
    /// None: HR-LRU.
    priorities: Option<Priorities>,
}

impl Places {
    pub(super) fn new(rates: ExtentRates, priorities: Option<Priorities>) -> Self {
        Self { rates, priorities }
    }

    #[inline]
    fn of(&self, extent: u32, volume: u32) -> Position {
        let priority = self.priorities.as_ref().map_or(0, |p| p.of(volume));
        Position::from_percent(insertion(self.rates.position(extent), priority))
    }
}

impl<P: Policy> Front<P> {
    pub(super) fn new(read: P, dirty: Lru, places: Option<Places>, age_out: fn(&mut P)) -> Self {
        Self {
            read,
            dirty,
            places,
            age_out,
        }
    }

    /// Whether the page was there; it is now.
    #[inline]
    pub(super) fn read(&mut self, page: u32, volume: usize) -> bool {
        let dirty = self.dirty.contains(page);
        let Some(places) = &mut self.places else {
            return dirty || self.read.access(page).is_hit();
        };
        let extent = page / PAGES_PER_EXTENT;
        let hit = dirty || self.read.contains(page);
        if !dirty {
            let position = if hit {
                Position::TOP
            } else {
                places.of(extent, volume as u32)
            };
            self.read.access_at(page, position);
        }
        places.rates.record(extent, hit);
        hit
    }

    /// Makes a page dirty; what has to be destaged for it is added to `evicted`.
    #[inline]
    pub(super) fn write(&mut self, page: u32, evicted: &mut Vec<u32>) {
        if let Outcome::Miss { evicted: Some(old) } = self.dirty.access(page) {
            evicted.push(old);
        }
    }

    /// Five minutes are over: response over target by volume, none for those without requests in the hour.
    pub(super) fn end_slice(&mut self, over_target: impl Iterator<Item = Option<f64>>) {
        (self.age_out)(&mut self.read);
        let Some(places) = &mut self.places else {
            return;
        };
        places.rates.end_slice();
        if let Some(priorities) = &mut places.priorities {
            for (volume, ratio) in over_target.enumerate() {
                priorities.end_slice(volume as u32, ratio);
            }
        }
    }

    pub(super) fn end_hour(&mut self) {
        if let Some(places) = &mut self.places {
            places.rates.end_hour();
        }
    }
}
