//! Reload of the configuration: either all changes take effect, or none.
//!
//! ```text
//!   POST /v1/reload ─┐
//!   SIGHUP ──────────┴▶ read the file, the tokens, the certificate ─▶ the service accepts it ─▶ tokens, certificate
//!                              one of them is invalid: no change          it rejects it: no change
//! ```
//!
//! Open connections remain; a removed token is rejected at its next request.

use std::sync::{Arc, PoisonError, RwLock};

use client::Fingerprint;
use manager::question::{Actor, Done, Refusal};
use manager::settings::Settings;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::call::State;
use crate::problem::Problem;
use crate::server::TcpSettings;
use crate::tokens::Tokens;

/// Configuration that was read again.
pub struct ReloadedConfig {
    /// Checked configuration.
    pub settings: Settings,
    /// Paths of tokens and certificate.
    pub tcp: Option<TcpSettings>,
}

/// Rejection of a reload: nothing has changed.
#[derive(Debug, Error)]
#[error("{}", .0.words())]
pub struct ReloadError(pub(crate) Problem);

/// Function that reads the configuration again.
#[derive(Clone)]
pub struct Reloader(Arc<dyn Fn() -> Result<ReloadedConfig, Refusal> + Send + Sync>);

impl Reloader {
    /// Creates a reloader. The error of `read`, with file, line and key, is returned to the caller.
    pub fn new(read: impl Fn() -> Result<ReloadedConfig, Refusal> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reloader")
    }
}

/// TLS acceptor of new connections; a reload replaces it.
#[derive(Clone)]
pub(crate) struct SharedTls(Arc<RwLock<(TlsAcceptor, Fingerprint)>>);

impl SharedTls {
    pub(crate) fn new(acceptor: TlsAcceptor, fingerprint: Fingerprint) -> Self {
        Self(Arc::new(RwLock::new((acceptor, fingerprint))))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clone()
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.0.read().unwrap_or_else(PoisonError::into_inner).1
    }

    fn replace(&self, acceptor: TlsAcceptor, fingerprint: Fingerprint) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = (acceptor, fingerprint);
    }
}

impl State {
    /// Reloads the configuration for `actor`.
    pub(crate) fn reload(&self, actor: &Actor) -> Result<Done, Problem> {
        let done = self.read_again(actor);
        match &done {
            Ok(done) => info!(actor = actor.0, "{}", done.message),
            Err(problem) => {
                let why = problem.words();
                warn!(actor = actor.0, why, "the configuration was not reloaded");
            }
        }
        done
    }

    /// Applies new tokens and returns the changes. Ends the sessions of removed tokens.
    fn take_tokens(&self, actor: &Actor, tokens: Tokens) -> Result<String, Problem> {
        let changes = self.tokens().changes(&tokens);
        self.sessions.keep(|digest| tokens.have(digest));
        self.set_tokens(tokens)?;
        if let Some(changes) = &changes {
            let (mut service, now) = self.hold()?;
            service.tokens_changed(now, actor, changes.clone());
        }
        Ok(changes
            .map(|changes| format!("; {changes}"))
            .unwrap_or_default())
    }

    fn read_again(&self, actor: &Actor) -> Result<Done, Problem> {
        let _one = self
            .reloading
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(reloader) = &self.reload else {
            let why = "this controller was started without a configuration file, so it cannot reload: restart it with --config";
            return Err(Refusal::Conflict(why.into()).into());
        };
        let wrong =
            |why: String| Problem::from(Refusal::Invalid(format!("{why}; nothing has changed")));
        let refused = |refusal| match refusal {
            Refusal::Invalid(why) => wrong(why),
            other => other.into(),
        };
        let fresh = (reloader.0)().map_err(refused)?;
        // All inputs are checked before anything changes.
        let secrets = match &fresh.tcp {
            None => None,
            Some(tcp) => {
                let tokens = Tokens::read(&tcp.tokens).map_err(|e| wrong(e.to_string()))?;
                let loaded = tcp.certificate.load(tcp.listen.ip());
                Some((tokens, loaded.map_err(|e| wrong(e.to_string()))?))
            }
        };
        let mut done = {
            let (mut service, now) = self.hold()?;
            let taken = service.reload(now, actor, fresh.settings);
            taken.map_err(refused)?
        };
        if let (Some((tokens, loaded)), Some(tls)) = (secrets, self.tls.get()) {
            done.message += &self.take_tokens(actor, tokens)?;
            if loaded.fingerprint != tls.fingerprint() {
                done.message += &format!("; the certificate has changed, {}", loaded.fingerprint);
            }
            tls.replace(TlsAcceptor::from(loaded.config), loaded.fingerprint);
        }
        Ok(done)
    }
}
