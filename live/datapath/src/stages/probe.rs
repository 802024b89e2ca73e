//! Filter for tests: it uses everything that a filter can do with one file and one line of the registry.

use serde::{Deserialize, Serialize};
use volume::VolumeMap;

use super::{Completion, Stage};
use crate::control_server::{ControlAnswer, ControlServer};
use crate::engine::GuestRequest;
use crate::error::{DatapathError, Result};

/// Counts requests and, on command, delays them at both ends.
#[derive(Debug)]
pub struct Probe {
    hold_ns: u64,
    seen: Status,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    ProbeHold { volume: String, hold_ns: u64 },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    #[serde(default)]
    pub probe_arrived: u64,
    #[serde(default)]
    pub probe_held: u64,
    #[serde(default)]
    pub probe_answered: u64,
    #[serde(default)]
    pub probe_ticks: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    #[serde(default)]
    pub probe_latency_ns: u64,
}

impl Stage for Probe {
    type Setup = ();
    type Command = Command;
    const WORDS: &'static [&'static str] = &["probe-hold"];
    type Status = Status;
    type Sample = Sample;

    fn new((): (), _: &VolumeMap, _: u64) -> Self {
        Self {
            hold_ns: 0,
            seen: Status::default(),
        }
    }

    fn arrived(&mut self, now_ns: u64, _: &GuestRequest) -> u64 {
        self.seen.probe_arrived += 1;
        now_ns + self.hold_ns
    }

    fn hold_ns(&self, _: &GuestRequest) -> u64 {
        self.hold_ns
    }

    fn held(&mut self, _: &GuestRequest, held_ns: u64) {
        assert!(held_ns >= self.hold_ns);
        self.seen.probe_held += 1;
    }

    fn answered(&mut self, _: &GuestRequest, how: &Completion) {
        assert!(how.ok && how.latency_ns() >= 2 * self.hold_ns);
        self.seen.probe_answered += 1;
    }

    fn tick(&mut self, _: u64) {
        self.seen.probe_ticks += 1;
    }

    fn status(&self, _: u64) -> Status {
        self.seen
    }

    fn sample(&self, _: u64) -> Sample {
        Sample {
            probe_latency_ns: 2 * self.hold_ns,
        }
    }

    fn check(command: &Command) -> Result<()> {
        let Command::ProbeHold { hold_ns, .. } = command;
        match hold_ns {
            ..1_000_000_000 => Ok(()),
            _ => Err(DatapathError::Invalid("the delay must be below 1 s".into())),
        }
    }

    fn carry_out(command: Command, control_server: &ControlServer) -> Result<ControlAnswer> {
        let Command::ProbeHold { volume, hold_ns } = command;
        control_server.at_stages(&volume, move |v| {
            v.stages.probe.hold_ns = hold_ns;
            Ok(())
        })?;
        Ok(ControlAnswer::done(format!("{volume} is held back")))
    }
}
