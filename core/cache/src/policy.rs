//! Interface of all policies, and the loop that replays references at full speed.

/// Result of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The page was cached.
    Hit,
    /// The page was not cached; it is now.
    Miss {
        /// Page that was evicted to make room. Never the page itself.
        evicted: Option<u32>,
    },
}

impl Outcome {
    /// Returns true if the page was cached.
    #[inline]
    pub fn is_hit(self) -> bool {
        matches!(self, Self::Hit)
    }
}

/// Maximum number of pages in a cache: 256 GiB of 4 KiB pages, 4 TiB of 64 KiB pages, minus 64 pages. The limit comes
/// from the 27-bit queue positions; a queue takes two per page, rounded up.
pub const CAPACITY_PAGES_MAX: u32 = (1 << 26) - 64;

/// Replacement policy over pages numbered `0..universe`. Every missed page is inserted.
///
/// # Panics
/// Every method with a page argument may panic if the page is outside the universe of the policy. The caller that
/// numbers the pages must check them.
pub trait Policy {
    /// Reads or writes a page through the cache.
    fn access(&mut self, page: u32) -> Outcome;

    /// Like [`Self::access`], with the position in the queue where a missed page is inserted. Policies without
    /// positions ignore it.
    #[inline]
    fn access_at(&mut self, page: u32, position: crate::Position) -> Outcome {
        let _ = position;
        self.access(page)
    }

    /// Like [`Self::access`], for page numbers that are reused after eviction ([`crate::ResidentPages`]). `extent` is
    /// the present extent of the page. Policies with extents use it instead of their layout; others ignore it.
    #[inline]
    fn access_in(&mut self, page: u32, extent: u32) -> Outcome {
        let _ = extent;
        self.access(page)
    }

    /// Returns true if a hit page also moves to the position given to [`Self::access_at`].
    #[inline]
    fn places_hits(&self) -> bool {
        false
    }

    /// Drops a page; returns true if it was cached. The policy keeps its memory of pages that are not cached.
    fn remove(&mut self, page: u32) -> bool;

    /// Returns true if a page is cached.
    fn contains(&self, page: u32) -> bool;

    /// Returns the number of cached pages.
    fn len(&self) -> u32;

    /// Returns true if no page is cached.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity in pages.
    fn capacity(&self) -> u32;

    /// Returns the allocated bytes of all tables: by page number, by position in a queue, and for the memory of evicted
    /// pages.
    fn memory_bytes(&self) -> usize;

    /// Ends a slice of time (5 minutes). Only policies with rates use it.
    fn slice_ended(&mut self) {}

    /// Ends an hour.
    fn hour_ended(&mut self) {}

    /// Loads the state of a page before its access into the processor's cache. The value has no meaning.
    #[inline]
    fn warm(&self, page: u32) -> u32 {
        let _ = page;
        0
    }

    /// Loads the state of the next pages to be evicted.
    #[inline]
    fn warm_victims(&self) -> u32 {
        0
    }
}

/// Number of references whose state is loaded together: enough for the maximum number of concurrent cache misses of a
/// core.
pub const BATCH: usize = 32;

/// Hits and misses of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// Number of hits.
    pub hits: u64,
    /// Number of misses.
    pub misses: u64,
}

impl Counts {
    /// Counts one access.
    #[inline]
    pub fn add(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.misses += u64::from(!hit);
    }

    /// Returns the number of accesses.
    pub fn accesses(self) -> u64 {
        self.hits + self.misses
    }

    /// Returns the hit ratio, 0..=1; `None` without accesses.
    pub fn hit_ratio(self) -> Option<f64> {
        (self.accesses() > 0).then(|| self.hits as f64 / self.accesses() as f64)
    }
}

/// Replays references in batches. `each` receives the index and the result of each reference.
///
/// While a batch is processed, the state of the next one is loaded from memory.
#[inline]
pub fn replay_each<P: Policy>(
    policy: &mut P,
    references: &[u32],
    mut each: impl FnMut(usize, Outcome),
) {
    let mut chunks = references.chunks(BATCH).peekable();
    let mut at = 0;
    while let Some(chunk) = chunks.next() {
        if let Some(next) = chunks.peek() {
            let mut sum = policy.warm_victims();
            for page in *next {
                sum ^= policy.warm(*page);
            }
            // Prevents the compiler from removing the loads.
            std::hint::black_box(sum);
        }
        for page in chunk {
            let outcome = policy.access(*page);
            each(at, outcome);
            at += 1;
        }
    }
}

/// Replays references and counts the results.
pub fn replay<P: Policy>(policy: &mut P, references: &[u32]) -> Counts {
    let mut hits = 0u64;
    replay_each(policy, references, |_, outcome| {
        hits += u64::from(outcome.is_hit());
    });
    Counts {
        hits,
        misses: references.len() as u64 - hits,
    }
}

/// # Panics
/// If the capacity is zero or above [`CAPACITY_PAGES_MAX`].
pub(crate) fn check_capacity(capacity: u32) {
    assert!(
        (1..=CAPACITY_PAGES_MAX).contains(&capacity),
        "a cache must have 1 to {CAPACITY_PAGES_MAX} pages, not {capacity}"
    );
}
