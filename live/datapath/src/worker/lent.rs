//! Memory that is lent to another host (`terrace cache-node`). It returns to the system when its user has disconnected,
//! because its content has no value for the next user. Lent flash stays allocated until the process ends: its space is
//! promised, and emptying it takes longer than a worker may wait.

use rustix::fs::{FallocateFlags, fallocate};
use tracing::warn;

use super::Worker;
use crate::device::{Backing, Medium};

/// Bytes that one step returns. A host that connects meanwhile waits for no more than one step.
const STEP: u64 = 256 << 20;

/// Memory to return to the system.
#[derive(Debug, Default)]
pub(super) struct ReturnableMemory {
    /// First byte that is not returned yet; none if nothing is to be returned.
    from: Option<u64>,
}

impl ReturnableMemory {
    /// Starts again at the first byte, because a connection has ended.
    pub(super) fn left(&mut self) {
        self.from = Some(0);
    }
}

impl Worker {
    /// Returns one step of the lent memory to the system. Runs at each tick; does nothing while a connection or an I/O
    /// exists.
    pub(super) fn give_memory_back(&mut self) {
        let Some(from) = self.lent.from else {
            return;
        };
        if !self.connections.is_empty() || !self.ios.is_empty() {
            return;
        }
        let mut devices = self.devices.iter().flatten();
        let lent = devices.find_map(|d| Some((&d.medium, d.lent()?)));
        let Some((Medium::File(file, Backing::Memory), bytes)) = lent else {
            self.lent.from = None;
            return;
        };
        let length = STEP.min(bytes.0 - from);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(why) = fallocate(&**file, flags, from, length) {
            warn!(%why, "cannot free lent memory");
            self.lent.from = None;
            return;
        }
        let next = from + length;
        self.lent.from = (next < bytes.0).then_some(next);
    }
}
