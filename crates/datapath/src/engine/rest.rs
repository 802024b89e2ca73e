//! Brings a volume to rest for a moment, so that what it is then can be kept: all that was answered is in it, and nothing that was not begun.
//!
//! ```text
//!  rest() ──▶ the batch of a move ends ──▶ changes wait ──▶ those in flight end ──▶ flushed ──▶ Effect::AtRest ──▶ go_on()
//! ```
//!
//! Reads and flushes of the guest go on all the time. The flush here is nobody's answer: a loss that it tells of is told to the guest by its
//! own next one, as ever, and there is no rest before that.

use units::DeviceId;

use super::retry::Retry;
use super::{Effect, Engine, Fault, Owner, StopReason};

/// How long a volume may take to come to rest; then it goes on as it was. Protects its guest.
const REST_NS: u64 = 5_000_000_000;

/// On the way to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// A batch of a move is under way; changes go on.
    Move { until_ns: u64 },
    /// Changes wait, and some are in flight.
    Changes { until_ns: u64 },
    /// What was written is being made durable, on so many devices yet.
    Flush {
        until_ns: u64,
        left: u32,
        failed: Option<Fault>,
    },
    /// Nothing changes.
    Still,
}

impl<G> Engine<G> {
    /// Brings the volume to rest, with all that was answered durable: [`Effect::AtRest`] says when it is, or why it is not. It stays so until
    /// [`Engine::go_on`]. The number of this rest; none while there is another.
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

    /// What has waited for a rest goes on; if what the volume was at rest is kept (`shared`), its slots are others' too.
    pub fn go_on(&mut self, now_ns: u64, number: u32, shared: bool) {
        self.now_ns = now_ns;
        if self.rest != Some(Rest::Still) || number != self.rests {
            return; // not of that one
        }
        if shared {
            self.map.share_all();
        }
        self.rest = None;
        self.retry = Retry::All;
        self.settle();
    }

    /// What waits for a rest goes on, and a rest that is on its way is none.
    pub fn end_rest(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.rest.take().is_some() {
            self.retry = Retry::All;
        }
        self.settle();
    }

    /// The number of the last rest.
    pub fn rest_number(&self) -> u32 {
        self.rests
    }

    /// Whether it is on its way to rest, or there.
    pub fn rests(&self) -> bool {
        self.rest.is_some()
    }

    /// Whether requests that change something have to wait.
    #[inline]
    pub(super) fn changes_wait(&self) -> bool {
        matches!(
            self.rest,
            Some(Rest::Changes { .. } | Rest::Flush { .. } | Rest::Still)
        )
    }

    /// Whether a move may begin its next batch.
    pub(super) fn moves_wait(&self) -> bool {
        (self.rest.is_some() || self.moves_held) && !self.map.relocating()
    }

    /// Has a move wait when its batch has ended, or go on. Guests are served all the time.
    pub fn hold_moves(&mut self, now_ns: u64, held: bool) {
        self.now_ns = now_ns;
        self.moves_held = held;
        if held {
            self.mirror_makes_way(StopReason::MadeWay("a take-over"));
        }
        self.settle();
    }

    /// Whether no batch of a move is under way, nor is anything else copied that guests do not wait for.
    pub fn is_between_batches(&self) -> bool {
        let between = self.mover.as_ref().is_none_or(|m| m.is_between());
        between && !self.map.relocating() && self.behind.is_none()
    }

    /// Whether nothing is in flight of any kind, not even what was answered with an error and may still be written; and the durable map says what
    /// this one does.
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

    /// Goes on towards rest.
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
        // One more, so that it is not over before all are on their way.
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

    /// One of the devices is flushed.
    pub(super) fn flushed_at_rest(&mut self, number: u32, result: Result<(), Fault>) {
        let Some(Rest::Flush { left, failed, .. }) = &mut self.rest else {
            return; // given up meanwhile
        };
        if number != self.rests {
            return; // likewise, and this is another one
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

    /// Gives up what takes too long.
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
