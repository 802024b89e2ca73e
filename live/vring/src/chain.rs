//! Descriptor chain of a request: read once, validated, and used from the copy.
//!
//! ```text
//!  table     [0] 0x1000, 16, next 3 ─┐   [3] 0x8000, 4096, next 1 ─┐   [1] 0x9000, 1, written
//!             ▲ head                 └────▲                        └────▲
//!  chain      readable: 16 bytes           readable: 4096 bytes          writable: 1 byte
//! ```
//!
//! A descriptor may refer to a table of its own (*indirect*), which has the rest of the chain. Boundaries between buffers
//! have no meaning: all readable bytes are one string, and all writable bytes another one.

use std::sync::Arc;

use vm_memory::Bytes;

use crate::memory::{Memory, Span};
use crate::{CHAIN_MAX, RingError};

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Copy of a descriptor.
#[derive(Debug, Clone, Copy)]
struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    #[inline]
    fn of(memory: &Memory, table: Span, index: u16) -> Self {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let at = usize::from(index) * DESCRIPTOR_BYTES;
        memory
            .slice(table)
            .read_slice(&mut bytes, at)
            .expect("the index is inside the table");
        let (address, rest) = bytes.split_first_chunk().expect("16 bytes");
        let (length, rest) = rest.split_first_chunk().expect("8 of them are left");
        let (flags, next) = rest.split_first_chunk().expect("4 of them are left");
        Self {
            address: u64::from_le_bytes(*address),
            length: u32::from_le_bytes(*length),
            flags: u16::from_le_bytes(*flags),
            next: u16::from_le_bytes(next.try_into().expect("2 of them are left")),
        }
    }

    fn is(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Readable and writable bytes of a request.
#[derive(Debug)]
pub struct Chain {
    memory: Arc<Memory>,
    head: u16,
    spans: Vec<Span>,
    /// Index of the first writable span.
    first_writable: usize,
    readable: u64,
    writable: u64,
}

impl Chain {
    /// Walks a chain from its head. `spans` is a vector to reuse.
    pub(crate) fn walk(
        memory: &Arc<Memory>,
        table: Span,
        head: u16,
        may_be_indirect: bool,
        mut spans: Vec<Span>,
    ) -> Result<Self, RingError> {
        spans.clear();
        let mut chain = Self {
            memory: memory.clone(),
            head,
            spans,
            first_writable: usize::MAX,
            readable: 0,
            writable: 0,
        };
        let (mut table, mut index, mut inside, mut seen) = (table, head, false, 0);
        loop {
            let size = (table.len() / DESCRIPTOR_BYTES).min(usize::from(u16::MAX)) as u16;
            if index >= size {
                return Err(RingError::Index { index, size });
            }
            seen += 1;
            if seen > CHAIN_MAX {
                return Err(RingError::Endless(CHAIN_MAX));
            }
            let descriptor = Descriptor::of(memory, table, index);
            if descriptor.is(INDIRECT) {
                let why = match (may_be_indirect, inside, descriptor.is(NEXT)) {
                    (false, ..) => "indirect descriptors were not negotiated",
                    (_, true, _) => "an indirect table inside another one",
                    (_, _, true) => "an indirect table that is not the end of its chain",
                    _ => "",
                };
                if !why.is_empty() {
                    return Err(RingError::Table { index, why });
                }
                let length = descriptor.length;
                if length == 0 || !length.is_multiple_of(DESCRIPTOR_BYTES as u32) {
                    let why = "the length of an indirect table is not a multiple of 16 bytes";
                    return Err(RingError::Table { index, why });
                }
                let address = descriptor.address;
                table = memory.whole("an indirect table", address, u64::from(length))?;
                (index, inside) = (0, true);
                continue;
            }
            chain.add(index, descriptor)?;
            if !descriptor.is(NEXT) {
                chain.first_writable = chain.first_writable.min(chain.spans.len());
                return Ok(chain);
            }
            index = descriptor.next;
        }
    }

    fn add(&mut self, index: u16, descriptor: Descriptor) -> Result<(), RingError> {
        let length = u64::from(descriptor.length);
        if descriptor.is(WRITE) {
            self.first_writable = self.first_writable.min(self.spans.len());
            self.writable += length;
        } else {
            if self.first_writable != usize::MAX {
                return Err(RingError::Order(index));
            }
            self.readable += length;
        }
        let memory = &self.memory;
        memory.at_guest(descriptor.address, length, &mut self.spans)
    }

    /// Returns the index of the first descriptor, which identifies the request in its completion.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Returns the number of readable bytes.
    pub fn readable(&self) -> u64 {
        self.readable
    }

    /// Returns the number of writable bytes.
    pub fn writable(&self) -> u64 {
        self.writable
    }

    /// Copies readable bytes from offset `from`. The guest may change them: two copies of the same bytes may differ.
    ///
    /// # Panics
    /// If the chain has fewer readable bytes.
    pub fn read(&self, from: u64, mut to: &mut [u8]) {
        let spans = &self.spans[..self.first_writable];
        for (span, from, length) in pieces(spans, from, to.len()) {
            let (here, rest) = to.split_at_mut(length);
            let slice = self.memory.slice(span);
            slice.read_slice(here, from).expect("it is inside the span");
            to = rest;
        }
    }

    /// Copies `bytes` to the writable bytes from offset `from`.
    ///
    /// # Panics
    /// If the chain has fewer writable bytes.
    pub fn write(&self, from: u64, mut bytes: &[u8]) {
        let spans = &self.spans[self.first_writable..];
        for (span, from, length) in pieces(spans, from, bytes.len()) {
            let (here, rest) = bytes.split_at(length);
            let slice = self.memory.slice(span);
            slice
                .write_slice(here, from)
                .expect("it is inside the span");
            bytes = rest;
        }
    }

    /// Returns the vector of spans for reuse.
    pub(crate) fn into_spans(self) -> Vec<Span> {
        self.spans
    }
}

/// Returns the pieces of spans that hold a byte range: span, offset in it, length.
#[inline]
fn pieces(spans: &[Span], from: u64, length: usize) -> impl Iterator<Item = (Span, usize, usize)> {
    let (mut spans, mut skip, mut left) = (spans.iter(), from, length);
    std::iter::from_fn(move || {
        while left > 0 {
            let span = *spans.next().expect("a chain has as many bytes as it says");
            let bytes = span.len() as u64;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let from = std::mem::take(&mut skip) as usize;
            let here = left.min(span.len() - from);
            left -= here;
            return Some((span, from, here));
        }
        None
    })
}
