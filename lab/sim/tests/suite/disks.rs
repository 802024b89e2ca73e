//! Groups of disks behind the devices of a tier, in scenarios.

use sim::{GroupKind, RunResult};

use crate::support::{group, refusal, run_text};

/// One client on a group of six disks, with a table of disks, habits and further tables.
fn scenario(disks: &str, habits: &str, more: &str) -> String {
    format!(
        r#"
seed = 3
duration = "5m"
window = "10s"
[[tiers]]
name = "archive"
preset = "disk-7k2"
read_iops = "400 IOPS"
write_iops = "100 IOPS"
capacity = "100 GiB"
{disks}
[[volumes]]
name = "v"
size = "80 GiB"
[[clients]]
volume = "v"
habits = {{ random_share = 1.0, sizes = [{{ size = "4 KiB", share = 1.0 }}], {habits} }}
[policy]
monitor_epoch = "1m"
migration_epoch = "10m"
{more}
"#
    )
}

fn group_of(count: u32, raid: &str) -> String {
    format!("[disks.archive]\npreset = \"disk-7k2\"\ncount = {count}\nraid = \"{raid}\"\n")
}

fn run(disks: &str, habits: &str) -> RunResult {
    run_text(&scenario(disks, habits, ""), "noop")
}

#[test]
fn cost_of_small_writes_follows_from_redundancy() {
    let per_s = |raid, habits| {
        let result = run(&group_of(6, raid), habits);
        let v = group(&result, GroupKind::Volume, "v");
        (v.reads.ios + v.writes.ios) as f64 / 300.0
    };
    const WRITES: &str = "outstanding = 96, read_share = 0.0";
    const READS: &str = "outstanding = 96, read_share = 1.0";
    // Six disks with 12.9 ms per access.
    let all = 6.0 / 0.01295;
    for (raid, reads, writes) in [
        ("raid0", 1.0, 1.0),
        ("raid10", 1.0, 2.0),
        ("raid5", 1.0, 4.0),
        ("raid6", 1.0, 6.0),
    ] {
        for (habits, accesses) in [(READS, reads), (WRITES, writes)] {
            let found = per_s(raid, habits) * accesses / all;
            // Some disks are idle at times, because requests are not spread evenly.
            assert!((0.9..1.01).contains(&found), "{raid}, {habits}: {found}");
        }
    }
}

#[test]
fn single_request_takes_its_positioning_and_transfer_time() {
    let result = run(&group_of(6, "raid5"), "outstanding = 1, read_share = 1.0");
    let mean_us = group(&result, GroupKind::Volume, "v").reads.mean_us;
    assert!((mean_us / 12_951.0 - 1.0).abs() < 0.02, "{mean_us}");
    // Equal inputs give equal results.
    assert_eq!(
        result,
        run(&group_of(6, "raid5"), "outstanding = 1, read_share = 1.0")
    );
}

#[test]
fn invalid_disk_groups_are_refused_with_their_key() {
    let flash = "[flash.archive]\npreset = \"tlc-nvme\"\n";
    for (disks, more, key, why) in [
        (
            group_of(2, "raid5"),
            "",
            "disks.archive.count",
            "at least 3",
        ),
        (
            group_of(3, "raid6"),
            "",
            "disks.archive.count",
            "at least 4",
        ),
        (
            group_of(5, "raid10"),
            "",
            "disks.archive.count",
            "cannot form pairs",
        ),
        (
            group_of(0, "raid0"),
            "",
            "disks.archive.count",
            "at least 1",
        ),
        (
            group_of(4000, "raid0"),
            "",
            "disks.archive.count",
            "exceed the limit",
        ),
        (
            group_of(6, "raid0").replace("disk-7k2", "disk-5k"),
            "",
            "disks.archive.preset",
            "did you mean",
        ),
        (
            group_of(6, "raid0") + "chunk = \"5 KiB\"",
            "",
            "disks.archive.chunk",
            "power of two",
        ),
        (
            group_of(2, "raid4"),
            "",
            "disks.archive.count",
            "at least 3",
        ),
        (
            group_of(6, "raid4") + "positioning = \"0ms\"",
            "",
            "disks.archive.positioning",
            "is not a time above 0",
        ),
        (
            group_of(6, "raid4") + "spread = 1.5",
            "",
            "disks.archive.spread",
            "from 0 to 1",
        ),
        (
            group_of(6, "raid4") + "bandwidth = \"10 KiB/s\"",
            "",
            "disks.archive.bandwidth",
            "less than",
        ),
        (
            group_of(6, "raid4") + "write_back = \"2m\"",
            "",
            "disks.archive.write_back",
            "up to",
        ),
        (
            group_of(6, "raid0").replace("disks.archive", "disks.archiv"),
            "",
            "disks.archiv",
            "archive",
        ),
        (group_of(6, "raid0"), flash, "disks.archive", "[flash]"),
        (
            group_of(6, "raid0"),
            "[actual.archive]\niops = 0.5\n",
            "actual.archive",
            "[disks]",
        ),
    ] {
        let refusal = refusal("disks.toml", &scenario(&disks, "outstanding = 1", more));
        assert!(
            refusal.contains(key) && refusal.contains(why),
            "{disks}{more}: {refusal}"
        );
    }
}
