//! The sockets that are listened on, which can be left alone for a while: who connects meanwhile waits in the kernel, and is let in by this
//! process afterwards, or by the one that takes over.
//!
//! ```text
//!   wait(): parked ◀── shut ──── polled, with the bell ──somebody is there──▶ accepted ─┐
//!              └────── open ──────▶       ▲                                             │
//!                                         └─────────────────────────────────────────────┘
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// Who is accepting a connection is done with that within this time.
const ACCEPTING_TIME: Duration = Duration::from_millis(100);

/// Pause before the next attempt after the system had no descriptors or no memory. Protects the processor from a thread that retries without a
/// pause.
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

/// A socket that is listened on.
#[derive(Debug, Clone)]
pub struct Listening {
    /// What it is for, and the address that was asked for: by that it is found again.
    pub name: String,
    /// It. Does not block.
    pub socket: Arc<OwnedFd>,
}

#[derive(Debug)]
pub struct Listeners {
    state: Mutex<State>,
    changed: Condvar,
    /// Can be read while the listeners are shut.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    /// Threads that accept connections.
    threads: usize,
    /// Those of them that wait until the listeners are open.
    parked: usize,
    listening: Vec<Listening>,
}

/// One thread that accepts connections at a socket.
#[derive(Debug)]
pub struct Listener {
    listeners: Arc<Listeners>,
    socket: Arc<OwnedFd>,
}

impl Listeners {
    /// Listeners that are open.
    ///
    /// # Errors
    /// When there are no descriptors.
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

    /// A socket is listened on from here on, by whoever has what this gives.
    ///
    /// # Errors
    /// When it cannot be told not to block.
    pub fn keep(self: &Arc<Self>, listening: Listening) -> io::Result<Listener> {
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

    /// The sockets that are listened on.
    pub fn listening(&self) -> Vec<Listening> {
        self.state().listening.clone()
    }

    /// Accepts nothing any more; whether every thread that accepts has heard of it.
    pub fn shut(&self) -> bool {
        let mut state = self.state();
        state.shut = true;
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes()); // it can be read from here on, whatever it says
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
    /// Waits until somebody connects, and may be accepted.
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
    fn accept_pauses_for_want_of_descriptors_and_memory_only() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            assert!(is_exhaustion(&errno.into()), "{errno}");
        }
        for errno in [Errno::CONNABORTED, Errno::NOTCONN, Errno::INTR, Errno::PERM] {
            assert!(!is_exhaustion(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn connection_that_was_reset_before_it_was_accepted_causes_no_pause() {
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
