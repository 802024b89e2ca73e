//! Trust of a client: certificates that a chosen CA has signed, or exactly one certificate, identified by its SHA-256.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::error::ClientError;

/// Trusted certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsTrust {
    /// None: for unix sockets; refused for TLS.
    Nothing,
    /// Certificates for the host's name, signed by a CA of this PEM file.
    CaFile(PathBuf),
    /// This certificate, with any name and any issuer.
    Fingerprint(Fingerprint),
}

/// SHA-256 of a certificate (DER).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub fn of(der: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, der);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = ClientError;

    /// Parses the displayed form, and the form with colons that `openssl x509 -fingerprint -sha256` prints.
    fn from_str(text: &str) -> Result<Self, ClientError> {
        let unknown = || ClientError::Fingerprint(text.into());
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let digits: String = digits.chars().filter(|c| *c != ':').collect();
        if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(unknown());
        }
        let mut bytes = [0; 32];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| unknown())?;
        }
        Ok(Self(bytes))
    }
}

impl TlsTrust {
    /// Returns the configuration of rustls; `None` for no trust.
    pub(crate) fn config(&self) -> Result<Option<Arc<ClientConfig>>, ClientError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| ClientError::System(std::io::Error::other(e)))?;
        let builder = match self {
            TlsTrust::Nothing => return Ok(None),
            TlsTrust::CaFile(path) => builder.with_root_certificates(roots(path)?),
            TlsTrust::Fingerprint(fingerprint) => {
                let pinned = PinnedVerifier {
                    fingerprint: *fingerprint,
                    provider,
                };
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(pinned))
            }
        };
        Ok(Some(Arc::new(builder.with_no_client_auth())))
    }
}

fn roots(path: &Path) -> Result<RootCertStore, ClientError> {
    let failed = |why: String| ClientError::CaFile {
        path: path.into(),
        why,
    };
    let mut store = RootCertStore::empty();
    let file = CertificateDer::pem_file_iter(path).map_err(|e| failed(e.to_string()))?;
    for certificate in file {
        let certificate = certificate.map_err(|e| failed(e.to_string()))?;
        store.add(certificate).map_err(|e| failed(e.to_string()))?;
    }
    match store.is_empty() {
        true => Err(failed("the file contains no certificate".into())),
        false => Ok(store),
    }
}

/// Verifier that trusts one certificate. It checks that the server has the private key. It does not check names and dates,
/// because the operator chose this certificate.
#[derive(Debug)]
struct PinnedVerifier {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match Fingerprint::of(end_entity) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_parse_in_both_forms() {
        // SHA-256 of "abc", FIPS 180-2.
        let known = Fingerprint::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(known.to_string(), text);
        assert_eq!(text.parse::<Fingerprint>().unwrap(), known);
        let openssl = "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:B4:10:FF:61:F2:00:15:AD";
        assert_eq!(openssl.parse::<Fingerprint>().unwrap(), known);
        for bad in [
            "",
            "sha256:",
            &text[..70],
            &format!("{text}0"),
            &text.replace('b', "é"),
        ] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ca_file_without_certificates_is_refused() {
        let error = TlsTrust::CaFile("/dev/null".into()).config().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use the CA file /dev/null: the file contains no certificate"
        );
        let error = TlsTrust::CaFile("/nowhere/ca.pem".into())
            .config()
            .unwrap_err();
        assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
        assert!(TlsTrust::Nothing.config().unwrap().is_none());
    }
}
