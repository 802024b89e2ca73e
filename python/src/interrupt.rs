//! Interruption of work on other threads: of computations, and of the caller's code, such as a strategy that never returns.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

/// Time between two looks at signals.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// State of a computation whose result nobody wants after a signal.
#[derive(Default, Clone)]
pub struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    /// Ends the thread of the computation if it is abandoned. For callbacks that cannot return an error.
    pub fn check(&self) {
        if self.0.load(Ordering::Relaxed) {
            resume_unwind(Box::new("abandoned"));
        }
    }
}

/// Returns the result of a computation, or the exception of a signal, which does not wait for the computation.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    compute: impl FnOnce(&Abandoned) -> T + Send + 'static,
) -> PyResult<T> {
    let abandoned = Abandoned::default();
    let (send, result) = mpsc::channel();
    let worker = thread::spawn({
        let abandoned = abandoned.clone();
        // Nobody receives the result of an abandoned computation.
        move || drop(send.send(compute(&abandoned)))
    });
    py.detach(move || {
        loop {
            match result.recv_timeout(LOOK_EVERY) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => look().inspect_err(|_| {
                    abandoned.0.store(true, Ordering::Relaxed);
                })?,
                Err(RecvTimeoutError::Disconnected) => {
                    let panic = worker.join().expect_err("a thread without a result");
                    resume_unwind(panic);
                }
            }
        }
    })
}

/// Returns the exception of a signal.
pub fn look() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Threads of one run that execute code of the caller. An exception reaches only such code, since the state is locked while it is raised.
#[derive(Default)]
pub struct Interrupts(Mutex<State>);

#[derive(Default)]
struct State {
    interrupted: bool,
    /// Identifiers of threads, as `threading.get_ident` returns them.
    running: BTreeSet<u64>,
}

impl Interrupts {
    fn state(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        let state = self.0.lock_py_attached(py);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls code of the caller, unless it was interrupted.
    pub fn call<T>(&self, py: Python<'_>, code: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        let helper = py.import("terrace._interrupt")?;
        let (raise_in, nothing) = (helper.getattr("raise_in")?, helper.getattr("NOTHING")?);
        let thread = py.import("threading")?.call_method0("get_ident")?;
        let thread: u64 = thread.extract()?;
        {
            let mut state = self.state(py);
            if state.interrupted {
                return Err(PyKeyboardInterrupt::new_err(()));
            }
            state.running.insert(thread);
        }
        let result = code();
        let mut state = self.state(py);
        state.running.remove(&thread);
        if state.interrupted {
            raise_in.call1((thread, nothing))?;
        }
        result
    }

    /// Raises KeyboardInterrupt in running code, and refuses further code. May be called again, since code may catch the exception.
    pub fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        let raise_in = py.import("terrace._interrupt")?.getattr("raise_in")?;
        let raised = py.get_type::<PyKeyboardInterrupt>();
        let mut state = self.state(py);
        state.interrupted = true;
        for thread in &state.running {
            raise_in.call1((*thread, &raised))?;
        }
        Ok(())
    }
}
