//! Guest's driver of virtqueues in memory.
//!
//! ```text
//!  at     descriptors │ available ring │ used ring │ one table of descriptors for each descriptor
//! ```
//!
//! The driver follows the specification, unless a test writes other data to its memory, which it may do at any moment.
//! There is one thread.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, MmapRegion, VolatileMemory, VolatileSlice};

/// Number of entries of a table of descriptors.
const TABLE: usize = 128;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Buffer: the address of its first byte in memory, and its length.
pub type Buffer = (u64, u32);

/// Form of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The descriptors are in the queue's own table.
    Direct,
    /// The descriptors are in a separate table.
    Indirect,
}

/// Virtqueue.
#[derive(Debug)]
pub struct Driver {
    map: Arc<MmapRegion>,
    at: usize,
    size: u16,
    event_index: bool,
    /// Descriptors in use, by head.
    used_by: Vec<Vec<u16>>,
    free: Vec<u16>,
    available: u16,
    /// Available index at the last check whether the device wants a notification.
    exposed: u16,
    used: u16,
}

impl Driver {
    /// Returns the bytes of memory of a queue.
    pub fn bytes(size: u16) -> usize {
        let size = usize::from(size);
        let rings = 16 * size + (6 + 2 * size).next_multiple_of(4) + (6 + 8 * size);
        rings.next_multiple_of(16) + 16 * TABLE * size
    }

    /// Creates a queue in zeroed memory.
    pub fn new(map: Arc<MmapRegion>, at: usize, size: u16, event_index: bool) -> Self {
        Self {
            map,
            at,
            size,
            event_index,
            used_by: vec![vec![]; usize::from(size)],
            free: (0..size).rev().collect(),
            available: 0,
            exposed: 0,
            used: 0,
        }
    }

    /// Returns the number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Returns the addresses of the descriptors, the available ring and the used ring.
    pub fn places(&self) -> [u64; 3] {
        let descriptors = self.at as u64;
        let available = descriptors + 16 * u64::from(self.size);
        let used = available + (6 + 2 * u64::from(self.size)).next_multiple_of(4);
        [descriptors, available, used]
    }

    /// Adds a chain, which the device sees after [`Driver::expose`]. Returns its head, or `None` if there is no room.
    pub fn add(&mut self, readable: &[Buffer], writable: &[Buffer], form: Form) -> Option<u16> {
        let all = readable.iter().map(|b| (*b, 0));
        let all: Vec<(Buffer, u16)> = all.chain(writable.iter().map(|b| (*b, WRITE))).collect();
        let needed = match form {
            Form::Direct => all.len(),
            Form::Indirect => 1,
        };
        if self.free.len() < needed {
            return None;
        }
        let taken = self.free.split_off(self.free.len() - needed);
        let head = taken[0];
        let [table, _, _] = self.places();
        match form {
            Form::Direct => {
                for (n, ((address, length), flags)) in all.iter().enumerate() {
                    let next = taken.get(n + 1);
                    let flags = flags | next.map_or(0, |_| NEXT);
                    let next = next.copied().unwrap_or(0);
                    self.describe(table, taken[n], (*address, *length), flags, next);
                }
            }
            Form::Indirect => {
                assert!(all.len() <= TABLE, "a table has {TABLE} entries");
                let own = self.table_of(head);
                for (n, (buffer, flags)) in all.iter().enumerate() {
                    let last = n + 1 == all.len();
                    let flags = flags | if last { 0 } else { NEXT };
                    self.describe(own, n as u16, *buffer, flags, n as u16 + 1);
                }
                self.describe(table, head, (own, 16 * all.len() as u32), INDIRECT, 0);
            }
        }
        self.used_by[usize::from(head)] = taken;
        self.offer(head);
        Some(head)
    }

    /// Adds any number to the available ring as a head.
    pub fn offer(&mut self, head: u16) {
        let [_, available, _] = self.places();
        let slot = u64::from(self.available % self.size);
        self.put(available + 4 + 2 * slot, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
    }

    /// Writes a descriptor.
    pub fn describe(&self, table: u64, index: u16, buffer: Buffer, flags: u16, next: u16) {
        let at = table + 16 * u64::from(index);
        self.put(at, &buffer.0.to_le_bytes());
        self.put(at + 8, &buffer.1.to_le_bytes());
        self.put(at + 12, &flags.to_le_bytes());
        self.put(at + 14, &next.to_le_bytes());
    }

    /// Returns the address of a head's separate table.
    pub fn table_of(&self, head: u16) -> u64 {
        let [_, _, used] = self.places();
        let rings = used + 6 + 8 * u64::from(self.size);
        rings.next_multiple_of(16) + 16 * TABLE as u64 * u64::from(head)
    }

    /// Makes the added chains visible to the device. Returns true if the device must be notified.
    pub fn expose(&mut self) -> bool {
        let [_, available, used] = self.places();
        let from = std::mem::replace(&mut self.exposed, self.available);
        self.store(available + 2, self.available, Ordering::Release);
        fence(Ordering::SeqCst);
        match self.event_index {
            true => {
                let event = self.load(used + 4 + 8 * u64::from(self.size));
                let passed = self.available.wrapping_sub(event).wrapping_sub(1);
                passed < self.available.wrapping_sub(from)
            }
            false => self.load(used) & 1 == 0,
        }
    }

    /// Returns the next answer: the head and the number of written bytes.
    pub fn next_used(&mut self) -> Option<(u16, u32)> {
        let [_, _, used] = self.places();
        if self.load(used + 2) == self.used {
            return None;
        }
        let entry = used + 4 + 8 * u64::from(self.used % self.size);
        let [head, written] = [entry, entry + 4].map(|at| {
            let mut bytes = [0; 4];
            self.get(at, &mut bytes);
            u32::from_le_bytes(bytes)
        });
        self.used = self.used.wrapping_add(1);
        let head = u16::try_from(head).expect("a head");
        let freed = std::mem::take(&mut self.used_by[usize::from(head)]);
        assert!(!freed.is_empty(), "head {head} is answered twice");
        self.free.extend(freed);
        Some((head, written))
    }

    /// Requests an interrupt at the next answer. Returns true if there is an answer already.
    pub fn await_used(&mut self) -> bool {
        let [_, available, used] = self.places();
        if self.event_index {
            let at = available + 4 + 2 * u64::from(self.size);
            self.store(at, self.used, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.load(used + 2) != self.used
    }

    /// Returns the number of heads without an answer.
    pub fn waiting(&self) -> usize {
        let of = self.used_by.iter().filter(|taken| !taken.is_empty());
        of.count()
    }

    /// Returns the index of the next answer, at which a device without tracked requests restarts.
    pub fn used_index(&self) -> u16 {
        self.used
    }

    /// Writes to memory.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let written = self.all().write_slice(bytes, at as usize);
        written.expect("inside memory");
    }

    /// Reads from memory.
    pub fn get(&self, at: u64, bytes: &mut [u8]) {
        let read = self.all().read_slice(bytes, at as usize);
        read.expect("inside memory");
    }

    fn load(&self, at: u64) -> u16 {
        let loaded = self.all().load(at as usize, Ordering::Acquire);
        u16::from_le(loaded.expect("inside memory"))
    }

    fn store(&self, at: u64, value: u16, order: Ordering) {
        let stored = self.all().store(value.to_le(), at as usize, order);
        stored.expect("inside memory");
    }

    fn all(&self) -> VolatileSlice<'_> {
        let size = self.map.size();
        self.map.get_slice(0, size).expect("all of it")
    }
}
