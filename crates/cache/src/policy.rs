//! What every policy answers to, and the loop that replays references at full speed.

/// What an access found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The page was cached.
    Hit,
    /// It was not, and is now.
    Miss {
        /// What had to go for it. Never the page itself.
        evicted: Option<u32>,
    },
}

impl Outcome {
    /// Whether the page was cached.
    #[inline]
    pub fn is_hit(self) -> bool {
        matches!(self, Self::Hit)
    }
}

/// Pages a cache may have at most: 256 GiB of 4 KiB pages, 4 TiB of 64 KiB pages, but for 64 pages. Protects the 27-bit queue
/// positions, of which a queue takes two a page, rounded up.
pub const CAPACITY_PAGES_MAX: u32 = (1 << 26) - 64;

/// A policy over pages numbered `0..universe`. A page that is missed is inserted, always.
///
/// # Panics
/// Every method that takes a page may panic if it is outside the universe that the policy was made for; whoever
/// numbers the pages checks them.
pub trait Policy {
    /// Reads or writes a page through the cache.
    fn access(&mut self, page: u32) -> Outcome;

    /// The same, with the place in the queue where a missed page begins. Policies without places ignore it.
    #[inline]
    fn access_at(&mut self, page: u32, position: crate::Position) -> Outcome {
        let _ = position;
        self.access(page)
    }

    /// The same, of a page whose number is another page's when it is not cached any more ([`crate::ResidentPages`]), with the extent that it is
    /// of now. Policies that do not look at extents ignore it; others do not look at their layout for it.
    #[inline]
    fn access_in(&mut self, page: u32, extent: u32) -> Outcome {
        let _ = extent;
        self.access(page)
    }

    /// Whether a page that is hit goes to the place that [`Self::access_at`] is given too.
    #[inline]
    fn places_hits(&self) -> bool {
        false
    }

    /// Drops a page; whether it was cached. What the policy remembers of pages that are not cached stays.
    fn remove(&mut self, page: u32) -> bool;

    /// Whether a page is cached.
    fn contains(&self, page: u32) -> bool;

    /// Pages that are cached.
    fn len(&self) -> u32;

    /// Whether none is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages that fit.
    fn capacity(&self) -> u32;

    /// Bytes of all tables, as allocated: those by page number, those by place in a queue, and what is remembered of
    /// pages that were evicted.
    fn memory_bytes(&self) -> usize;

    /// A slice of time (5 minutes) is over. Only policies that keep rates care.
    fn slice_ended(&mut self) {}

    /// A unit of time (an hour) is over.
    fn hour_ended(&mut self) {}

    /// Loads the state of a page that is about to be accessed, so that it is near when it is needed. The value means
    /// nothing.
    #[inline]
    fn warm(&self, page: u32) -> u32 {
        let _ = page;
        0
    }

    /// Loads the state of the pages that are about to be evicted.
    #[inline]
    fn warm_victims(&self) -> u32 {
        0
    }
}

/// References whose state is loaded together. Enough to have as many cache misses under way as a core can.
pub const BATCH: usize = 32;

/// Hits and misses of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// Accesses that found their page.
    pub hits: u64,
    /// Accesses that did not.
    pub misses: u64,
}

impl Counts {
    /// Counts one access.
    #[inline]
    pub fn add(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.misses += u64::from(!hit);
    }

    /// Accesses.
    pub fn accesses(self) -> u64 {
        self.hits + self.misses
    }

    /// Share of hits, 0..=1; none without accesses.
    pub fn hit_ratio(self) -> Option<f64> {
        (self.accesses() > 0).then(|| self.hits as f64 / self.accesses() as f64)
    }
}

/// Replays references, batch by batch; `each` is told the number of each reference and what it found.
///
/// While a batch is worked off, the state of the next one is on its way from memory.
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
            // The loads must happen although nobody wants their values.
            std::hint::black_box(sum);
        }
        for page in chunk {
            let outcome = policy.access(*page);
            each(at, outcome);
            at += 1;
        }
    }
}

/// Replays references and counts.
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
/// If a policy is asked for that has no pages or more than [`CAPACITY_PAGES_MAX`].
pub(crate) fn check_capacity(capacity: u32) {
    assert!(
        (1..=CAPACITY_PAGES_MAX).contains(&capacity),
        "a cache must have 1 to {CAPACITY_PAGES_MAX} pages, not {capacity}"
    );
}
