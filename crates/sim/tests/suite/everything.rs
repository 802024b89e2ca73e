//! One array with all that a scenario can have: flash inside, a cache, servers, answers, operators, trouble. The same inputs give the same
//! bytes, and every part can be left out.

use sim::RunResult;

use crate::support::run_text;

/// The parts that can be left out, by name.
const PARTS: [(&str, &str); 6] = [
    ("flash", "[flash.fast]\npreset = \"tlc-nvme\"\nage = 1.0\n"),
    ("cache", "[cache]\nsize = \"256 MiB\"\npage = \"16 KiB\"\n"),
    (
        "hosts",
        "[hosts.one]\nlink = \"60 MB/s\"\n[hosts.two]\nlink = \"60 MB/s\"\n",
    ),
    (
        "response",
        "[response.workflow]\ndetect = { samples = 6, violating_min = 5, clear_below = 0.2 }\n",
    ),
    (
        "operator",
        "[[operator]]\nat = \"3m\"\nthrottle = { batch = { iops = \"1500 IOPS\", lasting = \"2m\" } }\n",
    ),
    (
        "trouble",
        "[trouble]\nlost_reports = 0.1\nlate_reports = 0.1\nlate_by = \"5s\"\n",
    ),
];

fn scenario(without: Option<&str>) -> String {
    let kept = PARTS.iter().filter(|p| Some(p.0) != without);
    let tables: String = kept.map(|p| p.1).collect();
    let host = |name: &str| match without {
        Some("hosts") => String::new(),
        _ => format!("host = \"{name}\""),
    };
    let (one, two) = (host("one"), host("two"));
    format!(
        r#"
seed = 9
duration = "15m"
window = "10s"
[[tiers]]
name = "fast"
preset = "nvme-tlc"
capacity = "4 GiB"
[[tiers]]
name = "slow"
preset = "pm863"
capacity = "16 GiB"
[[classes]]
name = "gold"
weight = 4.0
latency = "1ms"
statistic = "p95"
[[volumes]]
name = "orders"
class = "gold"
size = "2 GiB"
tier = "slow"
{one}
[[volumes]]
name = "batch"
size = "4 GiB"
tier = "slow"
{one}
[[volumes]]
name = "files"
class = "gold"
size = "1 GiB"
tier = "fast"
{two}
[[clients]]
volume = "orders"
habits = {{ outstanding = 8, read_share = 0.9, random_share = 1.0, rate = "1500 IOPS", skew = 1.0, sizes = [{{ size = "16 KiB", share = 1.0 }}] }}
[[clients]]
volume = "batch"
habits = {{ outstanding = 16, read_share = 0.8, random_share = 1.0, rate = "300 IOPS", sizes = [{{ size = "32 KiB", share = 1.0 }}] }}
phases = [
  {{ duration = "5m", habits = {{}} }},
  {{ duration = "10m", habits = {{ rate = "2500 IOPS", outstanding = 64 }} }},
]
[[clients]]
volume = "files"
habits = {{ outstanding = 4, read_share = 0.5, random_share = 0.5, rate = "400 IOPS", sizes = [{{ size = "16 KiB", share = 1.0 }}] }}
[policy]
monitor_epoch = "30s"
migration_epoch = "2m"
{tables}
"#
    )
}

fn run(without: Option<&str>) -> RunResult {
    run_text(&scenario(without), "terrace")
}

#[test]
fn all_parts_work_together_and_each_can_be_left_out() {
    let all = run(None);
    assert_eq!(all, run(None), "the same inputs give the same bytes");
    let cache = all.cache.as_ref().expect("it has a cache");
    assert!(cache.volumes.iter().all(|v| v.read_hit_ratio.is_some()));
    assert!(all.wear.is_some());
    let response = all.response.as_ref().expect("objectives are answered");
    assert!(!response.answers.is_empty(), "the link is full");
    for (part, _) in PARTS {
        let without = run(Some(part));
        // What an operator allows and what is late need not change what guests see.
        if !["operator", "trouble"].contains(&part) {
            assert_ne!(without.groups, all.groups, "without {part}");
        }
        assert_eq!(without.cache.is_some(), part != "cache");
        assert_eq!(without.wear.is_some(), part != "flash");
        assert_eq!(without.response.is_some(), part != "response");
        let tiers = without
            .groups
            .iter()
            .filter(|g| g.kind == sim::GroupKind::Tier);
        let names: Vec<&str> = tiers.map(|g| g.name.as_str()).collect();
        assert_eq!(names.contains(&"appliances"), part != "hosts", "{names:?}");
    }
}
