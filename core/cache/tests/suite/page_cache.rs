//! Cache in front of an array: no write is lost, and the effects match the counts.

use std::collections::BTreeSet;

use cache::{
    AnyPolicy, Effect, Origin, PageCache, PageCacheConfig, PageCacheError, Policy, PolicyKind,
    Position, SegmentedLru, WriteMode,
};
use proptest::prelude::*;

const UNIVERSE: u32 = 120;

fn origin(page: u32) -> Origin {
    Origin {
        volume: page / 60,
        extent: page / 10,
    }
}

fn config(pages: u32, write_mode: WriteMode) -> PageCacheConfig {
    PageCacheConfig {
        pages,
        write_mode,
        ..PageCacheConfig::default()
    }
}

fn modes() -> impl Strategy<Value = WriteMode> {
    prop_oneof![
        Just(WriteMode::WriteBack),
        Just(WriteMode::WriteThrough),
        Just(WriteMode::WriteAround),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Read(u32, u32),
    Write(u32, u32),
    Discard(u32),
    Destage(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..UNIVERSE - 4, 1u32..4).prop_map(|(p, n)| Step::Read(p, n)),
        5 => (0..UNIVERSE - 4, 1u32..4).prop_map(|(p, n)| Step::Write(p, n)),
        1 => (0..UNIVERSE).prop_map(Step::Discard),
        1 => (0u32..5).prop_map(Step::Destage),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    /// Every written page is dirty until it is destaged, and every read is served from the place that the cache
    /// reports.
    #[test]
    fn page_cache_loses_no_written_page(steps in steps(), pages in 5u32..60, mode in modes(), kind in 0usize..cache::REGISTRY.len()) {
        let kind: PolicyKind = cache::REGISTRY[kind].kind;
        let made = PageCache::new(&config(pages, mode), UNIVERSE, UNIVERSE / 10, 2, |c, u| AnyPolicy::new(kind, c, u));
        let mut cache = made.unwrap();
        // Guest writes that no device has yet, and content of the read part's memory.
        let mut owed: BTreeSet<u32> = BTreeSet::new();
        let mut clean: BTreeSet<u32> = BTreeSet::new();
        let mut effects = Vec::new();
        for (at, step) in steps.into_iter().enumerate() {
            let position = Position::from_segment(at as u32 % 20);
            let (pages, step) = match step {
                Step::Read(page, n) => (page..page + n, Step::Read(page, n)),
                Step::Write(page, n) => (page..page + n, Step::Write(page, n)),
                other => (0..1, other),
            };
            for page in pages {
                effects.clear();
                let was_cached = owed.contains(&page) || clean.contains(&page);
                match step {
                    Step::Read(..) => {
                        let hits = cache.read(page..page + 1, origin(page), position, &mut effects);
                        prop_assert_eq!(hits == 1, was_cached);
                        prop_assert_eq!(effects.contains(&Effect::ReadMiss { page }), !was_cached);
                    }
                    Step::Write(..) => {
                        let hits = cache.write(page..page + 1, origin(page), position, &mut effects);
                        prop_assert_eq!(hits == 1, was_cached);
                    }
                    Step::Discard(page) => cache.discard(page..page + 1, &mut effects),
                    Step::Destage(n) => cache.destage(n, &mut effects),
                }
                for effect in &effects {
                    match *effect {
                        Effect::Destage { page } => prop_assert!(owed.remove(&page), "destaged but clean"),
                        Effect::Dropped { page } => prop_assert!(clean.remove(&page), "dropped but not there"),
                        Effect::ReadMiss { page } => prop_assert!(clean.insert(page), "read but there"),
                        Effect::WriteThrough { .. } => prop_assert!(mode != WriteMode::WriteBack),
                    }
                }
                match step {
                    Step::Write(..) if mode == WriteMode::WriteBack => {
                        owed.insert(page);
                    }
                    Step::Write(..) => {
                        let through = Effect::WriteThrough { page };
                        prop_assert!(effects.contains(&through));
                        if mode == WriteMode::WriteThrough {
                            clean.insert(page);
                        }
                    }
                    Step::Discard(page) => {
                        owed.remove(&page);
                    }
                    Step::Read(..) | Step::Destage(_) => {}
                }
            }
            prop_assert!(cache.dirty() <= cache.dirty_max());
            for page in 0..UNIVERSE {
                prop_assert_eq!(cache.is_dirty(page), owed.contains(&page));
                prop_assert_eq!(cache.contains(page), owed.contains(&page) || clean.contains(&page));
            }
        }
        effects.clear();
        cache.flush(&mut effects);
        prop_assert_eq!(effects.len(), owed.len());
        for effect in &effects {
            let Effect::Destage { page } = *effect else { panic!("{effect:?}") };
            prop_assert!(owed.remove(&page));
        }
        prop_assert_eq!(cache.dirty(), 0);
    }
}

#[test]
fn accesses_are_counted_by_extent_and_volume() {
    let mut cache = PageCache::new(
        &config(50, WriteMode::WriteBack),
        UNIVERSE,
        12,
        2,
        SegmentedLru::new,
    )
    .unwrap();
    assert_eq!((cache.policy().capacity(), cache.dirty_max()), (40, 10));
    let mut effects = Vec::new();
    cache.read(0..3, origin(0), Position::TOP, &mut effects);
    cache.read(1..2, origin(1), Position::TOP, &mut effects);
    cache.write(2..4, origin(2), Position::TOP, &mut effects);
    cache.read(3..4, origin(3), Position::TOP, &mut effects);
    cache.write(60..61, origin(60), Position::TOP, &mut effects);
    let extent = cache.extents()[0];
    assert_eq!(
        (
            extent.read_hits,
            extent.read_misses,
            extent.write_hits,
            extent.write_misses
        ),
        (2, 3, 1, 1)
    );
    assert_eq!(cache.volumes()[0], extent);
    assert_eq!(cache.volumes()[1].write_misses, 1);
    assert_eq!(extent.hit_ratio(), Some(3.0 / 7.0));
}

#[test]
fn invalid_sizes_are_refused() {
    let with = |f: &dyn Fn(&mut PageCacheConfig)| {
        let mut config = PageCacheConfig::default();
        f(&mut config);
        config.parts()
    };
    assert_eq!(with(&|_| ()), Ok((13_107, 3_277)));
    assert_eq!(
        with(&|c| c.page_bytes = 3000),
        Err(PageCacheError::PageBytes(3000))
    );
    assert_eq!(
        with(&|c| c.page_bytes = 1 << 20),
        Err(PageCacheError::PageBytes(1 << 20))
    );
    assert_eq!(
        with(&|c| c.write_share = 1.0),
        Err(PageCacheError::WriteShare(1.0))
    );
    assert!(with(&|c| c.write_share = f64::NAN).is_err());
    assert_eq!(
        with(&|c| c.pages = 1),
        Err(PageCacheError::Pages { pages: 1, write: 0 })
    );
    let config = PageCacheConfig::default();
    assert_eq!(config.pages_of(65_535, 2), 0..2);
    assert_eq!(config.pages_of(65_536, 65_536), 1..2);
    assert_eq!(config.pages_of(70_000, 0), 1..1);
}
