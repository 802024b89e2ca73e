//! Tests of `terrace trace mrc` as a user runs it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::run::terrace;

const HEAD: &str = "time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n";

fn mrc(directory: &Path, arguments: &[&str]) -> Output {
    terrace(directory, &[&["trace", "mrc"], arguments].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Writes a trace with three rounds over four pages, as two requests of 8 KiB each; then a write and a read of the
/// first page.
fn rounds(directory: &Path) {
    let mut csv = String::from(HEAD);
    for i in 0..6 {
        let _ = writeln!(csv, "{i},v,R,{},8192,", i % 2 * 8192);
    }
    csv += "6,v,W,0,4096,\n7,v,R,0,4096,\n8,v,F,0,0,\n";
    std::fs::write(directory.join("rounds.csv"), csv).unwrap();
}

/// Writes a trace with random reads, more of them at the lower pages.
fn skewed(directory: &Path, pages: u64, requests: u64) {
    let mut csv = String::from(HEAD);
    let mut state = 1u64;
    for i in 0..requests {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let unit = (state >> 40) as f64 / (1u64 << 24) as f64;
        let page = (unit * unit * pages as f64) as u64;
        let _ = writeln!(csv, "{i},v,R,{},4096,", page * 4096);
    }
    std::fs::write(directory.join("skewed.csv"), csv).unwrap();
}

fn ratios(curve: &Value) -> Vec<f64> {
    let points = curve["points"].as_array().unwrap();
    points
        .iter()
        .map(|p| p["miss_ratio"].as_f64().unwrap())
        .collect()
}

#[test]
fn exact_miss_ratios_match_a_worked_example() {
    let directory = tempfile::tempdir().unwrap();
    rounds(directory.path());
    let sizes = [
        "--method",
        "exact",
        "--sizes",
        "4KiB,12KiB,16KiB,1MiB",
        "-o",
        "json",
    ];
    let run = |more: &[&str]| -> Value {
        let arguments = [&["rounds.csv"], &sizes[..], more].concat();
        let out = mrc(directory.path(), &arguments);
        assert!(
            out.status.success() && out.stderr.is_empty(),
            "{}",
            text(&out.stderr)
        );
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let all = run(&[]);
    assert_eq!(all["schema"], "terrace.trace.mrc/1");
    let trace = &all["traces"][0];
    assert_eq!(
        (&trace["references"], &trace["curves"][0]["pages_followed"]),
        (&14.into(), &4.into())
    );
    // The write hits four pages; the following read hits one page.
    assert_eq!(
        ratios(&trace["curves"][0]),
        [13.0 / 14.0, 13.0 / 14.0, 4.0 / 14.0, 4.0 / 14.0]
    );
    let reads = run(&["--reads-only-cache"]);
    let trace = &reads["traces"][0];
    assert_eq!(trace["references"], 13);
    // The write drops the page, so the page misses once more.
    assert_eq!(
        ratios(&trace["curves"][0]),
        [1.0, 1.0, 5.0 / 13.0, 5.0 / 13.0]
    );
}

#[test]
fn small_footprint_is_computed_exactly_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    rounds(directory.path());
    let out = mrc(
        directory.path(),
        &["rounds.csv", "--method", "shards", "-o", "csv"],
    );
    assert!(out.status.success());
    assert!(
        text(&out.stderr).contains("exact instead of shards"),
        "{}",
        text(&out.stderr)
    );
    assert!(
        text(&out.stdout).contains("\"rounds.csv\",exact,,16384,0.2857"),
        "{}",
        text(&out.stdout)
    );
    let out = mrc(
        directory.path(),
        &["rounds.csv", "--method", "shards", "--rate", "0.5"],
    );
    assert!(out.status.success());
    assert!(
        text(&out.stderr).contains("too few"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn methods_are_listed_side_by_side_with_their_errors() {
    let directory = tempfile::tempdir().unwrap();
    skewed(directory.path(), 60_000, 300_000);
    let out = mrc(
        directory.path(),
        &["skewed.csv", "-o", "json", "--chart", "c.html"],
    );
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let curves = json["traces"][0]["curves"].as_array().unwrap();
    let names: Vec<&str> = curves
        .iter()
        .map(|c| c["method"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["exact", "shards", "shards-size", "aet", "wss"]);
    for (curve, most) in curves.iter().zip([0.0, 0.02, 0.02, 0.02, 0.05]) {
        let error = curve["error"]["mean"].as_f64().unwrap();
        assert!(error <= most, "{}: {error}", curve["method"]);
    }
    assert!(curves[1]["pages_followed"].as_u64().unwrap() >= 8192);
    let page = std::fs::read_to_string(directory.path().join("c.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("shards-size") && !page.contains("src="));
    // A repetition and an input in the native format give the same result.
    let again = mrc(directory.path(), &["skewed.csv", "-o", "json"]);
    assert_eq!(again.stdout, out.stdout);
    let convert = ["trace", "convert", "skewed.csv", "s.trc"];
    let convert = terrace(directory.path(), &convert);
    assert!(convert.status.success());
    let native = mrc(
        directory.path(),
        &["s.trc", "--unchecked", "-o", "json", "--chart", "c.svg"],
    );
    let native_json: Value = serde_json::from_slice(&native.stdout).unwrap();
    assert_eq!(
        native_json["traces"][0]["curves"],
        json["traces"][0]["curves"]
    );
    let picture = std::fs::read_to_string(directory.path().join("c.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("miss ratio"));
}

#[test]
fn wrong_usage_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    rounds(directory.path());
    for (arguments, why) in [
        (&["rounds.csv", "--page", "5 KiB"][..], "power of two"),
        (&["rounds.csv", "--sizes", "1 KiB"], "at least one page"),
        (&["rounds.csv", "--rate", "0"], "above 0 and at most 1"),
        (&["rounds.csv", "--rate", "NaN"], "above 0 and at most 1"),
        (
            &["rounds.csv", "--method", "wss", "--reads-only-cache"],
            "leave wss out",
        ),
        (&["rounds.csv", "--chart", "c.png"], ".svg or .html"),
        (
            &["rounds.csv", "rounds.csv", "--chart", "c.svg"],
            "shows one trace",
        ),
        (&["none.csv"], "cannot open"),
    ] {
        let out = mrc(directory.path(), arguments);
        assert!(!out.status.success(), "{arguments:?}");
        assert!(
            text(&out.stderr).contains(why),
            "{arguments:?}: {}",
            text(&out.stderr)
        );
    }
}

#[test]
fn generated_trace_has_the_curves_of_a_file_with_its_requests() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let generate = [
        "trace",
        "generate",
        "g.trc",
        "--preset",
        "jesd,zipf",
        "--volume-size",
        "64MiB",
        "--duration",
        "2s",
    ];
    assert!(terrace(directory, &generate).status.success());
    let name = "generate:preset=jesd,preset=zipf,volume-size=64MiB,duration=2s";
    let curves = |file: &str| {
        let out = mrc(directory, &[file, "--rate", "0.5", "-o", "json"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout).replace(file, "FILE")
    };
    assert_eq!(curves(name), curves("g.trc"));
    let cache = |file: &str| {
        let asked = ["sim", "cache", file, "--sizes", "10%", "--sample", "0.5"];
        let out = terrace(directory, &[&asked[..], &["-o", "csv"]].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        // The last column is a speed.
        let named = text(&out.stdout).replace(file, "FILE");
        let rows = named.lines().filter_map(|row| row.rsplit_once(','));
        rows.map(|(row, _)| row.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(cache(name), cache("g.trc"));
    let info = |file: &str| {
        let out = terrace(directory, &["trace", "info", file, "-o", "json"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let info: Value = serde_json::from_slice(&out.stdout).unwrap();
        ["requests", "reads", "bytes_written", "span_s"].map(|key| info[key].clone())
    };
    assert_eq!(info(name), info("g.trc"));
    let convert = ["trace", "convert", name, "copy.trc"];
    assert!(terrace(directory, &convert).status.success());
    assert_eq!(curves("copy.trc"), curves("g.trc"));
    let short = "generate:preset=jesd;x";
    let out = mrc(directory, &[short]);
    assert!(text(&out.stderr).contains("unknown workload \"jesd;x\""));
}

/// Mean absolute errors over seeds on captures of real systems, which are not part of the repository.
#[test]
fn sampled_miss_ratios_of_real_traces_are_within_one_percent() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let shared = std::env::var_os("TERRACE_SHARED_TRACES").map_or_else(beside, PathBuf::from);
    if !shared.is_dir() {
        return testkit::needs::skipped("../shared/traces");
    }
    for file in [
        "arc_lis/P3.lis.zst",
        "cloudphysics_sample/cloudPhysicsIO.vscsi.xz",
    ] {
        let mut sums = [0.0; 2];
        for seed in 1..=20 {
            let seed = seed.to_string();
            let arguments = [
                file,
                "--method",
                "exact,shards,shards-size",
                "--seed",
                &seed,
                "-o",
                "json",
            ];
            let out = mrc(&shared, &arguments);
            assert!(out.status.success(), "{}", text(&out.stderr));
            let json: Value = serde_json::from_slice(&out.stdout).unwrap();
            let curves = json["traces"][0]["curves"].as_array().unwrap();
            for (sum, curve) in sums.iter_mut().zip(&curves[1..]) {
                *sum += curve["error"]["mean"].as_f64().unwrap() / 20.0;
            }
        }
        println!("{file}: shards {:.4}, shards-size {:.4}", sums[0], sums[1]);
        assert!(sums.iter().all(|error| *error <= 0.01), "{file}: {sums:?}");
    }
}
