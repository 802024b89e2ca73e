//! Exceptions: errors of Terrace with file and line.

use std::io::ErrorKind;

use pyo3::create_exception;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use sim::ScenarioError;
use sim::sweep::SweepError;
use trace::{Location, SummaryError, TraceError};

create_exception!(
    terrace,
    TerraceError,
    PyValueError,
    "Invalid input, or a run that cannot continue. `file` and `line` locate the fault; None if unknown."
);

/// Returns an exception without a location.
pub fn error(message: impl Into<String>) -> PyErr {
    TerraceError::new_err(message.into())
}

/// Returns an exception with a location.
fn located(message: String, file: &str, line: Option<u64>) -> PyErr {
    let raised = error(message);
    Python::attach(|py| {
        let value = raised.value(py);
        let set = value.setattr("file", file);
        match set.and_then(|()| value.setattr("line", line)) {
            Ok(()) => raised.clone_ref(py),
            Err(other) => other,
        }
    })
}

/// Fault of a scenario.
pub fn fault(fault: ScenarioError) -> PyErr {
    let line = fault.line.map(|l| l as u64);
    located(fault.to_string(), &fault.file, line)
}

/// Fault of a sweep.
pub fn of_sweep(error: SweepError) -> PyErr {
    match &error {
        SweepError::Scenario(at) | SweepError::Point { fault: at, .. } => {
            located(error.to_string(), &at.file, at.line.map(|l| l as u64))
        }
        _ => other(error),
    }
}

/// Fault of a trace. A file that cannot be opened is an `OSError`.
pub fn of_trace(error: TraceError) -> PyErr {
    if let TraceError::Io { source, .. } = &error {
        let kind = source.kind();
        let message = chain(error);
        return match kind {
            ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
            _ => PyOSError::new_err(message),
        };
    }
    if let TraceError::BadRecord(bad) = &error {
        let line = match bad.at {
            Location::Line(line) => Some(line),
            Location::Byte(_) | Location::Record(_) => None,
        };
        return located(bad.to_string(), &bad.file, line);
    }
    TerraceError::new_err(chain(error))
}

/// Exception that ends work on a trace: its fault, or that of a signal.
pub struct ReadException(pub PyErr);

impl From<TraceError> for ReadException {
    fn from(error: TraceError) -> Self {
        Self(of_trace(error))
    }
}

impl From<SummaryError> for ReadException {
    fn from(error: SummaryError) -> Self {
        Self(other(error))
    }
}

/// Any other error, with its causes.
pub fn other(cause: impl std::error::Error + Send + Sync + 'static) -> PyErr {
    error(chain(cause))
}

fn chain(cause: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(cause))
}
