//! Caches in front of an array: `[cache]` of a scenario, and `[array.cache]` of a served array.

use ::cache::{Ageing, OnHit, PolicyKind, RatesConfig, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// Cache of pages in memory, between volumes and tiers. A miss reads whole pages from the devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Size of the cache. Use either this key or `share`.
    pub size: Option<Bytes>,
    /// Size of the cache as a share of the total size of all volumes, above 0 and below 1.
    pub share: Option<f64>,
    /// Size of a page: a power of two from 4 KiB to 256 KiB. A miss reads whole pages. Default: 64 KiB.
    #[serde(default = "default_page")]
    pub page: Bytes,
    /// Replacement policy (`terrace sim cache --help` lists all). Default: lru.
    #[serde(default = "default_policy")]
    pub policy: PolicyKind,
    /// Handling of writes: "write-through", "write-around" or "write-back". Default: write-through.
    #[serde(default = "default_writes")]
    pub writes: WriteMode,
    /// Share of the cache for pages that are not yet on the devices, with `writes = "write-back"`. Default: 0.2.
    #[serde(default = "default_write_share")]
    pub write_share: f64,
    /// Response time of a hit. Default: 20 microseconds.
    #[serde(default = "default_hit")]
    pub hit: Nanos,
    /// Number of pages in an extent, for policies with hit ratios of extents. Default: 60.
    #[serde(default = "default_extent_pages")]
    pub extent_pages: u32,
    /// Interval between updates of volume priorities and comparisons of the hit ratios of extents, for policies
    /// that use them. A multiple of the window. Default: 5 minutes.
    #[serde(default = "default_slice")]
    pub slice: Nanos,
    /// Interval after which hit ratios and response times restart; a multiple of `slice`. Default: 1 hour.
    #[serde(default = "default_hour")]
    pub hour: Nanos,
    /// If true, hit ratios of extents count as printed in the paper. The default, false, requires a minimum number
    /// of accesses and includes the previous hour.
    #[serde(default)]
    pub literal: bool,
    /// Demotion of pages without hits, for policies with segments. Default: never.
    #[serde(default)]
    pub ageing: Ageing,
    /// New position of a page after a hit, for policies with segments. Default: top.
    #[serde(default)]
    pub on_hit: OnHit,
    /// Volumes that are cached at the start, in this order. A volume that does not fit is cached evenly, as far as
    /// space allows. Default: none; the cache starts empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Cache shares that are reserved for classes or volumes. All other volumes use the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CachePartConfig>,
}

/// Cache share that is reserved for the volumes of one class, or for one volume. Set either `class` or `volume`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePartConfig {
    /// Class whose volumes use the share together.
    pub class: Option<String>,
    /// Volume that uses the share alone. It overrides the share of its class.
    pub volume: Option<String>,
    /// Share of the cache, 0 to 1. Volumes with 0 are not cached.
    pub share: f64,
}

/// Cache of pages in the memory of the process that serves an array, shared by its volumes. Acknowledged writes are
/// on the tiers, so a loss of the cache loses no data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayCacheConfig {
    /// Memory for the cache. Each worker uses an equal part for its volumes.
    pub size: Bytes,
    /// Size of a page: a power of two from 4 KiB to 256 KiB. A miss reads whole pages. Default: 64 KiB.
    #[serde(default = "default_page")]
    pub page: Bytes,
    /// Replacement policy. Policies that remember evicted pages (two-q, arc, lirs, s3-fifo, w-tinylfu) are not
    /// available. Default: lru.
    #[serde(default = "default_policy")]
    pub policy: PolicyKind,
    /// Handling of writes: "write-through" or "write-around". Default: write-through.
    #[serde(default = "default_writes")]
    pub writes: WriteMode,
    /// Number of pages in an extent, for policies with hit ratios of extents. Default: 60.
    #[serde(default = "default_extent_pages")]
    pub extent_pages: u32,
    /// Interval between updates of volume priorities and comparisons of the hit ratios of extents, for policies
    /// that use them. Default: 5 minutes.
    #[serde(default = "default_slice")]
    pub slice: Nanos,
    /// Interval after which hit ratios and response times restart; a multiple of `slice`. Default: 1 hour.
    #[serde(default = "default_hour")]
    pub hour: Nanos,
    /// If true, hit ratios of extents count as printed in the paper. The default, false, requires a minimum number
    /// of accesses and includes the previous hour.
    #[serde(default)]
    pub literal: bool,
    /// Demotion of pages without hits, for policies with segments. Default: never.
    #[serde(default)]
    pub ageing: Ageing,
    /// New position of a page after a hit, for policies with segments. Default: top.
    #[serde(default)]
    pub on_hit: OnHit,
    /// Cache shares that are reserved for classes or volumes. All other volumes use the rest, so the sum must be
    /// below 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CachePartConfig>,
}

impl ArrayCacheConfig {
    /// Returns a cache of this size with default values.
    pub fn of(size: Bytes) -> Self {
        Self {
            size,
            page: default_page(),
            policy: default_policy(),
            writes: default_writes(),
            extent_pages: default_extent_pages(),
            slice: default_slice(),
            hour: default_hour(),
            literal: false,
            ageing: Ageing::default(),
            on_hit: OnHit::default(),
            parts: vec![],
        }
    }

    /// Returns the first invalid key and the reason, if any.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if !::cache::is_page_size(self.page.0) {
            let why = format!(
                "must be a power of two from 4 KiB to 256 KiB, not {}",
                self.page
            );
            return Some(("array.cache.page", why));
        }
        if self.size < self.page {
            return Some((
                "array.cache.size",
                format!("{} is less than one page of {}", self.size, self.page),
            ));
        }
        if self.policy.remembers() {
            let why = "remembers evicted pages, which a served array does not support: choose another policy";
            return Some(("array.cache.policy", format!("{} {why}", self.policy)));
        }
        if self.writes == WriteMode::WriteBack {
            let why = "write-back would lose data when the process ends: use write-through or write-around";
            return Some(("array.cache.writes", why.into()));
        }
        if self.extent_pages == 0 {
            return Some(("array.cache.extent_pages", "must be at least 1".into()));
        }
        if self.slice == Nanos::ZERO {
            return Some(("array.cache.slice", "must be above 0".into()));
        }
        let whole = self.hour.0.is_multiple_of(self.slice.0) && self.hour > Nanos::ZERO;
        if !whole {
            return Some((
                "array.cache.hour",
                format!("{} is not a multiple of {}", self.hour, self.slice),
            ));
        }
        let why = self.fault_of_parts()?;
        Some(("array.cache.parts", why))
    }

    fn fault_of_parts(&self) -> Option<String> {
        let mut sum = 0.0;
        for (i, part) in self.parts.iter().enumerate() {
            let whose = match (&part.class, &part.volume) {
                (Some(class), None) => format!("class {class:?}"),
                (None, Some(volume)) => format!("volume {volume:?}"),
                _ => return Some(format!("entry {} needs either a class or a volume", i + 1)),
            };
            let before = &self.parts[..i];
            if before
                .iter()
                .any(|p| (&p.class, &p.volume) == (&part.class, &part.volume))
            {
                return Some(format!("{whose} has two entries"));
            }
            if !(0.0..1.0).contains(&part.share) {
                return Some(format!(
                    "share of {whose} must be from 0 to below 1, not {}",
                    part.share
                ));
            }
            if part.share > 0.0 && !self.policy.can_resize() {
                return Some(format!(
                    "{} cannot resize its cache: the share of {whose} must be 0",
                    self.policy
                ));
            }
            sum += part.share;
        }
        (sum >= 1.0).then(|| {
            format!("shares add up to {sum}: the sum must be below 1, for all other volumes")
        })
    }

    /// Returns the statistics of extents, for policies with hit ratios of extents.
    pub fn rates(&self) -> RatesConfig {
        RatesConfig::of(self.literal)
    }
}

fn default_page() -> Bytes {
    Bytes(64 << 10)
}
fn default_policy() -> PolicyKind {
    PolicyKind::Lru
}
fn default_writes() -> WriteMode {
    WriteMode::WriteThrough
}
fn default_write_share() -> f64 {
    0.2
}
fn default_hit() -> Nanos {
    Nanos::from_micros(20)
}
fn default_extent_pages() -> u32 {
    ::cache::PAGES_PER_EXTENT
}
fn default_slice() -> Nanos {
    Nanos::from_secs(300)
}
fn default_hour() -> Nanos {
    Nanos::from_secs(3600)
}
