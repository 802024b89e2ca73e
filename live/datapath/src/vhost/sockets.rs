//! One socket per volume in a directory, and one thread that waits for connections to all of them.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tracing::warn;

use super::session::{ServedVolume, converse};
use crate::listen::{ListenError, clear_stale};
use crate::registry::Home;
use crate::server::seldom;
use crate::takeover::{pause_after_accept, pause_after_poll};
use crate::worker::Inbox;

/// Sockets of a server.
#[derive(Debug)]
pub struct Sockets {
    dir: PathBuf,
    paths: Mutex<BTreeSet<PathBuf>>,
    changes: Sender<Change>,
    event: Arc<OwnedFd>,
}

#[derive(Debug)]
enum Change {
    Add(VolumeSocket),
    Resize(String, u64),
    Remove(String),
}

/// Volume with its listening socket.
#[derive(Debug)]
struct VolumeSocket {
    volume: String,
    bytes: u64,
    logical_block: u32,
    home: Home,
    listener: UnixListener,
    /// Number of connections to the volume.
    open: Arc<AtomicUsize>,
}

/// Time limit for the first message of a connection.
const FIRST_WORDS: Duration = Duration::from_secs(10);

/// Limit of connections to one volume. A guest needs one. The others allow for abandoned connections that have not
/// ended.
const OF_VOLUME_MAX: usize = 8;

/// Descriptors that a connection may have: kicks, interrupts and errors of its queues, its memory, the inflight
/// buffer.
pub const DESCRIPTORS_EACH: usize = 3 * vring::QUEUES_MAX as usize + 16;

/// Counters and limits of connections.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Number of connections of all kinds; `most` is its limit.
    pub open: Arc<AtomicUsize>,
    pub most: usize,
    /// Limit of vhost-user connections, in addition to the first one of each volume.
    pub guests_most: usize,
}

impl Sockets {
    /// Starts to listen in a directory, which is created if needed. Dropping the result removes the sockets.
    ///
    /// # Errors
    /// The directory or the thread cannot be created.
    pub fn start(
        dir: &Path,
        workers: Vec<Inbox>,
        allowed: ConnectionLimits,
    ) -> Result<Self, ListenError> {
        let system = |source| ListenError::System {
            address: dir.display().to_string(),
            source,
        };
        std::fs::create_dir_all(dir).map_err(system)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = Arc::new(eventfd(0, flags).map_err(|e| system(e.into()))?);
        let (changes, received) = channel();
        let waiter = Waiter {
            changes: received,
            event: event.clone(),
            listening: vec![],
            workers,
            allowed,
            guests: Arc::default(),
            new: vec![],
        };
        std::thread::Builder::new()
            .name("terrace-vhost".into())
            .spawn(move || waiter.run())
            .map_err(system)?;
        Ok(Self {
            dir: dir.into(),
            paths: Mutex::default(),
            changes,
            event,
        })
    }

    /// Returns the directory of the sockets.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the socket of a volume, if it has one.
    pub fn open(&self, volume: &str) -> Option<PathBuf> {
        let path = self.path(volume).ok()?;
        self.paths().contains(&path).then_some(path)
    }

    fn path(&self, volume: &str) -> Result<PathBuf, ListenError> {
        match volume.contains('/') {
            true => Err(ListenError::NoFileName(volume.into())),
            false => Ok(self.dir.join(format!("{volume}.sock"))),
        }
    }

    /// Creates the socket of a volume.
    ///
    /// # Errors
    /// The socket cannot be created, or another process listens on it.
    pub fn add(
        &self,
        volume: &str,
        bytes: u64,
        logical_block: u32,
        home: Home,
    ) -> Result<(), ListenError> {
        let path = self.path(volume)?;
        crate::control::fits(&path)?;
        clear_stale(&path)?;
        let system = |source| ListenError::System {
            address: path.display().to_string(),
            source,
        };
        let listener = UnixListener::bind(&path).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        self.paths().insert(path);
        self.tell(Change::Add(VolumeSocket {
            volume: volume.into(),
            bytes,
            logical_block,
            home,
            listener,
            open: Arc::default(),
        }));
        Ok(())
    }

    /// Changes the size of a volume for later connections.
    pub fn resize(&self, volume: &str, bytes: u64) {
        self.tell(Change::Resize(volume.into(), bytes));
    }

    /// Removes the socket of a volume.
    pub fn remove(&self, volume: &str) {
        if let Ok(path) = self.path(volume)
            && self.paths().remove(&path)
        {
            let _ = std::fs::remove_file(path);
        }
        self.tell(Change::Remove(volume.into()));
    }

    fn paths(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: Change) {
        let _ = self.changes.send(change); // the receiver ends only with this
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&*self.event, &1u64.to_ne_bytes());
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for path in std::mem::take(&mut *self.paths()) {
            let _ = std::fs::remove_file(path);
        }
        // The thread ends when its channel has no sender.
        self.changes = channel().0;
        self.wake();
    }
}

struct Waiter {
    changes: Receiver<Change>,
    event: Arc<OwnedFd>,
    listening: Vec<VolumeSocket>,
    workers: Vec<Inbox>,
    allowed: ConnectionLimits,
    /// Number of vhost-user connections.
    guests: Arc<AtomicUsize>,
    /// Connections that have not sent a valid message yet.
    new: Vec<NewConnection>,
}

impl Waiter {
    fn run(mut self) {
        let (mut not_accepted, mut too_many) = (None, None);
        loop {
            let mut fds = vec![PollFd::new(&*self.event, PollFlags::IN)];
            let all = self.listening.iter().map(|l| l.listener.as_fd());
            fds.extend(all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let soon = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let time = (!self.new.is_empty()).then_some(&soon);
            if let Err(why) = poll(&mut fds, time) {
                pause_after_poll(why);
                continue;
            }
            let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
            self.end_silent();
            for index in (0..self.listening.len()).filter(|i| ready[i + 1]) {
                match self.listening[index].listener.accept() {
                    Ok((socket, _)) => {
                        if let Err(ConnectionLimit { most, of }) = self.welcome(index, socket)
                            && seldom(&mut too_many)
                        {
                            let volume = &self.listening[index].volume;
                            warn!(volume, most, of, "refused a connection: too many are open");
                        }
                    }
                    Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(why) => {
                        if seldom(&mut not_accepted) {
                            warn!(%why, "cannot accept a connection");
                        }
                        pause_after_accept(&why);
                    }
                }
            }
            if ready[0] && !self.changed() {
                return;
            }
        }
    }

    /// Receives changes. Returns false if the thread must end.
    fn changed(&mut self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.event, &mut count);
        loop {
            match self.changes.try_recv() {
                Ok(Change::Add(listening)) => self.listening.push(listening),
                Ok(Change::Resize(volume, bytes)) => {
                    let of = self.listening.iter_mut().filter(|l| l.volume == volume);
                    of.for_each(|l| l.bytes = bytes);
                }
                Ok(Change::Remove(volume)) => self.listening.retain(|l| l.volume != volume),
                Err(why) => return why == std::sync::mpsc::TryRecvError::Empty,
            }
        }
    }

    /// Starts the thread of a connection, or returns the limit that prevents it. The first connection of a volume
    /// ignores the limit for vhost-user: connections to other volumes cannot keep its guest out.
    fn welcome(&mut self, index: usize, socket: UnixStream) -> Result<(), ConnectionLimit> {
        let listening = &self.listening[index];
        let first = listening.open.load(Ordering::Acquire) == 0;
        let guests_most = if first {
            usize::MAX
        } else {
            self.allowed.guests_most
        };
        let counts = [
            (&listening.open, OF_VOLUME_MAX, "to this volume"),
            (&self.guests, guests_most, "by vhost-user"),
            (&self.allowed.open, self.allowed.most, "of all kinds"),
        ];
        // Dropping `counted` returns the counts that were taken.
        let mut counted = vec![];
        for (open, most, of) in counts {
            let before = open.fetch_add(1, Ordering::AcqRel);
            counted.push(CountGuard(open.clone()));
            if before >= most {
                return Err(ConnectionLimit { most, of });
            }
        }
        let speaks = Arc::new(AtomicBool::new(false));
        let served = ServedVolume {
            name: listening.volume.clone(),
            bytes: listening.bytes,
            logical_block: listening.logical_block,
            home: listening.home,
            worker: self.workers[listening.home.worker].clone(),
            counted,
            speaks: speaks.clone(),
        };
        if let Ok(socket) = socket.try_clone() {
            let until = Instant::now() + FIRST_WORDS;
            self.new.push(NewConnection {
                socket,
                until,
                speaks,
            });
        }
        let spawned = std::thread::Builder::new()
            .name("terrace-guest".into())
            .spawn(move || {
                let _ = socket.set_nonblocking(false);
                converse(socket, served);
            });
        if let Err(why) = spawned {
            warn!(%why, "refused a connection: cannot start a thread");
        }
        Ok(())
    }

    /// Ends connections without a valid message in time.
    fn end_silent(&mut self) {
        let now = Instant::now();
        self.new.retain(|new| {
            let silent = !new.is_over();
            if silent && now >= new.until {
                let _ = new.socket.shutdown(Shutdown::Both);
            }
            silent && now < new.until
        });
    }
}

/// Connection without a valid message yet.
struct NewConnection {
    socket: UnixStream,
    until: Instant,
    /// True once the connection has sent a valid message. Shared with the thread of the connection.
    speaks: Arc<AtomicBool>,
}

impl NewConnection {
    /// Returns true if the connection speaks the protocol or has ended. An entry for an ended connection would keep a descriptor that no limit counts.
    fn is_over(&self) -> bool {
        self.speaks.load(Ordering::Acquire) || Arc::strong_count(&self.speaks) == 1
    }
}

/// Limit of connections that was reached, and their kind.
struct ConnectionLimit {
    most: usize,
    of: &'static str,
}

/// Count of a connection, until it is dropped.
#[derive(Debug)]
pub struct CountGuard(Arc<AtomicUsize>);

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connection_ends_with_its_first_message_or_its_thread() {
        let new = || {
            let speaks: Arc<AtomicBool> = Arc::default();
            let new = NewConnection {
                socket: UnixStream::pair().unwrap().0,
                until: Instant::now(),
                speaks: speaks.clone(),
            };
            (new, speaks)
        };
        let (speaking, thread) = new();
        assert!(!speaking.is_over());
        thread.store(true, Ordering::Release);
        assert!(speaking.is_over());
        let (ended, thread) = new();
        assert!(!ended.is_over());
        drop(thread);
        assert!(ended.is_over());
    }
}
