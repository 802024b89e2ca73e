//! Description of a trace, computed in one pass with bounded memory.

use model::Op;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::compress::Compression;
use crate::distribution::{Latencies, LatencyStats, SizeStats, Sizes};
use crate::error::{BadRecord, TraceError};
use crate::footprint::Footprint;
use crate::formats::Format;
use crate::load::LoadedTrace;
use crate::native::{RECORDS_PER_BLOCK, Totals, VolumeSummary, content_hash};
use crate::peaks::{Peaks, RequestLoad};
use crate::record::{LATENCY_UNKNOWN, Record};
use crate::source::Times;
use crate::stream::{Progress, TraceStream, known};

/// Schema of [`TraceInfo`] as JSON.
pub const INFO_SCHEMA: &str = "terrace.trace.info/2";
/// Records between two reports of progress.
pub(crate) const PROGRESS_RECORDS: u64 = 1 << 16;

/// Description of a trace. Serializes as schema [`INFO_SCHEMA`]; fields that do not apply are `null`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceInfo {
    /// [`INFO_SCHEMA`].
    pub schema: &'static str,
    /// File name as given.
    pub file: String,
    /// Format of the file.
    pub format: Format,
    /// True if the format is a guess that the content cannot confirm.
    pub format_assumed: bool,
    /// Reason of the uncertainty.
    pub format_note: Option<String>,
    /// Compression of the file.
    pub compression: Compression,
    /// All requests.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Trims.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes trimmed.
    pub bytes_trimmed: u64,
    /// Lines that are neither requests nor errors and were skipped.
    pub other_events: u64,
    /// Meaning of the times. If they are only an order, all values that need times are `null`.
    pub times: Times,
    /// Time of the last request, in seconds since the start.
    pub span_s: Option<f64>,
    /// Unix time of the start in nanoseconds.
    pub origin_unix_ns: Option<i64>,
    /// Requests per second over the span; `null` if it is zero.
    pub mean_iops: Option<f64>,
    /// Most requests in one second. Seconds are counted from the start of the trace.
    pub peak_iops_1s: Option<u64>,
    /// Means and peaks of all volumes together.
    pub load: Option<RequestLoad>,
    /// Reads among reads and writes, 0..=1.
    pub read_share: Option<f64>,
    /// Sizes of the reads.
    pub read_size: Option<SizeStats>,
    /// Sizes of the writes.
    pub write_size: Option<SizeStats>,
    /// Distinct pages of 4 KiB that are read or written, in bytes; `null` if there are too many to count.
    pub footprint_bytes: Option<u64>,
    /// Reason that the footprint is `null`.
    pub footprint_note: Option<String>,
    /// The volumes in order of their indices.
    pub volumes: Vec<VolumeInfo>,
    /// Records with an earlier time than the previous one in the file. They were sorted.
    pub time_reversals: u64,
    /// Bad records that were skipped.
    pub skipped_records: u64,
    /// Descriptions of the first bad records.
    pub bad_records: Vec<String>,
    /// True if the trace has latencies.
    pub has_latency: bool,
    /// Latencies, if known.
    pub latency: Option<LatencyStats>,
    /// XXH3-128 of the records. It is the same for the same records in any format.
    pub content_hash: String,
}

/// One volume of a [`TraceInfo`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VolumeInfo {
    /// Name and totals.
    #[serde(flatten)]
    pub summary: VolumeSummary,
    /// All requests.
    pub requests: u64,
    /// Distinct pages of 4 KiB that are read or written, in bytes.
    pub footprint_bytes: Option<u64>,
    /// Means and peaks.
    pub load: Option<RequestLoad>,
}

impl TraceInfo {
    /// Reads a stream to its end. Calls `progress` at intervals.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn collect(
        stream: &mut TraceStream,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, TraceError> {
        let mut pass = Pass::default();
        while let Some((record, latency_ns)) = stream.next_record()? {
            pass.add(record, latency_ns);
            if stream.progress().records.is_multiple_of(PROGRESS_RECORDS) {
                progress(stream.progress());
            }
        }
        progress(stream.progress());
        let names: Vec<&str> = stream.volumes().iter().collect();
        Ok(pass.finish(Origin {
            file: stream.file(),
            format: stream.format(),
            assumed: stream.format_assumed(),
            compression: stream.compression(),
            other_events: stream.other_events(),
            times: stream.times(),
            origin_unix_ns: stream.origin_unix_ns(),
            names: &names,
            time_reversals: stream.time_reversals(),
            skipped: stream.skipped(),
            bad_records: stream.bad_records(),
            has_latency: stream.has_latencies(),
        }))
    }

    /// Describes a trace in memory. `file` is the name in the result.
    pub fn of(file: &str, trace: &LoadedTrace) -> Self {
        let mut pass = Pass::default();
        for (i, record) in trace.records().iter().enumerate() {
            let latency_ns = trace.latencies().map_or(LATENCY_UNKNOWN, |l| l[i]);
            pass.add(*record, latency_ns);
        }
        let names: Vec<&str> = trace.volumes.iter().map(|v| v.name.as_str()).collect();
        pass.finish(Origin {
            file,
            format: trace.format,
            assumed: trace.format_assumed.as_deref(),
            compression: Compression::None,
            other_events: 0,
            times: trace.times,
            origin_unix_ns: trace.origin_unix_ns,
            names: &names,
            time_reversals: trace.time_reversals,
            skipped: trace.skipped,
            bad_records: &[],
            has_latency: trace.latencies().is_some(),
        })
    }
}

/// Properties of a trace other than its records.
struct Origin<'a> {
    file: &'a str,
    format: Format,
    assumed: Option<&'a str>,
    compression: Compression,
    other_events: u64,
    times: Times,
    origin_unix_ns: Option<i64>,
    names: &'a [&'a str],
    time_reversals: u64,
    skipped: u64,
    bad_records: &'a [BadRecord],
    has_latency: bool,
}

#[derive(Default)]
struct Pass {
    block: Vec<Record>,
    sums: Vec<u64>,
    totals: Totals,
    footprint: Footprint,
    sizes: [Sizes; 2],
    latencies: Latencies,
    peaks: Peaks,
    last_ns: u64,
}

impl Pass {
    fn add(&mut self, record: Record, latency_ns: u64) {
        self.block.push(record);
        if self.block.len() == RECORDS_PER_BLOCK {
            self.finish_block();
        }
        if matches!(record.op(), Op::Read | Op::Write) {
            self.footprint
                .touch(record.volume(), record.offset_bytes, record.length_bytes);
            self.sizes[record.op() as usize].add(record.length_bytes);
        }
        if let Some(ns) = known(latency_ns) {
            self.latencies.add(ns);
        }
        self.peaks.add(&record);
        self.last_ns = record.time_ns;
    }

    fn finish_block(&mut self) {
        let volumes = self
            .block
            .iter()
            .map(|r| r.volume() as usize + 1)
            .max()
            .unwrap_or(0);
        self.totals.grow(volumes);
        self.totals.add(&self.block);
        self.sums.push(xxh3_64(bytemuck::cast_slice(&self.block)));
        self.block.clear();
    }

    fn finish(mut self, origin: Origin<'_>) -> TraceInfo {
        if !self.block.is_empty() {
            self.finish_block();
        }
        self.totals.grow(origin.names.len());
        let [reads, writes, trims, flushes] = self.totals.requests();
        let [bytes_read, bytes_written, bytes_trimmed] = self.totals.bytes();
        let requests = reads + writes + trims + flushes;
        let measured = origin.times == Times::Measured;
        let volumes = self.totals.summaries(origin.names.iter().copied());
        let volumes = volumes
            .into_iter()
            .enumerate()
            .map(|(i, summary)| VolumeInfo {
                requests: summary.requests(),
                footprint_bytes: self.footprint.bytes_of(i).ok(),
                load: measured.then(|| self.peaks.of(i, self.last_ns)),
                summary,
            });
        let footprint = self.footprint.bytes();
        TraceInfo {
            schema: INFO_SCHEMA,
            file: origin.file.to_owned(),
            format: origin.format,
            format_assumed: origin.assumed.is_some(),
            format_note: origin.assumed.map(str::to_owned),
            compression: origin.compression,
            requests,
            reads,
            writes,
            trims,
            flushes,
            bytes_read,
            bytes_written,
            bytes_trimmed,
            other_events: origin.other_events,
            times: origin.times,
            span_s: measured.then_some(self.last_ns as f64 / 1e9),
            origin_unix_ns: origin.origin_unix_ns,
            mean_iops: (measured && self.last_ns > 0)
                .then(|| requests as f64 * 1e9 / self.last_ns as f64),
            peak_iops_1s: (measured && requests > 0).then(|| self.peaks.most_in_a_second()),
            load: measured.then(|| self.peaks.all(self.last_ns)),
            read_share: (reads + writes > 0).then(|| reads as f64 / (reads + writes) as f64),
            read_size: self.sizes[Op::Read as usize].stats(),
            write_size: self.sizes[Op::Write as usize].stats(),
            footprint_bytes: footprint.as_ref().ok().copied(),
            footprint_note: footprint.err().map(|e| e.to_string()),
            volumes: volumes.collect(),
            time_reversals: origin.time_reversals,
            skipped_records: origin.skipped,
            bad_records: origin.bad_records.iter().map(ToString::to_string).collect(),
            has_latency: origin.has_latency,
            latency: self.latencies.stats(),
            content_hash: content_hash(&self.sums),
        }
    }
}
