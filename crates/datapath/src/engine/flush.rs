//! What devices owe a volume: which hold writes that no flush has covered, and which have lost some.
//!
//! One flush of a device is in flight at a time; those who want one meanwhile wait for it, or share the next. So the flush
//! that the kernel tells of a loss is never overtaken by one that it tells nothing. Nor is a durable write, which the
//! kernel tells as well: a flush that succeeds waits for those in flight.
//!
//! # When a loss is told
//!
//! ```text
//!   write W answered     flush A ────────────┐ fails: W and X may be lost         A is answered with an error,
//!   ──────●─────────────────●──────X──────────●────────────────────●───────────── and so is every flush up to C,
//!                                  answered,  heard of             flush C begins which tells of X too
//!                                  or in flight
//! ```
//!
//! A loss fails every flush that began before it was heard of. It goes on to fail flushes until one has failed that began
//! after all requests were answered that may be hit, because a guest takes a failed flush for the fate of what was
//! answered before it began, and of nothing else. (One is enough if nothing was written meanwhile.) It is told only by a flush that somebody still waits for: a write that is durable by itself and fails is answered with an error,
//! but it is no answer for the writes before it.

use std::collections::VecDeque;

use rustix::io::Errno;
use units::DeviceId;
use volume::DeviceIo;

use super::grace::{Epoch, Grace};
use super::{DataRef, Engine, Failure, Fault, GuestOp, IoKind, IoState, Owner};

/// A write that is durable by itself.
const DURABLE: IoKind = IoKind::Write { durable: true };

/// What a device owes a volume.
#[derive(Debug)]
pub(super) struct Dirt {
    /// Writes of this volume completed since the last flush began.
    pub(super) dirty: bool,
    /// Writes in flight.
    writing: u32,
    /// Writes in flight that are durable by themselves.
    durable: Grace,
    /// The flush in flight is done, and waits for those that were in flight then.
    done: Option<Epoch>,
    /// Who waits for the flush in flight; it is one if there are any.
    running: Vec<Waiter>,
    /// Who waits for the one after it.
    next: Vec<Waiter>,
    /// Losses heard of.
    losses: u64,
    /// Those of them after which all requests that they may have hit are answered.
    settled: u64,
    /// The others: what has to be answered.
    unsettled: VecDeque<Epoch>,
    /// Losses that the guest was told of.
    told: u64,
    /// How the last of them came about.
    loss: Option<Failure>,
    /// The device is lost: nothing is written to it that could be lost.
    absent: bool,
}

/// Who waits for a flush.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    owner: Owner,
    /// Losses told when it began: if there are more in the end, it fails.
    told: u64,
    /// Losses that it tells for good when it fails.
    settled: u64,
    /// Changes answered when it began.
    changed: u64,
}

impl Dirt {
    fn new() -> Self {
        Self {
            // What an earlier process wrote may still wait for a flush.
            dirty: true,
            writing: 0,
            durable: Grace::new(),
            done: None,
            running: vec![],
            next: vec![],
            losses: 0,
            settled: 0,
            unsettled: VecDeque::new(),
            told: 0,
            loss: None,
            absent: false,
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

    /// Writes on a device may be lost: those that are not flushed, and those of requests in flight.
    fn lost(&mut self, device: DeviceId, failure: Option<Failure>) {
        let in_flight = self.grace.end_epoch();
        let dirt = self.dirt_of(device);
        dirt.losses += 1;
        dirt.loss = failure;
        dirt.unsettled.push_back(in_flight);
    }

    /// A flush of this device failed for somebody else: writes of this volume may be lost too, and the kernel will not say
    /// so again.
    pub fn flush_failed_elsewhere(&mut self, failure: Failure) {
        let device = failure.device;
        let dirt = self.dirt_of(device);
        if dirt.dirty || !dirt.running.is_empty() || dirt.writing > 0 {
            self.lost(device, Some(failure));
        }
    }

    /// The device cannot be used any more: its I/O fails from here on, but for flushes, which have nothing to do. `unflushed` says
    /// that what was written to it and not flushed may be lost, and that its guest is to be told so.
    pub fn device_lost(&mut self, device: DeviceId, unflushed: bool) {
        if unflushed {
            self.flush_failed_elsewhere(Failure::new(device, IoKind::Flush, Errno::NODEV));
        }
        let dirt = self.dirt_of(device);
        dirt.dirty = false;
        dirt.absent = true;
    }

    /// The device can be used again; what is written to it is to be flushed.
    pub fn device_back(&mut self, device: DeviceId) {
        let holds = self.map.holders().iter().any(|h| h.0 == device);
        let dirt = self.dirt_of(device);
        dirt.absent = false;
        dirt.dirty |= holds;
    }

    /// Losses of a device that were heard of.
    pub(super) fn losses(&mut self, device: DeviceId) -> u64 {
        self.dirt_of(device).losses
    }

    /// How the last of them came about.
    pub(super) fn loss(&mut self, device: DeviceId) -> Fault {
        let loss = self.dirt_of(device).loss;
        loss.map_or(Fault::Io, Fault::Device)
    }

    /// The volume comes to a device on which it has nothing: what was lost there is not its own.
    pub(super) fn begins_on(&mut self, device: DeviceId) {
        let holds = self.map.holders().iter().any(|h| h.0 == device) || self.copies_up_to(device);
        if !holds && self.unsure.values().all(|d| *d != device) {
            let dirt = self.dirt_of(device);
            dirt.told = dirt.losses;
        }
    }

    /// A flush covers also the devices of extents that a crash may bring back: their last contents, not older ones.
    pub(super) fn cover_unsure(&self, parts: &mut Vec<DeviceIo>) {
        for device in self.unsure.values().copied() {
            match parts.iter_mut().find(|p| p.device == device) {
                Some(part) => part.mirror = false,
                None => parts.push(flush_of(device)),
            }
        }
    }

    /// A write, or the like, begins.
    #[inline]
    pub(super) fn write_begins(&mut self, device: DeviceId, kind: IoKind) -> Option<Epoch> {
        if leaves_dirt(kind) {
            self.dirt_of(device).writing += 1;
        }
        (kind == DURABLE).then(|| self.dirt_of(device).durable.enter())
    }

    /// It is over.
    #[inline]
    pub(super) fn write_is_over(&mut self, io: &IoState, result: Result<(), Fault>) {
        if leaves_dirt(io.kind) {
            let dirt = self.dirt_of(io.device);
            dirt.dirty |= !dirt.absent;
            dirt.writing -= 1;
        } else if let Some(epoch) = io.epoch {
            if let Err(fault) = result
                && !self.dirt_of(io.device).absent
            {
                // It flushes, and may have been told of what others lost.
                self.dirt_of(io.device).dirty = true;
                self.lost(io.device, fault.failure());
            }
            let dirt = self.dirt_of(io.device);
            dirt.durable.leave(epoch);
            if dirt.done.take_if(|e| dirt.durable.passed(*e)).is_some() {
                self.flush_is_over(io.device, Ok(()));
            }
        }
    }

    /// Whether a flush has something to do on a device.
    pub(super) fn needs_flush(&mut self, device: DeviceId) -> bool {
        let dirt = self.dirt_of(device);
        dirt.dirty || !dirt.running.is_empty() || dirt.losses > dirt.told
    }

    /// Flushes a device for somebody, who is told by [`Engine::flushed`].
    pub(super) fn start_flush(&mut self, owner: Owner, device: DeviceId) {
        let (grace, changed) = (&self.grace, self.changed);
        let dirt = &mut self.dirt[device.index()];
        while let Some(first) = dirt.unsettled.front()
            && grace.passed(*first)
        {
            dirt.unsettled.pop_front();
            dirt.settled += 1;
        }
        let waiter = Waiter {
            owner,
            told: dirt.told,
            settled: dirt.settled,
            changed,
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
        self.start_io(Owner::Flush, flush_of(device), IoKind::Flush, DataRef::None);
    }

    /// The device has done the flush in flight. A durable write may have been told before it what it was not told.
    pub(super) fn flush_done(&mut self, device: DeviceId, result: Result<(), Fault>) {
        let dirt = self.dirt_of(device);
        let before = dirt.durable.end_epoch();
        if result.is_ok() && !dirt.durable.passed(before) {
            dirt.done = Some(before);
            return;
        }
        self.flush_is_over(device, result);
    }

    fn flush_is_over(&mut self, device: DeviceId, result: Result<(), Fault>) {
        let dirt = self.dirt_of(device);
        let waiters = std::mem::take(&mut dirt.running);
        if let Err(fault) = result {
            dirt.dirty = true;
            self.lost(device, fault.failure());
        }
        if !self.dirt_of(device).next.is_empty() {
            self.begin_flush(device);
        }
        for waiter in waiters {
            let lost = self.losses(device) > waiter.told;
            let result = if lost { Err(self.loss(device)) } else { result };
            match waiter.owner {
                Owner::Guest { request, mirror } => {
                    let harmless = result.is_err_and(|fault| mirror && self.mirror_failed(fault));
                    if result.is_err() && !harmless {
                        self.tell(device, waiter, request);
                    }
                    let result = if harmless { Ok(()) } else { result };
                    self.part_done(request, false, result);
                }
                Owner::MoveFlush { batch } => self.move_flush_done(batch),
                Owner::CopyUpFlush(number) => self.copy_up_flushed(number),
                Owner::BehindFlush(number) => self.behind_flushed(number, device),
                Owner::RestFlush(number) => self.flushed_at_rest(number, result),
                _ => unreachable!("others do not wait for flushes"),
            }
        }
    }

    /// A request is going to fail because of losses: notes what its answer will tell.
    fn tell(&mut self, device: DeviceId, waiter: Waiter, request: u32) {
        let quiet = self.changed == waiter.changed && self.changing == 0;
        let told = if quiet {
            self.losses(device)
        } else {
            waiter.settled
        };
        let state = &mut self.requests[request as usize];
        if state.request.op == GuestOp::Flush {
            state.tells.push((device, told));
        }
    }

    /// The guest is told. Not before: a flush that began later must not be answered first, and know of nothing.
    pub(super) fn told(&mut self, tells: &[(DeviceId, u64)]) {
        for (device, told) in tells {
            let dirt = self.dirt_of(*device);
            dirt.told = dirt.told.max(*told);
        }
    }
}

/// Whether a flush has to follow.
fn leaves_dirt(kind: IoKind) -> bool {
    !matches!(kind, IoKind::Read | IoKind::Flush | DURABLE)
}

fn flush_of(device: DeviceId) -> DeviceIo {
    DeviceIo {
        device,
        op: model::Op::Flush,
        offset: 0,
        length: 0,
        at: 0,
        mirror: false,
    }
}

#[cfg(test)]
mod tests;
