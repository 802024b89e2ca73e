//! Map from page numbers to frames: open addressing, one word per place.
//!
//! ```text
//!   word = tag of the page (6 bits) │ frame + 1 (26 bits)          0: empty
//! ```
//!
//! The search starts at a place computed from the page number and ends at the first empty place, so entries behind a
//! removed one move up. The tag avoids most comparisons with pages of other frames.

/// Number of places per frame, in quarters: 1.25.
const PLACES_QUARTERS: u64 = 5;
const FRAME_BITS: u32 = 26;
const FRAME: u32 = (1 << FRAME_BITS) - 1;

#[derive(Debug, Clone)]
pub(super) struct Index {
    places: Vec<u32>,
}

impl Index {
    /// Creates an index for frames `0..frames`, each with at most one page.
    pub(super) fn new(frames: u32) -> Self {
        assert!(frames < FRAME, "frames are counted in {FRAME_BITS} bits");
        let places = u64::from(frames) * PLACES_QUARTERS / 4 + 8;
        Self {
            places: crate::huge::zeroes(places as usize),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }

    /// Returns the first place of the search for a page, and its tag.
    #[inline]
    fn start(&self, page: u32) -> (usize, u32) {
        let hash = u64::from(page).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let hash = hash ^ hash >> 29;
        let at = ((hash >> 32) * self.places.len() as u64) >> 32;
        (at as usize, (hash as u32) & !FRAME)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.places.len() {
            0
        } else {
            at + 1
        }
    }

    /// Returns the place of a page.
    #[inline]
    fn place(&self, page: u32, page_of: &[u32]) -> Option<usize> {
        let (mut at, tag) = self.start(page);
        loop {
            let word = self.places[at];
            if word == 0 {
                return None;
            }
            if word & !FRAME == tag && page_of[((word & FRAME) - 1) as usize] == page {
                return Some(at);
            }
            at = self.next(at);
        }
    }

    #[inline]
    pub(super) fn find(&self, page: u32, page_of: &[u32]) -> Option<u32> {
        let at = self.place(page, page_of)?;
        Some((self.places[at] & FRAME) - 1)
    }

    /// Adds a page that is not in the index.
    pub(super) fn insert(&mut self, page: u32, frame: u32, page_of: &[u32]) {
        debug_assert!(self.place(page, page_of).is_none());
        let (mut at, tag) = self.start(page);
        while self.places[at] != 0 {
            at = self.next(at);
        }
        self.places[at] = tag | (frame + 1);
    }

    /// Removes a page that is in the index.
    pub(super) fn remove(&mut self, page: u32, page_of: &[u32]) {
        let mut hole = self.place(page, page_of).expect("it is there");
        let mut at = hole;
        loop {
            at = self.next(at);
            let word = self.places[at];
            if word == 0 {
                break;
            }
            let (start, _) = self.start(page_of[((word & FRAME) - 1) as usize]);
            // The entry may move up unless its search starts between the hole and itself.
            let stays = match hole < at {
                true => hole < start && start <= at,
                false => hole < start || start <= at,
            };
            if !stays {
                self.places[hole] = word;
                hole = at;
            }
        }
        self.places[hole] = 0;
    }
}
