//! Filters of the data path: stages that a volume's requests or a device's I/O pass. Stages of volumes can be
//! switched on and off during I/O; those of a device are fixed when it is opened.
//!
//! ```text
//!  guests ──▶ measure ─▶ throttle ─▶ engine ─▶ I/O ──▶ device
//!         ◀── measure, record ◀─ inject ◀─ engine ◀─ emulate ◀──
//! ```
//!
//! Each stage is one file with its state, its behaviour at each point of the path, its commands, its status and its
//! tests. The registry at the end of this file has one line per stage and is the only list of all stages. A macro
//! makes a struct with one field per stage from it, so calls are static. A point that a stage does not use costs
//! nothing, and a stage that is off costs one check. `docs/internals/filters.md` explains how to add a stage.

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
use crate::error::DatapathError;

pub use calls::{Call, StageVolume};

/// Stage that a volume's requests pass, on the volume's worker.
///
/// Methods have defaults without effect. They must not block, and must not allocate for each request.
pub trait Stage: Sized {
    /// Settings before the volume is served. Their default applies if nothing was set.
    type Setup: Default;

    /// Commands on the control socket: an enum with the tag `ask`, whose variants each have a field `volume`.
    type Command: Serialize + DeserializeOwned;

    /// Tags of its commands. They differ from those of all other stages and of the control server.
    const WORDS: &'static [&'static str];

    /// Its fields in the status of a volume ([`crate::VolumeStatus`]); `()` for none.
    type Status: Default + Serialize + DeserializeOwned;

    /// Its fields in samples ([`crate::control_server::VolumeSample`]), of which there may be thousands at once.
    /// Their default is the sample of a volume that is not served. `()` for none.
    type Sample: Default + Serialize + DeserializeOwned;

    /// Creates the stage when the volume begins to be served.
    fn new(setup: Self::Setup, map: &VolumeMap, now_ns: u64) -> Self;

    /// Handles the arrival of a request. Returns the time at which the request may go to the engine, in nanoseconds;
    /// a past time, such as 0, means at once. The latest time of all stages applies.
    #[inline]
    fn arrived(&mut self, now_ns: u64, request: &GuestRequest) -> u64 {
        let _ = (now_ns, request);
        0
    }

    /// Returns the delay of a reply after the engine has completed its request, in nanoseconds. The longest delay of
    /// all stages applies.
    #[inline]
    fn hold_ns(&self, request: &GuestRequest) -> u64 {
        let _ = request;
        0
    }

    /// Reports the actual delay of a reply in nanoseconds. Not called for replies that no stage delays.
    #[inline]
    fn held(&mut self, request: &GuestRequest, held_ns: u64) {
        let _ = (request, held_ns);
    }

    /// Handles the completion of a request.
    #[inline]
    fn answered(&mut self, request: &GuestRequest, how: &Completion) {
        let _ = (request, how);
    }

    /// Adapts to a larger volume.
    fn grew(&mut self, map: &VolumeMap, now_ns: u64) {
        let _ = (map, now_ns);
    }

    /// Does periodic work, at intervals of at most some hundred milliseconds.
    fn tick(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Returns the status.
    fn status(&self, now_ns: u64) -> Self::Status {
        let _ = now_ns;
        Self::Status::default()
    }

    /// Returns the short status, at a time that may be slightly in the past.
    fn sample(&self, at_ns: u64) -> Self::Sample {
        let _ = at_ns;
        Self::Sample::default()
    }

    /// Checks a command independent of the state of the array. Both sides of the socket call it, because JSON cannot
    /// represent all values of Rust.
    ///
    /// # Errors
    /// [`DatapathError::Invalid`].
    fn check(command: &Self::Command) -> Result<(), DatapathError> {
        let _ = command;
        Ok(())
    }

    /// Carries out a command on the caller's thread. Parts that belong to the worker run there
    /// (`ControlServer::at_stages`).
    ///
    /// # Errors
    /// [`DatapathError`].
    fn carry_out(
        command: Self::Command,
        control_server: &ControlServer,
    ) -> Result<ControlAnswer, DatapathError>;
}

/// Completion of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Current time in nanoseconds.
    pub at_ns: u64,
    /// Arrival time in nanoseconds.
    pub arrival_ns: u64,
    /// Part of the time between them for which the reply was delayed, in nanoseconds.
    pub held_ns: u64,
    /// True if the request succeeded.
    pub ok: bool,
    /// True if the cache served the request: no device took part in it.
    pub from_memory: bool,
}

impl Completion {
    /// Returns the time from arrival to reply in nanoseconds, as the guest sees it.
    #[inline]
    pub fn latency_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.arrival_ns)
    }
}

/// Stage that all I/O on a device passes, from all workers.
pub trait DeviceStage: Default {
    /// Its fields in samples ([`crate::control_server::DeviceSample`]). Their default is the sample of a device that
    /// cannot be used. `()` for none.
    type Sample: Default + Serialize + DeserializeOwned;

    /// Creates the stage when a device is opened. Devices outside of an array, and unusable ones, get the default
    /// instead.
    fn new(record: &DeviceRecord) -> Self;

    /// Handles the start of an I/O. Returns the earliest time of its completion in nanoseconds; a past time, such as
    /// 0, means when the device completes it. The latest time of all stages applies.
    #[inline]
    fn over_at(&self, now_ns: u64, op: Op, bytes: u64) -> u64 {
        let _ = (now_ns, op, bytes);
        0
    }

    /// Returns the short status.
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

        /// Initial settings of the stages.
        #[derive(Debug, Default)]
        pub struct StagesSetup {
            $($(#[$only])* pub $stage: <$stage::$Stage as Stage>::Setup,)*
        }

        /// Status of a volume's stages. In JSON, the fields of all stages form one object.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct StagesStatus {
            $($(#[$only])* #[serde(flatten)] pub $stage: <$stage::$Stage as Stage>::Status,)*
        }

        /// Short status of a volume's stages. In JSON, the fields of all stages form one object.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct StagesSample {
            $($(#[$only])* #[serde(flatten)] pub $stage: <$stage::$Stage as Stage>::Sample,)*
        }

        /// Command of a stage.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Command {
            $($(#[$only])* $Stage(<$stage::$Stage as Stage>::Command),)*
        }

        impl Stages {
            /// Names of all stages, which are those of their fields, with their command tags.
            pub const ALL: &[(&str, &[&str])] = &[
                $($(#[$only])* (stringify!($stage), <$stage::$Stage as Stage>::WORDS),)*
            ];

            /// Creates the stages when the volume begins to be served.
            pub fn new(setup: StagesSetup, map: &VolumeMap, now_ns: u64) -> Self {
                Self {
                    $($(#[$only])* $stage: Stage::new(setup.$stage, map, now_ns),)*
                }
            }

            /// Handles the arrival of a request. Returns the time at which it may continue, in nanoseconds.
            #[inline]
            pub fn arrived(&mut self, now_ns: u64, request: &GuestRequest) -> u64 {
                let mut go_ns = 0;
                $($(#[$only])* { go_ns = go_ns.max(self.$stage.arrived(now_ns, request)); })*
                go_ns
            }

            /// Returns the delay of a reply in nanoseconds.
            #[inline]
            pub fn hold_ns(&self, request: &GuestRequest) -> u64 {
                let mut hold_ns = 0;
                $($(#[$only])* { hold_ns = hold_ns.max(self.$stage.hold_ns(request)); })*
                hold_ns
            }

            /// Reports the actual delay of a reply in nanoseconds.
            #[inline]
            pub fn held(&mut self, request: &GuestRequest, held_ns: u64) {
                $($(#[$only])* self.$stage.held(request, held_ns);)*
            }

            /// Handles the completion of a request.
            #[inline]
            pub fn answered(&mut self, request: &GuestRequest, how: &Completion) {
                $($(#[$only])* self.$stage.answered(request, how);)*
            }

            /// Adapts to a larger volume.
            pub fn grew(&mut self, map: &VolumeMap, now_ns: u64) {
                $($(#[$only])* self.$stage.grew(map, now_ns);)*
            }

            /// Does periodic work.
            pub fn tick(&mut self, now_ns: u64) {
                $($(#[$only])* self.$stage.tick(now_ns);)*
            }

            /// Returns the status of all stages.
            pub fn status(&self, now_ns: u64) -> StagesStatus {
                StagesStatus {
                    $($(#[$only])* $stage: self.$stage.status(now_ns),)*
                }
            }

            /// Returns the short status of all stages.
            pub fn sample(&self, at_ns: u64) -> StagesSample {
                StagesSample {
                    $($(#[$only])* $stage: self.$stage.sample(at_ns),)*
                }
            }
        }

        impl Command {
            /// Parses a request; `None` if no stage has this command.
            pub fn read(request: &Value) -> Option<serde_json::Result<Self>> {
                let tag = request.get("ask")?.as_str()?;
                $($(#[$only])* if <$stage::$Stage as Stage>::WORDS.contains(&tag) {
                    let command = <$stage::$Stage as Stage>::Command::deserialize(request);
                    return Some(command.map(Command::$Stage));
                })*
                None
            }

            /// Checks the command independent of the state of the array.
            ///
            /// # Errors
            /// [`DatapathError::Invalid`].
            pub fn check(&self) -> Result<(), DatapathError> {
                match self {
                    $($(#[$only])* Command::$Stage(command) => <$stage::$Stage as Stage>::check(command),)*
                }
            }

            /// Carries out the command.
            ///
            /// # Errors
            /// [`DatapathError`].
            pub fn carry_out(self, control_server: &ControlServer) -> Result<ControlAnswer, DatapathError> {
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
        /// Stages of one device, in the order in which I/O passes them.
        #[derive(Debug, Default)]
        pub struct DeviceStages {
            $(pub $stage: $stage::$Stage,)*
        }

        /// Short status of a device's stages. In JSON, the fields of all stages form one object.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        pub struct DeviceStagesSample {
            $(#[serde(flatten)] pub $stage: <$stage::$Stage as DeviceStage>::Sample,)*
        }

        impl DeviceStages {
            /// Names of all stages.
            pub const ALL: &[&str] = &[$(stringify!($stage),)*];

            /// Creates the stages when the device is opened.
            pub fn new(record: &DeviceRecord) -> Self {
                Self {
                    $($stage: DeviceStage::new(record),)*
                }
            }

            /// Handles the start of an I/O. Returns the earliest time of its completion in nanoseconds.
            #[inline]
            pub fn over_at(&self, now_ns: u64, op: Op, bytes: u64) -> u64 {
                let mut over_ns = 0;
                $(over_ns = over_ns.max(self.$stage.over_at(now_ns, op, bytes));)*
                over_ns
            }

            /// Returns the short status of all stages.
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
