//! Recording what a volume does as a native trace.
//!
//! Requests are recorded when they are answered, and written in the order of their arrival when the recording ends: it is
//! held in memory, up to [`RECORDS_MAX`] requests, and says how many came after that.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use model::Op;
use serde::{Deserialize, Serialize};
use trace::native::{Latencies, NativeFile, NativeOptions};
use trace::{Record, Request, TraceError};
use volume::VolumeMap;

use super::{Answered, Stage};
use crate::clock;
use crate::control_server::{ControlAnswer, ControlServer};
use crate::engine::{GuestOp, GuestRequest};
use crate::text::explain;

/// Requests one recording holds: 64 M are 2 GiB of memory.
pub const RECORDS_MAX: usize = 64 << 20;

/// Keeps what is answered while a recording is under way.
#[derive(Debug)]
pub struct Recording(Option<Recorder>);

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    volume: String,
    since_ns: u64,
    since_unix_ns: i64,
    records: Vec<(Record, u64)>,
    lost: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The trace.
    pub path: PathBuf,
    pub requests: u64,
    /// Requests that did not fit any more.
    pub lost: u64,
}

/// What may be asked of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    /// Record to a file.
    Record {
        /// The volume's name.
        volume: String,
        /// The file.
        path: PathBuf,
    },
    /// End a recording and write it.
    RecordEnd {
        /// The volume's name.
        volume: String,
    },
}

/// How it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The file that the volume is being recorded to.
    pub recording: Option<PathBuf>,
}

impl Recording {
    pub(crate) fn begin(&mut self, path: PathBuf, volume: &str) -> Result<(), String> {
        if let Some(recorder) = &self.0 {
            let path = recorder.path.display();
            return Err(format!("the volume is already being recorded to {path}"));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ns = unix.map_or(0, |d| d.as_nanos() as i64);
        let recorder = Recorder::new(path, volume.into(), clock::now_ns(), unix_ns);
        self.0 = Some(recorder);
        Ok(())
    }

    /// Ends it. What was recorded is to be written by whoever asked: that takes its time.
    pub(crate) fn end(&mut self) -> Result<Recorder, String> {
        self.0
            .take()
            .ok_or_else(|| "the volume is not being recorded".into())
    }
}

impl Stage for Recording {
    type Setup = ();
    type Command = Command;
    const WORDS: &'static [&'static str] = &["record", "record-end"];
    type Status = Status;
    type Sample = ();

    fn new((): (), _: &VolumeMap, _: u64) -> Self {
        Self(None)
    }

    #[inline]
    fn answered(&mut self, request: &GuestRequest, how: &Answered) {
        if let Some(recorder) = &mut self.0
            && how.ok
        {
            recorder.record(request, how.arrival_ns, how.latency_ns());
        }
    }

    fn status(&self, _: u64) -> Status {
        Status {
            recording: self.0.as_ref().map(|r| r.path.clone()),
        }
    }

    fn carry_out(
        command: Command,
        control_server: &ControlServer,
    ) -> Result<ControlAnswer, String> {
        match command {
            Command::Record { volume, path } => {
                let to = path.clone();
                control_server.at_stages(&volume, |v| v.stages.record.begin(to, v.name))?;
                let path = path.display();
                Ok(ControlAnswer::done(format!(
                    "recording volume {volume} to {path}"
                )))
            }
            Command::RecordEnd { volume } => {
                let recorder = control_server.at_stages(&volume, |v| v.stages.record.end())?;
                let recorded = recorder.finish().map_err(|e| explain(&e))?;
                Ok(ControlAnswer::Recorded(recorded))
            }
        }
    }
}

impl Recorder {
    fn new(path: PathBuf, volume: String, now_ns: u64, now_unix_ns: i64) -> Self {
        Self {
            path,
            volume,
            since_ns: now_ns,
            since_unix_ns: now_unix_ns,
            records: vec![],
            lost: 0,
        }
    }

    /// A request was answered. One that arrived before the recording began is not part of it.
    #[inline]
    fn record(&mut self, request: &GuestRequest, arrival_ns: u64, latency_ns: u64) {
        let Some(time_ns) = arrival_ns.checked_sub(self.since_ns) else {
            return;
        };
        if self.records.len() >= RECORDS_MAX {
            self.lost += 1;
            return;
        }
        let op = match request.op {
            GuestOp::Read => Op::Read,
            GuestOp::Write | GuestOp::ZeroAllocated => Op::Write,
            GuestOp::Trim | GuestOp::Zero => Op::Trim,
            GuestOp::Flush => Op::Flush,
        };
        let record = Record::new(Request {
            time_ns,
            volume: 0,
            op,
            offset_bytes: request.offset,
            length_bytes: request.length as u32,
        });
        self.records.push((record, latency_ns));
    }

    /// Sorts and writes the trace.
    pub(crate) fn finish(mut self) -> Result<Recorded, TraceError> {
        self.records.sort_by_key(|(r, _)| r.time_ns);
        let options = NativeOptions {
            origin_unix_ns: Some(self.since_unix_ns),
            ..NativeOptions::default()
        };
        let mut file = NativeFile::create(&self.path, options, Latencies::Stored)?;
        for (record, latency_ns) in &self.records {
            file.push(*record, Some(*latency_ns))?;
        }
        file.finish([self.volume.as_str()])?;
        Ok(Recorded {
            path: self.path,
            requests: self.records.len() as u64,
            lost: self.lost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::tests::{map, request};

    #[test]
    fn what_arrived_meanwhile_and_went_well_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seen.trc");
        let mut recording = Recording::new((), &map(), 0);
        let write = request(GuestOp::Write, 4096, 512);
        let answered = |arrival_ns, ok| Answered {
            at_ns: arrival_ns + 700,
            arrival_ns,
            held_ns: 0,
            ok,
            from_memory: false,
        };
        // Nothing is recorded yet.
        recording.answered(&write, &answered(clock::now_ns(), true));
        assert_eq!(recording.status(0).recording, None);
        let before_ns = clock::now_ns();
        recording.begin(path.clone(), "data").unwrap();
        let again = recording.begin("elsewhere".into(), "data").unwrap_err();
        assert!(
            again.contains("is already being recorded to") && again.ends_with("seen.trc"),
            "{again}"
        );
        assert_eq!(recording.status(0).recording, Some(path.clone()));
        recording.answered(&write, &answered(before_ns - 1, true));
        let now_ns = clock::now_ns();
        recording.answered(&write, &answered(now_ns, false));
        recording.answered(&write, &answered(now_ns + 9, true));
        recording.answered(&request(GuestOp::Flush, 0, 0), &answered(now_ns, true));
        let recorder = recording.end().unwrap();
        let kept = recorder.records.iter();
        let kept: Vec<_> = kept.map(|(record, ns)| (record.op(), *ns)).collect();
        assert_eq!(kept, [(Op::Write, 700), (Op::Flush, 700)]);
        assert_eq!(
            recording.end().map(drop),
            Err("the volume is not being recorded".into())
        );
        let recorded = recorder.finish().unwrap();
        assert_eq!((recorded.requests, recorded.lost), (2, 0));
        assert_eq!(recorded.path, path);
        assert!(path.exists());
    }
}
