//! Finding an array to ask: the server that has it, or else the map itself; making one for its first device.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use array::{Array, ArrayError, ArrayId, MAP_FILE};
use thiserror::Error;
use units::Bytes;

use crate::control::{self, CONTROL_SOCKET};
use crate::desk::{Ask, Desk, NewDevice, Told};
use crate::keeper::{Keeper, KeeperError};

/// Another command, or a server that is starting, may have the array for a moment: wait this long for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why an array cannot be reached.
#[derive(Debug, Error)]
pub enum ReachError {
    /// There is none.
    #[error(
        "{}: there is no array here: `terrace tier add NAME --dir DIR --size SIZE` makes one, --array names another", dir.display()
    )]
    Missing {
        /// Where.
        dir: PathBuf,
    },
    /// Somebody has it, and is no server.
    #[error(
        "{}: the array is in use by another process that does not answer on its control socket: wait for it to end", dir.display()
    )]
    InUse {
        /// Where.
        dir: PathBuf,
    },
    /// A server has it, and it must not be served for this.
    #[error("{}: the array is served by another process: stop that one first", dir.display())]
    Served {
        /// Where.
        dir: PathBuf,
    },
    /// Its map cannot be used.
    #[error(transparent)]
    Array(ArrayError),
    /// Its map or its devices cannot be used.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
}

/// An array within reach.
pub enum Reach {
    /// By its server's control socket.
    Served(PathBuf),
    /// Here and now.
    Here(Box<Desk>),
}

impl Reach {
    /// Finds an array.
    ///
    /// # Errors
    /// [`ReachError`].
    pub fn find(dir: &Path) -> Result<Self, ReachError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(socket) = served(dir) {
                return Ok(Reach::Served(socket));
            }
            match open(dir) {
                Err(ReachError::InUse { .. }) if Instant::now() < until => pause(),
                array => {
                    let keeper = Keeper::open(array?)?;
                    return Ok(Reach::Here(Box::new(Desk::offline(keeper))));
                }
            }
        }
    }

    /// Asks.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn ask(&self, ask: Ask) -> Result<Told, String> {
        match self {
            Reach::Served(socket) => {
                control::ask(socket, &ask).map_err(|e| crate::text::explain(&e))
            }
            Reach::Here(desk) => desk.ask(ask),
        }
    }
}

/// Opens an array that nobody else may have, not even a server.
///
/// # Errors
/// [`ReachError`].
pub fn open_to_serve(dir: &Path) -> Result<Array, ReachError> {
    let until = Instant::now() + PATIENCE;
    loop {
        if served(dir).is_some() {
            return Err(ReachError::Served { dir: dir.into() });
        }
        match open(dir) {
            Err(ReachError::InUse { .. }) if Instant::now() < until => pause(),
            array => return array,
        }
    }
}

/// Extents of an array that is made without saying how large they are to be.
const EXTENT: Bytes = Bytes::mib(1);

/// Adds a device to an array, and makes the array first if it is not there.
///
/// # Errors
/// A sentence that says what is wrong. An array that was made for a device which cannot be added is taken away again.
pub fn add_device(dir: &Path, extent: Option<Bytes>, new: NewDevice) -> Result<Told, String> {
    match Reach::find(dir) {
        Ok(_) if extent.is_some() => Err(format!(
            "{}: the extent size of an array is chosen when it is made: leave --extent out",
            dir.display()
        )),
        Ok(reach) => reach.ask(Ask::AddDevice(new)),
        Err(ReachError::Missing { .. }) => {
            let there = fs::exists(dir).unwrap_or(true);
            let made = random_id()
                .map_err(|e| format!("cannot read /dev/urandom: {e}"))
                .and_then(|id| {
                    let array = Array::create(dir, id, extent.unwrap_or(EXTENT));
                    array.map_err(|e| crate::text::explain(&e))
                })?;
            let keeper = Keeper::open(made).map_err(|e| crate::text::explain(&e))?;
            let told = Desk::offline(keeper).ask(Ask::AddDevice(new));
            if told.is_err() {
                let _ = fs::remove_file(dir.join(MAP_FILE));
                if !there {
                    let _ = fs::remove_dir(dir);
                }
            }
            told
        }
        Err(other) => Err(crate::text::explain(&other)),
    }
}

fn random_id() -> std::io::Result<ArrayId> {
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(ArrayId(id))
}

fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

/// The control socket of an array, if somebody listens on it.
fn served(dir: &Path) -> Option<PathBuf> {
    let socket = dir.join(CONTROL_SOCKET);
    let connected = std::os::unix::net::UnixStream::connect(&socket);
    connected.is_ok().then_some(socket)
}

fn open(dir: &Path) -> Result<Array, ReachError> {
    Array::open(dir).map_err(|error| match error {
        ArrayError::Missing { .. } => ReachError::Missing { dir: dir.into() },
        ArrayError::InUse { .. } => ReachError::InUse { dir: dir.into() },
        other => ReachError::Array(other),
    })
}
