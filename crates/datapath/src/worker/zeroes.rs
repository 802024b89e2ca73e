//! Zeroes and trims of files and block devices: what is done where the system has no way to zero.
//!
//! ```text
//!   asked ──its turn──▶ the system zeroes the range ──done──▶ over, and the next one's turn
//!     │                            │ cannot                     ▲
//!     └ waits, by device           └──▶ zeroes are written, a buffer at a time
//! ```
//!
//! They may take long, and block whoever does them: the kernel's own threads, or helpers. There are few of those for all devices of a
//! worker, and one request for zeroes may be of thousands of extents, so that each device gets a few at a time ([`super::turns`]).

use crate::engine::IoKind;
use crate::io::Buf;

use super::Worker;

/// Zeroes written at once, where the system cannot zero. What is written for a guest waits behind it.
pub(super) const WRITTEN_AT_ONCE: u64 = 256 << 10;

/// How a range is zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zeroing {
    /// The system does it.
    Asked,
    /// Zeroes are written.
    Written,
}

/// Whether an I/O of this kind has to wait for its turn.
pub(super) fn takes_turns(kind: IoKind) -> bool {
    matches!(kind, IoKind::Zero | IoKind::ZeroAllocated | IoKind::Discard)
}

impl Worker {
    /// The system cannot zero: zeroes are written from here on.
    pub(super) fn write_zeroes(&mut self, id: u32) {
        let zeroes = self
            .zeroes
            .get_or_insert_with(|| Buf::new(WRITTEN_AT_ONCE as usize));
        let live = &mut self.ios[id as usize];
        live.zeroing = Zeroing::Written;
        live.buf = Some(zeroes.clone());
        live.from = 0;
        self.start_file(id);
    }
}
