//! Answers to broken objectives in ordinary scenarios: throttles, parts of the cache, appliances; servers and their links.

use sim::{GroupKind, Manifest, RunOptions, RunResult, ScenarioFile};
use slo::ladder::RungKind;

/// What the neighbour does from a quarter of an hour on, to the device or to the link.
const FILLS_DEVICE: &str = "read_share = 0.3, rate = \"40000 IOPS\", outstanding = 64";
const FILLS_LINK: &str = "read_share = 1.0, rate = \"2400 IOPS\", outstanding = 64";

/// Two servers, of which the first has all volumes.
const HOSTS: &str = "[hosts.one]\nlink = \"120 MB/s\"\n[hosts.two]\n";

/// A volume with an objective beside another one that is loud for a time; tables that are added come last.
fn scenario(loud: &str, more: &str) -> String {
    let host = if more.contains("[hosts") {
        "host = \"one\""
    } else {
        ""
    };
    format!(
        r#"
seed = 5
duration = "40m"
window = "10s"
[[tiers]]
name = "one"
preset = "pm863"
capacity = "64 GiB"
[[classes]]
name = "gold"
weight = 4.0
latency = "500us"
statistic = "mean"
[[volumes]]
name = "orders"
class = "gold"
size = "8 GiB"
{host}
[[volumes]]
name = "batch"
size = "8 GiB"
{host}
[[clients]]
volume = "orders"
habits = {{ outstanding = 8, read_share = 0.95, random_share = 1.0, rate = "5000 IOPS", skew = 1.0, footprint = 0.3, sizes = [{{ size = "8 KiB", share = 1.0 }}] }}
[[clients]]
volume = "batch"
habits = {{ outstanding = 32, read_share = 0.3, random_share = 1.0, rate = "1000 IOPS", sizes = [{{ size = "32 KiB", share = 1.0 }}] }}
phases = [
  {{ duration = "15m", habits = {{}} }},
  {{ duration = "25m", habits = {{ {loud} }} }},
]
bursts = {{ every = "70s", length = "30s", factor = 1.5 }}
[policy]
monitor_epoch = "1m"
migration_epoch = "10m"
{more}
"#
    )
}

fn run(loud: &str, more: &str) -> RunResult {
    let text = scenario(loud, more);
    let model = ScenarioFile::parse("answers.toml", &text).and_then(|f| f.build(vec![]));
    let model = model.unwrap_or_else(|e| panic!("{e}"));
    let strategy = planner::build("noop", Default::default()).unwrap();
    let options = RunOptions {
        series: true,
        decisions: false,
        optimum: None,
    };
    sim::run(&model, strategy, Manifest::default(), options, &mut |_| {}).unwrap()
}

const QUICK: &str = "workflow = { detect = { samples = 6, violating_min = 5, clear_below = 0.2 }, interference = { samples = 90, samples_min = 24, lag_max = 2, false_discovery = 0.05, strength_min = 0.3, taken_min = 0.1 } }";

fn violation_s(result: &RunResult, volume: &str) -> f64 {
    let of_volume = |g: &&sim::GroupSummary| g.kind == GroupKind::Volume && g.name == volume;
    let group = result.groups.iter().find(of_volume).unwrap();
    group.slo_violation_s.unwrap_or(0.0)
}

fn print(result: &RunResult) {
    for e in &result.events {
        eprintln!("{} {:?} {}", e.at_ns / 1_000_000_000, e.volume, e.text);
    }
    eprintln!("{:#?}", result.response);
}

#[test]
fn a_neighbour_is_held_back_and_the_objective_is_kept_again() {
    let nothing = run(FILLS_DEVICE, "");
    let table = format!("[response]\nrungs = [\"throttle\"]\n{QUICK}");
    let result = run(FILLS_DEVICE, &table);
    print(&result);
    eprintln!(
        "{} {}",
        violation_s(&nothing, "orders"),
        violation_s(&result, "orders")
    );
    assert_eq!(violation_s(&nothing, "orders"), 1500.0);
    assert!(violation_s(&result, "orders") <= 200.0);
    let response = result.response.unwrap();
    assert!(response.appliances.is_empty());
    assert!(
        response.answers.len() >= 2,
        "let go, broken again, and held again"
    );
    for answer in &response.answers {
        assert_eq!(answer.rung, Some(RungKind::Throttle));
        assert_eq!(
            (answer.volume.as_str(), answer.to.as_deref()),
            ("orders", Some("batch"))
        );
    }
    // Everything else is refused, with the reason.
    assert!(
        response.answers[0]
            .refused
            .iter()
            .all(|r| r.why == "not allowed here")
    );
}

#[test]
fn an_appliance_takes_reads_off_a_full_link_and_goes_when_it_is_not_needed() {
    let nothing = run(FILLS_LINK, HOSTS);
    let table = format!("{HOSTS}[response]\nrungs = [\"appliance\"]\n{QUICK}");
    let result = run(FILLS_LINK, &table);
    print(&result);
    eprintln!(
        "{} {}",
        violation_s(&nothing, "orders"),
        violation_s(&result, "orders")
    );
}
