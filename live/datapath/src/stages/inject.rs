//! Latency sessions: each reply is delayed by a configured time, and the actual delay is measured.
//!
//! Calibration (paper 0 §III-B) regresses on the measured delay, never on the configured one: timers are late, and a
//! busy worker is later. The worker delays a reply with an absolute timer and spins for the last part.

use algo::Histogram;
use serde::{Deserialize, Serialize};
use units::Nanos;
use volume::VolumeMap;

use super::Stage;
use super::measure::Latency;
use crate::control_server::{ControlAnswer, ControlServer};
use crate::engine::{GuestOp, GuestRequest};
use crate::error::Result;

/// Delays replies to reads and writes during a session.
#[derive(Debug)]
pub struct Inject {
    session: Option<Session>,
    /// Measurements of the last session.
    last: Option<InjectedDelay>,
}

/// Session in progress.
#[derive(Debug)]
struct Session {
    /// Configured delay of reads and of writes, in nanoseconds.
    delay_ns: [u64; 2],
    /// End of the session.
    until_ns: u64,
    added: Histogram,
    late: Histogram,
}

/// Measurements of a session.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
pub struct InjectedDelay {
    /// Configured delay of reads in microseconds.
    pub wanted_read_us: f64,
    /// Configured delay of writes in microseconds.
    pub wanted_write_us: f64,
    /// Actual delay of replies.
    pub added: Latency,
    /// Excess of the actual delay over the configured one.
    pub late: Latency,
}

impl Session {
    fn read(&self) -> InjectedDelay {
        InjectedDelay {
            wanted_read_us: self.delay_ns[0] as f64 / 1e3,
            wanted_write_us: self.delay_ns[1] as f64 / 1e3,
            added: Latency::of(&self.added),
            late: Latency::of(&self.late),
        }
    }

    /// Returns the configured delay; `None` for operations that a session does not delay.
    #[inline]
    fn wanted_ns(&self, op: GuestOp) -> Option<u64> {
        match op {
            GuestOp::Read => Some(self.delay_ns[0]),
            GuestOp::Write => Some(self.delay_ns[1]),
            _ => None,
        }
    }
}

/// Commands of the stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    /// Start a latency session in place of the previous one.
    Inject {
        /// Name of the volume.
        volume: String,
        /// Delay of reads.
        read: Nanos,
        /// Delay of writes.
        write: Nanos,
        /// Length of the session; zero only ends the previous session.
        lasting: Nanos,
    },
}

/// Status of the stage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Latency session in progress, or else the last one.
    pub injected: Option<InjectedDelay>,
    /// True during a latency session.
    pub injecting: bool,
}

/// Short status of the stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// True during a latency session.
    pub injecting: bool,
}

impl Inject {
    /// Begins a session of `for_ns` nanoseconds with these delays of reads and writes in nanoseconds. Ends the
    /// previous session.
    pub(crate) fn begin(&mut self, now_ns: u64, delay_ns: [u64; 2], for_ns: u64) {
        let session = (for_ns > 0).then(|| Session {
            delay_ns,
            until_ns: now_ns.saturating_add(for_ns),
            added: Histogram::default(),
            late: Histogram::default(),
        });
        if let Some(before) = std::mem::replace(&mut self.session, session) {
            self.last = Some(before.read());
        }
    }
}

impl Stage for Inject {
    type Setup = ();
    type Command = Command;
    const WORDS: &'static [&'static str] = &["inject"];
    type Status = Status;
    type Sample = Sample;

    fn new((): (), _: &VolumeMap, _: u64) -> Self {
        Self {
            session: None,
            last: None,
        }
    }

    #[inline]
    fn hold_ns(&self, request: &GuestRequest) -> u64 {
        let session = self.session.as_ref();
        session.and_then(|s| s.wanted_ns(request.op)).unwrap_or(0)
    }

    fn held(&mut self, request: &GuestRequest, held_ns: u64) {
        if let Some(session) = &mut self.session
            && let Some(wanted_ns) = session.wanted_ns(request.op)
        {
            session.added.record(held_ns);
            session.late.record(held_ns.saturating_sub(wanted_ns));
        }
    }

    fn tick(&mut self, now_ns: u64) {
        if let Some(session) = self.session.take_if(|s| s.until_ns <= now_ns) {
            self.last = Some(session.read());
        }
    }

    fn status(&self, _: u64) -> Status {
        let session = self.session.as_ref();
        Status {
            injected: session.map(Session::read).or(self.last),
            injecting: session.is_some(),
        }
    }

    fn sample(&self, _: u64) -> Sample {
        Sample {
            injecting: self.session.is_some(),
        }
    }

    fn carry_out(command: Command, control_server: &ControlServer) -> Result<ControlAnswer> {
        let Command::Inject {
            volume,
            read,
            write,
            lasting,
        } = command;
        control_server.at_stages(&volume, move |v| {
            let delay_ns = [read.0, write.0];
            v.stages.inject.begin(v.now_ns, delay_ns, lasting.0);
            Ok(())
        })?;
        Ok(ControlAnswer::done(format!(
            "delaying requests of volume {volume} for {lasting}: reads by {read}, writes by {write}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::tests::request;

    fn inject() -> Inject {
        let map = crate::stages::tests::map();
        Inject::new((), &map, 0)
    }

    #[test]
    fn injected_delay_applies_to_reads_and_writes_only() {
        let mut inject = inject();
        let hold = |inject: &Inject| {
            [GuestOp::Read, GuestOp::Write, GuestOp::Trim, GuestOp::Flush]
                .map(|op| inject.hold_ns(&request(op, 0, 512)))
        };
        assert_eq!(hold(&inject), [0; 4]);
        inject.begin(100, [7, 9], 50);
        assert_eq!(hold(&inject), [7, 9, 0, 0]);
        inject.tick(149);
        assert_eq!(hold(&inject), [7, 9, 0, 0]);
        inject.tick(150);
        assert_eq!(hold(&inject), [0; 4]);
    }

    #[test]
    fn ended_injection_session_remains_in_the_status() {
        let mut inject = inject();
        assert_eq!(inject.status(0), Status::default());
        inject.begin(0, [10_000, 0], 1_000_000);
        inject.held(&request(GuestOp::Read, 0, 512), 12_000);
        let under_way = inject.status(1);
        assert!(under_way.injecting && inject.sample(1).injecting);
        let injected = under_way.injected.unwrap();
        assert_eq!((injected.added.count, injected.wanted_read_us), (1, 10.0));
        assert!(injected.late.mean_us > 1.9 && injected.late.mean_us < 2.1);
        inject.tick(1_000_000);
        let over = inject.status(1_000_001);
        assert_eq!((over.injected, over.injecting), (Some(injected), false));
        // A session that was replaced by another one can also be read.
        inject.begin(2_000_000, [0, 5_000], 1_000_000);
        inject.begin(2_000_000, [0, 0], 0);
        let ended = inject.status(2_000_000);
        assert!(!ended.injecting);
        assert_eq!(ended.injected.map(|i| i.wanted_write_us), Some(5.0));
    }

    #[test]
    fn injection_session_without_end_does_not_end() {
        let mut inject = inject();
        inject.begin(5, [1, 1], u64::MAX);
        inject.tick(u64::MAX - 1);
        assert!(inject.sample(0).injecting);
    }
}
