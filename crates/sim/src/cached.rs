//! An array as paper 2 has it: a cache with service classes in front, exchanges of extents behind, one loop over both.
//!
//! ```text
//!  volumes ─▶ [ read part │ write part ] ─misses, destages─▶ devices: SSD │ FC │ SATA   (first come, first served)
//!               ▲ place of insertion                            ▲ which extent is where
//!               └ every 5 min: RT/DRT ─▶ priorities             └ every hour: loads, weights ─▶ exchanges, copied in gaps
//! ```
//!
//! A world of its own beside [`crate::run`]: 107 devices, 15,000 exchanges an hour and a day of requests want a loop that knows pages
//! and extents and nothing else. What is decided is decided by the same code as everywhere: `cache` has the policies, `planner::exchange` the
//! exchanges. Source: paper 2 (Priority-LRU, sections III to V) and its reference 13.
//!
//! Known to be left out: read-ahead, full-stripe writes, the cache's own memory bandwidth; an extent that is being copied is served by its old
//! place until both copies are done, and what is written to it meanwhile is not copied again.

mod disk;
mod front;
mod result;
mod sequence;
mod setup;
#[cfg(test)]
mod tests;
mod world;

use cache::{ExtentRates, Lru, Priorities, RatesConfig, SegmentedLru};

use front::{Front, Places};
use world::World;

pub use result::{CachedResult, GroupResult, HourResult};
pub use sequence::Sequence;
pub use setup::{
    BackEndMode, CacheMode, CachedArray, CachedVolume, DeviceKind, PAGES_PER_EXTENT,
    SLICES_PER_HOUR, ServiceClass,
};

/// Runs `array`. `progress` hears the number of hours that are done.
///
/// # Panics
/// When the array has no volume, no class or no device, or a volume names a class or a sequence that there is not.
pub fn run_cached(
    array: &CachedArray,
    cache: CacheMode,
    back_end: BackEndMode,
    progress: &mut dyn FnMut(u32),
) -> CachedResult {
    let extents = array.touched_extents();
    let pages = extents * PAGES_PER_EXTENT;
    let write = (f64::from(array.cache_pages) * array.write_share) as u32;
    let dirty = Lru::new(write.max(1), pages);
    let read = (array.cache_pages - write).max(1);
    let placed = |rates, priorities: bool| {
        let priorities = priorities.then(|| Priorities::new(array.volumes.len() as u32));
        Some(Places::new(ExtentRates::new(extents, rates), priorities))
    };
    let segmented = |places, age_out| {
        Front::new(
            SegmentedLru::new(read, pages),
            dirty.clone(),
            places,
            age_out,
        )
    };
    let (literal, corrected) = (RatesConfig::literal(), RatesConfig::corrected());
    match cache {
        CacheMode::Lru => {
            let front = Front::new(Lru::new(read, pages), dirty, None, |_| ());
            World::new(array, front).run(back_end, progress)
        }
        CacheMode::HrLru => {
            World::new(array, segmented(placed(literal, false), |_| ())).run(back_end, progress)
        }
        CacheMode::PriorityLru => {
            World::new(array, segmented(placed(literal, true), |_| ())).run(back_end, progress)
        }
        CacheMode::PriorityLruCorrected => World::new(
            array,
            segmented(placed(corrected, true), SegmentedLru::age_out),
        )
        .run(back_end, progress),
    }
}
