//! Memory or flash that is lent to another host (`terrace cache-node`): memory is the system's again when whoever used it has gone, since what is there is of no use to
//! the next one, who is not to read it either. So what is on flash goes, too; the space stays, since it is promised.

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
    /// Once in a while, as long as nobody is connected: gives some of what was lent back.
    pub(super) fn give_lent_back(&mut self) {
        let Some(from) = self.lent.from else {
            return;
        };
        if !self.connections.is_empty() || !self.ios.is_empty() {
            return;
        }
        let mut devices = self.devices.iter().flatten();
        let lent = devices.find_map(|d| Some((&d.medium, d.lent()?)));
        let Some((Medium::File(file, backing), bytes)) = lent else {
            self.lent.from = None;
            return;
        };
        let length = STEP.min(bytes.0 - from);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let given = fallocate(&**file, flags, from, length).and_then(|()| match backing {
            Backing::Memory => Ok(()),
            Backing::Storage => fallocate(&**file, FallocateFlags::empty(), from, length),
        });
        if let Err(why) = given {
            warn!(%why, "what was lent cannot be given back");
            self.lent.from = None;
            return;
        }
        let next = from + length;
        self.lent.from = (next < bytes.0).then_some(next);
    }
}
