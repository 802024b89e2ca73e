//! Reads a whole stream into memory without the reorder buffer.
//!
//! The result equals that of [`TraceStream::next_record`], record by record: the same order, the same repaired
//! reversals, the same rejected ones. All records are kept anyway, so the last [`REORDER_RECORDS_MAX`] records of the
//! result *are* the buffer. Records that the stream would still hold may be moved; earlier ones may not. A record in
//! order costs only an append.

use crate::error::{Location, TraceError};
use crate::order::REORDER_RECORDS_MAX;
use crate::record::{RawRecord, Record, Request};
use crate::source::SourceClock;
use crate::stream::TraceStream;

/// Records per read from the source: 10 KiB, which fits a first-level cache.
const BATCH_RECORDS: usize = 256;

pub(crate) struct Bulk {
    pub(crate) records: Vec<Record>,
    pub(crate) latencies: Option<Vec<u64>>,
}

/// Reads a stream from its start, at most `records_max` records.
pub(crate) fn read_bulk(stream: &mut TraceStream, records_max: u64) -> Result<Bulk, TraceError> {
    let mut batch = Vec::with_capacity(BATCH_RECORDS + 1);
    let mut all = OrderedRecords {
        records: Vec::new(),
        latencies: stream.has_latencies().then(Vec::new),
        base_ns: None,
        last_ns: i64::MIN,
        reversals: 0,
    };
    let mut more = true;
    while more {
        // The last record stays in front, so the source can detect a reversal relative to it.
        let last = batch.pop();
        batch.clear();
        batch.extend(last);
        let fresh = batch.len();
        // While a record is behind others, records are read one by one, so the position of a record that comes too late
        // is known.
        let limit = if all.is_behind() { 1 } else { BATCH_RECORDS };
        more = stream.read_batch(&mut batch, fresh + limit)?;
        let kept = match stream.clock() {
            SourceClock::Recording => Some(0),
            _ => None,
        };
        if (all.records.len() + batch.len() - fresh) as u64 > records_max {
            return Err(TraceError::TooManyRecords {
                file: stream.file().to_owned(),
                limit: records_max,
            });
        }
        if all.append(&batch[fresh..]) {
            continue;
        }
        for raw in &batch[fresh..] {
            all.push(raw, kept, stream)?;
        }
    }
    let origin_unix_ns = all.finish(stream)?;
    stream.finish_bulk(all.records.len() as u64, all.reversals, origin_unix_ns);
    Ok(Bulk {
        records: all.records,
        latencies: all.latencies,
    })
}

/// Records in order of time. Their times are relative to `base_ns` and may be negative until [`OrderedRecords::finish`].
struct OrderedRecords {
    records: Vec<Record>,
    latencies: Option<Vec<u64>>,
    /// Time of the first record that was read, or zero for a recording.
    base_ns: Option<i64>,
    /// Time of the last record that was read, on the source's clock.
    last_ns: i64,
    reversals: u64,
}

impl OrderedRecords {
    /// Returns true if the last record that was read is not the latest.
    fn is_behind(&self) -> bool {
        let latest = self.records.last().map(|r| r.time_ns.cast_signed());
        let last = self.last_ns.checked_sub(self.base_ns.unwrap_or(0));
        latest.is_some() && latest != last
    }

    /// Appends records that are sorted and not before any other; this is the case for nearly all batches. Returns false
    /// if they are not sorted, or if one is too far from the first.
    fn append(&mut self, batch: &[RawRecord]) -> bool {
        let (Some(base_ns), Some(first), Some(last)) = (self.base_ns, batch.first(), batch.last())
        else {
            return false;
        };
        let latest = self.records.last().map_or(0, |r| r.time_ns.cast_signed());
        let in_order = batch.is_sorted_by_key(|raw| raw.time_ns)
            && first.time_ns >= self.last_ns
            && first
                .time_ns
                .checked_sub(base_ns)
                .is_some_and(|ns| ns >= latest)
            && last.time_ns.checked_sub(base_ns).is_some();
        if !in_order {
            return false;
        }
        self.last_ns = last.time_ns;
        self.records.extend(batch.iter().map(|raw| {
            Record::new(Request {
                // Cannot overflow: it is between two differences that fit.
                time_ns: raw.time_ns.wrapping_sub(base_ns).cast_unsigned(),
                volume: raw.volume,
                op: raw.op,
                offset_bytes: raw.offset_bytes,
                length_bytes: raw.length_bytes,
            })
        }));
        if let Some(latencies) = &mut self.latencies {
            latencies.extend(batch.iter().map(|raw| raw.latency_ns));
        }
        true
    }

    #[inline]
    fn push(
        &mut self,
        raw: &RawRecord,
        kept: Option<i64>,
        stream: &TraceStream,
    ) -> Result<(), TraceError> {
        let base_ns = *self.base_ns.get_or_insert(kept.unwrap_or(raw.time_ns));
        let RawRecord {
            time_ns,
            offset_bytes,
            latency_ns,
            length_bytes,
            volume,
            op,
        } = *raw;
        let Some(since_base) = time_ns.checked_sub(base_ns) else {
            return Err(self.span_too_long(stream));
        };
        let record = Record::new(Request {
            time_ns: since_base.cast_unsigned(),
            volume,
            op,
            offset_bytes,
            length_bytes,
        });
        let reversed = time_ns < self.last_ns;
        self.last_ns = time_ns;
        let behind = self
            .records
            .last()
            .is_none_or(|last| last.time_ns.cast_signed() <= since_base);
        if reversed || !behind {
            return self.insert(record, latency_ns, reversed, stream);
        }
        self.records.push(record);
        if let Some(latencies) = &mut self.latencies {
            latencies.push(latency_ns);
        }
        Ok(())
    }

    #[cold]
    fn insert(
        &mut self,
        record: Record,
        latency_ns: u64,
        reversed: bool,
        stream: &TraceStream,
    ) -> Result<(), TraceError> {
        self.reversals += u64::from(reversed);
        let time_ns = record.time_ns.cast_signed();
        let handed_on = self.records.len().saturating_sub(REORDER_RECORDS_MAX);
        let (before, held) = self.records.split_at(handed_on);
        if let Some(last) = before.last().map(|r| r.time_ns.cast_signed())
            && time_ns < last
        {
            return Err(TraceError::TimeReversal {
                file: stream.file().to_owned(),
                at: stream.location(),
                back_ns: last.abs_diff(time_ns),
                buffer_records: REORDER_RECORDS_MAX,
            });
        }
        let at = handed_on + held.partition_point(|r| r.time_ns.cast_signed() <= time_ns);
        self.records.insert(at, record);
        if let Some(latencies) = &mut self.latencies {
            latencies.insert(at, latency_ns);
        }
        Ok(())
    }

    /// Sets the time of the earliest record to 0 if times are relative. Returns its original time, if the clock is
    /// absolute.
    fn finish(&mut self, stream: &TraceStream) -> Result<Option<i64>, TraceError> {
        let (Some(first), Some(base_ns)) = (self.records.first(), self.base_ns) else {
            return Ok(None);
        };
        let earliest = first.time_ns.cast_signed();
        let clock = stream.clock();
        if earliest < 0 && clock == SourceClock::Recording {
            return Err(self.span_too_long(stream));
        }
        if earliest != 0 && clock != SourceClock::Recording {
            for i in 0..self.records.len() {
                let since = self.records[i].time_ns.cast_signed().checked_sub(earliest);
                let Some(since) = since else {
                    let (file, at) = (stream.file().to_owned(), Location::Record(i as u64));
                    return Err(TraceError::SpanTooLong { file, at });
                };
                self.records[i].time_ns = since.cast_unsigned();
            }
        }
        // Cannot overflow: it is a time that was read.
        let origin = base_ns.saturating_add(earliest);
        Ok((clock == SourceClock::Unix).then_some(origin))
    }

    #[cold]
    fn span_too_long(&self, stream: &TraceStream) -> TraceError {
        TraceError::SpanTooLong {
            file: stream.file().to_owned(),
            at: Location::Record(self.records.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::io::Cursor;

    use crate::stream::{ReadOptions, TraceStream};
    use crate::{Record, load_stream};
    use proptest::prelude::*;

    fn open(text: &str) -> TraceStream {
        let options = ReadOptions::default();
        TraceStream::from_reader("x", Cursor::new(text.as_bytes().to_vec()), &options).unwrap()
    }

    /// Records, latencies, number of reversals, origin.
    type Outcome = Result<(Vec<Record>, Vec<u64>, u64, Option<i64>), String>;

    /// Reads a text record by record, as a stream.
    fn streamed(text: &str) -> Outcome {
        let mut stream = open(text);
        let (mut records, mut latencies) = (Vec::new(), Vec::new());
        while let Some((record, latency)) = stream.next_record().map_err(|e| e.to_string())? {
            records.push(record);
            latencies.push(latency);
        }
        Ok((
            records,
            latencies,
            stream.time_reversals(),
            stream.origin_unix_ns(),
        ))
    }

    fn bulk(text: &str) -> Outcome {
        let loaded = load_stream(open(text), &ReadOptions::default()).map_err(|e| e.to_string())?;
        Ok((
            loaded.records().to_vec(),
            loaded.latencies().unwrap_or_default().to_vec(),
            loaded.time_reversals,
            loaded.origin_unix_ns,
        ))
    }

    proptest! {
        #[test]
        fn bulk_parser_equals_the_streaming_parser(jitter in prop::collection::vec(0..50u64, 1..700), capture in any::<bool>()) {
            let mut text = String::new();
            if capture {
                text.push_str("time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n");
            }
            for (i, jitter) in jitter.iter().enumerate() {
                let time = 1000 + 10 * i as u64 - jitter.min(&(10 * i as u64 + 1000));
                let _ = if capture {
                    writeln!(text, "{time},v,R,{},4096,{i}", i * 512)
                } else {
                    writeln!(text, "{},v,0,Read,{},4096,{i}", 128_166_372_003_061_629 + time, i * 512)
                };
            }
            prop_assert_eq!(bulk(&text), streamed(&text));
        }
    }

    /// At the limit of the buffer, both ways agree: a reversal within it is repaired, one record more is rejected.
    #[test]
    fn bulk_parser_has_the_same_reorder_limit_as_the_stream() {
        for (records, late) in [
            (65_536, 0),
            (65_537, 0),
            (65_538, 1),
            (65_600, 63),
            (70_000, 1),
        ] {
            let mut text = String::from("time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n");
            for i in 0..records {
                let _ = writeln!(text, "{},v,R,0,512,1", 2 * i);
            }
            let _ = writeln!(text, "{},w,R,0,512,1", 2 * late);
            let _ = writeln!(text, "{},v,R,0,512,1", 2 * records);
            assert_eq!(bulk(&text), streamed(&text), "{records} {late}");
        }
    }
}
