//! Sessions with pre-shared keys: both sides prove that they know the key of a user.
//!
//! OpenSSL reads and writes memory here, never a socket. TLS 1.3 uses a key with SHA-256 and a fresh key exchange
//! (`psk_dhe_ke`), TLS 1.2 uses `ECDHE-PSK`. A leaked key therefore does not decrypt recorded connections.
//! Certificates are not used: the key is the only means of authentication.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode,
    SslStream, SslVerifyMode, SslVersion,
};

use super::{RECORD_BYTES, Session, StepResult, TlsError, Wish};

/// Ciphers of TLS 1.2 with authenticated encryption.
const CIPHERS_1_2: &str = "ECDHE-PSK-CHACHA20-POLY1305";
/// Ciphers of TLS 1.3 whose hash is the one of the keys.
const CIPHERS_1_3: &str = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

/// Shortest key in bytes; shorter ones can be guessed.
const KEY_BYTES_MIN: usize = 16;
/// Longest key that OpenSSL accepts.
const KEY_BYTES_MAX: usize = 256;
/// Longest user name that OpenSSL accepts.
const NAME_BYTES_MAX: usize = 128;

type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads keys by user from lines `user:key`.
fn keys(path: &Path) -> Result<Keys, TlsError> {
    let bytes = secret::read(path)?;
    let wrong = |line: usize, why: &str| TlsError::File {
        path: path.into(),
        why: format!("line {}: {why}", line + 1),
    };
    let mut keys = Keys::new();
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        // Messages never contain keys.
        let colon = line.iter().position(|b| *b == b':');
        let colon = colon.ok_or_else(|| wrong(i, "expected user:key"))?;
        let (name, key) = (&line[..colon], &line[colon + 1..]);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return Err(wrong(i, "the user name must have 1 to 128 bytes"));
        }
        let key = hexadecimal(key).ok_or_else(|| wrong(i, "the key is not hexadecimal"))?;
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(wrong(
                i,
                "the key must have 16 to 256 bytes (two hexadecimal digits each)",
            ));
        }
        if keys.insert(name.to_vec(), key).is_some() {
            return Err(wrong(i, "the user already has a key"));
        }
    }
    match keys.is_empty() {
        true => Err(TlsError::File {
            path: path.into(),
            why: "the file contains no key".into(),
        }),
        false => Ok(keys),
    }
}

fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs
        .map(|p| Some(digit(p[0])? << 4 | digit(p[1])?))
        .collect()
}

fn peer(error: impl std::fmt::Display) -> TlsError {
    TlsError::Peer(error.to_string())
}

/// Creates the common configuration of both sides.
fn context(method: SslMethod) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(method)?;
    context.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    context.set_cipher_list(CIPHERS_1_2)?;
    context.set_ciphersuites(CIPHERS_1_3)?;
    context.set_options(SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION);
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    // No certificate is trusted, so a peer with a certificate instead of the key is rejected.
    context.set_verify(SslVerifyMode::PEER);
    Ok(context)
}

/// Server side.
pub(super) struct Server(SslContext);

impl Server {
    /// Loads the keys of a file.
    pub(super) fn load(path: &Path) -> Result<Self, TlsError> {
        let keys = Arc::new(keys(path)?);
        let made = context(SslMethod::tls_server()).and_then(|mut context| {
            context.set_num_tickets(0)?;
            // OpenSSL treats a key as a session to resume, and those belong to a context.
            context.set_session_id_context(b"terrace nbd")?;
            context.set_psk_server_callback(move |_, name, room| {
                let key = name.and_then(|name| keys.get(name));
                // An unknown user gets a key of 0 bytes, with which no handshake succeeds.
                Ok(key.map_or(0, |key| {
                    let fits = key.len() <= room.len();
                    let key = if fits { &key[..] } else { &[] };
                    room[..key.len()].copy_from_slice(key);
                    key.len()
                }))
            });
            Ok(context.build())
        });
        made.map(Self).map_err(peer)
    }

    /// Begins a session with a client.
    pub(super) fn accept(&self) -> Result<Session, TlsError> {
        let mut ssl = Ssl::new(&self.0).map_err(peer)?;
        ssl.set_accept_state();
        Stream::session(ssl)
    }
}

/// Begins a session with a server that has the key of this user. Without a user, the file must have exactly one.
pub(super) fn connect(path: &Path, user: Option<&str>) -> Result<Session, TlsError> {
    let keys = keys(path)?;
    let wrong = |why: String| TlsError::File {
        path: path.into(),
        why,
    };
    let found = match user {
        Some(user) => keys.get_key_value(user.as_bytes()),
        None if keys.len() > 1 => {
            let why = "the file contains keys of several users: choose one with tls-username=NAME";
            return Err(wrong(why.into()));
        }
        None => keys.first_key_value(),
    };
    let (name, key) = found.ok_or_else(|| {
        wrong(format!(
            "the file contains no key of user {:?}",
            user.unwrap_or("")
        ))
    })?;
    let (name, key) = ([name, &b"\0"[..]].concat(), key.clone());
    let made = context(SslMethod::tls_client()).and_then(|mut context| {
        context.set_psk_client_callback(move |_, _, name_room, key_room| {
            if name.len() > name_room.len() || key.len() > key_room.len() {
                return Ok(0);
            }
            name_room[..name.len()].copy_from_slice(&name);
            key_room[..key.len()].copy_from_slice(&key);
            Ok(key.len())
        });
        Ssl::new(&context.build())
    });
    let mut ssl = made.map_err(peer)?;
    ssl.set_connect_state();
    Stream::session(ssl)
}

/// Buffers that OpenSSL reads and writes.
#[derive(Debug, Default)]
struct Pipe {
    input: Vec<u8>,
    read: usize,
    out: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = to.len().min(self.input.len() - self.read);
        if n == 0 {
            self.input.clear();
            self.read = 0;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        to[..n].copy_from_slice(&self.input[self.read..self.read + n]);
        self.read += n;
        Ok(n)
    }
}

impl Write for Pipe {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Session of OpenSSL.
pub(super) struct Stream(SslStream<Pipe>);

impl Stream {
    fn session(ssl: Ssl) -> Result<Session, TlsError> {
        let stream = SslStream::new(ssl, Pipe::default()).map_err(peer)?;
        Ok(Session::Psk(Box::new(Stream(stream))))
    }

    /// Implements [`Session::step`]. A step that reads takes over all of `input`. This bounds the data that waits
    /// here: more is received only when OpenSSL needs it.
    pub(super) fn step(
        &mut self,
        input: &mut [u8],
        wish: Wish<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, Result<StepResult, TlsError>) {
        let takes = matches!(wish, Wish::Shake | Wish::Read(_));
        let used = if takes { input.len() } else { 0 };
        self.0.get_mut().input.extend_from_slice(&input[..used]);
        let next = match wish {
            Wish::Shake => self.0.do_handshake().map(|()| StepResult::Ready),
            Wish::Read(plain) => {
                let at = plain.len();
                plain.resize(at + RECORD_BYTES, 0);
                let read = self.0.ssl_read(&mut plain[at..]);
                plain.truncate(at + *read.as_ref().unwrap_or(&0));
                read.map(|_| StepResult::Plain)
            }
            // Memory accepts all bytes.
            Wish::Write(bytes, _) => self.0.ssl_write(bytes).map(|_| StepResult::Ready),
            Wish::Close => self.0.shutdown().map(|_| StepResult::Ready),
        };
        let blocked = match takes && self.0.ssl().is_init_finished() {
            true => StepResult::Ready,
            false => StepResult::Blocked,
        };
        let next = next.or_else(|error| match error.code() {
            ErrorCode::WANT_READ => Ok(blocked),
            ErrorCode::ZERO_RETURN => Ok(StepResult::Closed),
            _ => Err(match error.ssl_error() {
                // The first error of OpenSSL is the cause; the others are its context.
                Some(stack) => stack
                    .errors()
                    .first()
                    .and_then(|e| e.reason())
                    .map_or_else(|| peer(&error), peer),
                None => peer(error),
            }),
        });
        out.append(&mut self.0.get_mut().out);
        (used, next)
    }
}
