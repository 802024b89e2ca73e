//! Recording of a controller's inputs and decisions, one per line, to repeat decisions on another
//! machine.
//!
//! ```text
//!   begin {configuration, stored values} ─ call ─ call ─ decided ─ call ─ …     one JSON object per line
//! ```
//!
//! A controller is a deterministic function of its stored values and its inputs
//! ([`crate::controller`]). A replay therefore yields the same plans. A different plan means a
//! difference between two versions, or a defect.
//!
//! A recording is neither an audit log nor a backup. It omits questions, and it is as large as all
//! reports together.

use std::collections::VecDeque;

use config::ConfigFault;
use model::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use units::Nanos;

use crate::ManagerError;
use crate::controller::Controller;
use crate::question::{Actor, Question};
use crate::service::Now;
use crate::settings::{ManagerConfig, Settings};
use crate::store::Change;
use crate::wire::{JobsReport, Register, WindowReport};

/// Schema name in the first line.
pub const RECORDING_SCHEMA: &str = "terrace.recording/1";

/// Line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entry {
    /// The controller started, or read its store again.
    Begin {
        /// [`RECORDING_SCHEMA`].
        schema: String,
        /// Name of the configuration file.
        file: String,
        text: String,
        /// Named values in the store.
        saved: Vec<(String, String)>,
    },
    /// The controller received an input.
    Called {
        /// Controller time, nanoseconds.
        at_ns: u64,
        /// Wall-clock time, milliseconds since 1970.
        unix_ms: u64,
        call: Call,
    },
    /// The controller made a decision about placement.
    Decided {
        host: String,
        /// Number of the plan.
        generation: u64,
        plan: Value,
    },
}

/// Input of a controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Call {
    /// An agent registered.
    Register {
        host: String,
        message: Register,
    },
    /// An agent reported a window.
    Report {
        host: String,
        message: Box<WindowReport>,
    },
    JobsEnded {
        host: String,
        message: JobsReport,
    },
    /// Time passed.
    Tick,
    /// An operator gave an order.
    Order {
        actor: Actor,
        order: Question,
    },
    /// The configuration was reloaded.
    Reload {
        /// Author of the reload.
        actor: Actor,
        /// Name of the file.
        file: String,
        text: String,
    },
}

impl Call {
    /// Passes the input to a controller. The result is ignored, because it was delivered at the
    /// time of the recording.
    fn tell(self, now: Now, controller: &mut Controller) -> Result<(), ManagerError> {
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

fn settings(file: &str, text: &str) -> Result<Settings, ConfigFault> {
    let (words, text) = config::read::<ManagerConfig>(file, text)?;
    Settings::new(text, words)
}

/// Returns true if the line starts a recording of a controller.
pub fn begins(line: &str) -> bool {
    matches!(serde_json::from_str(line), Ok(Entry::Begin { .. }))
}

/// Plan that a replay has repeated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepeatedPlan {
    pub host: String,
    /// Number of the plan.
    pub generation: u64,
    /// Controller time of the decision, nanoseconds.
    pub at_ns: u64,
    pub moves: usize,
    /// True if it equals the recorded plan, field by field.
    pub same: bool,
}

/// Replay of a recording.
#[derive(Default)]
pub struct Replay {
    controller: Option<Controller>,
    now: Nanos,
    /// Plans of the replay that the recording must contain next.
    made: VecDeque<(String, u64, Plan)>,
    /// True if the last input led to a plan.
    just_made: bool,
    /// Plans of the replay that were missing in the recording before the controller started again.
    violated: usize,
}

impl Replay {
    /// Processes the next line. Returns the recorded plan, if the line has one, and the result of
    /// its comparison.
    ///
    /// # Errors
    /// [`ManagerError`], if the line is not valid, or not expected here.
    pub fn line(&mut self, line: &str) -> Result<Option<RepeatedPlan>, ManagerError> {
        match serde_json::from_str(line)? {
            Entry::Begin {
                schema,
                file,
                text,
                saved,
            } => {
                if schema != RECORDING_SCHEMA {
                    return Err(ManagerError::Schema {
                        found: schema,
                        known: RECORDING_SCHEMA,
                    });
                }
                let controller = Controller::new(settings(&file, &text)?, saved)?;
                self.controller = Some(controller);
                // A plan is recorded after its commit. If the controller stops or its store fails
                // before, the plan of the last input is not recorded and is made again. All earlier
                // plans must be in the recording.
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
                let controller = self.controller.as_mut();
                let controller = controller.ok_or(ManagerError::NoBeginning)?;
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
                Ok(Some(RepeatedPlan {
                    at_ns: self.now.0,
                    moves: plan.moves().len(),
                    same: made.is_some_and(|m| m == (host.clone(), generation, plan)),
                    host,
                    generation,
                }))
            }
        }
    }

    /// Returns the number of plans of the replay that the recording does not contain.
    pub fn surplus(&self) -> usize {
        self.violated + self.made.len()
    }
}

/// Reads a plan of any version. Unknown fields do not matter.
fn plan_of(value: Value) -> Result<Plan, ManagerError> {
    serde_json::from_value(value).map_err(ManagerError::RecordedPlan)
}
