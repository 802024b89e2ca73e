//! Whole runs on small scenarios.

use model::{JobStatus, NO_CLASS, ScoreParts, SloClass};
use planner::build;
use serde_json::Value;
use sim::{GroupKind, Manifest, Model, RunOptions, RunResult, ScenarioFile};

const ARRAY: &str = r#"
seed = 3
duration = "4m"
warmup = "20s"
copy_chunk = "1 MiB"

[[tiers]]
name = "fast"
preset = "pm953"
capacity = "3 GiB"

[[tiers]]
name = "middle"
preset = "pm1633"
capacity = "6 GiB"

[[tiers]]
name = "slow"
preset = "pm863"
capacity = "12 GiB"

[policy]
monitor_epoch = "10s"
migration_epoch = "60s"
copy_bandwidth = "100 MiB/s"

[strategies.autotiering.calibration]
window = "100ms"
windows = 2

[[classes]]
name = "gold"
weight = 2.0
latency = "2ms"

[[volumes]]
name = "busy"
class = "gold"
vm = "one"
size = "2 GiB"
tier = "slow"

[[volumes]]
name = "idle"
class = "gold"
vm = "one"
size = "2 GiB"
tier = "fast"

[[volumes]]
name = "big"
class = "gold"
vm = "two"
size = "4 GiB"
tier = "middle"

[[clients]]
volume = "busy"
habits = { outstanding = 8, read_share = 0.9 }

[[clients]]
volume = "big"
habits = { outstanding = 2, read_share = 0.5, rate = "2000 IOPS" }
"#;

fn model(text: &str) -> Model {
    ScenarioFile::parse("test.toml", text)
        .unwrap()
        .build(vec![])
        .unwrap()
}

fn manifest(strategy: &str) -> Manifest {
    Manifest {
        strategy: strategy.into(),
        ..Manifest::default()
    }
}

fn run_with(text: &str, strategy: &str, config: Value) -> RunResult {
    let options = RunOptions {
        series: true,
        decisions: true,
        optimum: None,
    };
    let strategy_box = build(strategy, config).unwrap();
    sim::run(
        &model(text),
        strategy_box,
        manifest(strategy),
        options,
        &mut |_| {},
    )
    .unwrap()
}

fn run(text: &str, strategy: &str) -> RunResult {
    let file = ScenarioFile::parse("test.toml", text).unwrap();
    let config = file
        .scenario
        .strategies
        .get(strategy)
        .cloned()
        .unwrap_or(Value::Null);
    run_with(text, strategy, config)
}

fn tier_at_end<'a>(result: &'a RunResult, volume: &str) -> &'a str {
    &result.final_tiers.iter().find(|t| t.0 == volume).unwrap().1
}

#[test]
fn autotiering_moves_the_busy_volume_to_the_fast_tier() {
    let still = run(ARRAY, "noop");
    let moved = run(ARRAY, "autotiering");
    assert_eq!(tier_at_end(&still, "busy"), "slow");
    assert_eq!(tier_at_end(&moved, "busy"), "fast", "{:?}", moved.move_log);
    assert_eq!(still.moves.done, 0);
    // After the move. The run as a whole includes the copy and the calibration.
    let at_end = |r: &RunResult| {
        let series = r.series.as_ref().unwrap();
        let reads = &series
            .groups
            .iter()
            .find(|g| g.name == "busy")
            .unwrap()
            .reads;
        (*reads.mean_us.last().unwrap(), *reads.iops.last().unwrap())
    };
    let (before, after) = (at_end(&still), at_end(&moved));
    assert!(
        after.0 < 0.8 * before.0,
        "{before:?} {after:?} {:?}",
        moved.move_log
    );
    assert!(
        after.1 > 1.2 * before.1,
        "a closed loop gets more done: {before:?} {after:?}"
    );
}

#[test]
fn equal_seeds_give_equal_bytes_and_different_seeds_do_not() {
    let text = |r: &RunResult| serde_json::to_string(r).unwrap();
    let (a, b) = (run(ARRAY, "autotiering"), run(ARRAY, "autotiering"));
    assert_eq!(text(&a), text(&b));
    let other = run(&ARRAY.replace("seed = 3", "seed = 4"), "autotiering");
    assert_ne!(text(&a), text(&other));
}

#[test]
fn space_is_never_exceeded_and_bytes_are_conserved() {
    for strategy in ["noop", "static", "idt", "edt", "autotiering"] {
        let result = run(ARRAY, strategy);
        let series = result.series.as_ref().unwrap();
        for device in &series.devices {
            assert!(
                device
                    .used_bytes
                    .iter()
                    .all(|u| *u <= device.capacity_bytes),
                "{strategy} {}",
                device.name
            );
        }
        // Volumes use eight GiB at all times, and more only while a move holds space at both ends.
        for window in 0..series.devices[0].used_bytes.len() {
            let used: u64 = series.devices.iter().map(|d| d.used_bytes[window]).sum();
            assert!(used >= 8 << 30, "{strategy}: {used}");
        }
        let at_end: u64 = series
            .devices
            .iter()
            .map(|d| *d.used_bytes.last().unwrap())
            .sum();
        assert!(
            result.moves.under_way > 0 || at_end == 8 << 30,
            "{strategy}: {at_end}"
        );
        assert_eq!(result.final_tiers.len(), 3);
    }
}

#[test]
fn groups_add_up_to_the_total() {
    let result = run(ARRAY, "autotiering");
    let total = result.total().all;
    for kind in [
        GroupKind::Tier,
        GroupKind::Class,
        GroupKind::Vm,
        GroupKind::Volume,
    ] {
        let ios: u64 = result.of_kind(kind).map(|g| g.all.ios).sum();
        let bytes: u64 = result.of_kind(kind).map(|g| g.all.bytes).sum();
        assert_eq!((ios, bytes), (total.ios, total.bytes), "{kind:?}");
    }
    assert!(total.ios > 100_000);
}

#[test]
fn move_is_charged_to_both_devices() {
    // The volume is idle, so the additional device load is the copy alone.
    let pinned = ARRAY.replace("[policy]", "[policy]\npins = { idle = \"middle\" }");
    let (result, quiet) = (run(&pinned, "noop"), run(ARRAY, "noop"));
    let record = &result.move_log[0];
    assert_eq!((record.volume.as_str(), record.bytes), ("idle", 2 << 30));
    let (started, ended) = (record.started_s.unwrap(), record.ended_s.unwrap());
    // 2 GiB at 100 MiB/s at most.
    assert!(ended - started >= 20.4, "{started} {ended}");
    // A window within the copy.
    let window = (started / 10.0) as usize + 1;
    assert!(10.0 * (window + 1) as f64 <= ended);
    for (device, bandwidth) in [("fast", 1000e6), ("middle", 930e6)] {
        let share = |r: &RunResult| {
            let devices = &r.series.as_ref().unwrap().devices;
            let d = devices.iter().find(|d| d.name == device).unwrap();
            d.utilization[window]
        };
        let (got, expected) = (
            share(&result) - share(&quiet),
            (2u64 << 30) as f64 / (ended - started) / bandwidth,
        );
        assert!(
            (got / expected - 1.0).abs() < 0.05,
            "{device}: {got} {expected}"
        );
    }
}

/// A volume moves batch by batch, and so do its space and the requests of its guest.
#[test]
fn moving_volume_occupies_both_devices() {
    let result = run(ARRAY, "idt");
    let moved = |m: &&sim::MoveRecord| m.volume == "busy" && m.state == JobStatus::Done;
    let record = result.move_log.iter().find(moved).unwrap();
    let (started, ended) = (record.started_s.unwrap(), record.ended_s.unwrap());
    let window = (started / 10.0) as usize + 1;
    assert!(10.0 * (window + 1) as f64 <= ended, "a window within it");
    let series = result.series.as_ref().unwrap();
    for tier in [&record.from, &record.to] {
        let group = series.groups.iter().find(|g| g.name == *tier).unwrap();
        assert!(group.reads.iops[window] > 1000.0, "{tier}");
    }
    let source = series.devices.iter().find(|d| d.name == record.from);
    let used = &source.unwrap().used_bytes;
    let [before, early, late] = [2, 1, 0].map(|ago| used[window - ago]);
    assert!(before > early && early > late, "{used:?}");
}

#[test]
fn injected_latency_slows_a_closed_loop_and_is_excluded_from_devices() {
    // Only calibration: moves are not allowed.
    let text = ARRAY.replace("[policy]", "[policy]\nmoves_per_epoch = 0");
    let calm = run(&text, "noop");
    let calibrated = run(&text, "autotiering");
    let of = |r: &RunResult| r.groups.iter().find(|g| g.name == "busy").unwrap().all;
    assert!(of(&calibrated).mean_us > of(&calm).mean_us);
    assert!(of(&calibrated).ios < of(&calm).ios);
    let decisions = calibrated.decisions.as_ref().unwrap();
    let row = decisions
        .last()
        .unwrap()
        .volumes
        .iter()
        .find(|v| v.volume == "busy")
        .unwrap();
    let mean = row.evidence["latency_mean_us"];
    assert!(
        (mean / of(&calm).mean_us - 1.0).abs() < 0.03,
        "{mean} {}",
        of(&calm).mean_us
    );
    assert!(row.evidence["sensitivity_m"] > 0.5, "{:?}", row.evidence);
}

#[test]
fn open_loop_load_has_slope_one() {
    // Arrivals that do not react to latency contain no information.
    let text = ARRAY.replace(
        "outstanding = 8, read_share = 0.9",
        "outstanding = 200, rate = \"3000 IOPS\"",
    );
    let result = run(&text, "autotiering");
    let row = result.decisions.as_ref().unwrap()[0]
        .volumes
        .iter()
        .find(|v| v.volume == "busy")
        .unwrap()
        .clone();
    assert!(
        (row.evidence["sensitivity_m"] - 1.0).abs() < 0.05,
        "{:?}",
        row.evidence
    );
}

#[test]
fn pins_cordons_and_budgets_are_respected() {
    let pinned = ARRAY.replace("[policy]", "[policy]\npins = { busy = \"middle\" }");
    assert_eq!(
        tier_at_end(&run(&pinned, "noop"), "busy"),
        "middle",
        "a pin moves under every strategy"
    );
    let cordoned = ARRAY.replace("[policy]", "[policy]\ncordon = [\"fast\"]");
    let result = run(&cordoned, "idt");
    assert!(
        result.move_log.iter().all(|m| m.to != "fast"),
        "{:?}",
        result.move_log
    );
    let tight = ARRAY.replace("[policy]", "[policy]\nbytes_per_epoch = \"1 GiB\"");
    assert!(run(&tight, "idt").move_log.is_empty());
    let together = ARRAY.replace(
        "[policy]",
        "[policy]\naffinity = [{ kind = \"same-tier\", volumes = [\"busy\", \"big\"] }]",
    );
    let result = run(&together, "autotiering");
    let both = (tier_at_end(&result, "busy"), tier_at_end(&result, "big"));
    assert!(both.0 == both.1 || result.moves.done == 0, "{both:?}");
}

#[test]
fn each_strategy_form_runs_and_explains_each_volume() {
    for config in [
        serde_json::json!({ "form": "literal" }),
        serde_json::json!({ "form": "literal", "scope": "own-tier" }),
        serde_json::json!({ "form": "corrected", "directions": "joint", "tier_latency": "bare" }),
    ] {
        let result = run_with(ARRAY, "autotiering", config.clone());
        for report in result.decisions.as_ref().unwrap() {
            assert_eq!(report.volumes.len(), 3, "{config}");
            for v in &report.volumes {
                assert_eq!(v.options.len(), 3);
            }
        }
        if config["scope"] == "own-tier" {
            assert!(
                result.move_log.is_empty(),
                "by the letter nothing is ever predicted elsewhere"
            );
        }
    }
}

/// Covers the path from the scenario's key to the facts of a decision.
#[test]
fn volume_excluded_from_injection_is_not_injected() {
    let text = ARRAY.replace("[policy]\n", "[policy]\nno_injection = [\"busy\"]\n");
    let strategy = build("autotiering", serde_json::json!({})).unwrap();
    let options = RunOptions {
        series: false,
        decisions: true,
        optimum: None,
    };
    let result = sim::run(
        &model(&text),
        strategy,
        manifest("autotiering"),
        options,
        &mut |_| {},
    )
    .unwrap();
    let seen = |volume: &str, evidence: &str| {
        let rows = result.decisions.iter().flatten().flat_map(|d| &d.volumes);
        rows.filter(|v| v.volume == volume && v.evidence.contains_key(evidence))
            .count()
    };
    assert_eq!(seen("busy", "calibration_windows"), 0);
    assert!(
        seen("big", "calibration_windows") > 0,
        "the others are still injected into"
    );
    let wrong = ARRAY.replace("[policy]\n", "[policy]\nno_injection = [\"bussy\"]\n");
    let fault = ScenarioFile::parse("test.toml", &wrong)
        .unwrap()
        .build(vec![])
        .err()
        .unwrap()
        .to_string();
    assert!(
        fault.contains("policy.no_injection") && fault.contains("did you mean \"busy\"?"),
        "{fault}"
    );
}

/// A volume without a class has no objective, weight 1 and a separate row.
#[test]
fn volume_without_a_class_has_no_objective() {
    let violated = "latency = \"1us\"";
    let text = ARRAY.replace("latency = \"2ms\"", violated);
    let text = text.replace("name = \"big\"\nclass = \"gold\"", "name = \"big\"");
    let result = run_with(&text, "autotiering", serde_json::json!({}));
    let violated_s = |kind: GroupKind, name: &str| {
        let groups = result.groups.iter();
        let mut found = groups.filter(|g| g.kind == kind && g.name == name);
        found.next().expect(name).slo_violation_s
    };
    assert!(violated_s(GroupKind::Volume, "busy").unwrap() > 0.0);
    assert_eq!(violated_s(GroupKind::Volume, "big"), None);
    assert_eq!(violated_s(GroupKind::Class, NO_CLASS), None);
    assert_eq!(
        violated_s(GroupKind::Class, "gold"),
        violated_s(GroupKind::Volume, "busy"),
        "all that is missed is of those of that class"
    );
    let weights = |volume: &str| {
        let rows = result.decisions.iter().flatten().flat_map(|d| &d.volumes);
        let options = rows.filter(|v| v.volume == volume).flat_map(|v| &v.options);
        let weights = options.filter_map(|o| match o.parts {
            Some(ScoreParts::Match(p)) => Some(p.class_weight),
            _ => None,
        });
        weights.collect::<Vec<f64>>()
    };
    let (busy, big) = (weights("busy"), weights("big"));
    assert!(!big.is_empty() && big.iter().all(|w| *w == 1.0), "{big:?}");
    assert!(busy.iter().all(|w| *w == 2.0), "{busy:?}");
}

#[test]
fn default_class_can_be_defined_and_named() {
    let classes = |text: &str| {
        let model = model(text);
        let of = |v: &sim::VolumeModel| model.classes[v.class.index()].clone();
        model.volumes.iter().map(of).collect::<Vec<_>>()
    };
    let without = ARRAY.replace("class = \"gold\"\n", "");
    assert_eq!(classes(&without), vec![SloClass::none(); 3]);
    let all_gold = model(ARRAY);
    assert_eq!(all_gold.classes.len(), 1, "nobody is of none");
    let named = ARRAY.replace("class = \"gold\"", "class = \"default\"");
    assert_eq!(classes(&named), vec![SloClass::none(); 3]);
    let described = without.replace("name = \"gold\"", "name = \"default\"");
    assert!(
        classes(&described)
            .iter()
            .all(|c| c.weight == 2.0 && c.target.is_some())
    );
    let typo = ARRAY.replace("class = \"gold\"", "class = \"gol\"");
    let fault = ScenarioFile::parse("test.toml", &typo)
        .unwrap()
        .build(vec![]);
    assert!(
        fault
            .err()
            .unwrap()
            .to_string()
            .contains("did you mean \"gold\"?")
    );
}
