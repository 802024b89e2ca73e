//! The cache in front, as the loop uses it: [`PageCache`], and what decides where in its queue a missed page begins.

use cache::{Effect, ExtentRates, Origin, PageCache, Policy, Position, Priorities, insertion};

use super::setup::PAGES_PER_EXTENT;

/// The cache of the array.
pub(super) struct Front<P> {
    cache: PageCache<P>,
    places: Option<Places>,
    effects: Vec<Effect>,
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
    pub(super) fn new(cache: PageCache<P>, places: Option<Places>) -> Self {
        Self {
            cache,
            places,
            effects: Vec::new(),
        }
    }

    /// Pages that may be dirty at once.
    pub(super) fn dirty_max(&self) -> u32 {
        self.cache.dirty_max()
    }

    /// Whether the page was there; it is now.
    #[inline]
    pub(super) fn read(&mut self, page: u32, volume: usize) -> bool {
        let extent = page / PAGES_PER_EXTENT;
        let volume = volume as u32;
        let position = match &self.places {
            Some(places) if !self.cache.contains(page) => places.of(extent, volume),
            _ => Position::TOP,
        };
        self.effects.clear();
        let origin = Origin { volume, extent };
        let read = self
            .cache
            .read(page..page + 1, origin, position, &mut self.effects);
        let hit = read == 1;
        if let Some(places) = &mut self.places {
            places.rates.record(extent, hit);
        }
        hit
    }

    /// Makes a page dirty; what has to be destaged for it is added to `destaged`.
    #[inline]
    pub(super) fn write(&mut self, page: u32, volume: usize, destaged: &mut Vec<u32>) {
        self.effects.clear();
        let origin = Origin {
            volume: volume as u32,
            extent: page / PAGES_PER_EXTENT,
        };
        self.cache
            .write(page..page + 1, origin, Position::TOP, &mut self.effects);
        let pages = self.effects.iter().filter_map(|e| match e {
            Effect::Destage { page } => Some(*page),
            _ => None,
        });
        destaged.extend(pages);
    }

    /// A volume's priority, percent; none where there are none.
    pub(super) fn priority(&self, volume: usize) -> Option<i32> {
        let priorities = self.places.as_ref()?.priorities.as_ref();
        priorities.map(|p| p.of(volume as u32))
    }

    /// Five minutes are over: response over target by volume, none for those without requests in the slice.
    pub(super) fn end_slice(&mut self, over_target: impl Iterator<Item = Option<f64>>) {
        self.cache.policy_mut().slice_ended();
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
        self.cache.policy_mut().hour_ended();
        if let Some(places) = &mut self.places {
            places.rates.end_hour();
        }
    }
}
