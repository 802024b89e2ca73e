//! Entry point of the fuzz target and of a unit test. The input is the data of a TLS client: from the first byte of a
//! client without a certificate, or from the first record of a client with one. Checked properties: no client without
//! a certificate is admitted; a channel stays within its memory limits; the received data is a prefix of the sent
//! data.

use std::io::{self, Read, Write};
use std::path::Path;

use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion};

use super::{Channel, Credentials, INPUT_BYTES, OUT_BYTES, RECORD_BYTES, ServerTls, Session};
use super::{handshakes, x509};
use crate::registry::Registry;

/// Most memory of a channel in bytes: ciphertext, the plaintext of that much ciphertext, and data encrypted ahead.
/// Vectors grow by doubling.
const KEPT_BYTES_MAX: usize =
    INPUT_BYTES + 2 * (INPUT_BYTES + RECORD_BYTES) + 2 * (OUT_BYTES + RECORD_BYTES);

/// Server, and client that it admits.
pub struct Parties {
    server: ServerTls,
    client: rustls::ClientConfig,
}

impl Parties {
    /// Loads two directories of certificates and keys.
    ///
    /// # Panics
    /// If they cannot be used.
    pub fn load(server: &Path, client: &Path) -> Self {
        let credentials = Credentials::Certificates(server.into());
        let mut client = x509::client(client).unwrap();
        client.enable_secret_extraction = true;
        Self {
            server: ServerTls::load(credentials).unwrap(),
            client,
        }
    }
}

/// Runs one input. Its first byte selects the kind of client.
pub fn client(parties: &Parties, bytes: &[u8]) {
    match bytes.split_first() {
        None => {}
        Some((0, bytes)) => stranger(parties, &[], bytes),
        Some((1, bytes)) => stranger(parties, &starttls(), bytes),
        Some((_, bytes)) => guest(parties, bytes),
    }
}

/// Flags of the client and its request for TLS.
fn starttls() -> Vec<u8> {
    [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 5, 0, 0, 0, 0]].concat()
}

/// Peer with predetermined data.
struct ScriptedPeer<'a> {
    first: &'a [u8],
    bytes: &'a [u8],
    heard: usize,
}

impl Read for ScriptedPeer<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let from = match self.first.is_empty() {
            true => &mut self.bytes,
            false => &mut self.first,
        };
        // In pieces whose lengths the bytes themselves determine.
        let most = from.first().map_or(0, |b| 1 + usize::from(*b) * 8);
        let n = from.len().min(most.max(16)).min(to.len());
        to[..n].copy_from_slice(&from[..n]);
        *from = &from[n..];
        Ok(n)
    }
}

impl Write for ScriptedPeer<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.heard += from.len();
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stranger(parties: &Parties, first: &[u8], bytes: &[u8]) {
    let mut said = ScriptedPeer {
        first,
        bytes,
        heard: 0,
    };
    let proved = handshakes::prove(&mut said, &parties.server, &Registry::default());
    assert!(proved.is_err(), "nobody gets in without a certificate");
    // Refusals of at most 64 options, and one flight of a handshake.
    assert!(said.heard <= 64 << 10, "{} bytes said", said.heard);
}

/// Returns a server's channel after the handshake, and the encrypter of records for it.
fn established(parties: &Parties) -> (Channel, Box<dyn MessageEncrypter>, u64) {
    let mut server = parties.server.begin().unwrap();
    let mut client = Channel::new(x509::begin(parties.client.clone(), "localhost").unwrap());
    let mut over = [false; 2];
    while over != [true; 2] {
        over[0] = client.shake().unwrap();
        pass(&mut client, &mut server);
        over[1] = server.shake().unwrap();
        pass(&mut server, &mut client);
    }
    let Session::Client(connection) = client.session else {
        unreachable!("it was made as one");
    };
    let suite = connection.negotiated_cipher_suite().unwrap();
    let aead = suite.tls13().expect("both know it").aead_alg;
    #[expect(
        deprecated,
        reason = "keys are all that is wanted, and no connection after it"
    )]
    let secrets = connection.dangerous_extract_secrets().unwrap();
    let (sequence, secrets) = secrets.tx;
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
    else {
        unreachable!("there is no other");
    };
    (server, aead.encrypter(key, iv), sequence)
}

fn pass(from: &mut Channel, to: &mut Channel) {
    while !from.unsent().is_empty() {
        let bytes = from.unsent();
        let n = bytes.len().min(1000);
        let taken = to.receive(|room| {
            room[..n].copy_from_slice(&bytes[..n]);
            Ok::<_, ()>(n)
        });
        from.sent(taken.unwrap());
    }
}

/// Client with a certificate that sends arbitrary data: records of any type and content, invalid bytes, in any
/// pieces.
struct Guest<'a> {
    bytes: &'a [u8],
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
    wire: Vec<u8>,
    /// Data that was encrypted as application data.
    sent: Vec<u8>,
}

impl Guest<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn some(&mut self) -> Vec<u8> {
        let n = usize::from(self.byte().unwrap_or(0)).min(self.bytes.len());
        let (some, rest) = self.bytes.split_at(n);
        self.bytes = rest;
        some.to_vec()
    }

    fn record(&mut self, kind: ContentType, payload: &[u8]) {
        let message = OutboundPlainMessage {
            typ: kind,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(payload),
        };
        let record = self.encrypter.encrypt(message, self.sequence);
        self.wire.extend(record.unwrap().encode());
        self.sequence += 1;
    }
}

fn guest(parties: &Parties, bytes: &[u8]) {
    let (mut server, encrypter, sequence) = established(parties);
    let mut guest = Guest {
        bytes,
        encrypter,
        sequence,
        wire: vec![],
        sent: vec![],
    };
    let mut read = vec![];
    let mut to = vec![0; OUT_BYTES];
    while let Some(op) = guest.byte() {
        match op % 8 {
            0 => {
                let n = usize::from(guest.byte().unwrap_or(0)) * 64;
                let data: Vec<u8> = (guest.sent.len()..).take(n).map(|i| i as u8).collect();
                guest.sent.extend(&data);
                guest.record(ContentType::ApplicationData, &data);
            }
            1 => {
                let message = guest.some();
                guest.record(ContentType::Handshake, &message);
            }
            2 => {
                let alert = guest.some();
                guest.record(ContentType::Alert, &alert[..alert.len().min(2)]);
            }
            3 => {
                let kind = guest.byte().unwrap_or(0);
                let content = guest.some();
                if kind == 23 {
                    guest.sent.extend(&content);
                }
                guest.record(kind.into(), &content);
            }
            4 => {
                let raw = guest.some();
                guest.wire.extend(raw);
            }
            5 => {
                let n = usize::from(guest.byte().unwrap_or(0)) * 64 + 1;
                let n = n.min(guest.wire.len());
                let taken = server.receive(|room| {
                    let n = n.min(room.len());
                    room[..n].copy_from_slice(&guest.wire[..n]);
                    Ok::<_, ()>(n)
                });
                guest.wire.drain(..taken.unwrap());
            }
            6 => {
                let n = usize::from(guest.byte().unwrap_or(0)) * 256;
                match server.read(&mut to[..n]) {
                    Ok(n) => read.extend(&to[..n]),
                    Err(_) => break,
                }
            }
            // A reply whose bytes are partly accepted, later.
            _ => {
                let n = usize::from(guest.byte().unwrap_or(0));
                server.sent(server.unsent().len().min(n * 16));
                if server.unsent().is_empty() && server.seal(&to[..n * 256]).is_err() {
                    break;
                }
            }
        }
        let kept = server.kept_bytes();
        assert!(kept <= KEPT_BYTES_MAX, "{kept} bytes kept");
        assert!(guest.sent.starts_with(&read), "what is read was sent");
    }
    server.close();
}
