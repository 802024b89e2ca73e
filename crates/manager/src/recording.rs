//! What a controller was told, and what it decided, line by line: so that a decision that nobody understands can be made again elsewhere.
//!
//! ```text
//!   begin {configuration, stored values} ─ call ─ call ─ decided ─ call ─ …     one JSON object to a line
//! ```
//!
//! A controller is a function of what its store has and what it is told ([`crate::controller`]), so whoever reads a recording again
//! comes to the same plans. Whoever does not has found a difference between two versions, or a fault.
//!
//! It is not an audit and not a backup: questions that change nothing are left out, and a recording is as large as all reports
//! together.

use std::collections::VecDeque;

use model::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use units::Nanos;

use crate::controller::Controller;
use crate::question::{Actor, Question};
use crate::service::Now;
use crate::settings::{ManagerConfig, Settings};
use crate::store::Change;
use crate::wire::{JobsReport, Register, WindowReport};

/// Of the first line.
pub const RECORDING_SCHEMA: &str = "terrace.recording/1";

/// A line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// A controller begins, or has read its store again.
    Begin {
        /// [`RECORDING_SCHEMA`].
        schema: String,
        /// Name of the configuration file.
        file: String,
        text: String,
        /// What the store had.
        saved: Vec<(String, String)>,
    },
    /// It was told something.
    Called {
        /// The controller's time.
        at_ns: u64,
        /// Wall-clock time.
        unix_ms: u64,
        call: Call,
    },
    /// It decided where data is to be.
    Decided {
        host: String,
        /// Number of the plan.
        generation: u64,
        plan: Value,
    },
}

/// What a controller is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// An agent is there.
    Register {
        host: String,
        message: Register,
    },
    /// A window.
    Report {
        host: String,
        message: Box<WindowReport>,
    },
    JobsEnded {
        host: String,
        message: JobsReport,
    },
    /// Time passes.
    Tick,
    /// Somebody orders something.
    Order {
        actor: Actor,
        order: Question,
    },
    /// The configuration was read anew.
    Reload {
        /// Who asked for that.
        actor: Actor,
        /// Name of the file.
        file: String,
        text: String,
    },
}

impl Call {
    /// Tells a controller. What it answers was answered when it was recorded.
    fn tell(self, now: Now, controller: &mut Controller) -> Result<(), String> {
        match self {
            Call::Register { host, message } => {
                let _ = controller.register(now, &host, &message);
            }
            Call::Report { host, message } => {
                let _ = controller.report(now, &host, *message);
            }
            Call::JobsEnded { host, message } => {
                let _ = controller.jobs_ended(now, &host, &message);
            }
            Call::Tick => controller.tick(now),
            Call::Order { actor, order } => {
                let _ = controller.ask(now, &actor, order);
            }
            Call::Reload { actor, file, text } => {
                let _ = controller.reload(now, &actor, settings(&file, &text)?);
            }
        }
        Ok(())
    }
}

fn settings(file: &str, text: &str) -> Result<Settings, String> {
    let (words, text) = config::read::<ManagerConfig>(file, text).map_err(|e| e.to_string())?;
    Settings::new(text, words).map_err(|e| e.to_string())
}

/// Whether a line is one that a controller begins with.
pub fn begins(line: &str) -> bool {
    matches!(serde_json::from_str(line), Ok(Entry::Begin { .. }))
}

/// A plan that was made again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MadeAgain {
    pub host: String,
    /// Its number.
    pub generation: u64,
    /// When, the controller's time.
    pub at_ns: u64,
    pub moves: usize,
    /// Whether it is the recorded one, field by field.
    pub same: bool,
}

/// A recording that is read again.
#[derive(Default)]
pub struct Replay {
    controller: Option<Controller>,
    now: Nanos,
    /// Plans that were made, and are to be in the recording next.
    made: VecDeque<(String, u64, Plan)>,
    /// Whether the last call made any.
    just_made: bool,
    /// Plans that were made, and were not in the recording when another beginning came.
    violated: usize,
}

impl Replay {
    /// Takes the next line in; the plan that it has, and whether that was made again.
    ///
    /// # Errors
    /// A line that is not understood, or does not belong here.
    pub fn line(&mut self, line: &str) -> Result<Option<MadeAgain>, String> {
        let entry = serde_json::from_str(line).map_err(|e| e.to_string())?;
        match entry {
            Entry::Begin {
                schema,
                file,
                text,
                saved,
            } => {
                if schema != RECORDING_SCHEMA {
                    let want = RECORDING_SCHEMA;
                    return Err(format!("it is of {schema:?}, this version reads {want:?}"));
                }
                let controller = Controller::new(settings(&file, &text)?, saved)?;
                self.controller = Some(controller);
                // A plan stands in a recording once it is committed. A stop, or a store that fails, can come in between: then the
                // last call's plan was never committed, and it is made anew. All others should have been there.
                let cut_off = usize::from(std::mem::take(&mut self.just_made));
                self.violated += self.made.len().saturating_sub(cut_off);
                self.made.clear();
                Ok(None)
            }
            Entry::Called {
                at_ns,
                unix_ms,
                call,
            } => {
                let began = "a recording begins with what the controller began with";
                let controller = self.controller.as_mut().ok_or(began)?;
                self.now = Nanos(at_ns);
                let at = self.now;
                call.tell(Now { at, unix_ms }, controller)?;
                self.just_made = false;
                for change in controller.take_changes() {
                    if let Change::Decision(d) = change {
                        let plan = plan_of(d.plan)?;
                        self.made.push_back((d.host, d.generation, plan));
                        self.just_made = true;
                    }
                }
                Ok(None)
            }
            Entry::Decided {
                host,
                generation,
                plan,
            } => {
                let made = self.made.pop_front();
                let plan = plan_of(plan)?;
                Ok(Some(MadeAgain {
                    at_ns: self.now.0,
                    moves: plan.moves().len(),
                    same: made.is_some_and(|m| m == (host.clone(), generation, plan)),
                    host,
                    generation,
                }))
            }
        }
    }

    /// Plans that were made and are not in what was read.
    pub fn surplus(&self) -> usize {
        self.violated + self.made.len()
    }
}

/// A plan of any version: what counts is what it says.
fn plan_of(value: Value) -> Result<Plan, String> {
    serde_json::from_value(value).map_err(|e| format!("its plan is not understood: {e}"))
}
