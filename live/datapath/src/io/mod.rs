//! Asynchronous I/O of one worker on files and sockets, with a wake-up. It uses io_uring or, if that is refused,
//! threads.
//!
//! Both have the same operations and the same interface: [`Io::start`] with a token, [`Io::wait`], then tokens with
//! their results. This module neither retries nor interprets results.

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

/// I/O method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring if the kernel allows it, otherwise threads, with a message.
    Auto,
    /// io_uring, or an error.
    Ring,
    Threads,
}

/// Urgency of an I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// A guest waits: the I/O is done at once if the page cache allows.
    Guest,
    /// No guest waits: the I/O is never done on the worker's own thread, where a large copy would delay guests.
    Background,
}

/// Effect of [`Op::Allocate`] on a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// The range reads as zeroes; its space is freed.
    Punch,
    /// The range reads as zeroes; its space is kept.
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

/// Operation.
#[derive(Debug)]
pub enum Op {
    /// Read a file into a buffer.
    Read {
        file: Arc<File>,
        /// First byte in the file.
        at: u64,
        /// Destination and length.
        to: Target,
        /// Urgency of the I/O.
        urgency: Urgency,
    },
    /// Write a buffer to a file.
    Write {
        file: Arc<File>,
        /// First byte in the file.
        at: u64,
        from: Source,
        /// True if the write completes only when the data is durable.
        durable: bool,
        /// Urgency of the I/O.
        urgency: Urgency,
    },
    /// Make everything written to a file durable.
    Sync { file: Arc<File> },
    /// Change the allocation of a file.
    Allocate {
        file: Arc<File>,
        how: Allocate,
        /// First byte.
        at: u64,
        /// Bytes.
        len: u64,
    },
    /// Receive available data, at least one byte; 0 at the end of the stream.
    Receive {
        socket: Arc<OwnedFd>,
        /// Destination and largest length.
        to: Target,
    },
    /// Wait until a socket accepts bytes again.
    Writable { socket: Arc<OwnedFd> },
    /// Wait for [`Waker::wake`].
    Wake,
    /// Report each write to a non-blocking event counter, until [`Io::cancel`]. One report may stand for several
    /// writes, and a report may be of an earlier write.
    Kicks {
        /// The event counter.
        event: Arc<OwnedFd>,
    },
}

/// Result: a number of bytes, or the kernel's error number.
pub type Outcome = Result<u32, rustix::io::Errno>;

/// Handle to wake a worker from another thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the worker's wait.
    pub fn wake(&self) {
        // The write fails only when the counter is full; the worker is awake then.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// I/O of one worker.
#[derive(Debug)]
pub enum Io {
    /// Method io_uring.
    Ring(Box<Ring>),
    Threads(Box<Threads>),
}

impl Io {
    /// Creates the I/O on the worker's own thread. The message is the reason why io_uring is not used.
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

    /// Returns the handle by which other threads wake this worker.
    pub fn waker(&self) -> Waker {
        match self {
            Io::Ring(ring) => ring.waker(),
            Io::Threads(threads) => threads.waker(),
        }
    }

    /// Starts an operation. Its token is returned with the result.
    #[inline]
    pub fn start(&mut self, token: u64, op: Op) {
        match self {
            Io::Ring(ring) => ring.start(token, op),
            Io::Threads(threads) => threads.start(token, op),
        }
    }

    /// Ends an [`Op::Kicks`], or an [`Op::Receive`] that has not received data. Its token is returned once more, with
    /// an error.
    pub fn cancel(&mut self, token: u64) {
        match self {
            Io::Ring(ring) => ring.cancel(token),
            Io::Threads(threads) => threads.cancel(token),
        }
    }

    /// Submits started operations and adds completed ones to `done`, without waiting.
    #[inline]
    pub fn poll(&mut self, done: &mut Vec<(u64, Outcome)>) -> std::io::Result<()> {
        match self {
            Io::Ring(ring) => ring.poll(done),
            Io::Threads(threads) => threads.wait(Some(Duration::ZERO), done),
        }
    }

    /// Like [`Io::poll`], but waits until an operation completes or the time is over.
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

/// Drops the last reference to a file on a separate thread. The close may wait for a file system that hangs.
pub(crate) fn close_elsewhere(last: impl Send + 'static) {
    let closing = std::thread::Builder::new().name("terrace-close".into());
    // Without a thread, the closure is dropped here, which closes the file now.
    let _ = closing.spawn(move || drop(last));
}
