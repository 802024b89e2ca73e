//! HTTP requests by hand, for requests that the client never sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::World;

/// Deadline that only ends a test that hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Answer to a request.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl HttpResponse {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Returns the message of an error.
    pub fn error(&self) -> String {
        let json = self.json();
        assert_eq!(json.as_object().map(|o| o.len()), Some(1), "{json}");
        json["error"]
            .as_str()
            .expect("errors have words")
            .to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|l| l.split_once(": "));
        lines
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v)
            .next()
    }
}

/// Sends a request over the unix socket.
pub fn local(world: &World, request: &str) -> HttpResponse {
    exchange(unix(&world.socket()), request)
}

/// Sends a request over TLS.
pub fn remote(world: &World, request: &str) -> HttpResponse {
    exchange(tls(world), request)
}

pub fn unix(path: &Path) -> UnixStream {
    let socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub fn tls(world: &World) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(world.certificate()).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(world.running.address().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(connection, socket)
}

/// Sends a request unchanged, with `Connection: close` after its first line, and reads until the end.
pub fn exchange(mut socket: impl Read + Write, request: &str) -> HttpResponse {
    let request = request.replace('\n', "\r\n");
    let request = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    // A server that rejects a long body may close the connection before the end of the body.
    let _ = socket.write_all(request.as_bytes());
    let mut bytes = vec![];
    let _ = socket.read_to_end(&mut bytes);
    answered(&bytes)
}

fn answered(bytes: &[u8]) -> HttpResponse {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = bytes[end + 4..].to_vec();
    HttpResponse { status, head, body }
}

/// Returns a request without a body.
pub fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\nHost: localhost\n{headers}\n")
}

/// Returns a request with a body.
pub fn send(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\nHost: localhost\nContent-Length: {length}\n{headers}\n{body}"
    )
}

pub fn bearer(secret: &str) -> String {
    format!("Authorization: Bearer {secret}\n")
}

/// Sends the sign-in form. Returns the answer.
pub fn sign_in(world: &World, secret: &str) -> HttpResponse {
    let form = format!("token={secret}");
    remote(world, &send("POST", "/sign-in", "", &form))
}

/// Returns the cookie of a new session of the page.
pub fn session(world: &World, secret: &str) -> String {
    let answer = sign_in(world, secret);
    let set = answer.header("set-cookie").expect("it signs in");
    format!("Cookie: {}\n", set.split(';').next().unwrap())
}
