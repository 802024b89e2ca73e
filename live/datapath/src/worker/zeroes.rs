//! Zeroing and trims of files and block devices, with written zeroes as the fallback.
//!
//! ```text
//!   started ──its turn──▶ the system zeroes the range ──done──▶ end, and the next one's turn
//!      │                            │ not supported              ▲
//!      └ waits, by device           └──▶ zeroes are written, one buffer after another
//! ```
//!
//! These operations may take long, and they block the thread that runs them: a thread of the kernel, or a helper. A worker
//! has few of these threads for all its devices, and one request may zero thousands of extents. Each device therefore has
//! few operations in flight ([`super::turns`]).

use crate::engine::IoKind;
use crate::io::Buf;

use super::Worker;

/// Bytes of zeroes in one write, if the system cannot zero. Writes of guests wait behind it.
pub(super) const WRITTEN_AT_ONCE: u64 = 256 << 10;

/// Method of zeroing a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZeroMethod {
    /// Operation of the system.
    Asked,
    /// Written zeroes.
    Written,
}

/// Returns true if an I/O of this kind must wait for its turn.
pub(super) fn takes_turns(kind: IoKind) -> bool {
    matches!(kind, IoKind::Zero | IoKind::ZeroAllocated | IoKind::Discard)
}

impl Worker {
    /// Continues by writing zeroes, because the system cannot zero.
    pub(super) fn write_zeroes(&mut self, id: u32) {
        let zeroes = self
            .zeroes
            .get_or_insert_with(|| Buf::new(WRITTEN_AT_ONCE as usize));
        let live = &mut self.ios[id as usize];
        live.zeroing = ZeroMethod::Written;
        live.buf = Some(zeroes.clone());
        live.from = 0;
        self.start_file(id);
    }
}
