//! Mirrored extents.

use sim::{GroupKind, RunResult};

use crate::support::{group, refusal, run_text};

/// A volume with many parallel readers on the faster of two tiers. Both tiers then work at their limit.
fn scenario(mirrors: &str, load: &str) -> String {
    format!(
        r#"
seed = 7
duration = "6m"
warmup = "2m"
window = "10s"
extent = "16 MiB"
[[tiers]]
name = "fast"
preset = "pm863"
capacity = "16 GiB"
read_iops = "20000 IOPS"
[[tiers]]
name = "slow"
preset = "pm863"
capacity = "16 GiB"
read_iops = "14000 IOPS"
[[volumes]]
name = "catalog"
size = "4 GiB"
tier = "fast"
[[clients]]
volume = "catalog"
habits = {{ random_share = 1.0, sizes = [{{ size = "8 KiB", share = 1.0 }}], {load} }}
[policy]
monitor_epoch = "1m"
migration_epoch = "10m"
{mirrors}
"#
    )
}

const MIRRORS: &str = "[mirrors]\nbudget = \"8 GiB\"\n";
const READS: &str = "outstanding = 64, read_share = 1.0";

fn run(mirrors: &str, load: &str) -> RunResult {
    run_text(&scenario(mirrors, load), "noop")
}

fn iops(result: &RunResult) -> f64 {
    let v = group(result, GroupKind::Volume, "catalog");
    (v.reads.ios + v.writes.ios) as f64 / 240.0
}

#[test]
fn mirrors_serve_nearly_the_sum_of_both_tiers() {
    let alone = iops(&run("", READS));
    let result = run(MIRRORS, READS);
    let both = iops(&result);
    assert!((19_500.0..20_500.0).contains(&alone), "{alone}");
    assert!(both >= 1.4 * alone, "{both} and {alone}");
    assert!(both >= 0.9 * 34_000.0, "{both} of 34,000");
    let sets = &result.mirrors.as_ref().unwrap().sets;
    assert_eq!(sets.len(), 1, "{sets:?}");
    let set = &sets[0];
    assert_eq!((set.volume.as_str(), set.ended_s), ("catalog", None));
    assert_eq!(set.bytes, 4 << 30);
    assert!(set.alike_s.unwrap() < 150.0, "{set:?}");
    let share = set.second_reads as f64 / (set.first_reads + set.second_reads) as f64;
    assert!((0.36..0.46).contains(&share), "{share}");
    // Both tiers have served reads.
    let slow = group(&result, GroupKind::Tier, "slow").reads.ios as f64 / 240.0;
    assert!(slow > 12_000.0, "{slow}");
    // Equal inputs give equal results.
    assert_eq!(result, run(MIRRORS, READS));
}

#[test]
fn written_extents_are_not_mirrored() {
    let load = "outstanding = 64, read_share = 0.5";
    let result = run(MIRRORS, load);
    assert_eq!(result.mirrors.as_ref().unwrap().sets, []);
    let without = run("", load);
    assert_eq!(result.groups, without.groups);
}

#[test]
fn writes_go_to_both_copies_and_idle_devices_are_not_mirrored() {
    let load = "outstanding = 64, read_share = 0.95";
    let result = run(MIRRORS, load);
    let written = |tier| group(&result, GroupKind::Tier, tier).writes.ios;
    assert!(!result.mirrors.as_ref().unwrap().sets.is_empty());
    // The first copy serves writes.
    assert_eq!(written("slow"), 0);
    assert!(iops(&result) > 1.2 * iops(&run("", load)));
    let quiet = run(
        MIRRORS,
        "outstanding = 1, rate = \"200 IOPS\", read_share = 1.0",
    );
    assert_eq!(quiet.mirrors.unwrap().sets, []);
}

#[test]
fn moved_volume_drops_its_mirrors_first() {
    let pin = "pins = { catalog = \"slow\" }\n";
    let text = scenario(&format!("{pin}{MIRRORS}"), READS).replace("10m", "3m");
    let result = run_text(&text, "noop");
    assert_eq!(
        result.final_tiers,
        [("catalog".to_string(), "slow".to_string())]
    );
    assert_eq!((result.moves.done, result.moves.not_done), (1, 0));
    let sets = &result.mirrors.as_ref().unwrap().sets;
    assert!(
        sets[0]
            .ended_s
            .is_some_and(|at| (180.0..200.0).contains(&at)),
        "{sets:?}"
    );
}

#[test]
fn invalid_mirror_options_are_refused_with_their_key() {
    for (more, key, why) in [
        (
            "read_share = 1.5",
            "mirrors.read_share",
            "must be a share from 0 to 1",
        ),
        ("busy = -0.1", "mirrors.busy", "must be a share from 0 to 1"),
        (
            "every = \"15s\"",
            "mirrors.every",
            "a multiple of the window",
        ),
        ("look = \"1us\"", "mirrors.look", "between"),
        ("bandwidth = \"1 KiB/s\"", "mirrors.bandwidth", "at least"),
    ] {
        let refusal = refusal("m.toml", &scenario(&format!("{MIRRORS}{more}"), READS));
        assert!(refusal.contains(key) && refusal.contains(why), "{refusal}");
    }
    let why = refusal("m.toml", &scenario("[mirrors]\n", READS));
    assert!(why.contains("budget"), "{why}");
}
