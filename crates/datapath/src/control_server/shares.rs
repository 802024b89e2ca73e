//! Shares of the cache, by class and by volume. They end with the server.

use super::{ControlAnswer, ControlServer, Result, text};
use crate::worker::{Inbox, Message, ShareOf};

impl ControlServer {
    /// A class, or a volume, has such a share of each worker's cache from now on; none is what all others share.
    ///
    /// # Errors
    /// In words: there is no cache, it has no parts, or the share does not fit. Then all is as before.
    pub(super) fn set_cache_share(
        &self,
        of: &ShareOf,
        share: Option<f64>,
    ) -> Result<ControlAnswer> {
        if share.is_some_and(|s| !(0.0..1.0).contains(&s)) {
            return Err("a share must be at least 0 and below 1".into());
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
                    return Err(format!("{whose}: {why}"));
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

/// What it was before.
fn tell(worker: &Inbox, of: &ShareOf, share: Option<f64>) -> Result<Option<f64>> {
    let was = worker.ask(|answer| Message::Share(of.clone(), share, answer));
    was.map_err(text)?
}
