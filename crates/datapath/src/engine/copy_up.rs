//! Gives extents of which others read the slots too ones of their own, before they are written to.
//!
//! ```text
//!   write to a shared extent ──▶ asked ──▶ copied, piece by piece ──▶ flushed ──▶ stored ──▶ write goes on
//!     waits                        │ alone in its slot: write goes on      │ unknown: asked again
//!                                  ▼ no space, a device that fails: the write fails, the extent stays as it is
//! ```
//!
//! Nobody writes to the extent meanwhile, and what is read comes from its old slot. That is free for the store when no read in flight knows it;
//! the store knows who else has it.

use units::DeviceId;
use volume::{DeviceIo, Location};

use super::places::Quarantined;
use super::retry::{Retry, overlap};
use super::{DataRef, Effect, Engine, Fault, IoKind, Owner, StoreRequest, Zeroes};

/// Extents of a volume that are copied at a time: their guest waits for each, and there is memory for a piece of each.
pub(super) const COPY_UPS_MAX: usize = 4;

const PIECE_BYTES: u64 = 256 << 10;

/// How long to wait before the store is asked again whether it has the new place.
pub(super) const ASK_AGAIN_NS: u64 = 100_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The store was asked for a slot.
    Asked,
    /// It could not say, and is asked again at this time.
    NotNow { again_ns: u64 },
    /// A piece is being read, written, or all of it flushed.
    Copying,
    /// The store was asked to make it the extent's place.
    Storing,
    /// It may have, and is asked again at this time. Both slots hold the same bytes.
    Unknown { again_ns: u64 },
}

/// An extent that is being copied.
#[derive(Debug)]
pub(super) struct CopyUp {
    extent: u32,
    from: Location,
    to: Location,
    /// Bytes copied.
    done: u64,
    /// Losses that the target had before.
    losses: u64,
    phase: Phase,
}

impl<G> Engine<G> {
    /// Extents that a write touches are to be alone in their slots.
    pub(super) fn ask_for_copies(&mut self, extents: std::ops::Range<u32>) {
        for extent in extents {
            self.is_wanted_now(extent);
            if self.copy_ups.len() >= COPY_UPS_MAX {
                return; // it is asked again when one is over
            }
            if !self.map.begin_copy_up(extent as usize) {
                continue;
            }
            let from = self.map.location(extent as usize);
            let from = from.expect("what is shared has a place");
            self.copy_ups.insert(CopyUp {
                extent,
                from,
                to: from,
                done: 0,
                losses: 0,
                phase: Phase::Asked,
            });
            // What moves goes to where it is going; the others stay on their device while it has room.
            let order = self.moves_by();
            let moves = order.filter(|o| o.selection().contains(extent as usize));
            let prefer = moves.map_or(from.device, |o| o.to);
            self.effects.push(Effect::Store(StoreRequest::Unshare {
                extent,
                from,
                prefer,
            }));
        }
    }

    fn ask_for_slot(&mut self, number: u32) {
        let copy = &mut self.copy_ups[number as usize];
        copy.phase = Phase::Asked;
        let (extent, from) = (copy.extent, copy.from);
        if !self.is_awaited(extent) {
            return self.end_copy_up(number, Some(Fault::Io)); // whoever waited was answered
        }
        let prefer = from.device;
        self.effects.push(Effect::Store(StoreRequest::Unshare {
            extent,
            from,
            prefer,
        }));
    }

    fn copy_up_of(&self, extent: u32) -> u32 {
        let mut all = self.copy_ups.iter();
        let found = all.find(|(_, c)| c.extent == extent);
        found.expect("the store answers what was asked").0 as u32
    }

    /// The store's answer: a slot to copy to, or none if nobody else has the extent's.
    pub(super) fn unshared(&mut self, extent: u32, to: Result<Option<Location>, Fault>) {
        let number = self.copy_up_of(extent);
        match to {
            Ok(None) => self.end_copy_up(number, None),
            // The store cannot say now: it may soon, while somebody waits.
            Err(Fault::Io) if self.is_awaited(extent) => {
                let again_ns = self.now_ns + ASK_AGAIN_NS;
                self.copy_ups[number as usize].phase = Phase::NotNow { again_ns };
                self.effects.push(Effect::Wake(again_ns));
            }
            Err(fault) => self.end_copy_up(number, Some(fault)),
            Ok(Some(to)) => {
                self.comes_to(to.device);
                let losses = self.losses(to.device);
                let copy = &mut self.copy_ups[number as usize];
                (copy.to, copy.losses, copy.phase) = (to, losses, Phase::Copying);
                self.copy_piece(number, IoKind::Read);
            }
        }
    }

    /// Whether a request waits that touches an extent.
    fn is_awaited(&self, extent: u32) -> bool {
        let extent_bytes = self.map.extent_bytes().0;
        let begin = u64::from(extent) * extent_bytes;
        let bytes = begin..begin + extent_bytes;
        let requests = self.waiting.iter().map(|id| &self.requests[*id as usize]);
        requests
            .map(|s| s.request.bytes())
            .any(|b| overlap(&b, &bytes))
    }

    /// It stays in its slot: alone there, or because of a fault.
    fn end_copy_up(&mut self, number: u32, fault: Option<Fault>) {
        let copy = self.copy_ups.remove(number as usize);
        let alone = fault.is_none();
        self.map.not_copied_up(copy.extent as usize, alone);
        if copy.phase == Phase::Copying {
            let slots = vec![copy.to];
            let free = StoreRequest::Free { slots };
            self.effects.push(Effect::Store(free));
        }
        if let Some(fault) = fault {
            self.fail_waiting(&[copy.extent], fault);
        }
        self.retry = Retry::All;
    }

    /// Reads the next piece, or writes it.
    fn copy_piece(&mut self, number: u32, kind: IoKind) {
        let copy = &self.copy_ups[number as usize];
        let bytes = self.map.bytes_of(copy.extent as usize).0;
        let extent_bytes = self.map.extent_bytes().0;
        let (owner, at) = match kind {
            IoKind::Read => (Owner::CopyUpRead(number), copy.from),
            _ => (Owner::CopyUpWrite(number), copy.to),
        };
        let part = DeviceIo {
            device: at.device,
            op: model::Op::Read,
            offset: 0,
            length: PIECE_BYTES.min(bytes - copy.done),
            at: u64::from(at.slot) * extent_bytes + copy.done,
            mirror: false,
        };
        let data = match kind {
            IoKind::Zero => DataRef::None,
            _ => DataRef::CopyUp(number),
        };
        self.start_io(owner, part, kind, data);
    }

    pub(super) fn copy_up_read(&mut self, number: u32, result: Result<(), Fault>, zeroes: Zeroes) {
        if let Err(fault) = result {
            return self.end_copy_up(number, Some(fault));
        }
        self.copy_piece(
            number,
            match zeroes {
                Zeroes::No => IoKind::Write { durable: false },
                Zeroes::All => IoKind::Zero,
            },
        );
    }

    pub(super) fn copy_up_written(&mut self, number: u32, result: Result<(), Fault>) {
        if let Err(fault) = result {
            return self.end_copy_up(number, Some(fault));
        }
        let copy = &mut self.copy_ups[number as usize];
        let bytes = self.map.bytes_of(copy.extent as usize).0;
        copy.done += PIECE_BYTES.min(bytes - copy.done);
        let (over, device) = (copy.done == bytes, copy.to.device);
        match over {
            false => self.copy_piece(number, IoKind::Read),
            true => self.start_flush(Owner::CopyUpFlush(number), device),
        }
    }

    /// The flush of the target is over. What was copied may be lost if the target lost something since, whoever's flush told of it.
    pub(super) fn copy_up_flushed(&mut self, number: u32) {
        let copy = &self.copy_ups[number as usize];
        let (device, losses) = (copy.to.device, copy.losses);
        if self.losses(device) > losses {
            let loss = self.loss(device);
            return self.end_copy_up(number, Some(loss));
        }
        self.store_copy_up(number);
    }

    fn store_copy_up(&mut self, number: u32) {
        let copy = &mut self.copy_ups[number as usize];
        copy.phase = Phase::Storing;
        let (extent, at) = (copy.extent, copy.to);
        self.effects
            .push(Effect::Store(StoreRequest::CopyUp { extent, at }));
    }

    /// The store has made it the extent's place, or cannot say.
    pub(super) fn copied_up(&mut self, extent: u32, done: Result<(), Fault>) {
        let number = self.copy_up_of(extent);
        if done.is_err() {
            let again_ns = self.now_ns + ASK_AGAIN_NS;
            self.copy_ups[number as usize].phase = Phase::Unknown { again_ns };
            return self.effects.push(Effect::Wake(again_ns));
        }
        let copy = self.copy_ups.remove(number as usize);
        let before = self.map.copied_up(extent as usize, Some(copy.to));
        self.leave(vec![before]);
    }

    /// Extents are elsewhere, durably: whoever reads their old places still knows those.
    pub(super) fn leave(&mut self, slots: Vec<Location>) {
        let epoch = self.grace.end_epoch();
        self.quarantine.push(Quarantined {
            extents: vec![],
            slots,
            epoch,
            durable: true,
            waiter: None,
        });
        self.retry = Retry::All;
    }

    /// Asks the store again where it could not say.
    pub(super) fn ask_store_again(&mut self) {
        for number in 0..COPY_UPS_MAX as u32 {
            let phase = self.copy_ups.get(number as usize).map(|c| c.phase);
            match phase {
                Some(Phase::Unknown { again_ns }) if again_ns <= self.now_ns => {
                    self.store_copy_up(number);
                }
                Some(Phase::NotNow { again_ns }) if again_ns <= self.now_ns => {
                    self.ask_for_slot(number);
                }
                _ => {}
            }
        }
    }

    /// Whether an extent is being given a slot of its own.
    pub fn copies_up(&self) -> bool {
        !self.copy_ups.is_empty() || !self.behind_is_quiet()
    }

    /// Whether one is on a device.
    pub(super) fn copies_up_to(&self, device: DeviceId) -> bool {
        let to = |c: &CopyUp| c.to != c.from && c.to.device == device;
        let behind = self.behind.as_ref().is_some_and(|b| b.copies_to(device));
        behind || self.copy_ups.iter().any(|(_, c)| to(c))
    }
}
