//! The filters of the data path: stages that a volume's requests pass, or the I/O of a device. Those of volumes are switched on
//! and off while I/O runs; a device has its own from the start.
//!
//! ```text
//!  guests ──▶ measure ─▶ throttle ─▶ engine ─▶ I/O ──▶ device
//!         ◀── measure, record ◀─ inject ◀─ engine ◀─ emulate ◀──
//! ```
//!
//! A stage is a file: its state, what it does at each point of the path, the commands that it understands, what it says of itself, and
//! tests. The lists at the end of this file have a line for each, and there is no other place that knows them all. A list
//! becomes a struct with a field for each stage: calls are static, a point of the path that a stage leaves out costs nothing, and
//! one that is off costs a look at whether it is on. `docs/internals/filters.md` says how to add one.

mod calls;
pub mod emulate;
pub mod inject;
pub mod measure;
#[cfg(test)]
mod probe;
pub mod record;
#[cfg(test)]
mod tests;
pub mod throttle;

use array::DeviceRecord;
use model::Op;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use volume::VolumeMap;

use crate::control_server::{ControlAnswer, ControlRequest, ControlServer};
use crate::engine::GuestRequest;

pub use calls::{Call, Served};

/// A stage that a volume's requests pass, on the volume's worker.
///
/// What it leaves out it does not do. Nothing here may wait, or allocate for each request.
pub trait Stage: Sized {
    /// What is decided before the volume is served; by default, what it begins with where nothing was.
    type Setup: Default;

    /// What may be asked of it on the control socket: an enum with the tag `ask`, each of whose variants names a `volume`.
    type Command: Serialize + DeserializeOwned;

    /// The tags of its commands. No two stages have the same, and none that the control server has itself.
    const WORDS: &'static [&'static str];

    /// Its fields in the status of a volume ([`crate::VolumeStatus`]); `()` for none.
    type Status: Default + Serialize + DeserializeOwned;

    /// Its fields in samples ([`crate::control_server::VolumeSample`]), of which there may be thousands at once; by default, those of a volume that
    /// is not served. `()` for none.
    type Sample: Default + Serialize + DeserializeOwned;

    /// A volume is served from now on.
    fn new(setup: Self::Setup, map: &VolumeMap, now_ns: u64) -> Self;

    /// A request has arrived. The time at which it may go to the engine, in nanoseconds; any that is over, such as 0, is at once.
    /// When stages differ it goes at the latest.
    #[inline]
    fn arrived(&mut self, now_ns: u64, request: &GuestRequest) -> u64 {
        let _ = (now_ns, request);
        0
    }

    /// The engine is done with a request. For how long its answer is to be held back, in nanoseconds. When stages differ it is
    /// for the longest.
    #[inline]
    fn hold_ns(&self, request: &GuestRequest) -> u64 {
        let _ = request;
        0
    }

    /// An answer was held back for so long, in nanoseconds. Those that no stage wanted to hold back are not told.
    #[inline]
    fn held(&mut self, request: &GuestRequest, held_ns: u64) {
        let _ = (request, held_ns);
    }

    /// A request is answered now.
    #[inline]
    fn answered(&mut self, request: &GuestRequest, how: &Answered) {
        let _ = (request, how);
    }

    /// The volume is larger from now on.
    fn grew(&mut self, map: &VolumeMap, now_ns: u64) {
        let _ = (map, now_ns);
    }

    /// Some time has passed, some hundred milliseconds at most.
    fn tick(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// How it is.
    fn status(&self, now_ns: u64) -> Self::Status {
        let _ = now_ns;
        Self::Status::default()
    }

    /// How it is, briefly, at a time that may be a little before now.
    fn sample(&self, at_ns: u64) -> Self::Sample {
        let _ = at_ns;
        Self::Sample::default()
    }

    /// Whether a command makes sense whatever the array is like. It is asked on both sides of the socket: JSON cannot say all that Rust can.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    fn check(command: &Self::Command) -> Result<(), String> {
        let _ = command;
        Ok(())
    }

    /// Does what an operator says, on the thread of whoever asks; what of it is the worker's is done there (`ControlServer::at_stages`).
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    fn carry_out(
        command: Self::Command,
        control_server: &ControlServer,
    ) -> Result<ControlAnswer, String>;
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Now, in nanoseconds.
    pub at_ns: u64,
    /// When it arrived.
    pub arrival_ns: u64,
    /// How much of the time between was its answer being held back.
    pub held_ns: u64,
    /// Whether without an error.
    pub ok: bool,
    /// Whether from the cache's memory: no device had anything to do with it.
    pub from_memory: bool,
}

impl Answered {
    /// From its arrival to its answer, in nanoseconds: what the guest sees.
    #[inline]
    pub fn latency_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.arrival_ns)
    }
}

/// A stage that all I/O on a device passes, from all workers.
pub trait DeviceStage: Default {
    /// Its fields in samples ([`crate::control_server::DeviceSample`]); by default, those of a device that cannot be used. `()` for none.
    type Sample: Default + Serialize + DeserializeOwned;

    /// A device is opened. One that is no part of an array, or cannot be used, has what is by default.
    fn new(record: &DeviceRecord) -> Self;

    /// An I/O begins. The time at which it may be over at the earliest, in nanoseconds; any that is over, such as 0, is when the
    /// device says so. When stages differ it is the latest.
    #[inline]
    fn over_at(&self, now_ns: u64, op: Op, bytes: u64) -> u64 {
        let _ = (now_ns, op, bytes);
        0
    }

    /// How it is.
    fn sample(&self) -> Self::Sample {
        Self::Sample::default()
    }
}

macro_rules! stages {
    ($($(#[$only:meta])* $stage:ident $Stage:ident,)*) => {
        /// The stages of one volume, in the order in which requests pass them.
        #[derive(Debug)]
        pub struct Stages {
            $($(#[$only])* pub $stage: $stage::$Stage,)*
        }

        /// What stages begin with.
        #[derive(Debug, Default)]
        pub struct StagesSetup {
            $($(#[$only])* pub $stage: <$stage::$Stage as Stage>::Setup,)*
        }

        /// How the stages of a volume are; in JSON, their fields without their names.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct StagesStatus {
            $($(#[$only])* #[serde(flatten)] pub $stage: <$stage::$Stage as Stage>::Status,)*
        }

        /// How the stages of a volume are, briefly; in JSON, their fields without their names.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct StagesSample {
            $($(#[$only])* #[serde(flatten)] pub $stage: <$stage::$Stage as Stage>::Sample,)*
        }

        /// A command for a stage.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Command {
            $($(#[$only])* $Stage(<$stage::$Stage as Stage>::Command),)*
        }

        impl Stages {
            /// Names of all, which are those of their fields, and their words.
            pub const ALL: &[(&str, &[&str])] = &[
                $($(#[$only])* (stringify!($stage), <$stage::$Stage as Stage>::WORDS),)*
            ];

            /// A volume is served from now on.
            pub fn new(setup: StagesSetup, map: &VolumeMap, now_ns: u64) -> Self {
                Self {
                    $($(#[$only])* $stage: Stage::new(setup.$stage, map, now_ns),)*
                }
            }

            /// A request has arrived: the time at which it may go on, in nanoseconds.
            #[inline]
            pub fn arrived(&mut self, now_ns: u64, request: &GuestRequest) -> u64 {
                let mut go_ns = 0;
                $($(#[$only])* { go_ns = go_ns.max(self.$stage.arrived(now_ns, request)); })*
                go_ns
            }

            /// For how long an answer is to be held back, in nanoseconds.
            #[inline]
            pub fn hold_ns(&self, request: &GuestRequest) -> u64 {
                let mut hold_ns = 0;
                $($(#[$only])* { hold_ns = hold_ns.max(self.$stage.hold_ns(request)); })*
                hold_ns
            }

            /// An answer was held back for so long, in nanoseconds.
            #[inline]
            pub fn held(&mut self, request: &GuestRequest, held_ns: u64) {
                $($(#[$only])* self.$stage.held(request, held_ns);)*
            }

            /// A request is answered now.
            #[inline]
            pub fn answered(&mut self, request: &GuestRequest, how: &Answered) {
                $($(#[$only])* self.$stage.answered(request, how);)*
            }

            /// The volume is larger from now on.
            pub fn grew(&mut self, map: &VolumeMap, now_ns: u64) {
                $($(#[$only])* self.$stage.grew(map, now_ns);)*
            }

            /// Some time has passed.
            pub fn tick(&mut self, now_ns: u64) {
                $($(#[$only])* self.$stage.tick(now_ns);)*
            }

            /// How they are.
            pub fn status(&self, now_ns: u64) -> StagesStatus {
                StagesStatus {
                    $($(#[$only])* $stage: self.$stage.status(now_ns),)*
                }
            }

            /// How they are, briefly.
            pub fn sample(&self, at_ns: u64) -> StagesSample {
                StagesSample {
                    $($(#[$only])* $stage: self.$stage.sample(at_ns),)*
                }
            }
        }

        impl Command {
            /// Reads a request; none if no stage has that command.
            pub fn read(request: &Value) -> Option<serde_json::Result<Self>> {
                let tag = request.get("ask")?.as_str()?;
                $($(#[$only])* if <$stage::$Stage as Stage>::WORDS.contains(&tag) {
                    let command = <$stage::$Stage as Stage>::Command::deserialize(request);
                    return Some(command.map(Command::$Stage));
                })*
                None
            }

            /// Whether it makes sense whatever the array is like.
            ///
            /// # Errors
            /// A sentence that says what is wrong.
            pub fn check(&self) -> Result<(), String> {
                match self {
                    $($(#[$only])* Command::$Stage(command) => <$stage::$Stage as Stage>::check(command),)*
                }
            }

            /// Does what it says.
            ///
            /// # Errors
            /// A sentence that says what is wrong.
            pub fn carry_out(self, control_server: &ControlServer) -> Result<ControlAnswer, String> {
                match self {
                    $($(#[$only])* Command::$Stage(command) => <$stage::$Stage as Stage>::carry_out(command, control_server),)*
                }
            }
        }

        $($(#[$only])*
        impl From<<$stage::$Stage as Stage>::Command> for ControlRequest {
            fn from(command: <$stage::$Stage as Stage>::Command) -> Self {
                ControlRequest::Stage(Command::$Stage(command))
            }
        })*
    };
}

macro_rules! device_stages {
    ($($stage:ident $Stage:ident,)*) => {
        /// The stages of one device, in the order in which I/O passes them.
        #[derive(Debug, Default)]
        pub struct DeviceStages {
            $(pub $stage: $stage::$Stage,)*
        }

        /// How the stages of a device are; in JSON, their fields without their names.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct DeviceStagesSample {
            $(#[serde(flatten)] pub $stage: <$stage::$Stage as DeviceStage>::Sample,)*
        }

        impl DeviceStages {
            /// Names of all.
            pub const ALL: &[&str] = &[$(stringify!($stage),)*];

            /// A device is opened.
            pub fn new(record: &DeviceRecord) -> Self {
                Self {
                    $($stage: DeviceStage::new(record),)*
                }
            }

            /// An I/O begins: the time at which it may be over at the earliest, in nanoseconds.
            #[inline]
            pub fn over_at(&self, now_ns: u64, op: Op, bytes: u64) -> u64 {
                let mut over_ns = 0;
                $(over_ns = over_ns.max(self.$stage.over_at(now_ns, op, bytes));)*
                over_ns
            }

            /// How they are.
            pub fn sample(&self) -> DeviceStagesSample {
                DeviceStagesSample {
                    $($stage: self.$stage.sample(),)*
                }
            }
        }
    };
}

stages! {
    measure Measure,
    throttle Throttle,
    inject Inject,
    record Recording,
    #[cfg(test)]
    probe Probe,
}

device_stages! {
    emulate Emulate,
}
