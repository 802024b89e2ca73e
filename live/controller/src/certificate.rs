//! Certificate of the controller: provided by the operator, or self-signed at the first start.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Fingerprint;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::StartError;

/// Source of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificate {
    /// PEM files.
    Files {
        /// Certificate, followed by the chain to its CA.
        certificate: PathBuf,
        key: PathBuf,
    },
    /// `controller.crt` and `controller.key` of a directory; created if they are missing. The certificate does not expire. To
    /// replace it, remove the files.
    SelfSigned { directory: PathBuf },
}

/// TLS configuration and fingerprint.
pub(crate) struct LoadedCertificate {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) fingerprint: Fingerprint,
}

impl Certificate {
    /// Returns true if the files of the certificate exist, or if the operator must provide them.
    pub(crate) fn is_made(&self) -> bool {
        match self {
            Certificate::Files { .. } => true,
            Certificate::SelfSigned { directory } => {
                let is_there = |name| directory.join(name).exists();
                is_there("controller.crt") && is_there("controller.key")
            }
        }
    }

    /// Loads the certificate, or creates it with `address` as one of its names.
    pub(crate) fn load(&self, address: IpAddr) -> Result<LoadedCertificate, StartError> {
        match self {
            Certificate::Files { certificate, key } => load(certificate, key),
            Certificate::SelfSigned { directory } => {
                let certificate = directory.join("controller.crt");
                let key = directory.join("controller.key");
                if !(certificate.exists() && key.exists()) {
                    make(&certificate, &key, address)?;
                }
                load(&certificate, &key)
            }
        }
    }
}

fn failed(path: &Path, why: impl std::fmt::Display) -> StartError {
    StartError::Certificate {
        path: path.into(),
        why: why.to_string(),
    }
}

fn load(certificate: &Path, key: &Path) -> Result<LoadedCertificate, StartError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .map_err(|e| failed(certificate, e))?
        .collect();
    let chain = chain.map_err(|e| failed(certificate, e))?;
    let Some(first) = chain.first() else {
        return Err(failed(certificate, "the file contains no certificate"));
    };
    let fingerprint = Fingerprint::of(first);
    let secret = secret::read(key)?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|e| failed(key, e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(certificate, e))?
        .with_no_client_auth()
        .with_single_cert(chain, secret);
    let mut config = config.map_err(|e| failed(certificate, e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    Ok(LoadedCertificate {
        config,
        fingerprint,
    })
}

/// Creates a key and a certificate for this machine. After a crash between the two, both are created again.
fn make(certificate: &Path, key: &Path, address: IpAddr) -> Result<(), StartError> {
    let mut names = vec!["localhost".into(), "127.0.0.1".into(), "::1".into()];
    names.extend(host_name());
    if !address.is_unspecified() && !address.is_loopback() {
        names.push(address.to_string());
    }
    let pair = KeyPair::generate().map_err(|e| failed(key, e))?;
    let mut params = CertificateParams::new(names).map_err(|e| failed(certificate, e))?;
    let name = &mut params.distinguished_name;
    *name = rcgen::DistinguishedName::new();
    name.push(DnType::CommonName, "terrace controller");
    let signed = params
        .self_signed(&pair)
        .map_err(|e| failed(certificate, e))?;
    let _ = fs::remove_file(certificate);
    replace(key, 0o600, &pair.serialize_pem()).map_err(|e| failed(key, e))?;
    replace(certificate, 0o644, &signed.pem()).map_err(|e| failed(certificate, e))
}

fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    (!name.is_empty() && name != "localhost" && name.bytes().all(plain)).then(|| name.into())
}

/// Writes a file atomically. Its mode is `mode` from the start.
fn replace(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn own(directory: &Path) -> Certificate {
        let directory = directory.into();
        Certificate::SelfSigned { directory }
    }

    #[test]
    fn certificate_is_created_once_with_a_private_key() {
        let dir = tempfile::tempdir().unwrap();
        let address = "127.0.0.1".parse().unwrap();
        let load = || own(dir.path()).load(address);
        let first = load().unwrap().fingerprint;
        assert_eq!(load().unwrap().fingerprint, first);
        let key = dir.path().join("controller.key");
        let mode = fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A certificate without its key is unusable, so both are created again.
        fs::remove_file(&key).unwrap();
        assert_ne!(load().unwrap().fingerprint, first);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let error = load().err().unwrap().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn invalid_certificate_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let address = "127.0.0.1".parse().unwrap();
        own(dir.path()).load(address).unwrap();
        let (good, key) = (
            dir.path().join("controller.crt"),
            dir.path().join("controller.key"),
        );
        let files = |certificate: &Path, key: &Path| {
            let files = Certificate::Files {
                certificate: certificate.into(),
                key: key.into(),
            };
            files.load(address).err().map(|e| e.to_string())
        };
        assert_eq!(files(&good, &key), None);
        let nowhere = Path::new("/nowhere/x.pem");
        assert!(files(nowhere, &key).unwrap().contains("/nowhere/x.pem"));
        assert!(files(&good, nowhere).unwrap().contains("/nowhere/x.pem"));
        assert!(
            files(&key, &key)
                .unwrap()
                .contains("contains no certificate")
        );
        let other = tempfile::tempdir().unwrap();
        own(other.path()).load(address).unwrap();
        // The key belongs to another certificate.
        assert!(files(&good, &other.path().join("controller.key")).is_some());
    }
}
