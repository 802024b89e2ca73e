//! The memory budget for unanswered requests of all connections: admission, the queue of paused requests, and the closing
//! of connections that hold a part of an exhausted budget without progress.
//!
//! ```text
//!   request ── fits, and the queue is empty ──▶ engine
//!      └────── paused: in the queue of the worker ── first in the queue, and fits ──▶ engine
//! ```
//!
//! A small request of a guest without requests in flight skips the queue. Every guest can therefore make progress.

use std::sync::atomic::Ordering;

use tracing::warn;

use crate::registry::REQUEST_BYTES_MAX;

use super::Worker;
use super::guests::{Connection, Stage};

/// Limit on the bytes of unanswered requests of all connections together; further requests wait in their sockets or rings.
/// Protects memory.
pub(super) const ALL_BYTES_MAX: u64 = 512 << 20;

/// Largest request that skips the queue if its guest has no requests in flight.
const SMALL_BYTES: u64 = 256 << 10;

/// Time without progress after which a connection is closed while the budget is exhausted. Progress is a byte of an answer
/// taken, or of an announced write sent. Protects the large requests of all other guests.
pub(super) const STALLED_NS: u64 = 30_000_000_000;

/// Guest whose next request waits for the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PausedGuest {
    Connection(u32),
    Ring(u32),
}

impl Worker {
    /// Returns true if a request of `bytes` must wait, for a guest with `in_flight` bytes of unanswered requests. The guest
    /// is then in the queue, and its request is admitted again when the guest is the first there.
    pub(super) fn waits_for_budget(
        &mut self,
        who: PausedGuest,
        in_flight: u64,
        bytes: u64,
    ) -> bool {
        let small = in_flight == 0 && bytes <= SMALL_BYTES;
        let first = self.paused.front().is_none_or(|(first, _)| *first == who);
        let waits = bytes > 0 && !small && !(first && self.fits(bytes));
        if !waits {
            self.paused.retain(|(other, _)| *other != who);
        } else if self.paused.iter().all(|(other, _)| *other != who) {
            self.paused.push_back((who, bytes));
        }
        waits
    }

    fn fits(&self, bytes: u64) -> bool {
        let all = self.shared.bytes.load(Ordering::Relaxed);
        all == 0 || all + bytes <= ALL_BYTES_MAX
    }

    /// Adds the bytes of a request to the budget in use.
    pub(super) fn account(&mut self, connection: u32, bytes: u64) {
        self.connections[connection as usize].bytes += bytes;
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns bytes to the budget.
    pub(super) fn settle_account(&mut self, connection: u32, bytes: u64) {
        self.connections[connection as usize].bytes -= bytes;
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns true if the first guest in the queue is a connection whose request fits. A ring takes its own request in the
    /// next turn.
    pub(super) fn may_resume(&self) -> bool {
        match self.paused.front() {
            Some((PausedGuest::Connection(_), bytes)) => !self.still && self.fits(*bytes),
            Some((PausedGuest::Ring(_), _)) | None => false,
        }
    }

    /// Resumes paused requests in the order of their arrival while the budget has room.
    pub(super) fn resume_paused(&mut self) {
        while let Some((first, _)) = self.paused.front().copied() {
            let waits = match first {
                PausedGuest::Connection(c) => {
                    self.connections.get(c as usize).is_some_and(|c| c.paused)
                }
                PausedGuest::Ring(ring) => self.rings.holds_back(ring),
            };
            if !waits {
                self.paused.pop_front(); // the connection or ring has ended
                continue;
            }
            let PausedGuest::Connection(connection) = first else {
                return;
            };
            if !self.may_resume() {
                return;
            }
            self.connections[connection as usize].paused = false;
            self.decode_again(connection);
            self.receive(connection);
        }
    }

    /// Closes connections that hold a part of an exhausted budget without progress ([`STALLED_NS`]).
    pub(super) fn cut_stalled(&mut self) {
        // The largest possible request still fits, so nobody waits.
        if self.still || self.fits(REQUEST_BYTES_MAX.into()) {
            return;
        }
        let late_ns = self.now_ns.saturating_sub(STALLED_NS);
        let stalled = self
            .connections
            .iter()
            .filter(|(_, c)| is_stalled(c, late_ns));
        let stalled: Vec<u32> = stalled.map(|(i, _)| i as u32).collect();
        for connection in stalled {
            let c = &self.connections[connection as usize];
            let volume = match c.stage {
                Stage::Serving { volume, .. } => self.name_of(volume),
                _ => None,
            };
            let bytes = c.bytes;
            warn!(
                volume,
                bytes,
                "closed a connection: its client does not read replies or does not send announced data, and other connections wait for its buffer memory"
            );
            self.close(connection);
        }
    }
}

/// Returns true if a connection holds memory and has made no progress since `since_ns`.
fn is_stalled(c: &Connection, since_ns: u64) -> bool {
    let payload = c.payload.as_ref();
    let sends_none = payload.is_some_and(|p| c.receiving && p.since_ns <= since_ns);
    let takes_none = c.waiting_writable && c.unsent_since_ns <= since_ns;
    c.bytes > 0 && (sends_none || takes_none)
}
