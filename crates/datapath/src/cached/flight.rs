//! Requests of a volume that are with its engine: whose pages may be kept when they are answered.

use std::ops::Range;

use slab::Slab;

/// A request that was passed on, until it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass(u32);

const READ: u32 = 0;
const CHANGE: u32 = 1;

impl Pass {
    /// One that the cache has nothing to do with.
    pub const NONE: Self = Self(u32::MAX);

    /// Whether the cache has nothing to do with it.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

#[derive(Debug)]
struct Flying {
    pages: Range<u64>,
    /// No change of its pages was under way beside it.
    alone: bool,
}

/// Reads and changes under way: lists that are looked through, as long as a guest has requests in flight.
#[derive(Debug, Default)]
pub(super) struct Flight {
    reads: Slab<Flying>,
    changes: Slab<Flying>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Flight {
    /// Whether any of these pages is being changed.
    #[inline]
    pub(super) fn changes(&self, pages: &Range<u64>) -> bool {
        !self.changes.is_empty() && self.changes.iter().any(|(_, c)| overlap(&c.pages, pages))
    }

    pub(super) fn begin_read(&mut self, pages: Range<u64>) -> Pass {
        let alone = !self.changes(&pages);
        let at = self.reads.insert(Flying { pages, alone });
        Pass((at as u32) << 1 | READ)
    }

    pub(super) fn begin_change(&mut self, pages: Range<u64>) -> Pass {
        let mut alone = true;
        for (_, other) in &mut self.changes {
            if overlap(&other.pages, &pages) {
                (other.alone, alone) = (false, false);
            }
        }
        for (_, read) in &mut self.reads {
            read.alone &= !overlap(&read.pages, &pages);
        }
        let at = self.changes.insert(Flying { pages, alone });
        Pass((at as u32) << 1 | CHANGE)
    }

    /// A request is over; whether it was alone with its pages.
    pub(super) fn over(&mut self, pass: Pass) -> bool {
        let at = (pass.0 >> 1) as usize;
        match pass.0 & 1 {
            READ => self.reads.remove(at).alone,
            _ => self.changes.remove(at).alone,
        }
    }

    /// What is under way is not to be kept.
    pub(super) fn keep_nothing(&mut self) {
        let all = self.reads.iter_mut().chain(&mut self.changes);
        all.for_each(|(_, flying)| flying.alone = false);
    }
}
