//! `cache-peer FILE SHARE`: references to dense ids through the crates `lru` and `quick_cache`, a line for each as
//! `cache_speed` prints it. `quick_cache` is not LRU; its number is there for its speed.

use std::num::NonZeroUsize;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let bytes = std::fs::read(&args[1]).expect("a trace");
    let share: f64 = args[2].parse().expect("a share");
    let pages: Vec<u32> = bytes
        .chunks_exact(24)
        .map(|r| u64::from_le_bytes(r[4..12].try_into().unwrap()) as u32 - 1)
        .collect();
    drop(bytes);
    let universe = pages.iter().max().map_or(0, |p| p + 1);
    let capacity = ((f64::from(universe) * share) as usize).max(1);
    let say = |name: &str, started: f64, hits: u64| {
        let seconds = cpu() - started;
        println!("{name} {capacity} {} {seconds:.6} {hits}", pages.len());
    };

    let started = cpu();
    let mut cache = lru::LruCache::<u32, ()>::new(NonZeroUsize::new(capacity).unwrap());
    let mut hits = 0;
    for page in &pages {
        if cache.get(page).is_some() {
            hits += 1;
        } else {
            cache.put(*page, ());
        }
    }
    say("rust-lru", started, hits);
    drop(cache);

    let started = cpu();
    let mut cache = quick_cache::unsync::Cache::<u32, ()>::new(capacity);
    let mut hits = 0;
    for page in &pages {
        if cache.get(page).is_some() {
            hits += 1;
        } else {
            cache.insert(*page, ());
        }
    }
    say("quick_cache", started, hits);
}

/// Seconds that this thread has been on a core.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    ns.map_or(f64::NAN, |ns: f64| ns / 1e9)
}
