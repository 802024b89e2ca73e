//! Listening sockets that can pause. Clients that connect during a pause wait in the kernel. This process accepts
//! them afterwards, or the process that takes over does.
//!
//! ```text
//!   wait(): parked ◀── shut ──── polled, with the bell ────client connects──▶ accepted ─┐
//!              └────── open ──────▶       ▲                                             │
//!                                         └─────────────────────────────────────────────┘
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// Time limit for a thread to finish an accept.
const ACCEPTING_TIME: Duration = Duration::from_millis(100);

/// Pause before the next attempt after the system had no descriptors or no memory. Protects the processor from a
/// thread that retries without a pause.
const AGAIN: Duration = Duration::from_millis(10);

/// Pauses after an accept that failed for lack of descriptors or memory. Any other error concerns one connection, and the next one can be
/// accepted at once.
pub fn pause_after_accept(why: &io::Error) {
    if is_exhaustion(why) {
        std::thread::sleep(AGAIN);
    }
}

fn is_exhaustion(why: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(why).is_some_and(|errno| exhausted.contains(&errno))
}

/// Pauses after a poll that failed, unless a signal interrupted it.
pub fn pause_after_poll(why: Errno) {
    if why != Errno::INTR {
        std::thread::sleep(AGAIN);
    }
}

/// Listening socket.
#[derive(Debug, Clone)]
pub struct ListeningSocket {
    /// Purpose and requested address, which identify the socket in a hand-over.
    pub name: String,
    /// Socket in non-blocking mode.
    pub socket: Arc<OwnedFd>,
}

#[derive(Debug)]
pub struct Listeners {
    state: Mutex<State>,
    changed: Condvar,
    /// Eventfd that is readable while the listeners are shut.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    /// Threads that accept connections.
    threads: usize,
    /// Threads among them that wait until the listeners are open.
    parked: usize,
    listening: Vec<ListeningSocket>,
}

/// Right of one thread to accept connections at a socket.
#[derive(Debug)]
pub struct Listener {
    listeners: Arc<Listeners>,
    socket: Arc<OwnedFd>,
}

impl Listeners {
    /// Creates open listeners.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            bell: eventfd(0, flags)?,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a listening socket. The caller accepts its connections by the result.
    ///
    /// # Errors
    /// The socket cannot be set to non-blocking mode.
    pub fn keep(self: &Arc<Self>, listening: ListeningSocket) -> io::Result<Listener> {
        rustix::io::ioctl_fionbio(&*listening.socket, true)?;
        let socket = listening.socket.clone();
        let mut state = self.state();
        state.threads += 1;
        state.listening.push(listening);
        Ok(Listener {
            listeners: self.clone(),
            socket,
        })
    }

    /// Returns the listening sockets.
    pub fn listening(&self) -> Vec<ListeningSocket> {
        self.state().listening.clone()
    }

    /// Stops accepting connections. Returns true if all accepting threads have stopped in time.
    pub fn shut(&self) -> bool {
        let mut state = self.state();
        state.shut = true;
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes()); // readable from here on, whatever its value
        let until = Instant::now() + ACCEPTING_TIME;
        while state.parked < state.threads {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Accepts connections again.
    pub fn open(&self) {
        let mut state = self.state();
        state.shut = false;
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.changed.notify_all();
    }

    fn parked(&self) -> bool {
        let mut state = self.state();
        if !state.shut {
            return false;
        }
        state.parked += 1;
        self.changed.notify_all();
        while state.shut {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.parked -= 1;
        true
    }
}

impl Listener {
    /// Waits until a client connects and may be accepted.
    pub fn wait(&self) {
        loop {
            if self.listeners.parked() {
                continue;
            }
            let bell = &self.listeners.bell;
            let mut both = [
                PollFd::new(&*self.socket, PollFlags::IN),
                PollFd::new(bell, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Ok(_) if both[1].revents().is_empty() => return,
                Ok(_) => {}
                Err(why) => pause_after_poll(why),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = self.listeners.state();
        state.threads -= 1;
        state
            .listening
            .retain(|l| !Arc::ptr_eq(&l.socket, &self.socket));
        self.listeners.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn accept_pauses_only_for_lack_of_descriptors_or_memory() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(is_exhaustion(&errno.into()), "{errno}");
        }
        for errno in [Errno::CONNABORTED, Errno::NOTCONN, Errno::INTR, Errno::PERM] {
            assert!(!is_exhaustion(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn connection_reset_before_accept_causes_no_pause() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let linger = rustix::net::sockopt::set_socket_linger;
        linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        let (socket, _) = listener.accept().unwrap();
        let why = socket.peer_addr().unwrap_err();
        assert!(!is_exhaustion(&why), "{why}");
    }
}
