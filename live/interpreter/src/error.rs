//! Faults of strategies in processes of their own.

use std::io;
use std::time::Duration;

use planner::hosted::WrongMove;
use thiserror::Error;

/// Reason for which a strategy in a process of its own made no decision.
#[derive(Debug, Error)]
pub enum InterpreterError {
    /// The interpreter cannot be started.
    #[error(
        "cannot start the Python interpreter {program}: {source}; name one that has the package terrace in TERRACE_PYTHON"
    )]
    Start {
        /// Program of the interpreter.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The interpreter ended before it had loaded the package.
    #[error(
        "{program} ended ({status}) before the strategy was loaded: install the package with `pip install ./python`, \
         or name an interpreter that has it in TERRACE_PYTHON"
    )]
    NotInstalled {
        /// Program of the interpreter.
        program: String,
        /// Exit status or signal.
        status: String,
    },
    /// The package is of another version than this program.
    #[error(
        "the package terrace of {program} has version {package}, this program {}: install the package again with `pip install ./python`",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Program of the interpreter.
        program: String,
        /// Version of the package.
        package: String,
    },
    /// Python raised an exception. Only the first line is for lists of problems.
    #[error("{error}{}{traceback}", if traceback.is_empty() { "" } else { "\n" })]
    Raised {
        /// File, line and exception.
        error: String,
        /// Python's traceback; empty for errors without a place in the file of the strategy.
        traceback: String,
    },
    /// The process ended during a decision.
    #[error("its process ended ({status}); its standard error may have the reason")]
    Ended {
        /// Exit status or signal.
        status: String,
    },
    /// The strategy is not loaded yet.
    #[error("its processes still start")]
    Starting,
    /// Decisions have taken half of the time.
    #[error(
        "decisions of other arrays have taken its time; make the strategy faster, or windows longer"
    )]
    NoTime,
    /// No reply within the limit.
    #[error("no reply within {} ms; its process was stopped", limit.as_millis())]
    Late {
        /// Longest permitted time.
        limit: Duration,
    },
    /// Reply that is no decision.
    #[error(
        "its process sent an invalid reply: {why}; install the package again with `pip install ./python`"
    )]
    Invalid {
        /// Fault of the reply.
        why: String,
    },
    /// Reply to another request.
    #[error(
        "its process replied to request {number} instead of {expected}: more than one process writes replies; end a forked process with \
         os._exit()"
    )]
    OtherRequest {
        /// Number in the reply.
        number: u64,
        /// Number of the request.
        expected: u64,
    },
    /// State that is too large to be stored.
    #[error("its state has {bytes} bytes, at most {most} are stored; keep less in it")]
    State {
        /// Bytes of the state as JSON.
        bytes: usize,
        /// Most bytes.
        most: usize,
    },
    /// Moves that are not permitted.
    #[error(transparent)]
    Moves(#[from] WrongMove),
    /// Two interpreters decide differently.
    #[error(
        "it is not deterministic: at {at_s} s, two interpreters with different hash seeds differ in their {part}; sort sets, and draw random \
         numbers from the seed"
    )]
    NotDeterministic {
        /// Time of the decision, seconds.
        at_s: f64,
        /// Part of the decision that differs.
        part: &'static str,
    },
}
