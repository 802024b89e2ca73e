//! Copy-up: gives an extent in a shared slot its own slot before it is written.
//!
//! ```text
//!   write to a shared extent ──▶ slot requested ──▶ copied, piece by piece ──▶ flushed ──▶ stored ──▶ write continues
//!     waits                        │ alone in its slot: write continues           │ unknown: requested again
//!                                  ▼ no space, or a device fails: the write fails, the extent stays as it is
//! ```
//!
//! Nobody writes to the extent meanwhile, and reads go to its old slot. The engine releases the old slot when no read in
//! flight uses it. The keeper knows if other volumes still share it.

use units::DeviceId;
use volume::{DeviceIo, Location};

use super::places::QuarantinedSlots;
use super::retry::{Retry, overlap};
use super::{DataRef, Effect, Engine, Fault, IoKind, Owner, StoreRequest, Zeroes};

/// Number of extents of a volume that are copied up at a time. A guest waits for each of them, and each has a buffer for
/// one piece.
pub(super) const COPY_UPS_MAX: usize = 4;

const PIECE_BYTES: u64 = 256 << 10;

/// Time until the next request to the keeper if the durability of a new place is unknown.
pub(super) const ASK_AGAIN_NS: u64 = 100_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A slot is requested from the keeper.
    Asked,
    /// The keeper could not reply; time of the next request.
    NotNow { again_ns: u64 },
    /// A piece is read or written, or the target is flushed.
    Copying,
    /// The keeper stores the new place.
    Storing,
    /// It is unknown if the new place is durable; time of the next request. Both slots have the same data.
    Unknown { again_ns: u64 },
}

/// Extent that is copied up.
#[derive(Debug)]
pub(super) struct CopyUp {
    extent: u32,
    from: Location,
    to: Location,
    /// Number of copied bytes.
    done: u64,
    /// Number of losses of the target before the copy.
    losses: u64,
    phase: Phase,
}

impl<G> Engine<G> {
    /// Starts copy-ups of the extents that a write touches.
    pub(super) fn ask_for_copies(&mut self, extents: std::ops::Range<u32>) {
        for extent in extents {
            self.is_wanted_now(extent);
            if self.copy_ups.len() >= COPY_UPS_MAX {
                return; // another attempt follows when a copy-up ends
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
            // An extent that moves goes to the target of the move. The others stay on their device while it has room.
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
            return self.end_copy_up(number, Some(Fault::Io)); // the waiting requests have been answered
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

    /// Handles the keeper's reply: a slot for the copy, or none if no one else uses the extent's slot.
    pub(super) fn unshared(&mut self, extent: u32, to: Result<Option<Location>, Fault>) {
        let number = self.copy_up_of(extent);
        match to {
            Ok(None) => self.end_copy_up(number, None),
            // The keeper cannot reply now. Another request follows while a guest waits.
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

    /// Returns true if a waiting request touches an extent.
    fn is_awaited(&self, extent: u32) -> bool {
        let extent_bytes = self.map.extent_bytes().0;
        let begin = u64::from(extent) * extent_bytes;
        let bytes = begin..begin + extent_bytes;
        let requests = self.waiting.iter().map(|id| &self.requests[*id as usize]);
        requests
            .map(|s| s.request.bytes())
            .any(|b| overlap(&b, &bytes))
    }

    /// Ends a copy-up whose extent stays in its slot: the extent is alone there, or the copy-up has failed.
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

    /// Reads or writes the next piece.
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

    /// Handles the flush of the target. Any loss that the device reported since the start of the copy, to any volume, may
    /// be of copied data.
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

    /// Handles the keeper's reply: the new place is durable, or that is unknown.
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

    /// Quarantines the old slots of extents that have a new durable place: reads in flight still use them.
    pub(super) fn leave(&mut self, slots: Vec<Location>) {
        let epoch = self.grace.end_epoch();
        self.quarantine.push(QuarantinedSlots {
            extents: vec![],
            slots,
            epoch,
            durable: true,
            waiter: None,
        });
        self.retry = Retry::All;
    }

    /// Repeats requests to the keeper whose result is unknown.
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

    /// Returns true if an extent is copied up or imported.
    pub fn copies_up(&self) -> bool {
        !self.copy_ups.is_empty() || !self.behind_is_quiet()
    }

    /// Returns true if such a copy goes to a device.
    pub(super) fn copies_up_to(&self, device: DeviceId) -> bool {
        let to = |c: &CopyUp| c.to != c.from && c.to.device == device;
        let behind = self.behind.as_ref().is_some_and(|b| b.copies_to(device));
        behind || self.copy_ups.iter().any(|(_, c)| to(c))
    }
}
