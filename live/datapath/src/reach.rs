//! Access to an array: through the server that has it open, or through the map itself. Creation of an array with its
//! first device.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use array::{
    Array, ArrayError, ArrayId, Change, CopyId, CopyPlace, FilePlace, MAP_FILE, Members, Salvage,
    SecondCopy, map_reads,
};
use thiserror::Error;
use units::Bytes;

use crate::control::{self, CONTROL_SOCKET};
use crate::control_server::{ControlAnswer, ControlRequest, ControlServer, NewDevice};
use crate::error::{DatapathError, Result};
use crate::keeper::{AcceptLoss, FoundCopy, HINT_FILE, Keeper, KeeperError, retried};

/// Longest wait for an array in use. Another command, or a starting server, may have it open for a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two attempts of a command.
const COMMAND_PAUSE: Duration = Duration::from_millis(50);

/// Pause between two attempts of a server. It is shorter than the gap between any two commands, so repeated commands
/// cannot keep a server from starting.
const SERVER_PAUSE: Duration = Duration::from_millis(1);

/// Returns true if a directory has an array: a map, or the file that names the place of its second copy.
/// Opens nothing.
pub fn has_map(dir: &Path) -> bool {
    dir.join(MAP_FILE).exists() || dir.join(HINT_FILE).exists()
}

/// Reason why an array cannot be reached.
#[derive(Debug, Error)]
pub enum ReachError {
    /// The directory has no array.
    #[error(
        "{}: the directory has no array: `terrace tier add NAME --dir DIR --size SIZE` creates one, --array selects another directory; if its disk was lost, `terrace array restore` restores its map", dir.display()
    )]
    Missing { dir: PathBuf },
    /// Another process uses the array and is not a server.
    #[error(
        "{}: the array is in use by another process that does not answer on its control socket: wait for it to end", dir.display()
    )]
    InUse { dir: PathBuf },
    /// A server has the array open, but the operation requires that it is not served.
    #[error("{}: the array is served by another process: stop that one first", dir.display())]
    Served { dir: PathBuf },
    /// The map or the devices cannot be used.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// Salvage was requested, but a copy of the map is intact.
    #[error("{}: the map is intact: run the command without --salvage", dir.display())]
    Intact { dir: PathBuf },
    /// No copy of the map is intact.
    #[error("{why}{}", recoverable(intact, lost))]
    Damaged {
        why: Box<KeeperError>,
        /// Names of the volumes whose records are intact.
        intact: Vec<String>,
        lost: Vec<String>,
    },
}

/// Lists the recoverable volumes and the commands that save them.
fn recoverable(intact: &[String], lost: &[String]) -> String {
    let commands: Vec<String> = intact
        .iter()
        .map(|name| format!("\n  terrace volume save {name} {name}.raw --salvage"))
        .collect();
    let lost = match lost {
        [] => String::new(),
        lost => format!("; not recoverable: {}", lost.join(", ")),
    };
    match intact {
        [] => format!(". No volume can be recovered from it{lost}"),
        _ => format!(
            ". Recoverable volumes: {}{lost}. Save each volume:{}\nor serve them all read-only: `terrace volume export --salvage`",
            intact.join(", "),
            commands.concat()
        ),
    }
}

/// Reachable array.
pub enum Reach {
    /// Served by another process; path of its control socket.
    Served(PathBuf),
    /// Opened by this process.
    Here(Box<ControlServer>),
}

impl Reach {
    /// Finds an array. If it is not served and no copy of its map is trustworthy, it can be queried but not changed.
    ///
    /// # Errors
    /// [`ReachError`].
    pub fn find(dir: &Path) -> Result<Self, ReachError> {
        Self::find_accepting(dir, &AcceptLoss::default())
    }

    /// Like [`Reach::find`], for an operator who accepts the losses that changes of an unserved array may cause. A
    /// server got its own acceptance at its start.
    ///
    /// # Errors
    /// Those of [`Reach::find`].
    pub fn find_accepting(dir: &Path, accept: &AcceptLoss) -> Result<Self, ReachError> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(socket) = served(dir) {
                return Ok(Reach::Served(socket));
            }
            match look(dir, accept) {
                Err(ReachError::InUse { .. }) if Instant::now() < until => sleep(COMMAND_PAUSE),
                keeper => return Ok(Reach::Here(Box::new(ControlServer::offline(keeper?)))),
            }
        }
    }

    /// Returns the reason why the array can be queried but not changed.
    pub fn not_believed(&self) -> Option<String> {
        match self {
            Reach::Served(_) => None,
            Reach::Here(control_server) => control_server.not_believed(),
        }
    }

    /// Sends a request to the array.
    ///
    /// # Errors
    /// [`DatapathError`].
    pub fn ask(&self, ask: ControlRequest) -> Result<ControlAnswer> {
        match self {
            Reach::Served(socket) => control::ask(socket, &ask).map_err(DatapathError::failed),
            Reach::Here(control_server) => control_server.ask(ask),
        }
    }
}

/// Opens an array for exclusive use; fails if a server has it.
///
/// # Errors
/// [`ReachError`].
pub fn open_to_serve(dir: &Path, accept: &AcceptLoss) -> Result<Keeper, ReachError> {
    alone(dir, || open(dir, accept))
}

/// Like [`open_to_serve`], but also opens an array without a trustworthy copy of the map. It cannot be changed
/// ([`Keeper::not_believed`]).
///
/// # Errors
/// Those of [`open_to_serve`].
pub fn open_to_look(dir: &Path) -> Result<Keeper, ReachError> {
    alone(dir, || look(dir, &AcceptLoss::default()))
}

fn alone(dir: &Path, open: impl Fn() -> Result<Keeper, ReachError>) -> Result<Keeper, ReachError> {
    let until = Instant::now() + PATIENCE;
    loop {
        if served(dir).is_some() {
            return Err(ReachError::Served { dir: dir.into() });
        }
        match open() {
            Err(ReachError::InUse { .. }) if Instant::now() < until => sleep(SERVER_PAUSE),
            keeper => return keeper,
        }
    }
}

/// Extent size of a new array if none is given.
const EXTENT: Bytes = Bytes::mib(1);

/// Adds a device to an array. Creates the array first if it does not exist.
///
/// # Errors
/// [`DatapathError`]. An array that was created for a device that cannot be added is removed again.
pub fn add_device(dir: &Path, extent: Option<Bytes>, new: NewDevice) -> Result<ControlAnswer> {
    match Reach::find(dir) {
        Ok(_) if extent.is_some() => Err(DatapathError::Invalid(format!(
            "{}: the extent size of an array is set when it is created: omit --extent",
            dir.display()
        ))),
        Ok(reach) => reach.ask(ControlRequest::AddDevice(new)),
        Err(ReachError::Missing { .. }) => {
            let there = fs::exists(dir).unwrap_or(true);
            let id = random_id().map_err(DatapathError::system("read", &"/dev/urandom"))?;
            let _ = fs::remove_file(dir.join(HINT_FILE)); // of an earlier array
            Array::create(dir, id, extent.unwrap_or(EXTENT))?;
            let keeper = open(dir, &AcceptLoss::default());
            let keeper = keeper.map_err(DatapathError::failed)?;
            let answer = ControlServer::offline(keeper).ask(ControlRequest::AddDevice(new));
            if answer.is_err() {
                let _ = fs::remove_file(dir.join(MAP_FILE));
                let _ = fs::remove_file(dir.join(HINT_FILE));
                if !there {
                    let _ = fs::remove_dir(dir);
                }
            }
            answer
        }
        Err(other) => Err(DatapathError::failed(other)),
    }
}

fn random_id() -> std::io::Result<ArrayId> {
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(ArrayId(id))
}

/// Returns the control socket of an array if a process listens on it.
fn served(dir: &Path) -> Option<PathBuf> {
    let socket = dir.join(CONTROL_SOCKET);
    let connected = std::os::unix::net::UnixStream::connect(&socket);
    connected.is_ok().then_some(socket)
}

/// Opens the intact volumes of an array whose copies of the map are all damaged.
///
/// # Errors
/// [`ReachError`], also if a copy is intact.
pub fn open_salvaged(dir: &Path) -> Result<Keeper, ReachError> {
    alone(dir, || {
        let found = copies_of(dir)?;
        let damaged = paths_of_damaged(&found);
        drop(found);
        let Some(salvage) = damaged.map(|paths| Salvage::find(&paths)) else {
            // A normal start reports the problem, if any.
            return Err(match open(dir, &AcceptLoss::default()) {
                Ok(_) => ReachError::Intact { dir: dir.into() },
                Err(error) => error,
            });
        };
        let Salvage { copy, array, .. } = salvage.map_err(KeeperError::from)?;
        let found = FoundCopy {
            copy,
            place: Box::new(FilePlace(dir.join(MAP_FILE))),
            array: Ok(array),
        };
        opened(dir, Keeper::open_salvaged(dir, found))
    })
}

/// Returns the files of all copies if at least one copy is damaged.
fn paths_of_damaged(found: &[FoundCopy]) -> Option<Vec<(CopyId, PathBuf)>> {
    let damaged = |f: &FoundCopy| {
        matches!(
            f.array,
            Err(ArrayError::Damaged { .. } | ArrayError::Store { .. } | ArrayError::Corrupt { .. })
        )
    };
    let all = found.iter().map(|f| (f.copy, f.place.name().into()));
    found.iter().any(damaged).then(|| all.collect())
}

fn open(dir: &Path, accept: &AcceptLoss) -> Result<Keeper, ReachError> {
    open_or_say(dir, |found| Keeper::open(dir, found, accept))
}

fn look(dir: &Path, accept: &AcceptLoss) -> Result<Keeper, ReachError> {
    open_or_say(dir, |found| Keeper::look(dir, found, accept))
}

/// Opens an array from its copies. If a damaged copy prevents that, the error names the intact
/// volumes.
fn open_or_say(
    dir: &Path,
    open: impl FnOnce(Vec<FoundCopy>) -> Result<Keeper, KeeperError>,
) -> Result<Keeper, ReachError> {
    let found = copies_of(dir)?;
    let damaged = paths_of_damaged(&found);
    opened(dir, open(found)).map_err(|error| match (error, damaged) {
        (
            ReachError::Keeper(
                why @ (KeeperError::NoCopy { .. } | KeeperError::NotBelieved { .. }),
            ),
            Some(paths),
        ) => {
            let (intact, lost) = match Salvage::find(&paths) {
                Ok(found) => (found.intact, found.lost),
                Err(_) => (vec![], vec![]),
            };
            let why = Box::new(why);
            ReachError::Damaged { why, intact, lost }
        }
        (error, _) => error,
    })
}

fn opened(dir: &Path, keeper: Result<Keeper, KeeperError>) -> Result<Keeper, ReachError> {
    let mut keeper = keeper.map_err(|error| match error {
        KeeperError::Array(ArrayError::InUse { .. }) => ReachError::InUse { dir: dir.into() },
        other => ReachError::Keeper(other),
    })?;
    keeper.dir = Some(dir.into());
    Ok(keeper)
}

/// Restores the map of an array into a directory that has none: from its second copy, at any path, or from a backup.
///
/// # Errors
/// [`DatapathError`]. A directory with a map is left unchanged.
pub fn restore(dir: &Path, from: &Path, accept: &AcceptLoss) -> Result<String> {
    if served(dir).is_some() {
        return Err(DatapathError::failed(ReachError::Served {
            dir: dir.into(),
        }));
    }
    let first = dir.join(MAP_FILE);
    if fs::exists(&first).unwrap_or(true) {
        return Err(DatapathError::Refused(format!(
            "{}: a map already exists: move it away first",
            first.display()
        )));
    }
    let found = from.canonicalize();
    let from = found.map_err(|e| DatapathError::failed(e).about(from.display()))?;
    let source = Array::look_at(&from)?;
    let state = source.state()?;
    let there = fs::exists(dir).unwrap_or(true);
    fs::create_dir_all(dir).map_err(DatapathError::system("create", &dir.display()))?;
    let backup = state.confirmed.members == Members::NONE;
    let hint = dir.join(HINT_FILE);
    if backup {
        let place = FilePlace(first.clone());
        let image = source.image();
        image
            .and_then(|i| i.make_in(&place))
            .and_then(|copy| (copy.put)())?;
    } else {
        let line = format!("{}\n", from.display());
        fs::write(&hint, line).map_err(DatapathError::system("write", &hint.display()))?;
    }
    drop(source);
    let opened = open(dir, accept).and_then(|mut keeper| {
        // The renewed stamps mark this map as the valid one on all devices.
        keeper.renew().map_err(KeeperError::from)?;
        Ok(keeper)
    });
    let undo = || {
        let _ = fs::remove_file(if backup { &first } else { &hint });
        if !there {
            let _ = fs::remove_dir(dir);
        }
    };
    let mut keeper = opened.map_err(|e| {
        undo();
        DatapathError::failed(e)
    })?;
    let from = SecondCopy::At(from.display().to_string());
    if !backup && keeper.map.state().second != from {
        // The copy was moved after the map last recorded its path.
        keeper.commit(&[Change::SetSecondCopy(from)])?;
    }
    keeper.finish_copies()?;
    keeper.note_changes();
    keeper
        .write_hint()
        .map_err(DatapathError::system("write", &HINT_FILE))?;
    let state = keeper.map.state();
    Ok(format!(
        "restored the map: {} commits, generation {}",
        state.commits, state.confirmed.stamp.generation
    ))
}

/// Time limit to open a copy, which reads the whole file. A slower copy counts as missing.
const OPEN_TIME: Duration = Duration::from_secs(30);

/// Opens a copy for reading, unless its disk hangs. A slow disk has time: only a pause in reading
/// counts.
fn open_copy(place: &FilePlace) -> Result<Array, ArrayError> {
    let away = |why: &str| ArrayError::Away {
        why: format!("{}: {why}", place.name()),
    };
    let (sender, opened) = channel();
    let to_open = place.clone();
    let spawned = std::thread::Builder::new()
        .name("terrace-map-open".into())
        .spawn(move || {
            // A transient error does not make the copy a lost one.
            let looked = retried(|| to_open.look(), |error| !error.is_transient());
            drop(sender.send(looked));
        });
    spawned.map_err(|_| away("cannot start a thread"))?;
    let (mut reads, mut last) = (map_reads(), Instant::now());
    while last.elapsed() < OPEN_TIME {
        match opened.recv_timeout(COMMAND_PAUSE) {
            Ok(array) => return array,
            Err(RecvTimeoutError::Disconnected) => return Err(away("cannot open the file")),
            Err(RecvTimeoutError::Timeout) if map_reads() == reads => {}
            Err(RecvTimeoutError::Timeout) => (reads, last) = (map_reads(), Instant::now()),
        }
    }
    Err(away("the disk does not respond"))
}

/// Refuses a map of another array than the one in the directory.
fn of_array(
    array: Result<Array, ArrayError>,
    expected: Option<&str>,
    place: &FilePlace,
) -> Result<Array, ArrayError> {
    let array = array?;
    let id = array.id().to_string();
    match expected {
        Some(expected) if expected != id => Err(ArrayError::NotAnArray {
            place: place.name(),
            why: format!("the map belongs to array {id}, the directory to array {expected}"),
        }),
        _ => Ok(array),
    }
}

/// Returns the copies of the array's map that can be found.
fn copies_of(dir: &Path) -> Result<Vec<FoundCopy>, ReachError> {
    let first = FilePlace(dir.join(MAP_FILE));
    let hint = std::fs::read_to_string(dir.join(HINT_FILE)).unwrap_or_default();
    let mut hint = hint.lines();
    let path = hint.next().filter(|path| !path.is_empty());
    let id = hint.next();
    let array = of_array(open_copy(&first), id, &first);
    let second = match array.as_ref().map(|a| a.state()) {
        Ok(Ok(state)) => match state.second {
            SecondCopy::At(path) => Some(path),
            SecondCopy::Auto | SecondCopy::Off => None,
        },
        _ => path.map(str::to_owned),
    };
    if let (Err(ArrayError::Missing { .. }), None) = (&array, &second) {
        return Err(ReachError::Missing { dir: dir.into() });
    }
    let own = array.as_ref().map(|a| a.id().to_string()).ok();
    let expected = own.as_deref().or(id);
    let second = second.map(|path| {
        let place = FilePlace(path.into());
        FoundCopy {
            copy: CopyId::Second,
            array: of_array(open_copy(&place), expected, &place),
            place: Box::new(place),
        }
    });
    let first = FoundCopy {
        copy: CopyId::First,
        place: Box::new(first),
        array,
    };
    Ok([first].into_iter().chain(second).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    use super::*;

    // A start that waits for the lock makes many attempts between two attempts of a waiting command.
    const _: () = assert!(SERVER_PAUSE.as_millis() * 10 <= COMMAND_PAUSE.as_millis());

    #[test]
    fn server_starts_while_commands_open_the_array() {
        let dir = tempfile::tempdir().unwrap();
        let (serving, _) = crate::serving::one_volume(dir.path());
        let _ = serving.stop().unwrap();
        let (array, accept) = (dir.path().join("array"), AcceptLoss::default());
        let (over, commands) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    if let Ok(held) = look(&array, &accept) {
                        sleep(Duration::from_millis(100));
                        drop(held);
                        commands.fetch_add(1, Ordering::SeqCst);
                    }
                    sleep(Duration::from_millis(5));
                }
            });
            let opened: Vec<_> = (0..5)
                .map(|start| {
                    while commands.load(Ordering::SeqCst) <= start {
                        sleep(Duration::from_millis(1));
                    }
                    open_to_serve(&array, &accept).map(drop)
                })
                .collect();
            over.store(true, Ordering::SeqCst);
            assert!(opened.iter().all(Result::is_ok), "{opened:?}");
        });
    }
}
