//! How many I/Os of a kind a device has under way at the same time; others wait for their turn.

use std::collections::VecDeque;

use super::Worker;

/// Kinds of I/O that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Zeroes and trims.
    Zeroes,
    /// Direct I/O that goes through buffers.
    Buffers,
}

impl Turn {
    /// On one device and worker.
    fn at_a_time(self) -> u32 {
        match self {
            // Protects flushes, reads and writes of other devices.
            Turn::Zeroes => 2,
            // Bounds memory: 256 KiB each.
            Turn::Buffers => 32,
        }
    }
}

/// The turns of one device.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Of this opening of the device: what hangs on an earlier one takes nobody's turn.
    opening: u32,
    kinds: [OfKind; 2],
}

#[derive(Debug, Default)]
struct OfKind {
    under_way: u32,
    waiting: VecDeque<u32>,
}

impl Worker {
    /// Begins an I/O on a file, now or when others are over.
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

    /// One that had its turn is over.
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

    /// A device is lost, or comes anew: those that wait need not wait for what may hang there, and are not for the one that comes.
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

    /// Which opening of a device is used now.
    pub(super) fn opening_of(&mut self, device: u16) -> u32 {
        self.turns_of(device).opening
    }

    /// Whether an I/O is for an earlier opening of its device than the one that is used now.
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
