//! Calls to a volume's stages from other threads. The volume's worker executes them between two requests.

use std::fmt;

use units::VolumeId;
use volume::VolumeMap;

use super::Stages;
use crate::error::{DatapathError, Result};
use crate::worker::{Inbox, Message};

/// Served volume, as a call sees it.
#[derive(Debug)]
pub struct StageVolume<'a> {
    pub stages: &'a mut Stages,
    /// Places of its extents.
    pub map: &'a VolumeMap,
    pub name: &'a str,
    /// Current time in nanoseconds.
    pub now_ns: u64,
}

/// Closure to execute. It receives `None` if the volume is not served.
pub struct Call(Box<Work>);

type Work = dyn FnOnce(Option<StageVolume<'_>>) + Send;

impl Call {
    pub(crate) fn make(self, volume: Option<StageVolume<'_>>) {
        (self.0)(volume);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call")
    }
}

impl Inbox {
    /// Runs a closure at a volume's stages, on the worker, and returns its result.
    ///
    /// # Errors
    /// [`DatapathError`]: the volume is not served, `what` fails, or the worker does not respond.
    pub(crate) fn at_stages<R: Send + 'static>(
        &self,
        volume: VolumeId,
        what: impl FnOnce(StageVolume<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.ask(|answer| {
            let call = Call(Box::new(move |volume| {
                let done = volume
                    .ok_or_else(|| DatapathError::NotServed("the volume is not served".into()))
                    .and_then(what);
                let _ = answer.send(done); // the caller may be gone
            }));
            Message::AtStages(volume, call)
        })?
    }
}
