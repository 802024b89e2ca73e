//! Tests of `terrace device calibrate` as a user runs it.
//!
//! `fio/sweep.json` is the result of `bench/device_sweep.sh --size 512M` on a busy virtual disk (fio 3.33). It contains
//! only the fields that the program reads.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::run::{err, out, terrace};

fn sweep() -> String {
    format!("{}/tests/fio/sweep.json", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the output that fio would write for closed loops on this preset, at these depths, for 4 KiB to 1 MiB.
fn measured(preset: &str, depths: &[u32]) -> Value {
    let spec = model::preset(preset).unwrap().spec();
    let mut jobs = Vec::new();
    for (dir, rw) in ["randread", "randwrite"].iter().enumerate() {
        for bytes in [4096.0, 65_536.0, 1_048_576.0] {
            for depth in depths {
                let mut load = [algo::LoadShare { share: 0.0, bytes }; 2];
                load[dir].share = 1.0;
                let got = algo::closed_loop(&spec, &load, f64::from(*depth));
                let busy = json!({ "total_ios": 1000, "iops": got.iops, "bw_bytes": got.iops * bytes, "runtime": 3000,
                    "lat_ns": { "mean": got.latency_us[dir] * 1e3 } });
                let idle = json!({ "total_ios": 0, "iops": 0, "bw_bytes": 0, "runtime": 0, "lat_ns": { "mean": 0 } });
                let [read, write] = if dir == 0 { [busy, idle] } else { [idle, busy] };
                jobs.push(json!({ "jobname": format!("{rw}-{bytes}-{depth}"), "groupid": jobs.len(), "error": 0,
                    "job options": { "rw": rw, "bs": bytes.to_string(), "iodepth": depth.to_string() }, "read": read, "write": write }));
            }
        }
    }
    json!({ "fio version": "fio-3.33", "global options": { "ioengine": "libaio", "direct": "1" }, "jobs": jobs })
}

#[test]
fn real_sweep_gives_a_tier_that_a_scenario_accepts() {
    let dir = tempfile::tempdir().unwrap();
    let tier = terrace(
        dir.path(),
        &[
            "device",
            "calibrate",
            &sweep(),
            "--name",
            "mine",
            "-o",
            "toml",
        ],
    );
    assert!(tier.status.success(), "{}", err(&tier));
    let scenario = format!(
        "duration = \"10s\"\n{}\n[[volumes]]\nname = \"v\"\nsize = \"1 GiB\"\n[[clients]]\nvolume = \"v\"\n",
        out(&tier)
    );
    fs::write(dir.path().join("s.toml"), &scenario).unwrap();
    let check = terrace(dir.path(), &["config", "check", "s.toml"]);
    assert!(check.status.success(), "{}\n{scenario}", err(&check));
    let run = terrace(
        dir.path(),
        &["sim", "run", "s.toml", "--strategy", "noop", "-o", "json"],
    );
    assert!(run.status.success(), "{}", err(&run));
    // A busy virtual disk does not fit the model, and the program warns about the error.
    assert!(
        err(&tier).contains("warning: writes: the mean error of the model is "),
        "{}",
        err(&tier)
    );
}

#[test]
fn known_device_is_recovered_from_its_measurements_in_each_format() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "fio: something to say\n{:#}",
        measured("pm1633", &[1, 2, 4, 8, 16, 32, 64, 128])
    );
    fs::write(dir.path().join("pm.json"), text).unwrap();
    let json = terrace(
        dir.path(),
        &["device", "calibrate", "pm.json", "-o", "json"],
    );
    assert!(json.status.success(), "{}", err(&json));
    let found: Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!(
        (found["schema"].as_str(), found["name"].as_str()),
        (Some("terrace.device.calibration/1"), Some("pm"))
    );
    assert_eq!(found["preset"], "pm1633", "the preset most alike");
    for (path, want) in [
        ("/read/latency_us", 120.0),
        ("/read/iops", 200e3),
        ("/read/bandwidth_bytes_per_s", 1400e6),
        ("/write/latency_us", 35.0),
        ("/write/iops", 37e3),
        ("/write/bandwidth_bytes_per_s", 930e6),
    ] {
        let value = found.pointer(path).unwrap();
        let got = value["value"].as_f64().unwrap();
        assert!(
            (got / want - 1.0).abs() < 0.06,
            "{path}: {got}, should be {want}"
        );
        assert_eq!(value["basis"], "measured", "{path}");
    }
    assert_eq!(found["points"].as_array().unwrap().len(), 48);
    assert_eq!(found["read"]["fit"]["points"], 24);
    assert!(found["read"]["fit"]["r2_ln_latency"].as_f64().unwrap() > 0.999);
    let table = terrace(
        dir.path(),
        &["device", "calibrate", "pm.json", "--chart", "c.html"],
    );
    assert!(
        out(&table).contains("randread-4096-1") && out(&table).contains("measured"),
        "{}",
        out(&table)
    );
    let page = fs::read_to_string(dir.path().join("c.html")).unwrap();
    assert_eq!(
        page.matches("<circle").count(),
        48 + 6,
        "every point, and six samples in legends"
    );
    let svg = terrace(
        dir.path(),
        &["device", "calibrate", "pm.json", "--chart", "c.svg"],
    );
    assert!(svg.status.success() && err(&svg).contains("chart written to c.svg"));
    let svg = fs::read_to_string(dir.path().join("c.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn sparse_measurements_give_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let mut few = measured("nvme-tlc", &[2, 4]);
    few["global options"] = json!({ "direct": "0", "ioengine": "psync" });
    few["jobs"].as_array_mut().unwrap().truncate(2); // reads of 4 KiB
    fs::write(dir.path().join("few.json"), few.to_string()).unwrap();
    let output = terrace(
        dir.path(),
        &[
            "device",
            "calibrate",
            "few.json",
            "-o",
            "toml",
            "--preset",
            "nvme-tlc",
        ],
    );
    let errors = err(&output);
    for part in [
        "2 of 2 loads (randread-4096-2, …) went through the page cache",
        "2 of 2 loads (randread-4096-2, …) had an iodepth without effect",
        "reads: only 2 points",
        "reads: no load with one request in flight",
        "reads: no load of small requests reached the cap: read_iops",
        "reads: no load of large requests: read_bandwidth is the value of the preset",
        "no writes: the preset's values are kept",
        "the curve beyond is assumed",
    ] {
        assert!(errors.contains(part), "{part:?} is missing in:\n{errors}");
    }
    let tier = out(&output);
    assert!(
        tier.contains("# no load reached it")
            && !tier.contains("write_")
            && !tier.contains("read_bandwidth"),
        "{tier}"
    );
}

#[test]
fn invalid_input_is_refused_before_any_output() {
    let dir = tempfile::tempdir().unwrap();
    let with = |text: &str, more: &[&str]| {
        fs::write(dir.path().join("x.json"), text).unwrap();
        let mut args = vec!["device", "calibrate", "x.json"];
        args.extend(more);
        let output = terrace(dir.path(), &args);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(output.stdout.is_empty());
        err(&output)
    };
    assert!(with("nothing", &[]).contains("error: x.json: the file has no JSON"));
    assert!(with("{\"fio version\":\"fio-3.1\"}", &[]).contains("error: x.json: jobs: missing"));
    let good = measured("pm953", &[1, 4]).to_string();
    assert!(with(&good, &["--chart", "c.png"]).contains("must end in .svg or .html"));
    assert!(with(&good, &["--chart", "no/c.svg"]).contains("directory no does not exist"));
    assert!(with(&good, &["--preset", "pm95"]).contains("unknown preset; known presets: pm953"));
    assert!(with(&good, &["--name", "a\"b"]).contains("letters, digits"));
    let mut idle = measured("pm953", &[1]);
    idle["jobs"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .for_each(|j| j["read"]["total_ios"] = json!(0));
    assert!(with(&idle.to_string(), &[]).contains("jobs[0]: no requests completed"));
    let missing = terrace(dir.path(), &["device", "calibrate", "none.json"]);
    assert!(
        err(&missing).contains("error: cannot read none.json"),
        "{}",
        err(&missing)
    );
}

#[test]
fn impossible_measurement_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut runs = measured("nvme-tlc", &[1, 2, 4]);
        for job in runs["jobs"].as_array_mut().unwrap() {
            change(&mut job["read"]);
        }
        fs::write(dir.path().join("x.json"), runs.to_string()).unwrap();
        let output = terrace(dir.path(), &["device", "calibrate", "x.json", "-o", "toml"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        err(&output)
    };
    // Reads from the page cache are 50 times as fast.
    let cached = refused(&|read| {
        let mean = read["lat_ns"]["mean"].as_f64().unwrap();
        read["lat_ns"]["mean"] = json!(mean / 50.0);
        read["iops"] = json!(read["iops"].as_f64().unwrap() * 50.0);
    });
    assert!(
        cached.contains("x.json: read_") && cached.contains("impossible"),
        "{cached}"
    );
    let contradiction = refused(&|read| {
        read["iops"] = json!(read["iops"].as_f64().unwrap() * 3.0);
    });
    assert!(
        contradiction.contains("randread-4096-1 is impossible")
            && contradiction.contains("Little's law"),
        "{contradiction}"
    );
}

/// The script refuses to overwrite existing data before it runs any measurement.
#[test]
fn sweep_script_refuses_to_overwrite_data() {
    let dir = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/device_sweep.sh");
    // Replaces fio: nothing would be measured even if the script continued.
    fs::write(dir.path().join("fio"), "#!/bin/sh\necho ran >> ran\n").unwrap();
    let mut mode = fs::metadata(dir.path().join("fio")).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(dir.path().join("fio"), mode).unwrap();
    fs::write(dir.path().join("precious"), "data").unwrap();
    let run = |args: &[&str]| {
        let path = format!(
            "{}:{}",
            dir.path().display(),
            std::env::var("PATH").unwrap()
        );
        Command::new(script)
            .args(args)
            .current_dir(dir.path())
            .env("PATH", path)
            .output()
            .unwrap()
    };
    let refused = run(&["precious"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        err(&refused).contains("precious exists; --yes-destroy"),
        "{}",
        err(&refused)
    );
    assert!(err(&run(&["/dev/null"])).contains("neither a file nor a block device"));
    assert_eq!(run(&["--seconds", "x", "new"]).status.code(), Some(2));
    assert!(!dir.path().join("ran").exists());
    assert_eq!(
        fs::read_to_string(dir.path().join("precious")).unwrap(),
        "data"
    );
    let new = run(&["new", "found"]);
    assert!(
        new.status.success() && out(&new).contains("terrace device calibrate found/sweep.json"),
        "{}",
        err(&new)
    );
    let jobs = fs::read_to_string(dir.path().join("found/sweep.fio")).unwrap();
    assert_eq!(jobs.matches("stonewall").count(), 42);
}
