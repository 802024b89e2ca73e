//! Requests of a volume that are in flight in its engine. They decide whether pages may be cached when a request
//! completes.

use std::ops::Range;

use slab::Slab;

/// Registered request, until its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Index and kind (read or change) of the request; [`NOTHING`] if its pages are irrelevant.
    at: u32,
    /// Caching period of the volume in which it began.
    time: u32,
}

const NOTHING: u32 = u32::MAX;
const READ: u32 = 0;
const CHANGE: u32 = 1;

impl Pass {
    /// Request that began while its volume was not cached.
    pub const NONE: Self = Self {
        at: NOTHING,
        time: 0,
    };
}

#[derive(Debug)]
struct ReadInFlight {
    pages: Range<u64>,
    /// True if no change of its pages has been in flight at the same time.
    alone: bool,
}

/// Reads and changes in flight. Both are searched linearly; a guest's requests in flight bound their length.
#[derive(Debug)]
pub(super) struct Flight {
    reads: Slab<ReadInFlight>,
    changes: Slab<ReadInFlight>,
    /// Number of this caching period.
    time: u32,
    /// Requests of earlier periods in flight. Their changes are unknown, so nothing is cached.
    before: usize,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Flight {
    /// Begins a caching period with a unique number. `before` requests are in flight from before.
    pub(super) fn new(time: u32, before: usize) -> Self {
        Self {
            reads: Slab::new(),
            changes: Slab::new(),
            time,
            before,
        }
    }

    /// Returns true if a change of one of these pages is in flight.
    #[inline]
    pub(super) fn changes(&self, pages: &Range<u64>) -> bool {
        !self.changes.is_empty() && self.changes.iter().any(|(_, c)| overlap(&c.pages, pages))
    }

    pub(super) fn begin_read(&mut self, pages: Range<u64>) -> Pass {
        let alone = !self.changes(&pages) && self.before == 0;
        let at = self.reads.insert(ReadInFlight { pages, alone });
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
        let at = self.changes.insert(ReadInFlight { pages, alone });
        self.pass((at as u32) << 1 | CHANGE)
    }

    /// Registers a request whose pages are irrelevant.
    pub(super) fn begin_other(&self) -> Pass {
        self.pass(NOTHING)
    }

    fn pass(&self, at: u32) -> Pass {
        Pass {
            at,
            time: self.time,
        }
    }

    /// Completes a request. Returns true if no change of its pages was in flight at the same time; `None` if its
    /// pages are irrelevant.
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

    /// Excludes the data of all requests in flight from caching.
    pub(super) fn keep_nothing(&mut self) {
        let all = self.reads.iter_mut().chain(&mut self.changes);
        all.for_each(|(_, flying)| flying.alone = false);
    }
}
