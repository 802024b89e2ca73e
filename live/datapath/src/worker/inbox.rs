//! Messages to a worker, and requests whose answers other threads wait for.
//!
//! ```text
//!  request ──▶ sent ──▶ taken by the worker ──▶ answered
//!               │                └──▶ the worker stalls: the caller gets an error, the request may still take effect
//!               └──▶ the worker is stalled: the caller gets an error, the request is withdrawn
//! ```
//!
//! Callers wait without limit for a slow worker with a heartbeat: its devices have their own time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::Message;
use crate::io::{Io, Waker};
use crate::pulse::{Beats, WorkerState};

/// Interval at which a waiting caller checks the heartbeat.
const LOOK: Duration = Duration::from_secs(1);

/// Sending side of a worker's messages, for other threads.
#[derive(Debug, Clone)]
pub struct Inbox {
    sender: Sender<Envelope>,
    waker: Waker,
    worker: usize,
    beats: Arc<Beats>,
}

/// Reason why a worker gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoReply {
    #[error("its worker has ended")]
    Ended,
    /// The request is withdrawn: it takes no effect.
    #[error(
        "worker {worker} has not responded for {} s, so nothing was done: restart the server if it does not recover", still.as_secs()
    )]
    Stalled { worker: usize, still: Duration },
    /// The worker has taken the request, or takes it when it recovers.
    #[error(
        "worker {worker} has not responded for {} s, and this may take effect when it recovers: restart the server if it does not", still.as_secs()
    )]
    StalledMeanwhile { worker: usize, still: Duration },
}

impl NoReply {
    pub fn is_stall(self) -> bool {
        self != NoReply::Ended
    }

    /// Returns true if the worker carries the request out when it recovers. The caller then has to undo it.
    pub fn may_take_effect(self) -> bool {
        matches!(self, NoReply::StalledMeanwhile { .. })
    }
}

/// Decides between the worker that starts a request and the caller that withdraws it: the first of the two wins.
#[derive(Debug, Clone, Default)]
struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Returns true for the first caller.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// A message on its way to a worker.
#[derive(Debug)]
pub struct Envelope {
    message: Message,
    /// None for a message that cannot be withdrawn.
    claim: Option<Claim>,
}

impl Envelope {
    /// Returns the message, unless it was withdrawn.
    pub fn open(self) -> Option<Message> {
        let valid = self.claim.is_none_or(|claim| claim.take());
        valid.then_some(self.message)
    }
}

/// A request that was sent to a worker.
#[derive(Debug)]
pub struct PendingAnswer<R> {
    worker: Inbox,
    answer: Receiver<R>,
    claim: Option<Claim>,
}

impl Inbox {
    pub fn new(io: &Io, sender: Sender<Envelope>, worker: usize, beats: Arc<Beats>) -> Self {
        Self {
            sender,
            waker: io.waker(),
            worker,
            beats,
        }
    }

    /// Wakes the worker for its regular checks.
    pub fn tick(&self) {
        self.waker.wake();
    }

    /// Delivers a message. Returns true if the worker still runs.
    pub fn send(&self, message: Message) -> bool {
        self.post(message, None)
    }

    fn post(&self, message: Message, claim: Option<Claim>) -> bool {
        let delivered = self.sender.send(Envelope { message, claim }).is_ok();
        self.waker.wake();
        delivered
    }

    /// Checks that the worker is not stalled.
    ///
    /// # Errors
    /// [`NoReply::Stalled`].
    pub fn responds(&self) -> Result<(), NoReply> {
        match self.beats.state(self.worker) {
            WorkerState::Stalled(still) => Err(NoReply::Stalled {
                worker: self.worker,
                still,
            }),
            WorkerState::Responds | WorkerState::Ended => Ok(()),
        }
    }

    /// Sends a request without waiting for its answer. Several workers can then work at the same time.
    ///
    /// # Errors
    /// [`NoReply::Stalled`]: nothing was sent.
    pub fn begin<R>(
        &self,
        message: impl FnOnce(Sender<R>) -> Message,
    ) -> Result<PendingAnswer<R>, NoReply> {
        self.responds()?;
        let (sender, answer) = channel();
        let claim = Claim::default();
        self.post(message(sender), Some(claim.clone()));
        Ok(PendingAnswer {
            worker: self.clone(),
            answer,
            claim: Some(claim),
        })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// [`NoReply`].
    pub fn ask<R>(&self, message: impl FnOnce(Sender<R>) -> Message) -> Result<R, NoReply> {
        self.begin(message)?.wait()
    }

    /// Sends a message that must take effect, however late, and waits for the answer.
    ///
    /// # Errors
    /// [`NoReply`], but not [`NoReply::Stalled`].
    pub fn insist<R>(&self, message: impl FnOnce(Sender<R>) -> Message) -> Result<R, NoReply> {
        let (sender, answer) = channel();
        self.send(message(sender));
        self.answer_on(answer).wait()
    }

    /// Returns the next worker in turn for a new connection. Skips stalled workers unless all are stalled.
    pub fn in_turn<'a>(workers: &'a [Self], next: &AtomicUsize) -> &'a Self {
        let first = next.fetch_add(1, Ordering::Relaxed) % workers.len();
        let (before, from) = workers.split_at(first);
        let mut all = from.iter().chain(before);
        all.find(|worker| worker.responds().is_ok())
            .unwrap_or(&workers[first])
    }

    /// Returns the pending second answer to a request that the worker has taken.
    pub fn answer_on<R>(&self, answer: Receiver<R>) -> PendingAnswer<R> {
        PendingAnswer {
            worker: self.clone(),
            answer,
            claim: None,
        }
    }
}

impl<R> PendingAnswer<R> {
    /// Waits for the answer while the worker responds.
    ///
    /// # Errors
    /// [`NoReply`].
    pub fn wait(&self) -> Result<R, NoReply> {
        loop {
            if let Some(answer) = self.wait_for(LOOK)? {
                return Ok(answer);
            }
        }
    }

    /// Waits for the answer for `time` at most; returns none if it has not arrived by then.
    pub fn wait_for(&self, time: Duration) -> Result<Option<R>, NoReply> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.answer.recv_timeout(left.min(LOOK)) {
                Ok(answer) => return Ok(Some(answer)),
                Err(RecvTimeoutError::Disconnected) => return Err(NoReply::Ended),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let state = self.worker.beats.state(self.worker.worker);
            if state != WorkerState::Responds {
                return self.give_up(state);
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn give_up(&self, state: WorkerState) -> Result<Option<R>, NoReply> {
        let withdrawn = self.claim.as_ref().is_some_and(Claim::take);
        // The worker may have answered just before its end.
        if let Ok(answer) = self.answer.try_recv() {
            return Ok(Some(answer));
        }
        let worker = self.worker.worker;
        Err(match state {
            WorkerState::Stalled(still) if withdrawn => NoReply::Stalled { worker, still },
            WorkerState::Stalled(still) => NoReply::StalledMeanwhile { worker, still },
            WorkerState::Responds | WorkerState::Ended => NoReply::Ended,
        })
    }
}
