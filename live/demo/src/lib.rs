//! Demonstration: the whole live manager with real data paths, in one process and a temporary directory, for a few
//! minutes.
//!
//! ```text
//!  clients ══NBD, unix socket══▶ data path (three emulated tiers) ◀── agent ──▶ controller ◀── you: page, CLI
//! ```
//!
//! Twelve volumes of four VMs in three service classes begin on the wrong tiers. After half of the time the loads
//! change. Only the speed of the devices is emulated: guests are NBD clients, calibration injects latency, moves copy
//! data. Control volumes, outside the manager's decisions, measure the noise of the host. Time is scaled down: windows
//! take a second, and placement is decided every quarter of a minute. The results show the behaviour of the manager,
//! not the speed of your devices.

mod array;
mod clients;
mod control;
mod error;
mod loads;
mod run;
mod tally;
mod violation;

pub use error::DemoError;
pub use loads::{CLASSES, Class, LOADS, Load};
pub use run::{Demo, DemoEvent, DemoResult, DemoSettings, run};
pub use tally::{ClassNumbers, SteadyWindows, Stretch};
pub use violation::{ViolationResult, ViolationStretch, violation};
