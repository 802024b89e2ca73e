//! Brings a volume to rest for a moment, so that what it is then can be kept: all that was answered is in it, and nothing that was not begun.
//!
//! ```text
//!  rest() ──▶ the batch of a move ends ──▶ changes wait ──▶ those in flight end ──▶ Effect::AtRest ──▶ go_on() ──▶ changes go on
//! ```
//!
//! Reads and flushes go on all the time.

use super::retry::Retry;
use super::{Effect, Engine};

/// How long a volume may take to come to rest; then it goes on as it was. Protects its guest.
const REST_NS: u64 = 5_000_000_000;

/// On the way to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// A batch of a move is under way; changes go on.
    Move { until_ns: u64 },
    /// Changes wait, and some are in flight.
    Changes { until_ns: u64 },
    /// Nothing changes.
    Still,
}

impl<G> Engine<G> {
    /// Brings the volume to rest: [`Effect::AtRest`] says when it is, or that it could not be brought to it in time. It stays so until
    /// [`Engine::go_on`]. Whether it is on its way: not while it is already.
    pub fn rest(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        if self.rest.is_some() {
            return false;
        }
        let until_ns = now_ns + REST_NS;
        self.rest = Some(Rest::Move { until_ns });
        self.settle();
        true
    }

    /// What has waited goes on; if what the volume was at rest is kept (`shared`), its slots are others' too.
    pub fn go_on(&mut self, now_ns: u64, shared: bool) {
        self.now_ns = now_ns;
        if self.rest != Some(Rest::Still) {
            return; // it was given up, and goes on already
        }
        if shared {
            self.map.share_all();
        }
        self.rest = None;
        self.retry = Retry::All;
        self.settle();
    }

    /// Whether it is on its way to rest, or there.
    pub fn rests(&self) -> bool {
        self.rest.is_some()
    }

    /// Whether requests that change something have to wait.
    #[inline]
    pub(super) fn changes_wait(&self) -> bool {
        matches!(self.rest, Some(Rest::Changes { .. } | Rest::Still))
    }

    /// Whether a move may begin its next batch.
    pub(super) fn moves_wait(&self) -> bool {
        self.rest.is_some() && !self.map.relocating()
    }

    fn nothing_changes(&self) -> bool {
        self.changing == 0
            && self.placing.is_empty()
            && self.copy_ups.is_empty()
            && self.unsure.is_empty()
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
        if let Some(Rest::Changes { .. }) = self.rest
            && self.nothing_changes()
        {
            self.rest = Some(Rest::Still);
            self.effects.push(Effect::AtRest(true));
        }
    }

    /// Gives up what takes too long.
    pub(super) fn rest_in_time(&mut self) {
        if let Some(Rest::Move { until_ns } | Rest::Changes { until_ns }) = self.rest
            && until_ns < self.now_ns
        {
            self.rest = None;
            self.retry = Retry::All;
            self.effects.push(Effect::AtRest(false));
        }
    }
}
