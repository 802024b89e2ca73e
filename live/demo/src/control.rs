//! Control volumes. They are on a lightly loaded device like that of the fastest tier, in an array of their own that is
//! outside the manager's decisions.
//!
//! A busy machine delays requests whatever the manager decides. Violations of a control are caused by noise on the
//! host. Volumes with more requests per second have slightly fewer such violations, because a violation then takes more
//! than one late request.

use std::path::Path;

use datapath::control_server::ControlRequest;
use datapath::{ArrayServer, Listen, Reach, ServerConfig};
use nbd::Uri;

use crate::array;
use crate::error::DemoError;
use crate::loads::{CONTROLS, TIERS};

/// Controls, and the server of their array.
pub(crate) struct Controls {
    serving: ArrayServer,
    uris: Vec<Uri>,
}

impl Controls {
    /// Creates the controls in a directory, with data, and serves them with a separate worker.
    pub(crate) fn start(dir: &Path) -> Result<Self, DemoError> {
        array::add(dir, &TIERS[0], true)?;
        let reach = Reach::find(dir).map_err(DemoError::of_array)?;
        for control in &CONTROLS {
            let create = ControlRequest::Create {
                volume: control.name.into(),
                size: control.size(),
                tier: control.tier.into(),
                class: None,
            };
            reach.ask(create).map_err(DemoError::of_array)?;
        }
        drop(reach);
        let config = ServerConfig {
            workers: 1,
            ..ServerConfig::default()
        };
        let serving = ArrayServer::start(dir, config).map_err(DemoError::of_array)?;
        match open(&serving, dir) {
            Ok(uris) => Ok(Self { serving, uris }),
            Err(why) => {
                let _ = serving.stop(); // the error that caused the stop is reported instead
                Err(why)
            }
        }
    }

    /// Returns the addresses of the controls' exports, in order.
    pub(crate) fn uris(&self) -> &[Uri] {
        &self.uris
    }

    /// Stops the server.
    pub(crate) fn stop(self) -> Result<(), DemoError> {
        self.serving.stop().map(drop).map_err(DemoError::of_array)
    }
}

/// Exports the controls, and writes all of each.
fn open(serving: &ArrayServer, dir: &Path) -> Result<Vec<Uri>, DemoError> {
    let listen = Listen::Unix(dir.join("nbd.sock"));
    let listen = serving.listen(&listen).map_err(DemoError::of_array)?;
    let each = CONTROLS.iter().map(|control| {
        let exported = serving.control_server().export(control.name);
        exported.map_err(DemoError::of_array)?;
        let uri: Uri = listen.uri(control.name).parse()?;
        array::fill(&uri, control.mib)?;
        Ok(uri)
    });
    each.collect()
}
