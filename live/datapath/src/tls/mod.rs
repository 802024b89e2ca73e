//! TLS of a connection, by certificates or by pre-shared keys.
//!
//! ```text
//!   socket ──▶ input (ciphertext) ──▶ session ──▶ one record of plaintext ──▶ reader
//!   socket ◀── out (ciphertext)   ◀── session ◀──────────────────────────── writer
//! ```
//!
//! A [`Channel`] is a session with its buffers, sans I/O. It receives at most as many bytes as `input` has room for.
//! It decrypts one record at a time, and only for a read. It encrypts at most [`OUT_BYTES`] ahead. The memory of an
//! authenticated connection is therefore bounded, independent of the peer's data and of its reading.
//!
//! Handshakes compute with keys, which takes milliseconds. Therefore `handshakes` and connecting threads run them,
//! and workers never do. The library of a session is hidden from other modules: `rustls` for certificates ([`x509`]),
//! OpenSSL for pre-shared keys (`psk`), which rustls does not support.
//!
//! Not supported: resumption and early data, so each connection authenticates again and nothing can be replayed;
//! renegotiation; versions before TLS 1.2.

pub mod fuzzing;
pub(crate) mod handshakes;
#[cfg(feature = "psk")]
mod psk;
mod x509;

#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nbd::TlsWords;
use thiserror::Error;
use tracing::{info, warn};

use crate::io::{Buf, Target};

/// Size of the buffer of received ciphertext. It holds the largest handshake message that is accepted, and several
/// records.
const INPUT_BYTES: usize = 64 << 10;

/// Most plaintext that is encrypted at once, in several records. More is encrypted only after the socket has accepted
/// these. Bounds the memory of a connection.
pub(crate) const OUT_BYTES: usize = 64 << 10;

/// Largest plaintext of one record.
const RECORD_BYTES: usize = 16 << 10;

/// Shortest interval between checks of the files of certificates and keys, made when a client connects.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reason why TLS cannot be used or has ended.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{path}: {why}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Description of the fault.
        why: String,
    },
    /// A key file cannot be read, or other users can read it.
    #[error(transparent)]
    Secret(#[from] secret::SecretError),
    /// This build does not support pre-shared keys.
    #[error("PSK needs a build with --features psk")]
    NoPsk,
    /// Both kinds of credentials are configured.
    #[error("use either certificates or pre-shared keys")]
    BothKinds,
    /// A URI gives no means to authenticate the server.
    #[error("nbds:// needs tls-certificates=DIR or tls-psk-file=FILE to authenticate the server")]
    NoTrust,
    /// The peer fails to authenticate, rejects our authentication, or violates the protocol.
    #[error("TLS: {0}")]
    Peer(String),
}

/// Credentials with which a server authenticates itself and its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Directory with `ca-cert.pem`, `server-cert.pem`, `server-key.pem` and, optionally, `ca-crl.pem`.
    Certificates(PathBuf),
    /// File of lines `user:key` with hexadecimal keys.
    Psk(PathBuf),
}

impl Credentials {
    /// Returns the credentials that operators configured, if any.
    ///
    /// # Errors
    /// [`TlsError::BothKinds`].
    pub fn of(
        certificates: Option<PathBuf>,
        psk: Option<PathBuf>,
    ) -> Result<Option<Self>, TlsError> {
        match (certificates, psk) {
            (Some(_), Some(_)) => Err(TlsError::BothKinds),
            (Some(dir), None) => Ok(Some(Self::Certificates(dir))),
            (None, Some(file)) => Ok(Some(Self::Psk(file))),
            (None, None) => Ok(None),
        }
    }
}

/// Factory of a server's sessions.
enum Maker {
    X509(Arc<rustls::ServerConfig>),
    #[cfg(feature = "psk")]
    Psk(psk::Server),
}

/// Version of a file that was read.
type Stamp = Option<(SystemTime, u64, u64)>;

struct LoadedCredentials {
    maker: Maker,
    stamps: Vec<Stamp>,
    looked: Instant,
}

/// Server side of TLS, with the credentials from the last read of their files.
pub(crate) struct ServerTls {
    credentials: Credentials,
    loaded: Mutex<LoadedCredentials>,
}

impl ServerTls {
    pub(crate) fn load(credentials: Credentials) -> Result<Self, TlsError> {
        let loaded = LoadedCredentials {
            // Stamp before reading: files that change meanwhile are read again.
            stamps: stamps(&credentials),
            maker: maker(&credentials)?,
            looked: Instant::now(),
        };
        Ok(Self {
            credentials,
            loaded: Mutex::new(loaded),
        })
    }

    /// Begins a session with a client. Reads changed files again; while they are invalid, the earlier credentials
    /// stay in use.
    pub(crate) fn begin(&self) -> Result<Channel, TlsError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked.elapsed() >= LOOK_EVERY {
            loaded.looked = Instant::now();
            let now = stamps(&self.credentials);
            if now != loaded.stamps {
                loaded.stamps = now;
                match maker(&self.credentials) {
                    Ok(maker) => {
                        loaded.maker = maker;
                        info!("loaded changed certificates or keys: they apply to new connections");
                    }
                    Err(error) => {
                        let why = crate::text::explain(&error);
                        warn!(
                            why,
                            "cannot load changed certificates or keys: the previous ones stay in use"
                        );
                    }
                }
            }
        }
        let session = match &loaded.maker {
            Maker::X509(config) => x509::accept(config)?,
            #[cfg(feature = "psk")]
            Maker::Psk(server) => server.accept()?,
        };
        Ok(Channel::new(session))
    }
}

fn maker(credentials: &Credentials) -> Result<Maker, TlsError> {
    match credentials {
        Credentials::Certificates(dir) => x509::server(dir).map(Maker::X509),
        #[cfg(feature = "psk")]
        Credentials::Psk(file) => psk::Server::load(file).map(Maker::Psk),
        #[cfg(not(feature = "psk"))]
        Credentials::Psk(_) => Err(TlsError::NoPsk),
    }
}

fn stamps(credentials: &Credentials) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let files: Vec<PathBuf> = match credentials {
        Credentials::Certificates(dir) => x509::SERVER_FILES.iter().map(|f| dir.join(f)).collect(),
        Credentials::Psk(file) => vec![file.clone()],
    };
    let stamp = |file: PathBuf| {
        let meta = std::fs::metadata(file).ok()?;
        Some((meta.modified().ok()?, meta.ino(), meta.len()))
    };
    files.into_iter().map(stamp).collect()
}

/// Begins a session with the server of a URI, at `host`.
pub(crate) fn connect(words: &TlsWords, host: &str) -> Result<Channel, TlsError> {
    let session = match (&words.certificates, &words.psk_file) {
        (Some(dir), _) => x509::connect(dir, words.hostname.as_deref().unwrap_or(host))?,
        #[cfg(feature = "psk")]
        (None, Some(file)) => psk::connect(file, words.username.as_deref())?,
        #[cfg(not(feature = "psk"))]
        (None, Some(_)) => return Err(TlsError::NoPsk),
        (None, None) => return Err(TlsError::NoTrust),
    };
    Ok(Channel::new(session))
}

/// Checks that the TLS parameters of a URI can be used.
pub(crate) fn check(words: &TlsWords) -> Result<(), TlsError> {
    connect(words, "localhost").map(|_| ())
}

/// Operation of a session.
enum Wish<'a> {
    /// Continue the handshake; leave plaintext in place.
    Shake,
    /// Append the plaintext of the next record to this buffer.
    Read(&'a mut Vec<u8>),
    /// Encrypt these bytes. Plaintext of preceding records is appended to the buffer.
    Write(&'a [u8], &'a mut Vec<u8>),
    /// Announce the end of data.
    Close,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepResult {
    /// Repeat the step.
    Again,
    /// The handshake needs more bytes of the peer.
    Blocked,
    /// The operation is complete: the handshake is over and no plaintext is left without more bytes of the peer, or
    /// all data is encrypted.
    Ready,
    /// Plaintext is available.
    Plain,
    /// The peer announced the end of its data.
    Closed,
}

/// One side of a session, with either library.
enum Session {
    Server(Box<rustls::server::UnbufferedServerConnection>),
    Client(Box<rustls::client::UnbufferedClientConnection>),
    #[cfg(feature = "psk")]
    Psk(Box<psk::Stream>),
}

impl Session {
    /// Processes the front of `input`, which holds all received bytes that are not processed yet. Returns the number
    /// of bytes processed by this step.
    fn step(
        &mut self,
        input: &mut [u8],
        wish: Wish<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, Result<StepResult, TlsError>) {
        match self {
            Session::Server(c) => x509::step(c.process_tls_records(input), wish, out),
            Session::Client(c) => x509::step(c.process_tls_records(input), wish, out),
            #[cfg(feature = "psk")]
            Session::Psk(stream) => stream.step(input, wish, out),
        }
    }
}

/// Session with its received data and the data to send.
pub struct Channel {
    session: Session,
    input: Arc<Buf>,
    start: usize,
    end: usize,
    /// Plaintext of one record; `taken` bytes of it were read.
    plain: Vec<u8>,
    taken: usize,
    out: Vec<u8>,
    sent: usize,
    /// True once the peer has announced the end of its data.
    closed: bool,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (received, unsent) = (self.end - self.start, self.out.len() - self.sent);
        write!(f, "Channel({received} B in, {unsent} B out)")
    }
}

impl Channel {
    fn new(session: Session) -> Self {
        Self {
            session,
            input: Buf::new(INPUT_BYTES),
            start: 0,
            end: 0,
            plain: vec![],
            taken: 0,
            out: vec![],
            sent: 0,
            closed: false,
        }
    }

    /// Continues the handshake. Returns true if it is complete. The caller must then send [`Channel::unsent`], also
    /// after an error: it may contain an alert.
    pub(crate) fn shake(&mut self) -> Result<bool, TlsError> {
        loop {
            match self.step(None) {
                Ok(StepResult::Again) => {}
                Ok(StepResult::Blocked) if self.is_full() => {
                    return Err(TlsError::Peer("handshake message too long".into()));
                }
                Ok(StepResult::Blocked) => return Ok(false),
                Ok(StepResult::Ready | StepResult::Plain) => return Ok(true),
                Ok(StepResult::Closed) => {
                    return Err(TlsError::Peer("the peer closed the connection".into()));
                }
                Err(error) => {
                    let _ = self.step(None); // produces the alert with the reason
                    return Err(error);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.end - self.start == INPUT_BYTES
    }

    /// Makes one step: encrypts `write`, or continues the handshake.
    fn step(&mut self, write: Option<&[u8]>) -> Result<StepResult, TlsError> {
        let wish = match write {
            Some(bytes) => Wish::Write(bytes, &mut self.plain),
            None => Wish::Shake,
        };
        let (used, next) = with_input(&self.input, self.start..self.end, |input| {
            self.session.step(input, wish, &mut self.out)
        });
        self.start += used;
        next
    }

    /// Reads decrypted data without further ciphertext; 0 if no data is left. Unread data stays encrypted, except for
    /// one record.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> Result<usize, TlsError> {
        let mut n = 0;
        while n < to.len() {
            if self.taken == self.plain.len() {
                self.plain.clear();
                self.taken = 0;
                if self.closed || !self.decrypt()? {
                    break;
                }
            }
            let now = (to.len() - n).min(self.plain.len() - self.taken);
            to[n..n + now].copy_from_slice(&self.plain[self.taken..self.taken + now]);
            self.taken += now;
            n += now;
        }
        Ok(n)
    }

    /// Decrypts one record; false if none is complete.
    fn decrypt(&mut self) -> Result<bool, TlsError> {
        // Replies never amount to this much. These bytes are messages of the session itself, to a peer that sends
        // requests and does not read.
        if self.unsent().len() > 2 * OUT_BYTES {
            return Err(TlsError::Peer(
                "the peer sends requests and does not read replies".into(),
            ));
        }
        loop {
            let (used, next) = with_input(&self.input, self.start..self.end, |input| {
                let wish = Wish::Read(&mut self.plain);
                self.session.step(input, wish, &mut self.out)
            });
            self.start += used;
            match next? {
                StepResult::Again => {}
                StepResult::Plain if self.plain.is_empty() => {}
                StepResult::Plain => return Ok(true),
                StepResult::Closed => {
                    self.closed = true;
                    return Ok(false);
                }
                // The buffer is large enough for whole records. A full buffer without a complete one holds a message
                // in too many fragments.
                StepResult::Ready | StepResult::Blocked if self.is_full() => {
                    return Err(TlsError::Peer("message too long".into()));
                }
                StepResult::Ready | StepResult::Blocked => return Ok(false),
            }
        }
    }

    /// Returns true if the peer announced the end of its data and all data was read.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed && self.taken == self.plain.len()
    }

    /// Returns the free space for received ciphertext.
    pub(crate) fn room(&mut self) -> Target {
        self.make_room();
        self.input.target(self.end..INPUT_BYTES)
    }

    /// Receives ciphertext into the free space, on a thread that may block.
    pub(crate) fn receive<E>(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.make_room();
        let n = self.input.fill(self.end..INPUT_BYTES, receive)?;
        self.end += n;
        Ok(n)
    }

    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start > 0 {
            let (start, end) = (self.start, self.end);
            self.input
                .fill(0..end, |bytes| bytes.copy_within(start..end, 0));
            (self.start, self.end) = (0, end - start);
        }
    }

    /// Adds `n` received bytes.
    pub(crate) fn received(&mut self, n: usize) {
        self.end += n;
    }

    /// Encrypts data. Its records are slightly longer than the data. The caller encrypts at most [`OUT_BYTES`] until
    /// all bytes have been sent.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<(), TlsError> {
        loop {
            match self.step(Some(plain))? {
                StepResult::Ready => return Ok(()),
                StepResult::Again | StepResult::Plain => {}
                // A session that both sides have closed returns this at every step.
                StepResult::Closed if self.closed => {
                    return Err(TlsError::Peer("the peer closed the connection".into()));
                }
                StepResult::Closed => self.closed = true,
                StepResult::Blocked => {
                    return Err(TlsError::Peer("the handshake is not complete".into()));
                }
            }
        }
    }

    /// Encrypts from the front of `pieces`, at most `most` bytes. A piece that fills records is encrypted in place;
    /// short pieces share one record. Returns the number of encrypted bytes.
    pub(crate) fn seal_next<P: Deref<Target = [u8]>>(
        &mut self,
        pieces: impl Iterator<Item = P>,
        most: usize,
        gathered: &mut Vec<u8>,
    ) -> Result<usize, TlsError> {
        gathered.clear();
        let record = most.min(RECORD_BYTES);
        for piece in pieces {
            if gathered.is_empty() && piece.len() >= record {
                let n = piece.len().min(most);
                self.seal(&piece[..n])?;
                return Ok(n);
            }
            let n = piece.len().min(record - gathered.len());
            gathered.extend_from_slice(&piece[..n]);
            if gathered.len() == record {
                break;
            }
        }
        if !gathered.is_empty() {
            self.seal(gathered)?;
        }
        Ok(gathered.len())
    }

    /// Announces the end of data. Nothing is sent after it.
    pub(crate) fn close(&mut self) {
        let (used, _) = with_input(&self.input, self.start..self.end, |input| {
            self.session.step(input, Wish::Close, &mut self.out)
        });
        self.start += used;
    }

    /// Returns the bytes to send.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Removes `n` sent bytes.
    pub(crate) fn sent(&mut self, n: usize) {
        self.sent += n;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// Returns the allocated memory in bytes.
    fn kept_bytes(&self) -> usize {
        INPUT_BYTES + self.plain.capacity() + self.out.capacity()
    }
}

/// Calls `look` with the received, unprocessed bytes. A receive in progress uses another part of the buffer. Steps
/// that read nothing also need these bytes, because a session remembers positions of message fragments in them.
fn with_input<R>(
    input: &Buf,
    range: std::ops::Range<usize>,
    look: impl FnOnce(&mut [u8]) -> R,
) -> R {
    match range.is_empty() {
        true => look(&mut []),
        false => input.fill(range, look),
    }
}
