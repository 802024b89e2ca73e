//! Native trace as a [`RecordSource`], for code that handles all formats alike.

use crate::error::{Location, TraceError};
use crate::native::NativeTrace;
use crate::record::{LATENCY_UNKNOWN, RawRecord};
use crate::source::{RecordSource, SourceClock, Times, VolumeNames};

pub(crate) struct NativeSource {
    trace: NativeTrace,
    volumes: VolumeNames,
    next: usize,
}

impl NativeSource {
    /// Creates the source. The trace must have been verified.
    pub(crate) fn new(trace: NativeTrace) -> Self {
        let volumes = VolumeNames::listed(trace.volumes().iter().map(|v| v.name.as_str()));
        Self {
            trace,
            volumes,
            next: 0,
        }
    }
}

impl RecordSource for NativeSource {
    fn next(&mut self, out: &mut RawRecord) -> Result<bool, TraceError> {
        let Some(record) = self.trace.records().get(self.next) else {
            return Ok(false);
        };
        let Ok(time_ns) = i64::try_from(record.time_ns) else {
            let (file, at) = (
                self.trace.file().to_owned(),
                Location::Record(self.next as u64),
            );
            return Err(TraceError::SpanTooLong { file, at });
        };
        *out = RawRecord {
            time_ns,
            offset_bytes: record.offset_bytes,
            latency_ns: self
                .trace
                .latencies()
                .map_or(LATENCY_UNKNOWN, |l| l[self.next]),
            length_bytes: record.length_bytes,
            volume: record.volume(),
            op: record.op(),
        };
        self.next += 1;
        Ok(true)
    }

    fn volumes(&self) -> &VolumeNames {
        &self.volumes
    }

    fn has_latencies(&self) -> bool {
        self.trace.latencies().is_some()
    }

    fn clock(&self) -> SourceClock {
        match self.trace.times() {
            Times::Measured => SourceClock::Relative,
            Times::Order => SourceClock::Order,
        }
    }

    fn location(&self) -> Location {
        Location::Record(self.next.saturating_sub(1) as u64)
    }
}
