//! Throttles that operators set, in whole runs.

use sim::{GroupKind, RunResult};

use crate::support::run_text;

/// A volume that can reach some thousands of requests per second, a second volume, and the orders of operators.
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

/// Requests and MiB per second of a volume, by window.
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
fn throttled_volume_is_limited_for_the_given_time_only() {
    let result = run(ORDERED);
    let (iops, _) = rates(&result, "a");
    let (_, mib) = rates(&result, "b");
    assert!(iops[5] > 2000.0 && mib[5] > 20.0, "{} {}", iops[5], mib[5]);
    // An order takes effect with the reply to a window's report, and admits one burst.
    let limited = &iops[12..29];
    assert!(
        limited.iter().all(|i| (i - 500.0).abs() < 6.0),
        "{limited:?}"
    );
    let limited = &mib[12..39];
    assert!(limited.iter().all(|m| (m - 2.0).abs() < 0.1), "{limited:?}");
    // One throttle expires, the other is removed by an order.
    assert!(iops[32] > 2000.0, "{}", iops[32]);
    assert!(mib[42] > 20.0, "{}", mib[42]);
    // Waiting counts as latency of the guest: four requests at a time, 500 per second.
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
fn throttle_is_reproducible_and_an_empty_order_has_no_effect() {
    assert_eq!(run(ORDERED), run(ORDERED));
    let let_go = "[[operator]]\nat = \"10s\"\nthrottle = { a = {} }\n";
    assert_eq!(run(let_go).groups, run("").groups);
}

#[test]
fn invalid_throttle_orders_are_refused() {
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
