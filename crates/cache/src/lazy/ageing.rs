//! Blocks that nobody hits sink.

use super::LazySegmentedLru;
use crate::position::SEGMENTS;
use crate::segmented::AGED_FROM;

impl LazySegmentedLru {
    /// Demotes, at the end of a slice, blocks to which nothing came in it and the one before, as
    /// `SegmentedLru::age_out` does with pages.
    pub(super) fn age_out(&mut self) {
        for cut in 0..SEGMENTS - 1 {
            self.bring(cut, self.target(cut, self.count));
        }
        for from in AGED_FROM..SEGMENTS {
            let mut left = self.live[from].div_ceil(4);
            while let Some(block) = self.queues[from].front().copied() {
                let b = &mut self.blocks[block as usize];
                let live = u32::from(b.live);
                if b.slice + 2 > self.slice || live > left {
                    break;
                }
                left -= live;
                b.segment = 0;
                self.queues[from].pop_front();
                self.queues[0].push_back(block);
                self.live[from] -= live;
                self.live[0] += live;
                (self.next[from], self.next[0]) = (0, 0);
            }
        }
    }
}
