//! I/O by io_uring. Only this file passes pointers to the kernel.
//!
//! Each entry in flight has a slot that owns the targets of its pointers (buffer, file, event counter). The slot is
//! freed only after the kernel reports the entry as complete. A ring that is dropped with entries in flight leaks
//! their targets: the kernel may still use them.

#![allow(unsafe_code)] // pushing entries: see the reasons there

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use slab::Slab;

use super::{Buf, Op, Outcome, Source, Target, Urgency, Waker, close_elsewhere};

/// Token of cancellations, whose results are ignored.
const CANCELLATION: u64 = u64::MAX;

/// Size of the submission queue. More operations may be in flight: entries that do not fit are kept in a backlog until the kernel has taken the
/// queue.
const ENTRIES: u32 = 1024;

/// Longest sleep while the kernel accepts no entries, for example for lack of memory. Bounds the delay of the next attempt.
const RETRY: Duration = Duration::from_millis(1);

/// Descriptor of an entry in flight.
#[derive(Debug)]
enum OwnedDescriptor {
    File(Arc<File>),
    #[expect(dead_code, reason = "owned, not looked at: the kernel does")]
    Socket(Arc<OwnedFd>),
    /// Watched until it is cancelled.
    Event(Arc<OwnedFd>),
    #[expect(dead_code, reason = "owned, not looked at: the kernel may still")]
    CancelledEvent(Arc<OwnedFd>),
}

/// The memory of an entry in flight.
#[derive(Debug)]
#[expect(dead_code, reason = "likewise")]
enum Memory {
    None,
    From(Source),
    To(Target),
}

#[derive(Debug)]
struct PendingEntry {
    token: u64,
    _memory: Memory,
    owned: OwnedDescriptor,
}

/// The ring of one worker.
pub struct Ring {
    ring: IoUring,
    slots: Slab<PendingEntry>,
    /// Entries that did not fit into the submission queue, oldest first. While there are any, new ones queue behind them: a cancellation must not
    /// overtake its operation.
    backlog: VecDeque<Entry>,
    event: Arc<OwnedFd>,
    event_count: Arc<Buf>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} in flight)", self.slots.len())
    }
}

impl Ring {
    pub(super) fn new() -> std::io::Result<Self> {
        Self::with_entries(ENTRIES)
    }

    /// Creates a ring with a submission queue of this size, and a completion queue eight times as large.
    fn with_entries(entries: u32) -> std::io::Result<Self> {
        // Only this thread takes completions, and only when it asks for them. This is the cheapest mode.
        let modern = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(entries * 8)
            .build(entries);
        let ring = match modern {
            Ok(ring) => ring,
            // Kernels before 6.1 do not support it.
            Err(_) => IoUring::builder()
                .setup_cqsize(entries * 8)
                .build(entries)?,
        };
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Self {
            ring,
            slots: Slab::new(),
            backlog: VecDeque::new(),
            event: Arc::new(event),
            event_count: Buf::new(8),
        })
    }

    pub(super) fn waker(&self) -> Waker {
        Waker(self.event.clone())
    }

    #[inline]
    pub(super) fn start(&mut self, token: u64, op: Op) {
        let (entry, memory, owned) = match op {
            Op::Read {
                file,
                at,
                mut to,
                urgency,
            } => {
                let fd = Fd(file.as_raw_fd());
                let entry = opcode::Read::new(fd, to.start(), to.len() as u32);
                let entry = urgent(entry.offset(at).build(), urgency);
                (entry, Memory::To(to), OwnedDescriptor::File(file))
            }
            Op::Write {
                file,
                at,
                from,
                durable,
                urgency,
            } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                let fd = Fd(file.as_raw_fd());
                let entry = opcode::Write::new(fd, from.start(), from.len() as u32);
                let entry = entry.offset(at).rw_flags(flags).build();
                let entry = urgent(entry, urgency);
                (entry, Memory::From(from), OwnedDescriptor::File(file))
            }
            Op::Sync { file } => {
                let fd = Fd(file.as_raw_fd());
                let entry = opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build();
                (entry, Memory::None, OwnedDescriptor::File(file))
            }
            // The kernel runs it on a separate thread, like flushes.
            Op::Allocate { file, how, at, len } => {
                let mode = how.flags().bits() as i32;
                let fd = Fd(file.as_raw_fd());
                let entry = opcode::Fallocate::new(fd, len).offset(at).mode(mode);
                (entry.build(), Memory::None, OwnedDescriptor::File(file))
            }
            Op::Receive { socket, mut to } => {
                let fd = Fd(socket.as_raw_fd());
                let entry = opcode::Recv::new(fd, to.start(), to.len() as u32).build();
                (entry, Memory::To(to), OwnedDescriptor::Socket(socket))
            }
            Op::Writable { socket } => {
                let events = libc::POLLOUT as u32;
                let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events).build();
                (entry, Memory::None, OwnedDescriptor::Socket(socket))
            }
            Op::Wake => {
                let mut to = self.event_count.target(0..8);
                let fd = Fd(self.event.as_raw_fd());
                let entry = opcode::Read::new(fd, to.start(), 8).build();
                (
                    entry,
                    Memory::To(to),
                    OwnedDescriptor::Socket(self.event.clone()),
                )
            }
            Op::Kicks { event } => (
                kicks_of(&event),
                Memory::None,
                OwnedDescriptor::Event(event),
            ),
        };
        let slot = self.slots.insert(PendingEntry {
            token,
            _memory: memory,
            owned,
        });
        self.push(entry.user_data(slot as u64));
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        // SAFETY: the slot of the entry keeps pointers and descriptors alive until the last completion was taken. A
        // cancellation has none.
        if !self.backlog.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    pub(super) fn cancel(&mut self, token: u64) {
        let mut slots = self.slots.iter_mut();
        if let Some((slot, watched)) = slots.find(|(_, s)| s.token == token) {
            if let OwnedDescriptor::Event(event) = &watched.owned {
                watched.owned = OwnedDescriptor::CancelledEvent(event.clone());
            }
            let entry = opcode::AsyncCancel::new(slot as u64).build();
            self.push(entry.user_data(CANCELLATION));
        }
    }

    /// Moves entries from the backlog to the submission queue until that is full.
    #[inline]
    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { self.ring.submission().push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Submits all entries, the backlog included, or as many as the kernel takes now. Decided by the queues themselves: the kernel may take some
    /// entries and not others. Ends, because a round that submits nothing is the last one.
    #[inline]
    fn submit(&mut self) -> std::io::Result<()> {
        loop {
            self.push_backlog();
            let queue = self.ring.submission();
            let before = queue.len();
            let deferred = queue.taskrun() || queue.cq_overflow();
            drop(queue);
            if before == 0 && !deferred {
                return Ok(());
            }
            tolerate(self.ring.submitter().submit().map(drop))?;
            let left = self.ring.submission().len();
            if left == before || (left == 0 && self.backlog.is_empty()) {
                return Ok(());
            }
        }
    }

    pub(super) fn poll(&mut self, done: &mut Vec<(u64, Outcome)>) -> std::io::Result<()> {
        self.submit()?;
        self.reap(done);
        Ok(())
    }

    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        done: &mut Vec<(u64, Outcome)>,
    ) -> std::io::Result<()> {
        self.push_backlog();
        let mut timeout = timeout;
        if !self.backlog.is_empty() {
            // The backlog must not wait for the completion of the entries before it.
            self.submit()?;
            self.push_backlog();
            if !self.backlog.is_empty() {
                timeout = Some(timeout.map_or(RETRY, |t| t.min(RETRY)));
            }
        }
        let submitter = self.ring.submitter();
        let entered = match timeout {
            None => submitter.submit_and_wait(1),
            Some(timeout) => {
                let spec = Timespec::from(timeout);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&spec))
            }
        };
        tolerate(entered.map(drop))?;
        self.reap(done);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<(u64, Outcome)>) {
        let mut ended = vec![];
        for entry in self.ring.completion() {
            if entry.user_data() == CANCELLATION {
                continue;
            }
            let watched = &self.slots[entry.user_data() as usize];
            if let OwnedDescriptor::Event(event) = &watched.owned
                && entry.result() >= 0
            {
                done.push((watched.token, Ok(entry.result() as u32)));
                if !io_uring::cqueue::more(entry.flags()) {
                    // The kernel had no room for more reports, so the watch is started again.
                    ended.push(kicks_of(event).user_data(entry.user_data()));
                }
                continue;
            }
            if io_uring::cqueue::more(entry.flags()) {
                continue; // a kick from before the cancellation
            }
            let slot = self.slots.remove(entry.user_data() as usize);
            let result = match slot.owned {
                // The event is no longer watched, whatever the result is.
                OwnedDescriptor::CancelledEvent(_) => -libc::ECANCELED,
                _ => entry.result(),
            };
            if let OwnedDescriptor::File(file) = slot.owned
                && let Some(last) = Arc::into_inner(file)
            {
                close_elsewhere(last);
            }
            done.push((
                slot.token,
                u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result)),
            ));
        }
        for entry in ended {
            self.push(entry);
        }
    }
}

/// Watches an event counter: each write to it is a completion, and it needs no read.
fn kicks_of(event: &OwnedFd) -> Entry {
    let events = libc::POLLIN as u32;
    let entry = opcode::PollAdd::new(Fd(event.as_raw_fd()), events);
    entry.multi(true).build()
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to memory of entries in flight.
        std::mem::forget(std::mem::take(&mut self.slots));
    }
}

fn urgent(entry: Entry, urgency: Urgency) -> Entry {
    match urgency {
        Urgency::Guest => entry,
        Urgency::Background => entry.flags(Flags::ASYNC),
    }
}

/// Ignores interruptions, time-outs, and the kernel's demand to take completions first.
fn tolerate(entered: std::io::Result<()>) -> std::io::Result<()> {
    match entered {
        Err(e) => match e.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(e),
        },
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
