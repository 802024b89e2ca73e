//! Checked cache of a scenario: `[cache]` with its partitions, and the numbering of its pages.

use std::sync::Arc;

use cache::{
    AnyPolicy, PageCache, PageCacheConfig, PageLayout, PolicyOptions, RatesConfig, WriteMode,
};
use config::find;
use config::scenario::{CacheConfig, CachePartConfig};
use model::SloClass;
use units::{Bytes, VolumeId};

use crate::{ScenarioError, ScenarioFile, VolumeModel};

/// Largest number of pages of all volumes in a partition: a policy needs about ten bytes for each.
pub(crate) const PAGES_MAX: u64 = 1 << 27;

/// Cache in front of the devices.
#[derive(Debug, Clone)]
pub struct CacheModel {
    pub(crate) config: CacheConfig,
    pub(crate) size: Bytes,
    pub(crate) parts: Vec<PartModel>,
    /// Partition of each volume and its first page there; `None` if the volume is not cached.
    pub(crate) place_of: Vec<Option<CachePlace>>,
    /// Volumes that are cached at the start of the run.
    pub(crate) holds: Vec<usize>,
}

/// Partition of the cache.
#[derive(Debug, Clone)]
pub(crate) struct PartModel {
    /// Name of its class or volume.
    pub(crate) name: String,
    pub(crate) size: Bytes,
    config: PageCacheConfig,
    /// Number of page numbers.
    universe: u32,
    /// Volume of each extent.
    pub(crate) volume_of: Arc<[u32]>,
}

/// Numbering of a volume's pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachePlace {
    pub(crate) part: u16,
    pub(crate) first_page: u32,
}

impl CacheModel {
    /// Returns empty partitions.
    pub(crate) fn caches(&self) -> Vec<PageCache<AnyPolicy>> {
        self.parts
            .iter()
            .map(|p| self.cache_of(p, p.config))
            .collect()
    }

    /// Returns an empty cache of `pages` pages with the page numbers of a partition.
    pub(crate) fn cache_within(&self, part: u16, pages: u32) -> PageCache<AnyPolicy> {
        let part = &self.parts[usize::from(part)];
        let config = PageCacheConfig {
            pages,
            ..part.config
        };
        self.cache_of(part, config)
    }

    /// Returns the name of the scenario's partition for a volume.
    pub(crate) fn part_name(&self, volume: usize) -> String {
        let part = self.parts.get(self.pool_of(volume));
        part.map(|p| p.name.clone()).unwrap_or_default()
    }

    /// Returns the number of pages of a partition.
    pub(crate) fn pages_of(&self, part: u16) -> u32 {
        self.parts[usize::from(part)].config.pages
    }

    /// Returns the partition of a volume's pages, in the responder's numbering.
    pub(crate) fn pool_of(&self, volume: usize) -> usize {
        let place = self.place_of[volume];
        place.map_or(self.parts.len(), |p| usize::from(p.part))
    }

    /// Returns the sizes of the partitions, and a size of zero for volumes that are not cached.
    pub(crate) fn pools(&self) -> Vec<Bytes> {
        let sizes = self.parts.iter().map(|p| p.size);
        sizes.chain([Bytes::ZERO]).collect()
    }

    /// Returns true if volumes can get partitions during a run. The policy must support resizing, and no page may be
    /// dirty.
    pub(crate) fn can_be_shared_out(&self) -> bool {
        self.config.policy.can_resize() && self.config.writes != WriteMode::WriteBack
    }

    fn cache_of(&self, part: &PartModel, config: PageCacheConfig) -> PageCache<AnyPolicy> {
        let volumes = self.place_of.len() as u32;
        let options = PolicyOptions {
            layout: PageLayout::Volumes {
                pages_per_extent: self.config.extent_pages,
                volume_of: Arc::clone(&part.volume_of),
            },
            rates: RatesConfig::of(self.config.literal),
            ageing: self.config.ageing,
            on_hit: self.config.on_hit,
        };
        let policy = |pages, universe| {
            AnyPolicy::with_options(self.config.policy, pages, universe, &options)
        };
        let extents = part.volume_of.len() as u32;
        let cache = PageCache::new(&config, part.universe, extents, volumes, policy);
        cache.expect("parts are checked when the scenario is read")
    }
}

impl ScenarioFile {
    /// Reads the table `cache`.
    pub(crate) fn cache(
        &self,
        volumes: &[VolumeModel],
        classes: &[SloClass],
    ) -> Result<Option<CacheModel>, ScenarioError> {
        let Some(config) = &self.scenario.cache else {
            return Ok(None);
        };
        let fault = |key: &str, why: String| Err(self.fault(&format!("cache.{key}"), why));
        if self.scenario.tiers.iter().any(|t| t.name == "cache") {
            let why = "\"cache\" is reserved in scenarios with a cache";
            return Err(self.fault("tiers", format!("{why}: rename the tier")));
        }
        let all: Bytes = volumes.iter().map(|v| v.size).sum();
        let size = match (config.size, config.share) {
            (Some(size), None) => size,
            (None, Some(share)) if share > 0.0 && share < 1.0 => {
                Bytes((all.as_f64() * share) as u64)
            }
            (None, Some(share)) => {
                return fault("share", format!("{share} must be above 0 and below 1"));
            }
            _ => return Err(self.fault("cache", "give either a size or a share of all volumes")),
        };
        for (key, length, of) in [
            ("slice", config.slice, self.scenario.window),
            ("hour", config.hour, config.slice),
        ] {
            if length.0 == 0 || !length.0.is_multiple_of(of.0.max(1)) {
                return fault(key, format!("{length} is not a multiple of {of}"));
            }
        }
        if config.extent_pages == 0 {
            return fault("extent_pages", "must be at least one page".into());
        }
        let part_of = self.parts(config, volumes, classes)?;
        let named: f64 = config.parts.iter().map(|p| p.share).sum();
        if named > 1.0 + 1e-9 {
            return fault(
                "parts",
                format!("the sum of the shares is {named}, which exceeds 1"),
            );
        }
        let mut model = CacheModel {
            config: config.clone(),
            size,
            parts: vec![],
            place_of: vec![None; volumes.len()],
            holds: vec![],
        };
        for (i, name) in config.holds.iter().enumerate() {
            let names = volumes.iter().map(|v| v.name.as_str());
            let volume =
                find(name, names).map_err(|why| self.fault(&format!("cache.holds[{i}]"), why))?;
            model.holds.push(volume);
        }
        for (p, part) in config.parts.iter().enumerate() {
            let of = part.class.iter().chain(&part.volume).next();
            let name = of.expect("one of them is given").clone();
            let key = format!("parts[{p}]");
            self.add_part(&mut model, volumes, (name, part.share, key), |v| {
                part_of[v] == Some(p)
            })?;
        }
        let rest = ("others".to_string(), (1.0 - named).max(0.0), "size".into());
        self.add_part(&mut model, volumes, rest, |v| part_of[v].is_none())?;
        for (i, v) in model.holds.iter().enumerate() {
            if model.place_of[*v].is_none() {
                let why = format!("volume \"{}\" is not cached", volumes[*v].name);
                return fault(&format!("holds[{i}]"), why);
            }
        }
        Ok(Some(model))
    }

    /// Returns the named partition of each volume. A partition for the volume has precedence over one for its class.
    fn parts(
        &self,
        config: &CacheConfig,
        volumes: &[VolumeModel],
        classes: &[SloClass],
    ) -> Result<Vec<Option<usize>>, ScenarioError> {
        let mut of_class: Vec<Option<usize>> = vec![None; classes.len()];
        let mut of_volume = vec![None; volumes.len()];
        for (p, part) in config.parts.iter().enumerate() {
            let at = |key: &str| format!("cache.parts[{p}].{key}");
            if !(0.0..=1.0).contains(&part.share) {
                let why = format!("must be a share from 0 to 1, not {}", part.share);
                return Err(self.fault(&at("share"), why));
            }
            let CachePartConfig { class, volume, .. } = part;
            let (key, taken) = match (class, volume) {
                (Some(name), None) => {
                    let names = classes.iter().map(|c| c.name.as_str());
                    let class = find(name, names).map_err(|why| self.fault(&at("class"), why))?;
                    ("class", &mut of_class[class])
                }
                (None, Some(name)) => {
                    let names = volumes.iter().map(|v| v.name.as_str());
                    let volume = find(name, names).map_err(|why| self.fault(&at("volume"), why))?;
                    ("volume", &mut of_volume[volume])
                }
                _ => {
                    let why = "give either a class or a volume";
                    return Err(self.fault(&format!("cache.parts[{p}]"), why));
                }
            };
            if taken.replace(p).is_some() {
                return Err(self.fault(&at(key), "already has a part"));
            }
        }
        let of =
            |(v, volume): (usize, &VolumeModel)| of_volume[v].or(of_class[volume.class.index()]);
        Ok(volumes.iter().enumerate().map(of).collect())
    }

    /// Adds a partition, unless it has no share or no volume.
    fn add_part(
        &self,
        model: &mut CacheModel,
        volumes: &[VolumeModel],
        (name, share, key): (String, f64, String),
        has: impl Fn(usize) -> bool,
    ) -> Result<(), ScenarioError> {
        if share == 0.0 || !(0..volumes.len()).any(&has) {
            return Ok(());
        }
        let config = &model.config;
        let fault = |key: &str, why: String| Err(self.fault(&format!("cache.{key}"), why));
        let page_bytes = config.page.0;
        let pages = (model.size.as_f64() * share / page_bytes.max(1) as f64) as u64;
        if pages > u64::from(cache::CAPACITY_PAGES_MAX) {
            let most = cache::CAPACITY_PAGES_MAX;
            return fault(
                &key,
                format!("{pages} pages exceed the limit of {most}: use larger pages"),
            );
        }
        let part = PageCacheConfig {
            pages: pages as u32,
            page_bytes,
            write_share: config.write_share,
            write_mode: config.writes,
        };
        if let Err(e) = part.parts() {
            let key = match e {
                cache::PageCacheError::PageBytes(_) => "page",
                cache::PageCacheError::WriteShare(_) => "write_share",
                cache::PageCacheError::Pages { .. } => &key,
            };
            return fault(key, e.to_string());
        }
        let extent = u64::from(config.extent_pages);
        let part_no = model.parts.len() as u16;
        let mut volume_of = Vec::new();
        let mut universe = 0;
        for (v, volume) in volumes.iter().enumerate().filter(|(v, _)| has(*v)) {
            model.place_of[v] = Some(CachePlace {
                part: part_no,
                first_page: universe as u32,
            });
            let extents = volume.size.0.div_ceil(page_bytes).div_ceil(extent);
            universe += extents * extent;
            if universe > PAGES_MAX {
                let why = format!(
                    "the cached volumes exceed the limit of {PAGES_MAX} pages of {}: use larger pages",
                    config.page
                );
                return fault("page", why);
            }
            volume_of.resize(
                volume_of.len() + extents as usize,
                VolumeId::from_index(v).0,
            );
        }
        model.parts.push(PartModel {
            name,
            size: Bytes(pages * page_bytes),
            config: part,
            universe: universe as u32,
            volume_of: volume_of.into(),
        });
        Ok(())
    }
}
