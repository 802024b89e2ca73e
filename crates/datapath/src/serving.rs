//! An array that is served by this process: server, desk and control socket, from start to end.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::control::{CONTROL_SOCKET, Control};
use crate::desk::{Ask, Desk, Told};
use crate::keeper::{AcceptLoss, KeeperError};
use crate::pulse::Pulse;
use crate::reach::{ReachError, open_to_serve};
use crate::server::{Listen, ListenError, Server, ServerConfig, ServerError};
use crate::tls::Credentials;

/// Requests on the control socket that are being answered when the server is to end get this long.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Why an array cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It is not there, or somebody else has it.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// Its map or devices cannot be used.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// No workers.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// No socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// A served array. Dropping it without [`Serving::stop`] is as good as a kill: nothing that was answered is lost.
pub struct Serving {
    desk: Arc<Desk>,
    control: Control,
    shared_at: Instant,
}

impl Serving {
    /// Opens the array in a directory, starts the workers and lets operators ask. Nothing is exported yet.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(dir: &Path, config: ServerConfig) -> Result<Self, ServeError> {
        Self::start_accepting(dir, config, &AcceptLoss::default())
    }

    /// As [`Serving::start`], with what is there, where an operator accepts what is lost.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start_accepting(
        dir: &Path,
        config: ServerConfig,
        accept: &AcceptLoss,
    ) -> Result<Self, ServeError> {
        let mut keeper = open_to_serve(dir, accept)?;
        // It is no reason not to serve: why there is none is among the troubles, and it is tried again.
        if let Err(why) = keeper.second_by_default() {
            keeper.store_error = Some(format!("no second copy of the map: {why}"));
        }
        keeper.begin_serving().map_err(KeeperError::from)?;
        // Only a hint, for a start that finds nothing else.
        let _ = keeper.write_hint();
        let server = Server::start(Some(keeper), config)?;
        let desk = Arc::new(Desk::online(server));
        let control = Control::listen(&dir.join(CONTROL_SOCKET), &desk)?;
        Ok(Self {
            desk,
            control,
            shared_at: Instant::now(),
        })
    }

    /// Where to ask.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Guests who connect by TCP from here on have to speak TLS and to prove who they are.
    ///
    /// # Errors
    /// [`TlsError`](crate::TlsError), when certificates or keys cannot be used.
    pub fn require_tls(&self, credentials: Credentials) -> Result<(), ListenError> {
        let server = self.desk.server().expect("it is served");
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(server.require_tls(credentials)?)
    }

    /// Lets guests connect; says where, with the port that the system chose.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&self, listen: &Listen) -> Result<Listen, ListenError> {
        let server = self.desk.server().expect("it is served");
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.listen(listen)
    }

    /// Lets guests connect by vhost-user, at a socket in this directory for each volume.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen_vhost_user(&self, dir: &Path) -> Result<(), ListenError> {
        let server = self.desk.server().expect("it is served");
        let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.listen_vhost_user(dir)
    }

    /// Where guests of a volume connect by vhost-user, if they can.
    pub fn vhost_user_socket(&self, volume: &str) -> Option<PathBuf> {
        let server = self.desk.server().expect("it is served");
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.vhost_user_socket(volume)
    }

    /// Waits until all remote devices are connected, for a while. What is not answers with errors until it is.
    ///
    /// # Errors
    /// Names of devices that are not.
    pub fn wait_for_remotes(&self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        loop {
            let Told::Volumes { volumes } = self.desk.ask(Ask::Volumes)? else {
                return Ok(());
            };
            let states = volumes.into_iter().filter_map(|v| v.status);
            let away: Vec<u16> = states.flat_map(|s| s.away).collect();
            match away.first() {
                None => return Ok(()),
                Some(device) if Instant::now() > until => {
                    return Err(format!(
                        "device {device} is not connected: requests to it fail until it is"
                    ));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// To be called about ten times a second: divides what limited tiers may do. Whether all workers still run.
    pub fn tick(&mut self) -> bool {
        let now = Instant::now();
        let passed = now.duration_since(self.shared_at).as_secs_f64();
        self.desk.share_tiers(passed);
        self.shared_at = now;
        let server = self.desk.server().expect("it is served");
        let server = server.lock().unwrap_or_else(PoisonError::into_inner);
        server.healthy()
    }

    /// What sees whether all workers come round.
    ///
    /// # Panics
    /// Never: an array that is served has a server.
    pub fn pulse(&self) -> Pulse {
        let server = self.desk.server().expect("it is served");
        server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pulse()
    }

    /// Ends it in order, so that the next start does not have to look through the whole map.
    pub fn stop(self) {
        drop(self.control);
        let until = Instant::now() + LAST_ANSWERS;
        let mut desk = self.desk;
        loop {
            match Arc::try_unwrap(desk) {
                Ok(desk) => {
                    if let Some(server) = desk.into_server() {
                        server.stop();
                    }
                    return;
                }
                Err(busy) if Instant::now() < until => desk = busy,
                Err(_) => return,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A served array with a device of 8 MiB on the tier `fast` and a volume `data` of 1 MiB, in a directory, and where it listens.
#[cfg(test)]
pub(crate) fn one_volume(dir: &Path) -> (Serving, Listen) {
    let new = crate::desk::NewDevice {
        tier: "fast".into(),
        source: crate::desk::NewSource::Dir(dir.into()),
        size: Some(units::Bytes::mib(8)),
        emulate: None,
        direct: model::DirectIo::Off,
    };
    let array = dir.join("array");
    crate::reach::add_device(&array, None, new).unwrap();
    let serving = Serving::start(&array, ServerConfig::default()).unwrap();
    let listen = Listen::Unix(dir.join("nbd.sock"));
    serving.listen(&listen).unwrap();
    let create = crate::desk::Ask::Create {
        volume: "data".into(),
        size: units::Bytes::mib(1),
        tier: "fast".into(),
        class: None,
    };
    serving.desk().ask(create).unwrap();
    (serving, listen)
}
