//! Erase blocks and their lists: one list of sealed blocks for each number of valid pages.
//!
//! ```text
//!  free ──▶ open ──▶ sealed, in the list of its valid pages ──▶ collected, erased ──▶ free
//! ```
//!
//! A block moves one list down when one of its pages is overwritten. So the victim with the fewest valid pages is the
//! head of the lowest list that is not empty. New members are inserted at the head, so the last block of a list is the
//! one that has not changed for the longest time.

/// End of a list, or a page without a place.
pub(super) const NIL: u32 = u32::MAX;
const OPEN: u32 = u32::MAX - 1;
const FREE: u32 = u32::MAX - 2;

/// Fields that every write touches: twelve bytes, so the blocks of a large drive fit in a core's cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    /// Next block in the list, or the state of a block that is in no list.
    next: u32,
    previous: u32,
    /// Number of pages with data.
    pub valid: u16,
    /// Pool of the block.
    pub pool: u16,
}

/// Fields that are needed only when a block is opened or collected.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Life {
    /// Number of host writes when the block was opened.
    pub opened: u64,
    /// Number of host writes when one of its pages was last invalidated.
    pub touched: u64,
    /// Number of erases.
    pub erases: u32,
    /// Stream for which the block was opened.
    pub stream: u16,
    /// Position among the pool's members.
    pub member: u32,
}

impl Block {
    pub(super) fn free(pool: u16) -> Self {
        Self {
            next: FREE,
            previous: NIL,
            valid: 0,
            pool,
        }
    }

    #[inline]
    pub(super) fn is_sealed(self) -> bool {
        self.next != OPEN && self.next != FREE
    }

    pub(super) fn is_free(self) -> bool {
        self.next == FREE
    }

    pub(super) fn set_open(&mut self) {
        self.next = OPEN;
    }

    pub(super) fn set_free(&mut self) {
        self.next = FREE;
        self.valid = 0;
    }
}

/// Ends of the lists of one pool.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    ends: Box<[(u32, u32)]>,
    /// No list below this one has a member.
    lowest: usize,
}

impl Buckets {
    /// Creates lists for blocks of up to `pages` valid pages.
    pub(super) fn new(pages: u32) -> Self {
        Self {
            ends: vec![(NIL, NIL); pages as usize + 1].into(),
            lowest: pages as usize,
        }
    }

    /// Inserts a block at the head of the list for its valid pages.
    #[inline]
    pub(super) fn link(&mut self, blocks: &mut [Block], block: u32) {
        let valid = usize::from(blocks[block as usize].valid);
        let ends = &mut self.ends[valid];
        let head = ends.0;
        ends.0 = block;
        if head == NIL {
            ends.1 = block;
        } else {
            blocks[head as usize].previous = block;
        }
        let entry = &mut blocks[block as usize];
        (entry.next, entry.previous) = (head, NIL);
        self.lowest = self.lowest.min(valid);
    }

    /// Removes a sealed block from its list.
    #[inline]
    pub(super) fn unlink(&mut self, blocks: &mut [Block], block: u32) {
        let Block {
            next,
            previous,
            valid,
            ..
        } = blocks[block as usize];
        let ends = &mut self.ends[usize::from(valid)];
        if previous == NIL {
            ends.0 = next;
        } else {
            blocks[previous as usize].next = next;
        }
        if next == NIL {
            ends.1 = previous;
        } else {
            blocks[next as usize].previous = previous;
        }
    }

    /// Returns a sealed block with the fewest valid pages.
    #[inline]
    pub(super) fn fewest(&mut self) -> Option<u32> {
        while self.ends[self.lowest].0 == NIL {
            if self.lowest + 1 == self.ends.len() {
                return None;
            }
            self.lowest += 1;
        }
        Some(self.ends[self.lowest].0)
    }

    /// Returns, for each list, the number of valid pages and the block that has not changed for the longest time.
    pub(super) fn oldest(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let lists = self.ends.iter().enumerate().skip(self.lowest);
        lists.filter(|(_, e)| e.1 != NIL).map(|(v, e)| (v, e.1))
    }

    /// Returns all members of all lists, for checks.
    pub(super) fn members(&self, blocks: &[Block]) -> Vec<(usize, u32)> {
        let mut all = Vec::new();
        for (valid, ends) in self.ends.iter().enumerate() {
            let mut at = ends.0;
            while at != NIL {
                all.push((valid, at));
                at = blocks[at as usize].next;
            }
        }
        all
    }
}
