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

/// Who is accepting a connection is done with that within this time.
const ACCEPTING_TIME: Duration = Duration::from_millis(100);

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
            if poll(&mut both, None).is_ok_and(|_| both[1].revents().is_empty()) {
                return;
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
