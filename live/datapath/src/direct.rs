//! Direct I/O, past the page cache: handling of unaligned parts, and order of changes.
//!
//! A device accepts only whole blocks, in memory that begins at a multiple of its memory alignment. A guest's request
//! is executed in [`Step`]s:
//!
//! ```text
//!  device   │  block  │  block  │  block  │  block  │        a read:   through a buffer, of which a part is the guest's
//!  asked       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                  a write:  the blocks are read, changed in a buffer, and written
//!  steps    └─through─┘└──────as it is──────┘└─through─┘            (all of a short one at once)
//! ```
//!
//! A write that reads first could restore older data of the other bytes of its blocks. So every change of such blocks
//! waits for the changes before it ([`ChangeQueue`]): no acknowledged write is undone by a write to neighbouring
//! bytes. The read data is written only to the opening of the device from which it was read.
//!
//! Sans-io: workers use it on files and block devices, the crash tests on simulated disks.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use crate::io::BUF_ALIGNMENT;

/// Largest buffer of a step, in bytes.
pub const THROUGH_BYTES: u64 = 256 << 10;

/// Limit for a write that reads first: up to this length, its blocks take one step. Of a longer write only the ends
/// go through a buffer.
pub const MERGED_AT_ONCE: u64 = 64 << 10;

/// Alignment that a device demands for direct I/O; both values are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of memory.
    pub memory: u32,
    /// Alignment of offsets and lengths: the block size.
    pub block: u32,
}

/// The next part of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Transfer of this many bytes without a buffer.
    Plain(u64),
    /// Transfer through a buffer.
    Through(BufferedPart),
}

/// Part of an I/O that goes through a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferedPart {
    /// Offset of the buffer on the device: the start of a block.
    pub at: u64,
    /// Length of the buffer: whole blocks.
    pub length: u64,
    /// Bytes of the buffer before the requested ones.
    pub skip: u64,
    /// Requested bytes.
    pub bytes: u64,
}

impl BufferedPart {
    /// Returns true if a write must read first, because it does not cover the whole buffer.
    pub fn merges(&self) -> bool {
        self.bytes < self.length
    }

    /// Range of the requested bytes in the buffer.
    pub fn own(&self) -> Range<usize> {
        self.skip as usize..(self.skip + self.bytes) as usize
    }
}

impl Alignment {
    /// Extends a range to whole blocks.
    pub fn blocks(&self, at: u64, length: u64) -> Range<u64> {
        let block = u64::from(self.block);
        at - at % block..(at + length).next_multiple_of(block)
    }

    /// Returns the blocks that a direct change of a range affects.
    pub fn changes(&self, at: u64, length: u64) -> Changes {
        let block = u64::from(self.block);
        let blocks = self.blocks(at, length);
        let first = if blocks.start < at { block } else { 0 };
        let last = if at + length < blocks.end { block } else { 0 };
        Changes {
            edges: [
                blocks.start..blocks.start + first,
                blocks.end - last..blocks.end,
            ],
            blocks,
        }
    }

    /// Returns true if a range consists of whole blocks.
    pub fn is_whole(&self, at: u64, length: u64) -> bool {
        (at | length).is_multiple_of(u64::from(self.block))
    }

    /// Returns the next part of an I/O with `left` remaining bytes, at least one. They begin at `at` on the device
    /// and at `from` in memory. The memory's start is a multiple of all alignments.
    pub fn step(&self, writes: bool, at: u64, left: u64, from: usize) -> Step {
        let block = u64::from(self.block);
        let fits = (from as u64).is_multiple_of(self.memory.into());
        let through = |bytes: u64| {
            let blocks = self.blocks(at, bytes);
            Step::Through(BufferedPart {
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
            // The memory may be aligned at the first whole block.
            (into, _) => through(block - into),
        }
    }
}

/// Changes of devices in order of arrival. I/Os are identified by numbers, which are small and reused.
#[derive(Debug, Default)]
pub struct ChangeQueue {
    /// Changes by the number of their I/O.
    live: Vec<Option<Change>>,
    /// Numbers by device and slot, in order of arrival. The cost of a lookup depends only on the I/Os in flight at
    /// that slot.
    slots: BTreeMap<(u16, u64), Vec<u32>>,
}

/// Blocks that an I/O changes.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Range of whole blocks.
    blocks: Range<u64>,
    /// Blocks at its ends that the I/O covers partly and reads first. Empty if there are none.
    edges: [Range<u64>; 2],
}

impl Changes {
    /// Returns the changes of an I/O through the page cache: it reads nothing first and never waits for another one.
    /// The blocks are as large as the largest that a device may demand.
    pub fn cached(at: u64, length: u64) -> Self {
        let block = u64::from(BUF_ALIGNMENT);
        Self {
            blocks: at - at % block..(at + length).next_multiple_of(block),
            edges: [0..0, 0..0],
        }
    }
}

/// I/O that changes blocks.
#[derive(Debug, Clone)]
struct Change {
    device: u16,
    /// Slots that it touches. Parts of a request in consecutive slots are one I/O.
    slots: RangeInclusive<u64>,
    changes: Changes,
    /// Number of earlier I/Os that must complete first.
    before: u32,
}

impl Change {
    /// Returns true if the later of two I/Os must wait, because one of them could restore data that the other one
    /// overwrote in the same block.
    fn conflicts(&self, other: &Self) -> bool {
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start.max(b.start) < a.end.min(b.end);
        let over = |a: &Changes, b: &Changes| a.edges.iter().any(|edge| meet(edge, &b.blocks));
        over(&self.changes, &other.changes) || over(&other.changes, &self.changes)
    }

    fn places(&self) -> impl Iterator<Item = (u16, u64)> + use<> {
        let device = self.device;
        self.slots.clone().map(move |slot| (device, slot))
    }
}

impl ChangeQueue {
    /// Registers an I/O that changes some slots of a device, with its [`Alignment::changes`]. Returns true if it may
    /// begin now. Otherwise a later [`ChangeQueue::over`] returns it.
    pub fn begin(
        &mut self,
        io: u32,
        device: u16,
        slots: RangeInclusive<u64>,
        changes: Changes,
    ) -> bool {
        let mut change = Change {
            device,
            slots,
            changes,
            before: 0,
        };
        let mut earlier = vec![];
        for place in change.places() {
            let others = self.slots.entry(place).or_default();
            let live = |io: &u32| self.live[*io as usize].as_ref().expect("it is listed");
            earlier.extend(others.iter().filter(|other| live(other).conflicts(&change)));
            others.push(io);
        }
        change.before = once(&mut earlier).len() as u32;
        let may_begin = change.before == 0;
        let index = io as usize;
        if self.live.len() <= index {
            self.live.resize(index + 1, None);
        }
        let before = self.live[index].replace(change);
        debug_assert!(before.is_none(), "a number is one I/O's at a time");
        may_begin
    }

    /// Completes an I/O that had begun. Returns the I/Os that may begin now; none if the I/O was never registered.
    pub fn over(&mut self, io: u32) -> Vec<u32> {
        let change = self.live.get_mut(io as usize).and_then(Option::take);
        let Some(change) = change else {
            return vec![];
        };
        assert!(change.before == 0, "what waits is not over");
        let mut waiting = vec![];
        for place in change.places() {
            let others = self.slots.get_mut(&place).expect("it is listed");
            others.retain(|other| *other != io);
            // Waiting I/Os arrived later; otherwise the completed one would have waited.
            waiting.extend(others.iter().filter(|other| {
                let other = self.live[**other as usize].as_ref();
                other.is_some_and(|o| o.before > 0 && o.conflicts(&change))
            }));
            if others.is_empty() {
                self.slots.remove(&place);
            }
        }
        once(&mut waiting);
        waiting.retain(|waits| {
            let other = self.live[*waits as usize].as_mut().expect("it waits");
            other.before -= 1;
            other.before == 0
        });
        waiting
    }

    /// Drops the waiting I/Os of a device that is reopened or no longer used, and returns them: they must not begin.
    /// I/Os that have begun stay, because their effect is still unknown.
    pub fn give_up(&mut self, device: u16) -> Vec<u32> {
        let mut given_up = vec![];
        let places = (device, 0)..=(device, u64::MAX);
        for (_, ios) in self.slots.range_mut(places) {
            let waits = |io: &u32| {
                let change = self.live[*io as usize].as_ref();
                change.is_none_or(|change| change.before > 0)
            };
            given_up.extend(ios.extract_if(.., |io| waits(io)));
        }
        for io in &*once(&mut given_up) {
            self.live[*io as usize] = None;
        }
        given_up
    }
}

/// Sorts numbers and removes duplicates.
fn once(numbers: &mut Vec<u32>) -> &mut Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests;
