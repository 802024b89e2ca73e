//! Volumes that are held: some read them, nobody changes them.
//!
//! Connections are counted, and refused from then on, on the thread that every one of the volume's comes to: none that may write can come in
//! between. What guests who are gone had asked for may still be under way, and a held volume is what it will stay once nothing is.

use std::sync::mpsc::Sender;

use nbd::{ExportFlags, Session};
use units::VolumeId;

use super::Worker;

/// Nobody is let in any more who may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Something that was asked for before is still under way.
    Busy,
    /// Nothing is: the volume does not change.
    Still,
}

/// Why a volume cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldRefusal {
    /// Guests have so many connections.
    Connected(usize),
    NotServed,
}

impl Worker {
    pub(super) fn hold(&mut self, volume: VolumeId, answer: &Sender<Result<Held, HoldRefusal>>) {
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
                    true => Ok(Held::Busy),
                    false => Ok(Held::Still),
                }
            }
        };
        let _ = answer.send(result); // whoever asks may have gone, here and below
    }

    pub(super) fn release(&mut self, volume: VolumeId, answer: &Sender<()>) {
        let live = self.volumes.get_mut(volume.index());
        let held = live.and_then(Option::as_mut);
        if held.is_some_and(|live| std::mem::take(&mut live.held)) {
            // Only readers were let in.
            for connection in self.connections_of(volume.0) {
                self.close(connection);
            }
        }
        let _ = answer.send(());
    }

    /// Whether a client of a volume may come in: to one that is held, if it can only read.
    pub(super) fn admits(&self, volume: VolumeId, session: &Session) -> bool {
        let live = self.volumes.get(volume.index());
        let held = live.is_some_and(|live| live.as_ref().is_some_and(|live| live.held));
        !held || session.export.flags.contains(ExportFlags::READ_ONLY)
    }
}
