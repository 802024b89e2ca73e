//! Tests of `terrace sim cache` as a user runs it.

use std::fmt::Write;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::run::terrace;

/// Writes a trace with three rounds over four pages, as two requests of 8 KiB each; then a write and a read of the
/// first page.
fn rounds(directory: &Path) {
    let mut csv = String::from("time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n");
    for i in 0..6 {
        let _ = writeln!(csv, "{i},v,R,{},8192,", i % 2 * 8192);
    }
    csv += "6,v,W,0,4096,\n7,v,R,0,4096,\n8,v,F,0,0,\n";
    std::fs::write(directory.join("rounds.csv"), csv).unwrap();
}

fn cache(directory: &Path, arguments: &[&str]) -> Output {
    terrace(directory, &[&["sim", "cache"], arguments].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must fail with all these words in its message and write no result.
fn refused(directory: &Path, arguments: &[&str], words: &[&str]) {
    let out = cache(directory, arguments);
    let error = text(&out.stderr);
    assert!(!out.status.success(), "{arguments:?}");
    assert!(out.stdout.is_empty(), "{arguments:?}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}

#[test]
fn cache_output_is_a_table_by_default() {
    let directory = tempfile::tempdir().unwrap();
    rounds(directory.path());
    let out = cache(
        directory.path(),
        &["rounds.csv", "--policies", "lru,belady", "--sizes", "3p,4p"],
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let table = text(&out.stdout);
    assert!(table.starts_with("rounds.csv: 8 requests, 14 references to 4 pages"));
    let rows: Vec<&str> = table.lines().filter(|l| l.contains(" %")).collect();
    assert_eq!(rows.len(), 4, "{table}");
    // Size 3: only the last read hits with LRU; the optimum keeps half.
    assert!(rows[0].starts_with("lru") && rows[0].contains("92.857 %"));
    assert!(rows[1].starts_with("lru") && rows[1].contains("28.571 %"));
    assert!(rows[2].starts_with("belady") && rows[2].contains("50.000 %"));
}

#[test]
fn cache_output_is_json_on_request() {
    let directory = tempfile::tempdir().unwrap();
    rounds(directory.path());
    // Sizes with an equal number of pages count as one size.
    let out = cache(
        directory.path(),
        &[
            "rounds.csv",
            "--sizes",
            "16KiB,4p,100%,3p",
            "--response",
            "20us,6ms",
            "--extents",
            "-o",
            "json",
        ],
    );
    assert!(
        out.status.success() && out.stderr.is_empty(),
        "{}",
        text(&out.stderr)
    );
    let all: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(all["schema"], "terrace.sim.cache/1");
    let trace = &all["traces"][0];
    assert_eq!(trace["requests"], 8);
    assert_eq!(trace["references"], 14);
    assert_eq!(trace["working_set_bytes"], 4 * 4096);
    let rows = trace["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let row = &rows[0];
    assert_eq!((&row["policy"], &row["pages"]), (&"lru".into(), &4.into()));
    assert_eq!((&row["hits"], &row["misses"]), (&10.into(), &4.into()));
    assert_eq!(row["request_hit_ratio"], 0.75);
    let bytes_hit = row["byte_hit_ratio"].as_f64().unwrap();
    assert!((bytes_hit - 40_960.0 / 57_344.0).abs() < 1e-12);
    // Response times: six requests take 20 µs and two take 6 ms.
    assert_eq!(row["response_mean_us"], 1515.0);
    assert_eq!(row["extents"][0]["misses"], 4);
    assert_eq!(
        (&rows[1]["pages"], &rows[1]["hits"]),
        (&3.into(), &1.into())
    );
}

/// After an error, nothing is simulated or written.
#[test]
fn conflicting_options_are_refused_before_simulation() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    rounds(at);
    refused(
        at,
        &["rounds.csv", "--response", "6ms,20us"],
        &["longer than a miss"],
    );
    refused(
        at,
        &["rounds.csv", "--extents", "-o", "csv"],
        &["--extents", "CSV"],
    );
    refused(
        at,
        &["rounds.csv", "absent.csv", "--sizes", "3p"],
        &["absent.csv"],
    );
    for size in ["1KiB", "1%"] {
        refused(
            at,
            &["rounds.csv", "--sizes", size, "--export", "out.bin"],
            &["--sizes", "no page of 4 KiB"],
        );
        assert!(!at.join("out.bin").exists());
    }
    refused(
        at,
        &[
            "rounds.csv",
            "--policies",
            "priority-lru",
            "--sample",
            "0.5",
            "--response",
            "20us,6ms",
        ],
        &["--sample", "--response", "priority-lru"],
    );
    refused(at, &["rounds.csv", "--on-hit", "bottom"], &["top", "again"]);
}

#[test]
fn policies_with_reduced_function_print_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    rounds(directory.path());
    let warnings = |arguments: &[&str]| {
        let out = cache(
            directory.path(),
            &[&["rounds.csv", "--sizes", "3p"], arguments].concat(),
        );
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    let without = warnings(&["--policies", "priority-lru"]);
    assert!(
        without.contains("warning: priority-lru without --response"),
        "{without}"
    );
    let short = warnings(&["--policies", "priority-lru", "--response", "20us,6ms"]);
    assert!(
        short.contains("shorter than a slice") && !short.contains("without"),
        "{short}"
    );
    let optimum = warnings(&["--policies", "belady", "--extents"]);
    assert!(optimum.contains("not counted by extent"), "{optimum}");
    assert_eq!(warnings(&["--policies", "hr-lru", "--on-hit", "again"]), "");
}
