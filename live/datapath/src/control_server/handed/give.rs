//! Messages and files for the other process, and the detection of its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tracing::{info, warn};
use units::VolumeId;

use crate::error::{DatapathError, Result};
use crate::keeper::Keeper;
use crate::keeper::handed::files_of;
use crate::takeover::ListeningSocket;
use crate::takeover::state::{ConnectionOf, CopyOf, DeviceOf, State, TierOf, VolumeOf};
use crate::takeover::wire::{Tag, WORDS_MAX, give_files, hear, say};
use crate::text::explain;
use crate::worker::{HandedConnection, HandedWork, PLACE_BYTES};

use super::words;

/// Time limit for the other process to accept the files: guests wait.
pub(super) const GIVE: Duration = Duration::from_secs(1);

/// Time limit for the other process to take the array; afterwards it is killed: guests wait.
const TAKE: Duration = Duration::from_secs(10);

/// Time for the other process to end by itself after it has reported its failure.
const ITSELF: Duration = Duration::from_millis(300);

/// State that does not come from the keeper.
pub(super) struct Parts {
    pub listening: Vec<ListeningSocket>,
    pub work: HandedWork,
    pub volumes: Vec<VolumeOf>,
    pub tiers: Vec<TierOf>,
    pub lease_until_ns: Option<u64>,
    pub left: usize,
    /// Time since which guests wait.
    pub since: Instant,
    /// Time until no request was in flight and all writes were durable.
    pub drained_ms: u64,
}

/// Result of a take-over.
pub(super) enum TakeOverResult {
    /// This process has the array as before.
    NotTaken(DatapathError),
    /// The other process has the array.
    Taken,
    /// This process has lost the array, or that is unknown.
    Lost(String),
}

pub(super) fn give(
    keeper: &mut Keeper,
    socket: &mut UnixStream,
    pid: Pid,
    parts: &Parts,
) -> TakeOverResult {
    let copies = match offer(keeper, socket, parts) {
        Ok(copies) => copies,
        Err(why) => return TakeOverResult::NotTaken(why),
    };
    let closed_ms = parts.since.elapsed().as_millis() as u64;
    let why = match say(socket, Tag::Go, &[], GIVE) {
        // The message may have arrived in spite of the error.
        Err(why) => why.to_string(),
        Ok(()) => match hear(socket, TAKE, WORDS_MAX) {
            Ok((Tag::Taken, _)) => return taken(pid, parts, closed_ms),
            // The other process has closed the map.
            Ok((Tag::No, why)) => words(&why),
            Ok(_) => "the other process sent an invalid message".into(),
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
                "the other process has ended".into()
            }
            Err(why) => why.to_string(),
        },
    };
    // In any case: before anything else happens here, the other process has ended, or has reported that it has the array.
    if see_it_end(socket, pid) == ProcessEnd::HasTaken {
        return taken(pid, parts, closed_ms);
    }
    match keeper.map.reopen(&copies) {
        Ok(true) => TakeOverResult::NotTaken(DatapathError::Peer(why)),
        Ok(false) => TakeOverResult::Lost(format!(
            "the process that took over the array has ended ({why}): start the server again"
        )),
        Err(error) => TakeOverResult::Lost(format!(
            "the process that was to take over the array has ended ({why}), and this process cannot open the map again: {}",
            explain(&error)
        )),
    }
}

fn taken(pid: Pid, parts: &Parts, closed_ms: u64) -> TakeOverResult {
    let ms = parts.since.elapsed().as_millis() as u64;
    let (connections, left) = (parts.work.connections.len(), parts.left);
    let (pid, drained_ms) = (pid.as_raw_nonzero().get(), parts.drained_ms);
    info!(
        pid,
        connections, left, drained_ms, closed_ms, ms, "another process serves the array now"
    );
    TakeOverResult::Taken
}

/// Sends the state and all files, and closes the map.
fn offer(
    keeper: &mut Keeper,
    socket: &mut UnixStream,
    parts: &Parts,
) -> Result<Vec<array::HandedCopy>> {
    if let Some(why) = keeper.why_not_handed() {
        return Err(DatapathError::Refused(why));
    }
    let devices = keeper.handed_devices();
    let commits = keeper.map.state().commits;
    let copies = keeper.map.files()?;
    let of_copy = |c: &array::HandedCopy| CopyOf {
        second: c.copy == array::CopyId::Second,
        path: c.place.clone(),
    };
    let of_connection = |c: &HandedConnection| ConnectionOf {
        session: c.session.clone(),
        received: c.received.len() as u64,
        unsent: c.unsent.len() as u64,
    };
    let places = known_places(keeper, &parts.work.places);
    let of_places = |(id, places): &(VolumeId, &[u8])| (id.0, (places.len() / PLACE_BYTES) as u64);
    let of_device = |d: &crate::device::HandedDevice| DeviceOf {
        id: d.id.0,
        direct: d.direct.clone(),
    };
    let state = State {
        array: keeper.map.id().to_string(),
        commits,
        copies: copies.iter().map(of_copy).collect(),
        devices: devices.iter().map(of_device).collect(),
        listening: parts.listening.iter().map(|l| l.name.clone()).collect(),
        connections: parts.work.connections.iter().map(of_connection).collect(),
        places: places.iter().map(of_places).collect(),
        volumes: parts.volumes.clone(),
        tiers: parts.tiers.clone(),
        lease_until_ns: parts.lease_until_ns,
        left: parts.left,
    };
    let bytes = parts.work.connections.iter();
    let bytes = bytes.flat_map(|c| [&c.received, &c.unsent]);
    let bytes = bytes.map(Vec::as_slice);
    let bytes: Vec<&[u8]> = bytes.chain(places.iter().map(|p| p.1)).collect();
    let bytes = bytes.concat();
    let maps: Vec<_> = copies.iter().map(|c| c.file.clone()).collect();
    let files = files_of(&maps, &devices);
    let files = files.iter().map(|f| f.as_fd());
    let listening = parts.listening.iter().map(|l| l.socket.as_fd());
    let connections = parts.work.connections.iter().map(|c| c.socket.as_fd());
    let all: Vec<BorrowedFd<'_>> = files.chain(listening).chain(connections).collect();
    let gone =
        |why: io::Error| DatapathError::Peer(format!("the other process refused the array: {why}"));
    let state = serde_json::to_vec(&state).map_err(DatapathError::failed)?;
    say(socket, Tag::State, &state, GIVE).map_err(gone)?;
    say(socket, Tag::Bytes, &bytes, GIVE).map_err(gone)?;
    give_files(socket, &all).map_err(gone)?;
    match hear(socket, GIVE, WORDS_MAX) {
        Ok((Tag::Ready, _)) => {}
        Ok((Tag::No, why)) => return Err(DatapathError::Peer(words(&why))),
        Ok(_) => {
            return Err(DatapathError::Peer(
                "the other process sent an invalid message".into(),
            ));
        }
        Err(why) => return Err(gone(why)),
    }
    Ok(keeper.map.close_to_hand()?)
}

/// Returns the places of the extents that the map has. An engine can have more extents, without places, after a failed
/// growth of a volume.
fn known_places<'a>(
    keeper: &Keeper,
    places: &'a [(VolumeId, Vec<u8>)],
) -> Vec<(VolumeId, &'a [u8])> {
    let known = |id: &VolumeId| {
        let record = keeper.volumes.get(id);
        record.map_or(0, |v| v.extents(keeper.map.extent()) as usize)
    };
    let one = |(id, places): &'a (VolumeId, Vec<u8>)| {
        let length = places.len().min(known(id) * PLACE_BYTES);
        (*id, &places[..length])
    };
    places.iter().map(one).collect()
}

/// End of the other process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessEnd {
    Yes,
    /// It was late, but has taken the array.
    HasTaken,
}

/// Waits until the other process has ended, and kills it if it does not end by itself. All its files are closed when its
/// end of the socket is.
fn see_it_end(socket: &mut UnixStream, pid: Pid) -> ProcessEnd {
    let mut until = Instant::now() + ITSELF;
    let mut killed = false;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match hear(socket, left, WORDS_MAX) {
            Ok((Tag::Taken, _)) => return ProcessEnd::HasTaken,
            Ok(_) => {}
            Err(why) if why.kind() == io::ErrorKind::InvalidData && killed => {}
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::TimedOut | io::ErrorKind::InvalidData
                ) =>
            {
                // A process that cannot be killed is still waited for.
                let ended = kill_process(pid, Signal::KILL);
                warn!(
                    ?ended,
                    "the process that was to take over the array does not end"
                );
                (killed, until) = (true, Instant::now() + ITSELF);
            }
            Err(_) => return ProcessEnd::Yes,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command};

    use super::*;

    fn process() -> (Child, Pid) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    fn still_runs(mut child: Child) {
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn hanging_successor_process_is_killed() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let (mut child, pid) = process();
        let closes = std::thread::spawn(move || {
            let ended = child.wait().unwrap();
            drop(other);
            ended
        });
        assert_eq!(see_it_end(&mut one, pid), ProcessEnd::Yes);
        assert!(!closes.join().unwrap().success());
    }

    #[test]
    fn successor_with_the_array_is_detected_late() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        say(&mut other, Tag::No, b"late", ITSELF).unwrap();
        say(&mut other, Tag::Taken, &[], ITSELF).unwrap();
        drop(other);
        let (child, pid) = process();
        assert_eq!(see_it_end(&mut one, pid), ProcessEnd::HasTaken);
        still_runs(child);
    }

    #[test]
    fn successor_that_ends_without_taking_the_array_has_ended() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        say(&mut other, Tag::No, b"it cannot be opened", ITSELF).unwrap();
        other.write_all(&[Tag::Taken as u8]).unwrap();
        drop(other);
        let (child, pid) = process();
        assert_eq!(see_it_end(&mut one, pid), ProcessEnd::Yes);
        still_runs(child);
    }
}
