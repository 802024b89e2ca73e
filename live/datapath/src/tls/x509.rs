//! Sessions with certificates: each side authenticates with one that its CA has signed.

use std::path::Path;
use std::sync::Arc;

use rustls::client::{UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::{Session, StepResult, TlsError, Wish};

const CA: &str = "ca-cert.pem";
const CRL: &str = "ca-crl.pem";

/// Files of a server; the optional one is the last.
pub(super) const SERVER_FILES: [&str; 4] = [CA, "server-cert.pem", "server-key.pem", CRL];

fn wrong(path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::File {
        path: path.into(),
        why: why.to_string(),
    }
}

fn unreadable(path: &Path, error: pem::Error) -> TlsError {
    match error {
        pem::Error::Io(source) => TlsError::Read {
            path: path.into(),
            source,
        },
        other => wrong(path, other),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|e| unreadable(path, e))?;
    match found.is_empty() {
        true => Err(wrong(path, "the file contains no certificate")),
        false => Ok(found),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let secret = secret::read(path)?;
    PrivateKeyDer::from_pem_slice(&secret).map_err(|e| match e {
        pem::Error::NoItemsFound => wrong(path, "the file contains no private key"),
        e => wrong(path, e),
    })
}

/// Certificates of the CA, and its revocation lists.
struct Trust {
    roots: Arc<RootCertStore>,
    crls: Vec<CertificateRevocationListDer<'static>>,
}

fn trust(dir: &Path) -> Result<Trust, TlsError> {
    let ca = dir.join(CA);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&ca)? {
        roots.add(certificate).map_err(|e| wrong(&ca, e))?;
    }
    let path = dir.join(CRL);
    let crls = match path.try_exists() {
        Ok(false) => vec![],
        _ => CertificateRevocationListDer::pem_file_iter(&path)
            .and_then(Iterator::collect)
            .map_err(|e| unreadable(&path, e))?,
    };
    Ok(Trust {
        roots: roots.into(),
        crls,
    })
}

fn provider() -> Arc<CryptoProvider> {
    rustls::crypto::ring::default_provider().into()
}

/// Creates the server side from the files of a directory.
pub(super) fn server(dir: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let Trust { roots, crls } = trust(dir)?;
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .with_crls(crls)
        .only_check_end_entity_revocation()
        .build()
        .map_err(|e| wrong(&dir.join(CRL), e))?;
    let (chain, secret) = pair(dir, "server")?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(dir, e))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, secret)
        .map_err(|e| wrong(&dir.join("server-cert.pem"), e))?;
    // Each connection authenticates again: an earlier session does not admit a client with an expired or revoked
    // certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config.into())
}

/// Reads a certificate chain and its key.
fn pair(
    dir: &Path,
    whose: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates(&dir.join(format!("{whose}-cert.pem")))?;
    let secret = key(&dir.join(format!("{whose}-key.pem")))?;
    Ok((chain, secret))
}

/// Begins a session with a client.
pub(super) fn accept(config: &Arc<ServerConfig>) -> Result<Session, TlsError> {
    let connection = UnbufferedServerConnection::new(config.clone()).map_err(peer)?;
    Ok(Session::Server(connection.into()))
}

/// Creates the client side from the files of a directory, with the client's certificate if one exists.
pub(super) fn client(dir: &Path) -> Result<ClientConfig, TlsError> {
    let Trust { roots, crls } = trust(dir)?;
    let servers = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .with_crls(crls)
        .only_check_end_entity_revocation()
        .build()
        .map_err(|e| wrong(&dir.join(CRL), e))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(dir, e))?
        .with_webpki_verifier(servers);
    let own = dir.join("client-cert.pem");
    let mut config = match own.try_exists() {
        Ok(false) => config.with_no_client_auth(),
        _ => {
            let (chain, secret) = pair(dir, "client")?;
            let config = config.with_client_auth_cert(chain, secret);
            config.map_err(|e| wrong(&own, e))?
        }
    };
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Begins a session with the server of this name.
pub(super) fn connect(dir: &Path, name: &str) -> Result<Session, TlsError> {
    begin(client(dir)?, name)
}

pub(super) fn begin(config: ClientConfig, name: &str) -> Result<Session, TlsError> {
    let name = ServerName::try_from(name.to_owned()).map_err(|_| {
        TlsError::Peer(format!(
            "{name:?} is not a valid host name for a certificate"
        ))
    })?;
    let connection = UnbufferedClientConnection::new(config.into(), name).map_err(peer)?;
    Ok(Session::Client(connection.into()))
}

fn peer(error: impl std::fmt::Display) -> TlsError {
    TlsError::Peer(error.to_string())
}

/// Evaluates the state of a session after received bytes. `out` receives all bytes that the session must send.
pub(super) fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    wish: Wish<'_>,
    out: &mut Vec<u8>,
) -> (usize, Result<StepResult, TlsError>) {
    let mut discard = status.discard;
    let next = match (status.state, wish) {
        (Err(error), _) => Err(peer(error)),
        (Ok(ConnectionState::EncodeTlsData(mut data)), _) => grow(out, |room| {
            data.encode(room).map_err(|error| match error {
                EncodeError::InsufficientSize(e) => Some(e.required_size),
                EncodeError::AlreadyEncoded => None,
            })
        })
        .map(|()| StepResult::Again),
        (Ok(ConnectionState::TransmitTlsData(data)), _) => {
            data.done(); // the bytes are in `out`
            Ok(StepResult::Again)
        }
        (Ok(ConnectionState::BlockedHandshake), _) => Ok(StepResult::Blocked),
        (Ok(ConnectionState::WriteTraffic(mut traffic)), Wish::Write(bytes, _)) => {
            grow(out, |room| traffic.encrypt(bytes, room).map_err(needs))
                .map(|()| StepResult::Ready)
        }
        (Ok(ConnectionState::WriteTraffic(mut traffic)), Wish::Close) => {
            grow(out, |room| traffic.queue_close_notify(room).map_err(needs))
                .map(|()| StepResult::Ready)
        }
        (Ok(ConnectionState::WriteTraffic(_)), _) => Ok(StepResult::Ready),
        (Ok(ConnectionState::PeerClosed | ConnectionState::Closed), _) => Ok(StepResult::Closed),
        (
            Ok(ConnectionState::ReadTraffic(mut traffic)),
            Wish::Read(plain) | Wish::Write(_, plain),
        ) => {
            let mut next = Ok(StepResult::Plain);
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                    Err(error) => next = Err(peer(error)),
                }
            }
            next
        }
        (Ok(ConnectionState::ReadTraffic(_)), _) => Ok(StepResult::Plain),
        (Ok(_), _) => Err(peer("the peer sent early data, which was not offered")),
    };
    (discard, next)
}

fn needs(error: EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(e) => Some(e.required_size),
        EncryptError::EncryptExhausted => None,
    }
}

/// Appends the output of `write`. If the buffer is too small, `write` returns the needed size and is repeated.
fn grow(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), TlsError> {
    let at = out.len();
    loop {
        match write(&mut out[at..]) {
            Ok(n) => {
                out.truncate(at + n);
                return Ok(());
            }
            Err(Some(needs)) => out.resize(at + needs, 0),
            Err(None) => {
                out.truncate(at);
                return Err(peer("the session reached its encryption limit"));
            }
        }
    }
}
