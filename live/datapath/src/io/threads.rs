//! I/O by threads, if io_uring is refused, as many container runtimes do: blocking calls on files in a few helper
//! threads, sockets by `poll`.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::time::Timespec;

use super::{Op, Outcome, Target, Waker};

/// Helper threads of one worker: limit of simultaneous blocking calls.
const HELPERS: usize = 8;

/// Socket to receive from, with the destination.
#[derive(Debug)]
struct SocketRead {
    token: u64,
    socket: Arc<OwnedFd>,
    to: Target,
}

/// Helper threads and awaited sockets.
#[derive(Debug)]
pub struct Threads {
    jobs: Sender<(u64, Op)>,
    results: Receiver<(u64, Outcome)>,
    event: Arc<OwnedFd>,
    /// Sockets to receive from.
    receiving: Vec<SocketRead>,
    /// Sockets awaited until they accept bytes.
    writable: Vec<(u64, Arc<OwnedFd>)>,
    /// Watched event counters.
    events: Vec<(u64, Arc<OwnedFd>)>,
    /// Tokens of cancelled watches that are not reported yet.
    cancelled: Vec<u64>,
    /// Token of the awaited wake-up.
    wake: Option<u64>,
    woken: bool,
}

impl Threads {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let event = Arc::new(rustix::event::eventfd(0, flags)?);
        let (jobs, incoming) = channel::<(u64, Op)>();
        let (outgoing, results) = channel();
        let incoming = Arc::new(Mutex::new(incoming));
        for _ in 0..HELPERS {
            let (incoming, outgoing) = (incoming.clone(), outgoing.clone());
            let waker = Waker(event.clone());
            std::thread::Builder::new()
                .name("terrace-io".into())
                .spawn(move || {
                    loop {
                        let next = incoming
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .recv();
                        let Ok((token, op)) = next else { return };
                        let outcome = perform(op);
                        if outgoing.send((token, outcome)).is_err() {
                            return;
                        }
                        waker.wake();
                    }
                })?;
        }
        Ok(Self {
            jobs,
            results,
            event,
            receiving: Vec::new(),
            writable: Vec::new(),
            events: Vec::new(),
            cancelled: Vec::new(),
            wake: None,
            woken: false,
        })
    }

    pub(super) fn waker(&self) -> Waker {
        Waker(self.event.clone())
    }

    pub(super) fn start(&mut self, token: u64, op: Op) {
        match op {
            Op::Receive { socket, to } => {
                self.receiving.push(SocketRead { token, socket, to });
            }
            Op::Writable { socket } => self.writable.push((token, socket)),
            Op::Wake => self.wake = Some(token),
            Op::Kicks { event } => self.events.push((token, event)),
            op => self
                .jobs
                .send((token, op))
                .expect("helper threads outlive the worker"),
        }
    }

    pub(super) fn cancel(&mut self, token: u64) {
        let before = self.events.len() + self.receiving.len();
        self.events.retain(|(watched, _)| *watched != token);
        self.receiving.retain(|r| r.token != token);
        if self.events.len() + self.receiving.len() < before {
            self.cancelled.push(token);
        }
    }

    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        done: &mut Vec<(u64, Outcome)>,
    ) -> std::io::Result<()> {
        let before = done.len();
        done.extend(self.results.try_iter());
        done.extend(self.cancelled.drain(..).map(|t| (t, Err(Errno::CANCELED))));
        let timeout = if done.len() > before || self.woken {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let mut fds = vec![PollFd::new(&*self.event, PollFlags::IN)];
        fds.extend(
            self.receiving
                .iter()
                .map(|r| PollFd::new(&*r.socket, PollFlags::IN)),
        );
        fds.extend(
            self.writable
                .iter()
                .map(|w| PollFd::new(&*w.1, PollFlags::OUT)),
        );
        fds.extend(
            self.events
                .iter()
                .map(|e| PollFd::new(&*e.1, PollFlags::IN)),
        );
        let spec = timeout.map(|t| Timespec {
            tv_sec: t.as_secs() as i64,
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        match poll(&mut fds, spec.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|f| !f.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            let mut count = [0; 8];
            let _ = rustix::io::read(&*self.event, &mut count);
            self.woken = true;
        }
        let receivers = self.receiving.len();
        let mut i = 0;
        self.receiving.retain_mut(|r| {
            i += 1;
            if !ready[i] {
                return true;
            }
            match recv(&*r.socket, &mut *r.to, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => true,
                Ok((_, n)) => {
                    done.push((r.token, Ok(n as u32)));
                    false
                }
                Err(e) => {
                    done.push((r.token, Err(e)));
                    false
                }
            }
        });
        let mut i = receivers;
        self.writable.retain(|(token, _)| {
            i += 1;
            if ready[i] {
                done.push((*token, Ok(0)));
            }
            !ready[i]
        });
        for (token, event) in &self.events {
            i += 1;
            let mut count = [0; 8];
            if ready[i] && rustix::io::read(&**event, &mut count).is_ok() {
                done.push((*token, Ok(8)));
            }
        }
        if self.woken
            && let Some(token) = self.wake.take()
        {
            self.woken = false;
            done.push((token, Ok(8)));
        }
        done.extend(self.results.try_iter());
        Ok(())
    }
}

/// Executes one blocking call.
fn perform(op: Op) -> Outcome {
    let errno = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    match op {
        Op::Read {
            file, at, mut to, ..
        } => {
            let n = file.read_at(&mut to, at).map_err(errno)?;
            Ok(n as u32)
        }
        Op::Write {
            file,
            at,
            from,
            durable,
            ..
        } => {
            let n = file.write_at(&from, at).map_err(errno)?;
            if durable {
                file.sync_data().map_err(errno)?;
            }
            Ok(n as u32)
        }
        Op::Sync { file } => file.sync_data().map(|()| 0).map_err(errno),
        Op::Allocate { file, how, at, len } => {
            rustix::fs::fallocate(&*file, how.flags(), at, len).map(|()| 0)
        }
        Op::Receive { .. } | Op::Writable { .. } | Op::Wake | Op::Kicks { .. } => {
            unreachable!("sockets are polled by the worker")
        }
    }
}
