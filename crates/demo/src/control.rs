//! The control: a volume on a device like the fastest tier's, which is never busy, in an array of its own that no decision sees.
//!
//! A machine that is too busy answers late whatever is decided. What the control misses of an objective is the machine's doing;
//! volumes with more requests in a second miss a little less of it, since it takes more than one late request there.

use std::path::Path;

use datapath::desk::Ask;
use datapath::{Listen, Reach, ServerConfig, Serving, explain};
use nbd::Uri;

use crate::array;
use crate::loads::{CONTROL, TIERS};

/// The control, served.
pub(crate) struct Control {
    serving: Serving,
    uri: Uri,
}

impl Control {
    /// Makes it in a directory, with data, and serves it by a worker of its own.
    pub(crate) fn start(dir: &Path) -> Result<Self, String> {
        let tier = TIERS.iter().find(|t| t.name == CONTROL.tier);
        array::add(dir, tier.expect("it names a tier"), true)?;
        let reach = Reach::find(dir).map_err(|e| explain(&e))?;
        reach.ask(Ask::Create {
            volume: CONTROL.name.into(),
            size: CONTROL.size(),
            tier: CONTROL.tier.into(),
            class: None,
        })?;
        drop(reach);
        let config = ServerConfig {
            workers: 1,
            ..ServerConfig::default()
        };
        let serving = Serving::start(dir, config).map_err(|e| explain(&e))?;
        match Self::open(&serving, dir) {
            Ok(uri) => Ok(Self { serving, uri }),
            Err(why) => {
                serving.stop();
                Err(why)
            }
        }
    }

    fn open(serving: &Serving, dir: &Path) -> Result<Uri, String> {
        serving.desk().export(CONTROL.name)?;
        let listen = Listen::Unix(dir.join("nbd.sock"));
        let listen = serving.listen(&listen).map_err(|e| explain(&e))?;
        let uri = listen.uri(CONTROL.name).parse();
        let uri = uri.map_err(|e: nbd::UriError| e.to_string())?;
        array::fill(&uri, CONTROL.mib)?;
        Ok(uri)
    }

    /// Where its guest connects.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Ends it.
    pub(crate) fn stop(self) {
        self.serving.stop();
    }
}
