//! Strategy in a pair of processes: in a simulation its first failure ends the run, live it is started again.
//!
//! ```text
//!            decision                  failure                       the wait is over
//!  running ──────────▶ running ─────────────────▶ stopped, waiting ──────────────────▶ starting ─▶ running
//!                                                 1 epoch, then 2, 4, … up to 64
//! ```
//!
//! Live, one pair decides for all arrays. After a failed start or a late decision all arrays wait; after another failure only its array
//! does.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use planner::hosted::{Decider, DecisionRequest, HostedDecision, wishes};
use planner::{Context, StrategyFailure};
use serde_json::Value;
use units::Nanos;

use crate::error::InterpreterError;
use crate::process::{Limits, Pair};

/// Environment variable with the program of the interpreter.
const PROGRAM: &str = "TERRACE_PYTHON";

/// Returns the program of the interpreter: the one in the environment variable `TERRACE_PYTHON`, or `python3`.
pub fn program() -> OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| "python3".into())
}

/// Longest wait between two starts after failures, in monitor epochs. Protects the host from a strategy that fails at each start.
const WAIT_EPOCHS_MAX: u64 = 64;

/// Largest state of a strategy of a live controller, bytes as JSON. Protects the store, which keeps the state of each decision.
const STATE_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a failure's text during the wait after it. Protects memory.
const FAILURE_BYTES_MAX: usize = 16 << 10;

/// Source of a strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name in plans and reports.
    pub name: String,
    /// File and class as the interpreter gets them, `FILE.py:CLASS`.
    path: PathBuf,
    /// Program of the interpreter.
    program: OsString,
}

impl Source {
    /// Source with the name `FILE.py:CLASS`, relative to a directory, for the interpreter [`program`].
    pub fn new(name: &str, base: &Path) -> Self {
        Self {
            name: name.into(),
            path: base.join(name),
            program: program(),
        }
    }
}

/// Strategy in processes of its own.
pub struct PythonStrategy {
    source: Source,
    limits: Option<Limits>,
    running: RefCell<ProcessState>,
}

#[derive(Default)]
struct ProcessState {
    pair: Option<Pair>,
    /// True if the strategy of the pair was loaded.
    is_loaded: bool,
    /// Array of the next decision.
    array: String,
    /// Failed starts and late decisions.
    common: Failures,
    /// Other failures, by array.
    by_array: BTreeMap<String, Failures>,
    budget: Budget,
}

/// Limit of the time of all decisions: half of the time, and at most two longest decisions in a row.
#[derive(Default)]
struct Budget {
    /// Time at which twice the time of all decisions has passed.
    paid: Option<Instant>,
}

impl Budget {
    fn is_left(&self, now: Instant, longest: Duration) -> bool {
        self.paid.is_none_or(|paid| paid <= now + longest)
    }

    fn spend(&mut self, began: Instant, time: Duration) {
        let paid = self.paid.map_or(began, |paid| paid.max(began));
        self.paid = Some(paid + 2 * time);
    }
}

/// Consecutive failures, with the text of the last one and the end of the wait after it.
#[derive(Default)]
struct Failures {
    count: u32,
    last: String,
    until: Nanos,
}

impl Failures {
    fn add(&mut self, error: &InterpreterError, context: &Context<'_>) {
        let epochs = WAIT_EPOCHS_MAX.min(1 << self.count.min(63));
        // Epochs rarely have the exact length.
        let monitor = context.policy.epochs.monitor.0;
        self.until = context.facts.at + Nanos(monitor * epochs - monitor / 2);
        self.count += 1;
        self.last = error.to_string();
        let end = self.last.floor_char_boundary(FAILURE_BYTES_MAX);
        self.last.truncate(end);
    }
}

impl PythonStrategy {
    /// Starts a strategy for one simulation, and waits until it is loaded. Returns the hash of its source, too.
    ///
    /// # Errors
    /// A package that is not installed; a file that cannot be loaded.
    pub fn start(source: Source) -> Result<(Self, String), InterpreterError> {
        let mut pair = Pair::start(&source.program, &source.path, None)?;
        let ready = pair.ready(None)?.ok_or(InterpreterError::Starting)?;
        let running = ProcessState {
            pair: Some(pair),
            ..ProcessState::default()
        };
        let strategy = Self {
            source,
            limits: None,
            running: RefCell::new(running),
        };
        Ok((strategy, ready.source))
    }

    /// Strategy of a live controller. It is started in the first epoch, and started again after a failure.
    pub fn live(source: Source, limits: Limits) -> Self {
        Self {
            source,
            limits: Some(limits),
            running: RefCell::default(),
        }
    }
}

impl ProcessState {
    /// Last failure that concerns the array.
    fn failed(&self) -> Option<&Failures> {
        let own = self.by_array.get(&self.array);
        let failures = own.into_iter().chain([&self.common]);
        failures.filter(|f| f.count > 0).max_by_key(|f| f.until)
    }

    fn decide(
        &mut self,
        source: &Source,
        limits: Option<Limits>,
        context: &Context<'_>,
        state: &Value,
    ) -> Result<Option<HostedDecision>, InterpreterError> {
        let due = context.facts.placement_due;
        let mut pair = match self.pair.take() {
            Some(pair) => pair,
            None => {
                self.is_loaded = false;
                Pair::start(&source.program, &source.path, limits)?
            }
        };
        let deadline = pair.deadline();
        // Without placement, a start is not waited for.
        let until = match due {
            true => deadline,
            false => deadline.map(|_| Instant::now()),
        };
        let ready = pair.ready(until)?;
        self.is_loaded = ready.is_some();
        let decides = ready.is_some_and(|r| due || r.every_epoch);
        if !decides {
            self.pair = Some(pair);
            return match due && !self.is_loaded {
                true => Err(InterpreterError::Starting),
                false => Ok(None),
            };
        }
        let request = DecisionRequest {
            number: pair.next_number(),
            facts: Cow::Borrowed(context.facts),
            policy: Cow::Borrowed(context.policy),
            seed: context.seed,
            state: Cow::Borrowed(state),
        };
        let mut line = serde_json::to_vec(&request).expect("facts and states are plain data");
        line.push(b'\n');
        let at_s = context.facts.at.as_secs_f64();
        let (moves, state) = pair.decide(line, at_s, deadline)?;
        let bytes = limits.map_or(0, |_| state.to_string().len());
        if bytes > STATE_BYTES_MAX {
            return Err(InterpreterError::State {
                bytes,
                most: STATE_BYTES_MAX,
            });
        }
        let wishes = wishes(context, &moves)?;
        self.pair = Some(pair);
        Ok(Some(HostedDecision { wishes, state }))
    }
}

impl Decider for PythonStrategy {
    fn name(&self) -> &str {
        &self.source.name
    }

    fn next_array(&self, name: &str) {
        self.running.borrow_mut().array = name.into();
    }

    fn decide(
        &self,
        context: &Context<'_>,
        state: &Value,
    ) -> Result<Option<HostedDecision>, StrategyFailure> {
        let mut running = self.running.borrow_mut();
        let failed = running.failed();
        let waits = failed.is_some_and(|f| context.facts.at < f.until);
        let last: Option<StrategyFailure> = failed.map(|f| f.last.clone().into());
        if waits && let Some(last) = last {
            return Err(last);
        }
        let began = Instant::now();
        let limit = self.limits.map(|l| l.decision);
        let decided = match limit.is_none_or(|longest| running.budget.is_left(began, longest)) {
            true => running.decide(&self.source, self.limits, context, state),
            false => Err(InterpreterError::NoTime),
        };
        running.budget.spend(began, began.elapsed());
        match decided {
            // It fails until it decides again.
            Ok(None) => last.map_or(Ok(None), Err),
            Ok(decided) => {
                let array = running.array.clone();
                running.by_array.remove(&array);
                running.common = Failures::default();
                Ok(decided)
            }
            Err(error @ (InterpreterError::Starting | InterpreterError::NoTime)) => {
                Err(error.into())
            }
            Err(error) => {
                let is_common =
                    !running.is_loaded || matches!(error, InterpreterError::Late { .. });
                let array = running.array.clone();
                let failures = match is_common {
                    true => &mut running.common,
                    false => running.by_array.entry(array).or_default(),
                };
                failures.add(&error, context);
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests;
