//! Requests of a volume that are with its engine: whose pages may be kept when they are answered.

use std::ops::Range;

use slab::Slab;

/// A request that was passed on, until it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Its place, and whether it is a change; [`NOTHING`] of one whose pages are of no interest.
    at: u32,
    /// The time of caching that it is of.
    time: u32,
}

const NOTHING: u32 = u32::MAX;
const READ: u32 = 0;
const CHANGE: u32 = 1;

impl Pass {
    /// One from when its volume was not cached.
    pub const NONE: Self = Self {
        at: NOTHING,
        time: 0,
    };
}

#[derive(Debug)]
struct Flying {
    pages: Range<u64>,
    /// No change of its pages was under way beside it.
    alone: bool,
}

/// Reads and changes under way: lists that are looked through, as long as a guest has requests in flight.
#[derive(Debug)]
pub(super) struct Flight {
    reads: Slab<Flying>,
    changes: Slab<Flying>,
    /// Which time of caching this is.
    time: u32,
    /// Requests from before it that are not over: what they change is not known, so nothing is kept.
    before: usize,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Flight {
    /// A time of caching, which no other has the number of, with so many requests under way from before.
    pub(super) fn new(time: u32, before: usize) -> Self {
        Self {
            reads: Slab::new(),
            changes: Slab::new(),
            time,
            before,
        }
    }

    /// Whether any of these pages is being changed.
    #[inline]
    pub(super) fn changes(&self, pages: &Range<u64>) -> bool {
        !self.changes.is_empty() && self.changes.iter().any(|(_, c)| overlap(&c.pages, pages))
    }

    pub(super) fn begin_read(&mut self, pages: Range<u64>) -> Pass {
        let alone = !self.changes(&pages) && self.before == 0;
        let at = self.reads.insert(Flying { pages, alone });
        self.pass((at as u32) << 1 | READ)
    }

    pub(super) fn begin_change(&mut self, pages: Range<u64>) -> Pass {
        let mut alone = self.before == 0;
        for (_, other) in &mut self.changes {
            if overlap(&other.pages, &pages) {
                (other.alone, alone) = (false, false);
            }
        }
        for (_, read) in &mut self.reads {
            read.alone &= !overlap(&read.pages, &pages);
        }
        let at = self.changes.insert(Flying { pages, alone });
        self.pass((at as u32) << 1 | CHANGE)
    }

    /// A request whose pages are of no interest.
    pub(super) fn begin_other(&self) -> Pass {
        self.pass(NOTHING)
    }

    fn pass(&self, at: u32) -> Pass {
        Pass {
            at,
            time: self.time,
        }
    }

    /// A request is over; whether it was alone with its pages, where these are of interest.
    pub(super) fn over(&mut self, pass: Pass) -> Option<bool> {
        if pass.time != self.time {
            self.before = self.before.saturating_sub(1);
            return None;
        }
        let at = (pass.at >> 1) as usize;
        match pass.at {
            NOTHING => None,
            at_read if at_read & 1 == READ => Some(self.reads.remove(at).alone),
            _ => Some(self.changes.remove(at).alone),
        }
    }

    /// What is under way is not to be kept.
    pub(super) fn keep_nothing(&mut self) {
        let all = self.reads.iter_mut().chain(&mut self.changes);
        all.for_each(|(_, flying)| flying.alone = false);
    }
}
