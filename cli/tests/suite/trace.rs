//! Tests of `terrace trace` as a user runs it: exit codes, streams, messages.

use crate::run::terrace;

const SSDSIM: &str = "0 0 8 8 1\n979 0 16 8 0\nrubbish\n2000979 1 8 16 1\n";
const CAPTURE: &str =
    "time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n0,a,R,0,4096,1500\n5000,b,F,0,0,\n";

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.trace"), SSDSIM).unwrap();
    std::fs::write(directory.path().join("b.csv"), CAPTURE).unwrap();
    directory
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn info_of_one_file_is_complete() {
    let directory = directory();
    let out = terrace(directory.path(), &["trace", "info", "b.csv"]);
    assert!(out.status.success() && out.stderr.is_empty());
    insta::assert_snapshot!(text(&out.stdout), @r"
    file             b.csv
    format           capture-csv
    requests         2
      reads          1 (4.0 KiB)
      writes         0 (0 B)
      flushes        1
    read share       100.0 %
    span             5.000 µs
    IOPS             mean 400000.0, peak second 2
    read size        mean 4.0 KiB, median 4.0 KiB, largest 4.0 KiB
    write size       -
    footprint        4.0 KiB
    latency          mean 1.5 µs, p99 1.5 µs (of 1 requests)
    time reversals   0
    skipped records  0
    content hash     10e5e2bccc498e7057852960b37a03a3

    volume  requests  reads  writes     read  written      end  footprint
    a              1      1       0  4.0 KiB      0 B  4.0 KiB    4.0 KiB
    b              1      0       0      0 B      0 B      0 B        0 B
    ");
}

#[test]
fn info_of_several_files_is_a_row_each_and_errors_do_not_stop_it() {
    let directory = directory();
    let out = terrace(
        directory.path(),
        &[
            "trace",
            "info",
            "b.csv",
            "missing",
            "a.trace",
            "--skip-bad",
            "1",
        ],
    );
    assert_eq!(out.status.code(), Some(1));
    insta::assert_snapshot!(text(&out.stdout), @r"
    file     format       requests     read      span  mean IOPS  peak/s  footprint  volumes  latency
    b.csv    capture-csv         2  100.0 %  5.000 µs   400000.0       2    4.0 KiB        2     2 µs
    a.trace  ssdsim?             3   66.7 %   2.001 s        1.5       2   16.0 KiB        2        -
    ");
    insta::assert_snapshot!(text(&out.stderr), @r#"
    error: cannot open missing: No such file or directory (os error 2)
    warning: a.trace: the format is assumed to be ssdsim: the file does not name its unit of time: probably microseconds (ssdsim), since not all times end in 000, otherwise nanoseconds (mqsim); give --format to be certain
    skipped: a.trace: line 3: line "rubbish": 1 columns where 5 are needed
    "#);
}

#[test]
fn info_json_is_an_object_for_one_file_and_an_array_for_several() {
    let directory = directory();
    let json = |files: &[&str]| {
        let arguments = [&["trace", "info", "-o", "json", "--skip-bad", "9"], files].concat();
        serde_json::from_slice::<serde_json::Value>(&terrace(directory.path(), &arguments).stdout)
            .unwrap()
    };
    let one = json(&["a.trace"]);
    assert_eq!(one["schema"], "terrace.trace.info/2");
    assert_eq!(
        (&one["requests"], &one["format_assumed"]),
        (&3.into(), &true.into())
    );
    assert_eq!(
        one["bad_records"][0],
        "a.trace: line 3: line \"rubbish\": 1 columns where 5 are needed"
    );
    assert_eq!(one["volumes"][1]["name"], "1");
    assert_eq!(
        json(&["a.trace", "b.csv"]).as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn file_of_assumed_format_is_not_converted() {
    let directory = directory();
    let convert = |more: &[&str]| {
        terrace(
            directory.path(),
            &[
                &["trace", "convert", "a.trace", "a.trc", "--skip-bad", "1"],
                more,
            ]
            .concat(),
        )
    };
    let out = convert(&[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("--format") && !directory.path().join("a.trc").exists());
    assert!(convert(&["--format", "ssdsim"]).status.success());
    let out = terrace(directory.path(), &["trace", "info", "a.trc", "-o", "csv"]);
    let csv = text(&out.stdout);
    assert_eq!(csv.lines().count(), 2);
    assert!(
        csv.lines()
            .nth(1)
            .unwrap()
            .starts_with("\"a.trc\",native,false,none,3,2,1,0,0,"),
        "{csv}"
    );
    let out = terrace(directory.path(), &["trace", "convert", "a.trc", "a.csv"]);
    assert!(out.status.success() && out.stdout.is_empty());
    let csv = std::fs::read_to_string(directory.path().join("a.csv")).unwrap();
    let expected = "time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n0,0,R,4096,4096,\n\
                    979000,0,W,8192,4096,\n2000979000,1,R,4096,8192,\n";
    assert_eq!(csv, expected);
}

#[test]
fn wrong_usage_exits_with_code_2() {
    let directory = directory();
    for arguments in [
        &["trace", "info"][..],
        &["trace", "info", "b.csv", "--format", "nonsense"],
        &["trace", "info", "b.csv", "--columns", "when=1"],
        &["trace", "info", "b.csv", "--delimiter", "xx"],
        &["trace", "nonsense"],
    ] {
        assert_eq!(
            terrace(directory.path(), arguments).status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
    let out = terrace(directory.path(), &["trace", "convert", "b.csv", "b.txt"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains(".csv.zst"));
}

const MEASURED: &str = "vm,index,end_us,reads_4k,writes_4k,wss_bytes,read_wss_bytes,write_wss_bytes\n\
                        a,0,1799000000,900,900,8192,4096,8192\na,1,3599000000,3600,0,4096,4096,0\n";

#[test]
fn load_measurements_are_shown_as_such_and_not_converted() {
    let directory = directory();
    std::fs::write(directory.path().join("m.csv"), MEASURED).unwrap();
    let out = terrace(directory.path(), &["trace", "info", "m.csv"]);
    assert!(out.status.success() && out.stderr.is_empty());
    insta::assert_snapshot!(text(&out.stdout), @r"
    file             m.csv
    measurements     of load, no requests: accesses of 4.0 KiB in slots of 30.0 min
    volumes          1

    volume  slots  measured  reads  writes   write  IOPS  peak    MiB/s     peak  peak/mean  largest WSS
    a           2  60.0 min   4500     900  16.7 %   1.5   2.0  0.00586  0.00782        1.3      8.0 KiB
    all         2  60.0 min   4500     900  16.7 %   1.5   2.0  0.00586  0.00782        1.3      8.0 KiB
    ");
    let out = terrace(directory.path(), &["trace", "info", "m.csv", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["schema"], "terrace.trace.load/1");
    // The last slot ended with its last request, after 1799 s.
    assert_eq!(json["volumes"][0]["iops_4k_peak"], 3600.0 / 1799.0);
    let out = terrace(
        directory.path(),
        &["trace", "info", "m.csv", "b.csv", "-o", "csv"],
    );
    assert_eq!(out.status.code(), Some(1));
    let out = terrace(directory.path(), &["trace", "convert", "m.csv", "m.trc"]);
    assert!(text(&out.stderr).contains("measurements of load, not requests"));
}

#[test]
fn trace_without_times_has_no_rates() {
    let directory = directory();
    std::fs::write(directory.path().join("ids"), "7\n*\n8\n7\n").unwrap();
    let out = terrace(
        directory.path(),
        &["trace", "info", "ids", "--ids", "1 MiB"],
    );
    assert!(out.status.success() && out.stderr.is_empty());
    insta::assert_snapshot!(text(&out.stdout), @r"
    file             ids
    format           lirs
    requests         3
      reads          3 (3.0 MiB)
      writes         0 (0 B)
    read share       100.0 %
    other events     1, skipped
    span             no times: order only
    read size        mean 1.0 MiB, median 1.0 MiB, largest 1.0 MiB
    write size       -
    footprint        2.0 MiB
    latency          not recorded
    time reversals   0
    skipped records  0
    content hash     16a2154946b262145976664593fb526f

    volume  requests  reads  writes     read  written      end  footprint
    0              3      3       0  3.0 MiB      0 B  9.0 MiB    2.0 MiB
    ");
}

#[test]
fn sample_reports_its_rate_and_is_reproducible() {
    let directory = directory();
    let sample = |more: &[&str]| {
        let arguments = [&["trace", "sample", "a.trace", "s.trc"], more].concat();
        terrace(directory.path(), &arguments)
    };
    let all = ["--format", "ssdsim", "--skip-bad", "1"];
    let out = sample(&all);
    assert!(text(&out.stderr).contains("select requests with"));
    let out = sample(&[&all[..], &["--volumes", "1"]].concat());
    assert_eq!(
        text(&out.stderr),
        "s.trc: kept 1 of 3 requests read (33.3 %), 8.0 KiB of 16.0 KiB, 1 volumes\n"
    );
    let first = std::fs::read(directory.path().join("s.trc")).unwrap();
    sample(&[&all[..], &["--volumes", "1"]].concat());
    assert_eq!(
        std::fs::read(directory.path().join("s.trc")).unwrap(),
        first
    );
    let out = sample(&[&all[..], &["--volumes", "7"]].concat());
    assert!(text(&out.stderr).contains("the trace has no volume \"7\""));
}
