//! Held volumes: they can be read, but not changed.
//!
//! The thread of the volume counts its connections and refuses new writers. All connections of a volume come to this
//! thread, so no writer can connect in between. Requests of guests that have disconnected may still be in flight. A held
//! volume has its final content when none is.

use std::sync::mpsc::Sender;

use nbd::{ExportFlags, Session};
use units::VolumeId;

use super::Worker;

/// State of a held volume, to which no writer can connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// Earlier requests are still in flight.
    Busy,
    /// No request is in flight: the volume does not change.
    Still,
}

/// Reason why a volume cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldRefusal {
    /// Guests have this number of connections.
    Connected(usize),
    NotServed,
}

impl Worker {
    pub(super) fn hold(
        &mut self,
        volume: VolumeId,
        answer: &Sender<Result<HoldState, HoldRefusal>>,
    ) {
        let open = self.connections_of(volume.0).len() + self.ring_guests_of(volume.0).len();
        let in_timers = self.timers.any_of(volume.0) || self.second.any_of(volume.0);
        let live = self.volumes.get_mut(volume.index());
        let live = live.and_then(Option::as_mut);
        let result = match live.filter(|live| live.detached.is_none()) {
            None => Err(HoldRefusal::NotServed),
            Some(live) if !live.held && open > 0 => Err(HoldRefusal::Connected(open)),
            Some(live) => {
                live.held = true;
                match in_timers || live.engine.outstanding() > 0 {
                    true => Ok(HoldState::Busy),
                    false => Ok(HoldState::Still),
                }
            }
        };
        let _ = answer.send(result); // the caller may have ended, here and below
    }

    pub(super) fn release(&mut self, volume: VolumeId, answer: &Sender<()>) {
        let live = self.volumes.get_mut(volume.index());
        let held = live.and_then(Option::as_mut);
        if held.is_some_and(|live| std::mem::take(&mut live.held)) {
            // A held volume has only readers.
            for connection in self.connections_of(volume.0) {
                self.close(connection);
            }
        }
        let _ = answer.send(());
    }

    /// Returns true if a client may connect to a volume. A held volume accepts only read-only clients.
    pub(super) fn admits(&self, volume: VolumeId, session: &Session) -> bool {
        let live = self.volumes.get(volume.index());
        let held = live.is_some_and(|live| live.as_ref().is_some_and(|live| live.held));
        !held || session.export.flags.contains(ExportFlags::READ_ONLY)
    }
}
