//! Calls at a volume's stages from other threads: done by its worker, between two requests.

use std::fmt;
use std::sync::mpsc::{Receiver, channel};

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
    /// Has the worker do something at a volume's stages; what comes of it, once that is done. Nothing does if the worker has ended.
    pub(crate) fn at_stages<R: Send + 'static>(
        &self,
        volume: VolumeId,
        what: impl FnOnce(Served<'_>) -> Result<R, String> + Send + 'static,
    ) -> Receiver<Result<R, String>> {
        let (answer, answered) = channel();
        let call = Call(Box::new(move |volume| {
            let done = volume
                .ok_or_else(|| "it is not served".into())
                .and_then(what);
            let _ = answer.send(done); // whoever asked may have gone
        }));
        self.send(Message::AtStages(volume, call));
        answered
    }
}
