//! What a host lends, as it was configured.

use std::path::{Path, PathBuf};

use config::LendListen;
use units::Bytes;

/// What a host lends, and how.
#[derive(Debug, Clone)]
pub struct LendSettings {
    /// How much memory in all.
    pub memory: Bytes,
    /// How much flash in all, and the directory on it, an absolute path; nothing if there is none.
    pub flash: Option<(Bytes, PathBuf)>,
    /// Where processes listen; a directory of sockets is an absolute path.
    pub listen: LendListen,
    /// The directory of their certificates, where hosts that use them have to speak TLS.
    pub tls_certificates: Option<PathBuf>,
    /// The directory in which those hosts have theirs.
    pub client_certificates: Option<PathBuf>,
    /// The program, which has a command `cache-node`.
    pub program: PathBuf,
}

impl LendSettings {
    /// As they were configured; paths are taken from `base`.
    ///
    /// # Errors
    /// The key, and why it cannot be.
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
