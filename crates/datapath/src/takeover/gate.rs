//! Whether operators may ask: not while the array is handed over, and never again once it was.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What became of this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Handover {
    /// It serves.
    #[default]
    None,
    /// The array is being handed over.
    UnderWay,
    /// It is ending by itself, and hands nothing over any more.
    Ending,
    /// Another process serves: this one has to end, and to touch nothing.
    To(u32),
    /// Another process had the array for its own and has ended, or nobody can tell: this one has to end, with an error, and to touch nothing.
    Failed(String),
}

#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Guests can connect, and all that is asked for is there.
    started: bool,
    /// Somebody prepares to hand it over.
    prepared: bool,
    handover: Handover,
    /// Questions that are being answered.
    inside: usize,
}

/// Somebody who asks.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

/// The only one who prepares to hand over.
#[derive(Debug)]
pub struct Alone<'a>(&'a Gate);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state().prepared = false;
    }
}

impl Gate {
    /// Nobody else prepares to hand over while this lasts; none while somebody does.
    pub fn alone(&self) -> Option<Alone<'_>> {
        let before = std::mem::replace(&mut self.state().prepared, true);
        (!before).then_some(Alone(self))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one in who asks, when that is possible.
    ///
    /// # Errors
    /// When it never will be.
    pub fn enter(&self) -> Result<Inside<'_>, String> {
        let mut state = self.state();
        loop {
            match &state.handover {
                Handover::None | Handover::Ending => break,
                Handover::UnderWay => {
                    let waited = self.changed.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
                Handover::To(_) => {
                    return Err(
                        "another process serves the array now: run the command again".into(),
                    );
                }
                Handover::Failed(why) => return Err(why.clone()),
            }
        }
        state.inside += 1;
        Ok(Inside(self))
    }

    /// From here on the array can be handed over.
    pub fn started(&self) {
        self.state().started = true;
        self.changed.notify_all();
    }

    /// Waits, for a time, until [`Gate::started`] is said.
    pub fn wait_for_start(&self, time: Duration) {
        let wait = |s: &mut State| !s.started;
        let waited = self.changed.wait_timeout_while(self.state(), time, wait);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Why the array cannot be handed over now, if so.
    pub fn why_not(&self) -> Option<&'static str> {
        let state = self.state();
        match state.handover {
            _ if !state.started => Some("the server is still starting"),
            Handover::None => None,
            Handover::Ending => Some("the server is ending"),
            _ => Some("another process is already taking over the array"),
        }
    }

    /// Lets nobody in any more, once those who are in have their answers.
    ///
    /// # Errors
    /// When they do not have them in time; or when it is shut already.
    pub fn shut(&self, time: Duration) -> Result<(), String> {
        if let Some(why) = self.why_not() {
            return Err(why.into());
        }
        let mut state = self.state();
        if state.handover != Handover::None {
            return Err("another process is already taking over the array".into()); // just now
        }
        state.handover = Handover::UnderWay;
        let until = Instant::now() + time;
        while state.inside > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.handover = Handover::None;
                self.changed.notify_all();
                return Err(
                    "an operator command is still running: try again when it has finished".into(),
                );
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// The process is to end: waits for what becomes of a hand-over that is under way, and there is no other one if it came to nothing.
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

    /// Waits, if need be for the rest of the process's life, until this process has to end and to touch nothing: to whom the array went, or why.
    pub fn lost(&self) -> Handover {
        let mut state = self.state();
        while !matches!(state.handover, Handover::To(_) | Handover::Failed(_)) {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.handover.clone()
    }

    /// What became of it.
    pub fn becomes(&self, handover: Handover) {
        self.state().handover = handover;
        self.changed.notify_all();
    }

    /// What is becoming of this process.
    pub fn handover(&self) -> Handover {
        self.state().handover.clone()
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.changed.notify_all();
    }
}
