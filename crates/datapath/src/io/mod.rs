//! Asynchronous I/O of one worker: files, sockets and a wake-up, by io_uring or, where that is refused, by threads.
//!
//! Both do the same things and are told the same way: [`Io::start`] with a token, [`Io::wait`], then the tokens with their
//! results. Nothing is retried or interpreted here.

mod buf;
mod ring;
mod threads;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use buf::{BUF_ALIGNMENT, Buf, Pool, Reading, Source, Target};
use ring::Ring;
use rustix::fs::FallocateFlags;
use threads::Threads;

/// Which way to do I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, else threads, with a message.
    Auto,
    /// io_uring, or an error.
    Ring,
    Threads,
}

/// Whether a guest waits for an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// It does: done at once if the page cache allows.
    Guest,
    /// It does not: never done on the worker's own thread, where a large copy would delay guests.
    Background,
}

/// What [`Op::Allocate`] does to a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Reads as zeroes; the space is given back.
    Punch,
    /// Reads as zeroes; the space is kept.
    Zero,
}

impl Allocate {
    fn flags(self) -> FallocateFlags {
        FallocateFlags::KEEP_SIZE
            | match self {
                Allocate::Punch => FallocateFlags::PUNCH_HOLE,
                Allocate::Zero => FallocateFlags::ZERO_RANGE,
            }
    }
}

/// Something to do.
#[derive(Debug)]
pub enum Op {
    /// Read a file into a buffer.
    Read {
        file: Arc<File>,
        /// First byte of the file.
        at: u64,
        /// Where to, and how much.
        to: Target,
        /// Whether a guest waits.
        urgency: Urgency,
    },
    /// Write a buffer to a file.
    Write {
        file: Arc<File>,
        /// First byte of the file.
        at: u64,
        from: Source,
        /// Durable when it is done.
        durable: bool,
        /// Whether a guest waits.
        urgency: Urgency,
    },
    /// Make everything written to a file durable.
    Sync { file: Arc<File> },
    /// Change what is allocated of a file.
    Allocate {
        file: Arc<File>,
        how: Allocate,
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Receive what there is, one byte at least; 0 at the end of the stream.
    Receive {
        socket: Arc<OwnedFd>,
        /// Where to, and how much at most.
        to: Target,
    },
    /// Wait until a socket takes bytes again.
    Writable { socket: Arc<OwnedFd> },
    /// Wait for [`Waker::wake`].
    Wake,
    /// Tell of each time that an event counter, which does not block, is written to, until [`Io::cancel`]. Several may be told as one, and one
    /// may be told that is older.
    Kicks {
        /// The event counter.
        event: Arc<OwnedFd>,
    },
}

/// A result: bytes, or an error number as the kernel gave it.
pub type Outcome = Result<u32, rustix::io::Errno>;

/// Wakes a worker from another thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the worker's wait.
    pub fn wake(&self) {
        // It can only fail when the counter is full, and then the worker is awake.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The I/O of one worker.
#[derive(Debug)]
pub enum Io {
    /// By io_uring.
    Ring(Box<Ring>),
    Threads(Box<Threads>),
}

impl Io {
    /// To be called on the worker's own thread. The message says why io_uring is not used.
    pub fn new(choice: IoChoice) -> std::io::Result<(Self, Option<String>)> {
        if choice == IoChoice::Threads {
            return Ok((Io::Threads(Box::new(Threads::new()?)), None));
        }
        match Ring::new() {
            Ok(ring) => Ok((Io::Ring(Box::new(ring)), None)),
            Err(error) if choice == IoChoice::Auto => {
                let why = format!(
                    "io_uring is not available ({error}): using threads, which need more CPU time per request"
                );
                Ok((Io::Threads(Box::new(Threads::new()?)), Some(why)))
            }
            Err(error) => Err(error),
        }
    }

    /// What other threads wake this worker with.
    pub fn waker(&self) -> Waker {
        match self {
            Io::Ring(ring) => ring.waker(),
            Io::Threads(threads) => threads.waker(),
        }
    }

    /// Starts an operation; its token comes back with the result.
    #[inline]
    pub fn start(&mut self, token: u64, op: Op) {
        match self {
            Io::Ring(ring) => ring.start(token, op),
            Io::Threads(threads) => threads.start(token, op),
        }
    }

    /// Ends an [`Op::Kicks`], or an [`Op::Receive`] unless something is received: its token comes once more, with an error.
    pub fn cancel(&mut self, token: u64) {
        match self {
            Io::Ring(ring) => ring.cancel(token),
            Io::Threads(threads) => threads.cancel(token),
        }
    }

    /// Hands to the kernel what was started, and takes what is done, without waiting. Whether anything is done.
    #[inline]
    pub fn poll(&mut self, done: &mut Vec<(u64, Outcome)>) -> std::io::Result<()> {
        match self {
            Io::Ring(ring) => ring.poll(done),
            Io::Threads(threads) => threads.wait(Some(Duration::ZERO), done),
        }
    }

    /// As [`Io::poll`], and waits until something is done or the time is over.
    #[inline]
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        done: &mut Vec<(u64, Outcome)>,
    ) -> std::io::Result<()> {
        match self {
            Io::Ring(ring) => ring.wait(timeout, done),
            Io::Threads(threads) => threads.wait(timeout, done),
        }
    }
}

/// Whoever lets a file go last closes it, which may wait for its file system for as long as that hangs: a thread of its own does.
pub(crate) fn close_elsewhere(last: impl Send + 'static) {
    let closing = std::thread::Builder::new().name("terrace-close".into());
    // Without threads it is closed here: rather late than never.
    let _ = closing.spawn(move || drop(last));
}
