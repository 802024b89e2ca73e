//! Free blocks: those that nothing is left in, and if they are few, by moving all pages together.

use std::collections::VecDeque;

use super::{Block, LazySegmentedLru};
use crate::position::SEGMENTS;

/// Marks slots that a squeeze has already given out.
const MOVED: u32 = 1 << 31;

/// What a squeeze moves pages out of.
struct Old {
    entries: Vec<u32>,
    blocks: Vec<Block>,
    queues: [VecDeque<u32>; SEGMENTS],
}

impl LazySegmentedLru {
    /// Finds free blocks: those without a page, and if they are few, by moving all pages together.
    #[cold]
    #[inline(never)]
    pub(super) fn reclaim(&mut self) {
        self.next = [0; SEGMENTS];
        let (blocks, free) = (&self.blocks, &mut self.free);
        for queue in &mut self.queues {
            queue.retain(|block| {
                let live = blocks[*block as usize].live > 0;
                if !live {
                    free.push(*block);
                }
                live
            });
        }
        if self.free.len() * 4 < self.blocks.len() {
            self.squeeze();
        }
    }

    fn squeeze(&mut self) {
        let old = self.clone_for_squeeze();
        self.free = (0..self.blocks.len() as u32).rev().collect();
        for (segment, queue) in old.queues.iter().enumerate() {
            self.queues[segment].clear();
            self.live[segment] = 0;
            for block in queue {
                let b = old.blocks[*block as usize];
                let base = (*block as usize) << self.shift;
                let slice = std::mem::replace(&mut self.slice, b.slice);
                for at in base + usize::from(b.first)..base + usize::from(b.filled) {
                    let page = old.entries[at];
                    // Pages that were moved already have slots of the new numbering, so those are marked.
                    if self.slot[page as usize] == at as u32 + 1 {
                        self.put(page, segment);
                        self.slot[page as usize] |= MOVED;
                    }
                }
                self.slice = slice;
            }
        }
        for block in self.queues.iter().flatten() {
            let base = (*block as usize) << self.shift;
            let filled = usize::from(self.blocks[*block as usize].filled);
            for page in &self.entries[base..base + filled] {
                self.slot[*page as usize] &= !MOVED;
            }
        }
    }

    fn clone_for_squeeze(&mut self) -> Old {
        Old {
            entries: self.entries.clone(),
            blocks: self.blocks.clone(),
            queues: std::mem::take(&mut self.queues),
        }
    }
}
