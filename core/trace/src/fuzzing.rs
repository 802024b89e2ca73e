//! Functions for fuzz targets and ordinary tests: they read bytes and must not panic.
//!
//! Each function reads a file's content to the end in every applicable way.

use std::io::Cursor;

use crate::detect::detect;
use crate::error::SkipBad;
use crate::formats::{Format, IdPlacement};
use crate::load::load_stream;
use crate::measurements::Measurements;
use crate::native::NativeTrace;
use crate::stream::{ReadOptions, TraceStream};
use crate::text::ColumnSpec;

/// Largest number of records of one input. Protects the fuzzer's time, not memory.
const RECORDS_MAX: u64 = 1 << 16;

fn read(bytes: &[u8], format: Option<Format>, columns: Option<ColumnSpec>) {
    for limit in [0, u64::MAX] {
        let options = ReadOptions {
            format,
            columns: columns.clone(),
            skip_bad: SkipBad { limit },
            records_max: RECORDS_MAX,
            ..ReadOptions::default()
        };
        let stream = TraceStream::from_reader("fuzz", Cursor::new(bytes.to_vec()), &options);
        let Ok(loaded) = stream.and_then(|stream| load_stream(stream, &options)) else {
            continue;
        };
        // Checks the properties that a replay requires.
        let mut last_ns = 0;
        for record in loaded.records() {
            assert_eq!(record.invalid(loaded.volumes.len()), None);
            assert!(
                record.end_offset_bytes()
                    <= loaded.volumes[record.volume() as usize].max_end_offset_bytes
            );
            assert!(record.time_ns >= last_ns, "out of order");
            last_ns = record.time_ns;
        }
        assert_eq!(loaded.span_ns, last_ns);
    }
}

/// Reads a native trace: header, tables, checksums and records.
pub fn native(bytes: &[u8]) {
    let Ok(trace) = NativeTrace::from_bytes("fuzz", bytes) else {
        return;
    };
    let verified = trace.verify().is_ok();
    for record in trace.records() {
        let invalid = record.invalid(trace.volumes().len());
        assert!(!verified || invalid.is_none(), "verified, but {invalid:?}");
    }
    let _ = (trace.latencies(), trace.content_hash());
}

/// Reads vscsi, both versions.
pub fn vscsi(bytes: &[u8]) {
    read(bytes, Some(Format::Vscsi1), None);
    read(bytes, Some(Format::Vscsi2), None);
}

/// Reads CSV by header and by mapping, and the presets.
pub fn csv(bytes: &[u8]) {
    for format in [
        Format::Csv,
        Format::Msr,
        Format::DiskMon,
        Format::Capture,
        Format::HadoopCsv,
        Format::Spc,
        Format::Alibaba,
        Format::Tencent,
        Format::Systor,
        Format::Fiu,
    ] {
        read(bytes, Some(format), None);
    }
    let mapping = "time=1:s,volume=2,op=3:read0,offset=4:4096,length=5:sectors,latency=6:filetime";
    if let Ok(spec) = mapping.parse::<ColumnSpec>() {
        read(bytes, Some(Format::Csv), Some(spec));
    }
    // The first line is the mapping for the rest.
    let end = bytes
        .iter()
        .position(|b| *b == b'\n')
        .unwrap_or(bytes.len());
    if let Some(spec) = std::str::from_utf8(&bytes[..end])
        .ok()
        .and_then(|text| text.parse::<ColumnSpec>().ok())
    {
        read(&bytes[end..], None, Some(spec));
    }
}

/// Reads the simulators' five columns.
pub fn ascii(bytes: &[u8]) {
    for format in [
        Format::DiskSim,
        Format::SsdSim,
        Format::MqSim,
        Format::AsciiBytesMs,
    ] {
        read(bytes, Some(format), None);
    }
}

/// Reads formats whose lines are events, commands or ids, with both placements of ids.
pub fn rows(bytes: &[u8]) {
    for format in [
        Format::Blkparse,
        Format::BlkEvents,
        Format::Fio2,
        Format::Fio3,
        Format::Lis,
        Format::LisDays,
        Format::Lirs,
        Format::IbmCos,
        Format::OracleGeneral,
    ] {
        read(bytes, Some(format), None);
        if format.has_ids() {
            read_with_ids(bytes, format);
        }
    }
}

fn read_with_ids(bytes: &[u8], format: Format) {
    let options = ReadOptions {
        format: Some(format),
        ids: Some(IdPlacement::Appearance),
        skip_bad: SkipBad { limit: u64::MAX },
        records_max: RECORDS_MAX,
        ..ReadOptions::default()
    };
    let stream = TraceStream::from_reader("fuzz", Cursor::new(bytes.to_vec()), &options);
    let _ = stream.and_then(|stream| load_stream(stream, &options));
}

/// Reads load measurements, as a digest and as an archive.
pub fn measurements(bytes: &[u8]) {
    const DIGEST: &[u8] =
        b"vm,index,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes,write_wss_bytes\n";
    for bytes in [bytes.to_vec(), [DIGEST, bytes].concat()] {
        let Ok(read) = Measurements::from_reader("fuzz", Cursor::new(bytes)) else {
            continue;
        };
        for volume in &read.volumes {
            let mut last = units::Nanos(0);
            for interval in &volume.intervals {
                assert!(interval.start >= last && interval.end > interval.start);
                last = interval.end;
            }
        }
        let info = read.info("fuzz");
        assert!(info.volumes.iter().all(|v| v.load.iops_4k_peak.is_finite()));
    }
}

/// Detects the format and reads the file in it, compressed or not.
pub fn detection(bytes: &[u8]) {
    let _ = detect(bytes, "fuzz.csv");
    read(bytes, None, None);
}
