//! Flash to be lent: it may not be there when the agent begins, which holds up nothing else.

use std::path::Path;
use std::time::{Duration, Instant};

use units::Bytes;

/// Flash that cannot be lent is looked at again after this time.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Flash {
    pub(super) looked: Option<Instant>,
    there: bool,
}

impl Flash {
    /// How much can be lent: all, or nothing for now, and why if that is new. It is looked at once in a while, as long as it is not there.
    pub(super) fn look(&mut self, size: Bytes, dir: &Path) -> (Bytes, Option<String>) {
        let looked = self.looked;
        if !self.there && looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            match check(dir, size) {
                Ok(()) => self.there = true,
                // Said once.
                Err(why) => return (Bytes::ZERO, Some(why).filter(|_| looked.is_none())),
            }
        }
        let lent = if self.there { size } else { Bytes::ZERO };
        (lent, None)
    }
}

/// Whether files without a name can be made there, and the file system is so large: else it would be known when it is needed.
pub(super) fn check(dir: &Path, size: Bytes) -> Result<(), String> {
    drop(datapath::device::nameless_file(dir, config::LEND_MIN)?);
    let shown = dir.display();
    let of = rustix::fs::statvfs(dir).map_err(|e| format!("{shown}: {e}"))?;
    let kept_for_root = of.f_bfree.saturating_sub(of.f_bavail);
    let blocks = of.f_blocks.saturating_sub(kept_for_root);
    let all = Bytes(blocks.saturating_mul(of.f_frsize));
    match all >= size {
        true => Ok(()),
        false => Err(format!(
            "{shown} is on a file system of {all}, which is too small for {size}"
        )),
    }
}
