//! Starting and stopping.

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
use crate::reload::{Reloader, SharedTls};
use crate::serving::{Listening, serve};
use crate::sessions::Sessions;
use crate::tokens::Tokens;
use crate::{dispatch, listen};

/// Tells the time, whichever thread asks. It is asked with the service in hand, so that times rise from call to call.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// A port: always with TLS and tokens.
#[derive(Debug, Clone)]
pub struct TcpSettings {
    /// The address; port 0 takes any.
    pub listen: SocketAddr,
    /// The token file: lines of `ROLE NAME SECRET [expires=DATE]`, mode 0600.
    pub tokens: PathBuf,
    pub certificate: Certificate,
}

impl TcpSettings {
    /// Checks whether a start could listen. Makes no certificate.
    ///
    /// # Errors
    /// [`StartError`]: tokens or certificate that cannot be used, an address that this host has
    /// not, a port that is taken.
    pub fn check(&self) -> Result<(), StartError> {
        Tokens::read(&self.tokens)?;
        if self.certificate.is_made() {
            self.certificate.load(self.listen.ip())?;
        }
        listen::tcp(self.listen).map(|_| ())
    }
}

/// Why a controller cannot be reached by anybody.
#[derive(Debug, Error)]
pub enum StartError {
    /// Another one serves there.
    #[error("{0} is in use by a controller that answers: stop it, or use another socket")]
    SocketInUse(PathBuf),
    /// Linux has no room for such a path.
    #[error(
        "{path}: a socket's path has at most {most} bytes, this one has {bytes}: use a shorter one, or one relative to the working directory"
    )]
    TooLong {
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// What is possible.
        most: usize,
    },
    /// The system refuses the socket.
    #[error("cannot listen on {path}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another program listens there.
    #[error("{0} is in use by another program: stop it, or use another port")]
    PortTaken(SocketAddr),
    /// The system refuses the port.
    #[error("cannot listen on {address}")]
    Tcp {
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file of secrets that cannot be read, or that others can.
    #[error(transparent)]
    Secret(#[from] secret::SecretError),
    /// The token file cannot be used.
    #[error("cannot use the token file {path}: {why}")]
    Tokens {
        /// The file.
        path: PathBuf,
        why: String,
    },
    /// The certificate or its key cannot be used.
    #[error("cannot use the certificate or key {path}: {why}")]
    Certificate {
        /// The file.
        path: PathBuf,
        why: String,
    },
    /// No threads, no event loop.
    #[error("cannot start the controller's server")]
    System(#[source] io::Error),
}

/// Listeners that are added to a server at once, at most: its socket and its port.
const LISTENERS_MAX: usize = 2;

/// A server that runs. Dropping it stops it.
pub struct Running {
    socket: Option<PathBuf>,
    address: Option<SocketAddr>,
    state: Arc<State>,
    listening: mpsc::Sender<Listening>,
    runtime: Handle,
    stop: watch::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Running");
        shown.field("socket", &self.socket);
        shown.field("address", &self.address);
        shown.finish_non_exhaustive()
    }
}

impl Running {
    /// Starts a server that nobody reaches yet. It tells the service the time once a second.
    /// `reload` reads the configuration anew, if there is a file to read.
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
                // A call of the service that hangs must not keep the process.
                runtime.shutdown_timeout(STOP_TIME);
            });
        running.thread = Some(thread.map_err(StartError::System)?);
        Ok(running)
    }

    /// Listens on a unix socket. Whoever may open it (mode 0600) may do everything.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left behind then.
    pub fn listen_unix(&mut self, socket: &Path) -> Result<(), StartError> {
        let listener = listen::unix(socket)?;
        self.socket = Some(socket.into());
        let _entered = self.runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener).map_err(StartError::System)?;
        self.add(Listening::Unix(listener))
    }

    /// Listens on a port.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is left behind then but a certificate that was made.
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
        // A service that broke off is told of the tokens by the next reload.
        let _ = self.state.set_tokens(tokens);
        self.address = Some(address);
        self.add(Listening::Tls(listener, shared))
    }

    fn add(&self, listening: Listening) -> Result<(), StartError> {
        let added = self.listening.try_send(listening);
        added.map_err(|e| StartError::System(io::Error::other(e.to_string())))
    }

    /// The address that is listened on, with its port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What clients are told to trust: SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.state.tls.get().map(SharedTls::fingerprint)
    }

    /// Reads the configuration anew, as if `actor` had asked for it; what has changed, or why nothing has.
    ///
    /// # Errors
    /// What is wrong, with file, line and key: then everything is as it was.
    pub fn reload(&self, actor: &str) -> Result<String, String> {
        match self.state.reload(&Actor(actor.into())) {
            Ok(done) => Ok(done.message),
            Err(problem) => Err(problem.words()),
        }
    }

    /// Whether it still runs; it ends by itself only when it is broken.
    pub fn healthy(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// Takes no more connections, lets requests under way end for a few seconds, and ends.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Running {
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
