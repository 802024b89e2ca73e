//! Split virtqueue, device side.
//!
//! ```text
//!                 pop                                        push              publish
//!  available ring ───▶ Chain ──▶ the caller's I/O ─────────▶ used ring ─ idx ──────────▶ guest, with an interrupt on request
//!        ▲                │ marked in flight                              │ unmarked
//!        └── arm ─────────┴───────────────────────────────────────────────┘
//!            (requests a kick from here on)
//! ```
//!
//! The guest may change all of this memory at any time. An index is read once and validated before the data that it refers
//! to is read. Impossible indices and requests that are submitted twice end the queue: see [`RingError`].
//!
//! Kicks are suppressed by default. [`Queue::arm`] requests one, immediately before its caller sleeps, and reports requests
//! that arrived in between. The guest suppresses interrupts with its event index or its flag.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use vm_memory::Bytes;

use crate::chain::{Chain, DESCRIPTOR_BYTES};
use crate::inflight::Account;
use crate::memory::{Memory, Span};
use crate::{QUEUE_SIZE_MAX, RingError};

/// Offsets and sizes in a ring: flags and index before the entries, and the event index after them.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const RING: usize = 4;
const EVENT_BYTES: usize = 2;
const AVAILABLE_BYTES: usize = 2;
const USED_BYTES: usize = 8;

/// Flag of a guest that needs no interrupts.
const NO_INTERRUPT: u16 = 1;
/// Flag of a device that needs no kicks.
const NO_NOTIFY: u16 = 1;

/// Limits of the span vectors that are kept for reuse: their number, and the capacity of each.
const SPARE_MAX: usize = 256;
const SPARE_PARTS: usize = 128;

/// Location and features of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSetup {
    /// Number of descriptors.
    pub size: u16,
    /// Address of the descriptor table, in the process that runs the guest.
    pub descriptors: u64,
    /// Address of the available ring, in the same process.
    pub available: u64,
    /// Address of the used ring, in the same process.
    pub used: u64,
    /// Index of the next request to take, unless the inflight buffer has another one.
    pub base: u16,
    /// True if event indices were negotiated.
    pub event_index: bool,
    /// True if indirect descriptors were negotiated.
    pub indirect: bool,
}

/// Result of a publication: an interrupt, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// The guest must be interrupted.
    Wanted,
    /// There are no new completions, or the guest needs no interrupt.
    Unwanted,
}

/// Spans of the three parts of a queue.
#[derive(Debug, Clone, Copy)]
struct Places {
    descriptors: Span,
    available: Span,
    used: Span,
}

impl Places {
    fn find(memory: &Memory, setup: &QueueSetup) -> Result<Self, RingError> {
        let size = usize::from(setup.size);
        let bytes = |entry: usize| (RING + entry * size + EVENT_BYTES) as u64;
        let table = (DESCRIPTOR_BYTES * size) as u64;
        Ok(Self {
            descriptors: memory.at_user("the descriptors", setup.descriptors, table, 16)?,
            available: memory.at_user(
                "the available ring",
                setup.available,
                bytes(AVAILABLE_BYTES),
                2,
            )?,
            used: memory.at_user("the used ring", setup.used, bytes(USED_BYTES), 4)?,
        })
    }
}

/// Virtqueue of a guest.
#[derive(Debug)]
pub struct Queue {
    memory: Arc<Memory>,
    setup: QueueSetup,
    places: Places,
    /// Index of the next request to take, counted from the start of the queue.
    next_available: u16,
    /// Last value of the guest's available index.
    seen: u16,
    /// Index of the next completion.
    next_used: u16,
    /// Index up to which completions are visible to the guest.
    published: u16,
    /// False before the first publication, which always interrupts.
    asked_before: bool,
    /// Heads that are in flight.
    taken: Vec<bool>,
    in_flight: u16,
    account: Option<Account>,
    /// Heads that an earlier process left in flight, oldest first.
    again: VecDeque<u16>,
    resubmitted: usize,
    /// True if no new requests are taken.
    ends: bool,
    /// Completions that are not published.
    batch: Vec<u16>,
    spare: Vec<Vec<Span>>,
}

impl Queue {
    /// Creates the queue of a guest. Requests that the inflight record has in flight are taken again.
    ///
    /// # Errors
    /// A queue outside the memory, or a record of another queue.
    pub fn new(
        memory: Arc<Memory>,
        setup: QueueSetup,
        account: Option<Account>,
    ) -> Result<Self, RingError> {
        let size = setup.size;
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(RingError::Size(size.into()));
        }
        let places = Places::find(&memory, &setup)?;
        let used = load(&memory, places.used, INDEX);
        let mut queue = Self {
            memory,
            setup,
            places,
            next_available: setup.base,
            seen: setup.base,
            next_used: used,
            published: used,
            asked_before: false,
            taken: vec![false; usize::from(size)],
            in_flight: 0,
            account,
            again: VecDeque::new(),
            resubmitted: 0,
            ends: false,
            batch: vec![],
            spare: vec![],
        };
        if let Some(account) = &mut queue.account {
            let (heads, is_new) = account.settle(used, size)?;
            for head in &heads {
                queue.taken[usize::from(*head)] = true;
            }
            queue.in_flight = heads.len() as u16;
            queue.resubmitted = heads.len();
            if !is_new {
                // Each taken request has completed or is in flight.
                queue.next_available = used.wrapping_add(queue.in_flight);
                queue.seen = queue.next_available;
            }
            queue.again = heads.into();
        }
        Ok(queue)
    }

    /// Uses another mapping of the guest's memory.
    ///
    /// # Errors
    /// A queue outside the new memory.
    pub fn set_memory(&mut self, memory: Arc<Memory>) -> Result<(), RingError> {
        self.places = Places::find(&memory, &self.setup)?;
        self.memory = memory;
        Ok(())
    }

    /// Takes the next request; `None` if no request is available.
    ///
    /// # Errors
    /// A guest that violates the protocol: the queue must not be used after it.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Chain>, RingError> {
        let head = match self.again.pop_front() {
            Some(head) => head,
            None => match self.next_head()? {
                Some(head) => head,
                None => return Ok(None),
            },
        };
        let spans = self.spare.pop().unwrap_or_default();
        let (table, indirect) = (self.places.descriptors, self.setup.indirect);
        Chain::walk(&self.memory, table, head, indirect, spans).map(Some)
    }

    fn next_head(&mut self) -> Result<Option<u16>, RingError> {
        if self.ends {
            return Ok(None);
        }
        if self.seen == self.next_available && !self.look()? {
            return Ok(None);
        }
        let size = self.setup.size;
        let slot = usize::from(self.next_available % size);
        let head = self.load(self.places.available, RING + AVAILABLE_BYTES * slot);
        let taken = self.taken.get_mut(usize::from(head));
        let taken = taken.ok_or(RingError::Index { index: head, size })?;
        if std::mem::replace(taken, true) {
            return Err(RingError::Again(head));
        }
        self.next_available = self.next_available.wrapping_add(1);
        self.in_flight += 1;
        if let Some(account) = &mut self.account {
            account.begin(head);
        }
        Ok(Some(head))
    }

    /// Reads the guest's index and returns true if requests are available.
    fn look(&mut self) -> Result<bool, RingError> {
        let (available, size) = (self.places.available, self.setup.size);
        self.seen = self.load(available, INDEX);
        let ahead = self.seen.wrapping_sub(self.next_available);
        match ahead <= size {
            true => Ok(ahead > 0),
            false => Err(RingError::Ahead { ahead, size }),
        }
    }

    /// Completes a request, with the number of bytes written to it. The guest sees it after [`Queue::publish`].
    #[inline]
    pub fn push(&mut self, chain: Chain, written: u32) {
        let head = chain.head();
        let slot = usize::from(self.next_used % self.setup.size);
        let used = self.memory.slice(self.places.used);
        let at = RING + USED_BYTES * slot;
        let entry = [u32::from(head).to_le(), written.to_le()];
        for (word, at) in entry.into_iter().zip([at, at + 4]) {
            let stored = used.store(word, at, Ordering::Relaxed);
            stored.expect("the ring is inside its span");
        }
        self.next_used = self.next_used.wrapping_add(1);
        self.taken[usize::from(head)] = false;
        self.in_flight -= 1;
        if let Some(account) = &mut self.account {
            account.answer(head);
            self.batch.push(head);
        }
        let spans = chain.into_spans();
        // The vector of a large request is not kept.
        if spans.capacity() <= SPARE_PARTS && self.spare.len() < SPARE_MAX {
            self.spare.push(spans);
        }
    }

    /// Makes all completions visible to the guest.
    pub fn publish(&mut self) -> Interrupt {
        if self.published == self.next_used {
            return Interrupt::Unwanted;
        }
        let used = self.memory.slice(self.places.used);
        let stored = used.store(self.next_used.to_le(), INDEX, Ordering::Release);
        stored.expect("the ring is inside its span");
        if let Some(account) = &mut self.account {
            account.answered(&self.batch, self.next_used);
            self.batch.clear();
        }
        // The guest's setting must be read after the completions are visible: the guest does both in reverse order.
        fence(Ordering::SeqCst);
        let available = self.places.available;
        let wanted = if self.setup.event_index {
            let at = RING + AVAILABLE_BYTES * usize::from(self.setup.size);
            passes(self.load(available, at), self.published, self.next_used)
        } else {
            self.load(available, FLAGS) & NO_INTERRUPT == 0
        };
        self.published = self.next_used;
        match wanted || !std::mem::replace(&mut self.asked_before, true) {
            true => Interrupt::Wanted,
            false => Interrupt::Unwanted,
        }
    }

    /// Returns true if [`Queue::pop`] would return a request or an error, by reading only the guest's index.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        let available = || self.load(self.places.available, INDEX) != self.next_available;
        !self.again.is_empty() || !self.ends && available()
    }

    /// Requests a kick from here on. Returns true if requests are available already, for which no kick comes.
    ///
    /// # Errors
    /// An impossible index of the guest.
    pub fn arm(&mut self) -> Result<bool, RingError> {
        let used = self.memory.slice(self.places.used);
        let (word, at) = match self.setup.event_index {
            true => {
                let at = RING + USED_BYTES * usize::from(self.setup.size);
                (self.next_available, at)
            }
            false => (0, FLAGS),
        };
        let stored = used.store(word.to_le(), at, Ordering::Relaxed);
        stored.expect("the ring is inside its span");
        fence(Ordering::SeqCst);
        let new = !self.ends && self.look()?;
        Ok(new || !self.again.is_empty())
    }

    /// Stops taking new requests; only those of an earlier process are taken.
    pub fn end(&mut self) {
        self.ends = true;
    }

    /// Suppresses kicks until [`Queue::arm`]. With event indices there is nothing to do.
    pub fn disarm(&mut self) {
        if !self.setup.event_index {
            let used = self.memory.slice(self.places.used);
            let stored = used.store(NO_NOTIFY.to_le(), FLAGS, Ordering::Relaxed);
            stored.expect("the ring is inside its span");
        }
    }

    /// Returns the number of requests in flight, including those of an earlier process.
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Returns the number of requests that an earlier process left in flight.
    pub fn resubmitted(&self) -> usize {
        self.resubmitted
    }

    /// Returns the index of the next request to take.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    #[inline]
    fn load(&self, span: Span, at: usize) -> u16 {
        load(&self.memory, span, at)
    }
}

#[inline]
fn load(memory: &Memory, span: Span, at: usize) -> u16 {
    let loaded = memory.slice(span).load(at, Ordering::Acquire);
    u16::from_le(loaded.expect("the ring is inside its span"))
}

/// Returns true if an index that advances from `from` to `to` passes the event index of the guest.
fn passes(event: u16, from: u16, to: u16) -> bool {
    to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from)
}
