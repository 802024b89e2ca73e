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

/// Who is letting somebody in is done with that within this time.
const AT_THE_DOOR: Duration = Duration::from_millis(100);

/// A socket that is listened on.
#[derive(Debug, Clone)]
pub struct Listening {
    /// What it is for, and the address that was asked for: by that it is found again.
    pub name: String,
    /// It. Does not block.
    pub socket: Arc<OwnedFd>,
}

/// All of them.
#[derive(Debug)]
pub struct Doors {
    state: Mutex<State>,
    changed: Condvar,
    /// Can be read while the doors are shut.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    /// Threads that let people in.
    keepers: usize,
    /// Those of them that wait until the doors are open.
    parked: usize,
    listening: Vec<Listening>,
}

/// One who lets people in at a socket.
#[derive(Debug)]
pub struct DoorKeeper {
    doors: Arc<Doors>,
    socket: Arc<OwnedFd>,
}

impl Doors {
    /// Doors that are open.
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
    pub fn keep(self: &Arc<Self>, listening: Listening) -> io::Result<DoorKeeper> {
        rustix::io::ioctl_fionbio(&*listening.socket, true)?;
        let socket = listening.socket.clone();
        let mut state = self.state();
        state.keepers += 1;
        state.listening.push(listening);
        Ok(DoorKeeper {
            doors: self.clone(),
            socket,
        })
    }

    /// The sockets that are listened on.
    pub fn listening(&self) -> Vec<Listening> {
        self.state().listening.clone()
    }

    /// Lets nobody in any more; whether everybody who lets people in has heard of it.
    pub fn shut(&self) -> bool {
        let mut state = self.state();
        state.shut = true;
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes()); // it can be read from here on, whatever it says
        let until = Instant::now() + AT_THE_DOOR;
        while state.parked < state.keepers {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Lets people in again.
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

impl DoorKeeper {
    /// Waits until somebody is there, and may be let in.
    pub fn wait(&self) {
        loop {
            if self.doors.parked() {
                continue;
            }
            let bell = &self.doors.bell;
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

impl AsFd for DoorKeeper {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for DoorKeeper {
    fn drop(&mut self) {
        let mut state = self.doors.state();
        state.keepers -= 1;
        state
            .listening
            .retain(|l| !Arc::ptr_eq(&l.socket, &self.socket));
        self.doors.changed.notify_all();
    }
}
