//! What devices owe a volume: which hold writes that no flush has covered, and which have lost some.
//!
//! One flush of a device is in flight at a time; those who want one meanwhile wait for it, or share the next. So the flush
//! that the kernel tells of a loss is never overtaken by one that it tells nothing.
//!
//! # When a loss is told
//!
//! ```text
//!   write W answered      flush A ─────────────┐ fails: W and X may be lost         A is answered with an error
//!   ──────●──────────────────●──────X──────────●────────────────────●────────────── and so is every flush up to C,
//!                                   answered,  heard of             flush C begins  which tells of W and of X
//!                                   or in flight
//! ```
//!
//! An error is told with every flush that began before the loss was heard of, and goes on to be told until one that began
//! after all writes that may be lost were complete has told it (at once, if there were no such writes since). It is told
//! only by a flush that somebody still waits for: a write that is durable by itself and fails is answered with an error,
//! but it is no answer for the writes before it.

use std::collections::VecDeque;

use units::DeviceId;
use volume::DeviceIo;

use super::grace::{Epoch, Grace};
use super::{DataRef, Engine, Fault, GuestOp, IoKind, IoState, Owner};

/// What a device owes a volume.
#[derive(Debug)]
pub(super) struct Dirt {
    /// Writes of this volume completed since the last flush began.
    pub(super) dirty: bool,
    /// Writes completed.
    written: u64,
    /// Writes in flight.
    writing: Grace,
    /// Who waits for the flush in flight; it is one if there are any.
    running: Vec<Waiter>,
    /// Who waits for the one after it.
    next: Vec<Waiter>,
    /// Losses heard of.
    losses: u64,
    /// Those of them after which all writes that they may have hit are complete.
    settled: u64,
    /// The others: what has to be complete.
    unsettled: VecDeque<Epoch>,
    /// Losses that the guest was told of.
    told: u64,
}

/// Who waits for a flush.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    owner: Owner,
    /// Losses told when it began: if there are more in the end, it fails.
    told: u64,
    /// Losses that it tells for good when it fails.
    settled: u64,
    /// Writes completed when it began.
    written: u64,
}

impl Dirt {
    fn new() -> Self {
        Self {
            dirty: false,
            written: 0,
            writing: Grace::new(),
            running: vec![],
            next: vec![],
            losses: 0,
            settled: 0,
            unsettled: VecDeque::new(),
            told: 0,
        }
    }

    fn lost(&mut self) {
        self.losses += 1;
        let writing = self.writing.end_epoch();
        self.unsettled.push_back(writing);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(first) = self.unsettled.front()
            && self.writing.passed(*first)
        {
            self.unsettled.pop_front();
            self.settled += 1;
        }
    }
}

impl<G> Engine<G> {
    pub(super) fn dirt_of(&mut self, device: DeviceId) -> &mut Dirt {
        let i = device.index();
        if self.dirt.len() <= i {
            self.dirt.resize_with(i + 1, Dirt::new);
        }
        &mut self.dirt[i]
    }

    /// A flush of this device failed for somebody else: writes of this volume may be lost too, and the kernel will not say
    /// so again.
    pub fn flush_failed_elsewhere(&mut self, device: DeviceId) {
        let dirt = self.dirt_of(device);
        if dirt.dirty || !dirt.running.is_empty() || !dirt.writing.idle() {
            dirt.lost();
        }
    }

    /// Losses of a device that were heard of.
    pub(super) fn losses(&mut self, device: DeviceId) -> u64 {
        self.dirt_of(device).losses
    }

    /// The volume comes to a device on which it has nothing: what was lost there is not its own.
    pub(super) fn begins_on(&mut self, device: DeviceId) {
        if self.map.holders().iter().all(|h| h.0 != device) {
            let dirt = self.dirt_of(device);
            dirt.told = dirt.losses;
        }
    }

    /// A write, or the like, begins.
    #[inline]
    pub(super) fn write_begins(&mut self, device: DeviceId, kind: IoKind) -> Option<Epoch> {
        let leaves_dirt = !matches!(
            kind,
            IoKind::Read | IoKind::Flush | IoKind::Write { durable: true }
        );
        leaves_dirt.then(|| self.dirt_of(device).writing.enter())
    }

    /// It is over.
    #[inline]
    pub(super) fn write_is_over(&mut self, io: &IoState, result: Result<(), Fault>) {
        if let Some(epoch) = io.epoch {
            let dirt = self.dirt_of(io.device);
            dirt.dirty = true;
            dirt.written += 1;
            dirt.writing.leave(epoch);
        } else if io.kind == (IoKind::Write { durable: true }) && result.is_err() {
            // It flushes, and may have been told of what others lost.
            let dirt = self.dirt_of(io.device);
            dirt.dirty = true;
            dirt.lost();
        }
    }

    /// Whether a flush has something to do on a device.
    pub(super) fn needs_flush(&mut self, device: DeviceId) -> bool {
        let dirt = self.dirt_of(device);
        dirt.dirty || !dirt.running.is_empty() || dirt.losses > dirt.told
    }

    /// Flushes a device for somebody, who is told by [`Engine::flushed`].
    pub(super) fn start_flush(&mut self, owner: Owner, device: DeviceId) {
        let dirt = self.dirt_of(device);
        dirt.settle();
        let waiter = Waiter {
            owner,
            told: dirt.told,
            settled: dirt.settled,
            written: dirt.written,
        };
        if dirt.running.is_empty() {
            dirt.next.push(waiter);
            self.begin_flush(device);
        } else if dirt.dirty {
            dirt.next.push(waiter);
        } else {
            dirt.running.push(waiter); // it began after all that this one is to cover
        }
    }

    fn begin_flush(&mut self, device: DeviceId) {
        let dirt = self.dirt_of(device);
        dirt.running = std::mem::take(&mut dirt.next);
        dirt.dirty = false;
        let part = DeviceIo {
            device,
            op: model::Op::Flush,
            offset: 0,
            length: 0,
            at: 0,
            mirror: false,
        };
        self.start_io(Owner::Flush, part, IoKind::Flush, DataRef::None);
    }

    /// The flush in flight is over.
    pub(super) fn flush_done(&mut self, device: DeviceId, result: Result<(), Fault>) {
        let dirt = self.dirt_of(device);
        let waiters = std::mem::take(&mut dirt.running);
        if result.is_err() {
            dirt.dirty = true;
            dirt.lost();
        }
        if !dirt.next.is_empty() {
            self.begin_flush(device);
        }
        for waiter in waiters {
            let lost = self.losses(device) > waiter.told;
            let result = if lost { Err(Fault::Io) } else { result };
            match waiter.owner {
                Owner::Guest { request, mirror } => {
                    let harmless = result.is_err() && mirror && self.mirror_failed();
                    if result.is_err() && !harmless {
                        self.tell(device, waiter, request);
                    }
                    let result = if harmless { Ok(()) } else { result };
                    self.part_done(request, false, result);
                }
                Owner::MoveFlush { batch } => self.move_flush_done(batch),
                _ => unreachable!("others do not wait for flushes"),
            }
        }
    }

    /// A request is about to fail because of losses.
    fn tell(&mut self, device: DeviceId, waiter: Waiter, request: u32) {
        let state = &self.requests[request as usize];
        if state.guest.is_none() || state.request.op != GuestOp::Flush {
            return;
        }
        let dirt = self.dirt_of(device);
        let quiet = dirt.written == waiter.written && dirt.writing.idle();
        let told = if quiet { dirt.losses } else { waiter.settled };
        dirt.told = dirt.told.max(told);
    }
}
