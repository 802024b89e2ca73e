//! Array served by this process: server, control server and control socket, from start to end.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use thiserror::Error;
use tracing::{info, warn};

use crate::control::{CONTROL_SOCKET, ControlSocket};
use crate::control_server::{ControlAnswer, ControlRequest, ControlServer};
use crate::error::DatapathError;
use crate::io::Io;
use crate::keeper::{AcceptLoss, Keeper, KeeperError};
use crate::listen::{Listen, ListenError};
use crate::pulse::Pulse;
use crate::reach::{ReachError, open_salvaged, open_to_serve};
use crate::server::{Server, ServerConfig, ServerError, StopError, poll_until};
use crate::takeover::{Handover, TakeOverConfig, TakeOverError, TakeOverState, take_over};
use crate::tls::{Credentials, ServerTls};
use crate::worker::HandedConnection;

/// Time for unfinished requests on the control socket when the server ends.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Reason why an array cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The array does not exist, or another process uses it.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The map or the devices cannot be used.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// The workers cannot start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A socket cannot be created.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The serving process does not hand the array over, or not completely.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
}

/// Served array. Dropping it without [`ArrayServer::stop`] has the effect of a kill: no acknowledged write is lost.
pub struct ArrayServer {
    control_server: Arc<ControlServer>,
    control: ControlSocket,
    shared_at: Instant,
    /// Connections that were taken over but do not continue yet, with the time of the take-over.
    taken: Option<(Vec<HandedConnection>, Instant)>,
    /// Connection to the previous process, which closes when that process ends. It stays open here: if this process
    /// closed it, the other one would consider this one ended.
    other: Option<UnixStream>,
}

impl ArrayServer {
    /// Opens the array in a directory, starts the workers and the control socket. Nothing is exported yet.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(dir: &Path, config: ServerConfig) -> Result<Self, ServeError> {
        Self::start_accepting(dir, config, &AcceptLoss::default())
    }

    /// Like [`ArrayServer::start`], for an operator who accepts losses.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start_accepting(
        dir: &Path,
        config: ServerConfig,
        accept: &AcceptLoss,
    ) -> Result<Self, ServeError> {
        let mut keeper = open_to_serve(dir, accept)?;
        keeper.claim_remotes()?;
        // A missing second copy does not prevent serving: it is reported as a problem, and its creation is retried.
        if let Err(why) = keeper.second_by_default() {
            keeper.store_error = Some(format!("the map has no second copy: {why}"));
        }
        keeper.begin_serving().map_err(KeeperError::from)?;
        // Only a hint, for a start without other information.
        let _ = keeper.write_hint();
        Self::online(dir, keeper, config)
    }

    /// Serves the intact volumes of an array read-only, when all copies of its map are damaged.
    ///
    /// # Errors
    /// [`ServeError`], also if a copy is intact.
    pub fn salvage(dir: &Path, config: ServerConfig) -> Result<Self, ServeError> {
        let mut keeper = open_salvaged(dir)?;
        keeper.claim_remotes()?;
        Self::online(dir, keeper, config)
    }

    fn online(dir: &Path, keeper: Keeper, config: ServerConfig) -> Result<Self, ServeError> {
        let server = Server::start(Some(keeper), config)?;
        let control_server = Arc::new(ControlServer::online(server));
        let control = ControlSocket::listen(&dir.join(CONTROL_SOCKET), &control_server)?;
        Ok(Self {
            control_server,
            control,
            shared_at: Instant::now(),
            taken: None,
            other: None,
        })
    }

    /// Takes an array over from the process that serves it, with the connections of its guests. These wait until the
    /// volumes are exported and [`ArrayServer::let_in`] is called. The other process ends by itself.
    ///
    /// # Errors
    /// [`ServeError`]: this process must then end. The error names the process that serves the array.
    pub fn take_over(
        dir: &Path,
        config: ServerConfig,
        wanted: TakeOverConfig,
    ) -> Result<Self, ServeError> {
        // Check possible failures before the other process is involved.
        let tls = wanted.tls.clone().map(ServerTls::load).transpose();
        let tls = tls.map_err(ListenError::from)?;
        if tls.is_none() {
            let mut listens = wanted.listens.iter();
            listens.try_for_each(Listen::allowed_in_the_clear)?;
        }
        Io::new(config.io).map_err(ServerError::Worker)?;
        if let Some(sockets) = &wanted.vhost_user {
            let system = |source| ListenError::System {
                address: sockets.display().to_string(),
                source,
            };
            std::fs::create_dir_all(sockets).map_err(system)?;
        }
        let TakeOverState {
            keeper,
            listening,
            connections,
            volumes,
            tiers,
            lease_until_ns,
            left,
            other,
        } = take_over(dir, &wanted)?;
        let began = Instant::now();
        let _ = keeper.write_hint();
        let mut server = Server::start(Some(keeper), config)?;
        server.handed = listening;
        server.secured_by(tls);
        let control_server = Arc::new(ControlServer::online(server));
        control_server.set_handed(volumes, tiers, lease_until_ns);
        let control = ControlSocket::listen(&dir.join(CONTROL_SOCKET), &control_server)?;
        if left > 0 {
            warn!(
                left,
                "connections with TLS or vhost-user cannot be taken over and were closed: their clients reconnect"
            );
        }
        Ok(Self {
            control_server,
            control,
            shared_at: Instant::now(),
            taken: Some((connections, began)),
            other: Some(other),
        })
    }

    /// Continues the connections that were taken over. Requires that all their volumes are exported.
    pub fn let_in(&mut self) {
        let Some((connections, began)) = self.taken.take() else {
            return;
        };
        let server = self.control_server.server().expect("it is served");
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        let count = connections.len();
        server.let_in(connections);
        let ms = began.elapsed().as_millis() as u64;
        info!(connections = count, ms, "guests are served");
    }

    /// Waits for the end of the previous process, up to a limit. Returns at once without a previous process.
    pub fn wait_for_the_other(&mut self) {
        if let Some(other) = &mut self.other {
            let _ = other.set_read_timeout(Some(LAST_ANSWERS));
            // The other process sends no more data, so this read ends with it.
            let _ = other.read(&mut [0; 16]);
        }
    }

    /// Reports that the start is complete: from now on the array can be handed over.
    pub fn started(&self) {
        self.control_server.gate.started();
    }

    /// Returns a function that waits until another process has taken the array over. This process must then end and
    /// must not touch the array.
    pub fn lost(&self) -> impl FnOnce() -> Handover + Send + use<> {
        let gate = self.control_server.gate.clone();
        move || gate.lost()
    }

    /// Returns the control server.
    pub fn control_server(&self) -> &ControlServer {
        &self.control_server
    }

    /// Requires TLS with client authentication for later TCP connections.
    ///
    /// # Errors
    /// [`TlsError`](crate::TlsError) if certificates or keys cannot be used.
    pub fn require_tls(&self, credentials: Credentials) -> Result<(), ListenError> {
        let server = self.control_server.server().expect("it is served");
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(server.require_tls(credentials)?)
    }

    /// Lets guests connect to an address. Returns the address with the port that the system chose.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, listen: &Listen) -> Result<Listen, ListenError> {
        let server = self.control_server.server().expect("it is served");
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.listen(listen)
    }

    /// Lets guests connect by vhost-user, with one socket per volume in this directory.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen_vhost_user(&self, dir: &Path) -> Result<(), ListenError> {
        let server = self.control_server.server().expect("it is served");
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.listen_vhost_user(dir)
    }

    /// Returns the vhost-user socket of a volume, if it has one.
    pub fn vhost_user_socket(&self, volume: &str) -> Option<PathBuf> {
        let server = self.control_server.server().expect("it is served");
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.vhost_user_socket(volume)
    }

    /// Waits until all remote devices are connected, at most for `time`. Requests to other ones fail until they are
    /// connected.
    ///
    /// # Errors
    /// [`DatapathError::Late`] with an unconnected device.
    pub fn wait_for_remotes(&self, time: Duration) -> Result<(), DatapathError> {
        let until = Instant::now() + time;
        loop {
            let ControlAnswer::Volumes { volumes } =
                self.control_server.ask(ControlRequest::Volumes)?
            else {
                return Ok(());
            };
            let states = volumes.into_iter().filter_map(|v| v.status);
            let away: Vec<u16> = states.flat_map(|s| s.away).collect();
            match away.first() {
                None => return Ok(()),
                Some(device) if Instant::now() > until => {
                    return Err(DatapathError::Late(format!(
                        "device {device} is not connected: its requests fail until the connection is restored"
                    )));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Ends expired limits, and divides the limits of tiers between their volumes. Call it about ten times a second.
    /// Returns true while all workers and the keeper run.
    pub fn tick(&mut self) -> bool {
        let now = Instant::now();
        let passed = now.duration_since(self.shared_at).as_secs_f64();
        self.control_server.share_tiers(passed);
        self.shared_at = now;
        let server = self.control_server.server().expect("it is served");
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.healthy()
    }

    /// Returns a watch over the beats of all workers.
    ///
    /// # Panics
    /// Never: a served array has a server.
    pub fn pulse(&self) -> Pulse {
        let server = self.control_server.server().expect("it is served");
        server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pulse()
    }

    /// Announces the end of this process. Waits for the outcome of a hand-over in progress, and prevents later ones.
    pub fn ends(&self) -> Handover {
        self.control_server.gate.ends()
    }

    /// Stops the array in order, so the next start does not need to scan the whole map. Does nothing if another
    /// process has taken the array over. Returns which of the two happened.
    ///
    /// # Errors
    /// [`StopError`]: the next start then treats the array as after a crash.
    pub fn stop(self) -> Result<Handover, StopError> {
        let handover = self.ends();
        if handover != Handover::Ending {
            // Locks and sockets of this handle belong to the other process now.
            std::mem::forget(self);
            return Ok(handover);
        }
        drop(self.control);
        let until = Instant::now() + LAST_ANSWERS;
        let alone = || (Arc::strong_count(&self.control_server) == 1).then_some(());
        if poll_until(until, alone).is_none() {
            // The request fails when its worker or the keeper has ended. Its change is one commit, which the map
            // contains completely or not at all.
            warn!("interrupted a request of an operator");
        }
        let server = self.control_server.server().expect("it is served");
        let mut server =
            locked_by(server, until + LAST_ANSWERS).ok_or(StopError::Busy(LAST_ANSWERS * 2))?;
        server.stop()?;
        Ok(handover)
    }
}

/// Locks a mutex; `None` if another thread still holds it at `until`.
fn locked_by<T>(mutex: &Mutex<T>, until: Instant) -> Option<MutexGuard<'_, T>> {
    poll_until(until, || match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    })
}

/// Serves an array in a directory, with a device of 8 MiB on the tier `fast` and a volume `data` of 1 MiB. Returns
/// its address too.
#[cfg(test)]
pub(crate) fn one_volume(dir: &Path) -> (ArrayServer, Listen) {
    one_volume_with(dir, ServerConfig::default())
}

/// Like [`one_volume`], with another configuration.
#[cfg(test)]
pub(crate) fn one_volume_with(dir: &Path, config: ServerConfig) -> (ArrayServer, Listen) {
    let new = crate::control_server::NewDevice {
        tier: "fast".into(),
        source: crate::control_server::NewSource::Dir(dir.into()),
        size: Some(units::Bytes::mib(8)),
        emulate: None,
        direct: model::DirectIo::Off,
        force: false,
        thin: false,
    };
    let array = dir.join("array");
    crate::reach::add_device(&array, None, new).unwrap();
    let serving = ArrayServer::start(&array, config).unwrap();
    let listen = Listen::Unix(dir.join("nbd.sock"));
    serving.listen(&listen).unwrap();
    let create = crate::control_server::ControlRequest::Create {
        volume: "data".into(),
        size: units::Bytes::mib(1),
        tier: "fast".into(),
        class: None,
    };
    serving.control_server().ask(create).unwrap();
    (serving, listen)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use array::Superblock;

    use super::*;
    use crate::client::Client;
    use crate::keeper::KeeperMessage;

    /// Longest wait of these tests, on any machine.
    const PATIENCE: Duration = Duration::from_secs(120);

    /// Makes the worker of the volume `data` hang until the sender is dropped. A thread waits for the worker, like
    /// one of the control socket.
    fn hang(serving: &ArrayServer) -> Sender<()> {
        let control_server = serving.control_server.clone();
        let (let_go, gate) = channel::<()>();
        let (begun, has_begun) = channel();
        std::thread::spawn(move || {
            let _ = control_server.at_stages("data", move |_| {
                begun.send(()).unwrap();
                let _ = gate.recv_timeout(PATIENCE * 5);
                Ok(())
            });
        });
        has_begun.recv().unwrap();
        let_go
    }

    /// Sends the keeper a closure without waiting for it.
    fn at_keeper(serving: &ArrayServer, what: impl FnOnce() + Send + 'static) {
        let server = serving.control_server.server().unwrap().lock().unwrap();
        let busy = KeeperMessage::Do(Box::new(move |_| what()));
        server.keeper().unwrap().send(busy).unwrap();
    }

    fn is_stamped(dir: &Path) -> bool {
        let mut head = vec![];
        let file = std::fs::File::open(dir.join("fast-0.extents")).unwrap();
        file.take(1 << 20).read_to_end(&mut head).unwrap();
        Superblock::decode_both(&head).unwrap().flushed
    }

    #[test]
    fn stop_with_an_undetected_hang_ends_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            workers: 1,
            stalled_after: PATIENCE * 10,
            stop_within: Duration::from_secs(1),
            ..ServerConfig::default()
        };
        let (serving, _) = one_volume_with(dir.path(), config);
        let let_go = hang(&serving);
        let began = Instant::now();
        let stopped = serving.stop();
        assert!(began.elapsed() < PATIENCE);
        match stopped {
            Err(StopError::Workers(workers)) => {
                assert_eq!((workers.len(), workers[0].worker), (1, 0));
                assert_eq!(workers[0].names(), "data");
            }
            other => panic!("{other:?}"),
        }
        assert!(!is_stamped(dir.path()));
        drop(let_go);
    }

    #[test]
    fn stop_with_an_endless_request_is_orderly() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _) = one_volume(dir.path());
        let request = serving.control_server.clone();
        assert_eq!(serving.stop().unwrap(), Handover::Ending);
        assert!(is_stamped(dir.path()));
        let why = request.ask(ControlRequest::Volumes).unwrap_err();
        assert_eq!(why.to_string(), "the array's keeper has ended");
    }

    #[test]
    fn stop_with_a_locked_server_fails() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _) = one_volume(dir.path());
        let request = serving.control_server.clone();
        let locked = request.server().unwrap().lock().unwrap();
        assert!(matches!(serving.stop(), Err(StopError::Busy(_))));
        drop(locked);
        assert!(!is_stamped(dir.path()));
    }

    #[test]
    fn stop_waits_for_a_keeper_that_flushes_slowly() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            stalled_after: Duration::from_secs(1),
            ..ServerConfig::default()
        };
        let (serving, listen) = one_volume_with(dir.path(), config);
        let mut guest = Client::connect(&listen.uri("data").parse().unwrap()).unwrap();
        guest.write(0, &[7; 512]).unwrap();
        at_keeper(&serving, || std::thread::sleep(Duration::from_secs(3)));
        assert_eq!(serving.stop().unwrap(), Handover::Ending);
        assert!(is_stamped(dir.path()));
    }

    #[test]
    fn stop_with_a_keeper_that_hangs_ends_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            stop_within: Duration::from_secs(2),
            ..ServerConfig::default()
        };
        let (serving, _) = one_volume_with(dir.path(), config);
        let (let_go, gate) = channel::<()>();
        let (begun, has_begun) = channel();
        at_keeper(&serving, move || {
            begun.send(()).unwrap();
            let _ = gate.recv_timeout(PATIENCE * 5);
        });
        has_begun.recv().unwrap();
        let began = Instant::now();
        let stopped = serving.stop();
        assert!(began.elapsed() < PATIENCE);
        assert!(matches!(stopped, Err(StopError::Keeper(_))));
        assert!(!is_stamped(dir.path()));
        drop(let_go);
    }
}
