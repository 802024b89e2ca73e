//! Meaning of the formats with events, commands and ids, in files of a few lines.

use model::Op;
use trace::{Format, IdPlacement, LATENCY_UNKNOWN, LoadedTrace, ReadOptions, Times, TraceStream};
use units::Bytes;

use crate::common::{
    self, BLK_EVENTS, BLKPARSE, COS, FIO2, FIO3, LIRS, LIS, Row, options, oracle, read, rows,
};

fn good(bytes: impl AsRef<[u8]>) -> LoadedTrace {
    read(bytes.as_ref(), &options(None)).unwrap()
}

fn names(trace: &LoadedTrace) -> Vec<&str> {
    trace.volumes.iter().map(|v| v.name.as_str()).collect()
}

fn refused(format: Format, text: impl AsRef<[u8]>, says: &str) {
    let error = read(text.as_ref(), &options(Some(format)))
        .unwrap_err()
        .to_string();
    assert!(error.contains(says), "{error}");
}

fn with_ids(bytes: &[u8], ids: IdPlacement) -> Result<LoadedTrace, trace::TraceError> {
    let options = ReadOptions {
        ids: Some(ids),
        ..options(None)
    };
    read(bytes, &options)
}

#[test]
fn csv_layouts_of_published_traces_are_read() {
    let spc = good(common::SPC);
    let expected: [Row; 2] = [
        (0, 0, Op::Write, 20_941_264 * 512, 8192),
        (2_335_000, 1, Op::Read, 20_939_840 * 512, 512),
    ];
    assert_eq!(rows(&spc), expected);
    let alibaba = good(common::ALIBABA);
    let expected: [Row; 2] = [
        (0, 0, Op::Write, 8192, 16_384),
        (2000, 1, Op::Read, 0, 4096),
    ];
    assert_eq!(rows(&alibaba), expected);
    assert_eq!(alibaba.origin_unix_ns, Some(1_577_808_144_360_767_000));
    assert_eq!(names(&alibaba), ["419", "725"]);
    let tencent = good(common::TENCENT);
    let expected: [Row; 2] = [
        (0, 0, Op::Read, 12_910_952 * 512, 65_536),
        (1_000_000_000, 1, Op::Write, 6_265_688 * 512, 4096),
    ];
    assert_eq!(rows(&tencent), expected);
    assert!(tencent.format_assumed.is_some());
    refused(Format::Spc, "0,1,512,W\n", "4 columns where 5 are needed");
    refused(Format::Alibaba, "0,W,1,512,1,2\n", "more than 5 columns");
    refused(
        Format::Tencent,
        "1538323200,1,8,2,7\n",
        "op \"2\": neither 0 nor 1",
    );
}

#[test]
fn blkparse_has_one_request_per_queue_event() {
    let trace = good(BLKPARSE);
    let expected: [Row; 5] = [
        (0, 0, Op::Read, 512_000, 4096),
        (1000, 0, Op::Read, 516_096, 4096),
        (3000, 1, Op::Write, 32_768, 8192),
        (6000, 1, Op::Flush, 0, 0),
        (104_000, 1, Op::Trim, 0, 1 << 20),
    ];
    assert_eq!(rows(&trace), expected);
    assert_eq!(names(&trace), ["8,16", "8,0"]);
    // One completion for two merged requests.
    let latencies = [100_000, 99_000, 100_000, LATENCY_UNKNOWN, LATENCY_UNKNOWN];
    assert_eq!(trace.latencies(), Some(&latencies[..]));
    let mut stream =
        TraceStream::from_reader("x", std::io::Cursor::new(BLKPARSE), &options(None)).unwrap();
    while stream.next_record().unwrap().is_some() {}
    // A, P, m and D count. Completions are used for latencies, and the summary is not an event.
    assert_eq!(stream.other_events(), 4);
}

#[test]
fn blkparse_without_queue_events_uses_issue_events() {
    let lines: Vec<&str> = BLKPARSE
        .lines()
        .filter(|l| !l.contains("  Q") && !l.contains(" Q "))
        .collect();
    let trace = good(lines.join("\n"));
    let expected: [Row; 1] = [(0, 0, Op::Read, 512_000, 8192)];
    assert_eq!(rows(&trace), expected);
    assert_eq!(trace.latencies(), Some(&[95_000][..]));
    let completed: Vec<&str> = lines.into_iter().filter(|l| l.contains("  C ")).collect();
    let trace = good(completed.join("\n"));
    assert_eq!((trace.records().len(), trace.latencies()), (2, None));
}

#[test]
fn blkparse_refuses_invalid_events() {
    let line = |text: &str| format!("8,16 5 1 0.0 7 Q R 8 + 8 [x]\n{text}\n");
    for (text, says) in [
        (
            "8,16 5 1 0.0 7",
            "line 2: line \"8,16 5 1 0.0 7\": fewer columns",
        ),
        (
            "816 5 1 0.0 7 Q R 8 + 8",
            "device \"816\": not device numbers",
        ),
        ("8,16 5 1 x 7 Q R 8 + 8", "time \"x\": not a number"),
        ("8,16 x 1 0.0 7 Q R 8 + 8", "cpu \"x\""),
        ("8,16 5 1 0.0 7 Q? R 8 + 8", "action \"Q?\""),
        (
            "8,16 5 1 0.0 7 Q X 8 + 8",
            "op \"X\": not a kind of request",
        ),
        (
            "8,16 5 1 0.0 7 Q R x + 8",
            "sector \"x\": not a whole number",
        ),
        ("8,16 5 1 0.0 7 Q R 8 + 0", "sectors \"0\": zero length"),
        (
            "8,16 5 1 0.0 7 Q R 36028797018963968 + 8",
            "beyond 2^64 bytes",
        ),
    ] {
        refused(Format::Blkparse, line(text), says);
    }
    // Not about sectors: a passthrough command, and a flush in older notation.
    let trace = read(
        line("8,16 5 1 0.0 7 Q R 36 (12 01) [x]\n8,16 5 1 0.0 7 Q WBS 0 + 0 [x]").as_bytes(),
        &options(Some(Format::Blkparse)),
    )
    .unwrap();
    let kinds: Vec<Op> = trace.records().iter().map(trace::Record::op).collect();
    assert_eq!(kinds, [Op::Read, Op::Flush]);
}

#[test]
fn derived_events_become_requests_with_latencies() {
    let trace = good(BLK_EVENTS);
    let expected: [Row; 2] = [
        (0, 0, Op::Read, 299_008, 4096),
        (500, 0, Op::Write, 4096, 512),
    ];
    assert_eq!(rows(&trace), expected);
    assert_eq!(trace.latencies(), Some(&[122_793, LATENCY_UNKNOWN][..]));
    refused(
        Format::BlkEvents,
        "1 D read -8 4096 0.0\n",
        "offset \"-8\": not a whole number",
    );
    refused(Format::BlkEvents, "1 D fetch 8 4096 0.0\n", "op \"fetch\"");
    refused(Format::BlkEvents, "1 D read 8 0 0.0\n", "zero length");
}

#[test]
fn fio_logs_are_read_with_and_without_times() {
    let two = good(FIO2);
    let expected: [Row; 4] = [
        (0, 0, Op::Write, 8192, 4096),
        (1, 1, Op::Read, 0, 512),
        (2, 1, Op::Trim, 4096, 65_536),
        (3, 1, Op::Flush, 0, 0),
    ];
    assert_eq!(rows(&two), expected);
    assert_eq!(
        (two.times, names(&two)),
        (Times::Order, vec!["/dev/b", "/dev/a"])
    );
    let waits = FIO2.replace("/dev/a trim", "/dev/a wait 150\n/dev/a trim");
    let waits = good(waits);
    assert_eq!(waits.times, Times::Measured);
    assert_eq!(waits.records()[2].time_ns, 150_000);
    let three = good(FIO3);
    let expected: [Row; 3] = [
        (181_000, 0, Op::Read, 503_808, 4096),
        (538_000, 0, Op::Write, 0, 512),
        (540_000, 0, Op::Flush, 0, 0),
    ];
    assert_eq!(rows(&three), expected);
    for (format, text, says) in [
        (
            Format::Fio2,
            FIO3,
            "line 1: line \"fio version 3 iolog\": not \"fio version 2 iolog\"",
        ),
        (
            Format::Fio3,
            "fio version 3 iolog\n1 x wait 5\n",
            "version 3 has no waits",
        ),
        (
            Format::Fio3,
            "fio version 3 iolog\n1 x read 5\n",
            "no offset and length",
        ),
        (
            Format::Fio3,
            "fio version 3 iolog\n1 x read 5 6 7\n",
            "more columns",
        ),
        (Format::Fio2, "fio version 2 iolog\nx\n", "fewer columns"),
        (
            Format::Fio2,
            "fio version 2 iolog\nx fetch 1 2\n",
            "action \"fetch\"",
        ),
        (
            Format::Fio2,
            "fio version 2 iolog\nx read 1 0\n",
            "length \"0\": zero length",
        ),
    ] {
        refused(format, text, says);
    }
    let late = format!(
        "fio version 2 iolog\n{}x wait 100\n",
        "x read 0 512\n".repeat(6000)
    );
    refused(
        Format::Fio2,
        late,
        "line 6002: wait \"100\": the first wait comes after 64 KiB",
    );
}

#[test]
fn traces_without_times_have_their_order() {
    let lis = good(LIS);
    let expected: [Row; 2] = [
        (0, 0, Op::Read, 3_050_771 * 512, 25 * 512),
        (1, 0, Op::Read, 51_200, 4096),
    ];
    assert_eq!((rows(&lis), lis.times), (expected.to_vec(), Times::Order));
    let ids = good(LIRS);
    let offsets: Vec<u64> = ids
        .records()
        .iter()
        .map(|r| r.offset_bytes / 4096)
        .collect();
    assert_eq!((offsets, ids.times), (vec![7, 3, 7], Times::Order));
    let bigger = with_ids(LIRS.as_bytes(), IdPlacement::Blocks(Bytes(1 << 20))).unwrap();
    assert_eq!(bigger.records()[0].offset_bytes, 7 << 20);
    assert_eq!(bigger.records()[0].length_bytes, 1 << 20);
    let named = with_ids(LIRS.as_bytes(), IdPlacement::Appearance).unwrap();
    let offsets: Vec<u64> = named.records().iter().map(|r| r.offset_bytes).collect();
    assert_eq!(offsets, [0, 4096, 0]);
    refused(Format::Lis, "1 0 0 0\n", "zero length");
    refused(Format::Lis, "1 1 x 0\n", "day \"x\"");
    refused(
        Format::LisDays,
        "1 1 5 0\n1 1 4 0\n",
        "before the day of the line before it",
    );
    refused(Format::Lis, "1 1 0\n", "not four columns");
    refused(Format::Lirs, "1 2\n", "more than one id");
    refused(
        Format::Lirs,
        "18446744073709551615\n",
        "if ids are hashes, use --ids appearance",
    );
    let error = with_ids(b"time_s,op\n", IdPlacement::Appearance).unwrap_err();
    assert!(!error.to_string().is_empty());
    let error = with_ids(common::MSR.as_bytes(), IdPlacement::Appearance).unwrap_err();
    assert!(error.to_string().contains("msr has addresses"), "{error}");
}

#[test]
fn objects_have_distinct_ranges() {
    let trace = good(COS);
    let expected: [Row; 5] = [
        (0, 0, Op::Write, 0, 5000),
        (15_000_000, 0, Op::Write, 8192, 100),
        (20_000_000, 0, Op::Read, 4096, 904),
        // The object has outgrown its range and gets a new one behind all others.
        (30_000_000, 0, Op::Write, 12_288, 9000),
        (40_000_000, 0, Op::Read, 12_288, 9000),
    ];
    assert_eq!(rows(&trace), expected);
    for (row, says) in [
        ("1 REST.GET.OBJECT xyz 5", "id \"xyz\": not hexadecimal"),
        ("1 REST.GET.OBJECT 5 10 9 5", "end \"5\": before the start"),
        (
            "1 REST.GET.OBJECT 5 10 9",
            "start \"9\": a range without its end",
        ),
        ("1 REST.EAT.OBJECT 5 10", "operation \"REST.EAT.OBJECT\""),
        ("1 REST.PUT.OBJECT 5 4294967296", "4 GiB or more"),
        ("1 REST.PUT.OBJECT 5", "no size"),
        (
            "1 REST.GET.OBJECT 5 1 0 18446744073709551615",
            "beyond 2^64",
        ),
    ] {
        refused(
            Format::IbmCos,
            format!("1 REST.PUT.OBJECT 5 10\n{row}\n"),
            says,
        );
    }
}

#[test]
fn oracle_records_are_reads_of_objects() {
    let bytes = oracle(&[(5, 7, 100, 3), (5, 9, 4096, -1), (6, 7, 100, -1)]);
    let trace = good(&bytes);
    assert_eq!(trace.format, Format::OracleGeneral);
    let expected: [Row; 3] = [
        (0, 0, Op::Read, 7 * 4096, 100),
        (0, 0, Op::Read, 9 * 4096, 4096),
        (1_000_000_000, 0, Op::Read, 7 * 4096, 100),
    ];
    assert_eq!(
        (rows(&trace), trace.times),
        (expected.to_vec(), Times::Measured)
    );
    let named = with_ids(&bytes, IdPlacement::Appearance).unwrap();
    let offsets: Vec<u64> = named.records().iter().map(|r| r.offset_bytes).collect();
    assert_eq!(offsets, [0, 4096, 0]);
    let hashes = oracle(&[(5, u64::MAX, 100, -1)]);
    refused(
        Format::OracleGeneral,
        &hashes,
        "byte 0: id \"18446744073709551615\": block",
    );
    refused(
        Format::OracleGeneral,
        oracle(&[(5, 1, 0, -1)]),
        "size \"0\": zero length",
    );
    refused(Format::OracleGeneral, &bytes[..30], "byte 24: record");
}

#[test]
fn order_survives_conversion_and_never_becomes_time() {
    let directory = tempfile::tempdir().unwrap();
    let convert = |name: &str| {
        let mut stream =
            TraceStream::from_reader("x", std::io::Cursor::new(LIRS), &options(None)).unwrap();
        trace::convert(&mut stream, &directory.path().join(name), &mut |_| {})
    };
    let error = convert("x.csv").unwrap_err().to_string();
    assert!(error.contains("convert it to .trc"), "{error}");
    convert("x.trc").unwrap();
    let path = directory.path().join("x.trc");
    let loaded = trace::load(&path, &ReadOptions::default()).unwrap();
    assert!(loaded.is_mapped() && loaded.times == Times::Order);
    let mut stream = TraceStream::open(&path, &ReadOptions::default()).unwrap();
    let info = trace::TraceInfo::collect(&mut stream, &mut |_| {}).unwrap();
    assert_eq!(
        (info.times, info.span_s, info.mean_iops),
        (Times::Order, None, None)
    );
}

#[test]
fn systor_and_fiu_formats_are_read_as_published() {
    let systor = good(common::SYSTOR);
    let expected: [Row; 2] = [
        (0, 0, Op::Read, 1_069_133_824, 4096),
        (2_000_000, 0, Op::Write, 0, 8192),
    ];
    assert_eq!(
        (rows(&systor), names(&systor)),
        (expected.to_vec(), vec!["4"])
    );
    assert_eq!(systor.latencies(), Some(&[221_000, LATENCY_UNKNOWN][..]));
    assert_eq!(systor.origin_unix_ns, Some(1_455_592_511_181_391_000));
    let fiu = good(common::FIU);
    let expected: [Row; 2] = [
        (0, 0, Op::Write, 904_265_560 * 512, 4096),
        (10_000, 1, Op::Read, 904_265_568 * 512, 8192),
    ];
    assert_eq!(
        (rows(&fiu), names(&fiu)),
        (expected.to_vec(), vec!["6.0", "8.1"])
    );
}

#[test]
fn header_and_delimiter_do_not_change_the_records() {
    let plain = good(common::MSR);
    let header = "\u{feff}\"Timestamp\", HOSTNAME,Disk Number,type,Offset,Size,Response_Time\r\n";
    let text = format!(
        "{header}# a remark\r\n{}",
        common::MSR.replace('\n', "\r\n")
    );
    for text in [
        text.clone(),
        text.replace(',', ";"),
        text.replace(',', "\t"),
    ] {
        let trace = good(&text);
        assert_eq!(
            (rows(&trace), names(&trace)),
            (rows(&plain), names(&plain)),
            "{text}"
        );
        assert_eq!(
            (trace.latencies(), trace.origin_unix_ns),
            (plain.latencies(), plain.origin_unix_ns)
        );
    }
    let reordered =
        "Type,Timestamp,DiskNumber,Hostname,Size,Offset\nRead,128166372003061629,0,web,512,4096\n";
    let trace = good(reordered);
    assert_eq!(
        (rows(&trace), names(&trace)),
        (vec![(0, 0, Op::Read, 4096, 512)], vec!["web.0"])
    );
    assert!(trace.format_assumed.is_some());
    let alibaba = format!(
        "device_id,opcode,offset,length,timestamp\n{}",
        common::ALIBABA
    );
    assert_eq!(rows(&good(&alibaba)), rows(&good(common::ALIBABA)));
    let tencent = good(format!(
        "Timestamp,Offset,Size,IOType,VolumeID\n{}",
        common::TENCENT
    ));
    assert_eq!(rows(&tencent), rows(&good(common::TENCENT)));
    assert_eq!(tencent.format_assumed, None);
}

#[test]
fn dates_are_accepted_as_times_in_column_formats() {
    let text = "2024-03-01 12:00:00.002,web,0,Read,8192,4096,1331\n\
                2024-03-01T13:00:00.0025+01:00,web,0,Write,0,512,1331\n";
    let expected: [Row; 2] = [
        (0, 0, Op::Read, 8192, 4096),
        (500_000, 0, Op::Write, 0, 512),
    ];
    let with_header =
        format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{text}");
    for text in [text, &with_header] {
        let trace = good(text);
        assert_eq!(rows(&trace), expected);
        assert_eq!(trace.origin_unix_ns, Some(1_709_294_400_002_000_000));
    }
    let any = "when;op;offset_bytes;length_bytes;time\nx;R;0;512;2024/03/01 12:00\n";
    assert_eq!(rows(&good(any)), [(0, 0, Op::Read, 0, 512)]);
    refused(
        Format::Msr,
        text.replace("2024-03-01T", "01/03/2024 "),
        "ambiguous date",
    );
}

#[test]
fn blkparse_reads_zone_events_and_skips_totals() {
    let totals = "CPU0 (nvme0n1):\n Reads Queued:           0,        0KiB\t Writes Queued:  3\n\n\
                  Total (nvme0n1):\n Reads Queued: 1\n\nThroughput (R/W): 1KiB/s / 2KiB/s\n\
                  Events (nvme0n1): 8 entries\nSkips: 0 forward (0 -   0.0%)\n";
    let first = "259,0 1 1 0.000000000 312 Q WS 0 + 8 [a]\n\
                 259,0 1 2 0.000100000 312 Q ZA 524288 + 8 [btrfs]\n\
                 259,0 1 3 0.000200000 312 Q ZR 524288 + 0 [btrfs]\n\
                 259,0 1 3 0.000200000 312 Q ZRA 0 + 0 [btrfs]\n\
                 259,0 1 3 0.000300000 312 Q ZF 524288 + 0 [btrfs]\n\
                 259,0 1 4 0.000500000 312 Q WZ 16 + 8 [a]\n\
                 259,0 1 4 0.000500000 312 U N [a] 1\n\
                 259,0 1 4 0.000500000 312 UT N [a] 1\n\
                 259,0 1 0 0.000500000 0 m N a message\n";
    let second = "259,0 1 5 0.000600000 312 Q DE 16 + 8 [a]\n\
                  259,0 1 6 0.000700000 312 Q FWFSM 8 + 8 [a]\n\
                  259,0 1 7 0.000800000 312 Q WFSMU 8 + 8 [a]\n";
    let text = format!("Input file nvme0n1.blktrace.0 added\n{first}{totals}{second}{totals}");
    let expected: [Row; 6] = [
        (0, 0, Op::Write, 0, 4096),
        (100_000, 0, Op::Write, 524_288 * 512, 4096),
        (500_000, 0, Op::Trim, 8192, 4096),
        (600_000, 0, Op::Trim, 8192, 4096),
        (700_000, 0, Op::Write, 4096, 4096),
        (800_000, 0, Op::Write, 4096, 4096),
    ];
    assert_eq!(rows(&good(&text)), expected);
}
