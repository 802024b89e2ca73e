//! Tests of `terrace sim ssd` as a user runs it: effects of options on results, and messages about invalid options.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::run::terrace;

fn ssd(dir: &Path, args: &[&str]) -> Output {
    terrace(dir, &[&["sim", "ssd"], args].concat())
}

/// Returns the results as JSON, for a run without warm-up.
fn results(dir: &Path, args: &[&str]) -> Value {
    let small = ["--warmup", "0s", "-o", "json"];
    let output = ssd(dir, &[&small, args].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn of(args: &[&str]) -> Value {
    results(Path::new("."), args)
}

fn number(value: &Value, at: &str) -> f64 {
    let found = value.pointer(at).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{at} of {value}"))
}

#[test]
fn invalid_ssd_option_is_refused_with_its_name() {
    let a = "a:load=zipf";
    for (args, want) in [
        (&["--tenants", a, "--tags", "0"][..], "--tags"),
        (&["--tenants", a, "--tags", "1025"], "--tags"),
        (&["--tenants", a, "--scale", "0"], "--scale"),
        (&["--tenants", a, "--channels", "257"], "--channels"),
        (&["--tenants", a, "--victim", "0"], "--victim"),
        (&["--tenants", a, "--ops", "7x"], "--ops"),
        (&["--tenants", a, "--ops", "96%"], "--ops: give 0.1% to 95%"),
        (&["--tenants", a, "--interval", "5s"], "--control"),
        (
            &["--tenants", a, "--control"],
            "--control moves spare space",
        ),
        (
            &[
                "--tenants",
                a,
                "--sharing",
                "isolated",
                "--control",
                "--interval",
                "10us",
            ],
            "--interval: give 1 ms or more",
        ),
        (&["--tenants", a, "--duration", "0s"], "--duration"),
        (&["--tenants", a, "--buffer", "100 GiB"], "buffer_pages"),
        (
            &["--tenants", a, "--preset", "floppy"],
            "--preset floppy: unknown preset",
        ),
        (&["--tenants", "a:load=zipf,depth=0"], "depth=0 is outside"),
        (&["--tenants", "a:load=zipf,rate=-1"], "rate=-1 is outside"),
        (
            &["--tenants", "a:load=zipf,from=99s"],
            "tenant \"a\": from=99s is after the end of the run",
        ),
        (&["--tenants", "a:load=zipf,ops=3%"], "ops= is spare space"),
        (
            &[
                "--sharing",
                "isolated",
                "--tenants",
                "a:load=zipf,ops=4%",
                "b:load=zipf,ops=4%",
            ],
            "the tenants' over-provisioning takes 8.0% of the flash, but only 5.0% are spare",
        ),
        (
            &["--tenants", "a:trace=nowhere"],
            "cannot read trace nowhere",
        ),
        (&[], "--tenants"),
    ] {
        let output = ssd(Path::new("."), args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{args:?}");
        assert!(said.contains(want), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn tags_limit_requests_in_the_drive_and_one_tag_keeps_order() {
    let with = |tags: &str| {
        of(&[
            "--preset",
            "disksim",
            "--size",
            "64 MiB",
            "--buffer",
            "0 B",
            "--tags",
            tags,
            "--duration",
            "2s",
            "--tenants",
            "reader:load=random-read-4k,depth=4",
            "writer:load=random-write-4k,depth=28",
        ])
    };
    let (one, many) = (with("1"), with("64"));
    assert_eq!(one.pointer("/drive/tags"), Some(&Value::from(1)));
    assert_eq!(many.pointer("/drive/tags"), Some(&Value::from(64)));
    assert_eq!(many.pointer("/tags"), Some(&Value::from(64)));
    // A queue depth of one leaves seven of eight units idle.
    let rate = |v: &Value, t: u32| number(v, &format!("/outcome/tenants/{t}/iops"));
    let all = |v: &Value| rate(v, 0) + rate(v, 1);
    assert!(all(&many) > 3.0 * all(&one), "{} {}", all(&many), all(&one));
    // With one request in flight, reads and writes wait equally long; with many, reads overtake writes.
    let latency = |v: &Value, t: u32| number(v, &format!("/outcome/tenants/{t}/latency/mean_us"));
    assert!((latency(&one, 0) / latency(&one, 1) - 1.0).abs() < 0.05);
    assert!(latency(&many, 0) < 0.6 * latency(&many, 1));
    let by_default = of(&[
        "--preset",
        "tlc-nvme",
        "--size",
        "2 GiB",
        "--clean",
        "--duration",
        "10ms",
        "--tenants",
        "a:load=zipf",
    ]);
    assert_eq!(by_default.pointer("/tags"), Some(&Value::from(32)));
}

#[test]
fn scaled_drive_reports_the_same_as_the_unscaled_one() {
    let with = |scale: &str| {
        of(&[
            "--preset",
            "disksim",
            "--size",
            "512 MiB",
            "--duration",
            "10s",
            "--scale",
            scale,
            "--tenants",
            "a:load=random-write-4k",
            "b:load=random-write-4k",
        ])
    };
    for (scale, drive) in [("1", with("1")), ("4", with("4"))] {
        let sum = |at: &str| {
            let of = |t: u32| number(&drive, &format!("/report/tenants/{t}/{at}"));
            of(0) + of(1)
        };
        let written = sum("counts/host_writes");
        let share = written / f64::from(512 << 8);
        assert!((share - number(&drive, "/report/drive_writes")).abs() < 1e-9);
        assert_eq!(sum("counts/erases"), number(&drive, "/report/erases"));
        // The last page of a block of 64 pages is a summary.
        let moved = sum("moves/own") + sum("moves/foreign");
        let programmed = (written + moved) * 64.0 / 63.0 / written;
        let waf = number(&drive, "/report/waf");
        assert!(
            (programmed / waf - 1.0).abs() < 0.02,
            "{scale}: {programmed} {waf}"
        );
        assert!(waf > 2.0, "{waf}");
        for t in 0..2 {
            let report = number(&drive, &format!("/report/tenants/{t}/moves/own"));
            let outcome = number(&drive, &format!("/outcome/tenants/{t}/moved_own"));
            assert_eq!(report, outcome);
        }
        let given: f64 = scale.parse().unwrap();
        assert_eq!(number(&drive, "/drive/scale"), given);
    }
}

#[test]
fn control_interval_sets_how_often_blocks_move() {
    let with = |interval: &str| {
        let got = of(&[
            "--preset",
            "paper4",
            "--size",
            "64 MiB",
            "--ops",
            "20%",
            "--sharing",
            "isolated",
            "--service",
            "device-time",
            "--control",
            "--interval",
            interval,
            "--duration",
            "40s",
            "--tenants",
            "a:weight=1,load=random-write-4k",
            "b:weight=9,load=random-write-4k",
        ]);
        number(&got, "/outcome/handed_over")
    };
    // The drive is so small that it collects one block at a time.
    let (often, seldom, never) = (with("2s"), with("10s"), with("50s"));
    assert!(often > seldom && seldom > 0.0, "{often} {seldom}");
    assert!(seldom <= 3.0, "{seldom}");
    assert_eq!(never, 0.0);
}

#[test]
fn late_tenants_get_their_share_and_aged_blocks_unless_clean() {
    let with = |clean: &[&str]| {
        let args = [
            "--preset",
            "paper4",
            "--size",
            "64 MiB",
            "--ops",
            "15%",
            "--sharing",
            "isolated",
            "--duration",
            "40s",
            "--tenants",
            "a:load=random-write-4k",
            "b:load=random-write-4k,from=20s",
        ];
        of(&[clean, &args].concat())
    };
    let aged = with(&[]);
    let spare = |v: &Value, t: u32| number(v, &format!("/outcome/tenants/{t}/spare_share"));
    assert_eq!(spare(&aged, 0), spare(&aged, 1));
    assert_eq!(number(&aged, "/outcome/handed_over"), 0.0);
    assert_eq!(number(&aged, "/outcome/tenants/1/seconds"), 20.0);
    assert!(number(&aged, "/outcome/tenants/1/waf") > 1.5);
    assert_eq!(number(&with(&["--clean"]), "/outcome/tenants/1/waf"), 1.0);
}

#[test]
fn trims_of_a_trace_invalidate_pages_and_are_not_counted_as_requests() {
    let dir = tempfile::tempdir().unwrap();
    // The trace writes eight pages, trims two and reads one.
    let lines = "\
time_us,device,op,offset_bytes,length_bytes
0,a,W,0,32768
50000,a,D,8192,8192
60000,a,R,0,4096
";
    fs::write(dir.path().join("t.csv"), lines).unwrap();
    let got = results(
        dir.path(),
        &[
            "--size",
            "64 MiB",
            "--clean",
            "--duration",
            "1s",
            "--tenants",
            "a:trace=t.csv",
        ],
    );
    assert_eq!(number(&got, "/report/tenants/0/counts/trims"), 2.0);
    assert_eq!(number(&got, "/report/tenants/0/counts/mapped"), 6.0);
    assert_eq!(number(&got, "/outcome/tenants/0/iops"), 2.0);
    assert_eq!(number(&got, "/outcome/tenants/0/reads"), 0.5);
    fs::write(
        dir.path().join("none.csv"),
        "time_us,device,op,offset_bytes,length_bytes\n0,a,D,0,4096\n",
    )
    .unwrap();
    let output = ssd(dir.path(), &["--tenants", "a:trace=none.csv"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("none.csv has no reads and no writes"),
        "{said}"
    );
}
