//! Flash that this host lends. Its file system may be mounted after the start of the agent, and the agent does not wait
//! for it.

use std::path::Path;
use std::time::{Duration, Instant};

use units::Bytes;

use crate::error::{AgentError, Result, file_error};

/// Interval of checks while the flash is unavailable.
pub(super) const LOOK: Duration = Duration::from_secs(60);

/// State of the lent flash.
#[derive(Debug, Default)]
pub(super) struct Flash {
    pub(super) looked: Option<Instant>,
    there: bool,
}

impl Flash {
    /// Returns the bytes that can be lent now (all or none), and the reason for none if it is new. Unavailable flash is
    /// checked again at intervals of [`LOOK`].
    pub(super) fn look(&mut self, size: Bytes, dir: &Path) -> (Bytes, Option<String>) {
        let looked = self.looked;
        if !self.there && looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            match check(dir, size) {
                Ok(()) => self.there = true,
                // The reason is reported once.
                Err(why) => {
                    let why = looked.is_none().then(|| why.to_string());
                    return (Bytes::ZERO, why);
                }
            }
        }
        let lent = if self.there { size } else { Bytes::ZERO };
        (lent, None)
    }
}

/// Checks that unnamed files can be created in the directory and that its file system has this size. The check reports
/// a wrong configuration before the flash is needed.
pub(super) fn check(dir: &Path, size: Bytes) -> Result<()> {
    let file = datapath::device::nameless_file(dir, config::LEND_MIN);
    drop(file.map_err(|e| AgentError::Unsuitable(e.to_string()))?);
    let of = rustix::fs::statvfs(dir).map_err(file_error("", dir))?;
    let kept_for_root = of.f_bfree.saturating_sub(of.f_bavail);
    let blocks = of.f_blocks.saturating_sub(kept_for_root);
    let all = Bytes(blocks.saturating_mul(of.f_frsize));
    match all >= size {
        true => Ok(()),
        false => Err(AgentError::Unsuitable(format!(
            "{} is on a file system of {all}, which is too small for {size}",
            dir.display()
        ))),
    }
}
