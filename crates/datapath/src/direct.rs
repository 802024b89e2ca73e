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
//! for what came before it ([`ChangeQueue`]): what a guest was answered is never undone by a neighbour's write. What is read is only written to the
//! opening of the device that it was read from.
//!
//! Sans-io: workers use it on files and block devices, the crash tests on simulated disks.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use crate::io::BUF_ALIGNMENT;

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

    /// What a change of a range changes, directly.
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
pub struct ChangeQueue {
    /// By number.
    live: Vec<Option<Change>>,
    /// Numbers by device and slot, in the order in which they came: looking at one slot costs what is under way there.
    slots: BTreeMap<(u16, u64), Vec<u32>>,
}

/// What an I/O changes.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Whole blocks.
    blocks: Range<u64>,
    /// Those at its ends that it covers in part, and reads first; empty ones are none.
    edges: [Range<u64>; 2],
}

impl Changes {
    /// What a change of a range through the page cache changes: it reads nothing first, and none waits for another one. In blocks as large as any
    /// device demands.
    pub fn cached(at: u64, length: u64) -> Self {
        let block = u64::from(BUF_ALIGNMENT);
        Self {
            blocks: at - at % block..(at + length).next_multiple_of(block),
            edges: [0..0, 0..0],
        }
    }
}

/// An I/O that changes blocks.
#[derive(Debug, Clone)]
struct Change {
    device: u16,
    /// Slots that it touches: parts of a request in slots that follow one another are one I/O.
    slots: RangeInclusive<u64>,
    changes: Changes,
    /// Those that came before it and have to be over first.
    before: u32,
}

impl Change {
    /// Whether the later one of two has to wait: one of them could bring back what the other one wrote beside it.
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
    /// An I/O that changes something in some slots of a device, as [`Alignment::changes`] has it. Whether it may begin; else [`Order::over`]
    /// says when.
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

    /// An I/O that has begun is over; those that may begin now. Nothing if it was never told of.
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
            // Whoever waits for it came later: else it would have waited itself.
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

    /// A device is used anew, or not any more: those that wait there are never to begin, and are forgotten. Those that have begun stay: nobody
    /// knows what they will do yet.
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

/// Each number once.
fn once(numbers: &mut Vec<u32>) -> &mut Vec<u32> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests;
