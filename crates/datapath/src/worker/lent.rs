//! Memory that is lent to another host (`terrace cache-node`): the system has it again when whoever used it has gone, since what is there is of no use to the next one. Flash
//! that is lent stays as it is until the process ends: its space is promised, and to empty it takes longer than a worker may wait.

use rustix::fs::{FallocateFlags, fallocate};
use tracing::warn;

use super::Worker;
use crate::device::{Backing, Medium};

/// So much goes back at once: whoever connects meanwhile does not wait for more.
const STEP: u64 = 256 << 20;

/// What has to go back.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// From this byte on; none is nothing.
    from: Option<u64>,
}

impl Lent {
    /// A connection has ended.
    pub(super) fn left(&mut self) {
        self.from = Some(0);
    }
}

impl Worker {
    /// Once in a while, as long as nobody is connected: gives some of the memory back that was lent.
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
