//! Latency sessions: every answer is held back by a wanted time, and what it was really held back is measured.
//!
//! Calibration (paper 0 §III-B) regresses on the measured delay, never on the wanted one: timers are late, and a busy worker
//! is later. The worker holds the answer with an absolute timer and spins for the last stretch of it.

use algo::Histogram;
use serde::{Deserialize, Serialize};
use units::Nanos;
use volume::VolumeMap;

use super::Stage;
use super::measure::Latency;
use crate::control_server::{ControlAnswer, ControlServer};
use crate::engine::{GuestOp, GuestRequest};

/// Holds answers to reads and writes back while a session lasts.
#[derive(Debug)]
pub struct Inject {
    session: Option<Session>,
    /// What the last session measured.
    last: Option<Injected>,
}

/// A session under way.
#[derive(Debug)]
struct Session {
    /// Wanted delay of reads and of writes, in nanoseconds.
    delay_ns: [u64; 2],
    /// When it ends by itself.
    until_ns: u64,
    added: Histogram,
    late: Histogram,
}

/// What a session has done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
pub struct Injected {
    /// Wanted delay of reads in microseconds.
    pub wanted_read_us: f64,
    /// Wanted delay of writes in microseconds.
    pub wanted_write_us: f64,
    /// What answers were really held back.
    pub added: Latency,
    /// By how much that was more than wanted.
    pub late: Latency,
}

impl Session {
    fn read(&self) -> Injected {
        Injected {
            wanted_read_us: self.delay_ns[0] as f64 / 1e3,
            wanted_write_us: self.delay_ns[1] as f64 / 1e3,
            added: Latency::of(&self.added),
            late: Latency::of(&self.late),
        }
    }

    /// None for what a session leaves alone.
    #[inline]
    fn wanted_ns(&self, op: GuestOp) -> Option<u64> {
        match op {
            GuestOp::Read => Some(self.delay_ns[0]),
            GuestOp::Write => Some(self.delay_ns[1]),
            _ => None,
        }
    }
}

/// What may be asked of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    /// Hold answers back, in place of what was asked before.
    Inject {
        /// The volume's name.
        volume: String,
        /// Delay of reads.
        read: Nanos,
        /// Delay of writes.
        write: Nanos,
        /// For so long; no time at all ends a session and begins none.
        lasting: Nanos,
    },
}

/// How it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The latency session under way, or else the last one.
    pub injected: Option<Injected>,
    /// Whether a latency session is under way.
    pub injecting: bool,
}

/// How it is, briefly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Whether a latency session is under way.
    pub injecting: bool,
}

impl Inject {
    /// Delays reads and writes by so many nanoseconds each, for so many; ends the session before.
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

    fn carry_out(
        command: Command,
        control_server: &ControlServer,
    ) -> Result<ControlAnswer, String> {
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
    fn reads_and_writes_are_held_back_and_nothing_else() {
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
    fn a_session_that_is_over_is_still_read() {
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
        // So is one that another one ended.
        inject.begin(2_000_000, [0, 5_000], 1_000_000);
        inject.begin(2_000_000, [0, 0], 0);
        let ended = inject.status(2_000_000);
        assert!(!ended.injecting);
        assert_eq!(ended.injected.map(|i| i.wanted_write_us), Some(5.0));
    }

    #[test]
    fn a_session_without_an_end_does_not_end() {
        let mut inject = inject();
        inject.begin(5, [1, 1], u64::MAX);
        inject.tick(u64::MAX - 1);
        assert!(inject.sample(0).injecting);
    }
}
