//! TLS of a connection: by certificates, or by pre-shared keys.
//!
//! ```text
//!   socket ──▶ input (ciphertext) ──▶ session ──▶ one record of plaintext ──▶ whoever reads
//!   socket ◀── out (ciphertext)   ◀── session ◀──────────────────────────── whoever writes
//! ```
//!
//! A [`Channel`] is a session and its bytes, sans I/O: it takes from a socket no more than `input` has room for, decrypts one record at a
//! time and only when somebody asks, and encrypts no more ahead than [`OUT_BYTES`]. So a peer that has proved who it is costs a connection a
//! bounded number of bytes, whatever it sends and whatever it does not take.
//!
//! The handshake computes with keys, which takes milliseconds: threads do that (`handshakes`, and those that connect), and no worker.
//! Which library a session is of, nobody else knows: certificates are `rustls`' ([`x509`]), pre-shared keys OpenSSL's (`psk`), since rustls has none.
//!
//! What it is not: no resumption and no early data, so that who was let in is asked again each time, and nothing can be replayed; no renegotiation;
//! nothing older than TLS 1.2.

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

/// Ciphertext that is received before it is decrypted. Holds the largest message of a handshake that is taken, and several records.
const INPUT_BYTES: usize = 64 << 10;

/// Plaintext that is encrypted at once, in several records; no more is until the socket has taken those. Bounds a connection's memory.
pub(crate) const OUT_BYTES: usize = 64 << 10;

/// Plaintext of one record at most.
const RECORD_BYTES: usize = 16 << 10;

/// Files of certificates and keys are looked at this often, when somebody connects.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why there is no TLS, or no more.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file has something else than it should.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A key that cannot be read, or that others can.
    #[error(transparent)]
    Secret(#[from] secret::SecretError),
    /// This build has no pre-shared keys.
    #[error("PSK needs a build with --features psk")]
    NoPsk,
    /// A URI that names nothing to trust the server by.
    #[error("nbds:// needs tls-certificates=DIR or tls-psk-file=FILE to authenticate the server")]
    NoTrust,
    /// The peer does not prove who it is, does not take our proof, or breaks the protocol.
    #[error("TLS: {0}")]
    Peer(String),
}

/// What a server proves itself with, and its clients to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A directory with `ca-cert.pem`, `server-cert.pem`, `server-key.pem` and, if there is one, `ca-crl.pem`.
    Certificates(PathBuf),
    /// A file of lines `user:key`, keys in hexadecimal.
    Psk(PathBuf),
}

impl Credentials {
    /// Those that operators named, if they did.
    ///
    /// # Errors
    /// When they named both.
    pub fn of(certificates: Option<PathBuf>, psk: Option<PathBuf>) -> Result<Option<Self>, String> {
        match (certificates, psk) {
            (Some(_), Some(_)) => Err("use either certificates or pre-shared keys".into()),
            (Some(dir), None) => Ok(Some(Self::Certificates(dir))),
            (None, Some(file)) => Ok(Some(Self::Psk(file))),
            (None, None) => Ok(None),
        }
    }
}

/// What makes sessions of a server's side.
enum Maker {
    X509(Arc<rustls::ServerConfig>),
    #[cfg(feature = "psk")]
    Psk(psk::Server),
}

/// Which file was read.
type Stamp = Option<(SystemTime, u64, u64)>;

struct Loaded {
    maker: Maker,
    stamps: Vec<Stamp>,
    looked: Instant,
}

/// A server's side of TLS: credentials as they were read last.
pub(crate) struct ServerTls {
    credentials: Credentials,
    loaded: Mutex<Loaded>,
}

impl ServerTls {
    pub(crate) fn load(credentials: Credentials) -> Result<Self, TlsError> {
        let loaded = Loaded {
            // Before the files are read: what changes meanwhile is read again.
            stamps: stamps(&credentials),
            maker: maker(&credentials)?,
            looked: Instant::now(),
        };
        Ok(Self {
            credentials,
            loaded: Mutex::new(loaded),
        })
    }

    /// A session with a client that was told to begin. Files that have changed are read again; while they are wrong, those from before hold.
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

/// A session with the server that a URI names, at `host`.
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

/// Whether what a URI says of TLS can be used here.
pub(crate) fn check(words: &TlsWords) -> Result<(), TlsError> {
    connect(words, "localhost").map(|_| ())
}

/// What somebody wants of a session.
enum Wish<'a> {
    /// To go on with the handshake; plaintext stays where it is.
    Shake,
    /// The plaintext of the next record, at the end of this.
    Read(&'a mut Vec<u8>),
    /// To encrypt these; plaintext of records that come before goes to the end of that.
    Write(&'a [u8], &'a mut Vec<u8>),
    /// To say that there will be no more.
    Close,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Try again.
    Again,
    /// The handshake needs more of the peer's bytes.
    Blocked,
    /// The handshake is over, and there is nothing to read without more of the peer's bytes; or what was to be written is.
    Ready,
    /// There is plaintext.
    Plain,
    /// The peer says that there will be no more.
    Closed,
}

/// One side of a session, of whichever library.
enum Session {
    Server(Box<rustls::server::UnbufferedServerConnection>),
    Client(Box<rustls::client::UnbufferedClientConnection>),
    #[cfg(feature = "psk")]
    Psk(Box<psk::Stream>),
}

impl Session {
    /// Looks at the front of `input`, all that was received and is not done with; how many bytes are done with now.
    fn step(
        &mut self,
        input: &mut [u8],
        wish: Wish<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, Result<Next, TlsError>) {
        match self {
            Session::Server(c) => x509::step(c.process_tls_records(input), wish, out),
            Session::Client(c) => x509::step(c.process_tls_records(input), wish, out),
            #[cfg(feature = "psk")]
            Session::Psk(stream) => stream.step(input, wish, out),
        }
    }
}

/// A session, what was received for it and what is to be sent.
pub struct Channel {
    session: Session,
    input: Arc<Buf>,
    start: usize,
    end: usize,
    /// Of one record, and how much of it was read.
    plain: Vec<u8>,
    taken: usize,
    out: Vec<u8>,
    sent: usize,
    /// The peer has said that there will be no more.
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

    /// Goes on with the handshake; whether it is over. What is to be sent then has to be, also where it failed: it says why.
    pub(crate) fn shake(&mut self) -> Result<bool, TlsError> {
        loop {
            match self.step(None) {
                Ok(Next::Again) => {}
                Ok(Next::Blocked) if self.is_full() => {
                    return Err(TlsError::Peer("handshake message too long".into()));
                }
                Ok(Next::Blocked) => return Ok(false),
                Ok(Next::Ready | Next::Plain) => return Ok(true),
                Ok(Next::Closed) => {
                    return Err(TlsError::Peer("the peer closed the connection".into()));
                }
                Err(error) => {
                    let _ = self.step(None); // the alert, which says why
                    return Err(error);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.end - self.start == INPUT_BYTES
    }

    /// One step; with `write` that is encrypted, else the handshake goes on.
    fn step(&mut self, write: Option<&[u8]>) -> Result<Next, TlsError> {
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

    /// Reads what there is, without more ciphertext; 0 when there is nothing. What is not read stays where it is, encrypted but for one record.
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

    /// Decrypts one record; false when there is none.
    fn decrypt(&mut self) -> Result<bool, TlsError> {
        // Answers are never so many: these are the session's own, to somebody who makes it talk and does not listen.
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
                Next::Again => {}
                Next::Plain if self.plain.is_empty() => {}
                Next::Plain => return Ok(true),
                Next::Closed => {
                    self.closed = true;
                    return Ok(false);
                }
                // Whole records fit: what fills all and has none is a message in too many pieces.
                Next::Ready | Next::Blocked if self.is_full() => {
                    return Err(TlsError::Peer("message too long".into()));
                }
                Next::Ready | Next::Blocked => return Ok(false),
            }
        }
    }

    /// Whether the peer has said that there will be no more, and all before it was read.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed && self.taken == self.plain.len()
    }

    /// Where ciphertext is to be received.
    pub(crate) fn room(&mut self) -> Target {
        self.make_room();
        self.input.target(self.end..INPUT_BYTES)
    }

    /// Receives ciphertext where it belongs, on a thread that may wait.
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

    /// So many bytes were received.
    pub(crate) fn received(&mut self, n: usize) {
        self.end += n;
    }

    /// Encrypts; what is to be sent grows by a little more than that. Not more than [`OUT_BYTES`] before all of it was sent.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Result<(), TlsError> {
        loop {
            match self.step(Some(plain))? {
                Next::Ready => return Ok(()),
                Next::Again | Next::Plain => {}
                // A session that both sides have closed returns this at every step.
                Next::Closed if self.closed => {
                    return Err(TlsError::Peer("the peer closed the connection".into()));
                }
                Next::Closed => self.closed = true,
                Next::Blocked => {
                    return Err(TlsError::Peer("the handshake is not complete".into()));
                }
            }
        }
    }

    /// Encrypts from the front of `pieces`, `most` bytes at most: one that fills records from where it is, what is short together, in one record. How many
    /// bytes that were.
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

    /// Says goodbye: the last that is to be sent.
    pub(crate) fn close(&mut self) {
        let (used, _) = with_input(&self.input, self.start..self.end, |input| {
            self.session.step(input, Wish::Close, &mut self.out)
        });
        self.start += used;
    }

    /// What is to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// So many bytes of it were.
    pub(crate) fn sent(&mut self, n: usize) {
        self.sent += n;
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// Bytes that it holds.
    fn kept_bytes(&self) -> usize {
        INPUT_BYTES + self.plain.capacity() + self.out.capacity()
    }
}

/// What was received and is not done with. While more is being received, that is elsewhere in the buffer. Also those who have nothing to read look at it: a session
/// remembers where in it the pieces of a message are.
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
