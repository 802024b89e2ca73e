//! Take-over in the new process.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{Array, ArrayError, CopyId, DeviceKind, FilePlace, MAP_FILE};
use thiserror::Error;
use tracing::info;
use units::{DeviceId, VolumeId};

use super::ListeningSocket;
use super::state::{State, TierOf, VolumeOf, Wishes};
use super::wire::{BYTES_MAX, FORMAT, Tag, hear, say, take_files};
use crate::control::{self, CONTROL_SOCKET, ControlError};
use crate::control_server::ControlRequest;
use crate::device::HandedDevice;
use crate::error::DatapathError;
use crate::keeper::{FoundCopy, Keeper, Places};
use crate::listen::Listen;
use crate::tls::Credentials;
use crate::worker::{HandedConnection, PLACE_BYTES, place_of};

/// Time limit for short messages of the other process.
const SAY: Duration = Duration::from_secs(5);

/// Time limit for the state of the other process: requests of operators complete first, and written data is flushed.
const STATE: Duration = Duration::from_secs(60);

/// Reason why a take-over failed.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// No server runs, or it refuses.
    #[error("cannot take over the array")]
    Asked(#[source] ControlError),
    /// The take-over began and was aborted: the other process continues to serve.
    #[error("cannot take over the array; the old server continues to serve it: {0}")]
    GivenUp(DatapathError),
    /// The other process has ended or violates the protocol.
    #[error("cannot take over the array: the old server did not send {what}")]
    Silent {
        /// Expected message.
        what: &'static str,
        /// Error of the connection.
        #[source]
        source: io::Error,
    },
    /// The first commit failed. After the end of this process, the other one checks whether the map has changed.
    #[error(
        "cannot record the take-over in the map: the old server continues to serve if the map is unchanged, and ends otherwise"
    )]
    Map(#[source] ArrayError),
}

/// Configuration of the process that takes over. It must match that of the other process; a difference is found
/// before guests must wait.
#[derive(Debug, Clone, Default)]
pub struct TakeOverConfig {
    /// Addresses where guests connect.
    pub listens: Vec<Listen>,
    /// Credentials for TCP connections with TLS.
    pub tls: Option<Credentials>,
    /// Directory of the vhost-user sockets, if enabled.
    pub vhost_user: Option<PathBuf>,
    /// Names of the volumes to serve. Empty: all volumes.
    pub volumes: Vec<String>,
}

impl TakeOverConfig {
    fn wishes(&self) -> Wishes {
        let secured = self.tls.is_some();
        Wishes {
            listeners: self
                .listens
                .iter()
                .map(|l| l.listener_name(secured))
                .collect(),
            vhost_user: self.vhost_user.clone(),
            volumes: self.volumes.clone(),
        }
    }
}

/// Result of a take-over.
pub struct TakeOverState {
    /// Keeper of the array, which this process now owns.
    pub keeper: Keeper,
    /// Listening sockets.
    pub listening: Vec<ListeningSocket>,
    /// Connections of guests.
    pub connections: Vec<HandedConnection>,
    /// Settings of volumes.
    pub(crate) volumes: Vec<VolumeOf>,
    /// Settings of tiers.
    pub(crate) tiers: Vec<TierOf>,
    /// End of the controller's lease, in nanoseconds of the monotonic clock.
    pub(crate) lease_until_ns: Option<u64>,
    /// Number of connections that ended with the other process.
    pub left: usize,
    /// Connection that closes when the other process ends.
    pub other: UnixStream,
}

/// State and files that the other process offers.
struct Offer {
    state: State,
    copies: Vec<(CopyId, PathBuf, Arc<File>)>,
    devices: Vec<HandedDevice>,
    listening: Vec<ListeningSocket>,
    connections: Vec<HandedConnection>,
    places: Places,
}

/// Takes the array in a directory over from the server that has it.
///
/// # Errors
/// [`TakeOverError`]. Its statement about the other process holds after the end of this one.
pub fn take_over(dir: &Path, wanted: &TakeOverConfig) -> Result<TakeOverState, TakeOverError> {
    // Raise the limit before descriptors arrive.
    crate::server::raise_descriptors();
    let path = dir.join(CONTROL_SOCKET);
    let asked = control::ask_to_take(&path, &ControlRequest::TakeOver { format: FORMAT });
    let mut other = asked.map_err(TakeOverError::Asked)?;
    let gone = |what| move |source| TakeOverError::Silent { what, source };
    let wishes = serde_json::to_vec(&wanted.wishes());
    let wishes = wishes.map_err(|e| gone("a reply")(e.into()))?;
    say(&mut other, Tag::Begin, &wishes, SAY).map_err(gone("a reply"))?;
    let offer = match hear_offer(&mut other, dir) {
        Ok(offer) => offer,
        Err(error) => {
            if let TakeOverError::GivenUp(why) = &error {
                let why = why.to_string();
                let _ = say(&mut other, Tag::No, why.as_bytes(), SAY); // the other process may have aborted itself
            }
            return Err(error);
        }
    };
    say(&mut other, Tag::Ready, &[], SAY).map_err(gone("a reply"))?;
    match hear(&mut other, SAY, BYTES_MAX).map_err(gone("permission to open the map"))? {
        (Tag::Go, _) => {}
        (Tag::No, why) => return Err(given_up(why)),
        _ => {
            return Err(gone("permission to open the map")(
                io::ErrorKind::InvalidData.into(),
            ));
        }
    }
    let Offer {
        state,
        copies,
        devices,
        listening,
        connections,
        places,
    } = offer;
    let began = Instant::now();
    let mut keeper = match open(copies, devices, &state, places) {
        Ok(keeper) => keeper,
        Err(why) => {
            // All files opened here are closed again.
            let _ = say(&mut other, Tag::No, why.to_string().as_bytes(), SAY);
            return Err(TakeOverError::GivenUp(why));
        }
    };
    let opened_ms = began.elapsed().as_millis() as u64;
    keeper.dir = Some(dir.into());
    // The first commit makes this process the owner. If it fails, no message is sent: the other process checks the
    // map after the end of this one.
    keeper.begin_serving().map_err(TakeOverError::Map)?;
    keeper.devices.values().for_each(|d| d.now_owned());
    // The other process may already have ended.
    let _ = say(&mut other, Tag::Taken, &[], SAY);
    let ms = began.elapsed().as_millis() as u64;
    info!(opened_ms, ms, "took over the array");
    Ok(TakeOverState {
        keeper,
        listening,
        connections,
        lease_until_ns: state.lease_until_ns,
        volumes: state.volumes,
        tiers: state.tiers,
        left: state.left,
        other,
    })
}

fn given_up(why: Vec<u8>) -> TakeOverError {
    let why = String::from_utf8_lossy(&why).into_owned();
    TakeOverError::GivenUp(DatapathError::Peer(why))
}

fn hear_offer(other: &mut UnixStream, dir: &Path) -> Result<Offer, TakeOverError> {
    let silent = |what| move |source| TakeOverError::Silent { what, source };
    let no = |why: String| TakeOverError::GivenUp(DatapathError::Peer(why));
    let unexpected = || no("the old server sent an unexpected message".into());
    let state = match hear(other, STATE, BYTES_MAX).map_err(silent("its state"))? {
        (Tag::State, state) => state,
        (Tag::No, why) => return Err(given_up(why)),
        _ => return Err(unexpected()),
    };
    let state: State = serde_json::from_slice(&state)
        .map_err(|e| no(format!("cannot decode the state of the old server: {e}")))?;
    let bytes = match hear(other, SAY, BYTES_MAX).map_err(silent("its state"))? {
        (Tag::Bytes, bytes) => bytes,
        _ => return Err(unexpected()),
    };
    let count = state.copies.len()
        + 2 * state.devices.len()
        + state.listening.len()
        + state.connections.len();
    let files = take_files(other, count, SAY);
    let files = files.map_err(|e| no(e.to_string()))?;
    understand(state, &bytes, files, dir).map_err(TakeOverError::GivenUp)
}

/// Assigns the received bytes and files to the parts of the state.
fn understand(
    state: State,
    bytes: &[u8],
    files: Vec<OwnedFd>,
    dir: &Path,
) -> Result<Offer, DatapathError> {
    let wrong = |why: &str| DatapathError::Peer(why.into());
    let mut files = files.into_iter();
    let mut next = || files.next().ok_or_else(|| wrong("an open file is missing"));
    let mut copies = vec![];
    for copy in &state.copies {
        let file = Arc::new(File::from(next()?));
        let path = match copy.copy() {
            CopyId::First => dir.join(MAP_FILE),
            CopyId::Second => PathBuf::from(&copy.path),
        };
        let same =
            |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let found = file.metadata().and_then(|f| Ok(same(f, path.metadata()?)));
        if !found.is_ok_and(|same| same) {
            return Err(DatapathError::Peer(format!(
                "{}: this file is not the map of the old server",
                path.display()
            )));
        }
        copies.push((copy.copy(), path, file));
    }
    let mut devices = vec![];
    for device in &state.devices {
        devices.push(HandedDevice {
            id: DeviceId(device.id),
            file: Arc::new(File::from(next()?)),
            lock: Arc::new(File::from(next()?)),
            direct: device.direct.clone(),
        });
    }
    let mut listening = vec![];
    for name in &state.listening {
        listening.push(ListeningSocket {
            name: name.clone(),
            socket: Arc::new(next()?),
        });
    }
    let (mut connections, mut bytes) = (vec![], bytes);
    for connection in &state.connections {
        if !connection.session.is_sound() {
            return Err(wrong("invalid session of a guest's connection"));
        }
        let mut take = |length: u64| {
            let split = bytes.split_at_checked(length as usize);
            let (taken, rest) = split.ok_or_else(|| wrong("data of a connection is missing"))?;
            bytes = rest;
            Ok::<_, DatapathError>(taken.to_vec())
        };
        connections.push(HandedConnection {
            socket: Arc::new(next()?),
            session: connection.session.clone(),
            received: take(connection.received)?,
            unsent: take(connection.unsent)?,
        });
    }
    let mut places = Places::new();
    for (volume, extents) in &state.places {
        let length = usize::try_from(*extents).ok();
        let length = length.and_then(|e| e.checked_mul(PLACE_BYTES));
        let split = length.and_then(|length| bytes.split_at_checked(length));
        let missing = "the extent table of a volume is missing";
        let (of_volume, rest) = split.ok_or_else(|| wrong(missing))?;
        bytes = rest;
        let (each, _) = of_volume.as_chunks();
        places.insert(
            VolumeId(*volume),
            each.iter().map(|b| place_of(*b)).collect(),
        );
    }
    if !bytes.is_empty() {
        return Err(wrong("the state of the old server has surplus bytes"));
    }
    Ok(Offer {
        places,
        copies,
        devices,
        listening,
        connections,
        state,
    })
}

/// Opens the array in the state that the other process left, and changes nothing.
fn open(
    copies: Vec<(CopyId, PathBuf, Arc<File>)>,
    devices: Vec<HandedDevice>,
    state: &State,
    places: Places,
) -> Result<Keeper, DatapathError> {
    let found = copies.into_iter().map(|(copy, path, file)| FoundCopy {
        copy,
        array: Array::open_locked_file(file, &path.display().to_string()),
        place: Box::new(FilePlace(path)),
    });
    let known: Vec<(VolumeId, usize)> = places.iter().map(|(v, p)| (*v, p.len())).collect();
    let keeper = Keeper::open_handed(found.collect(), devices, places)?;
    if keeper.map.id().to_string() != state.array {
        return Err(DatapathError::Refused(
            "the map belongs to another array".into(),
        ));
    }
    let commits = keeper.map.state().commits;
    if commits != state.commits {
        return Err(DatapathError::Refused(format!(
            "the map has {commits} commits, the old server reports {}",
            state.commits
        )));
    }
    if let Some((volume, _)) = known.iter().find(|(v, n)| !keeper.fit(*v, *n)) {
        return Err(DatapathError::Refused(format!(
            "the size of volume {} differs from the map",
            volume.0
        )));
    }
    let in_use = |id: &DeviceId| keeper.records[id].kind != DeviceKind::Gone;
    if let Some((id, lost)) = keeper.lost.iter().find(|l| in_use(l.0)) {
        let name = &keeper.records[id].name;
        return Err(DatapathError::Refused(format!(
            "device {name}: {}",
            lost.why
        )));
    }
    match keeper.map.why_not_handed() {
        None => Ok(keeper),
        Some(why) => Err(DatapathError::Refused(why)),
    }
}
