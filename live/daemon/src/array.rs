//! Array of this host, served by this process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use config::scenario::{ArrayCacheConfig, CachePartConfig};
use datapath::cached::CacheSettings;
use datapath::control_server::ControlRequest;
use datapath::{
    AcceptLoss, ArrayServer, Credentials, Handover, Health, Listen, Pulse, ServerConfig, ShareOf,
    StopError, TakeOverConfig,
};
use manager::settings::ArrayConfig;
use manager::wire::ArrayPolicy;
use tracing::warn;

use crate::control::Fault;
use crate::error::DaemonError;

/// Time after which guests are admitted even if remote devices are not connected.
const REMOTES: Duration = Duration::from_secs(10);

/// Way in which this process starts to serve an array.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// From its files, with losses that an operator accepts.
    Accepting(&'a AcceptLoss),
    /// From the process that serves it, including the connections of its guests.
    TakeOver,
}

/// Served array with all its complete volumes.
pub struct ServedArray {
    serving: ArrayServer,
    listens: Vec<Listen>,
    volumes: Vec<String>,
    /// Policy that was last set.
    policy: Option<ArrayPolicy>,
}

impl ServedArray {
    pub(crate) fn start(
        words: &ArrayConfig,
        base: &Path,
        start: Start<'_>,
        policy: Option<&ArrayPolicy>,
    ) -> Result<Self, DaemonError> {
        let dir = base.join(&words.dir);
        let mut config = ServerConfig::default();
        if let Some(poll) = words.poll {
            config.poll = Duration::from_nanos(poll.0);
        }
        config.cache = words.cache.as_ref().map(cache_settings);
        let (listens, tls) = (listens(words, &dir)?, credentials(words, base)?);
        let vhost_user = words.vhost_user.as_ref().map(|sockets| dir.join(sockets));
        let serving = match start {
            Start::Accepting(accept) => {
                let serving = ArrayServer::start_accepting(&dir, config, accept)?;
                tls.map_or(Ok(()), |tls| serving.require_tls(tls))?;
                serving
            }
            Start::TakeOver => {
                let wanted = TakeOverConfig {
                    listens: listens.clone(),
                    tls,
                    vhost_user: vhost_user.clone(),
                    volumes: vec![],
                };
                ArrayServer::take_over(&dir, config, wanted)?
            }
        };
        let mut array = Self {
            serving,
            policy: None,
            listens: vec![],
            volumes: vec![],
        };
        // The agent sets the policy again after its registration. No volume may be created before the first policy.
        let parts = words.cache.iter().flat_map(|cache| &cache.parts);
        let ready = policy
            .map_or(Ok(()), |policy| array.allow(policy))
            .and_then(|()| array.share_cache(parts))
            .and_then(|()| array.open(listens, vhost_user));
        match ready {
            Ok(()) => Ok(array),
            Err(error) => {
                if let Err(why) = array.stop() {
                    warn!(%why, "the array did not stop cleanly");
                }
                Err(error)
            }
        }
    }

    /// Sets a policy for operators from now on. Also used for a reloaded policy, which the agent receives later.
    pub(crate) fn allow(&mut self, policy: &ArrayPolicy) -> Result<(), DaemonError> {
        if self.policy.as_ref() != Some(policy) {
            self.serving.control_server().ask(ControlRequest::Policy {
                classes: Some(policy.classes.clone()),
                overcommit_max: Some(policy.overcommit_max),
            })?;
            self.policy = Some(policy.clone());
        }
        Ok(())
    }

    /// Sets the shares of the cache. This precedes the creation of volumes, which start with their shares.
    fn share_cache<'a>(
        &self,
        parts: impl Iterator<Item = &'a CachePartConfig>,
    ) -> Result<(), DaemonError> {
        for part in parts {
            let volume = || part.volume.clone().map(ShareOf::Volume);
            let Some(of) = part.class.clone().map(ShareOf::Class).or_else(volume) else {
                continue; // the configuration was checked
            };
            let share = Some(part.share);
            let set = ControlRequest::SetCacheShare { of, share };
            let set = self.serving.control_server().ask(set);
            set.map_err(|why| DaemonError::Config {
                key: "array.cache.parts",
                why: why.to_string(),
            })?;
        }
        Ok(())
    }

    fn open(
        &mut self,
        listens: Vec<Listen>,
        vhost_user: Option<PathBuf>,
    ) -> Result<(), DaemonError> {
        for (volume, health) in self.serving.control_server().names()? {
            if health == Health::Damaged {
                warn!(
                    volume,
                    "damaged and not served: `terrace volume check` describes the damage"
                );
                continue;
            }
            self.serving.control_server().export(&volume)?;
            self.volumes.push(volume);
        }
        // Guests of a take-over wait for this.
        self.serving.let_in();
        self.serving.wait_for_the_other();
        if let Err(away) = self.serving.wait_for_remotes(REMOTES) {
            warn!("{away}");
        }
        for listen in listens {
            self.listens.push(self.serving.listen(&listen)?);
        }
        if let Some(sockets) = vhost_user {
            self.serving.listen_vhost_user(&sockets)?;
        }
        Ok(())
    }

    /// Lists the controller's faults among the problems of the array.
    pub(crate) fn report_controller(&self, faults: &[Fault]) {
        let faults = faults.iter().map(|f| (f.part.into(), f.what.clone()));
        self.serving.control_server().report_controller(faults);
    }

    #[cfg(test)]
    pub(crate) fn serving(&self) -> &ArrayServer {
        &self.serving
    }

    /// Reports that all parts of this process run, so the array can be handed over.
    pub(crate) fn started(&self) {
        self.serving.started();
    }

    /// Returns a function that waits until another process has taken over the array.
    pub fn lost(&self) -> impl FnOnce() -> Handover + Send + use<> {
        self.serving.lost()
    }

    pub fn volumes(&self) -> &[String] {
        &self.volumes
    }

    /// Returns volumes with their addresses for guests, one URI each.
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

    /// Returns the monitor of the workers' heartbeats.
    pub fn pulse(&self) -> Pulse {
        self.serving.pulse()
    }

    pub(crate) fn tick(&mut self) -> bool {
        self.serving.tick()
    }

    /// Prepares the end of the process. Returns whether another process has taken over the array.
    pub(crate) fn ends(&self) -> Handover {
        self.serving.ends()
    }

    pub(crate) fn stop(self) -> Result<Handover, StopError> {
        self.serving.stop()
    }
}

/// Returns the cache settings of an array for its server.
pub fn cache_settings(words: &ArrayCacheConfig) -> CacheSettings {
    CacheSettings {
        size: words.size,
        page: words.page,
        extent_pages: words.extent_pages,
        policy: words.policy,
        rates: words.rates(),
        ageing: words.ageing,
        on_hit: words.on_hit,
        writes: words.writes,
        slice: words.slice,
        slices_per_hour: (words.hour.0 / words.slice.0.max(1)) as u32,
    }
}

/// Returns the addresses at which guests connect.
pub(crate) fn listens(words: &ArrayConfig, dir: &Path) -> Result<Vec<Listen>, DaemonError> {
    let given: Result<Vec<Listen>, _> = words.listen.iter().map(|l| l.parse()).collect();
    let given = given?.into_iter().map(|listen| match listen {
        Listen::Unix(path) => Listen::Unix(dir.join(path)),
        other => other,
    });
    let given: Vec<Listen> = given.collect();
    match given.is_empty() {
        true => Ok(vec![Listen::Unix(dir.join("nbd.sock"))]),
        false => Ok(given),
    }
}

/// Reads the keys and certificates for guests over TCP.
pub(crate) fn credentials(
    words: &ArrayConfig,
    base: &Path,
) -> Result<Option<Credentials>, DaemonError> {
    let tls = Credentials::of(
        words.tls_certificates.as_ref().map(|d| base.join(d)),
        words.tls_psk.as_ref().map(|f| base.join(f)),
    );
    tls.map_err(|why| DaemonError::Config {
        key: "array.tls_psk",
        why: format!("and array.tls_certificates: {why}"),
    })
}
