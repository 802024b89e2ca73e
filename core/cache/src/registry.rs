//! Registry of all policies by name.

use crate::layout::PageLayout;
use crate::policies::arc::Arc;
use crate::policies::clock::Clock;
use crate::policies::fifo::Fifo;
use crate::policies::hr_lru::HrLru;
use crate::policies::lfu::Lfu;
use crate::policies::lirs::Lirs;
use crate::policies::lru::Lru;
use crate::policies::priority_lru::PriorityLru;
use crate::policies::s3_fifo::S3Fifo;
use crate::policies::sieve::Sieve;
use crate::policies::slru::Slru;
use crate::policies::two_q::TwoQ;
use crate::policies::w_tinylfu::WTinyLfu;
use crate::policy::{Counts, Outcome, Policy, replay, replay_each};
use crate::position::Position;
use crate::rates::RatesConfig;
use crate::segmented::SegmentedLru;
use crate::switches::{Ageing, OnHit};

/// Entry of the registry.
#[derive(Debug, Clone, Copy)]
pub struct PolicyEntry {
    /// Name in scenarios and on the command line.
    pub name: &'static str,
    /// Kind.
    pub kind: PolicyKind,
    /// One-line description.
    pub summary: &'static str,
}

/// Options of all policies that have some.
#[derive(Debug, Clone, Default)]
pub struct PolicyOptions {
    /// Mapping of pages to extents, and of extents to volumes.
    pub layout: PageLayout,
    /// Statistics of extents.
    pub rates: RatesConfig,
    /// Demotion of old pages.
    pub ageing: Ageing,
    /// Position of a page after a hit.
    pub on_hit: OnHit,
}

macro_rules! policies {
    ($($kind:ident $name:literal $type:ty, $new:expr, $summary:literal;)*) => {
        /// Replacement policy of a cache.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
            schemars::JsonSchema,
        )]
        pub enum PolicyKind {
            $(#[doc = $summary] #[serde(rename = $name)] $kind,)*
        }

        /// The policies, from the simplest to the most elaborate.
        pub const REGISTRY: &[PolicyEntry] = &[
            $(PolicyEntry { name: $name, kind: PolicyKind::$kind, summary: $summary },)*
        ];

        /// Policy chosen at run time. Each access costs one branch more than with the policy's own type.
        #[derive(Debug, Clone)]
        pub enum AnyPolicy {
            $(#[doc = $summary] $kind($type),)*
        }

        impl AnyPolicy {
            /// Creates an empty cache of `capacity` pages (1 to [`crate::CAPACITY_PAGES_MAX`]) out of `0..universe`.
            pub fn with_options(
                kind: PolicyKind,
                capacity: u32,
                universe: u32,
                options: &PolicyOptions,
            ) -> Self {
                match kind {
                    $(PolicyKind::$kind => {
                        let new: fn(u32, u32, &PolicyOptions) -> $type = $new;
                        Self::$kind(new(capacity, universe, options))
                    })*
                }
            }
        }

        impl Policy for AnyPolicy {
            #[inline]
            fn access(&mut self, page: u32) -> Outcome {
                match self { $(Self::$kind(p) => p.access(page),)* }
            }
            #[inline]
            fn access_at(&mut self, page: u32, position: Position) -> Outcome {
                match self { $(Self::$kind(p) => p.access_at(page, position),)* }
            }
            #[inline]
            fn access_in(&mut self, page: u32, extent: u32) -> Outcome {
                match self { $(Self::$kind(p) => p.access_in(page, extent),)* }
            }
            fn remove(&mut self, page: u32) -> bool {
                match self { $(Self::$kind(p) => p.remove(page),)* }
            }
            fn contains(&self, page: u32) -> bool {
                match self { $(Self::$kind(p) => p.contains(page),)* }
            }
            fn len(&self) -> u32 {
                match self { $(Self::$kind(p) => p.len(),)* }
            }
            fn capacity(&self) -> u32 {
                match self { $(Self::$kind(p) => p.capacity(),)* }
            }
            fn memory_bytes(&self) -> usize {
                match self { $(Self::$kind(p) => p.memory_bytes(),)* }
            }
            fn slice_ended(&mut self) {
                match self { $(Self::$kind(p) => p.slice_ended(),)* }
            }
            fn hour_ended(&mut self) {
                match self { $(Self::$kind(p) => p.hour_ended(),)* }
            }
            #[inline]
            fn warm(&self, page: u32) -> u32 {
                match self { $(Self::$kind(p) => p.warm(page),)* }
            }
            #[inline]
            fn warm_victims(&self) -> u32 {
                match self { $(Self::$kind(p) => p.warm_victims(),)* }
            }
        }

        impl AnyPolicy {
            /// Replays references with the policy's own type, which is selected once.
            pub fn replay(&mut self, references: &[u32]) -> Counts {
                match self { $(Self::$kind(p) => replay(p, references),)* }
            }

            /// Replays references like [`Self::replay`]; `each` receives the index and the result of each reference.
            pub fn replay_each(&mut self, references: &[u32], each: impl FnMut(usize, Outcome)) {
                match self { $(Self::$kind(p) => replay_each(p, references, each),)* }
            }
        }
    };
}

policies! {
    Fifo "fifo" Fifo, |c, u, _| Fifo::new(c, u), "evicts the oldest page";
    Clock "clock" Clock, |c, u, _| Clock::new(c, u), "FIFO with a second chance for pages with hits";
    Lru "lru" Lru, |c, u, _| Lru::new(c, u), "evicts the least recently used page";
    Slru "slru" Slru, |c, u, _| Slru::new(c, u), "LRU in four segments; each hit moves a page one segment up";
    TwoQ "two-q" TwoQ, |c, u, _| TwoQ::new(c, u), "a short FIFO queue; pages that return after it enter the main queue";
    Lfu "lfu" Lfu, |c, u, _| Lfu::new(c, u), "evicts the least frequently used page, with ageing";
    LfuPlain "lfu-plain" Lfu, |c, u, _| Lfu::without_ageing(c, u), "evicts the least frequently used page, without ageing";
    Arc "arc" Arc, |c, u, _| Arc::new(c, u), "balances recency and frequency by hits on evicted pages";
    Lirs "lirs" Lirs, |c, u, _| Lirs::new(c, u), "keeps pages with a short reuse distance";
    S3Fifo "s3-fifo" S3Fifo, |c, u, _| S3Fifo::new(c, u), "a small FIFO queue before a large one with second chances for pages with hits";
    Sieve "sieve" Sieve, |c, u, _| Sieve::new(c, u), "a moving hand evicts pages without hits; pages do not move";
    WTinyLfu "w-tinylfu" WTinyLfu, |c, u, _| WTinyLfu::new(c, u), "LRU that admits a page only if it is requested more often than the victim";
    HrLru "hr-lru" HrLru, |c, u, o| HrLru::new(
        SegmentedLru::new(c, u).ageing(o.ageing).on_hit(o.on_hit), u, o.layout.clone(), o.rates,
    ), "LRU; the start position of a page depends on the hit ratio of its extent";
    PriorityLru "priority-lru" PriorityLru, |c, u, o| PriorityLru::new(
        SegmentedLru::new(c, u).ageing(o.ageing).on_hit(o.on_hit), u, o.layout.clone(), o.rates,
    ), "HR-LRU with priorities for volumes that exceed their response times";
}

impl AnyPolicy {
    /// Passes response times to a policy with priorities: for each volume, the response time since the start of the
    /// hour divided by the desired one; `None` for volumes without I/O in the slice. Call it before
    /// [`Policy::slice_ended`].
    pub fn prioritize(&mut self, response_over_target: &[Option<f64>]) {
        if let Self::PriorityLru(p) = self {
            p.priorities().slice_ended(response_over_target);
        }
    }

    /// Returns the priority of a volume in percent; `None` under policies without priorities.
    pub fn priority(&self, volume: u32) -> Option<i32> {
        match self {
            Self::PriorityLru(p) => Some(p.priority(volume)),
            _ => None,
        }
    }

    /// Replaces the layout of a policy with extents. Statistics of existing extents are kept.
    pub fn relayout(&mut self, layout: &PageLayout) {
        match self {
            Self::HrLru(p) => p.relayout(layout.clone()),
            Self::PriorityLru(p) => p.relayout(layout.clone()),
            _ => {}
        }
    }

    /// Clears the statistics of a volume and of extents, whose numbers are reused for others.
    pub fn forget(&mut self, volume: u32, extents: std::ops::Range<usize>) {
        match self {
            Self::HrLru(p) => p.forget(extents),
            Self::PriorityLru(p) => p.forget(volume, extents),
            _ => {}
        }
    }

    /// Changes the capacity, at least one page. Pages that no longer fit are evicted in the usual order and passed to
    /// `gone`. Returns false if the policy cannot be resized ([`PolicyKind::can_resize`]).
    pub fn resize(&mut self, capacity: u32, gone: &mut dyn FnMut(u32)) -> bool {
        match self {
            Self::Lru(p) => p.resize(capacity, gone),
            _ => return false,
        }
        true
    }

    /// Creates a policy with default options.
    pub fn new(kind: PolicyKind, capacity: u32, universe: u32) -> Self {
        Self::with_options(kind, capacity, universe, &PolicyOptions::default())
    }
}

impl PolicyKind {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns its entry in the registry.
    pub fn entry(self) -> &'static PolicyEntry {
        let entry = REGISTRY.iter().find(|e| e.kind == self);
        entry.expect("every kind has a line")
    }

    /// Returns true if the policy can change its capacity at run time ([`AnyPolicy::resize`]).
    pub fn can_resize(self) -> bool {
        self == Self::Lru
    }

    /// Returns true if the policy uses the extents of pages.
    pub fn looks_at_extents(self) -> bool {
        matches!(self, Self::HrLru | Self::PriorityLru)
    }

    /// Returns true if the policy remembers evicted pages by number. Page numbers must then not be reused.
    pub fn remembers(self) -> bool {
        matches!(
            self,
            Self::TwoQ | Self::Arc | Self::Lirs | Self::S3Fifo | Self::WTinyLfu
        )
    }

    /// Returns true if a larger cache always has all pages of a smaller one, so one pass counts all sizes.
    pub fn is_stack(self) -> bool {
        self == Self::Lru
    }
}

impl std::fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let entry = REGISTRY.iter().find(|e| e.name == name);
        entry.map(|e| e.kind).ok_or_else(|| UnknownPolicy {
            name: name.to_string(),
        })
    }
}

/// Unknown name of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown cache policy \"{name}\"; known: {}", names())]
pub struct UnknownPolicy {
    /// The name.
    pub name: String,
}

fn names() -> String {
    let names: Vec<&str> = REGISTRY.iter().map(|e| e.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_names_parse_and_serialize_unchanged() {
        for entry in REGISTRY {
            assert_eq!(entry.name.parse(), Ok(entry.kind));
            assert_eq!(
                serde_json::to_string(&entry.kind).unwrap(),
                format!("\"{}\"", entry.name)
            );
        }
        let error = "lfru".parse::<PolicyKind>().unwrap_err();
        assert!(error.to_string().contains("known: fifo, clock, lru"));
    }
}
