//! Results as files of tables (`--parquet`) and single requests (`--requests`).

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run::{err, out, terrace};

const SCENARIO: &str = r#"
duration = "20s"
window = "5s"

[[tiers]]
name = "fast"
preset = "pm953"
capacity = "4 GiB"

[[tiers]]
name = "slow"
preset = "pm863"
capacity = "8 GiB"

[[volumes]]
name = "db"
size = "1 GiB"
tier = "slow"

[[clients]]
volume = "db"
habits = { outstanding = 2, rate = "200 IOPS" }

[policy]
monitor_epoch = "5s"
migration_epoch = "10s"
"#;

/// Runs a command in the directory, which writes its tables to `tables`; names of the files there.
fn tables(dir: &Path, args: &[&str]) -> Vec<String> {
    let to = dir.join("tables");
    let output = terrace(dir, &[args, &["--parquet", "tables"]].concat());
    assert!(output.status.success(), "{args:?}: {}", err(&output));
    assert!(err(&output).contains("tables written to tables"));
    let mut names = vec![];
    for entry in fs::read_dir(&to).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    fs::remove_dir_all(to).unwrap();
    names.sort();
    names
}

#[test]
fn commands_with_results_write_their_tables() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    fs::write(at.join("s.toml"), SCENARIO).unwrap();
    let mut trace = String::from("time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n");
    for i in 0..2000u64 {
        trace += &format!("{i},v,R,{},4096,\n", i % 300 * 4096);
    }
    fs::write(at.join("t.csv"), trace).unwrap();
    let of_run = [
        "counted.parquet",
        "decisions.parquet",
        "final_tiers.parquet",
        "groups.parquet",
        "moves.parquet",
        "optimality.parquet",
        "remedies.parquet",
        "windows.parquet",
    ];
    let args = ["sim", "run", "s.toml", "--no-record"];
    assert_eq!(tables(at, &args), of_run);
    let args = [
        "sim",
        "compare",
        "s.toml",
        "--strategies",
        "noop,idt",
        "--no-record",
    ];
    assert_eq!(tables(at, &args), of_run);
    let args = ["sim", "sweep", "s.toml", "--seeds", "1..2"];
    assert_eq!(tables(at, &args), ["means.parquet", "runs.parquet"]);
    let args = ["sim", "cache", "t.csv", "--sizes", "100p"];
    let of_cache = ["extents.parquet", "policies.parquet", "traces.parquet"];
    assert_eq!(tables(at, &args), of_cache);
    let args = ["trace", "mrc", "t.csv", "--method", "exact"];
    assert_eq!(tables(at, &args), ["curves.parquet", "methods.parquet"]);
    let args = [
        "sim",
        "ssd",
        "--size",
        "64 MiB",
        "--clean",
        "--warmup",
        "1s",
        "--duration",
        "2s",
        "--tenants",
        "a:load=random-write-32k,depth=1",
    ];
    let of_ssd = ["drive.parquet", "tenants.parquet", "windows.parquet"];
    assert_eq!(tables(at, &args), of_ssd);
    let args = [
        "bench",
        "decisions",
        "--generated",
        "1",
        "--seeds",
        "1",
        "--strategies",
        "idt,noop",
    ];
    let of_bench = ["runs.parquet", "scenarios.parquet", "totals.parquet"];
    assert_eq!(tables(at, &args), of_bench);
}

#[test]
fn tables_of_an_earlier_run_are_replaced_even_without_rows() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.toml"), SCENARIO).unwrap();
    let optimality = |command: &[&str]| {
        let args = ["s.toml", "--no-record", "--parquet", "tables"];
        let output = terrace(dir.path(), &[command, &args].concat());
        assert!(output.status.success(), "{}", err(&output));
        fs::read(dir.path().join("tables/optimality.parquet")).unwrap()
    };
    let without = optimality(&["sim", "run"]);
    let compared = optimality(&["sim", "compare", "--strategies", "noop,idt"]);
    assert_ne!(without, compared);
    assert_eq!(optimality(&["sim", "run"]), without);
}

#[test]
fn request_table_has_the_requests_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.toml"), SCENARIO).unwrap();
    let run = |more: &[&str]| {
        let args = ["sim", "run", "s.toml", "--no-record", "-o", "json"];
        let output = terrace(dir.path(), &[&args, more].concat());
        assert!(output.status.success(), "{}", err(&output));
        out(&output)
    };
    let with = run(&["--requests", "r.csv"]);
    assert_eq!(with, run(&[]), "the results do not depend on the file");
    let json: Value = serde_json::from_str(&with).unwrap();
    let ios = json["runs"][0]["groups"][0]["all"]["ios"].as_u64().unwrap();
    let text = fs::read_to_string(dir.path().join("r.csv")).unwrap();
    let mut lines = text.lines();
    let header = "time_ns,volume,op,offset_bytes,length_bytes,tier,cache,latency_ns";
    assert_eq!(lines.next(), Some(header));
    let rows: Vec<Vec<&str>> = lines.map(|l| l.split(',').collect()).collect();
    // Requests that run at the end are in the file, and not in the summary.
    assert!((ios..=ios + 2).contains(&(rows.len() as u64)), "{ios}");
    assert!(rows.iter().all(|r| r[1] == "db" && r[6].is_empty()));
    assert!(rows.iter().all(|r| ["fast", "slow"].contains(&r[5])));
}

#[test]
fn request_table_requires_one_scenario_and_a_known_format() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.toml"), SCENARIO).unwrap();
    for (args, says) in [
        (
            ["s.toml", "s.toml", "--requests", "r.csv"],
            "--requests needs exactly one scenario, not 2",
        ),
        (
            ["s.toml", "--no-record", "--requests", "r.txt"],
            "r.txt: the name must end in .parquet, .csv or .csv.zst",
        ),
    ] {
        let output = terrace(dir.path(), &[&["sim", "run"], &args[..]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(err(&output).contains(says), "{}", err(&output));
    }
}

#[test]
fn sweep_on_ray_without_packages_names_them() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("s.toml"), SCENARIO).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .current_dir(dir.path())
        .args(["sim", "sweep", "s.toml", "--ray"])
        .env("PATH", dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    assert!(said.contains("cannot start python3"), "{said}");
    assert!(said.contains("pip install ./python ray"), "{said}");
}
