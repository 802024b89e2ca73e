//! Array with all features of scenarios, from `examples/everything.toml`. The same inputs give the same bytes, and
//! every part can be omitted.

use sim::{GroupKind, RunResult, ScenarioFile};

use crate::support::{group, run_file};

/// Change of a scenario.
type Change = fn(&mut ScenarioFile);

/// Parts that can be omitted, with the change that omits them.
const PARTS: [(&str, Change); 9] = [
    ("flash", |f| f.scenario.flash.clear()),
    ("tenants", |f| {
        for flash in f.scenario.flash.values_mut() {
            flash.tenants.clear();
            flash.isolation = None;
        }
    }),
    ("disks", |f| f.scenario.disks.clear()),
    ("cache", |f| f.scenario.cache = None),
    ("mirrors", |f| f.scenario.mirrors = None),
    ("hosts", |f| {
        f.scenario.hosts.clear();
        f.scenario.volumes.iter_mut().for_each(|v| v.host = None);
    }),
    ("response", |f| f.scenario.response = None),
    ("operator", |f| f.scenario.operator.clear()),
    ("faults", |f| f.scenario.faults = None),
];

fn run(leave_out: impl Fn(&mut ScenarioFile)) -> RunResult {
    run_for("15m", leave_out)
}

fn run_for(duration: &str, leave_out: impl Fn(&mut ScenarioFile)) -> RunResult {
    let text = include_str!("../../../../examples/everything.toml");
    let text = text.replacen(
        "duration = \"15m\"",
        &format!("duration = \"{duration}\""),
        1,
    );
    let mut file = ScenarioFile::parse("everything.toml", &text).unwrap();
    leave_out(&mut file);
    run_file(&file, "terrace")
}

fn violated_s(result: &RunResult) -> f64 {
    result.total().slo_violation_s.unwrap_or(0.0)
}

#[test]
fn combined_features_work_and_runs_are_reproducible() {
    let all = run(|_| {});
    assert_eq!(all, run(|_| {}), "the same inputs give the same bytes");
    let cache = all.cache.as_ref().expect("it has a cache");
    assert!(cache.volumes.iter().any(|v| v.read_hit_ratio.is_some()));
    assert!(!all.wear.as_ref().unwrap().tenants.is_empty());
    let response = all.response.as_ref().expect("objectives are answered");
    assert!(!response.remedies.is_empty(), "the link is full");
    let hits = response.appliances.iter().map(|a| a.read_hits).sum::<u64>();
    assert!(hits > 1000, "{:#?}", response.appliances);
    let mirrors = all.mirrors.as_ref().expect("extents have second copies");
    let copied = mirrors.sets.iter().map(|s| s.copied_bytes).sum::<u64>();
    let second = mirrors.sets.iter().map(|s| s.second_reads).sum::<u64>();
    assert!(copied > 0 && second > 1000, "{mirrors:#?}");
    assert!(group(&all, GroupKind::Tier, "archive").reads.ios > 10_000);
}

/// Runs the array without one part, for every third part from number `first` on. Three tests share the parts to keep
/// each test short.
fn each_can_be_left_out(first: usize) {
    let all = run_for("10m", |_| {});
    println!("{:>10}: {:.0} s missed", "all", violated_s(&all));
    for (part, leave_out) in PARTS.into_iter().skip(first).step_by(3) {
        let without = run_for("10m", leave_out);
        println!(
            "{:>10}: {:.0} s missed",
            format!("no {part}"),
            violated_s(&without)
        );
        // Orders of operators and delays need not change the latencies of guests.
        if !["operator", "problem", "mirrors"].contains(&part) {
            assert_ne!(without.groups, all.groups, "without {part}");
        }
        assert_eq!(without.cache.is_some(), part != "cache");
        assert_eq!(without.wear.is_some(), part != "flash");
        assert_eq!(without.mirrors.is_some(), part != "mirrors");
        assert_eq!(without.response.is_some(), part != "response");
        let told_apart = without.wear.is_some_and(|w| !w.tenants.is_empty());
        assert_eq!(told_apart, !["flash", "tenants"].contains(&part));
        let tiers = without.groups.iter().filter(|g| g.kind == GroupKind::Tier);
        let names: Vec<&str> = tiers.map(|g| g.name.as_str()).collect();
        assert_eq!(names.contains(&"appliances"), part != "hosts", "{names:?}");
    }
}

#[test]
fn array_without_flash_or_cache_or_response_differs() {
    each_can_be_left_out(0);
}

#[test]
fn array_without_tenants_or_mirrors_or_operator_differs() {
    each_can_be_left_out(1);
}

#[test]
fn array_without_disks_or_hosts_or_faults_differs() {
    each_can_be_left_out(2);
}
