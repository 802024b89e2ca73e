//! Cache between volumes and devices, on the request path.
//!
//! ```text
//!  read    all pages cached: complete after `hit`     else the range from the first to the last missing page is read, in whole pages
//!  write   through, around: the devices complete it   back: complete after `hit`; evicted pages are written meanwhile
//!  trim    whole pages are dropped, and the devices complete it
//! ```
//!
//! Simplifications: a read of a page that is already in transit is an immediate hit. A partial write of a page makes
//! the whole page valid in the write partition (which tracks sectors); elsewhere it is not cached unless the page is
//! cached already. Copies within memory take no time.

use std::collections::VecDeque;

use cache::{AnyPolicy, Effect, Origin, PageCache, PageCounts, Policy, Position, WriteMode};
use units::Bytes;

use crate::Model;
use crate::cache_model::{CacheModel, CachePlace, PartModel};
use crate::pages::VolumePages;
use crate::result::{CachePartSummary, CacheSummary, CacheVolumeSummary};
use crate::source::Issue;

/// Cache of a run.
pub(crate) struct CacheStage {
    model: CacheModel,
    pages: Pages,
    /// Partitions of the scenario, then those given to volumes.
    caches: Vec<PageCache<AnyPolicy>>,
    /// Volume and number of pages of each given partition, in order; 0 pages after it was taken back.
    given: Vec<(u32, u32)>,
    effects: Vec<Effect>,
    pub(crate) hit_ns: u64,
    pub(crate) writes_back: bool,
    /// Completion times of destages in progress.
    destaging: VecDeque<u64>,
    /// Largest number of destages in progress before writes wait: half of the limit for dirty pages.
    destaging_max: usize,
    destaged: u64,
    /// Counts since the start of the hour, by volume: requests, their response times divided by the objective and
    /// weighted by requests, and requests of the slice.
    responses: Vec<(u64, f64, u64)>,
    /// Counts at the end of the warm-up, by volume.
    counts_before: Vec<PageCounts>,
    destaged_before: u64,
    /// Read hits and misses up to the last window.
    reads_before: (u64, u64),
    read_hit_ratio: Vec<Option<f64>>,
}

/// Numbering of pages.
struct Pages {
    page_bytes: u64,
    extent_pages: u32,
    place_of: Vec<Option<CachePlace>>,
    size_of: Vec<u64>,
}

impl Pages {
    /// Returns the pages of a volume, in the numbers of its partition.
    fn of(&self, volume: u32, place: CachePlace) -> VolumePages {
        VolumePages {
            page_bytes: self.page_bytes,
            volume_bytes: self.size_of[volume as usize],
            first: place.first_page,
        }
    }

    fn origin(&self, volume: u32, page: u32) -> Origin {
        Origin {
            volume,
            extent: page / self.extent_pages,
        }
    }
}

/// Pages to be written to the devices, by volume and byte range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destage {
    pub(crate) volume: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Destage {
    /// Returns true if the other range begins at the end of this one.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.volume == other.volume && self.offset + self.length == other.offset
    }
}

impl CacheStage {
    pub(crate) fn new(model: &CacheModel, sizes: impl Iterator<Item = Bytes>) -> Self {
        let mut caches = model.caches();
        let sizes: Vec<u64> = sizes.map(|s| s.0).collect();
        for v in &model.holds {
            let place = model.place_of[*v].expect("checked with the scenario");
            let pages = sizes[*v].div_ceil(model.config.page.0) as u32;
            fill(
                &mut caches[usize::from(place.part)],
                place.first_page,
                pages,
            );
        }
        let volumes = model.place_of.len();
        let dirty_max: u32 = caches.iter().map(PageCache::dirty_max).sum();
        Self {
            given: Vec::new(),
            pages: Pages {
                page_bytes: model.config.page.0,
                extent_pages: model.config.extent_pages,
                place_of: model.place_of.clone(),
                size_of: sizes,
            },
            destaging_max: (dirty_max as usize / 2).max(1),
            caches,
            effects: Vec::new(),
            model: model.clone(),
            hit_ns: model.config.hit.0,
            writes_back: model.config.writes == WriteMode::WriteBack,
            destaging: VecDeque::new(),
            destaged: 0,
            responses: vec![(0, 0.0, 0); volumes],
            counts_before: vec![PageCounts::default(); volumes],
            destaged_before: 0,
            reads_before: (0, 0),
            read_hit_ratio: Vec::new(),
        }
    }

    /// Returns the place of a volume's pages; `None` if the volume is not cached.
    #[inline]
    pub(crate) fn place(&self, volume: u32) -> Option<CachePlace> {
        self.pages.place_of[volume as usize]
    }

    /// Returns the range that a read must get from the devices in whole pages (offset and length); `None` for a hit.
    #[inline]
    pub(crate) fn missing(&self, place: CachePlace, issue: &Issue) -> Option<(u64, u64)> {
        let cache = &self.caches[usize::from(place.part)];
        let pages = self.pages.of(issue.volume, place);
        pages.missing(issue.offset, issue.length, |p| cache.contains(p))
    }

    /// Records a completed read. Its pages are cached now.
    #[inline]
    pub(crate) fn read(&mut self, place: CachePlace, issue: &Issue) {
        let cache = &mut self.caches[usize::from(place.part)];
        let pages = self.pages.of(issue.volume, place);
        for page in pages.of(issue.offset, issue.length) {
            let origin = self.pages.origin(issue.volume, page);
            cache.read(page..page + 1, origin, Position::TOP, &mut self.effects);
        }
        self.effects.clear();
    }

    /// Records a write. Passes the pages that must be destaged for it to `destage`.
    #[inline]
    pub(crate) fn write(
        &mut self,
        place: CachePlace,
        issue: &Issue,
        mut destage: impl FnMut(Destage),
    ) {
        let cache = &mut self.caches[usize::from(place.part)];
        let pages = self.pages.of(issue.volume, place);
        let origin = |page| self.pages.origin(issue.volume, page);
        let bytes = (issue.offset, issue.length);
        pages.write(cache, bytes, origin, &mut self.effects);
        for effect in self.effects.drain(..) {
            if let Effect::Destage { page } = effect {
                let extent = page / self.pages.extent_pages;
                let part = &self.model.parts[usize::from(place.part)];
                let volume = part.volume_of[extent as usize];
                let place = self.pages.place_of[volume as usize].expect("it has pages here");
                let (offset, length) = self.pages.of(volume, place).bytes(page..page + 1);
                self.destaged += 1;
                destage(Destage {
                    volume,
                    offset,
                    length,
                });
            }
        }
    }

    /// Drops the whole pages of a trim.
    pub(crate) fn trim(&mut self, place: CachePlace, issue: &Issue) {
        let first = issue.offset.div_ceil(self.pages.page_bytes) as u32;
        let end = issue.offset + issue.length;
        let at_end = end == self.pages.size_of[issue.volume as usize];
        let end = match at_end {
            true => end.div_ceil(self.pages.page_bytes),
            false => end / self.pages.page_bytes,
        } as u32;
        let cache = &mut self.caches[usize::from(place.part)];
        cache.discard(
            place.first_page + first..place.first_page + end,
            &mut self.effects,
        );
        self.effects.clear();
    }

    /// Records the destage of a number of bytes until `done_ns`.
    pub(crate) fn destages_until(&mut self, done_ns: u64, bytes: u64) {
        let pages = bytes.div_ceil(self.pages.page_bytes) as usize;
        self.destaging.extend(std::iter::repeat_n(done_ns, pages));
    }

    /// Returns the completion time of a write-back: now, or when a destage in progress completes and leaves room.
    pub(crate) fn written_back(&mut self, now_ns: u64) -> u64 {
        while self.destaging.front().is_some_and(|done| *done <= now_ns) {
            self.destaging.pop_front();
        }
        let mut done_ns = now_ns + self.hit_ns;
        while self.destaging.len() > self.destaging_max {
            done_ns = done_ns.max(self.destaging.pop_front().unwrap_or(0));
        }
        done_ns
    }

    /// Ends a window. `answered` has for every volume the number of completed requests and their response time divided
    /// by the objective, if it has one.
    pub(crate) fn end_window(
        &mut self,
        now_ns: u64,
        answered: impl Iterator<Item = (u64, Option<f64>)>,
    ) {
        for (sums, (ios, over)) in self.responses.iter_mut().zip(answered) {
            if let Some(over) = over {
                *sums = (sums.0 + ios, sums.1 + over * ios as f64, sums.2 + ios);
            }
        }
        let (hits, misses) = self.reads();
        let (h, m) = (hits - self.reads_before.0, misses - self.reads_before.1);
        self.reads_before = (hits, misses);
        let ratio = (h + m > 0).then(|| (h as f64 / (h + m) as f64 * 1e4).round() / 1e4);
        self.read_hit_ratio.push(ratio);
        if !now_ns.is_multiple_of(self.model.config.slice.0) {
            return;
        }
        let over = |r: &(u64, f64, u64)| (r.2 > 0).then(|| r.1 / r.0 as f64);
        let over: Vec<Option<f64>> = self.responses.iter().map(over).collect();
        self.responses.iter_mut().for_each(|r| r.2 = 0);
        let ends_hour = now_ns.is_multiple_of(self.model.config.hour.0);
        for cache in &mut self.caches {
            cache.policy_mut().prioritize(&over);
            cache.policy_mut().slice_ended();
            if ends_hour {
                cache.policy_mut().hour_ended();
            }
        }
        if ends_hour {
            self.responses.fill((0, 0.0, 0));
        }
    }

    fn reads(&self) -> (u64, u64) {
        let volumes = self.caches.iter().flat_map(|c| c.volumes());
        volumes.fold((0, 0), |(h, m), c| (h + c.read_hits, m + c.read_misses))
    }

    fn counts(&self, volume: usize) -> PageCounts {
        let mut sum = PageCounts::default();
        for cache in &self.caches {
            sum.add(&cache.volumes()[volume]);
        }
        sum
    }

    /// Gives a volume its own partition, or changes its size. The volume's pages in the shared partition move along as
    /// far as they fit; their order of use is lost.
    pub(crate) fn give_part(&mut self, volume: usize, size: Bytes) {
        let Some(home) = self.model.place_of[volume] else {
            return;
        };
        let pages = ((size.0 / self.pages.page_bytes).max(1)) as u32;
        let known = self.given.iter().position(|g| g.0 as usize == volume);
        let which = known.unwrap_or_else(|| {
            self.caches.push(self.model.cache_within(home.part, pages));
            self.given.push((volume as u32, 0));
            self.given.len() - 1
        });
        let part = self.model.parts.len() + which;
        let was = std::mem::replace(&mut self.given[which].1, pages);
        self.resize(part, pages);
        if was == 0 {
            self.change_part(volume, usize::from(home.part), part);
        }
        self.fit_home(home.part);
    }

    /// Removes a volume's own partition. Its pages return to the shared partition as far as they fit.
    pub(crate) fn take_part_back(&mut self, volume: usize) {
        let known = self.given.iter().position(|g| g.0 as usize == volume);
        let (Some(which), Some(home)) = (known, self.model.place_of[volume]) else {
            return;
        };
        self.given[which].1 = 0;
        self.fit_home(home.part);
        let part = self.model.parts.len() + which;
        self.change_part(volume, part, usize::from(home.part));
    }

    fn change_part(&mut self, volume: usize, from: usize, to: usize) {
        let place = self.pages.place_of[volume].as_mut();
        let place = place.expect("it is cached");
        place.part = to as u16;
        let first = place.first_page;
        let count = self.pages.size_of[volume].div_ceil(self.pages.page_bytes) as u32;
        let [from, to] = self.caches.get_disjoint_mut([from, to]).expect("two parts");
        for page in first..first + count {
            if from.contains(page) {
                from.discard(page..page + 1, &mut self.effects);
                to.policy_mut().access(page);
            }
        }
        self.effects.clear();
    }

    /// Sizes the shared partition: it has all pages that no volume has for itself.
    fn fit_home(&mut self, home: u16) {
        let of_home = |g: &&(u32, u32)| {
            let place = self.model.place_of[g.0 as usize];
            place.is_some_and(|p| p.part == home)
        };
        let given: u32 = self.given.iter().filter(of_home).map(|g| g.1).sum();
        let left = self.model.pages_of(home).saturating_sub(given).max(1);
        self.resize(usize::from(home), left);
    }

    fn resize(&mut self, part: usize, pages: u32) {
        let could = self.caches[part].policy_mut().resize(pages, &mut |_| {});
        assert!(could, "parts are given only where they can be");
    }

    /// Returns a volume's priority in percent; `None` if the volume is not cached, or the policy has no priorities.
    pub(crate) fn priority(&self, volume: usize) -> Option<i32> {
        let place = self.pages.place_of[volume]?;
        let cache = &self.caches[usize::from(place.part)];
        cache.policy().priority(volume as u32)
    }

    /// Ends the warm-up.
    pub(crate) fn count_from_now(&mut self) {
        self.counts_before = (0..self.counts_before.len())
            .map(|v| self.counts(v))
            .collect();
        self.destaged_before = self.destaged;
    }

    /// Returns the results of the measured time, and the share of read hits by window.
    pub(crate) fn finish(self, model: &Model) -> (CacheSummary, Vec<Option<f64>>) {
        let config = &self.model;
        let volumes: Vec<CacheVolumeSummary> = model
            .volumes
            .iter()
            .enumerate()
            .filter_map(|(v, volume)| {
                let place = self.pages.place_of[v]?;
                let cache = &self.caches[usize::from(place.part)];
                let counts = self.counts(v).since(&self.counts_before[v]);
                Some(CacheVolumeSummary {
                    name: volume.name.clone(),
                    class: model.classes[volume.class.index()].name.clone(),
                    part: config.part_name(v),
                    read_hit_ratio: counts.read_hit_ratio(),
                    priority_percent: cache.policy().priority(v as u32),
                    counts,
                })
            })
            .collect();
        // A volume with its own partition counts in the scenario's partition for it.
        let mut of_parts = vec![PageCounts::default(); config.parts.len()];
        for (v, place) in config.place_of.iter().enumerate() {
            if let Some(place) = place {
                let counts = self.counts(v).since(&self.counts_before[v]);
                of_parts[usize::from(place.part)].add(&counts);
            }
        }
        let part = |((part, cache), counts): ((&PartModel, &PageCache<AnyPolicy>), PageCounts)| {
            let pages = u64::from(cache.policy().len()) + u64::from(cache.dirty());
            CachePartSummary {
                name: part.name.clone(),
                size_bytes: part.size.0,
                used_bytes: pages * self.pages.page_bytes,
                read_hit_ratio: counts.read_hit_ratio(),
                counts,
            }
        };
        let parts = config.parts.iter().zip(&self.caches).zip(of_parts);
        let parts = parts.map(part).collect();
        let summary = CacheSummary {
            policy: config.config.policy.name().into(),
            writes: config.config.writes,
            size_bytes: config.size.0,
            page_bytes: self.pages.page_bytes,
            destaged_pages: self.destaged - self.destaged_before,
            parts,
            volumes,
        };
        (summary, self.read_hit_ratio)
    }
}

/// Fills an empty cache with pages of a volume: all of them, or as many as fit, evenly spread over the volume.
fn fill(cache: &mut PageCache<AnyPolicy>, first: u32, pages: u32) {
    let policy = cache.policy_mut();
    let room = pages.min(policy.capacity() - policy.len());
    for n in 0..u64::from(room) {
        let page = n * u64::from(pages) / u64::from(room);
        policy.access(first + page as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScenarioFile;

    const PAGE: u64 = 64 << 10;

    /// Returns a cache of 100 pages in front of two volumes of 200.
    fn stage() -> CacheStage {
        stage_with("")
    }

    /// Returns the same stage with additional keys for the cache.
    fn stage_with(more: &str) -> CacheStage {
        let text = format!("{SCENARIO}{more}");
        let model = ScenarioFile::parse("parts.toml", &text).and_then(|f| f.build(vec![]));
        let model = model.unwrap_or_else(|e| panic!("{e}"));
        let sizes = model.volumes.iter().map(|v| v.size);
        CacheStage::new(model.cache.as_ref().unwrap(), sizes)
    }

    const SCENARIO: &str = r#"
duration = "10s"
[[tiers]]
name = "one"
preset = "pm863"
[[volumes]]
name = "a"
size = "12800 KiB"
[[volumes]]
name = "b"
size = "12800 KiB"
[[clients]]
volume = "a"
[cache]
size = "6400 KiB"
page = "64 KiB"
"#;

    fn read(stage: &mut CacheStage, volume: u32, page: u64) -> bool {
        let issue = Issue {
            volume,
            op: model::Op::Read,
            offset: page * PAGE,
            length: PAGE,
            arrival_ns: 0,
            bits: 0,
        };
        let place = stage.place(volume).unwrap();
        let hit = stage.missing(place, &issue).is_none();
        stage.read(place, &issue);
        hit
    }

    fn hits(stage: &mut CacheStage, volume: u32, pages: std::ops::Range<u64>) -> usize {
        pages.filter(|p| read(stage, volume, *p)).count()
    }

    #[test]
    fn initial_cache_contents_fill_the_cache_in_the_given_order() {
        let none: Vec<u32> = vec![];
        let held = |more: &str| {
            let stage = stage_with(more);
            [0, 1].map(|v| {
                let place = stage.place(v).unwrap();
                let pages = place.first_page..place.first_page + 200;
                let there = |p: &u32| stage.caches[usize::from(place.part)].contains(*p);
                pages
                    .filter(there)
                    .map(|p| p - place.first_page)
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(held(""), [none.clone(), none.clone()]);
        // Every second page of one volume is cached; the other has no space.
        let every_second: Vec<u32> = (0..200).step_by(2).collect();
        assert_eq!(held("holds = [\"b\", \"a\"]"), [none, every_second]);
        // The volume's own partition is smaller.
        let more = "holds = [\"b\"]\nparts = [{ volume = \"b\", share = 0.1 }]";
        assert_eq!(held(more)[1], (0..200).step_by(20).collect::<Vec<u32>>());
    }

    #[test]
    fn cache_share_is_isolated_from_other_volumes() {
        let mut stage = stage();
        hits(&mut stage, 0, 0..60);
        stage.give_part(0, Bytes(60 * PAGE));
        // All pages that fit are kept, and the other volume evicts none of them.
        hits(&mut stage, 1, 0..200);
        assert_eq!(hits(&mut stage, 0, 0..60), 60);
        assert_eq!(hits(&mut stage, 1, 160..200), 40, "what is left is its");
        assert_eq!(hits(&mut stage, 1, 0..160), 0);
        // With the larger partition, the other volume has less space.
        stage.give_part(0, Bytes(80 * PAGE));
        assert_eq!(hits(&mut stage, 0, 0..80), 60);
        assert_eq!(hits(&mut stage, 0, 0..80), 80);
        hits(&mut stage, 1, 0..50);
        assert_eq!(hits(&mut stage, 1, 30..50), 20);
        assert_eq!(hits(&mut stage, 1, 0..30), 0);
        // After the partition is taken back, its content is in the shared partition.
        stage.take_part_back(0);
        assert_eq!(hits(&mut stage, 0, 0..80), 80);
        hits(&mut stage, 1, 0..100);
        assert_eq!(hits(&mut stage, 0, 0..80), 0);
        // Counts of both partitions belong to the volume.
        let counts = stage.counts(0);
        assert_eq!(
            counts.read_hits + counts.read_misses,
            60 + 60 + 80 + 80 + 80 + 80
        );
        // A second grant reuses the same partition.
        stage.give_part(0, Bytes(10 * PAGE));
        assert_eq!(stage.caches.len(), 2);
        hits(&mut stage, 1, 0..200);
        assert_eq!(hits(&mut stage, 1, 110..200), 90);
    }
}
