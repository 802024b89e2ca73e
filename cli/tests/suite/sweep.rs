//! Tests of `terrace sim sweep` as a user runs it: rows, errors before the first run, resumption, reproducible bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::{err, out, terrace};

/// Creates a directory with the scenario `s.toml`.
fn scenario() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/sweep-base.toml");
    fs::copy(source, dir.path().join("s.toml")).unwrap();
    dir
}

/// Runs a sweep that must succeed; returns its standard output and the last line of its standard error.
fn sweep(dir: &Path, args: &[&str]) -> (String, String) {
    let output = terrace(dir, &[&["sim", "sweep"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", err(&output));
    let last = err(&output).lines().last().unwrap().to_owned();
    (out(&output), last)
}

/// Returns the result files by path.
fn results(dir: &Path) -> BTreeMap<PathBuf, Value> {
    let files = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    files
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .map(|p| {
            let mut json: Value = serde_json::from_slice(&fs::read(&p).unwrap()).unwrap();
            assert!(json["took_s"].as_f64().unwrap() > 0.0);
            json["took_s"] = Value::Null;
            (p.file_name().unwrap().into(), json)
        })
        .collect()
}

const GRID: [&str; 5] = [
    "s.toml",
    "--set",
    "clients[*].habits.outstanding=2,8",
    "--strategies",
    "noop,idt",
];

/// Options of a sweep with eight cells.
const EIGHT: [&str; 7] = [
    GRID[0], GRID[1], GRID[2], GRID[3], GRID[4], "--seeds", "1..2",
];

#[test]
fn sweep_tables_are_as_reviewed() {
    let dir = scenario();
    let (one_seed, _) = sweep(dir.path(), &GRID);
    let (means, last) = sweep(
        dir.path(),
        &[
            &EIGHT[..],
            &[
                "--metrics",
                "iops,volume[db].latency_read_p99_us,moved_bytes",
            ],
            &["--set", "policy.hold=1"],
        ]
        .concat(),
    );
    // The file states the default of `hold` explicitly. Cells compare the text of the scenario, not its meaning.
    assert_eq!(
        last,
        "8 cells: 8 run, 0 already available; results are in terrace-sweep"
    );
    let (csv, last) = sweep(
        dir.path(),
        &[&EIGHT[..], &["--metrics", "iops,moves_done", "-o", "csv"]].concat(),
    );
    assert_eq!(
        last,
        "8 cells: 4 run, 4 already available; results are in terrace-sweep"
    );
    let text = [one_seed, means, csv].join("\n");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn json_has_cells_and_means_and_jsonl_has_a_line_per_cell() {
    let dir = scenario();
    let (text, _) = sweep(dir.path(), &[&EIGHT[..], &["-o", "json"]].concat());
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], "terrace.sim.sweep/1");
    assert_eq!(
        json["keys"],
        serde_json::json!(["clients[*].habits.outstanding"])
    );
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(
        (cells.len(), json["means"].as_array().unwrap().len()),
        (8, 4)
    );
    assert_eq!(cells[7]["settings"]["clients[*].habits.outstanding"], 8);
    assert_eq!(
        (&cells[7]["strategy"], &cells[7]["seed"]),
        (&"idt".into(), &2.into())
    );
    // A row agrees with its result file.
    let name = cells[7]["cell"].as_str().unwrap();
    let kept = &results(&dir.path().join("terrace-sweep"))[Path::new(&format!("{name}.json"))];
    let run = &kept["result"]["run"];
    assert_eq!(
        (&run["manifest"]["strategy"], &run["manifest"]["seed"]),
        (&"idt".into(), &2.into())
    );
    assert_eq!(run["groups"][0]["all"]["iops"], cells[7]["metrics"]["iops"]);
    let iops = |i: usize| cells[i]["metrics"]["iops"].as_f64().unwrap();
    let mean = &json["means"][3]["metrics"]["iops"];
    assert!((mean["mean"].as_f64().unwrap() - (iops(6) + iops(7)) / 2.0).abs() < 1e-9);
    assert!(mean["ci95_low"].as_f64().unwrap() < iops(6).min(iops(7)));
    // The result equals that of `sim run` with the same scenario.
    let text = fs::read_to_string(dir.path().join("s.toml")).unwrap();
    let text = text.replace("outstanding = 4", "outstanding = 8");
    let text = text.replace("outstanding = 1", "outstanding = 8");
    fs::write(dir.path().join("t.toml"), format!("name = \"s\"\n{text}")).unwrap();
    let args = ["sim", "run", "t.toml", "--strategy", "idt", "--seed", "2"];
    let single = terrace(
        dir.path(),
        &[&args[..], &["-o", "json", "--no-record"]].concat(),
    );
    let single: Value = serde_json::from_slice(&single.stdout).unwrap();
    assert_eq!(single["runs"][0]["groups"], run["groups"]);
    assert_eq!(single["runs"][0]["move_log"], run["move_log"]);

    let (lines, _) = sweep(dir.path(), &[&EIGHT[..], &["-o", "jsonl"]].concat());
    let lines: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[7]["schema"], "terrace.sim.sweep.cell/1");
    assert_eq!(lines[7]["metrics"], cells[7]["metrics"]);
}

#[test]
fn interrupted_sweep_resumes_from_stored_results() {
    let dir = scenario();
    let kept = dir.path().join("terrace-sweep");
    let (first, last) = sweep(dir.path(), &EIGHT);
    assert_eq!(
        last,
        "8 cells: 8 run, 0 already available; results are in terrace-sweep"
    );
    let whole = results(&kept);
    assert_eq!(whole.len(), 8);
    let names: Vec<PathBuf> = whole.keys().map(|n| kept.join(n)).collect();

    // State after a kill: some results are missing, and one is unfinished.
    fs::remove_file(&names[0]).unwrap();
    let bytes = fs::read(&names[1]).unwrap();
    fs::remove_file(&names[1]).unwrap();
    let unfinished = names[1].with_extension("json.tmp");
    fs::write(&unfinished, &bytes[..bytes.len() / 2]).unwrap();
    // State after a loss of power: one file is truncated, one consists of zeroes, one has a changed digit.
    fs::write(&names[2], &bytes[..bytes.len() / 2]).unwrap();
    fs::write(&names[3], vec![0; 100]).unwrap();
    let text = fs::read_to_string(&names[4]).unwrap();
    let (before, after) = text.split_once("\"ios\":").unwrap();
    let digit = if after.starts_with('1') { "2" } else { "1" };
    fs::write(&names[4], format!("{before}\"ios\":{digit}{}", &after[1..])).unwrap();
    // A complete file that belongs to another cell.
    fs::copy(&names[7], &names[5]).unwrap();

    let output = terrace(dir.path(), &[&["sim", "sweep"], &EIGHT[..]].concat());
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output), first);
    let said = err(&output);
    for (name, why) in [
        (&names[2], "EOF while parsing"),
        (&names[3], "expected value"),
        (&names[4], "its checksum is"),
        (&names[5], "it is the result of"),
    ] {
        let name = name.file_name().unwrap().to_str().unwrap();
        let line = said
            .lines()
            .find(|l| l.contains(name))
            .unwrap_or_else(|| panic!("{said}"));
        assert!(
            line.contains("is damaged and is computed again: ") && line.contains(why),
            "{line}"
        );
    }
    assert!(
        said.ends_with("8 cells: 6 run, 2 already available; results are in terrace-sweep\n"),
        "{said}"
    );
    assert_eq!(results(&kept), whole);
    assert!(!unfinished.exists());

    // A repetition runs nothing, a larger grid runs only its new cells, and the last sweep runs every cell again.
    let (again, last) = sweep(dir.path(), &EIGHT);
    assert_eq!(again, first);
    assert_eq!(
        last,
        "8 cells: 0 run, 8 already available; results are in terrace-sweep"
    );
    let larger = [
        GRID[0],
        GRID[1],
        "clients[*].habits.outstanding=8,2,3",
        GRID[3],
        GRID[4],
    ];
    let (_, last) = sweep(dir.path(), &larger);
    assert_eq!(
        last,
        "6 cells: 2 run, 4 already available; results are in terrace-sweep"
    );
    let (fresh, last) = sweep(dir.path(), &[&EIGHT[..], &["--fresh"]].concat());
    assert_eq!(fresh, first);
    assert_eq!(
        last,
        "8 cells: 8 run, 0 already available; results are in terrace-sweep"
    );
}

/// Kills a real process in the middle of a sweep.
#[test]
fn killed_sweep_preserves_completed_cells() {
    let dir = scenario();
    let args = [&EIGHT[..5], &["--seeds", "1..10", "-o", "csv"]].concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["sim", "sweep"])
        .args(&args)
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let kept = dir.path().join("terrace-sweep");
    let begun = Instant::now();
    while !kept.is_dir() || results(&kept).len() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(120), "no results");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let there = results(&kept).len();
    assert!(there < 40, "it was killed too late");
    let (resumed, last) = sweep(dir.path(), &args);
    let expected = format!(
        "40 cells: {} run, {there} already available; results are in terrace-sweep",
        40 - there
    );
    assert_eq!(last, expected);
    let (whole, _) = sweep(dir.path(), &[&args[..], &["--out", "other"]].concat());
    assert_eq!(resumed, whole);
}

#[test]
fn repeated_sweeps_give_identical_bytes() {
    let dir = scenario();
    let run = |to: &str| {
        sweep(
            dir.path(),
            &[&EIGHT[..], &["-o", "json", "--out", to]].concat(),
        )
        .0
    };
    assert_eq!(run("a"), run("b"));
    assert_eq!(
        results(&dir.path().join("a")),
        results(&dir.path().join("b"))
    );
}

#[test]
fn identical_cells_are_run_once() {
    let dir = scenario();
    let args = ["s.toml", "--set", "strategies.autotiering.aging=0.5,0.9"];
    let (_, last) = sweep(
        dir.path(),
        &[&args[..], &["--strategies", "noop,autotiering", "-v"]].concat(),
    );
    assert_eq!(
        last,
        "4 cells: 3 run, 0 already available, 1 identical to others; results are in terrace-sweep"
    );
}

#[test]
fn fault_of_any_cell_is_reported_before_the_first_run() {
    let dir = scenario();
    let fault = |args: &[&str]| {
        let output = terrace(dir.path(), &[&["sim", "sweep", "s.toml"], args].concat());
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(!dir.path().join("terrace-sweep").exists());
        (output.status.code().unwrap(), err(&output))
    };
    for (args, code, why) in [
        (
            &["--set", "policy.hodl=1"][..],
            1,
            "error: policy.hodl=1: unknown key, did you mean \"hold\"?\n",
        ),
        (
            &["--set", "policy.migration_epoch=10s,20s,12s"],
            1,
            "error: policy.migration_epoch=12s: s.toml:43: policy.migration_epoch: 12s is not a multiple \
             of the monitor epoch (5s), at least twice as long\n",
        ),
        (
            &[
                "--set",
                "tiers[fast].capacity=4 GiB,1",
                "--set",
                "policy.hold=1,2",
            ],
            1,
            "error: tiers[fast].capacity=1: invalid type: integer `1`, expected a size such as \"256 GiB\" or \"256G\" with its unit, \
             in quotes\n",
        ),
        (
            &["--set", "volumes[bd].tier=fast,slow"],
            1,
            "error: volumes[bd].tier: volumes: unknown name \"bd\", did you mean \"db\"?\n",
        ),
        (
            &["--set", "volumes[db].tier=fast,slwo"],
            1,
            "error: volumes[db].tier=slwo: s.toml:25: volumes[0].tier: unknown name \"slwo\", did you mean \"slow\"?\n",
        ),
        (
            &["--strategies", "noop,autotierin"],
            1,
            "error: s.toml: strategy: unknown strategy \"autotierin\", did you mean \"autotiering\"?; known: noop, static, idt, edt, autotiering, period, dual-period, adaptive-period, moving-averages, aged-frequency, qos-exchange, colloid, arms, terrace\n",
        ),
        (
            &["--metrics", "class[glod].iops"],
            1,
            "error: metric \"class[glod].iops\": unknown name \"glod\", did you mean \"gold\"?\n",
        ),
        (
            &["--set", "extent=1 MiB", "--set", "extent=2 MiB"],
            1,
            "error: extent and extent set the same key\n",
        ),
        (
            &["--set", "extent"],
            2,
            "\"extent\" does not have the form KEY=VALUE,VALUE",
        ),
        (&["--seeds", "5..1"], 2, "range 5..1 is empty"),
        (
            &["--metrics", "ipos"],
            2,
            "unknown name \"ipos\", did you mean \"iops\"?",
        ),
    ] {
        let (found, said) = fault(args);
        assert_eq!(found, code, "{said}");
        if code == 1 {
            assert_eq!(said, why);
        } else {
            assert!(said.contains(why), "{said}");
        }
    }
}

#[test]
fn sweep_file_is_equivalent_to_arguments_which_take_precedence() {
    let dir = scenario();
    let text = "scenario = \"s.toml\"\nstrategies = [\"noop\", \"idt\"]\nseeds = \"1..2\"\n\
                [grid]\n\"clients[*].habits.outstanding\" = [2, 8]\n";
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::rename(dir.path().join("s.toml"), dir.path().join("sub/s.toml")).unwrap();
    fs::write(dir.path().join("sub/sweep.toml"), text).unwrap();
    let (by_file, _) = sweep(dir.path(), &["sub/sweep.toml"]);
    let (by_args, last) = sweep(dir.path(), &[&["sub/s.toml"], &EIGHT[1..]].concat());
    assert_eq!(by_file, by_args);
    assert_eq!(
        last,
        "8 cells: 0 run, 8 already available; results are in terrace-sweep"
    );
    let less = [
        "--seeds",
        "2",
        "--set",
        "clients[*].habits.outstanding=8",
        "--strategies",
        "idt",
    ];
    let (_, last) = sweep(dir.path(), &[&["sub/sweep.toml"], &less[..]].concat());
    assert_eq!(
        last,
        "1 cell: 0 run, 1 already available; results are in terrace-sweep"
    );
    fs::write(
        dir.path().join("sub/sweep.toml"),
        text.replace("seeds", "sedes"),
    )
    .unwrap();
    let typo = terrace(dir.path(), &["sim", "sweep", "sub/sweep.toml"]);
    assert_eq!(
        err(&typo),
        "error: sub/sweep.toml:3: sedes: unknown key, did you mean \"seeds\"?\n"
    );
}

/// Referenced files identify a cell by their content, not by their names.
#[test]
fn changed_trace_of_the_same_name_is_a_new_cell() {
    let dir = scenario();
    let text = fs::read_to_string(dir.path().join("s.toml")).unwrap();
    let trace = "\n[[traces]]\nfile = \"t.csv\"\nvolume = \"db\"\n";
    fs::write(dir.path().join("s.toml"), text + trace).unwrap();
    let header = "time_ns,volume,op,offset_bytes,length_bytes,latency_ns\n";
    let args = [
        "s.toml",
        "--set",
        "traces[0].speed=1,2",
        "--set",
        "traces[t.csv].outstanding=1,4",
    ];
    for (row, last) in [
        (
            "0,a,R,0,4096,\n",
            "4 cells: 4 run, 0 already available; results are in terrace-sweep",
        ),
        (
            "0,a,W,0,4096,\n",
            "4 cells: 4 run, 0 already available; results are in terrace-sweep",
        ),
        (
            "0,a,R,0,4096,\n",
            "4 cells: 0 run, 4 already available; results are in terrace-sweep",
        ),
    ] {
        fs::write(dir.path().join("t.csv"), format!("{header}{row}")).unwrap();
        assert_eq!(sweep(dir.path(), &args).1, last);
    }
}

#[test]
fn directory_of_a_running_sweep_is_refused() {
    let dir = scenario();
    sweep(dir.path(), &["s.toml"]);
    let lock = fs::File::open(dir.path().join("terrace-sweep/lock")).unwrap();
    lock.lock().unwrap();
    let output = terrace(dir.path(), &["sim", "sweep", "s.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        err(&output),
        "error: another command is writing to terrace-sweep: use another directory\n"
    );
}

#[test]
fn unwritable_result_ends_the_sweep() {
    let dir = scenario();
    sweep(dir.path(), &["s.toml"]);
    let kept = dir.path().join("terrace-sweep");
    let name = kept.join(results(&kept).keys().next().unwrap());
    fs::remove_file(&name).unwrap();
    fs::create_dir(&name).unwrap();
    let output = terrace(dir.path(), &["sim", "sweep", "s.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let said = err(&output);
    let name = name.file_name().unwrap().to_str().unwrap();
    assert!(
        said.contains(&format!("error: cannot write terrace-sweep/{name}: ")),
        "{said}"
    );
    assert_eq!(out(&output), "");
}

/// Metrics of a cache and of responses to violated objectives, compared with a run without them.
#[test]
fn cache_and_response_metrics_are_listed() {
    let dir = scenario();
    let path = dir.path().join("s.toml");
    let text = fs::read_to_string(&path).unwrap();
    let tables = "[cache]\nsize = \"16 MiB\"\n[response]\niops_min = { gold = \"1 IOPS\" }\n";
    fs::write(dir.path().join("with.toml"), format!("{text}\n{tables}")).unwrap();
    let metrics = "cache_read_hit_ratio,remedies,rates_violated_s";
    let of = |name: &str| {
        let args = [
            name,
            "--strategies",
            "noop",
            "--metrics",
            metrics,
            "-o",
            "csv",
        ];
        let (text, _) = sweep(dir.path(), &args);
        let rows: Vec<Vec<String>> = text
            .lines()
            .map(|l| l.split(',').rev().take(3).map(String::from).collect())
            .collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert_eq!(
            rows[0].join(","),
            "rates_violated_s,remedies,cache_read_hit_ratio"
        );
        rows[1].clone()
    };
    let with = of("with.toml");
    let hits: f64 = with[2].parse().unwrap();
    assert!((0.0..1.0).contains(&hits), "{with:?}");
    assert_eq!(with[..2], ["0", "0"]);
    assert_eq!(of("s.toml"), ["", "", ""]);
}
