//! Starting and stopping.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;

use client::Fingerprint;
use manager::question::Actor;
use manager::service::{Now, Service};
use thiserror::Error;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::call::State;
use crate::certificate::Certificate;
use crate::limits::{Limits, STOP_TIME, WORKERS_MAX};
use crate::reload::{Reloader, SharedTls};
use crate::serving::{Listening, serve};
use crate::tokens::Tokens;
use crate::{dispatch, listen};

/// Tells the time, whichever thread asks. It is asked with the service in hand, so that times rise from call to call.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// Where and how to serve.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The unix socket. Whoever may open it (mode 0600) may do everything.
    pub socket: PathBuf,
    /// The port, if there is to be one.
    pub tcp: Option<TcpSettings>,
    /// Limits of clients.
    pub limits: Limits,
    /// Reads the configuration anew, if there is a file to read.
    pub reload: Option<Reloader>,
}

/// A port: always with TLS and tokens.
#[derive(Debug, Clone)]
pub struct TcpSettings {
    /// The address; port 0 takes any.
    pub listen: SocketAddr,
    /// The token file: lines of `ROLE NAME SECRET`, mode 0600.
    pub tokens: PathBuf,
    pub certificate: Certificate,
}

impl TcpSettings {
    /// Whether it could be listened on, as far as that can be said while another process still does.
    ///
    /// # Errors
    /// [`StartError`]: tokens or certificate that cannot be used, or an address that this host has not.
    pub fn check(&self) -> Result<(), StartError> {
        Tokens::read(&self.tokens)?;
        self.certificate.load(self.listen.ip())?;
        match listen::tcp(self.listen) {
            Ok(_) | Err(StartError::PortTaken(_)) => Ok(()),
            Err(why) => Err(why),
        }
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
    /// A file of secrets that others may read.
    #[error("{path} may be read by others: chmod 600 {path}, and change what is in it")]
    Open {
        /// The file.
        path: PathBuf,
    },
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

#[derive(Debug, Clone, Copy)]
pub struct ControllerServer;

impl ControllerServer {
    /// Serves until it is stopped. The service is also told the time once a second.
    ///
    /// # Errors
    /// [`StartError`]. Nothing is served then, and nothing is left behind but a certificate that was made.
    pub fn start(
        service: Arc<Mutex<dyn Service + Send>>,
        clock: Clock,
        settings: ServerSettings,
    ) -> Result<Running, StartError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WORKERS_MAX)
            .thread_name("terrace-answer")
            .build()
            .map_err(StartError::System)?;
        let entered = runtime.enter();
        let mut tokens = Tokens::default();
        let mut listening = vec![];
        let (mut address, mut tls) = (None, None);
        if let Some(tcp) = &settings.tcp {
            tokens = Tokens::read(&tcp.tokens)?;
            let loaded = tcp.certificate.load(tcp.listen.ip())?;
            let listener = listen::tcp(tcp.listen)?;
            address = Some(listener.local_addr().map_err(StartError::System)?);
            let shared = SharedTls::new(TlsAcceptor::from(loaded.config), loaded.fingerprint);
            tls = Some(shared.clone());
            let listener = tokio::net::TcpListener::from_std(listener);
            listening.push(Listening::Tls(
                listener.map_err(StartError::System)?,
                shared,
            ));
        }
        // Last, since it is what would be left behind.
        let listener = tokio::net::UnixListener::from_std(listen::unix(&settings.socket)?);
        let limits = settings.limits;
        let state = Arc::new(State {
            service,
            clock,
            tokens: RwLock::new(Arc::new(tokens)),
            tls,
            reload: settings.reload,
            reloading: Mutex::new(()),
            limits,
        });
        let mut running = Running {
            socket: settings.socket,
            address,
            state: state.clone(),
            stop: watch::channel(()).0,
            thread: None,
        };
        listening.push(Listening::Unix(listener.map_err(StartError::System)?));
        drop(entered);
        let stop = running.stop.subscribe();
        let thread = std::thread::Builder::new()
            .name("terrace-controller".into())
            .spawn(move || {
                let router = dispatch::router(&state);
                runtime.block_on(serve(listening, router, state, stop));
                // A call of the service that hangs must not keep the process.
                runtime.shutdown_timeout(STOP_TIME);
            });
        running.thread = Some(thread.map_err(StartError::System)?);
        Ok(running)
    }
}

/// A server that runs. Dropping it stops it.
pub struct Running {
    socket: PathBuf,
    address: Option<SocketAddr>,
    state: Arc<State>,
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
    /// The address that is listened on, with its port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What clients are told to trust: SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.state.tls.as_ref().map(SharedTls::fingerprint)
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
        let _ = std::fs::remove_file(&self.socket);
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
