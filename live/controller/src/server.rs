//! Start and stop of the server.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::JoinHandle;

use client::Fingerprint;
use manager::question::Actor;
use manager::service::{Now, Service};
use thiserror::Error;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::bodies::Bodies;
use crate::call::State;
use crate::certificate::Certificate;
use crate::gate::Gate;
use crate::limits::{Limits, STOP_TIME, WORKERS_MAX};
use crate::reload::{ReloadError, Reloader, SharedTls};
use crate::serving::{ListenSocket, serve};
use crate::sessions::Sessions;
use crate::tokens::{TokenError, Tokens};
use crate::{dispatch, listen};

/// Clock. It is read while the service is locked, so times rise from call to call.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Settings of the port, which always has TLS and tokens.
#[derive(Debug, Clone)]
pub struct TcpSettings {
    /// Address; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Token file: lines of `ROLE NAME SECRET [expires=DATE]`, mode 0600.
    pub tokens: PathBuf,
    pub certificate: Certificate,
}

impl TcpSettings {
    /// Checks that a start can listen, without creating a certificate.
    ///
    /// # Errors
    /// [`StartError`]: invalid tokens or certificate, an address that this host does not have, or a port in use.
    pub fn check(&self) -> Result<(), StartError> {
        Tokens::read(&self.tokens)?;
        if self.certificate.is_made() {
            self.certificate.load(self.listen.ip())?;
        }
        listen::tcp(self.listen).map(|_| ())
    }
}

/// Reasons why the controller's server cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Another controller serves the socket.
    #[error("{0} is in use by a running controller: stop it, or use another socket")]
    SocketInUse(PathBuf),
    /// The path is too long for Linux.
    #[error(
        "{path}: the path of a socket has at most {most} bytes, this one has {bytes}: use a shorter path, or one relative to the working directory"
    )]
    TooLong {
        path: PathBuf,
        /// Length, bytes.
        bytes: usize,
        /// Maximum length, bytes.
        most: usize,
    },
    /// The system cannot create the socket.
    #[error("cannot listen on {path}")]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Another program listens on the port.
    #[error("{0} is in use by another program: stop it, or use another port")]
    PortTaken(SocketAddr),
    /// The system cannot listen on the port.
    #[error("cannot listen on {address}")]
    Tcp {
        address: SocketAddr,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// A file with secrets cannot be read, or other users can read it.
    #[error(transparent)]
    Secret(#[from] secret::SecretError),
    /// The token file is invalid.
    #[error("cannot use the token file {path}: {why}")]
    Tokens {
        /// The file.
        path: PathBuf,
        why: TokenError,
    },
    /// The certificate or its key is invalid.
    #[error("cannot use the certificate or key {path}: {why}")]
    Certificate {
        /// The file.
        path: PathBuf,
        why: String,
    },
    /// Threads or the event loop cannot be created.
    #[error("cannot start the controller's server")]
    System(#[source] io::Error),
}

/// Maximum number of listeners: the socket and the port.
const LISTENERS_MAX: usize = 2;

/// Running server. Dropping it stops the server.
pub struct RunningServer {
    socket: Option<PathBuf>,
    address: Option<SocketAddr>,
    state: Arc<State>,
    listening: mpsc::Sender<ListenSocket>,
    runtime: Handle,
    stop: watch::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RunningServer");
        shown.field("socket", &self.socket);
        shown.field("address", &self.address);
        shown.finish_non_exhaustive()
    }
}

impl RunningServer {
    /// Starts a server without listeners. It passes the time to the service once a second. `reload` reads the configuration
    /// again; none without a configuration file.
    ///
    /// # Errors
    /// [`StartError::System`].
    pub fn start(
        service: Arc<Mutex<dyn Service + Send>>,
        clock: Clock,
        limits: Limits,
        reload: Option<Reloader>,
    ) -> Result<Self, StartError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WORKERS_MAX)
            .thread_name("terrace-answer")
            .build()
            .map_err(StartError::System)?;
        let state = Arc::new(State {
            service,
            clock,
            tokens: RwLock::default(),
            tls: OnceLock::new(),
            reload,
            reloading: Mutex::new(()),
            limits,
            bodies: Bodies::new(&limits),
            gate: Gate::new(&limits),
            sessions: Sessions::default(),
            reading: Mutex::new(()),
        });
        let (listening, added) = mpsc::channel(LISTENERS_MAX);
        let mut running = Self {
            socket: None,
            address: None,
            state: state.clone(),
            listening,
            runtime: runtime.handle().clone(),
            stop: watch::channel(()).0,
            thread: None,
        };
        let stop = running.stop.subscribe();
        let thread = std::thread::Builder::new()
            .name("terrace-controller".into())
            .spawn(move || {
                let router = dispatch::router(&state);
                runtime.block_on(serve(added, router, state, stop));
                // A hanging call of the service must not block the end of the process.
                runtime.shutdown_timeout(STOP_TIME);
            });
        running.thread = Some(thread.map_err(StartError::System)?);
        Ok(running)
    }

    /// Listens on a unix socket (mode 0600). Processes that may open it have the role admin.
    ///
    /// # Errors
    /// [`StartError`]; the socket then does not exist.
    pub fn listen_unix(&mut self, socket: &Path) -> Result<(), StartError> {
        let listener = listen::unix(socket)?;
        self.socket = Some(socket.into());
        let _entered = self.runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener).map_err(StartError::System)?;
        self.add(ListenSocket::Unix(listener))
    }

    /// Listens on a port.
    ///
    /// # Errors
    /// [`StartError`]; a created certificate remains.
    pub fn listen_tls(&mut self, tcp: &TcpSettings) -> Result<(), StartError> {
        let tokens = Tokens::read(&tcp.tokens)?;
        let loaded = tcp.certificate.load(tcp.listen.ip())?;
        let listener = listen::tcp(tcp.listen)?;
        let address = listener.local_addr().map_err(StartError::System)?;
        let _entered = self.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(StartError::System)?;
        let acceptor = TlsAcceptor::from(loaded.config);
        let shared = SharedTls::new(acceptor, loaded.fingerprint);
        let shared = self.state.tls.get_or_init(|| shared).clone();
        // If the service has failed, the next reload passes the tokens.
        let _ = self.state.set_tokens(tokens);
        self.address = Some(address);
        self.add(ListenSocket::Tls(listener, shared))
    }

    fn add(&self, listening: ListenSocket) -> Result<(), StartError> {
        let added = self.listening.try_send(listening);
        added.map_err(|e| StartError::System(io::Error::other(e.to_string())))
    }

    /// Returns the listening address, with its port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the SHA-256 of the certificate, which clients verify.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.state.tls.get().map(SharedTls::fingerprint)
    }

    /// Reloads the configuration for `actor`; returns a description of the changes.
    ///
    /// # Errors
    /// [`ReloadError`], with file, line and key; the old configuration then remains in force.
    pub fn reload(&self, actor: &str) -> Result<String, ReloadError> {
        let done = self.state.reload(&Actor(actor.into()));
        done.map(|done| done.message).map_err(ReloadError)
    }

    /// Returns true while the server runs. It ends by itself only after a failure.
    pub fn healthy(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// Accepts no more connections, waits a few seconds for running requests, and stops.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
