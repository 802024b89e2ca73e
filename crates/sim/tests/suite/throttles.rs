//! Limits that operators order, in whole runs.

use sim::{GroupKind, RunResult};

use crate::support::run_text;

/// A volume that can have some thousands of requests per second beside another, with what operators do.
fn run(operators: &str) -> RunResult {
    let text = format!(
        r#"
seed = 5
duration = "60s"
window = "1s"
[[tiers]]
name = "one"
preset = "pm863"
capacity = "8 GiB"
[[volumes]]
name = "a"
size = "1 GiB"
[[volumes]]
name = "b"
size = "1 GiB"
[[clients]]
volume = "a"
habits = {{ outstanding = 4, read_share = 0.5, random_share = 1.0, sizes = [{{ size = "4 KiB", share = 1.0 }}] }}
[[clients]]
volume = "b"
habits = {{ outstanding = 4, read_share = 1.0, random_share = 1.0, sizes = [{{ size = "8 KiB", share = 1.0 }}] }}
[policy]
monitor_epoch = "5s"
migration_epoch = "60s"
{operators}
"#
    );
    run_text(&text, "noop")
}

/// Requests and MiB per second of a volume, window by window.
fn rates(result: &RunResult, volume: &str) -> (Vec<f64>, Vec<f64>) {
    let series = result.series.as_ref().unwrap();
    let of_volume = |g: &&sim::GroupSeries| g.kind == GroupKind::Volume && g.name == volume;
    let group = series.groups.iter().find(of_volume).unwrap();
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect();
    (
        sum(&group.reads.iops, &group.writes.iops),
        sum(&group.reads.mib_per_s, &group.writes.mib_per_s),
    )
}

const ORDERED: &str = "[[operator]]\nat = \"10s\"\nthrottle = { a = { iops = \"500 IOPS\", lasting = \"20s\" }, b = { bandwidth = \"2 MiB/s\" } }\n\
                       [[operator]]\nat = \"40s\"\nthrottle = { b = {} }\n";

#[test]
fn a_limited_volume_has_its_limit_for_its_time_and_all_else_before_and_after() {
    let result = run(ORDERED);
    let (iops, _) = rates(&result, "a");
    let (_, mib) = rates(&result, "b");
    assert!(iops[5] > 2000.0 && mib[5] > 20.0, "{} {}", iops[5], mib[5]);
    // An order goes with the answer to a window, and lets one burst through.
    let limited = &iops[12..29];
    assert!(
        limited.iter().all(|i| (i - 500.0).abs() < 6.0),
        "{limited:?}"
    );
    let limited = &mib[12..39];
    assert!(limited.iter().all(|m| (m - 2.0).abs() < 0.1), "{limited:?}");
    // One ends by itself, the other when it is said.
    assert!(iops[32] > 2000.0, "{}", iops[32]);
    assert!(mib[42] > 20.0, "{}", mib[42]);
    // What waits is the guest's latency: four at a time, 500 a second.
    let series = result.series.as_ref().unwrap();
    let of_a = |g: &&sim::GroupSeries| g.kind == GroupKind::Volume && g.name == "a";
    let group = series.groups.iter().find(of_a).unwrap();
    assert!((group.reads.mean_us[20] - 8000.0).abs() < 400.0);
    assert_eq!(
        result
            .events
            .iter()
            .filter(|e| e.actor == "operator")
            .count(),
        3
    );
}

#[test]
fn it_repeats_to_the_byte_and_nothing_ordered_is_nothing() {
    assert_eq!(run(ORDERED), run(ORDERED));
    let let_go = "[[operator]]\nat = \"10s\"\nthrottle = { a = {} }\n";
    assert_eq!(run(let_go).groups, run("").groups);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let why = |operators: &str| {
        std::panic::catch_unwind(|| run(operators))
            .expect_err("taken")
            .downcast::<String>()
    };
    for (words, says) in [
        ("c = { iops = \"500 IOPS\" }", "operator[0].throttle: "),
        (
            "a = { iops = \"0 IOPS\" }",
            "operator[0].throttle.a: iops must be between",
        ),
        (
            "a = { iops = \"9 IOPS\", lasting = \"999h\" }",
            "a limit must last more than 0 s and at most seven days",
        ),
    ] {
        let text = *why(&format!(
            "[[operator]]\nat = \"1s\"\nthrottle = {{ {words} }}\n"
        ))
        .unwrap();
        assert!(text.contains(says), "{words}: {text}");
    }
}
