//! The server: workers, the keeper, and the listeners of guests.

mod stop;

use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nbd::Exports as _;
use rustix::net::SocketFlags;
use thiserror::Error;
use tracing::{debug, error, info, warn};
use units::{Bytes, VolumeId};
use volume::SlackBoard;

use crate::cached::{CacheFault, CacheMemory, CacheSettings};
use crate::control_server::home_of;
use crate::device::Device;
use crate::engine::EngineLimits;
use crate::io::{Io, IoChoice};
use crate::keeper::{Keeper, KeeperMessage};
use crate::listen::{Listen, ListenError, clear_stale};
use crate::pulse::{Beats, Pulse, STALLED_AFTER, StalledWorker};
use crate::registry::{Access, Home, Registry, logical_block};
use crate::reuse::PAGE;
use crate::stages::measure;
use crate::takeover::{Listener, Listeners, ListeningSocket, pause_after_accept};
use crate::tls::handshakes::{self, AfterHandshake, Handshakes};
use crate::tls::{Credentials, ServerTls, TlsError};
use crate::vhost::{ConnectionLimits, DESCRIPTORS_EACH, Sockets};
use crate::worker::{
    HandedConnection, Inbox, Message, Pollers, SLACK_OLD_NS, SharedState, TICK, Worker,
};

pub(crate) use stop::poll_until;
pub use stop::{STOP_WITHIN, StopError, ended_by};

/// Socket buffer of one guest in bytes, for each direction. Large enough for a few sequential requests.
const SOCKET_BYTES: usize = 2 << 20;

/// Configuration of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerConfig {
    /// I/O method.
    pub io: IoChoice,
    /// Number of workers; one per core is the best choice.
    pub workers: usize,
    /// Longest polling of an idle worker before it sleeps; zero disables polling.
    pub poll: Duration,
    /// Limit of simultaneous connections; further ones are closed at once. Protects memory and file descriptors.
    pub connections_max: usize,
    /// Limits of each volume.
    pub limits: EngineLimits,
    /// True if volumes are measured from the start.
    pub measured: bool,
    /// Page cache in memory, divided between the workers; `None` for no cache.
    pub cache: Option<CacheSettings>,
    /// A worker without a beat for this long is stalled.
    pub stalled_after: Duration,
    /// Limit of [`Server::stop`].
    pub stop_within: Duration,
}

impl ServerConfig {
    /// Returns the initial measurement settings of a volume.
    pub(crate) fn measure(&self) -> measure::Setup {
        measure::Setup {
            on: self.measured,
            page: self.cache.map_or(PAGE, |c| c.page),
        }
    }
}

/// Refuses a cache that exceeds the memory which the system reports as available.
pub(crate) fn fits(wanted: Bytes) -> Result<(), ServerError> {
    match available_memory().filter(|available| wanted > *available) {
        Some(available) => Err(ServerError::Memory { wanted, available }),
        None => Ok(()),
    }
}

/// Returns the memory that the system can allocate without swapping; `None` if it does not report it.
pub(crate) fn available_memory() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib << 10))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            io: IoChoice::Auto,
            workers: processors(),
            poll: Duration::from_micros(50),
            connections_max: 1024,
            limits: EngineLimits::default(),
            measured: true,
            cache: None,
            stalled_after: STALLED_AFTER,
            stop_within: STOP_WITHIN,
        }
    }
}

/// Reason why a server cannot start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Invalid cache.
    #[error("the cache")]
    Cache(#[from] CacheFault),
    /// The cache is too large: the system would swap it out or kill the process.
    #[error("the cache needs {wanted} of memory, and {available} are available: reduce its size")]
    Memory {
        /// Size of the cache.
        wanted: Bytes,
        /// Memory that the system reports as available.
        available: Bytes,
    },
    /// A thread or a ring cannot be created.
    #[error("cannot start a worker")]
    Worker(#[source] std::io::Error),
}

/// Running workers and keeper.
pub struct Server {
    pub(crate) shared: SharedState,
    pub(crate) workers: Vec<Inbox>,
    pub(crate) config: ServerConfig,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    keeper: Option<(Sender<KeeperMessage>, JoinHandle<()>)>,
    sockets: Vec<PathBuf>,
    /// Descriptors available for connections.
    descriptors: usize,
    /// TLS configuration for TCP, if TLS is required.
    tls: Option<Arc<ServerTls>>,
    /// Sockets of vhost-user, if enabled.
    vhost: Option<Sockets>,
    next: Arc<AtomicUsize>,
    pub(crate) listeners: Arc<Listeners>,
    /// Listening sockets of the previous server that are not in use here yet.
    pub(crate) handed: Vec<ListeningSocket>,
}

impl Server {
    /// Starts workers, and the keeper if there is an array.
    ///
    /// # Errors
    /// [`ServerError`] if the cache is too large or invalid, or if a thread or a ring cannot be created.
    pub fn start(keeper: Option<Keeper>, mut config: ServerConfig) -> Result<Self, ServerError> {
        fits(config.cache.map_or(Bytes::ZERO, |c| c.size))?;
        let descriptors = raise_descriptors();
        config.connections_max = config.connections_max.min(descriptors);
        let (to_keeper, from_workers) = channel();
        let shared = SharedState {
            registry: Arc::new(Registry::default()),
            connections: Arc::new(AtomicUsize::new(0)),
            bytes: Arc::new(AtomicU64::new(0)),
            keeper: keeper.is_some().then(|| to_keeper.clone()),
            slack: Arc::new(SlackBoard::new(config.workers.max(1), SLACK_OLD_NS)),
            pollers: Arc::new(Pollers::new(processors())),
            beats: Arc::new(Beats::new(config.workers.max(1), config.stalled_after)),
        };
        let mut server = Self {
            shared,
            workers: vec![],
            config,
            threads: vec![],
            keeper: None,
            sockets: vec![],
            descriptors,
            tls: None,
            vhost: None,
            next: Arc::new(AtomicUsize::new(0)),
            listeners: Arc::new(Listeners::new().map_err(ServerError::Worker)?),
            handed: vec![],
        };
        for index in 0..config.workers.max(1) {
            server.start_worker(index)?;
        }
        for inbox in &server.workers {
            inbox.send(Message::Peers(server.workers.clone()));
        }
        let (inboxes, running) = (server.workers.clone(), Arc::downgrade(&server.next));
        let beats = server.shared.beats.clone();
        std::thread::Builder::new()
            .name("terrace-ticker".into())
            .spawn(move || {
                let mut looked = Instant::now();
                while running.strong_count() > 0 {
                    std::thread::sleep(TICK);
                    inboxes.iter().for_each(Inbox::tick);
                    // No worker counts as stalled while the whole process is stopped or the host sleeps.
                    beats.look(looked.elapsed().min(TICK * 2));
                    looked = Instant::now();
                }
            })
            .map_err(ServerError::Worker)?;
        if let Some(mut keeper) = keeper {
            keeper.workers = server.workers.clone();
            settle_direct(&keeper);
            for device in keeper.devices.values() {
                for worker in &server.workers {
                    worker.send(Message::Device(device.clone()));
                }
            }
            for id in keeper.lost.keys() {
                let name = keeper.records[id].name.clone();
                let device = Arc::new(Device::lost(*id, name));
                for worker in &server.workers {
                    worker.send(Message::DeviceLost(device.clone()));
                }
            }
            for device in keeper.open_sources() {
                for worker in &server.workers {
                    worker.send(Message::Device(device.clone()));
                }
            }
            keeper.map.run_in_threads();
            let thread = std::thread::Builder::new()
                .name("terrace-keeper".into())
                .spawn(move || keeper.run(&from_workers))
                .map_err(ServerError::Worker)?;
            server.keeper = Some((to_keeper, thread));
        }
        Ok(server)
    }

    fn start_worker(&mut self, index: usize) -> Result<(), ServerError> {
        let (ready, started) = channel();
        let (shared, choice) = (self.shared.clone(), self.config.io);
        let poll = self.config.poll;
        let cache = self
            .config
            .cache
            .map(|c| c.of_one(self.config.workers.max(1)));
        let memory = cache.as_ref().map(CacheMemory::new).transpose()?;
        let thread = std::thread::Builder::new()
            .name(format!("terrace-worker-{index}"))
            .spawn(move || {
                // A ring belongs to the thread that created it.
                let (io, notice) = match Io::new(choice) {
                    Ok(made) => made,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return Ok(());
                    }
                };
                let (sender, inbox) = channel();
                let worker = Inbox::new(&io, sender, index, shared.beats.clone());
                let _ = ready.send(Ok((worker, notice)));
                let mut worker = Worker::new(index, io, inbox, shared, poll);
                if let Some((memory, settings)) = memory.zip(cache) {
                    worker = worker.with_cache(memory, &settings);
                }
                let ended = worker.run();
                ended.inspect_err(|why| error!(worker = index, %why, "a worker has ended"))
            })
            .map_err(ServerError::Worker)?;
        let started = started.recv().map_err(std::io::Error::other);
        let (inbox, notice) = started.and_then(|made| made).map_err(ServerError::Worker)?;
        if let Some(notice) = notice.filter(|_| index == 0) {
            info!("{notice}");
        }
        self.workers.push(inbox);
        self.threads.push(thread);
        Ok(())
    }

    /// Requires TLS with client authentication for later TCP connections.
    ///
    /// # Errors
    /// [`TlsError`] if certificates or keys cannot be used.
    pub fn require_tls(&mut self, credentials: Credentials) -> Result<(), TlsError> {
        self.tls = Some(Arc::new(ServerTls::load(credentials)?));
        Ok(())
    }

    /// Like [`Server::require_tls`], with a loaded configuration.
    pub(crate) fn secured_by(&mut self, tls: Option<ServerTls>) {
        self.tls = tls.map(Arc::new);
    }

    /// Lets guests connect to an address. Without TLS, a TCP address must be a loopback address.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, listen: &Listen) -> Result<Listen, ListenError> {
        let system = |source| ListenError::System {
            address: listen.to_string(),
            source,
        };
        match listen {
            Listen::Unix(path) => {
                crate::control::fits(path)?;
                let name = listen.listener_name(false);
                let socket = match self.take_handed(&name) {
                    Some(socket) => socket,
                    None => {
                        clear_stale(path)?;
                        Arc::new(UnixListener::bind(path).map_err(system)?.into())
                    }
                };
                self.sockets.push(path.clone());
                let listener = self.keep(name, socket).map_err(system)?;
                self.accept(listener, |_| Ok(()));
                Ok(listen.clone())
            }
            Listen::Tcp(address) | Listen::Tls(address) => {
                let tls = match (&self.tls, listen) {
                    (None, Listen::Tls(_)) => return Err(TlsError::NoTrust.into()),
                    (None, _) => listen.allowed_in_the_clear().map(|()| None)?,
                    (Some(tls), _) => Some(tls.clone()),
                };
                let name = listen.listener_name(tls.is_some());
                let socket: Arc<OwnedFd> = match self.take_handed(&name) {
                    Some(socket) => socket,
                    None => Arc::new(TcpListener::bind(address).map_err(system)?.into()),
                };
                let same = socket.try_clone().map_err(system)?;
                let bound = TcpListener::from(same).local_addr().map_err(system)?;
                let listener = self.keep(name, socket).map_err(system)?;
                if let Some(tls) = tls {
                    self.accept_secured(listener, tls);
                    return Ok(Listen::Tls(bound));
                }
                self.accept(listener, |socket| {
                    Ok(rustix::net::sockopt::set_tcp_nodelay(socket, true)?)
                });
                Ok(Listen::Tcp(bound))
            }
        }
    }

    /// Lets guests connect by vhost-user to one socket per volume in this directory. Volumes that are offered later
    /// get a socket too.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen_vhost_user(&mut self, dir: &Path) -> Result<(), ListenError> {
        let allowed = ConnectionLimits {
            open: self.shared.connections.clone(),
            most: self.config.connections_max,
            guests_most: (self.descriptors / 2 / DESCRIPTORS_EACH).max(1),
        };
        let sockets = Sockets::start(dir, self.workers.clone(), allowed)?;
        for (export, home) in self.shared.registry.all() {
            if let Err(error) = sockets.add(&export.name, export.size, logical_block(&export), home)
            {
                let volume = &export.name;
                warn!(volume, %error, "cannot create the vhost-user socket of the volume");
            }
        }
        self.vhost = Some(sockets);
        Ok(())
    }

    /// Returns the directory of the vhost-user sockets, if enabled.
    pub(crate) fn vhost_user_dir(&self) -> Option<&Path> {
        self.vhost.as_ref().map(Sockets::dir)
    }

    /// Returns the vhost-user socket of a volume, if it has one.
    pub fn vhost_user_socket(&self, volume: &str) -> Option<PathBuf> {
        self.vhost.as_ref()?.open(volume)
    }

    /// Offers a volume to guests.
    ///
    /// # Errors
    /// [`ListenError`] if vhost-user is enabled and the volume's socket cannot be created. The volume is still
    /// offered over NBD.
    pub(crate) fn offer(
        &self,
        volume: &str,
        bytes: u64,
        logical_block: u32,
        access: Access,
        home: Home,
    ) -> Result<(), ListenError> {
        let registry = &self.shared.registry;
        registry.add(volume, bytes, logical_block, access, home);
        match &self.vhost {
            // vhost-user serves only writable volumes.
            Some(sockets) if access == Access::ReadWrite => {
                sockets.add(volume, bytes, logical_block, home)
            }
            _ => Ok(()),
        }
    }

    /// Changes the size of a volume for clients that connect later.
    pub(crate) fn resized(&self, volume: &str, size: Bytes) {
        self.shared.registry.change(volume, |e| e.size = size.0);
        if let Some(sockets) = &self.vhost {
            sockets.resize(volume, size.0);
        }
    }

    /// Changes the name of a volume for clients that connect later.
    ///
    /// # Errors
    /// [`ListenError`] if vhost-user is enabled and the socket with the new name cannot be created.
    pub(crate) fn renamed(&self, from: &str, to: &str) -> Result<(), ListenError> {
        self.withdraw(from);
        let registry = &self.shared.registry;
        registry.change(from, |e| to.clone_into(&mut e.name));
        let found = registry.find(to).zip(registry.home(to));
        match (&self.vhost, found) {
            (Some(sockets), Some((export, home)))
                if !export.flags.contains(nbd::ExportFlags::READ_ONLY) =>
            {
                sockets.add(to, export.size, logical_block(&export), home)
            }
            _ => Ok(()),
        }
    }

    /// Removes the vhost-user socket of a volume.
    pub(crate) fn withdraw(&self, volume: &str) {
        if let Some(sockets) = &self.vhost {
            sockets.remove(volume);
        }
    }

    /// Continues connections of the previous server.
    pub(crate) fn let_in(&self, connections: Vec<HandedConnection>) {
        let workers = self.workers.len();
        for connection in connections {
            let home = home_of(VolumeId(connection.session.volume), workers);
            self.shared.connections.fetch_add(1, Ordering::AcqRel);
            self.workers[home].send(Message::Handed(Box::new(connection)));
        }
    }

    /// Takes a listening socket of the previous server.
    pub(crate) fn take_handed(&mut self, name: &str) -> Option<Arc<OwnedFd>> {
        let at = self.handed.iter().position(|l| l.name == name)?;
        Some(self.handed.swap_remove(at).socket)
    }

    fn keep(&self, name: String, socket: Arc<OwnedFd>) -> std::io::Result<Listener> {
        self.listeners.keep(ListeningSocket { name, socket })
    }

    fn accept_secured(&self, listener: Listener, tls: Arc<ServerTls>) {
        let after = AfterHandshake {
            workers: self.workers.clone(),
            registry: self.shared.registry.clone(),
            open: self.shared.connections.clone(),
            most: self.config.connections_max,
            next: self.next.clone(),
        };
        let handshakes = Handshakes::new(tls, after);
        accept_each(
            listener,
            |socket| {
                let socket = TcpStream::from(socket);
                let address = socket.peer_addr()?;
                Ok((socket, address))
            },
            move |(socket, address), _| handshakes.accept(socket, address),
        );
    }

    fn accept(&self, listener: Listener, prepare: fn(&OwnedFd) -> std::io::Result<()>) {
        let (workers, next) = (self.workers.clone(), self.next.clone());
        let (open, most) = (self.shared.connections.clone(), self.config.connections_max);
        let accepted = move |socket: OwnedFd| prepare(&socket).map(|()| socket);
        accept_each(listener, accepted, move |socket, said| {
            if open.fetch_add(1, Ordering::AcqRel) >= most {
                open.fetch_sub(1, Ordering::AcqRel);
                if seldom(said) {
                    warn!(most, "refused a connection: too many are open");
                }
                return ControlFlow::Continue(()); // dropped, which closes it
            }
            widen(&socket);
            match Inbox::in_turn(&workers, &next).send(Message::Accepted(socket)) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }

    /// Returns the unix sockets where guests connect.
    pub(crate) fn unix_sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    pub(crate) fn keeper(&self) -> Option<&Sender<KeeperMessage>> {
        self.keeper.as_ref().map(|k| &k.0)
    }

    /// Returns true if all workers run, and the keeper if there is one.
    pub fn healthy(&self) -> bool {
        let keeper = self.keeper.as_ref();
        let ended = keeper.is_some_and(|k| k.1.is_finished());
        !ended && self.threads.iter().all(|t| !t.is_finished())
    }

    /// Returns a watch over the beats of all workers.
    pub fn pulse(&self) -> Pulse {
        Pulse::of(self.shared.beats.clone())
    }

    /// Returns a worker that does not respond, with its exported volumes.
    pub(crate) fn stalled_worker(&self, worker: usize, still: Duration) -> StalledWorker {
        let exports = self.shared.registry.all().into_iter();
        let its_own = exports.filter(|(_, home)| home.worker == worker);
        StalledWorker {
            worker,
            still,
            volumes: its_own
                .map(|(export, home)| (home.volume, export.name))
                .collect(),
        }
    }
}

/// Chooses direct I/O or the page cache for all devices, before their first use.
fn settle_direct(keeper: &Keeper) {
    std::thread::scope(|threads| {
        for device in keeper.devices.values() {
            threads.spawn(|| device.settle_direct());
        }
    });
    for device in keeper.devices.values() {
        let name = &device.name;
        if let Some(why) = device.direct_refused() {
            warn!(
                device = name,
                why, "the device uses the page cache although direct I/O is configured"
            );
        } else if let Some((direct, why)) = device.direct_why() {
            debug!(
                device = name,
                direct, why, "selected direct I/O or the page cache"
            );
        }
    }
}

/// Enlarges the kernel's buffers of a guest's socket.
pub(crate) fn widen(socket: &OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, SOCKET_BYTES);
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, SOCKET_BYTES);
}

/// Handles each new connection of a listener on a separate thread. The thread ends with the process: it cannot be
/// woken while it waits for a connection, and it holds no resource.
fn accept_each<S>(
    listener: Listener,
    mut prepare: impl FnMut(OwnedFd) -> std::io::Result<S> + Send + 'static,
    mut accepted: impl FnMut(S, &mut Option<Instant>) -> ControlFlow<()> + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut said = None;
        loop {
            listener.wait();
            let socket = rustix::net::accept_with(listener.as_fd(), SocketFlags::CLOEXEC);
            match socket.map_err(std::io::Error::from).and_then(&mut prepare) {
                Ok(socket) => {
                    if accepted(socket, &mut said).is_break() {
                        return;
                    }
                }
                // The client has already disconnected.
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(why) => {
                    if seldom(&mut said) {
                        warn!(%why, "cannot accept a connection");
                    }
                    pause_after_accept(&why);
                }
            }
        }
    });
}

/// Descriptors reserved for files, operators' sockets and clients that are not authenticated yet. Guests' connections
/// must not use them.
const DESCRIPTORS_KEPT: u64 = 64 + handshakes::OPEN_MAX as u64;

/// Raises the descriptor limit of this process to its maximum. Returns the number available for guests' connections.
pub(crate) fn raise_descriptors() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let left = current.unwrap_or(u64::MAX).saturating_sub(DESCRIPTORS_KEPT);
    usize::try_from(left.max(1)).unwrap_or(usize::MAX)
}

/// Interval of log messages that guests can cause as often as they like.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Returns true if a limited message may be logged again, and records the time.
pub(crate) fn seldom(said: &mut Option<Instant>) -> bool {
    let due = said.is_none_or(|at| at.elapsed() >= SAID_EVERY);
    if due {
        *said = Some(Instant::now());
    }
    due
}
