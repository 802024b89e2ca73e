//! Recording of a volume's requests as a native trace.
//!
//! Requests are recorded when they complete and kept in memory, up to [`RECORDS_MAX`]. The trace is written in order
//! of arrival when the recording ends, and the number of further requests is reported.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use model::Op;
use serde::{Deserialize, Serialize};
use trace::native::{Latencies, NativeFile, NativeOptions};
use trace::{Record, Request, TraceError};
use volume::VolumeMap;

use super::{Completion, Stage};
use crate::clock;
use crate::control_server::{ControlAnswer, ControlServer};
use crate::engine::{GuestOp, GuestRequest};
use crate::error::{DatapathError, Result};

/// Most requests of one recording: 64 Mi of them take 2 GiB of memory.
pub const RECORDS_MAX: usize = 64 << 20;

/// Keeps completed requests during a recording.
#[derive(Debug)]
pub struct Recording(Option<Recorder>);

/// Recording in progress.
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
pub struct RecordingStatus {
    /// Path of the trace.
    pub path: PathBuf,
    pub requests: u64,
    /// Number of requests beyond the limit.
    pub lost: u64,
}

/// Commands of the stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Command {
    /// Record to a file.
    Record {
        /// Name of the volume.
        volume: String,
        /// Path of the file.
        path: PathBuf,
    },
    /// End a recording and write it.
    RecordEnd {
        /// Name of the volume.
        volume: String,
    },
}

/// Status of the stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// File of the recording in progress.
    pub recording: Option<PathBuf>,
}

impl Recording {
    pub(crate) fn begin(&mut self, path: PathBuf, volume: &str) -> Result<()> {
        if let Some(recorder) = &self.0 {
            let path = recorder.path.display();
            return Err(DatapathError::Busy(format!(
                "the volume is already being recorded to {path}"
            )));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ns = unix.map_or(0, |d| d.as_nanos() as i64);
        let recorder = Recorder::new(path, volume.into(), clock::now_ns(), unix_ns);
        self.0 = Some(recorder);
        Ok(())
    }

    /// Ends the recording. The caller writes it, because that takes time.
    pub(crate) fn end(&mut self) -> Result<Recorder> {
        self.0
            .take()
            .ok_or_else(|| DatapathError::Refused("the volume is not being recorded".into()))
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
    fn answered(&mut self, request: &GuestRequest, how: &Completion) {
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

    fn carry_out(command: Command, control_server: &ControlServer) -> Result<ControlAnswer> {
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
                let recorded = recorder.finish().map_err(DatapathError::failed)?;
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

    /// Records a completed request. One that arrived before the start of the recording is ignored.
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
    pub(crate) fn finish(mut self) -> Result<RecordingStatus, TraceError> {
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
        Ok(RecordingStatus {
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
    fn recording_has_successful_requests_that_arrived_during_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seen.trc");
        let mut recording = Recording::new((), &map(), 0);
        let write = request(GuestOp::Write, 4096, 512);
        let answered = |arrival_ns, ok| Completion {
            at_ns: arrival_ns + 700,
            arrival_ns,
            held_ns: 0,
            ok,
            from_memory: false,
        };
        // The recording has not begun.
        recording.answered(&write, &answered(clock::now_ns(), true));
        assert_eq!(recording.status(0).recording, None);
        let before_ns = clock::now_ns();
        recording.begin(path.clone(), "data").unwrap();
        let again = recording.begin("elsewhere".into(), "data");
        let again = again.unwrap_err().to_string();
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
        let again = recording.end().map(drop).unwrap_err().to_string();
        assert_eq!(again, "the volume is not being recorded");
        let recorded = recorder.finish().unwrap();
        assert_eq!((recorded.requests, recorded.lost), (2, 0));
        assert_eq!(recorded.path, path);
        assert!(path.exists());
    }
}
