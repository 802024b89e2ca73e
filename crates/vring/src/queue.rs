//! A split virtqueue, the device's side.
//!
//! ```text
//!                 pop                                        push              publish
//!  available ring ───▶ Chain ──▶ whoever carries it out ──▶ used ring ─ idx ──────────▶ guest, interrupted if it wants to be
//!        ▲                │ marked in flight                              │ unmarked
//!        └── arm ─────────┴───────────────────────────────────────────────┘
//!            (kicks, please, from here on)
//! ```
//!
//! The guest may change all of it at any moment. An index is read once and checked; what it leads to is read after that. Indices that
//! cannot be, and requests that are handed in twice, end the queue: see [`RingError`].
//!
//! Kicks are suppressed by default: [`Queue::arm`] asks for one, right before its caller sleeps, and says whether something has come in
//! between. Interrupts are suppressed as the guest says, by its event index or its flag.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use vm_memory::Bytes;

use crate::chain::{Chain, DESCRIPTOR_BYTES};
use crate::inflight::Account;
use crate::memory::{Memory, Span};
use crate::{QUEUE_SIZE_MAX, RingError};

/// Room for flags and index in front of a ring, and for the event index behind it.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const RING: usize = 4;
const EVENT_BYTES: usize = 2;
const AVAILABLE_BYTES: usize = 2;
const USED_BYTES: usize = 8;

/// The guest does not want to be interrupted.
const NO_INTERRUPT: u16 = 1;
/// The device does not want to be kicked.
const NO_NOTIFY: u16 = 1;

/// Memory for the parts of requests that is kept for the next ones: for so many, of so many parts.
const SPARE_MAX: usize = 256;
const SPARE_PARTS: usize = 128;

/// Where a queue is, and how it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSetup {
    /// Descriptors.
    pub size: u16,
    /// Where their table is, as the process that runs the guest calls it.
    pub descriptors: u64,
    /// Likewise, the ring of what is available.
    pub available: u64,
    /// Likewise, the ring of what was used.
    pub used: u64,
    /// The next request that is taken, where no inflight buffer knows better.
    pub base: u16,
    /// Whether event indices were agreed on.
    pub event_index: bool,
    /// Whether tables of descriptors in descriptors were.
    pub indirect: bool,
}

/// Whether the guest is to be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// It is.
    Wanted,
    /// It has nothing to see, or does not want to be.
    Unwanted,
}

/// Where the three parts of a queue are.
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

/// One queue.
#[derive(Debug)]
pub struct Queue {
    memory: Arc<Memory>,
    setup: QueueSetup,
    places: Places,
    /// The next request to take, by its place since the beginning.
    next_available: u16,
    /// The guest's index as it was read last.
    seen: u16,
    /// The next answer, likewise.
    next_used: u16,
    /// Up to where the guest knows of answers.
    published: u16,
    /// Whether it was told whether it wants to be interrupted: after a start it always is.
    asked_before: bool,
    /// Which heads have been taken and not answered.
    taken: Vec<bool>,
    in_flight: u16,
    account: Option<Account>,
    /// Heads that an earlier process took and did not answer, oldest first.
    again: VecDeque<u16>,
    resubmitted: usize,
    /// Nothing new is taken.
    ends: bool,
    /// Answers that are not published.
    batch: Vec<u16>,
    spare: Vec<Vec<Span>>,
}

impl Queue {
    /// A queue as its guest has it. What the inflight buffer's account says is in flight is taken again.
    ///
    /// # Errors
    /// When it is outside the memory, or the account is of another queue.
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
                // All that was taken was answered, or is in flight.
                queue.next_available = used.wrapping_add(queue.in_flight);
                queue.seen = queue.next_available;
            }
            queue.again = heads.into();
        }
        Ok(queue)
    }

    /// The guest's memory has changed its place, or its extent.
    ///
    /// # Errors
    /// When the queue is not in it.
    pub fn set_memory(&mut self, memory: Arc<Memory>) -> Result<(), RingError> {
        self.places = Places::find(&memory, &self.setup)?;
        self.memory = memory;
        Ok(())
    }

    /// Takes the next request, if there is one.
    ///
    /// # Errors
    /// When the guest breaks the rules: the queue must not be used any more.
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

    /// Reads the guest's index; whether there is something to take.
    fn look(&mut self) -> Result<bool, RingError> {
        let (available, size) = (self.places.available, self.setup.size);
        self.seen = self.load(available, INDEX);
        let ahead = self.seen.wrapping_sub(self.next_available);
        match ahead <= size {
            true => Ok(ahead > 0),
            false => Err(RingError::Ahead { ahead, size }),
        }
    }

    /// Answers a request into which so many bytes were written. The guest sees it after [`Queue::publish`].
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
        // What a request of many parts took is not kept for ever.
        if spans.capacity() <= SPARE_PARTS && self.spare.len() < SPARE_MAX {
            self.spare.push(spans);
        }
    }

    /// Lets the guest see all answers.
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
        // What the guest wants is read after what it sees is there: it looks the other way round.
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

    /// Whether [`Queue::pop`] has something to say, by a look at the guest's index only.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        let available = || self.load(self.places.available, INDEX) != self.next_available;
        !self.again.is_empty() || !self.ends && available()
    }

    /// Asks for a kick from here on; whether something can be taken now, for which none comes.
    ///
    /// # Errors
    /// When the guest's index cannot be.
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

    /// Takes nothing any more but what an earlier process left.
    pub fn end(&mut self) {
        self.ends = true;
    }

    /// Asks for no kicks until [`Queue::arm`]. With event indices nothing has to be said.
    pub fn disarm(&mut self) {
        if !self.setup.event_index {
            let used = self.memory.slice(self.places.used);
            let stored = used.store(NO_NOTIFY.to_le(), FLAGS, Ordering::Relaxed);
            stored.expect("the ring is inside its span");
        }
    }

    /// Requests that were taken and not answered, also by an earlier process.
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// How many an earlier process left.
    pub fn resubmitted(&self) -> usize {
        self.resubmitted
    }

    /// The next request that would be taken.
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

/// Whether an index that goes from one value to another passes the one that the guest waits for.
fn passes(event: u16, from: u16, to: u16) -> bool {
    to.wrapping_sub(event).wrapping_sub(1) < to.wrapping_sub(from)
}
