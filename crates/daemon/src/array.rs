//! The array of this host, served here.

use std::path::Path;
use std::time::Duration;

use datapath::desk::{Ask, Told};
use datapath::{AcceptLoss, Credentials, Listen, Pulse, ServerConfig, Serving};
use manager::settings::ArrayConfig;
use manager::wire::ArrayPolicy;
use tracing::warn;

use crate::error::DaemonError;

/// Guests are let in when remote devices are connected, or after this time.
const REMOTES: Duration = Duration::from_secs(10);

/// A served array: all its volumes that are whole.
pub struct ServedArray {
    serving: Serving,
    listens: Vec<Listen>,
    volumes: Vec<String>,
    /// What it was told last.
    policy: Option<ArrayPolicy>,
}

impl ServedArray {
    pub(crate) fn start(
        words: &ArrayConfig,
        base: &Path,
        accept: &AcceptLoss,
        policy: &ArrayPolicy,
    ) -> Result<Self, DaemonError> {
        let dir = base.join(&words.dir);
        let mut config = ServerConfig::default();
        if let Some(poll) = words.poll {
            config.poll = Duration::from_nanos(poll.0);
        }
        let serving = Serving::start_accepting(&dir, config, accept)?;
        let mut array = Self {
            serving,
            policy: None,
            listens: vec![],
            volumes: vec![],
        };
        // The agent says it again when it is registered: no volume is to be made before that.
        let ready = array
            .allow(policy)
            .and_then(|()| array.open(words, base, &dir));
        match ready {
            Ok(()) => Ok(array),
            Err(error) => {
                array.stop();
                Err(error)
            }
        }
    }

    /// Holds operators to a policy from here on: also one that was read anew, which the agent hears of later.
    pub(crate) fn allow(&mut self, policy: &ArrayPolicy) -> Result<(), DaemonError> {
        if self.policy.as_ref() != Some(policy) {
            let told = self.serving.desk().ask(Ask::Policy {
                classes: Some(policy.classes.clone()),
                overcommit_max: Some(policy.overcommit_max),
            });
            told.map_err(DaemonError::Array)?;
            self.policy = Some(policy.clone());
        }
        Ok(())
    }

    fn open(&mut self, words: &ArrayConfig, base: &Path, dir: &Path) -> Result<(), DaemonError> {
        let told = self
            .serving
            .desk()
            .ask(Ask::Volumes)
            .map_err(DaemonError::Array)?;
        let Told::Volumes { volumes } = told else {
            return Err(DaemonError::Array(
                "the array answered something else".into(),
            ));
        };
        for volume in volumes {
            if !volume.healthy {
                let volume = &volume.name;
                warn!(
                    volume,
                    "damaged and not served: `terrace volume check` says how"
                );
                continue;
            }
            self.serving
                .desk()
                .export(&volume.name)
                .map_err(DaemonError::Array)?;
            self.volumes.push(volume.name);
        }
        if let Err(away) = self.serving.wait_for_remotes(REMOTES) {
            warn!("{away}");
        }
        let default = Listen::Unix(dir.join("nbd.sock"));
        let given: Result<Vec<Listen>, _> = words.listen.iter().map(|l| l.parse()).collect();
        let tls = Credentials::of(
            words.tls_certificates.as_ref().map(|d| base.join(d)),
            words.tls_psk.as_ref().map(|f| base.join(f)),
        );
        let both = |why| DaemonError::Config {
            key: "array.tls_psk",
            why: format!("and array.tls_certificates: {why}"),
        };
        if let Some(credentials) = tls.map_err(both)? {
            self.serving.require_tls(credentials)?;
        }
        let given = match given? {
            none if none.is_empty() => vec![default],
            given => given,
        };
        for listen in given {
            let listen = match listen {
                Listen::Unix(path) if path.is_relative() => Listen::Unix(dir.join(path)),
                other => other,
            };
            self.listens.push(self.serving.listen(&listen)?);
        }
        if let Some(sockets) = &words.vhost_user {
            self.serving.listen_vhost_user(&dir.join(sockets))?;
        }
        Ok(())
    }

    /// Volumes that are served.
    pub fn volumes(&self) -> &[String] {
        &self.volumes
    }

    /// Volumes and where guests find them, one URI each.
    pub fn uris(&self) -> Vec<(String, String)> {
        let listens = &self.listens;
        let volumes = self.volumes.iter();
        let by_nbd = volumes.flat_map(|v| listens.iter().map(move |l| (v.clone(), l.uri(v))));
        let by_vhost_user = self.volumes.iter().filter_map(|v| {
            let socket = self.serving.vhost_user_socket(v)?;
            Some((v.clone(), format!("vhost-user:{}", socket.display())))
        });
        by_nbd.chain(by_vhost_user).collect()
    }

    /// What sees whether all workers come round.
    pub fn pulse(&self) -> Pulse {
        self.serving.pulse()
    }

    pub(crate) fn tick(&mut self) -> bool {
        self.serving.tick()
    }

    pub(crate) fn stop(self) {
        self.serving.stop();
    }
}
