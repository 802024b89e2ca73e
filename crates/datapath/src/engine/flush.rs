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
pub(super) struct FlushState {
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
    reported: u64,
    /// How the last of them came about.
    loss: Option<Failure>,
    /// The device is lost: nothing is written to it that could be lost.
    absent: bool,
}

/// Who waits for a flush.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub(super) owner: Owner,
    /// Losses told when it began: if there are more in the end, it fails.
    reported: u64,
    /// Losses that it tells for good when it fails.
    settled: u64,
    /// Changes answered when it began.
    changed: u64,
}

impl FlushState {
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
            reported: 0,
            loss: None,
            absent: false,
        }
    }

    /// Who waits for a flush.
    pub(super) fn waiters(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.running.iter_mut().chain(&mut self.next)
    }
}

impl<G> Engine<G> {
    pub(super) fn flush_state(&mut self, device: DeviceId) -> &mut FlushState {
        let i = device.index();
        if self.flush_states.len() <= i {
            self.flush_states.resize_with(i + 1, FlushState::new);
        }
        &mut self.flush_states[i]
    }

    /// Writes on a device may be lost: those that are not flushed, and those of requests in flight.
    fn lost(&mut self, device: DeviceId, failure: Option<Failure>) {
        let in_flight = self.grace.end_epoch();
        let state = self.flush_state(device);
        state.losses += 1;
        state.loss = failure;
        state.unsettled.push_back(in_flight);
        self.lost_at_mirror(device, failure);
    }

    /// Whether a flush of the volume has to reach a device.
    pub(super) fn is_to_flush(&mut self, part: &DeviceIo) -> bool {
        !(part.mirror && self.is_unread()) && self.needs_flush(part.device)
    }

    /// A flush of this device failed for somebody else: writes of this volume may be lost too, and the kernel will not say
    /// so again.
    pub fn flush_failed_elsewhere(&mut self, failure: Failure) {
        let device = failure.device;
        let state = self.flush_state(device);
        if state.dirty || !state.running.is_empty() || state.writing > 0 {
            self.lost(device, Some(failure));
        }
    }

    /// The device cannot be used any more: its I/O fails from here on, but for flushes, which have nothing to do. `unflushed` says
    /// that what was written to it and not flushed may be lost, and that its guest is to be told so.
    pub fn device_lost(&mut self, device: DeviceId, unflushed: bool) {
        if unflushed {
            self.flush_failed_elsewhere(Failure::new(device, IoKind::Flush, Errno::NODEV));
        }
        let state = self.flush_state(device);
        state.dirty = false;
        state.absent = true;
        let gone = Failure::new(device, IoKind::Flush, Errno::NODEV);
        self.lost_at_mirror(device, Some(gone));
    }

    /// The device can be used again; what is written to it is to be flushed.
    pub fn device_back(&mut self, device: DeviceId) {
        let holds = self.map.holders().iter().any(|h| h.0 == device);
        let state = self.flush_state(device);
        state.absent = false;
        state.dirty |= holds;
    }

    /// Losses of a device that were heard of.
    pub(super) fn losses(&mut self, device: DeviceId) -> u64 {
        self.flush_state(device).losses
    }

    /// How the last of them came about.
    pub(super) fn loss(&mut self, device: DeviceId) -> Fault {
        let loss = self.flush_state(device).loss;
        loss.map_or(Fault::Io, Fault::Device)
    }

    /// It gets a place on a device. What a running move has on its target is its own already, and so is what a mirror has.
    pub(super) fn comes_to(&mut self, device: DeviceId) {
        let mirrors = self.mirror.is_some() && self.move_target() != Some(device);
        if !self.map.relocating() || mirrors {
            self.begins_on(device);
        }
    }

    /// The volume comes to a device on which it has nothing: what was lost there is not its own.
    pub(super) fn begins_on(&mut self, device: DeviceId) {
        let holds = self.map.holders().iter().any(|h| h.0 == device) || self.copies_up_to(device);
        if !holds && self.unsure.values().all(|d| *d != device) {
            let state = self.flush_state(device);
            state.reported = state.losses;
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
        if leaves_unflushed(kind) {
            self.flush_state(device).writing += 1;
        }
        (kind == DURABLE).then(|| self.flush_state(device).durable.enter())
    }

    #[inline]
    pub(super) fn write_is_over(&mut self, io: &IoState, result: Result<(), Fault>) {
        if leaves_unflushed(io.kind) {
            let state = self.flush_state(io.device);
            state.dirty |= !state.absent;
            state.writing -= 1;
        } else if let Some(epoch) = io.epoch {
            if let Err(fault) = result
                && !self.flush_state(io.device).absent
            {
                // It flushes, and may have been told of what others lost.
                self.flush_state(io.device).dirty = true;
                self.lost(io.device, fault.failure());
            }
            let state = self.flush_state(io.device);
            state.durable.leave(epoch);
            if state.done.take_if(|e| state.durable.passed(*e)).is_some() {
                self.flush_is_over(io.device, Ok(()));
            }
        }
    }

    /// Whether a flush has something to do on a device.
    pub(super) fn needs_flush(&mut self, device: DeviceId) -> bool {
        let state = self.flush_state(device);
        state.dirty || !state.running.is_empty() || state.losses > state.reported
    }

    /// Flushes a device for somebody, who is told by [`Engine::flushed`].
    pub(super) fn start_flush(&mut self, owner: Owner, device: DeviceId) {
        let (grace, changed) = (&self.grace, self.changed);
        let state = &mut self.flush_states[device.index()];
        while let Some(first) = state.unsettled.front()
            && grace.passed(*first)
        {
            state.unsettled.pop_front();
            state.settled += 1;
        }
        let waiter = Waiter {
            owner,
            reported: state.reported,
            settled: state.settled,
            changed,
        };
        if state.running.is_empty() {
            state.next.push(waiter);
            self.begin_flush(device);
        } else if state.dirty {
            state.next.push(waiter);
        } else {
            state.running.push(waiter); // it began after all that this one is to cover
        }
    }

    fn begin_flush(&mut self, device: DeviceId) {
        let state = self.flush_state(device);
        state.running = std::mem::take(&mut state.next);
        state.dirty = false;
        self.start_io(Owner::Flush, flush_of(device), IoKind::Flush, DataRef::None);
    }

    /// The device has done the flush in flight. A durable write may have been told before it what it was not told.
    pub(super) fn flush_done(&mut self, device: DeviceId, result: Result<(), Fault>) {
        let state = self.flush_state(device);
        let before = state.durable.end_epoch();
        if result.is_ok() && !state.durable.passed(before) {
            state.done = Some(before);
            return;
        }
        self.flush_is_over(device, result);
    }

    fn flush_is_over(&mut self, device: DeviceId, result: Result<(), Fault>) {
        let state = self.flush_state(device);
        let waiters = std::mem::take(&mut state.running);
        state.dirty |= result.is_err();
        debug_assert!(self.telling.is_empty(), "one flush is over at a time");
        self.telling.extend(waiters);
        if let Err(fault) = result {
            self.lost(device, fault.failure());
        }
        if !self.flush_state(device).next.is_empty() {
            self.begin_flush(device);
        }
        while let Some(waiter) = self.telling.front().copied() {
            let lost = self.losses(device) > waiter.reported;
            let result = if lost { Err(self.loss(device)) } else { result };
            let mirrors = matches!(waiter.owner, Owner::Guest { mirror: true, .. });
            let harmless = result.is_err_and(|fault| mirrors && self.mirror_failed(fault));
            let waiter = self.telling.pop_front().expect("it was just looked at");
            match waiter.owner {
                Owner::Guest { request, mirror } => {
                    if result.is_err() && !harmless {
                        self.tell(device, waiter, request);
                    }
                    let result = if harmless { Ok(()) } else { result };
                    self.part_done(request, mirror, result);
                }
                Owner::MoveFlush { batch } => self.move_flush_done(batch),
                Owner::MirrorFlush { batch } => self.mirror_flushed(batch, result),
                Owner::Straggler(number) => self.straggler_done(number),
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
        let reported = if quiet {
            self.losses(device)
        } else {
            waiter.settled
        };
        let state = &mut self.requests[request as usize];
        if state.request.op == GuestOp::Flush {
            state.reports_losses.push((device, reported));
        }
    }

    /// The guest is told. Not before: a flush that began later must not be answered first, and know of nothing.
    pub(super) fn report_losses(&mut self, losses: &[(DeviceId, u64)]) {
        for (device, reported) in losses {
            let state = self.flush_state(*device);
            state.reported = state.reported.max(*reported);
        }
    }
}

/// Whether a flush has to follow.
fn leaves_unflushed(kind: IoKind) -> bool {
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
