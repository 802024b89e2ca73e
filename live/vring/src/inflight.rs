//! Inflight buffer: requests in flight, in memory that outlives this process. The process that runs the guest keeps the
//! buffer and passes it to the next server process.
//!
//! ```text
//!  queue 0                                                                              queue 1   …   memo
//!  ┌─────────────────────────────────────────────┬──────────────────────────────────┐
//!  │ features u64  version u16  descriptors u16  │ per head: in flight u8, 5 unused │  each rounded up to 64 bytes
//!  │ last head u16  used index u16               │ next u16  order u64              │
//!  └─────────────────────────────────────────────┴──────────────────────────────────┘
//! ```
//!
//! The layout and the order of steps are those of the vhost-user specification for split queues. A head is marked before its
//! request is carried out. The completions of a batch are linked by `next`, starting from `last head`. Then the used ring's
//! index is advanced, the marks of the batch are cleared, and the used index is recorded here. If the process dies between
//! two steps, one of two states remains. Either all marks are correct, or the recorded used index is behind the ring's. The
//! difference is the number of completions at the start of the list whose marks the next process clears.
//!
//! The memo after the queues is our own extension. It records that the guest has switched its write cache off, because the
//! next process cannot learn it otherwise.
//!
//! The guest cannot access this memory, but the process that runs the guest can. Its content is validated like all other
//! input.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileSlice};

use crate::{QUEUE_SIZE_MAX, QUEUES_MAX, RingError};

const ALIGN: usize = 64;
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const VERSION: u16 = 1;

// Offsets in the header of a queue.
const VERSION_AT: usize = 8;
const DESCRIPTORS_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_INDEX_AT: usize = 14;
// Offsets in an entry.
const IN_FLIGHT_AT: usize = 0;
const NEXT_AT: usize = 6;
const ORDER_AT: usize = 8;

/// Value of the memo for a write cache that is switched off.
const WRITE_THROUGH: u32 = 0x7468_7275;

/// Inflight buffer of all queues of a guest.
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
    /// Returns the size of a buffer in bytes.
    pub fn bytes(queues: u16, size: u16) -> usize {
        usize::from(queues) * queue_bytes(size) + ALIGN
    }

    /// Returns true if a buffer for this number and size of queues is possible.
    pub fn can_be(queues: u16, size: u16) -> bool {
        size.is_power_of_two() && size <= QUEUE_SIZE_MAX && (1..=QUEUES_MAX).contains(&queues)
    }

    /// Uses the buffer at offset `at` of the mapping.
    ///
    /// # Errors
    /// An invalid number or size of queues, or a mapping that is too small.
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

    /// Returns the record of a queue of this size.
    ///
    /// # Errors
    /// A buffer without space for this queue.
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

    /// Returns true if the guest has switched its write cache off.
    pub fn writes_through(&self) -> bool {
        let word: u32 = self
            .memo()
            .load(0, Ordering::Relaxed)
            .expect("it is inside");
        u32::from_le(word) == WRITE_THROUGH
    }

    /// Records the state of the write cache.
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

/// Record of the requests in flight of one queue.
#[derive(Debug)]
pub struct Account {
    map: Arc<MmapRegion>,
    at: usize,
    size: u16,
    /// Sequence number of the next request.
    order: u64,
}

impl Account {
    /// Repairs the record of an earlier process. Returns the heads in flight, oldest first, and true if the record was
    /// unused.
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
        // A batch never exceeds the queue size: a larger difference means that the queue restarted since, with nothing in
        // flight.
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

    /// Marks a request before it is carried out.
    #[inline]
    pub(crate) fn begin(&mut self, head: u16) {
        let at = self.entry_at(head);
        self.store(at + ORDER_AT, self.order.to_le());
        self.order = self.order.wrapping_add(1);
        self.mark(head, true);
    }

    /// Links a completion that the guest does not see yet.
    #[inline]
    pub(crate) fn answer(&mut self, head: u16) {
        let last = self.word(LAST_HEAD_AT);
        self.store(self.entry_at(head) + NEXT_AT, last.to_le());
        self.set_word(LAST_HEAD_AT, head);
    }

    /// Clears the marks of completions that the guest sees, up to the used index `used`.
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

    /// Stores a value with release ordering: each step is visible before the next one to a process that reads the buffer
    /// later.
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
