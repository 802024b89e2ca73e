//! Connection to a controller, which is reused between calls.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::ext::ReasonPhrase;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

use crate::address::Address;
use crate::error::ClientError;
use crate::trust::TlsTrust;

/// Longest duration of connecting and of the handshakes: a host that is down does not answer at all.
pub const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Longest duration of a call. Reports of many volumes take seconds on a slow network; nothing takes a minute.
pub const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Longest idle time after which a connection is reused. The controller closes idle connections after 30 s. An order that is
/// sent at that moment could be lost, and the client could not know it.
pub const REUSE_TIME: Duration = Duration::from_secs(15);

/// Longest accepted answer: some ten thousand volumes. Protects memory from a faulty server.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// All characters that RFC 3986 does not list as unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Secret that authenticates the caller over TLS.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// Creates a token from a secret of the controller's token file.
    ///
    /// # Errors
    /// A secret that is empty or has invalid characters.
    pub fn new(secret: &str) -> Result<Self, ClientError> {
        if secret.is_empty() || !secret.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(ClientError::Token);
        }
        Self::of_header(&format!("Bearer {secret}"))
    }

    /// Creates a token of another API from the value of its header.
    ///
    /// # Errors
    /// An invalid header value.
    pub fn of_header(text: &str) -> Result<Self, ClientError> {
        let header = HeaderValue::from_str(text);
        let mut header = header.map_err(|_| ClientError::Token)?;
        header.set_sensitive(true);
        Ok(Self(header))
    }
}

/// Answer of an API other than the controller's.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Reason phrase of the status line, if it is not the usual one.
    pub reason: Option<String>,
    pub body: Vec<u8>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Client of a controller. Calls block, at most for [`ANSWER_TIME`]; connecting takes at most [`CONNECT_TIME`] of it.
pub struct Client {
    pub(crate) address: Address,
    token: Option<Token>,
    tls: Option<Arc<ClientConfig>>,
    runtime: Runtime,
    /// Open connection with the time of its last answer.
    open: Option<(SendRequest<Full<Bytes>>, Instant)>,
}

type ApiRequest = Request<Full<Bytes>>;

impl Client {
    /// Creates a client of the controller at `address`, without connecting.
    ///
    /// # Errors
    /// An unusable `trust`, or a missing one for an address with TLS.
    pub fn new(
        address: Address,
        token: Option<Token>,
        trust: TlsTrust,
    ) -> Result<Self, ClientError> {
        let tls = match &address {
            Address::Unix(_) => None,
            Address::Https { .. } => {
                let address = address.to_string();
                Some(trust.config()?.ok_or(ClientError::NoTrust { address })?)
            }
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Self {
            address,
            token,
            tls,
            runtime: runtime.map_err(ClientError::System)?,
            open: None,
        })
    }

    /// Returns the address of the controller.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Calls an API other than the controller's, with a form in the body and an optional query.
    ///
    /// # Errors
    /// No complete answer: the request may have had its effect.
    pub fn call_form(
        &mut self,
        method: &str,
        path: &[&str],
        query: &[(&str, &str)],
        form: &[(&str, &str)],
    ) -> Result<Answer, ClientError> {
        let encoded = |text: &str| utf8_percent_encode(text, RESERVED).to_string();
        let pairs = |all: &[(&str, &str)]| {
            let pairs = all.iter().map(|(k, v)| format!("{k}={}", encoded(v)));
            pairs.collect::<Vec<_>>().join("&")
        };
        let mut target: String = path.iter().map(|p| format!("/{}", encoded(p))).collect();
        if !query.is_empty() {
            target += &format!("?{}", pairs(query));
        }
        let method = Method::from_bytes(method.as_bytes());
        let method = method.map_err(|e| ClientError::Invalid(e.to_string()))?;
        let body = pairs(form).into_bytes();
        let request = self.request(method, &target, body, "application/x-www-form-urlencoded")?;
        let (head, body) = self.exchange(request)?;
        let reason = head.extensions.get::<ReasonPhrase>();
        Ok(Answer {
            status: head.status.as_u16(),
            reason: reason.map(|r| String::from_utf8_lossy(r.as_bytes()).into_owned()),
            body: body.to_vec(),
        })
    }

    /// Sends a request and waits for the complete answer.
    pub(crate) fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let request = self.request(method, path, body, "application/json")?;
        let (head, body) = self.exchange(request)?;
        Ok((head.status, body))
    }

    fn exchange(&mut self, request: ApiRequest) -> Result<(Parts, Bytes), ClientError> {
        let kept = self.open.take();
        let kept = kept.filter(|(_, used)| used.elapsed() < REUSE_TIME);
        let kept = kept.map(|(sender, _)| sender);
        let address = &self.address;
        let talk = async {
            let connect = || connect(address, self.tls.as_ref());
            let (sender, response) = exchange(kept, request, connect, address).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX);
            let body = body
                .collect()
                .await
                .map_err(|e| silent(address, io::Error::other(e)))?;
            Ok((sender, head, body.to_bytes()))
        };
        let talk = within(ANSWER_TIME, address, talk);
        let (sender, head, body) = self.runtime.block_on(talk)?;
        self.open = Some((sender, Instant::now()));
        Ok((head, body))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        content: &'static str,
    ) -> Result<ApiRequest, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.authority());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.0.clone());
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, content);
        }
        let request = request.body(Full::new(body.into()));
        request.map_err(|e| ClientError::Invalid(e.to_string()))
    }
}

/// Sends a request on the kept connection, or on a new one if there is none or the server has closed it. A request that was
/// sent is never repeated, because it may be an order.
async fn exchange<C, F>(
    kept: Option<SendRequest<Full<Bytes>>>,
    request: ApiRequest,
    connect: C,
    address: &Address,
) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>), ClientError>
where
    C: Fn() -> F,
    F: Future<Output = Result<SendRequest<Full<Bytes>>, ClientError>>,
{
    let mut unsent = request;
    if let Some(mut sender) = kept {
        // The yield lets the connection detect that it was closed.
        tokio::task::yield_now().await;
        if sender.ready().await.is_ok() {
            match sender.try_send_request(unsent).await {
                Ok(response) => return Ok((sender, response)),
                Err(mut error) => match error.take_message() {
                    Some(message) => unsent = message,
                    None => return Err(silent(address, io::Error::other(error.into_error()))),
                },
            }
        }
    }
    let mut sender = connect().await?;
    let sent = sender.send_request(unsent).await;
    let response = sent.map_err(|e| silent(address, io::Error::other(e)))?;
    Ok((sender, response))
}

async fn connect(
    address: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let opening = async {
        match (address, tls) {
            (Address::Unix(path), _) => {
                let socket = UnixStream::connect(path).await;
                speak(socket.map_err(|e| not_there(address, e))?, address).await
            }
            (Address::Https { host, port }, Some(tls)) => {
                let socket = TcpStream::connect((host.as_str(), *port)).await;
                let socket = socket.map_err(|e| not_there(address, e))?;
                // Requests are small, and each waits for its answer.
                socket.set_nodelay(true).map_err(|e| silent(address, e))?;
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| ClientError::Address(address.to_string()))?;
                let socket = TlsConnector::from(tls.clone()).connect(name, socket).await;
                speak(socket.map_err(|e| not_trusted(address, e))?, address).await
            }
            (Address::Https { .. }, None) => Err(ClientError::NoTrust {
                address: address.to_string(),
            }),
        }
    };
    within(CONNECT_TIME, address, opening).await
}

async fn speak<S>(socket: S, address: &Address) -> Result<SendRequest<Full<Bytes>>, ClientError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(socket))
        .await
        .map_err(|e| silent(address, io::Error::other(e)))?;
    // Its errors reach the caller that waits for an answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

async fn within<T>(
    time: Duration,
    address: &Address,
    what: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    match tokio::time::timeout(time, what).await {
        Ok(done) => done,
        Err(_) => Err(silent(address, io::ErrorKind::TimedOut.into())),
    }
}

fn silent(address: &Address, source: io::Error) -> ClientError {
    let address = address.to_string();
    ClientError::Silent { address, source }
}

fn not_there(address: &Address, source: io::Error) -> ClientError {
    match (address, source.kind()) {
        (Address::Unix(path), io::ErrorKind::PermissionDenied) => {
            ClientError::SocketMode { path: path.clone() }
        }
        _ => ClientError::Nobody {
            address: address.to_string(),
            source,
        },
    }
}

fn not_trusted(address: &Address, source: io::Error) -> ClientError {
    let inner = source.get_ref().and_then(|e| e.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => ClientError::Untrusted {
            address: address.to_string(),
            source,
        },
        _ => silent(address, source),
    }
}
