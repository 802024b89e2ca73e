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
//! place until both copies are done, and what is written to it meanwhile is not copied again. A write makes its whole page valid without reading the rest; a destaged page that follows the one
//! before on its disk needs no positioning, redundancy or not.

mod disk;
mod flash_device;
mod front;
mod result;
mod sequence;
mod setup;
#[cfg(test)]
mod tests;
mod world;

use cache::{
    Ageing, ExtentRates, Lru, PageCache, PageCacheConfig, PageCacheError, Policy, Priorities,
    RatesConfig, SegmentedLru, WriteMode,
};

use flash::FlashError;
use front::{Front, Places};
use thiserror::Error;
use world::World;

pub use flash_device::WearResult;
pub use result::{CachedResult, GroupResult, HourResult, TRIMMED};
pub use sequence::Sequence;
pub use setup::{
    BackEndMode, CacheMode, CachedArray, CachedVolume, DeviceKind, PAGES_PER_EXTENT,
    SLICES_PER_HOUR, ServiceClass,
};

/// Why an array cannot be simulated.
#[derive(Debug, Error)]
pub enum CachedError {
    /// The cache.
    #[error(transparent)]
    Cache(#[from] PageCacheError),
    /// A drive of flash.
    #[error(transparent)]
    Flash(#[from] FlashError),
}

/// Runs `array`. `progress` hears the number of hours that are done.
///
/// # Errors
/// When the cache's parts are too small or its pages not of a size that it can have, and when drives of flash cannot be as they
/// are configured.
///
/// # Panics
/// When the array has no volume, no class or no device, or a volume names a class or a sequence that there is not.
pub fn run_cached(
    array: &CachedArray,
    cache: CacheMode,
    back_end: BackEndMode,
    progress: &mut dyn FnMut(u32),
) -> Result<CachedResult, CachedError> {
    let (rates, ageing, priorities) = match cache {
        CacheMode::Lru => {
            let front = Front::new(page_cache(array, Lru::new)?, None);
            return Ok(World::new(array, front)?.run(back_end, progress));
        }
        CacheMode::HrLru => (RatesConfig::literal(), Ageing::Never, false),
        CacheMode::PriorityLru => (RatesConfig::literal(), Ageing::Never, true),
        CacheMode::PriorityLruCorrected => (RatesConfig::corrected(), Ageing::TwoSlices, true),
    };
    let queue = |pages, universe| SegmentedLru::new(pages, universe).ageing(ageing);
    let priorities = priorities.then(|| Priorities::new(array.volumes.len() as u32));
    let rates = ExtentRates::new(array.touched_extents(), rates);
    let places = Places::new(rates, priorities);
    let front = Front::new(page_cache(array, queue)?, Some(places));
    Ok(World::new(array, front)?.run(back_end, progress))
}

fn page_cache<P: Policy>(
    array: &CachedArray,
    policy: impl FnOnce(u32, u32) -> P,
) -> Result<PageCache<P>, PageCacheError> {
    let extents = array.touched_extents();
    let config = PageCacheConfig {
        pages: array.cache_pages,
        page_bytes: array.page.0,
        write_share: array.write_share,
        write_mode: WriteMode::WriteBack,
    };
    let volumes = array.volumes.len() as u32;
    PageCache::new(
        &config,
        extents * PAGES_PER_EXTENT,
        extents,
        volumes,
        policy,
    )
}
