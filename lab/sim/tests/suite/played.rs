//! Traces with rates, scattered extents, and results by stretches, from scenarios.

use std::sync::Arc;

use model::Op;
use sim::{Manifest, RunOptions, RunResult, ScenarioFile};
use trace::{LoadedTrace, Record, Request};

fn records(count: u64, stride: u64) -> Vec<Record> {
    let record = |n: u64| {
        Record::new(Request {
            time_ns: n,
            volume: 0,
            op: if n.is_multiple_of(5) {
                Op::Write
            } else {
                Op::Read
            },
            offset_bytes: n * stride % (1 << 30),
            length_bytes: 65536,
        })
    };
    (0..count).map(record).collect()
}

fn text(more: &str) -> String {
    format!(
        r#"
duration = "40m"
warmup = "10m"
window = "1m"
stretch = "10m"
extent = "4 MiB"
initial_placement = "scattered"
[[tiers]]
name = "fast"
preset = "sata-ssd"
capacity = "1 GiB"
[[tiers]]
name = "slow"
preset = "disk-7k2"
devices = 3
capacity = "1 GiB"
[[classes]]
name = "high"
latency = "2ms"
statistic = "mean"
[[classes]]
name = "low"
latency = "20ms"
statistic = "mean"
[[volumes]]
name = "a"
class = "high"
size = "1 GiB"
[[volumes]]
name = "b"
class = "low"
size = "1 GiB"
[[traces]]
file = "a"
volume = "a"
replay = "rates"
slot = "10m"
piece = 100
{more}
"#
    )
}

fn build(text: &str) -> Result<(sim::Model, ScenarioFile), String> {
    let file = ScenarioFile::parse("played.toml", text).map_err(|e| e.to_string())?;
    let trace =
        || Arc::new(LoadedTrace::from_records(records(1000, 1 << 21), None, &["t"]).unwrap());
    let traces = file.scenario.traces.iter().map(|_| trace()).collect();
    let model = file.build(traces).map_err(|e| e.to_string())?;
    Ok((model, file))
}

fn run(text: &str, strategy: &str) -> RunResult {
    let (model, _) = build(text).unwrap_or_else(|e| panic!("{e}"));
    let options = RunOptions {
        series: false,
        decisions: false,
        optimum: None,
    };
    let strategy = planner::build(strategy, Default::default()).unwrap();
    sim::run(&model, strategy, Manifest::default(), options, &mut |_| {}).unwrap()
}

const BOTH: &str = r#"
rates_per_s = [10.0, 20.0, 0.0, 5.5]
[[traces]]
file = "b"
volume = "b"
replay = "rates"
rates_per_s = [2.0]
"#;

#[test]
fn stretches_have_the_rates_of_their_slots_and_add_up() {
    let result = run(&text(BOTH), "noop");
    let stretches = result.stretches.as_ref().unwrap();
    assert_eq!(stretches.each.len(), 4);
    for (stretch, rate) in stretches.each.iter().zip([10.0, 20.0, 0.0, 5.5]) {
        let [high, low] = &stretch.classes[..] else {
            panic!("two classes")
        };
        let expected = 600.0 * rate;
        assert!(
            (high.ios as f64 - expected).abs() <= 5.0 * f64::sqrt(expected),
            "{stretch:?}"
        );
        assert!((low.ios as f64 - 1200.0).abs() < 175.0, "{stretch:?}");
        assert_eq!(high.mean_us.is_none(), rate == 0.0);
        assert_eq!(stretch.total.ios, high.ios + low.ios);
        for group in [high, low, &stretch.total] {
            let answered: u64 = group.answered.iter().map(|a| a.ios).sum();
            assert_eq!(answered, group.ios, "something answers every request");
        }
    }
    // The measured results equal those of the groups, which do not depend on stretches.
    let counted = &stretches.counted;
    let total = result.total();
    assert_eq!(counted.total.ios, total.all.ios);
    let mean = counted.total.mean_us.unwrap();
    assert!((mean / total.all.mean_us - 1.0).abs() < 1e-6, "{mean}");
    assert!(counted.total.trimmed_us.unwrap() < mean);
    assert_eq!((counted.from_s, counted.to_s), (600.0, 2400.0));
    let ios: u64 = stretches.each[1..].iter().map(|s| s.total.ios).sum();
    assert_eq!(ios, counted.total.ios);
    let tier = result
        .of_kind(sim::GroupKind::Tier)
        .find(|t| t.name == "fast");
    let fast = counted.total.answered.iter().find(|a| a.by == "fast");
    assert_eq!(tier.unwrap().all.ios, fast.unwrap().ios);
}

/// A run without stretches has the same other results.
#[test]
fn stretches_do_not_change_other_results() {
    let with = run(&text(BOTH), "noop");
    let without = run(&text(BOTH).replace("stretch = \"10m\"\n", ""), "noop");
    assert!(without.stretches.is_none());
    let with = RunResult {
        stretches: None,
        ..with
    };
    assert_eq!(with, without);
}

#[test]
fn scattered_extents_are_spread_by_space_and_can_be_moved() {
    let fixed = run(&text(BOTH), "noop");
    let share = |result: &RunResult| {
        let total = &result.stretches.as_ref().unwrap().counted.total;
        total.share_of("fast").unwrap()
    };
    // A quarter of the free space is on the fast device.
    assert!((share(&fixed) - 0.25).abs() < 0.1, "{}", share(&fixed));
    let more = format!("{BOTH}\n[policy]\nmonitor_epoch = \"5m\"\nmigration_epoch = \"10m\"\n");
    let moved = run(&text(&more), "qos-exchange");
    assert!(moved.moves.done > 0);
    assert!(share(&moved) > 0.5, "{}", share(&moved));
}

/// The load is closed, with the maximum of outstanding requests. So an overloaded device limits response times.
#[test]
fn outstanding_requests_are_bounded_under_overload() {
    let more = "rates_per_s = [5000.0]\noutstanding = 8\n";
    let result = run(&text(more), "noop");
    let total = &result.stretches.as_ref().unwrap().counted.total;
    assert!((total.ios as f64) < 0.5 * 5000.0 * 1800.0, "{}", total.ios);
    // At most eight requests on one disk with 13 ms or more per access.
    assert!(total.mean_us.unwrap() < 8.0 * 40_000.0, "{total:?}");
}

#[test]
fn invalid_replay_options_are_refused_by_key() {
    for (more, why) in [
        ("", "traces[0].replay: \"rates\" requires rates_per_s"),
        (
            "rates_per_s = [-1.0]",
            "traces[0].rates_per_s: -1 is not between 0 and",
        ),
        (
            "rates_per_s = [nan]",
            "traces[0].rates_per_s: NaN is not between 0 and",
        ),
        (
            "rates_per_s = [1.0]\nspeed = 2.0",
            "traces[0].speed: has no effect with replay",
        ),
        (
            "rates_per_s = [1.0]\nrepeat = 2",
            "traces[0].repeat: has no effect with replay",
        ),
        (
            "rates_per_s = [1.0]\nperiod = \"1h\"",
            "traces[0].period: has no effect with replay",
        ),
    ] {
        let refusal = build(&text(more)).map(|_| ()).unwrap_err();
        assert!(refusal.contains(why), "{more}: {refusal}");
    }
    let good = text("rates_per_s = [1.0]");
    for (from, to, why) in [
        (
            "slot = \"10m\"",
            "slot = \"1ms\"",
            "traces[0].slot: 1ms is shorter than 1s",
        ),
        (
            "piece = 100",
            "piece = 0",
            "traces[0].piece: must be at least one request",
        ),
        (
            "replay = \"rates\"",
            "replay = \"open\"",
            "traces[0].rates_per_s: requires replay",
        ),
        ("duration = \"40m\"", "", "duration: is required"),
        (
            "stretch = \"10m\"",
            "stretch = \"90s\"",
            "stretch: 90s is not a multiple of the window of 1m",
        ),
        (
            "devices = 3\ncapacity = \"1 GiB\"",
            "capacity = \"1022 MiB\"",
            "initial_placement: 512 extents of 4 MiB must be scattered, but the devices have space for 511",
        ),
    ] {
        let changed = good.replace(from, to);
        assert_ne!(changed, good);
        let refusal = build(&changed).map(|_| ()).unwrap_err();
        assert!(refusal.contains(why), "{to}: {refusal}");
    }
}
