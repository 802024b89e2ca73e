//! Shares of the cache, by class and by volume. They end with the server.

use super::{ControlAnswer, ControlServer, DatapathError, Result};
use crate::worker::{Inbox, Message, ShareOf};

impl ControlServer {
    /// Sets the share of a class or a volume in each worker's cache; none for the common part.
    ///
    /// # Errors
    /// [`DatapathError`]: the server has no cache, the cache has no parts, or the share does not fit. Nothing has
    /// changed then.
    pub(super) fn set_cache_share(
        &self,
        of: &ShareOf,
        share: Option<f64>,
    ) -> Result<ControlAnswer> {
        if share.is_some_and(|s| !(0.0..1.0).contains(&s)) {
            return Err(DatapathError::Invalid(
                "a share must be at least 0 and below 1".into(),
            ));
        }
        let whose = match of {
            ShareOf::Class(class) => {
                self.allowed().class(class)?;
                format!("class {class}")
            }
            ShareOf::Volume(volume) => format!("volume {volume}"),
        };
        let (workers, _) = self.workers()?;
        let mut before = vec![];
        for worker in &workers {
            match tell(worker, of, share) {
                Ok(was) => before.push(was),
                Err(why) => {
                    for (worker, was) in workers.iter().zip(before) {
                        tell(worker, of, was)?;
                    }
                    return Err(why.about(whose));
                }
            }
        }
        Ok(ControlAnswer::done(match share {
            None => format!("{whose} now uses the common part of the cache"),
            Some(0.0) => format!("{whose} is no longer cached"),
            Some(share) => format!("reserved {share} of the cache for {whose}"),
        }))
    }
}

/// Sets the share on a worker, and returns the share before.
fn tell(worker: &Inbox, of: &ShareOf, share: Option<f64>) -> Result<Option<f64>> {
    worker.ask(|answer| Message::Share(of.clone(), share, answer))?
}
