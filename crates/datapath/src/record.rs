//! Recording what a volume does as a native trace.
//!
//! Requests are recorded when they are answered, and written in the order of their arrival when the recording ends: it is
//! held in memory, up to [`RECORDS_MAX`] requests, and says how many came after that.

use std::path::{Path, PathBuf};

use model::Op;
use trace::native::{Latencies, NativeFile, NativeOptions};
use trace::{Record, Request, TraceError};

use crate::engine::{GuestOp, GuestRequest};

/// Requests one recording holds: 64 M are 2 GiB of memory.
pub const RECORDS_MAX: usize = 64 << 20;

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

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Recorded {
    /// The trace.
    pub path: PathBuf,
    /// Requests in it.
    pub requests: u64,
    /// Requests that did not fit any more.
    pub lost: u64,
}

impl Recorder {
    /// Starts now.
    pub fn new(path: PathBuf, volume: String, now_ns: u64, now_unix_ns: i64) -> Self {
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
    pub fn record(&mut self, request: &GuestRequest, arrival_ns: u64, latency_ns: u64) {
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

    /// Where it will be written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends it: sorts and writes the trace.
    pub fn finish(mut self) -> Result<Recorded, TraceError> {
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
