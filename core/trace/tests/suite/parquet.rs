//! Parquet there and back, and damaged files.

use std::path::Path;

use trace::{LoadedTrace, TraceStream, convert};

use crate::common::{self, BLKPARSE, CAPTURE, LIRS, MSR, options};

fn to(text: &str, path: &Path) -> Result<trace::ConversionSummary, String> {
    let text = std::io::Cursor::new(text.to_owned());
    let mut stream = TraceStream::from_reader("x", text, &options(None)).unwrap();
    convert(&mut stream, path, &mut |_| {}).map_err(|e| e.to_string())
}

fn named(trace: &LoadedTrace) -> Vec<(u64, String, model::Op, u64, u32)> {
    let row = |r: &trace::Record| {
        let volume = trace.volumes[r.volume() as usize].name.clone();
        (r.time_ns, volume, r.op(), r.offset_bytes, r.length_bytes)
    };
    trace.records().iter().map(row).collect()
}

#[test]
fn parquet_round_trips() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let mut many = String::from(CAPTURE.lines().next().unwrap());
    for i in 0..300_000u64 {
        let latency = if i % 3 == 0 {
            String::new()
        } else {
            (i % 1000).to_string()
        };
        many += &format!("\n{i},v{},R,{},4096,{latency}", i % 5, i * 4096);
    }
    for text in [MSR, CAPTURE, LIRS, BLKPARSE, &many] {
        let written = to(text, &path).unwrap();
        let original = common::read(text.as_bytes(), &options(None)).unwrap();
        let back = trace::load(&path, &options(None)).unwrap();
        assert_eq!(written.records, original.records().len() as u64);
        assert_eq!(back.format, trace::Format::Parquet);
        assert_eq!(named(&back), named(&original));
        let unknown = vec![trace::LATENCY_UNKNOWN; original.records().len()];
        let latencies = original.latencies().map_or(unknown, <[u64]>::to_vec);
        assert_eq!(back.latencies(), Some(latencies.as_slice()));
        assert_eq!(back.times, original.times);
        assert_eq!(back.origin_unix_ns, original.origin_unix_ns);
    }
}

#[test]
fn damaged_parquet_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    to(MSR, &path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for length in (4..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..length]).unwrap();
        refused += usize::from(trace::load(&path, &options(None)).is_err());
    }
    assert_eq!(refused, (4..whole.len()).step_by(7).count());
    for at in (0..whole.len()).step_by(3) {
        let mut bad = whole.clone();
        bad[at] ^= 0x55;
        std::fs::write(&path, &bad).unwrap();
        // It may be read, or not; it may not panic, and what is read is valid.
        let _ = trace::load(&path, &options(None));
    }
    std::fs::write(&path, b"PAR1 and more").unwrap();
    let error = trace::load(&path, &options(None)).unwrap_err().to_string();
    assert!(error.contains("x.parquet: Parquet: "), "{error}");
}
