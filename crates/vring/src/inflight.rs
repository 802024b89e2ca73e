//! What is in flight, in memory that outlives this process: the one who runs the guest keeps it, and hands it to the next process.
//!
//! ```text
//!  queue 0                                                                              queue 1   …   memo
//!  ┌─────────────────────────────────────────────┬──────────────────────────────────┐
//!  │ features u64  version u16  descriptors u16  │ per head: in flight u8, 5 unused │  each rounded up to 64 bytes
//!  │ last head u16  used index u16               │ next u16  order u64              │
//!  └─────────────────────────────────────────────┴──────────────────────────────────┘
//! ```
//!
//! That is the layout of the vhost-user specification for split queues, and its order of steps: a head is marked before its request is
//! carried out; answers of a batch are chained by `next` from `last head`, then the used ring's index goes up, then their marks are
//! taken off, then the used index is noted. So a process that dies between any two steps leaves either marks that are true, or a used
//! index that differs from the ring's by as many answers as the chain begins with, whose marks are taken off by the next one.
//!
//! The memo behind the queues is our own: whether the guest has switched its write cache off, which nobody tells the next process.
//!
//! The guest cannot reach this memory, but who runs it can: what is read here is checked like everything else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileSlice};

use crate::{QUEUE_SIZE_MAX, QUEUES_MAX, RingError};

const ALIGN: usize = 64;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const VERSION: u16 = 1;

// In the header of a queue.
const VERSION_AT: usize = 8;
const DESCRIPTORS_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_INDEX_AT: usize = 14;
// In an entry.
const IN_FLIGHT_AT: usize = 0;
const NEXT_AT: usize = 6;
const ORDER_AT: usize = 8;

/// In the memo.
const WRITE_THROUGH: u32 = 0x7468_7275;

/// Requests in flight of all queues of a guest.
#[derive(Debug, Clone)]
pub struct InflightBuffer {
    map: Arc<MmapRegion>,
    at: usize,
    queues: u16,
    size: u16,
}

fn queue_bytes(size: u16) -> usize {
    (HEADER_BYTES + ENTRY_BYTES * usize::from(size)).next_multiple_of(ALIGN)
}

impl InflightBuffer {
    /// Bytes that one takes.
    pub fn bytes(queues: u16, size: u16) -> usize {
        usize::from(queues) * queue_bytes(size) + ALIGN
    }

    /// Whether there can be one for so many queues of this size.
    pub fn can_be(queues: u16, size: u16) -> bool {
        size.is_power_of_two() && size <= QUEUE_SIZE_MAX && (1..=QUEUES_MAX).contains(&queues)
    }

    /// The one in some memory, from this byte on.
    ///
    /// # Errors
    /// When it is not for so many queues, or the memory is too small.
    pub fn new(map: Arc<MmapRegion>, at: usize, queues: u16, size: u16) -> Result<Self, RingError> {
        if !Self::can_be(queues, size) {
            return Err(RingError::InflightBuffer(
                "invalid number or size of queues",
            ));
        }
        let end = at.checked_add(Self::bytes(queues, size));
        if end.is_none_or(|end| end > map.size()) || !at.is_multiple_of(ALIGN) {
            return Err(RingError::InflightBuffer("too small for its queues"));
        }
        Ok(Self {
            map,
            at,
            queues,
            size,
        })
    }

    /// The part of a queue of this size.
    ///
    /// # Errors
    /// When there is none.
    pub fn account(&self, queue: u16, size: u16) -> Result<Account, RingError> {
        if queue >= self.queues || size > self.size {
            return Err(RingError::InflightBuffer("has no space for this queue"));
        }
        Ok(Account {
            map: self.map.clone(),
            at: self.at + usize::from(queue) * queue_bytes(self.size),
            size,
            order: 0,
        })
    }

    /// Whether the guest has switched its write cache off.
    pub fn writes_through(&self) -> bool {
        let word: u32 = self
            .memo()
            .load(0, Ordering::Relaxed)
            .expect("it is inside");
        u32::from_le(word) == WRITE_THROUGH
    }

    /// Notes that it has, or has not.
    pub fn note_writes_through(&self, through: bool) {
        let word = if through { WRITE_THROUGH } else { 0 };
        let stored = self.memo().store(word.to_le(), 0, Ordering::Release);
        stored.expect("it is inside");
    }

    fn memo(&self) -> VolatileSlice<'_> {
        let at = self.at + usize::from(self.queues) * queue_bytes(self.size);
        let slice = self.map.get_slice(at, ALIGN);
        slice.expect("the inflight buffer is inside its memory")
    }
}

/// Requests in flight of one queue.
#[derive(Debug)]
pub struct Account {
    map: Arc<MmapRegion>,
    at: usize,
    size: u16,
    /// The next request's place among all.
    order: u64,
}

impl Account {
    /// Puts in order what an earlier process left, and says which heads are in flight, oldest first, and whether nobody used it before.
    pub(crate) fn settle(&mut self, used: u16, size: u16) -> Result<(Vec<u16>, bool), RingError> {
        let version = self.word(VERSION_AT);
        if version == 0 {
            self.set_word(DESCRIPTORS_AT, size);
            self.set_word(USED_INDEX_AT, used);
            self.set_word(VERSION_AT, VERSION);
            return Ok((vec![], true));
        }
        if version != VERSION || self.word(DESCRIPTORS_AT) != size {
            return Err(RingError::InflightBuffer(
                "the version or the queue size differs",
            ));
        }
        let published = used.wrapping_sub(self.word(USED_INDEX_AT));
        let mut head = self.word(LAST_HEAD_AT);
        // More than the queue holds were not in one batch: this queue began anew since, with nothing in flight.
        let batch = if published > size { 0 } else { published };
        for _ in 0..batch {
            self.check(head)?;
            self.mark(head, false);
            head = self.entry(head, NEXT_AT);
        }
        self.set_word(USED_INDEX_AT, used);
        let mut heads = vec![];
        for head in 0..size {
            let in_flight: u8 = self.load(self.entry_at(head) + IN_FLIGHT_AT);
            if in_flight != 0 {
                let order: u64 = self.load(self.entry_at(head) + ORDER_AT);
                heads.push((u64::from_le(order), head));
            }
        }
        heads.sort_unstable();
        self.order = heads.last().map_or(0, |(order, _)| order.wrapping_add(1));
        Ok((heads.into_iter().map(|(_, head)| head).collect(), false))
    }

    /// A request is about to be carried out.
    #[inline]
    pub(crate) fn begin(&mut self, head: u16) {
        let at = self.entry_at(head);
        self.store(at + ORDER_AT, self.order.to_le());
        self.order = self.order.wrapping_add(1);
        self.mark(head, true);
    }

    /// It has an answer, which the guest does not see yet.
    #[inline]
    pub(crate) fn answer(&mut self, head: u16) {
        let last = self.word(LAST_HEAD_AT);
        self.store(self.entry_at(head) + NEXT_AT, last.to_le());
        self.set_word(LAST_HEAD_AT, head);
    }

    /// The guest sees these answers, up to this index.
    #[inline]
    pub(crate) fn answered(&mut self, heads: &[u16], used: u16) {
        for head in heads {
            self.mark(*head, false);
        }
        self.set_word(USED_INDEX_AT, used);
    }

    fn check(&self, head: u16) -> Result<(), RingError> {
        match head < self.size {
            true => Ok(()),
            false => Err(RingError::InflightBuffer(
                "a completed request is in no queue",
            )),
        }
    }

    #[inline]
    fn mark(&self, head: u16, in_flight: bool) {
        self.store(self.entry_at(head) + IN_FLIGHT_AT, u8::from(in_flight));
    }

    #[inline]
    fn entry_at(&self, head: u16) -> usize {
        HEADER_BYTES + ENTRY_BYTES * usize::from(head)
    }

    fn entry(&self, head: u16, field: usize) -> u16 {
        u16::from_le(self.load(self.entry_at(head) + field))
    }

    #[inline]
    fn word(&self, field: usize) -> u16 {
        u16::from_le(self.load(field))
    }

    #[inline]
    fn set_word(&self, field: usize, word: u16) {
        self.store(field, word.to_le());
    }

    #[inline]
    fn load<T: vm_memory::AtomicAccess>(&self, at: usize) -> T {
        let loaded = self.bytes().load(at, Ordering::Acquire);
        loaded.expect("a queue's part is inside the inflight buffer")
    }

    /// Each step is there before the next one begins, for whoever looks after this process is gone.
    #[inline]
    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        let stored = self.bytes().store(value, at, Ordering::Release);
        stored.expect("a queue's part is inside the inflight buffer");
    }

    #[inline]
    fn bytes(&self) -> VolatileSlice<'_> {
        let slice = self.map.get_slice(self.at, queue_bytes(self.size));
        slice.expect("the inflight buffer is inside its memory")
    }
}
