//! Zeroes and trims of files and block devices: how many at a time, and what is done where the system has no way to zero.
//!
//! ```text
//!   asked ──its turn──▶ the system zeroes the range ──done──▶ over, and the next one's turn
//!     │                            │ cannot                     ▲
//!     └ waits, by device           └──▶ zeroes are written, a buffer at a time
//! ```
//!
//! They may take long, and block whoever does them: the kernel's own threads, or helpers. There are few of those for all devices of a
//! worker, and one request for zeroes may be of thousands of extents, so that each device gets a few at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::IoKind;
use crate::io::{Buf, Op, Urgency};

use super::{Token, Worker};

/// Zeroes and trims of one device under way at the same time, on one worker. Protects flushes, reads and writes of other devices.
const AT_A_TIME: u32 = 2;

/// Zeroes written at once, where the system cannot zero. What is written for a guest waits behind it.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// The zeroes and trims of one device.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Of this opening of the device: what hangs on an earlier one takes nobody's turn.
    opening: u32,
    under_way: u32,
    waiting: VecDeque<u32>,
}

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
    /// Begins zeroes or a trim, now or when others are over.
    pub(super) fn start_in_turn(&mut self, id: u32) {
        let turns = self.turns_of(self.ios[id as usize].device);
        if turns.under_way < AT_A_TIME {
            self.begin_turn(id);
        } else {
            turns.waiting.push_back(id);
        }
    }

    fn begin_turn(&mut self, id: u32) {
        let turns = self.turns_of(self.ios[id as usize].device);
        turns.under_way += 1;
        let opening = turns.opening;
        self.ios[id as usize].turn = Some(opening);
        self.start_file(id);
    }

    /// One that had its turn is over.
    pub(super) fn end_turn(&mut self, device: u16, opening: u32) {
        let turns = self.turns_of(device);
        if turns.opening != opening {
            return;
        }
        turns.under_way -= 1;
        if let Some(next) = turns.waiting.pop_front() {
            self.begin_turn(next);
        }
    }

    /// A device is lost, or comes anew: those that wait need not wait for what may hang there.
    pub(super) fn renew_turns(&mut self, device: u16) {
        let turns = self.turns_of(device);
        turns.opening += 1;
        turns.under_way = 0;
        for id in std::mem::take(&mut turns.waiting) {
            self.start_in_turn(id);
        }
    }

    fn turns_of(&mut self, device: u16) -> &mut Turns {
        let index = usize::from(device);
        if self.turns.len() <= index {
            self.turns.resize_with(index + 1, Turns::default);
        }
        &mut self.turns[index]
    }

    /// The system cannot zero: zeroes are written from here on.
    pub(super) fn write_zeroes(&mut self, id: u32) {
        let zeroes = self.zeroes.get_or_insert_with(|| Buf::new(WRITTEN_AT_ONCE));
        let live = &mut self.ios[id as usize];
        live.zeroing = Zeroing::Written;
        live.buf = Some(zeroes.clone());
        live.from = 0;
        self.start_file(id);
    }

    /// Writes the next zeroes of a range to a file.
    pub(super) fn write_next_zeroes(&mut self, id: u32, file: Arc<std::fs::File>, at: u64) {
        let live = &self.ios[id as usize];
        let zeroes = live.buf.as_ref().expect("it has the buffer of zeroes");
        let left = live.length - live.done;
        let op = Op::Write {
            file,
            at,
            from: zeroes.source(0..zeroes.len().min(left as usize)),
            durable: false,
            urgency: Urgency::Background,
        };
        self.io.start(Token::Device(id).pack(), op);
    }
}
