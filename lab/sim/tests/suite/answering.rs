//! Remedies for SLO violations in ordinary scenarios: throttles, cache partitions, appliances; servers and their links.

use sim::{GroupKind, RunResult};
use slo::ladder::RemedyKind;

use crate::support::{group, refusal, run_text};

/// Load of the neighbour from the eighth minute on: on the device, or on the link.
const FILLS_DEVICE: &str = "read_share = 0.3, rate = \"40000 IOPS\", outstanding = 64";
const FILLS_LINK: &str = "read_share = 1.0, rate = \"2400 IOPS\", outstanding = 64";

/// Two servers. The first one has all volumes.
const HOSTS: &str = "[hosts.one]\nlink = \"120 MB/s\"\n[hosts.two]\n";

/// A volume with an objective and a neighbour that is noisy for some time. Additional tables come last.
fn scenario(loud: &str, more: &str) -> String {
    let host = if more.contains("[hosts") {
        "host = \"one\""
    } else {
        ""
    };
    format!(
        r#"
seed = 5
duration = "24m"
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
  {{ duration = "8m", habits = {{}} }},
  {{ duration = "16m", habits = {{ {loud} }} }},
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
    run_text(&scenario(loud, more), "noop")
}

const QUICK: &str = "workflow = { detect = { samples = 6, violating_min = 5, clear_below = 0.2 }, interference = { samples = 90, samples_min = 24, lag_max = 2, false_discovery = 0.05, strength_min = 0.3, taken_min = 0.1 } }";

fn violation_s(result: &RunResult, volume: &str) -> f64 {
    let group = group(result, GroupKind::Volume, volume);
    group.slo_violation_s.unwrap_or(0.0)
}

#[test]
fn neighbour_is_throttled_and_the_objective_is_met_again() {
    let nothing = run(FILLS_DEVICE, "");
    let table = format!("[response]\nremedies = [\"throttle\"]\n{QUICK}");
    let result = run(FILLS_DEVICE, &table);
    assert_eq!(nothing.response, None);
    let (without, with) = (
        violation_s(&nothing, "orders"),
        violation_s(&result, "orders"),
    );
    assert_eq!(without, 960.0);
    assert!(with <= 200.0, "{with}");
    let response = result.response.unwrap();
    assert!(response.appliances.is_empty());
    assert!(!response.remedies.is_empty());
    for answer in &response.remedies {
        let to = answer.to.as_deref();
        assert_eq!(
            (answer.remedy, to),
            (Some(RemedyKind::Throttle), Some("batch"))
        );
        assert_eq!(answer.volume, "orders");
        // All other remedies are rejected, with the reason.
        assert!(answer.refused.iter().all(|r| r.why == "not allowed here"));
        assert_eq!(answer.refused.len(), 5);
    }
    let held = result
        .events
        .iter()
        .filter(|e| e.text.contains("throttled to"));
    assert_eq!(held.count(), response.remedies.len());
}

/// A volume that reads more than its device can serve for some time, and an idle second device.
fn read_much(more: &str) -> String {
    format!(
        r#"
seed = 5
duration = "24m"
window = "10s"
extent = "16 MiB"
[[tiers]]
name = "one"
preset = "pm863"
capacity = "16 GiB"
read_iops = "10000 IOPS"
[[tiers]]
name = "two"
preset = "pm863"
capacity = "16 GiB"
read_iops = "8000 IOPS"
[[classes]]
name = "gold"
weight = 4.0
latency = "1ms"
statistic = "mean"
[[volumes]]
name = "catalog"
class = "gold"
size = "4 GiB"
tier = "one"
[[clients]]
volume = "catalog"
habits = {{ outstanding = 64, read_share = 1.0, random_share = 1.0, rate = "4000 IOPS", sizes = [{{ size = "8 KiB", share = 1.0 }}] }}
phases = [
  {{ duration = "4m", habits = {{}} }},
  {{ duration = "8m", habits = {{ rate = "13000 IOPS" }} }},
  {{ duration = "12m", habits = {{}} }},
]
[policy]
monitor_epoch = "1m"
migration_epoch = "10m"
{more}
"#
    )
}

#[test]
fn read_hot_extents_are_mirrored_while_needed() {
    let run = |more: &str| run_text(&read_much(more), "noop");
    let nothing = run("");
    let result = run(&format!("[response]\nremedies = [\"mirror\"]\n{QUICK}"));
    let (without, with) = (
        violation_s(&nothing, "catalog"),
        violation_s(&result, "catalog"),
    );
    assert!(without >= 470.0, "{without}");
    assert!(with <= 150.0, "{with}");
    let remedies = &result.response.as_ref().unwrap().remedies;
    assert_eq!(remedies.len(), 1, "{remedies:#?}");
    assert_eq!(remedies[0].remedy, Some(RemedyKind::Mirror));
    let sets = &result.mirrors.as_ref().unwrap().sets;
    assert_eq!(sets.len(), 1, "{sets:#?}");
    let set = &sets[0];
    assert_eq!(
        (set.volume.as_str(), set.device.as_str()),
        ("catalog", "two")
    );
    // 13,000 of 18,000 reads per second: both devices are equally busy when the second one has four ninths of all
    // reads, by the mirrored share of the data.
    let share = set.second_reads as f64 / (set.first_reads + set.second_reads) as f64;
    let of_all = share * set.bytes as f64 / (4_u64 << 30) as f64;
    assert!((0.35..0.5).contains(&of_all), "{of_all}");
    let ended = set.ended_s.expect("it is over when the reads are");
    assert!((720.0..1000.0).contains(&ended), "{ended}");
    let said = |text: &str| {
        result
            .events
            .iter()
            .filter(|e| e.text.contains(text))
            .count()
    };
    assert_eq!(said("mirror of"), 1);
    assert_eq!(said("mirror on"), 1);
    // Equal inputs give equal results.
    let again = run(&format!("[response]\nremedies = [\"mirror\"]\n{QUICK}"));
    assert_eq!(result, again);
    // Without the remedy, mirrors are not counted, and the result has no such section.
    assert_eq!(nothing.mirrors, None);
}

/// The volume with an objective and its neighbour on one of two devices.
fn two_devices(loud: &str, more: &str) -> String {
    let two = "[[tiers]]\nname = \"two\"\npreset = \"pm863\"\ncapacity = \"64 GiB\"\n[[classes]]";
    let text = scenario(loud, more).replacen("[[classes]]", two, 1);
    text.replace("size = \"8 GiB\"", "size = \"8 GiB\"\ntier = \"one\"")
}

#[test]
fn volume_moves_away_from_a_busy_neighbour() {
    let table = format!("[response]\nremedies = [\"move\"]\n{QUICK}");
    let run = |more: &str| run_text(&two_devices(FILLS_DEVICE, more), "noop");
    let (nothing, result) = (run(""), run(&table));
    let (without, with) = (
        violation_s(&nothing, "orders"),
        violation_s(&result, "orders"),
    );
    assert_eq!(without, 960.0);
    assert!(with <= 300.0, "{with}");
    let remedies = &result.response.as_ref().unwrap().remedies;
    assert_eq!(remedies.len(), 1, "{remedies:#?}");
    assert_eq!(remedies[0].remedy, Some(RemedyKind::Move));
    assert_eq!((result.moves.done, result.moves.not_done), (1, 0));
    assert!(result.move_log[0].is_remedy, "no plan has it");
    let tier = |name: &str| {
        result
            .final_tiers
            .iter()
            .find(|t| t.0 == name)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(
        (tier("orders"), tier("batch")),
        ("two".into(), "one".into())
    );
    // Volumes without a guarantee may use a device without limit: the neighbour continues.
    let batch = |r: &RunResult| group(r, GroupKind::Volume, "batch").writes.ios;
    assert!(batch(&result) >= batch(&nothing));
    assert_eq!(result, run(&table), "the same inputs give the same bytes");
}

#[test]
fn remedial_move_respects_placement_rules() {
    let remedies = |rules: &str| {
        let more = format!("{rules}[response]\nremedies = [\"move\"]\n{QUICK}");
        let result = run_text(&two_devices(FILLS_DEVICE, &more), "noop");
        assert_eq!(result.moves.done, 0);
        let remedies = result.response.unwrap().remedies;
        let whys = remedies.iter().flat_map(|a| &a.refused);
        let whys = whys.filter(|r| r.remedy == RemedyKind::Move);
        whys.map(|r| r.why.clone()).collect::<Vec<_>>()
    };
    for rules in [
        "pins = { orders = \"one\", batch = \"one\" }\n",
        "cordon = [\"two\"]\n",
    ] {
        let whys = remedies(rules);
        assert!(!whys.is_empty(), "{rules}: it was looked at");
        assert!(
            whys.iter().all(|w| w.contains("no other device")),
            "{whys:?}"
        );
    }
}

#[test]
fn guaranteed_rate_is_met_by_throttling_the_neighbour() {
    // Without a latency objective, the guaranteed rate alone is violated.
    let promised = |table: &str| {
        let text = scenario(FILLS_DEVICE, table).replace("latency = \"500us\"\n", "");
        text.replace("statistic = \"mean\"\n", "")
    };
    let table = |remedies| {
        format!(
            "[response]\nremedies = [{remedies}]\niops_min = {{ gold = \"4800 IOPS\" }}\n{QUICK}"
        )
    };
    let watched = run_text(&promised(&table("")), "noop").response.unwrap();
    let held = run_text(&promised(&table("\"throttle\"")), "noop");
    let rate = |r: &sim::ResponseSummary| r.rates[0].clone();
    assert_eq!(watched.rates.len(), 1, "batch was promised nothing");
    let without = rate(&watched);
    assert_eq!(
        (without.volume.as_str(), without.rate_min_per_s),
        ("orders", 4800.0)
    );
    assert!(without.violated_s >= 900.0, "{without:?}");
    let response = held.response.as_ref().unwrap();
    let with = rate(response);
    assert!(with.violated_s <= 200.0, "{with:?}");
    assert_eq!(response.remedies[0].to.as_deref(), Some("batch"));
    // The rate is not a latency objective, so it counts in no other metric.
    assert_eq!(violation_s(&held, "orders"), 0.0);
}

#[test]
fn guaranteed_rate_without_demand_is_not_violated() {
    let table =
        format!("[response]\nremedies = []\niops_min = {{ gold = \"20000 IOPS\" }}\n{QUICK}");
    let quiet = run("rate = \"100 IOPS\"", &table).response.unwrap();
    assert_eq!(quiet.rates[0].violated_s, 0.0, "it asks for 5,000 a second");
    assert_eq!(quiet.remedies, []);
}

#[test]
fn appliance_relieves_a_full_link() {
    let nothing = run(FILLS_LINK, HOSTS);
    let table = format!("{HOSTS}[response]\nremedies = [\"appliance\"]\n{QUICK}");
    let result = run(FILLS_LINK, &table);
    let (without, with) = (
        violation_s(&nothing, "orders"),
        violation_s(&result, "orders"),
    );
    assert!(without >= 900.0, "{without}");
    assert!(with <= 0.75 * without, "{with} of {without}");
    let response = result.response.as_ref().unwrap();
    let first = &response.appliances[0];
    assert_eq!(
        (first.volume.as_str(), first.host.as_str()),
        ("orders", "one")
    );
    let serving_s = first.serving_s.unwrap();
    assert_eq!(serving_s, first.ordered_s + 60.0, "created, then re-routed");
    assert!(first.read_hits > 3 * first.read_misses, "{first:?}");
    // Reads that the appliance serves are counted separately from tiers.
    assert_eq!(
        group(&result, GroupKind::Tier, "appliances").reads.ios,
        response.appliances.iter().map(|a| a.read_hits).sum::<u64>()
    );
    // Equal inputs give equal results.
    assert_eq!(result, run(FILLS_LINK, &table));
}

/// Two volumes that overload a shared link: one reads 4 KiB per request, the other 64 KiB.
fn on_one_link(sharing: &str, more: &str) -> RunResult {
    let text = format!(
        r#"
seed = 5
duration = "60s"
window = "10s"
[[tiers]]
name = "one"
preset = "pm953"
[hosts.one]
link = "100 MB/s"
{sharing}
[[classes]]
name = "gold"
latency = "5ms"
statistic = "mean"
[[volumes]]
name = "small"
class = "gold"
size = "8 GiB"
[[volumes]]
name = "large"
size = "8 GiB"
[[clients]]
volume = "small"
habits = {{ outstanding = 16, random_share = 1.0 }}
[[clients]]
volume = "large"
habits = {{ outstanding = 16, random_share = 1.0, sizes = [{{ size = "64 KiB", share = 1.0 }}] }}
{more}
"#
    );
    run_text(&text, "noop")
}

#[test]
fn volumes_on_a_link_with_turns_have_equal_shares() {
    let bytes = |r: &RunResult, name| group(r, GroupKind::Volume, name).reads.mib_per_s;
    let both = |r: &RunResult| (bytes(r, "small"), bytes(r, "large"));
    let (first_small, first_large) = both(&on_one_link("", ""));
    let result = on_one_link("sharing = \"by-turns\"", "");
    let (small, large) = both(&result);
    // The same number of requests, of 4 KiB and of 64 KiB.
    assert!(
        first_large > 10.0 * first_small,
        "{first_small} {first_large}"
    );
    // 100 MB/s is 95.4 MiB/s.
    for all in [first_small + first_large, small + large] {
        assert!((94.0..=95.5).contains(&all), "{all}");
    }
    assert!((0.9..1.1).contains(&(small / large)), "{small} {large}");
    // Closed loops of sixteen requests: by Little's law, their latency follows from their rate.
    let of_small = group(&result, GroupKind::Volume, "small").reads;
    let outstanding = of_small.iops * of_small.mean_us * 1e-6;
    assert!((15.8..=16.1).contains(&outstanding), "{outstanding}");
    assert!(result.unfinished <= 32, "{}", result.unfinished);
    assert_eq!(result, on_one_link("sharing = \"by-turns\"", ""));
}

#[test]
fn idle_link_has_the_same_latency_with_turns() {
    let quiet = |sharing: &str| {
        let link = format!("[hosts.one]\nlink = \"120 MB/s\"\n{sharing}\n[hosts.two]\n");
        let table = format!("{link}[response]\nremedies = []\n{QUICK}");
        let result = run("rate = \"100 IOPS\"", &table);
        let orders = group(&result, GroupKind::Volume, "orders");
        (orders.all.ios, orders.reads.mean_us)
    };
    let (first, turns) = (quiet(""), quiet("sharing = \"by-turns\""));
    assert!(first.0.abs_diff(turns.0) <= 20, "{first:?} {turns:?}");
    assert!(
        (turns.1 / first.1 - 1.0).abs() < 0.02,
        "{first:?} {turns:?}"
    );
}

#[test]
fn appliance_on_a_link_with_turns_is_warmed_up_and_drained() {
    let hosts = HOSTS.replace("\"120 MB/s\"", "\"120 MB/s\"\nsharing = \"by-turns\"");
    // The neighbour has half of the link, and the rest is not enough.
    let loud = "read_share = 1.0, rate = \"2400 IOPS\", outstanding = 64";
    let table = format!(
        "{hosts}[response]\nremedies = [\"appliance\"]\niops_min = {{ gold = \"5000 IOPS\" }}\n{QUICK}"
    );
    let text = scenario(loud, &table).replace("rate = \"5000 IOPS\"", "rate = \"9000 IOPS\"");
    let result = run_text(&text, "noop");
    let response = result.response.as_ref().unwrap();
    let first = &response.appliances[0];
    assert!(first.serving_s.is_some(), "{response:?}");
    assert!(first.read_hits > first.read_misses, "{first:?}");
    assert!(result.unfinished < 200, "{}", result.unfinished);
    assert_eq!(result, run_text(&text, "noop"));
}

/// Three seasons of twenty minutes. In the second half of each, reads exceed the capacity of the link.
fn seasons(ahead: &str) -> RunResult {
    let text = format!(
        r#"
seed = 5
duration = "60m"
window = "10s"
[[tiers]]
name = "one"
preset = "pm863"
[hosts.one]
link = "60 MB/s"
[[classes]]
name = "gold"
latency = "2ms"
statistic = "mean"
[[volumes]]
name = "orders"
class = "gold"
size = "8 GiB"
[[clients]]
volume = "orders"
habits = {{ outstanding = 64, random_share = 1.0, rate = "1000 IOPS", skew = 1.0, footprint = 0.2, sizes = [{{ size = "8 KiB", share = 1.0 }}] }}
phases = [
  {{ duration = "10m", habits = {{}} }},
  {{ duration = "10m", habits = {{ rate = "9000 IOPS" }} }},
]
[response]
remedies = ["appliance"]
[response.workflow]
detect = {{ samples = 6, violating_min = 5, clear_below = 0.2 }}
removal = {{ spare_samples = 18, low_samples = 18 }}
{ahead}
"#
    );
    run_text(&text, "noop")
}

#[test]
fn recurring_peak_finds_its_appliance_ready() {
    let ahead = "[response.ahead]\nseasonal = { season = \"20m\", slot = \"2m\" }\nlead = \"4m\"";
    let (after, before) = (seasons(""), seasons(ahead));
    const THIRD_S: f64 = 50.0 * 60.0;
    let first_from = |r: &RunResult, s: f64| {
        let appliances = r.response.as_ref().unwrap().appliances.iter();
        appliances
            .filter_map(|a| a.serving_s)
            .find(|at| *at > s)
            .unwrap()
    };
    let (late_s, early_s) = (
        first_from(&after, THIRD_S - 600.0),
        first_from(&before, THIRD_S - 600.0),
    );
    assert!(late_s > THIRD_S + 100.0, "{late_s}");
    assert!(early_s < THIRD_S - 100.0, "{early_s}");
    let (without, with) = (
        violation_s(&after, "orders"),
        violation_s(&before, "orders"),
    );
    assert!(with <= without - 80.0, "{with} of {without}");
    // Two seasons must be observed before the third is expected.
    let remedies = |r: &RunResult| r.response.as_ref().unwrap().remedies.clone();
    let until = |r: &RunResult| {
        let all = remedies(r).into_iter();
        all.take_while(|a| a.at_s < THIRD_S - 600.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(until(&after), until(&before));
}

#[test]
fn failed_appliances_cause_no_guest_errors() {
    let failures = "failures = { creations = [0], hosts_lost = [\"20m\"] }";
    let table = format!("{HOSTS}[response]\nremedies = [\"appliance\"]\n{failures}\n{QUICK}");
    let result = run(FILLS_LINK, &table);
    let appliances = result.response.unwrap().appliances;
    assert_eq!(
        appliances[0].outcome.as_deref(),
        Some("failed: it could not be created: the hypervisor rejected the request")
    );
    assert_eq!(
        (appliances[0].serving_s, appliances[0].read_hits),
        (None, 0)
    );
    // Another host is tried, and then it is lost, too.
    assert_eq!(appliances[1].host, "two");
    // The appliance is re-routed within a second, drained, and removed.
    assert_eq!(appliances[1].ended_s, Some(1211.1));
    assert_eq!(
        appliances[1].outcome.as_deref(),
        Some("failed: its host was lost: power failure")
    );
    assert!(appliances[1].read_hits > 1000);
    // At the end only requests in flight are incomplete.
    assert!(result.unfinished < 200, "{}", result.unfinished);
}

/// A tenant with random overwrites on an SSD. It has little spare space of its own, and half of all spare space has no
/// owner.
fn on_flash(more: &str) -> String {
    let text = scenario("rate = \"1000 IOPS\"", "");
    let orders =
        "read_share = 0.95, random_share = 1.0, rate = \"5000 IOPS\", skew = 1.0, footprint = 0.3";
    assert!(text.contains(orders), "the load is another one");
    let text = text.replace("64 GiB", "17 GiB");
    let text = text.replace("duration = \"24m\"", "duration = \"5m\"");
    let text = text.replace(
        orders,
        "read_share = 0.5, random_share = 1.0, rate = \"17000 IOPS\"",
    );
    let flash = r#"
[flash.one]
preset = "tlc-nvme"
spare = 0.15
isolation = "isolated"
[[flash.one.tenants]]
name = "db"
volumes = ["orders"]
ops_share = 0.1
[[flash.one.tenants]]
name = "batch"
volumes = ["batch"]
ops_share = 0.4
"#;
    format!("{text}{flash}{more}")
}

#[test]
fn spare_flash_is_given_to_the_volume_with_costly_writes() {
    let table = format!("[response]\nremedies = [\"ops-share\"]\n{QUICK}");
    let nothing = run_text(&on_flash(""), "noop");
    let result = run_text(&on_flash(&table), "noop");
    let (without, with) = (
        violation_s(&nothing, "orders"),
        violation_s(&result, "orders"),
    );
    assert!(without >= 230.0, "{without}");
    assert!(with <= 80.0, "{with}");
    let waf = |r: &RunResult| r.wear.as_ref().unwrap().tenants[0].waf.unwrap();
    assert!(waf(&nothing) > 12.0, "{}", waf(&nothing));
    assert!(waf(&result) < 6.0, "{}", waf(&result));
    let given = result
        .events
        .iter()
        .find(|e| e.text.contains("spare flash"));
    assert!(
        given.is_some_and(|e| e.text.contains("write amplification from 15")),
        "{given:?}"
    );
    // If one tenant has the rest of the space, there is no spare space to give.
    let no_spare = on_flash(&table).replace("ops_share = 0.4\n", "");
    let response = run_text(&no_spare, "noop").response.unwrap();
    assert!(
        response.remedies.iter().all(|a| a.to.is_none()),
        "{response:?}"
    );
}

#[test]
fn removed_appliance_occupies_its_memory_until_it_is_destroyed() {
    let failures = "failures = { creations = [0], destroying_until = \"16m\" }";
    let table = format!("{HOSTS}[response]\nremedies = [\"appliance\"]\n{failures}\n{QUICK}");
    let result = run(FILLS_LINK, &table);
    let appliances = &result.response.as_ref().unwrap().appliances;
    assert_eq!(
        appliances[0].outcome.as_deref(),
        Some(
            "left behind: its virtual machine could not be destroyed: the hypervisor rejected the request"
        )
    );
    assert!(appliances[0].ended_s < Some(960.0), "{appliances:?}");
    assert_eq!(appliances[1].host, "two");
    let gone = "the rest of the caching appliance of orders has been removed";
    let gone: Vec<u64> = result
        .events
        .iter()
        .filter(|e| e.text == gone)
        .map(|e| e.at_ns)
        .collect();
    assert_eq!(
        gone,
        [960_000_000_000],
        "the window in which it was destroyed"
    );
}

#[test]
fn invalid_tables_are_refused_with_their_key() {
    for (more, key, why) in [
        (
            "[response]\nremedies = [\"appliance\"]",
            "response.remedies",
            "add [hosts]",
        ),
        (
            "[cache]\nsize = \"1 GiB\"\n[response]\nremedies = [\"mirror\"]",
            "response.remedies",
            "with [mirrors] or [cache]",
        ),
        (
            "[response.workflow]\ncopies = { free = 0.05 }",
            "response.workflow.copies.free",
            "leave a tenth",
        ),
        (
            "[response.iops_min]\nsilver = \"100 IOPS\"",
            "response.iops_min.silver",
            "gold",
        ),
        (
            "[response.iops_min]\ngold = \"0 IOPS\"",
            "response.iops_min.gold",
            "not above 0",
        ),
        (
            "[response.appliance]\npage = \"5 KiB\"",
            "response.appliance.page",
            "power of two",
        ),
        (
            "[response.ahead]\nseasonal = { slot = \"15s\" }",
            "response.ahead.seasonal.slot",
            "multiple of the window",
        ),
        (
            "[response.ahead]\nseasonal = { season = \"90m\" }",
            "response.ahead.seasonal.season",
            "multiple of the slot",
        ),
        (
            "[response.ahead]\nover_mean = 1.0",
            "response.ahead.over_mean",
            "above 1",
        ),
        (
            "[response.appliance]\nreduction = { ratio = 0.5, per_page = \"1us\" }",
            "response.appliance.reduction.ratio",
            "1 to 100",
        ),
        (
            "[response.appliance]\nssd = \"4 KiB\"",
            "response.appliance.ssd",
            "at least one page",
        ),
        (
            "[response.appliance]\nwrites = \"write-back\"",
            "response.appliance.writes",
            "may fail",
        ),
        (
            "[response.workflow]\nallowed = [\"throttle\"]",
            "response.workflow.allowed",
            "remedies",
        ),
        (
            "[hosts.one]\nlink = \"1 KiB/s\"",
            "hosts.one.link",
            "must be at least",
        ),
        (
            "[hosts.one]\nsharing = \"by-turns\"",
            "hosts.one.sharing",
            "requires a link",
        ),
        (
            "[hosts.one]\nlatency = \"2s\"",
            "hosts.one.latency",
            "exceeds the limit of 1 s",
        ),
    ] {
        let refusal = refusal("remedies.toml", &scenario(FILLS_DEVICE, more));
        assert!(
            refusal.contains(key) && refusal.contains(why),
            "{more}: {refusal}"
        );
    }
    let text = scenario(FILLS_DEVICE, "[hosts.one]\n[hosts.two]\n").replace("host = \"one\"", "");
    let why = refusal("remedies.toml", &text);
    assert!(
        why.contains("volumes[0].host") && why.contains("name the host of volume"),
        "{why}"
    );
}

#[test]
fn network_latency_of_a_server_is_added_to_device_latency() {
    const QUIET: &str = "rate = \"100 IOPS\"";
    let near = run(QUIET, "");
    let far = run(QUIET, "[hosts.one]\nlatency = \"300us\"\n");
    let orders = |r| group(r, GroupKind::Volume, "orders").reads.mean_us;
    // The device is as busy as before, except that closed loops issue their requests a little later.
    let more_us = orders(&far) - orders(&near);
    assert!((598.0..=602.0).contains(&more_us), "{more_us}");
}
