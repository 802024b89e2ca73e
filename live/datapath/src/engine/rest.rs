//! Rest of a volume, for a snapshot: all acknowledged writes are in the snapshot, and no request is carried out partially.
//!
//! ```text
//!  rest() ──▶ the batch of a move ends ──▶ changes wait ──▶ those in flight end ──▶ flushed ──▶ Effect::AtRest ──▶ go_on()
//! ```
//!
//! Reads and flushes of the guest continue. The flush of the rest answers no guest: if it reports a loss, the rest fails,
//! and the guest receives the loss with its own next flush.

use units::DeviceId;

use super::retry::Retry;
use super::{Effect, Engine, Fault, Owner, StopReason};

/// Time after which an attempt to come to rest fails, and changes continue. Protects the guest.
const REST_NS: u64 = 5_000_000_000;

/// Stage on the way to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// A batch of a move is in flight; changes continue.
    Move { until_ns: u64 },
    /// New changes wait, and some are in flight.
    Changes { until_ns: u64 },
    /// Devices are flushed; `left` of them are not complete.
    Flush {
        until_ns: u64,
        left: u32,
        failed: Option<Fault>,
    },
    /// Nothing changes.
    Still,
}

impl<G> Engine<G> {
    /// Brings the volume to rest, with all acknowledged writes durable. [`Effect::AtRest`] reports the result. The rest
    /// lasts until [`Engine::go_on`]. Returns the number of this rest; none if the volume is already on its way to rest or
    /// at rest.
    pub fn rest(&mut self, now_ns: u64) -> Option<u32> {
        self.now_ns = now_ns;
        if self.rest.is_some() {
            return None;
        }
        let until_ns = now_ns + REST_NS;
        self.rests += 1;
        self.rest = Some(Rest::Move { until_ns });
        self.mirror_makes_way(StopReason::MadeWay("a snapshot"));
        self.settle();
        Some(self.rests)
    }

    /// Ends the rest with this number, and continues the waiting requests. With `shared`, a snapshot was taken, and the
    /// slots of the volume are shared from now on.
    pub fn go_on(&mut self, now_ns: u64, number: u32, shared: bool) {
        self.now_ns = now_ns;
        if self.rest != Some(Rest::Still) || number != self.rests {
            return; // another rest
        }
        if shared {
            self.map.share_all();
        }
        self.rest = None;
        self.retry = Retry::All;
        self.settle();
    }

    /// Ends a rest or an attempt to reach one, and continues the waiting requests.
    pub fn end_rest(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.rest.take().is_some() {
            self.retry = Retry::All;
        }
        self.settle();
    }

    /// Returns the number of the last rest.
    pub fn rest_number(&self) -> u32 {
        self.rests
    }

    /// Returns true if the volume is on its way to rest, or at rest.
    pub fn rests(&self) -> bool {
        self.rest.is_some()
    }

    /// Returns true if changes have to wait.
    #[inline]
    pub(super) fn changes_wait(&self) -> bool {
        matches!(
            self.rest,
            Some(Rest::Changes { .. } | Rest::Flush { .. } | Rest::Still)
        )
    }

    /// Returns true if a move may not start its next batch.
    pub(super) fn moves_wait(&self) -> bool {
        (self.rest.is_some() || self.moves_held) && !self.map.relocating()
    }

    /// Suspends a move at the end of its batch, or continues it. Guests are not affected.
    pub fn hold_moves(&mut self, now_ns: u64, held: bool) {
        self.now_ns = now_ns;
        self.moves_held = held;
        if held {
            self.mirror_makes_way(StopReason::MadeWay("a take-over"));
        }
        self.settle();
    }

    /// Returns true if no batch of a move is in flight, and no import is running.
    pub fn is_between_batches(&self) -> bool {
        let between = self.mover.as_ref().is_none_or(|m| m.is_between());
        between && !self.map.relocating() && self.behind.is_none()
    }

    /// Returns true if no operation of any kind is in flight, and the durable map is equal to the map of the engine. Late
    /// writes that were answered with an error count as in flight.
    pub fn is_still(&self) -> bool {
        self.requests.is_empty()
            && self.ios.is_empty()
            && self.placing.is_empty()
            && self.quarantine.is_empty()
            && self.unsure.is_empty()
            && self.zombies == 0
            && !self.copies_up()
            && self.is_between_batches()
    }

    fn nothing_changes(&self) -> bool {
        self.changing == 0
            && self.placing.is_empty()
            && !self.copies_up()
            && self.quarantine.iter().all(|q| q.durable)
    }

    /// Starts the next stage on the way to rest.
    pub(super) fn come_to_rest(&mut self) {
        let between = self.mover.as_ref().is_none_or(|m| m.is_between());
        if let Some(Rest::Move { until_ns }) = self.rest
            && between
            && !self.map.relocating()
        {
            self.rest = Some(Rest::Changes { until_ns });
        }
        if let Some(Rest::Changes { until_ns }) = self.rest
            && self.nothing_changes()
        {
            self.flush_at_rest(until_ns);
        }
    }

    fn flush_at_rest(&mut self, until_ns: u64) {
        let holders: Vec<DeviceId> = self.map.holders().iter().map(|h| h.0).collect();
        let mut dirty = holders;
        dirty.retain(|device| self.needs_flush(*device));
        // One more than the devices, so that the stage does not end before all flushes have started.
        let left = dirty.len() as u32 + 1;
        let failed = None;
        self.rest = Some(Rest::Flush {
            until_ns,
            left,
            failed,
        });
        let number = self.rests;
        for device in dirty {
            self.start_flush(Owner::RestFlush(number), device);
        }
        self.flushed_at_rest(number, Ok(()));
    }

    /// Handles the flush of a device.
    pub(super) fn flushed_at_rest(&mut self, number: u32, result: Result<(), Fault>) {
        let Some(Rest::Flush { left, failed, .. }) = &mut self.rest else {
            return; // stopped meanwhile
        };
        if number != self.rests {
            return; // likewise, and this is another rest
        }
        *left -= 1;
        *failed = result.err().or(*failed);
        match (*left, *failed) {
            (0, None) => {
                self.rest = Some(Rest::Still);
                self.effects.push(Effect::AtRest(Ok(())));
            }
            (0, Some(fault)) => self.no_rest(fault),
            _ => {}
        }
    }

    fn no_rest(&mut self, why: Fault) {
        self.rest = None;
        self.retry = Retry::All;
        self.effects.push(Effect::AtRest(Err(why)));
    }

    /// Fails an attempt to come to rest that has taken too long.
    pub(super) fn rest_in_time(&mut self) {
        if let Some(
            Rest::Move { until_ns } | Rest::Changes { until_ns } | Rest::Flush { until_ns, .. },
        ) = self.rest
            && until_ns < self.now_ns
        {
            self.no_rest(Fault::Io);
        }
    }
}
