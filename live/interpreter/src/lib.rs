//! Placement strategies in Python, in processes of their own. The command line and the controller use them.
//!
//! ```text
//!  planner::Hosted ─▶ PythonStrategy ─▶ pair ─┬─ process, hash seed 1 ─▶ python3 -m terrace strategy FILE.py:CLASS
//!                     (limits, restarts)      └─ process, hash seed 2 ─▶ the same
//! ```
//!
//! Each decision is one numbered line of JSON to both processes and one line with its number back from each. Both decide twice, so a decision counts only if
//! four results are equal. A process ends with its standard input. The package `terrace` of the interpreter makes tables of the facts and
//! checks the moves (`python/python/terrace/_serve.py`); [`planner::hosted`] makes wishes of them.

#![warn(missing_docs)]

mod error;
mod process;
mod strategy;

pub use error::InterpreterError;
pub use process::Limits;
pub use strategy::{PythonStrategy, Source, program};
