//! Configured lending of a host.

use std::path::{Path, PathBuf};

use config::LendListen;
use units::Bytes;

/// Memory and flash that a host lends, and addresses and certificates for it.
#[derive(Debug, Clone)]
pub struct LendSettings {
    /// Memory in all.
    pub memory: Bytes,
    /// Flash in all, and a directory on it as an absolute path; `None` if the host lends no flash.
    pub flash: Option<(Bytes, PathBuf)>,
    /// Addresses of processes. A directory of sockets is an absolute path.
    pub listen: LendListen,
    /// Directory of the processes' certificates. With it, hosts that use them must connect with TLS.
    pub tls_certificates: Option<PathBuf>,
    /// Directory in which the hosts that use the processes have their certificates.
    pub client_certificates: Option<PathBuf>,
    /// Program that has the command `cache-node`.
    pub program: PathBuf,
}

impl LendSettings {
    /// Creates the settings from the configuration. Paths are relative to `base`.
    ///
    /// # Errors
    /// The key with an invalid value, and the reason.
    pub fn new(
        words: &config::LendConfig,
        base: &Path,
        program: PathBuf,
    ) -> Result<Self, (&'static str, String)> {
        let absolute = |path: &str, key: &'static str| {
            std::path::absolute(base.join(path)).map_err(|e| (key, format!("{path:?}: {e}")))
        };
        let listen = match words.check()? {
            LendListen::Unix(dir) => {
                let dir = absolute(&dir, "listen")?;
                let text = dir.to_str().map(str::to_owned);
                let why = || ("listen", format!("{}: not UTF-8", dir.display()));
                LendListen::Unix(text.ok_or_else(why)?)
            }
            tcp => tcp,
        };
        let own = words.tls_certificates.as_deref();
        let own = own.map(|d| absolute(d, "tls_certificates")).transpose()?;
        let flash = match (words.flash, &words.flash_dir) {
            (Some(size), Some(dir)) => Some((size, absolute(dir, "flash_dir")?)),
            _ => None,
        };
        let theirs = words.client_certificates.as_ref().map(PathBuf::from);
        Ok(Self {
            memory: words.memory.unwrap_or_default(),
            flash,
            listen,
            client_certificates: theirs.or_else(|| own.clone()),
            tls_certificates: own,
            program,
        })
    }
}
