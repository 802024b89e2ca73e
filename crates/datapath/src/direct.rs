//! Direct I/O, past the page cache: what does not fit a device's blocks, and in which order what changes it is done.
//!
//! A device takes whole blocks only, from memory that begins at a multiple of its own. What a guest asks for is done in [`Step`]s:
//!
//! ```text
//!  device   │  block  │  block  │  block  │  block  │        a read:   through a buffer, of which a part is the guest's
//!  asked       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                  a write:  the blocks are read, changed in a buffer, and written
//!  steps    └─through─┘└──────as it is──────┘└─through─┘            (all of a short one at once)
//! ```
//!
//! A write that reads first would bring back what others wrote to the rest of its blocks meanwhile. So whatever changes those blocks waits
//! for what came before it ([`Order`]): what a guest was answered is never undone by a neighbour's write.
//!
//! Sans-io: workers use it on files and block devices, the crash tests on simulated disks.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of a buffer that a step goes through, at most.
pub const THROUGH_BYTES: u64 = 256 << 10;

/// A write that reads first is done at once up to this length, blocks and all; of a longer one only the ends go through a buffer.
pub const MERGED_AT_ONCE: u64 = 64 << 10;

/// What a device demands of direct I/O: both are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Memory begins at a multiple of this.
    pub memory: u32,
    /// Places and lengths are multiples of this: a block.
    pub block: u32,
}

/// The next part of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many bytes as they are.
    Plain(u64),
    /// By way of a buffer.
    Through(Through),
}

/// A part of an I/O that goes through a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Through {
    /// Where the buffer's bytes are on the device: at a block.
    pub at: u64,
    /// How many: whole blocks.
    pub length: u64,
    /// Bytes before the asked ones.
    pub skip: u64,
    /// Asked ones.
    pub bytes: u64,
}

impl Through {
    /// Whether a write has to read first: not all of the buffer is its own.
    pub fn merges(&self) -> bool {
        self.bytes < self.length
    }

    /// The asked bytes, in the buffer.
    pub fn own(&self) -> Range<usize> {
        self.skip as usize..(self.skip + self.bytes) as usize
    }
}

impl Alignment {
    /// The blocks of a range, whole.
    pub fn blocks(&self, at: u64, length: u64) -> Range<u64> {
        let block = u64::from(self.block);
        at - at % block..(at + length).next_multiple_of(block)
    }

    /// Whether a range is of whole blocks.
    pub fn is_whole(&self, at: u64, length: u64) -> bool {
        (at | length).is_multiple_of(u64::from(self.block))
    }

    /// The next part of an I/O of which `left` bytes, at least one, are left, from `at` on the device, and from `from` in memory that begins at a
    /// multiple of all alignments.
    pub fn step(&self, writes: bool, at: u64, left: u64, from: usize) -> Step {
        let block = u64::from(self.block);
        let fits = (from as u64).is_multiple_of(self.memory.into());
        let through = |bytes: u64| {
            let blocks = self.blocks(at, bytes);
            Step::Through(Through {
                at: blocks.start,
                length: blocks.end - blocks.start,
                skip: at - blocks.start,
                bytes,
            })
        };
        if self.is_whole(at, left) {
            return match fits {
                true => Step::Plain(left),
                false => through(left.min(THROUGH_BYTES)),
            };
        }
        let all = self.blocks(at, left);
        let at_once = if writes {
            MERGED_AT_ONCE
        } else {
            THROUGH_BYTES
        };
        if all.end - all.start <= at_once {
            return through(left);
        }
        match (at % block, left - left % block) {
            (0, whole) if fits => Step::Plain(whole),
            (0, whole) => through(whole.min(THROUGH_BYTES)),
            // At the first whole block its memory may fit.
            (into, _) => through(block - into),
        }
    }
}

/// Who changes what of the devices, in the order in which they came: I/Os by their numbers, which are small and used again.
#[derive(Debug, Default)]
pub struct Order {
    /// By number.
    live: Vec<Option<Change>>,
    /// Of these, how many read first.
    merging: usize,
    /// Numbers of those that wait, the first that came first.
    waiting: VecDeque<u32>,
}

/// An I/O that changes blocks of a device.
#[derive(Debug, Clone)]
struct Change {
    device: u16,
    blocks: Range<u64>,
    merges: bool,
    /// Those that came before it and have to be over first.
    before: u32,
}

impl Change {
    /// Whether the later one of two has to wait.
    fn conflicts(&self, other: &Self) -> bool {
        (self.merges || other.merges)
            && self.device == other.device
            && self.blocks.start < other.blocks.end
            && other.blocks.start < self.blocks.end
    }
}

impl Order {
    /// An I/O that changes these blocks, whole ones, and reads some of them first or not. Whether it may begin; else [`Order::over`] says when.
    pub fn begin(&mut self, io: u32, device: u16, blocks: Range<u64>, merges: bool) -> bool {
        let mut change = Change {
            device,
            blocks,
            merges,
            before: 0,
        };
        // Nearly always nothing merges, and nobody needs to look.
        if merges || self.merging > 0 {
            let others = self.live.iter().flatten();
            change.before = others.filter(|o| o.conflicts(&change)).count() as u32;
        }
        let may_begin = change.before == 0;
        if !may_begin {
            self.waiting.push_back(io);
        }
        self.merging += usize::from(merges);
        let index = io as usize;
        if self.live.len() <= index {
            self.live.resize(index + 1, None);
        }
        let before = self.live[index].replace(change);
        debug_assert!(before.is_none(), "a number is one I/O's at a time");
        may_begin
    }

    /// An I/O that has begun is over; those that may begin now, in their order. Nothing if it was never told of.
    pub fn over(&mut self, io: u32) -> Vec<u32> {
        let change = self.live.get_mut(io as usize).and_then(Option::take);
        let Some(change) = change else {
            return vec![];
        };
        assert!(change.before == 0, "what waits is not over");
        self.merging -= usize::from(change.merges);
        // Whoever waits for it came later: else it would have waited itself.
        let mut may_begin = vec![];
        let live = &mut self.live;
        self.waiting.retain(|waits| {
            let other = live[*waits as usize].as_mut().expect("it waits");
            if other.conflicts(&change) {
                other.before -= 1;
            }
            if other.before == 0 {
                may_begin.push(*waits);
            }
            other.before > 0
        });
        may_begin
    }
}

#[cfg(test)]
mod tests;
