use super::*;
use crate::registry::REGISTRY;
use crate::{RatesConfig, replay};

const EXTENT: u32 = 4;

fn lru(pages: u32) -> ResidentPages {
    ResidentPages::new(PolicyKind::Lru, pages, EXTENT, &PolicyOptions::default()).unwrap()
}

/// Reads a page as a driver does; returns true for a hit.
fn read(cache: &mut ResidentPages, volume: VolumeNo, page: u64) -> bool {
    let found = cache.find(volume, page);
    cache.count(volume, false, found.is_some());
    match found {
        Some(frame) => cache.touch(volume, frame),
        None => {
            cache.insert(volume, page);
        }
    }
    cache.check();
    found.is_some()
}

impl ResidentPages {
    /// Checks that tables are consistent and no frame is lost.
    fn check(&self) {
        let mut free = Vec::new();
        let mut next = self.first_free;
        while next != NONE {
            free.push(next);
            next = self.page_of[next as usize];
        }
        let cached: Vec<u32> = (0..self.frames()).filter(|f| !free.contains(f)).collect();
        assert_eq!(cached.len() as u32, self.len());
        for frame in &cached {
            let page = self.page_of[*frame as usize];
            assert_eq!(self.index.find(page, &self.page_of), Some(*frame));
            let volume = self.volume_of[(page / self.extent_pages) as usize];
            let part = self.of(VolumeNo(volume)).part;
            for (p, of) in self.parts.iter().enumerate() {
                assert_eq!(of.policy.contains(*frame), p == part);
            }
        }
        for (extent, count) in self.cached_in.iter().enumerate() {
            let of_it = |f: &&u32| self.page_of[**f as usize] / EXTENT == extent as u32;
            assert_eq!(cached.iter().filter(of_it).count() as u32, *count);
        }
        for (v, volume) in self.volumes.iter().enumerate() {
            let Some(volume) = volume else { continue };
            let own = |f: &&u32| {
                self.volume_of[(self.page_of[**f as usize] / EXTENT) as usize] == v as u32
            };
            assert_eq!(cached.iter().filter(own).count() as u32, volume.cached);
        }
    }
}

/// The hits are those of the policy over all pages of all volumes, independent of frames, also under policies with
/// extents.
#[test]
fn hits_match_the_policy_over_dense_pages() {
    let sizes = [40_u32, 100, 24];
    let firsts = [0, 40, 140];
    let volume_of: Vec<u32> = (0..3)
        .flat_map(|v| vec![v as u32; (sizes[v] / EXTENT) as usize])
        .collect();
    let options = PolicyOptions {
        rates: RatesConfig::literal(),
        ..PolicyOptions::default()
    };
    for entry in REGISTRY.iter().filter(|e| !e.kind.remembers()) {
        for capacity in [1, 7, 50, 163] {
            let dense = PolicyOptions {
                layout: PageLayout::Volumes {
                    pages_per_extent: EXTENT,
                    volume_of: volume_of.clone().into(),
                },
                ..options.clone()
            };
            let mut policy = AnyPolicy::with_options(entry.kind, capacity, 164, &dense);
            let mut cache = ResidentPages::new(entry.kind, capacity, EXTENT, &options).unwrap();
            let volumes = sizes.map(|pages| cache.add_volume(pages.into()).unwrap());
            let mut rng = algo::Rng::new(7, u64::from(capacity));
            for i in 0..4000 {
                let v = rng.below(3) as usize;
                // Some pages are read more often than others.
                let most = 1 + rng.below(sizes[v].into());
                let page = rng.below(most) as u32;
                if rng.below(20) == 0 {
                    let was = policy.remove(firsts[v] + page);
                    assert_eq!(cache.remove(volumes[v], page.into()), was);
                    continue;
                }
                let want = policy.access(firsts[v] + page).is_hit();
                let what = format!("{} of {capacity} pages, access {i}", entry.name);
                assert_eq!(read(&mut cache, volumes[v], page.into()), want, "{what}");
                if i % 500 == 499 {
                    let over = [Some(1.5), Some(0.5), None];
                    policy.prioritize(&over);
                    policy.slice_ended();
                    cache.slice_ended(&over);
                }
                if i % 2000 == 1999 {
                    policy.hour_ended();
                    cache.hour_ended();
                }
            }
            assert!(cache.counts(volumes[1]).read_hits > 0);
        }
    }
}

#[test]
fn policies_with_ghost_entries_are_refused() {
    let refused: Vec<&str> = REGISTRY
        .iter()
        .filter(|e| ResidentPages::new(e.kind, 10, EXTENT, &PolicyOptions::default()).is_err())
        .map(|e| e.name)
        .collect();
    assert_eq!(refused, ["two-q", "arc", "lirs", "s3-fifo", "w-tinylfu"]);
    // A policy with memory behaves differently for a page that was evicted and returns.
    for entry in REGISTRY {
        let trail: Vec<u32> = (0..400).map(|i| (i * 7 + i / 13) % 60).collect();
        let mut fresh = AnyPolicy::new(entry.kind, 10, 60);
        let mut after = AnyPolicy::new(entry.kind, 10, 60);
        replay(&mut after, &trail);
        (0..60).for_each(|p| {
            after.remove(p);
        });
        let probe: Vec<u32> = (0..300).map(|i| (i * i + i / 7) % 31).collect();
        let same = fresh.replay(&probe) == after.replay(&probe);
        assert!(
            same || entry.kind.remembers() || entry.name.starts_with("lfu"),
            "{}",
            entry.name
        );
    }
}

#[test]
fn volumes_are_added_and_removed_and_numbers_reused() {
    let mut cache = lru(20);
    let a = cache.add_volume(30).unwrap();
    let b = cache.add_volume(10).unwrap();
    (0..10).for_each(|p| assert!(!read(&mut cache, a, p)));
    (0..10).for_each(|p| assert!(!read(&mut cache, b, p)));
    assert_eq!(
        (cache.cached(a), cache.cached(b), cache.len()),
        (10, 10, 20)
    );
    cache.remove_volume(a);
    cache.check();
    assert_eq!(cache.len(), 10);
    // It has the numbers of the removed volume, and none of its pages is cached.
    let c = cache.add_volume(8).unwrap();
    let d = cache.add_volume(16).unwrap();
    assert_eq!(cache.volume_of.len(), 11);
    (0..8).for_each(|p| assert!(!read(&mut cache, c, p)));
    (0..10).for_each(|p| assert!(read(&mut cache, b, p)));
    assert!(!read(&mut cache, d, 15));
    cache.clear(b);
    assert_eq!((cache.cached(b), cache.cached(c)), (0, 8));
    cache.check();
    let too_many = cache.add_volume(u64::from(u32::MAX));
    assert_eq!(too_many, Err(CachePartError::TooManyPages));
}

#[test]
fn remove_range_looks_up_only_extents_with_cached_pages() {
    let mut cache = lru(20);
    let a = cache.add_volume(1000).unwrap();
    let b = cache.add_volume(1 << 31).unwrap();
    let lookups = |cache: &ResidentPages, volume, mut pages: Range<u64>| {
        let mut looked_up = 0;
        while let Some(next) = cache.next_cached(volume, &pages) {
            looked_up += next.end - next.start;
            pages.start = next.end;
        }
        looked_up
    };
    for page in [3, 4, 7, 999] {
        read(&mut cache, a, page);
    }
    assert_eq!(lookups(&cache, b, 0..1 << 31), 0, "nothing of it is cached");
    read(&mut cache, b, 9);
    assert_eq!(lookups(&cache, a, 0..1000), 3 * u64::from(EXTENT));
    assert_eq!(lookups(&cache, a, 3..6), 3);
    assert_eq!(lookups(&cache, a, 3..3), 0);
    cache.remove_range(a, 4..7);
    cache.check();
    let left = [3, 4, 7, 999].map(|page| cache.find(a, page).is_some());
    assert_eq!(left, [true, false, true, true]);
    cache.remove_range(a, 0..1000);
    cache.check();
    assert_eq!((cache.cached(a), cache.cached(b)), (0, 1));
}

#[test]
fn cache_share_is_isolated_from_other_volumes() {
    let mut cache = lru(100);
    let [a, b] = [0, 1].map(|_| cache.add_volume(200).unwrap());
    let hits = |cache: &mut ResidentPages, v, pages: std::ops::Range<u64>| {
        pages.filter(|p| read(cache, v, *p)).count()
    };
    hits(&mut cache, a, 0..60);
    cache.give_part(a, 60).unwrap();
    cache.check();
    hits(&mut cache, b, 0..200);
    assert_eq!(hits(&mut cache, a, 0..60), 60);
    assert_eq!(hits(&mut cache, b, 160..200), 40, "what is left is its");
    cache.give_part(a, 80).unwrap();
    assert_eq!(hits(&mut cache, a, 0..80), 60);
    assert_eq!(hits(&mut cache, a, 0..80), 80);
    assert_eq!(cache.part(a), Some(80));
    cache.give_part(a, 10).unwrap();
    cache.check();
    assert_eq!(cache.cached(a), 10);
    cache.take_part_back(a);
    cache.check();
    assert_eq!((cache.part(a), hits(&mut cache, a, 70..80)), (None, 10));
    let too_large = cache.give_part(b, 100);
    assert_eq!(
        too_large,
        Err(CachePartError::TooLarge {
            asked: 100,
            all: 100
        })
    );
    cache.give_part(a, 50).unwrap();
    assert!(cache.give_part(b, 50).is_err());
    cache.give_part(b, 49).unwrap();
    cache.remove_volume(a);
    cache.check();
    assert_eq!(cache.parts[0].policy.capacity(), 51);
}

#[test]
fn volumes_of_a_partition_share_it_unless_they_have_their_own() {
    let mut cache = lru(100);
    let [a, b, c] = [0, 1, 2].map(|_| cache.add_volume(200).unwrap());
    let hits = |cache: &mut ResidentPages, v, pages: std::ops::Range<u64>| {
        pages.filter(|p| read(cache, v, *p)).count()
    };
    let gold = cache.new_part(40).unwrap();
    hits(&mut cache, a, 0..30);
    for v in [a, b] {
        cache.put_in(v, Some(gold));
    }
    cache.check();
    assert_eq!(
        (cache.part(a), cache.cached(a)),
        (None, 30),
        "they come along"
    );
    hits(&mut cache, b, 0..20);
    hits(&mut cache, c, 0..200);
    assert_eq!(
        (cache.cached(a), cache.cached(b), cache.cached(c)),
        (20, 20, 60)
    );
    // Its own part, then back to its earlier part.
    cache.give_part(a, 25).unwrap();
    cache.check();
    assert_eq!((cache.part(a), cache.cached(c)), (Some(25), 35));
    hits(&mut cache, a, 0..25);
    hits(&mut cache, b, 0..40);
    assert_eq!((cache.cached(a), cache.cached(b)), (25, 40));
    let larger = cache.replace_volume(a, 250).unwrap();
    assert_eq!((larger, cache.part(a)), (a, Some(25)));
    cache.take_part_back(a);
    hits(&mut cache, a, 0..40);
    cache.check();
    assert_eq!((cache.cached(a), cache.cached(b)), (40, 0));
    // Moved while it has its own part.
    cache.give_part(b, 10).unwrap();
    cache.put_in(b, None);
    cache.take_part_back(b);
    hits(&mut cache, b, 0..60);
    assert_eq!((cache.cached(a), cache.cached(b)), (40, 60));
    assert!(cache.resize_part(gold, 100).is_err());
    cache.resize_part(gold, 10).unwrap();
    cache.check();
    assert_eq!((cache.cached(a), cache.part(a)), (10, None));
    cache.end_part(gold);
    cache.check();
    hits(&mut cache, a, 0..100);
    assert_eq!(
        (cache.cached(a), cache.parts[0].policy.capacity()),
        (100, 100)
    );
    // The number of a removed part is free, and no volume is in it.
    let next = cache.new_part(50).unwrap();
    assert_eq!((next, cache.part(a)), (gold, None));
    hits(&mut cache, a, 0..100);
    assert_eq!(cache.cached(a), 50);
}

#[test]
fn policies_without_resize_have_no_shares() {
    let mut cache =
        ResidentPages::new(PolicyKind::Sieve, 10, EXTENT, &PolicyOptions::default()).unwrap();
    let a = cache.add_volume(10).unwrap();
    let refused = cache.give_part(a, 5);
    assert_eq!(refused, Err(CachePartError::NoResize(PolicyKind::Sieve)));
    assert!(cache.new_part(5).is_err());
}

#[test]
fn cached_page_takes_at_most_26_bytes() {
    let cache = lru(1 << 20);
    let bytes = cache.memory_bytes() as f64 / f64::from(1 << 20);
    assert!(bytes < 26.0, "{bytes} bytes for each page");
}
