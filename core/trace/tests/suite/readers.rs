//! Every foreign format in hand-written files of a few lines: values, errors, skipped lines, and the order of time.

use model::Op::{self, Flush, Read, Trim, Write};
use trace::{
    Detection, Format, LATENCY_UNKNOWN, Ordering, ReadOptions, SkipBad, TraceError, detect,
};

use crate::common::{self, Row, corpus, options, read, rows, vscsi, vscsi_file};

fn check(format: Format, bytes: &[u8], expected: &[Row], volumes: &[&str]) {
    let trace = read(bytes, &options(Some(format))).unwrap();
    assert_eq!(rows(&trace), expected, "{format}");
    assert_eq!(
        trace
            .volumes
            .iter()
            .map(|v| v.name.as_str())
            .collect::<Vec<_>>(),
        volumes,
        "{format}"
    );
}

#[test]
fn formats_are_read_as_documented() {
    use crate::common::*;
    let msr = [
        (0, 0, Read, 8192, 4096),
        (1_000_000_000, 0, Write, 12288, 512),
        (1_332_052_600, 1, Write, 0, 65536),
    ];
    check(Format::Msr, MSR.as_bytes(), &msr, &["web.0", "sql.1"]);
    let diskmon = [
        (0, 0, Write, 51200, 4096),
        (250_625_000, 1, Read, 102_400, 8192),
    ];
    check(Format::DiskMon, DISKMON.as_bytes(), &diskmon, &["0", "1"]);
    let hadoop = [
        (0, 0, Read, 4096, 512),
        (2_370_937_968, 1, Write, 8192, 45056),
    ];
    check(Format::HadoopCsv, HADOOP.as_bytes(), &hadoop, &["2", "6"]);
    let capture = [
        (0, 0, Read, 0, 4096),
        (10, 1, Write, 4096, 4096),
        (10, 1, Flush, 0, 0),
        (25, 0, Trim, 8192, 1 << 20),
    ];
    check(Format::Capture, CAPTURE.as_bytes(), &capture, &["a,b", "c"]);
    let disksim = [
        (0, 0, Write, 20_228_336 * 512, 4096),
        (384_373_000, 0, Read, 6_397_360 * 512, 496 * 512),
    ];
    check(Format::DiskSim, DISKSIM.as_bytes(), &disksim, &["0"]);
    let ssdsim = [
        (0, 0, Read, 280_605_840 * 512, 1024),
        (979_000, 0, Write, 287_641_400 * 512, 65536),
    ];
    check(Format::SsdSim, SSDSIM.as_bytes(), &ssdsim, &["0"]);
    let mqsim = [
        (0, 0, Write, 264_719_034 * 512, 8192),
        (315_000, 1, Read, 197_570_570 * 512, 8192),
    ];
    check(Format::MqSim, MQSIM.as_bytes(), &mqsim, &["4", "3"]);
    let bytes_ms = [
        (0, 0, Write, 3_242_508_288, 4096),
        (22_810_000, 0, Read, 2_205_343_744, 512),
    ];
    check(Format::AsciiBytesMs, BYTES_MS.as_bytes(), &bytes_ms, &["0"]);
    let vscsi = [
        (0, 0, Write, 51200, 512),
        (10_000, 0, Read, 4096, 4096),
        (20_000, 0, Flush, 0, 0),
    ];
    check(Format::Vscsi1, &vscsi_file(1), &vscsi, &["0"]);
    check(Format::Vscsi2, &vscsi_file(2), &vscsi, &["0"]);
}

#[test]
fn latencies_are_kept_where_a_format_has_them() {
    let latencies = |format, bytes: &[u8]| {
        read(bytes, &options(Some(format)))
            .unwrap()
            .latencies()
            .map(<[u64]>::to_vec)
    };
    let msr = latencies(Format::Msr, common::MSR.as_bytes());
    assert_eq!(msr, Some(vec![133_100, 70_000, 10_000_000]));
    assert_eq!(
        latencies(Format::DiskMon, common::DISKMON.as_bytes()),
        Some(vec![38_150, 38_150])
    );
    assert_eq!(
        latencies(Format::Vscsi2, &vscsi_file(2)),
        Some(vec![250_000; 3])
    );
    let capture = latencies(Format::Capture, common::CAPTURE.as_bytes());
    assert_eq!(
        capture,
        Some(vec![1500, LATENCY_UNKNOWN, 900, LATENCY_UNKNOWN])
    );
    assert_eq!(latencies(Format::Vscsi1, &vscsi_file(1)), None);
}

#[test]
fn time_of_day_is_kept_where_a_format_has_it() {
    let trace = read(common::MSR.as_bytes(), &options(None)).unwrap();
    assert_eq!(
        trace.origin_unix_ns,
        Some((128_166_372_003_061_629 - 116_444_736_000_000_000) * 100)
    );
    assert_eq!(
        read(common::DISKMON.as_bytes(), &options(None))
            .unwrap()
            .origin_unix_ns,
        None
    );
}

#[test]
fn formats_are_detected() {
    for (format, bytes) in corpus() {
        match detect(&bytes, "file") {
            Detection::Known(found) | Detection::Assumed { format: found, .. } => {
                assert_eq!(found, format)
            }
            other => panic!("{format}: {other:?}"),
        }
    }
}

#[test]
fn invalid_record_is_named_by_position_field_value_and_reason() {
    let msr = |row: &str| format!("{}{row}\n", common::MSR);
    for (format, bytes, says) in [
        (
            Format::Msr,
            msr("x,web,0,Read,0,512,1"),
            "file: line 4: time \"x\": not a whole number",
        ),
        (
            Format::Msr,
            msr("128166372016382155,web,0,Rd?,0,512,1"),
            "file: line 4: op \"Rd?\": not a known kind of request (read, write, trim or flush) in column 4: map the value with --columns op=4:read=Rd? (or write=",
        ),
        (
            Format::Msr,
            msr("128166372016382155,web,0,Read,-1,512,1"),
            "line 4: offset \"-1\": not a whole number",
        ),
        (
            Format::Msr,
            msr("128166372016382155,web,0,Read,0,0,1"),
            "line 4: length \"0\": zero length",
        ),
        (
            Format::Msr,
            msr("128166372016382155,web,0,Read,0,4294967296,1"),
            "length \"4294967296\": 4 GiB or more",
        ),
        (
            Format::Msr,
            msr("128166372016382155,web,0,Read,18446744073709551615,512,1"),
            "offset + length is beyond 2^64",
        ),
        (
            Format::Msr,
            msr("128166372016382155,web,0,Read"),
            "4 columns where 7 are needed",
        ),
        (
            Format::Msr,
            msr("128166372016382155,web,0,Read,0,512,1,9"),
            "more than 7 columns",
        ),
        (
            Format::Msr,
            msr("128166372016382155,w\u{1}b,0,Read,0,512,1"),
            "volume \"w\\x01b.0\": the name",
        ),
        (
            Format::SsdSim,
            "0 0 36028797018963968 1 1\n".into(),
            "offset \"36028797018963968\": beyond 2^64 bytes",
        ),
        (
            Format::SsdSim,
            "0 0 1 1 2\n".into(),
            "line 1: op \"2\": neither 0 nor 1",
        ),
        (
            Format::DiskSim,
            "0.5 0 1 1 zz\n".into(),
            "line 1: op \"zz\": not a hexadecimal number",
        ),
    ] {
        let error = read(bytes.as_bytes(), &options(Some(format)))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}\n{says}");
    }
    let long = format!("{}{}\n", common::SSDSIM, "9".repeat(70_000));
    let error = read(long.as_bytes(), &options(Some(Format::SsdSim)))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("line 3: line \"9999") && error.ends_with("…\": longer than 65536 bytes"),
        "{error}"
    );
}

#[test]
fn invalid_vscsi_record_is_named_by_its_byte_offset() {
    let good = vscsi(1, 0x28, 512, 0, 1);
    for (bad, says) in [
        (
            vscsi(1, 0x12, 512, 0, 1),
            "file: byte 32: command \"0x12\": not a SCSI command that reads",
        ),
        (
            vscsi(2, 0x28, 512, 0, 1)[..32].to_vec(),
            "byte 32: version \"0x0000\"",
        ),
        (vscsi(1, 0x28, 512, u64::MAX, 1), "byte 32: block"),
        (
            vscsi(1, 0x28, 0, 0, 1),
            "byte 32: length \"0\": zero length",
        ),
        (vscsi(1, 0x28, 512, 0, u64::MAX), "byte 32: time"),
        (good[..31].to_vec(), "the file ends after 31 of 32 bytes"),
    ] {
        let bytes = [good.clone(), bad].concat();
        let error = read(&bytes, &options(Some(Format::Vscsi1)))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}\n{says}");
    }
}

#[test]
fn invalid_records_are_skipped_up_to_a_limit() {
    let text = "0 0 8 8 1\nrubbish\n5 0 8 8 7\n\n# a remark\n9 0 16 8 0\n";
    let options = |limit| ReadOptions {
        format: Some(Format::SsdSim),
        skip_bad: SkipBad { limit },
        ..ReadOptions::default()
    };
    let trace = read(text.as_bytes(), &options(2)).unwrap();
    assert_eq!(
        (trace.skipped, trace.records().len(), trace.span_ns),
        (2, 2, 9000)
    );
    let error = read(text.as_bytes(), &options(1)).unwrap_err().to_string();
    let says = "more than 1 bad records: file: line 3: op \"7\": neither 0 nor 1";
    assert!(error.starts_with(says), "{error}");
}

#[test]
fn small_time_reversals_are_repaired_and_counted() {
    let text = "5 0 1 1 1\n9 0 2 1 1\n7 0 3 1 1\n7 0 4 1 1\n3 0 5 1 1\n";
    let trace = read(text.as_bytes(), &options(Some(Format::SsdSim))).unwrap();
    let order: Vec<_> = trace
        .records()
        .iter()
        .map(|r| (r.time_ns, r.offset_bytes / 512))
        .collect();
    assert_eq!(order, [(0, 5), (2000, 1), (4000, 3), (4000, 4), (6000, 2)]);
    assert_eq!(trace.time_reversals, 2);
}

#[test]
fn large_time_reversal_requires_a_sort() {
    let mut text: String = (1..=trace::REORDER_RECORDS_MAX + 2)
        .map(|i| format!("{i} 0 1 1 1\n"))
        .collect();
    text.push_str("0 0 9 1 1\n");
    let repair = options(Some(Format::SsdSim));
    let error = read(text.as_bytes(), &repair).unwrap_err().to_string();
    assert!(
        error.contains("line 65539: time decreases by 2000 ns") && error.contains("--sort"),
        "{error}"
    );
    let sort = ReadOptions {
        ordering: Ordering::Sort,
        ..repair
    };
    let trace = read(text.as_bytes(), &sort).unwrap();
    assert_eq!(
        (trace.records()[0].offset_bytes, trace.time_reversals),
        (9 * 512, 1)
    );
    let error = read(
        text.as_bytes(),
        &ReadOptions {
            records_max: 1000,
            ..sort
        },
    )
    .unwrap_err();
    assert!(
        matches!(error, TraceError::TooManyRecords { limit: 1000, .. }),
        "{error}"
    );
}

#[test]
fn csv_is_read_by_its_column_mapping() {
    let text = "1600000000.5|1|x|7|8|0.25\n1600000001|0|y|9|1|\n";
    let columns = "time=1:s,op=2:read1,volume=3,offset=4:pages,length=5:sectors,latency=6:ms"
        .parse()
        .unwrap();
    let trace = read(
        text.as_bytes(),
        &ReadOptions {
            columns: Some(columns),
            ..options(None)
        },
    )
    .unwrap();
    assert_eq!(
        rows(&trace),
        [
            (0, 0, Read, 7 * 4096, 4096),
            (500_000_000, 1, Write, 9 * 4096, 512)
        ]
    );
    assert_eq!(trace.latencies(), Some(&[250_000, LATENCY_UNKNOWN][..]));
    let wrong = ReadOptions {
        columns: Some("time=1:s".parse().unwrap()),
        ..options(Some(Format::Msr))
    };
    assert!(
        read(text.as_bytes(), &wrong)
            .unwrap_err()
            .to_string()
            .contains("columns of msr are fixed")
    );
}

fn mapped(text: &str, columns: &str) -> Result<trace::LoadedTrace, TraceError> {
    let columns = columns.parse().unwrap();
    let options = ReadOptions {
        columns: Some(columns),
        ..options(None)
    };
    read(text.as_bytes(), &options)
}

#[test]
fn csv_kinds_are_mapped_known_or_refused() {
    let scsi = "version,time,op,size,lbn\n1,5,2a,512,8\n1,6,28,4096,9\n1,7,42,4096,9\n1,8,35,0,0\n";
    let expected = [
        (0, 0, Write, 8 * 512, 512),
        (1_000_000_000, 0, Read, 9 * 512, 4096),
        (2_000_000_000, 0, Trim, 9 * 512, 4096),
        (3_000_000_000, 0, Flush, 0, 0),
    ];
    let columns = "time=2:s,size=4:bytes,offset=5:sectors,op=3";
    assert_eq!(rows(&mapped(scsi, columns).unwrap()), expected);
    assert_eq!(
        rows(&mapped(scsi, &format!("{columns}:scsi")).unwrap()),
        expected
    );
    // Detected by its header alone.
    assert_eq!(
        rows(&read(scsi.as_bytes(), &options(None)).unwrap()),
        expected
    );
    let swapped = mapped(scsi, &format!("{columns}:read=2a,28=write,skip=42|35")).unwrap();
    let kinds: Vec<Op> = swapped.records().iter().map(|r| r.op()).collect();
    assert_eq!(kinds, [Read, Write]);
}

#[test]
fn unknown_kind_names_line_column_and_mapping() {
    let text = "time_us,what,offset_bytes,length_bytes\n1,read,0,512\n2,zap,0,512\n";
    let columns = "op=what";
    let error = mapped(text, columns).unwrap_err().to_string();
    for says in ["line 3: op \"zap\"", "column 2", "--columns op=2:read=zap"] {
        assert!(error.contains(says), "{error}");
    }
    let skipped = mapped(text, "op=what,skip=zap").unwrap();
    assert_eq!(skipped.records().len(), 1);
    // An operation code is not a flag.
    let error = mapped(
        "1,2a,0,512\n",
        "time=1:us,op=2:bit0,offset=3:bytes,length=4:bytes",
    );
    assert!(error.unwrap_err().to_string().contains("neither 0 nor 1"));
}

#[test]
fn csv_without_kinds_is_assumed_to_be_reads_with_a_note() {
    let text = "time_us,offset_bytes,length_bytes\n1,0,4096\n2,4096,4096\n";
    let assumed = read(text.as_bytes(), &options(None)).unwrap();
    assert!(assumed.format_assumed.unwrap().contains("op=read"));
    let said = mapped(text, "op=write").unwrap();
    assert_eq!(said.format_assumed, None);
    assert!(said.records().iter().all(|r| r.op() == Write));
}

#[test]
fn damaged_compressed_trace_reports_the_offset_read() {
    let text: String = (0..40_000)
        .map(|i| format!("{i} 0 {} 8 1\n", i * 7919 % 10_007))
        .collect();
    let packed = zstd::stream::encode_all(text.as_bytes(), 1).unwrap();
    assert_eq!(
        read(&packed, &options(Some(Format::SsdSim)))
            .unwrap()
            .records()
            .len(),
        40_000
    );
    let error = read(&packed[..packed.len() / 2], &options(Some(Format::SsdSim))).unwrap_err();
    let TraceError::Stream {
        offset_bytes, what, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(
        *offset_bytes > 65_536 && *offset_bytes < text.len() as u64 && what.contains("zstd"),
        "{error}"
    );
}

#[test]
fn csv_kinds_include_trim_flush_and_synchronous_writes() {
    let text =
        "time_ns,op,offset_bytes,size_bytes\n0,read,0,512\n0,discard,0,512\n0,SYNC,,\n0,WS,0,512\n";
    let trace = read(text.as_bytes(), &options(None)).unwrap();
    let ops: Vec<Op> = trace.records().iter().map(trace::Record::op).collect();
    assert_eq!(ops, [Read, Trim, Flush, Write]);
}

/// Traces of one recording share its clock: a volume that was idle at first is idle at first in a replay.
#[test]
fn capture_keeps_the_start_time_of_its_recording() {
    let text = b"time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n5000,late,R,0,4096,\n7000,late,W,0,4096,\n";
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("late.csv");
    std::fs::write(&csv, text).unwrap();
    let loaded = trace::load(&csv, &trace::ReadOptions::default()).unwrap();
    let times: Vec<u64> = loaded.records().iter().map(|r| r.time_ns).collect();
    assert_eq!((times, loaded.span_ns), (vec![5000, 7000], 7000));
    // The times survive a conversion to the native format and back.
    let native = dir.path().join("late.trc");
    let again = dir.path().join("again.csv");
    for (from, to) in [(&csv, &native), (&native, &again)] {
        let mut stream = trace::TraceStream::open(from, &trace::ReadOptions::default()).unwrap();
        trace::convert(&mut stream, to, &mut |_| {}).unwrap();
    }
    assert_eq!(std::fs::read(&again).unwrap(), text);
}
