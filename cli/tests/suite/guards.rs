//! Situations of an operator's first day, with the real binary and real clients: a volume in use, classes, sizes, a new
//! tier.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::live::{Bench, MIB};
use crate::support::wait_for;

#[test]
fn volume_in_use_is_deleted_only_with_force() {
    let bench = Bench::with_volume("8M");
    assert_eq!(bench.show()["size"], "8 MiB");
    let server = bench.export();
    let mut client = server.client();
    client.write(0, &[5; 4096]).unwrap();
    assert_eq!(
        bench.refused(&["volume", "delete", "data", "--yes"]),
        "volume \"data\" is in use: 1 connection of a guest is open; `--force` closes them and deletes it"
    );
    assert_eq!(client.read(0, 4096).unwrap(), [5; 4096]);
    let unsure = bench.run(&["volume", "delete", "data"]);
    assert_eq!(unsure.status.code(), Some(2));
    let forced = bench.run(&["volume", "delete", "data", "--force"]);
    assert!(forced.status.success());
    let said = String::from_utf8(forced.stderr).unwrap();
    assert_eq!(
        said,
        "deleted volume data; 1 connection of a guest was closed\n"
    );
    assert!(client.read(0, 4096).is_err());
    assert_eq!(bench.json(&["volume", "list"])["volumes"], json!([]));
}

/// Repeats the test with QEMU's client, if it is installed: a client that reads is not disconnected.
#[test]
fn connected_qemu_is_not_disconnected_by_delete() {
    if !testkit::needs::programs(&["qemu-io"]) {
        return;
    }
    let bench = Bench::with_volume("8M");
    let server = bench.export();
    let mut guest = Command::new("qemu-io")
        .args([
            "-f",
            "raw",
            "-c",
            "write -P 9 0 64k",
            "-c",
            "sleep 3000",
            "-c",
            "read -P 9 0 64k",
        ])
        .arg(server.uri(0))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    bench.until("connected", |v| v["status"]["connections"] != json!(0));
    let refused = bench.refused(&["volume", "delete", "data", "--yes"]);
    assert!(
        refused.starts_with("volume \"data\" is in use: "),
        "{refused}"
    );
    let status = guest.wait().unwrap();
    assert!(status.success(), "{status}");
    bench.until("alone", |v| v["status"]["connections"] == json!(0));
    bench.ok(&["volume", "delete", "data", "--yes"]);
}

#[test]
fn new_volume_has_default_class_until_one_is_set() {
    let bench = Bench::with_volume("8M");
    let class = || bench.show()["class"].clone();
    assert_eq!(class(), "default");
    bench.ok(&["volume", "class", "data", "gold"]);
    assert_eq!(class(), "gold");
    let said = bench.run(&["volume", "class", "data", "--none"]);
    assert!(said.status.success());
    assert_eq!(
        String::from_utf8(said.stderr).unwrap(),
        "volume data now has no class\n"
    );
    assert_eq!(class(), "default");
    for wrong in [
        &["volume", "class", "data"][..],
        &["volume", "class", "data", "gold", "--none"],
    ] {
        assert_eq!(bench.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn sizes_accept_common_suffixes_and_bare_numbers_are_refused() {
    let bench = Bench::new();
    for (name, size, shown) in [
        ("a", "1.5M", "1536 KiB"),
        ("b", "64k", "64 KiB"),
        ("c", "2MiB", "2 MiB"),
    ] {
        bench.ok(&["volume", "create", name, "--size", size, "--tier", "slow"]);
        assert_eq!(bench.json(&["volume", "show", name])["size"], shown);
    }
    let bare = bench.run(&["volume", "create", "d", "--size", "4096", "--tier", "slow"]);
    assert_eq!(bare.status.code(), Some(2));
    let said = String::from_utf8(bare.stderr).unwrap();
    assert!(
        said.contains("\"4096\" has no unit: `qemu-img` would take it for bytes, `lvcreate` for MiB; write \"4096B\" or \"4096M\""),
        "{said}"
    );
}

#[test]
fn provisioned_size_is_listed_per_tier_and_for_the_array() {
    let bench = Bench::with_volume("256M");
    let list = bench.json(&["tier", "list"]);
    let provisioned = |t: usize| list["tiers"][t]["provisioned"].clone();
    assert_eq!(
        (provisioned(0), provisioned(1)),
        (json!("256 MiB"), json!("0 B"))
    );
    assert_eq!(
        list["array"],
        json!({"used": "0 B", "size": "1152 MiB", "provisioned": "256 MiB", "overcommit": 256.0 / 1152.0, "overcommit_max": null})
    );
    let text = bench.ok(&["tier", "list"]);
    let row = |name: &str| {
        text.lines()
            .find(|l| l.trim_start().starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(
        text.contains("provisioned") && row("fast").contains("2.00"),
        "{text}"
    );
    assert!(row("(all)").contains("0.22"), "{text}");
}

const LIVE: &str = r#"strategy = "noop"
window = "1s"
[array]
dir = "terrace-array"
[[classes]]
name = "gold"
latency = "5ms"
[policy]
monitor_epoch = "2s"
migration_epoch = "4s"
overcommit_max = 1.5
"#;

#[test]
fn served_array_has_the_policy_from_the_start() {
    let bench = Bench::with_volume("8M");
    std::fs::write(bench.path().join("live.toml"), LIVE).unwrap();
    let server = bench.start(&["serve", "--config", "live.toml", "-o", "json"], 1);
    let places: Value = serde_json::from_str(&server.lines[0]).unwrap();
    assert_eq!(places["schema"], "terrace.serve/1");
    assert_eq!(places["volumes"][0]["volume"], "data");
    assert!(places["controller"].as_str().unwrap().starts_with("unix:"));
    let create = |name: &str, size: &str, class: &str| {
        bench.refused(&[
            "volume", "create", name, "--size", size, "--tier", "slow", "--class", class,
        ])
    };
    let unknown = "unknown service class \"glod\", did you mean \"gold\"? (classes are defined in the configuration of the controller)";
    assert_eq!(create("a", "8M", "glod"), unknown);
    assert_eq!(bench.refused(&["volume", "class", "data", "glod"]), unknown);
    bench.ok(&["volume", "class", "data", "gold"]);
    // The array has 1152 MiB; volumes may have 1.5 times that size.
    assert_eq!(
        create("a", "1721M", "gold"),
        "cannot create volume \"a\" of 1721 MiB: the array has 1152 MiB, its volumes have 8 MiB, and would have 1729 MiB; policy.overcommit_max allows 1.5 times the size of the array (1728 MiB)"
    );
    bench.ok(&["volume", "create", "a", "--size", "1720M", "--tier", "slow"]);
    assert_eq!(
        bench.json(&["tier", "list"])["array"]["overcommit_max"],
        1.5
    );
    server.stop();
    // An array without a server does not know the classes and accepts any name.
    bench.ok(&["volume", "class", "data", "anything"]);
}

/// The agent sends the setting to an array that another process serves, and again after that process restarts.
#[test]
fn array_served_by_another_process_gets_the_policy_from_the_agent() {
    let bench = Bench::with_volume("8M");
    let elsewhere = LIVE.replace("[array]", "[array]\nserve = \"elsewhere\"");
    std::fs::write(bench.path().join("live.toml"), elsewhere).unwrap();
    let check = || {
        wait_for("somebody tells it", || {
            bench.json(&["tier", "list"])["array"]["overcommit_max"] == 1.5
        });
    };
    let export = bench.export();
    let manager = bench.start(&["serve", "--config", "live.toml"], 2);
    check();
    export.kill_9();
    let export = bench.export();
    assert_eq!(bench.show()["exported"], true);
    check();
    bench.refused(&["volume", "class", "data", "glod"]);
    manager.stop();
    export.stop();
}

#[test]
fn tier_add_with_preset_appends_its_description() {
    let bench = Bench::empty();
    let live = bench.path().join("live.toml");
    std::fs::write(&live, LIVE).unwrap();
    let add = [
        "tier", "add", "fast", "--dir", "f", "--size", "64M", "--preset", "nvme-tlc",
    ];
    // Errors in the file are reported before a device is created.
    let missing = bench.refused(&[&add[..], &["--config", "none.toml"]].concat());
    assert!(missing.starts_with("cannot read none.toml"), "{missing}");
    assert!(!bench.path().join("terrace-array").exists());
    let added = bench.run(&[&add[..], &["--config", "live.toml"]].concat());
    let said = String::from_utf8(added.stderr).unwrap();
    assert!(
        added.status.success() && said.contains("added the tier to "),
        "{said}"
    );
    assert_eq!(
        std::fs::read_to_string(&live).unwrap(),
        format!("{LIVE}\n[[tiers]]\nname = \"fast\"\npreset = \"nvme-tlc\"\n")
    );
    bench.ok(&["config", "check", "live.toml"]);
    // Without a file the command prints the lines.
    let shown = bench.run(&[
        "tier", "add", "slow", "--dir", "s", "--size", "64M", "--preset", "sata-ssd",
    ]);
    let said = String::from_utf8(shown.stderr).unwrap();
    assert!(
        said.contains("[[tiers]]\nname = \"slow\"\npreset = \"sata-ssd\"\n"),
        "{said}"
    );
    let both = [&add[..], &["--emulate", "sata-ssd"]].concat();
    assert_eq!(bench.run(&both).status.code(), Some(2));
}

#[test]
fn exports_are_printed_as_json_lines() {
    let bench = Bench::with_volume("8M");
    let server = bench.start(&["volume", "export", "-o", "json"], 1);
    let line: Value = serde_json::from_str(&server.lines[0]).unwrap();
    assert_eq!(
        (&line["schema"], &line["export"]),
        (&json!("terrace.export/1"), &json!("data"))
    );
    assert_eq!(server.client().size(), 8 * MIB);
    assert_eq!(server.stop(), "");
}
