//! Flushes: devices with writes of the volume that no flush has covered, and devices that have lost some.
//!
//! One flush of a device is in flight at a time. Later callers wait for it, or share the next one. So the flush to which
//! the kernel reports a loss is never overtaken by one without that report. The same holds for durable writes, to which the
//! kernel reports losses as well: a successful flush waits for those in flight.
//!
//! # Report of a loss
//!
//! ```text
//!   write W answered     flush A ────────────┐ fails: W and X may be lost         A is answered with an error,
//!   ──────●─────────────────●──────X──────────●────────────────────●───────────── and so is every flush up to C,
//!                                  answered,  loss known           flush C begins which also reports X
//!                                  or in flight
//! ```
//!
//! A loss fails every flush that began before the loss was known. It also fails later flushes, until one has failed that
//! began after the answers to all requests that may be affected. The reason: a guest relates a failed flush only to
//! requests that were answered before the flush began. (One failed flush is enough if nothing was written meanwhile.) Only
//! a flush with a waiting guest reports a loss. A failed durable write is answered with an error, but that error does not
//! cover the writes before it.

use std::collections::VecDeque;

use rustix::io::Errno;
use units::DeviceId;
use volume::DeviceIo;

use super::grace::{Epoch, Grace};
use super::{DataRef, Engine, Failure, Fault, GuestOp, IoKind, IoState, Owner};

/// Durable write.
const DURABLE: IoKind = IoKind::Write { durable: true };

/// State of a device's flushes for a volume.
#[derive(Debug)]
pub(super) struct FlushState {
    /// True if writes of this volume have completed since the last flush began.
    pub(super) dirty: bool,
    /// Number of writes in flight.
    writing: u32,
    /// Durable writes in flight.
    durable: Grace,
    /// Set if the flush in flight is complete and waits for the durable writes from before its completion.
    done: Option<Epoch>,
    /// Waiters for the flush in flight; empty if none is in flight.
    running: Vec<Waiter>,
    /// Waiters for the flush after it.
    next: Vec<Waiter>,
    /// Number of known losses.
    losses: u64,
    /// Number of these losses for which all affected requests are answered.
    settled: u64,
    /// Epochs of the affected requests, for each of the other losses.
    unsettled: VecDeque<Epoch>,
    /// Number of losses that were reported to the guest.
    reported: u64,
    /// Cause of the last loss.
    loss: Option<Failure>,
    /// True if the device is lost: writes to it fail, so none can be lost.
    absent: bool,
}

/// Waiter for a flush.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub(super) owner: Owner,
    /// Number of reported losses at the start of the flush. The flush fails if there are more at its end.
    reported: u64,
    /// Number of losses that are reported completely if the flush fails.
    settled: u64,
    /// Number of changes that were answered before the start of the flush.
    changed: u64,
}

impl FlushState {
    fn new() -> Self {
        Self {
            // Writes of an earlier process may not be flushed.
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

    /// Returns all waiters.
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

    /// Records a loss on a device: writes that are not flushed, and those of requests in flight, may be lost.
    fn lost(&mut self, device: DeviceId, failure: Option<Failure>) {
        let in_flight = self.grace.end_epoch();
        let state = self.flush_state(device);
        state.losses += 1;
        state.loss = failure;
        state.unsettled.push_back(in_flight);
        self.lost_at_mirror(device, failure);
    }

    /// Returns true if a flush of the volume must reach a device.
    pub(super) fn is_to_flush(&mut self, part: &DeviceIo) -> bool {
        !(part.mirror && self.is_unread()) && self.needs_flush(part.device)
    }

    /// Records a failed flush of this device for another volume. Writes of this volume may be lost too, and the kernel does
    /// not report that again.
    pub fn flush_failed_elsewhere(&mut self, failure: Failure) {
        let device = failure.device;
        let state = self.flush_state(device);
        if state.dirty || !state.running.is_empty() || state.writing > 0 {
            self.lost(device, Some(failure));
        }
    }

    /// Marks a device as lost: from now on its I/O fails, except for flushes, which have nothing to do. With `unflushed`,
    /// writes to it that were not flushed may be lost, which is reported to the guest.
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

    /// Marks a device as usable again. Its data counts as not flushed.
    pub fn device_back(&mut self, device: DeviceId) {
        let holds = self.map.holders().iter().any(|h| h.0 == device);
        let state = self.flush_state(device);
        state.absent = false;
        state.dirty |= holds;
    }

    /// Returns the number of known losses of a device.
    pub(super) fn losses(&mut self, device: DeviceId) -> u64 {
        self.flush_state(device).losses
    }

    /// Returns the cause of the last loss.
    pub(super) fn loss(&mut self, device: DeviceId) -> Fault {
        let loss = self.flush_state(device).loss;
        loss.map_or(Fault::Io, Fault::Device)
    }

    /// Prepares for a new place on a device. The target of a running move or a mirror is prepared already.
    pub(super) fn comes_to(&mut self, device: DeviceId) {
        let mirrors = self.mirror.is_some() && self.move_target() != Some(device);
        if !self.map.relocating() || mirrors {
            self.begins_on(device);
        }
    }

    /// Ignores the losses from before, if the volume has no data on a device yet.
    pub(super) fn begins_on(&mut self, device: DeviceId) {
        let holds = self.map.holders().iter().any(|h| h.0 == device) || self.copies_up_to(device);
        if !holds && self.unsure.values().all(|d| *d != device) {
            let state = self.flush_state(device);
            state.reported = state.losses;
        }
    }

    /// Adds the devices of extents that may return after a crash to a flush. They must return with their last content.
    pub(super) fn cover_unsure(&self, parts: &mut Vec<DeviceIo>) {
        for device in self.unsure.values().copied() {
            match parts.iter_mut().find(|p| p.device == device) {
                Some(part) => part.mirror = false,
                None => parts.push(flush_of(device)),
            }
        }
    }

    /// Counts the start of an I/O that changes data.
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
                // The write includes a flush, so the kernel may have reported losses of other writes to it.
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

    /// Returns true if a flush has something to do on a device.
    pub(super) fn needs_flush(&mut self, device: DeviceId) -> bool {
        let state = self.flush_state(device);
        state.dirty || !state.running.is_empty() || state.losses > state.reported
    }

    /// Flushes a device for an owner, which receives the result in [`Engine::flushed`].
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
            state.running.push(waiter); // the flush in flight began after all writes that this one must cover
        }
    }

    fn begin_flush(&mut self, device: DeviceId) {
        let state = self.flush_state(device);
        state.running = std::mem::take(&mut state.next);
        state.dirty = false;
        self.start_io(Owner::Flush, flush_of(device), IoKind::Flush, DataRef::None);
    }

    /// Handles the end of the device's flush. The kernel may have reported a loss to an earlier durable write instead of
    /// the flush.
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

    /// Notes the losses that the answer of a failing request reports.
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

    /// Marks losses as reported. This happens with the answer, so that a later flush is not answered first, without the
    /// loss.
    pub(super) fn report_losses(&mut self, losses: &[(DeviceId, u64)]) {
        for (device, reported) in losses {
            let state = self.flush_state(*device);
            state.reported = state.reported.max(*reported);
        }
    }
}

/// Returns true if an I/O needs a flush to become durable.
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
