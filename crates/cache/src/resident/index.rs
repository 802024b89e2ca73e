//! From page numbers to frames: open addressing, a word for each place.
//!
//! ```text
//!   word = tag of the page (6 bits) │ frame + 1 (26 bits)          0: empty
//! ```
//!
//! Where a page begins to be looked for follows from its number; the first empty place ends the search, so what is behind a removed one moves
//! up. The tag spares most looks at the pages of other frames.

/// Places for each frame, in quarters: 1.25.
const PLACES_QUARTERS: u64 = 5;
const FRAME_BITS: u32 = 26;
const FRAME: u32 = (1 << FRAME_BITS) - 1;

#[derive(Debug, Clone)]
pub(super) struct Index {
    places: Vec<u32>,
}

impl Index {
    /// For frames `0..frames`, each of which has at most one page.
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

    /// Where a page begins to be looked for, and its tag.
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

    /// Where a page is.
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

    /// Adds a page that is not there.
    pub(super) fn insert(&mut self, page: u32, frame: u32, page_of: &[u32]) {
        debug_assert!(self.place(page, page_of).is_none());
        let (mut at, tag) = self.start(page);
        while self.places[at] != 0 {
            at = self.next(at);
        }
        self.places[at] = tag | (frame + 1);
    }

    /// Takes a page out that is there.
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
            // It may move up unless it begins between the hole and itself.
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
