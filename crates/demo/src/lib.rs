//! The demonstration: the whole live manager on real data paths, in one process and a temporary directory, for a few minutes.
//!
//! ```text
//!  clients ══NBD, unix socket══▶ data path (three emulated tiers) ◀── agent ──▶ controller ◀── you: page, CLI
//! ```
//!
//! Twelve volumes of four VMs in three service classes begin on the wrong tiers; half of the way through, the loads change. Nothing is
//! faked but the devices' speed, which is emulated: guests are NBD clients, calibration injects latency, moves copy data.
//! Beside them are controls that no decision sees: what they miss is the machine's doing.
//! Time is scaled down: windows are a second, decisions about placement a quarter of a minute apart. So the numbers say
//! how the manager acts, not how fast your devices are.

mod array;
mod clients;
mod control;
mod loads;
mod run;
mod tally;
mod violation;

pub use loads::{CLASSES, Class, LOADS, Load};
pub use run::{Demo, DemoError, DemoEvent, DemoResult, DemoSettings, run};
pub use tally::{Adapted, ClassNumbers, Stretch};
pub use violation::{ViolationResult, ViolationStretch, violation};
