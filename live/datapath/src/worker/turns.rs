//! Limits on the I/Os of a kind that a device has in flight; further I/Os wait for their turn.

use std::collections::VecDeque;

use super::Worker;

/// Kind of I/O that takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Zeroing and trims.
    Zeroes,
    /// Direct I/O that goes through buffers.
    Buffers,
}

impl Turn {
    /// Returns the largest number of I/Os in flight on one device of one worker.
    fn at_a_time(self) -> u32 {
        match self {
            // Protects flushes, and reads and writes of other devices.
            Turn::Zeroes => 2,
            // Bounds memory: each buffer has 256 KiB.
            Turn::Buffers => 32,
        }
    }
}

/// Turns of one device.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Number of this opening of the device. An I/O that hangs on an earlier opening takes no turn.
    opening: u32,
    kinds: [OfKind; 2],
}

#[derive(Debug, Default)]
struct OfKind {
    under_way: u32,
    waiting: VecDeque<u32>,
}

impl Worker {
    /// Starts an I/O on a file, at once or when it has its turn.
    pub(super) fn start_in_turn(&mut self, id: u32, turn: Turn) {
        let turns = self.turns_of(self.ios[id as usize].device);
        let kind = &mut turns.kinds[turn as usize];
        if kind.under_way < turn.at_a_time() {
            self.begin_turn(id, turn);
        } else {
            kind.waiting.push_back(id);
        }
    }

    fn begin_turn(&mut self, id: u32, turn: Turn) {
        let turns = self.turns_of(self.ios[id as usize].device);
        turns.kinds[turn as usize].under_way += 1;
        self.ios[id as usize].turn = Some(turn);
        self.start_file(id);
    }

    /// Ends a turn and starts the next I/O.
    pub(super) fn end_turn(&mut self, device: u16, turn: Turn, opening: u32) {
        let turns = self.turns_of(device);
        if turns.opening != opening {
            return;
        }
        let kind = &mut turns.kinds[turn as usize];
        kind.under_way -= 1;
        if let Some(next) = kind.waiting.pop_front() {
            self.begin_turn(next, turn);
        }
    }

    /// Starts a new opening of a device that is lost or was opened again. Waiting I/Os fail: they neither wait for I/Os
    /// that may hang on the old opening, nor belong to the new one.
    pub(super) fn renew_turns(&mut self, device: u16) {
        let turns = self.turns_of(device);
        turns.opening += 1;
        let before = std::mem::take(&mut turns.kinds);
        for id in before.into_iter().flat_map(|kind| kind.waiting) {
            self.start_lost(id);
        }
        for id in self.order.give_up(device) {
            self.start_lost(id);
        }
    }

    /// Returns the number of the present opening of a device.
    pub(super) fn opening_of(&mut self, device: u16) -> u32 {
        self.turns_of(device).opening
    }

    /// Returns true if an I/O belongs to an earlier opening of its device.
    pub(super) fn is_past(&self, live: &super::volumes::LiveIo) -> bool {
        let turns = self.turns.get(usize::from(live.device));
        turns.is_some_and(|turns| turns.opening != live.opening)
    }

    fn turns_of(&mut self, device: u16) -> &mut Turns {
        let index = usize::from(device);
        if self.turns.len() <= index {
            self.turns.resize_with(index + 1, Turns::default);
        }
        &mut self.turns[index]
    }
}
