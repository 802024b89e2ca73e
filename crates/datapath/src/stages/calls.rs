//! Calls at a volume's stages from other threads: done by its worker, between two requests.

use std::fmt;

use units::VolumeId;
use volume::VolumeMap;

use super::Stages;
use crate::worker::{Inbox, Message};

/// A volume that is served, for whoever calls at its stages.
#[derive(Debug)]
pub struct Served<'a> {
    pub stages: &'a mut Stages,
    /// Where its extents are.
    pub map: &'a VolumeMap,
    pub name: &'a str,
    /// Now, in nanoseconds.
    pub now_ns: u64,
}

/// What to do there. Without a volume it is told so.
pub struct Call(Box<Work>);

type Work = dyn FnOnce(Option<Served<'_>>) + Send;

impl Call {
    pub(crate) fn make(self, volume: Option<Served<'_>>) {
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
    /// The volume is not served, `what` fails, or the worker does not respond.
    pub(crate) fn at_stages<R: Send + 'static>(
        &self,
        volume: VolumeId,
        what: impl FnOnce(Served<'_>) -> Result<R, String> + Send + 'static,
    ) -> Result<R, String> {
        let done = self.ask(|answer| {
            let call = Call(Box::new(move |volume| {
                let done = volume
                    .ok_or_else(|| "the volume is not served".into())
                    .and_then(what);
                let _ = answer.send(done); // the caller may be gone
            }));
            Message::AtStages(volume, call)
        });
        done.map_err(|why| why.to_string())?
    }
}
