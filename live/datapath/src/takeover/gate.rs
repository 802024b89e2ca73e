//! Admission of operators' requests: delayed during a hand-over, and refused after it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::DatapathError;

/// State of this process in a hand-over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Handover {
    /// The process serves.
    #[default]
    None,
    /// The array is being handed over.
    UnderWay,
    /// The process is ending by itself and does not hand over any more.
    Ending,
    /// Another process serves: this one must end and must not touch the array.
    To(u32),
    /// Another process owned the array and has ended, or the outcome is unknown: this process must end with an error
    /// and must not touch the array.
    Failed(String),
}

#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// True once the start is complete: guests can connect.
    started: bool,
    /// True while a hand-over is being prepared.
    prepared: bool,
    handover: Handover,
    /// Number of requests in progress.
    inside: usize,
}

/// Admission of one request, until it is dropped.
#[derive(Debug)]
pub struct RequestGuard<'a>(&'a Gate);

/// Exclusive right to prepare a hand-over, until it is dropped.
#[derive(Debug)]
pub struct HandOverGuard<'a>(&'a Gate);

impl Drop for HandOverGuard<'_> {
    fn drop(&mut self) {
        self.0.state().prepared = false;
    }
}

impl Gate {
    /// Takes the exclusive right to prepare a hand-over; `None` if another thread has it.
    pub fn alone(&self) -> Option<HandOverGuard<'_>> {
        let before = std::mem::replace(&mut self.state().prepared, true);
        (!before).then_some(HandOverGuard(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a request, after a hand-over in progress has ended.
    ///
    /// # Errors
    /// [`DatapathError::NotServed`]: no request will be admitted again.
    pub fn enter(&self) -> Result<RequestGuard<'_>, DatapathError> {
        let mut state = self.state();
        loop {
            match &state.handover {
                Handover::None | Handover::Ending => break,
                Handover::UnderWay => {
                    let waited = self.changed.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
                Handover::To(_) => {
                    return Err(DatapathError::NotServed(
                        "another process serves the array now: run the command again".into(),
                    ));
                }
                Handover::Failed(why) => return Err(DatapathError::NotServed(why.clone())),
            }
        }
        state.inside += 1;
        Ok(RequestGuard(self))
    }

    /// Reports that the start is complete: from now on the array can be handed over.
    pub fn started(&self) {
        self.state().started = true;
        self.changed.notify_all();
    }

    /// Waits until [`Gate::started`] is called, at most for `time`.
    pub fn wait_for_start(&self, time: Duration) {
        let wait = |s: &mut State| !s.started;
        let waited = self.changed.wait_timeout_while(self.state(), time, wait);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the reason why the array cannot be handed over now.
    pub fn why_not(&self) -> Option<&'static str> {
        let state = self.state();
        match state.handover {
            _ if !state.started => Some("the server is still starting"),
            Handover::None => None,
            Handover::Ending => Some("the server is ending"),
            _ => Some("another process is already taking over the array"),
        }
    }

    /// Closes the gate: waits until the requests in progress have their replies, and admits no others.
    ///
    /// # Errors
    /// [`DatapathError::Busy`]: the requests do not end in time, or the gate is already closed.
    pub fn shut(&self, time: Duration) -> Result<(), DatapathError> {
        let busy = |why: &str| Err(DatapathError::Busy(why.into()));
        if let Some(why) = self.why_not() {
            return busy(why);
        }
        let mut state = self.state();
        if state.handover != Handover::None {
            return busy("another process is already taking over the array"); // it began since the check above
        }
        state.handover = Handover::UnderWay;
        let until = Instant::now() + time;
        while state.inside > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.handover = Handover::None;
                self.changed.notify_all();
                return busy(
                    "an operator command is still running: try again when it has finished",
                );
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// Announces the end of the process. Waits for the outcome of a hand-over in progress; if it failed, no other one
    /// can begin.
    pub fn ends(&self) -> Handover {
        let mut state = self.state();
        while state.handover == Handover::UnderWay {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.handover == Handover::None {
            state.handover = Handover::Ending;
        }
        state.handover.clone()
    }

    /// Waits until this process must end and must not touch the array. Without a hand-over, it waits for the rest of
    /// the process's life. Returns the new owner or the reason.
    pub fn lost(&self) -> Handover {
        let mut state = self.state();
        while !matches!(state.handover, Handover::To(_) | Handover::Failed(_)) {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.handover.clone()
    }

    /// Sets the state of the hand-over.
    pub fn becomes(&self, handover: Handover) {
        self.state().handover = handover;
        self.changed.notify_all();
    }

    /// Returns the state of the hand-over.
    pub fn handover(&self) -> Handover {
        self.state().handover.clone()
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.changed.notify_all();
    }
}
