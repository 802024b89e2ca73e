//! Cost of a hit in the cache of the data path, without the copy of its bytes, and memory of a cached page. Run it with
//! `cargo run --release -p bench -- cached-time`.
//!
//! Prints nanoseconds of CPU time per hit and bytes per page for each policy. Hits are distributed uniformly over all pages, which keeps
//! the tables out of the processor's caches.

use cache::{PolicyKind, PolicyOptions, ResidentPages};

use crate::BenchResult;
use crate::cpu::cpu_s;

/// Default number of cached pages: 16 GiB in pages of 4 KiB.
const PAGES: u32 = 4_000_000;
const HITS: u64 = 20_000_000;
const EXTENT_PAGES: u32 = 60;

pub(crate) fn main(args: &[String]) -> BenchResult {
    let pages: u32 = args.first().map_or(Ok(PAGES), |n| n.parse())?;
    println!(
        "{pages} pages are cached, of {} behind the cache",
        4 * u64::from(pages)
    );
    println!("{:<18} {:>10} {:>16}", "policy", "ns a hit", "bytes a page");
    for policy in [
        PolicyKind::Lru,
        PolicyKind::Clock,
        PolicyKind::Sieve,
        PolicyKind::HrLru,
        PolicyKind::PriorityLru,
    ] {
        let mut cache = ResidentPages::new(policy, pages, EXTENT_PAGES, &PolicyOptions::default())?;
        let volume = cache.add_volume(4 * u64::from(pages))?;
        // Caches one page of every four of the volume.
        for page in 0..u64::from(pages) {
            cache.insert(volume, 4 * page + page % 3);
        }
        let mut random = 1u64;
        let mut found = 0u64;
        let began = cpu_s();
        for _ in 0..HITS {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let page = ((random >> 32) * u64::from(pages)) >> 32;
            if let Some(frame) = cache.find(volume, 4 * page + page % 3) {
                cache.touch(volume, frame);
                cache.count(volume, false, true);
                found += 1;
            }
        }
        let ns = (cpu_s() - began) * 1e9 / HITS as f64;
        assert_eq!(found, HITS, "all of them are there");
        let bytes = cache.memory_bytes() as f64 / f64::from(pages);
        println!("{:<18} {ns:>10.1} {bytes:>16.1}", policy.name());
    }
    Ok(())
}
