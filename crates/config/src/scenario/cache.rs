//! A cache in front of the array: `[cache]` of a scenario, `[array.cache]` of one that is served.

use ::cache::{Ageing, OnHit, PolicyKind, RatesConfig, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos};

/// A cache of pages between the volumes and the tiers. It holds memory; what misses it goes to the devices, in whole pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// What it holds; give this or `share`.
    pub size: Option<Bytes>,
    /// What it holds as a share of all volumes' sizes, above 0 and below 1.
    pub share: Option<f64>,
    /// Size of a page: a power of two from 4 KiB to 256 KiB. A miss reads whole pages.
    #[serde(default = "default_page")]
    pub page: Bytes,
    /// Which pages stay (`terrace sim cache --help` lists the policies).
    #[serde(default = "default_policy")]
    pub policy: PolicyKind,
    /// What happens to writes.
    #[serde(default = "default_writes")]
    pub writes: WriteMode,
    /// Share of the cache for pages that are not on the devices yet, with `writes = "write-back"`.
    #[serde(default = "default_write_share")]
    pub write_share: f64,
    /// Response time of a request that the cache answers by itself.
    #[serde(default = "default_hit")]
    pub hit: Nanos,
    /// Pages of an extent, for policies that keep hit ratios of extents.
    #[serde(default = "default_extent_pages")]
    pub extent_pages: u32,
    /// After so long priorities are set by the response times of volumes, and extents' hit ratios are compared (policies with
    /// hit ratios and priorities); whole windows.
    #[serde(default = "default_slice")]
    pub slice: Nanos,
    /// After so long hit ratios and response times begin anew; whole slices.
    #[serde(default = "default_hour")]
    pub hour: Nanos,
    /// Whether hit ratios of extents count as printed in the paper, instead of with a least number of accesses and the hour before.
    #[serde(default)]
    pub literal: bool,
    /// Whether pages that nobody hits are brought down.
    #[serde(default)]
    pub ageing: Ageing,
    /// Where pages go that are hit.
    #[serde(default)]
    pub on_hit: OnHit,
    /// Volumes whose data it has when the run begins, in this order: all pages of each, or as many as there is room for, evenly over it. It begins
    /// empty if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Parts of the cache that are for some volumes only; what is left is for all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CachePartConfig>,
}

/// A part of the cache for the volumes of a class, or for one volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePartConfig {
    /// The class whose volumes share it.
    pub class: Option<String>,
    /// Or the volume that has it alone.
    pub volume: Option<String>,
    /// Share of the cache, 0..=1. With 0 they are not cached.
    pub share: f64,
}

/// A cache of pages in the memory of whoever serves an array, shared by its volumes. Nothing is in it alone: what is written is on the tiers when it is
/// answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayCacheConfig {
    /// The memory; each worker has its share of it, for its volumes.
    pub size: Bytes,
    /// Size of a page: a power of two from 4 KiB to 256 KiB. A miss reads whole pages.
    #[serde(default = "default_page")]
    pub page: Bytes,
    /// Which pages stay; policies that remember pages which are not cached any more (two-q, arc, lirs, s3-fifo, w-tinylfu) cannot be used.
    #[serde(default = "default_policy")]
    pub policy: PolicyKind,
    /// What happens to writes: "write-through" or "write-around".
    #[serde(default = "default_writes")]
    pub writes: WriteMode,
    /// Pages of an extent, for policies that keep hit ratios of extents.
    #[serde(default = "default_extent_pages")]
    pub extent_pages: u32,
    /// After so long priorities are set by the response times of volumes, and extents' hit ratios are compared.
    #[serde(default = "default_slice")]
    pub slice: Nanos,
    /// After so long hit ratios and response times begin anew; whole slices.
    #[serde(default = "default_hour")]
    pub hour: Nanos,
    /// Whether hit ratios of extents count as printed in the paper, instead of with a least number of accesses and the hour before.
    #[serde(default)]
    pub literal: bool,
    /// Whether pages that nobody hits are brought down.
    #[serde(default)]
    pub ageing: Ageing,
    /// Where pages go that are hit.
    #[serde(default)]
    pub on_hit: OnHit,
    /// Parts of it that are for some volumes only; what is left is for all others. Their shares add up to less than 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CachePartConfig>,
}

impl ArrayCacheConfig {
    /// One of so much memory, else as by default.
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

    /// The key of what cannot be, and why, if anything.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        if !::cache::is_page_size(self.page.0) {
            let why = format!(
                "a page has 4 KiB to 256 KiB and is a power of two, not {}",
                self.page
            );
            return Some(("array.cache.page", why));
        }
        if self.size < self.page {
            return Some((
                "array.cache.size",
                format!("{} is not even a page of {}", self.size, self.page),
            ));
        }
        if self.policy.remembers() {
            let why = "remembers pages that are not cached any more, which a served array does not number";
            return Some(("array.cache.policy", format!("{} {why}", self.policy)));
        }
        if self.writes == WriteMode::WriteBack {
            let why =
                "what is in memory alone is lost with the process: write-through, or write-around";
            return Some(("array.cache.writes", why.into()));
        }
        if self.extent_pages == 0 {
            return Some((
                "array.cache.extent_pages",
                "an extent has at least one page".into(),
            ));
        }
        if self.slice == Nanos::ZERO {
            return Some(("array.cache.slice", "is no time".into()));
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
                _ => return Some(format!("number {} is of a class, or of a volume", i + 1)),
            };
            let before = &self.parts[..i];
            if before
                .iter()
                .any(|p| (&p.class, &p.volume) == (&part.class, &part.volume))
            {
                return Some(format!("{whose} has two of them"));
            }
            if !(0.0..1.0).contains(&part.share) {
                return Some(format!(
                    "{whose} has a share of 0 to 1, and below 1, not {}",
                    part.share
                ));
            }
            if part.share > 0.0 && !self.policy.can_resize() {
                return Some(format!(
                    "{} cannot change its size while it runs: only shares of 0 can be given, as for {whose}",
                    self.policy
                ));
            }
            sum += part.share;
        }
        (sum >= 1.0)
            .then(|| format!("shares add up to {sum}: something has to be left for all others"))
    }

    /// What policies that keep hit ratios of extents count by.
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
