//! The controls: volumes on a device like the fastest tier's, which is never busy, in an array of their own that no decision sees.
//!
//! A machine that is too busy answers late whatever is decided. What a control misses of an objective is the machine's doing;
//! volumes with more requests in a second miss a little less of it, since it takes more than one late request there.

use std::path::Path;

use datapath::control_server::ControlRequest;
use datapath::{Listen, Reach, ServerConfig, Serving, explain};
use nbd::Uri;

use crate::array;
use crate::loads::{CONTROLS, TIERS};

/// The controls, served.
pub(crate) struct Controls {
    serving: Serving,
    uris: Vec<Uri>,
}

impl Controls {
    /// Makes them in a directory, with data, and serves them by a worker of their own.
    pub(crate) fn start(dir: &Path) -> Result<Self, String> {
        array::add(dir, &TIERS[0], true)?;
        let reach = Reach::find(dir).map_err(|e| explain(&e))?;
        for control in &CONTROLS {
            reach.ask(ControlRequest::Create {
                volume: control.name.into(),
                size: control.size(),
                tier: control.tier.into(),
                class: None,
            })?;
        }
        drop(reach);
        let config = ServerConfig {
            workers: 1,
            ..ServerConfig::default()
        };
        let serving = Serving::start(dir, config).map_err(|e| explain(&e))?;
        match open(&serving, dir) {
            Ok(uris) => Ok(Self { serving, uris }),
            Err(why) => {
                let _ = serving.stop(); // the error that caused the stop is reported instead
                Err(why)
            }
        }
    }

    /// Where their guests connect, in order.
    pub(crate) fn uris(&self) -> &[Uri] {
        &self.uris
    }

    /// Ends them.
    pub(crate) fn stop(self) -> Result<(), String> {
        self.serving.stop().map(drop).map_err(|e| explain(&e))
    }
}

/// Lets guests in, and writes all of each.
fn open(serving: &Serving, dir: &Path) -> Result<Vec<Uri>, String> {
    let listen = Listen::Unix(dir.join("nbd.sock"));
    let listen = serving.listen(&listen).map_err(|e| explain(&e))?;
    let each = CONTROLS.iter().map(|control| {
        serving.control_server().export(control.name)?;
        let uri = listen.uri(control.name).parse();
        let uri = uri.map_err(|e: nbd::UriError| e.to_string())?;
        array::fill(&uri, control.mib)?;
        Ok(uri)
    });
    each.collect()
}
