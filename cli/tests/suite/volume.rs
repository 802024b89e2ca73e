//! The live data path as an operator uses it: the real binary, real sockets, real files.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::live::{Bench, MIB, fill, verify};
use crate::support::Site;

#[test]
fn volume_is_created_moved_and_deleted() {
    let bench = Bench::with_volume("64 MiB");
    let list = bench.json(&["volume", "list"]);
    assert_eq!(list["schema"], "terrace.volume.list/1");
    assert_eq!(list["volumes"][0]["name"], "data");
    assert_eq!(list["volumes"][0]["class"], "default");
    assert_eq!(list["volumes"][0]["exported"], false);
    assert_eq!(list["volumes"][0]["allocated"], "0 B");

    let server = bench.export();
    assert!(server.lines[0].starts_with("data nbd+unix:///data?socket="));
    let mode = std::fs::metadata(bench.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = server.client();
    assert_eq!(client.size(), 64 * MIB);
    assert_eq!(client.read(5 * MIB, 4096).unwrap(), vec![0; 4096]);
    fill(&mut client, 20);

    let show = bench.show();
    assert_eq!(show["schema"], "terrace.volume.show/1");
    assert_eq!(show["tiers"], json!([["fast", "20 MiB"]]));
    let measured = &show["status"]["measured"];
    assert_eq!(measured["directions"][1]["requests"], 20);
    assert_eq!(measured["directions"][1]["bytes"], 20 * MIB);
    assert_eq!(measured["extents_touched"], 20);
    let text = bench.ok(&["volume", "show", "data"]);
    for column in [
        "r/s",
        "wMiB/s",
        "r_await",
        "p99",
        "queue depth",
        "hot extent",
    ] {
        assert!(text.contains(column), "{column}: {text}");
    }

    bench.ok(&["volume", "move", "data", "--to", "slow", "--wait"]);
    let show = bench.show();
    assert_eq!(show["tiers"], json!([["slow", "20 MiB"]]));
    assert_eq!(show["status"]["last_move"]["end"], "done");
    verify(&mut client, 20);
    client.trim(0, (64 * MIB) as u32).unwrap();
    client.flush().unwrap();
    assert_eq!(bench.show()["allocated"], "0 B");
    client.disconnect().unwrap();

    // A volume that is created while the server runs is served at once.
    bench.ok(&[
        "volume", "create", "more", "--size", "1 MiB", "--tier", "slow",
    ]);
    assert_eq!(
        bench.json(&["volume", "list"])["volumes"][1]["exported"],
        true
    );
    bench.until("left by its guest", |v| v["status"]["connections"] == 0);
    bench.ok(&["volume", "delete", "data", "--yes"]);
    assert_eq!(
        bench.json(&["volume", "list"])["volumes"][0]["name"],
        "more"
    );
    assert_eq!(server.stop(), "");
    assert!(!bench.socket().exists());
    assert!(!bench.path().join("terrace-array/nbd.sock").exists());
    bench.ok(&["volume", "delete", "more", "--yes"]);
    assert_eq!(bench.json(&["volume", "list"])["volumes"], json!([]));
    assert!(bench.ok(&["volume", "check"]).ends_with("no problem\n"));
}

#[test]
fn mirrored_extents_are_dropped_on_conflicts_and_at_the_stop() {
    let bench = Bench::with_volume("64 MiB");
    let mirror = ["volume", "mirror", "data", "--to", "slow"];
    assert!(bench.refused(&mirror).contains("not served"));
    let server = bench.export();
    let mut client = server.client();
    assert!(bench.refused(&mirror).contains("nothing to mirror"));
    fill(&mut client, 20);
    let said = bench.refused(&["volume", "mirror", "data", "--to", "slow", "--hottest", "5"]);
    assert!(said.contains("has no read-mostly extent"), "{said}");
    for _ in 0..30 {
        client.read(2 * MIB, 4096).unwrap();
        client.read(7 * MIB, 4096).unwrap();
    }
    let hot = [&mirror[..], &["--hottest", "5"]].concat();
    bench.ok(&hot);
    let phase = |v: &serde_json::Value| v["status"]["mirror"]["phase"] == "mirrored";
    bench.until("mirrored", phase);
    let show = bench.show();
    assert_eq!(show["status"]["mirror"]["bytes"], "2 MiB");
    assert_eq!(show["status"]["mirror"]["extents"], "2,7");
    assert_eq!(show["tiers"], json!([["fast", "20 MiB"]]));
    assert!(bench.refused(&mirror).contains("already mirrored"));
    for _ in 0..300 {
        client.read(2 * MIB, 4096).unwrap();
    }
    let show = bench.show();
    assert_ne!(show["status"]["mirror"]["reads_second"], 0);
    let text = bench.ok(&["volume", "show", "data"]);
    assert!(
        text.contains("mirror           mirrored: 2.0 MiB on slow"),
        "{text}"
    );
    // A write to a mirrored extent goes to both copies; a trim ends the mirror.
    verify(&mut client, 20);
    client.trim(7 * MIB, MIB as u32).unwrap();
    bench.until("given up", |v| v["status"]["mirror"].is_null());
    let why = &bench.show()["status"]["last_mirror"]["why"];
    assert_eq!(why, "stopped because of a trim");
    bench.ok(&[&mirror[..], &["--extents", "0-3"]].concat());
    bench.until("mirrored", phase);
    bench.ok(&["volume", "resize", "data", "--size", "80 MiB"]);
    let why = &bench.show()["status"]["last_mirror"]["why"];
    assert_eq!(why, "stopped because of a change of size");
    bench.ok(&mirror);
    bench.until("mirrored", phase);
    bench.ok(&["volume", "move", "data", "--to", "slow", "--wait"]);
    assert_eq!(bench.show()["status"]["last_move"]["end"], "done");
    bench.ok(&["volume", "mirror", "data", "--to", "fast"]);
    bench.until("mirrored", phase);
    bench.ok(&["volume", "mirror", "data", "--stop"]);
    bench.until("given up", |v| v["status"]["mirror"].is_null());
    bench.ok(&["volume", "mirror", "data", "--to", "fast"]);
    bench.until("mirrored", phase);
    server.kill_9();

    let server = bench.export();
    let mut client = server.client();
    assert!(bench.show()["status"]["mirror"].is_null());
    // An extent that was trimmed during its mirror keeps its space.
    assert_eq!(bench.show()["tiers"], json!([["slow", "20 MiB"]]));
    assert_eq!(client.read(2 * MIB, 4096).unwrap().len(), 4096);
    client.disconnect().unwrap();
    assert_eq!(server.stop(), "");
    assert!(bench.ok(&["volume", "check"]).ends_with("no problem\n"));
}

#[test]
fn interrupted_move_continues_after_a_server_kill() {
    let bench = Bench::with_volume("32 MiB");
    let server = bench.export();
    fill(&mut server.client(), 24);
    bench.ok(&[
        "volume",
        "move",
        "data",
        "--to",
        "slow",
        "--bandwidth",
        "6 MiB/s",
    ]);
    bench.until("copying", |v| {
        v["status"]["moving"]["copied"] != json!("0 B")
    });
    server.kill_9();

    assert!(
        bench.socket().exists(),
        "a killed server leaves its socket behind"
    );
    let show = bench.show();
    assert_eq!(show["moving_to"], "slow");
    assert_eq!(show["exported"], false);
    assert_eq!(
        bench.refused(&["volume", "move", "data", "--to", "fast"]),
        "volume \"data\" is already moving to slow: `terrace volume cancel data` cancels that move"
    );

    let server = bench.export();
    let mut client = server.client();
    verify(&mut client, 24);
    bench.until("moved", |v| v["moving_to"].is_null());
    let show = bench.show();
    assert_eq!(show["tiers"], json!([["slow", "24 MiB"]]));
    verify(&mut client, 24);
    server.stop();
    assert!(
        bench
            .ok(&["volume", "check"])
            .ends_with(" 0 moves: no problem\n")
    );
}

#[test]
fn only_the_given_extents_move_despite_a_server_kill() {
    let bench = Bench::with_volume("32 MiB");
    assert_eq!(
        bench.refused(&["volume", "heat", "data"]),
        "volume \"data\" has no heat counts: it is not served, or not measured (`terrace volume set --measure on`), or has more than 16777216 extents"
    );
    let server = bench.export();
    let mut client = server.client();
    fill(&mut client, 24);
    for i in 0..200 {
        client.read((i % 4) * MIB + i * 512, 512).unwrap();
    }
    let heat = bench.json(&["volume", "heat", "data", "--top", "4"]);
    assert_eq!(heat["schema"], "terrace.volume.heat/1");
    assert_eq!(
        (&heat["extents"], &heat["touched"], &heat["requests"]),
        (&json!(32), &json!(24), &json!(224))
    );
    let hottest: Vec<_> = heat["hottest"]
        .as_array()
        .unwrap()
        .iter()
        .map(|h| h["extent"].as_u64().unwrap())
        .collect();
    assert_eq!(hottest, [0, 1, 2, 3]);
    assert_eq!(
        heat["hottest"][0],
        json!({"extent": 0, "device": "fast-0", "reads": 50, "writes": 1, "requests_share": 51.0 / 224.0})
    );
    // A tenth of 32 extents, rounded up, is four extents.
    assert_eq!(heat["locality"][2]["requests_share"], json!(204.0 / 224.0));
    assert_eq!(heat["places"][1]["device"], json!(null), "holes");
    assert!(
        bench
            .ok(&["volume", "heat", "data"])
            .contains("hottest extents")
    );

    let order = |extents: &'static str, rate: &'static str| {
        [
            "volume",
            "move",
            "data",
            "--to",
            "slow",
            "--extents",
            extents,
            "--bandwidth",
            rate,
        ]
    };
    bench.ok(&[&order("4-9,20-23", "500 MiB/s")[..], &["--wait"]].concat());
    assert_eq!(
        bench.show()["tiers"],
        json!([["fast", "14 MiB"], ["slow", "10 MiB"]])
    );
    assert_eq!(bench.show()["home"], "fast");
    assert_eq!(
        bench.refused(&order("30-32", "1 MiB/s")),
        "volume \"data\": extent 32 does not exist: the volume has 32 extents, numbered from 0"
    );
    let refused = bench.run(&order("9-4", "1 MiB/s"));
    assert_eq!(refused.status.code(), Some(2));

    // Most of these extents are holes. A first write during the move goes to the target if the order names its extent,
    // else to the volume's home tier.
    bench.ok(&order("10-19,28-31", "1 MiB/s"));
    let moving = bench.until("copying", |v| v["status"]["moving"]["phase"] == "copying");
    assert_eq!(moving["moving_extents"], "10-19,28-31");
    assert_eq!(moving["status"]["moving"]["extents"], "10-19,28-31");
    client.write(27 * MIB, &[1; 4096]).unwrap();
    client.write(28 * MIB, &[2; 4096]).unwrap();
    server.kill_9();
    assert_eq!(bench.show()["moving_extents"], "10-19,28-31");
    let other = bench.refused(&order("10-19", "1 MiB/s"));
    assert!(other.contains("is already moving to slow"), "{other}");
    let server = bench.export();
    let mut client = server.client();
    verify(&mut client, 24);
    bench.until("moved", |v| v["moving_to"].is_null());
    verify(&mut client, 24);
    assert_eq!(client.read(27 * MIB, 4096).unwrap(), [1; 4096]);
    assert_eq!(client.read(28 * MIB, 4096).unwrap(), [2; 4096]);
    assert_eq!(
        bench.show()["tiers"],
        json!([["fast", "5 MiB"], ["slow", "21 MiB"]])
    );
    server.stop();
    // The extents move back by ranges, without a server.
    bench.ok(&[
        "volume",
        "move",
        "data",
        "--to",
        "fast",
        "--extents",
        "0-31",
    ]);
    assert_eq!(bench.show()["tiers"], json!([["fast", "26 MiB"]]));
    verify(&mut bench.export().client(), 24);
    assert!(
        bench
            .ok(&["volume", "check"])
            .ends_with(" 0 moves: no problem\n")
    );
}

#[test]
fn offline_move_of_a_volume_continues_after_a_kill() {
    let bench = Bench::with_volume("32 MiB");
    let server = bench.export();
    fill(&mut server.client(), 16);
    server.stop();
    let slowly = [
        "volume",
        "move",
        "data",
        "--to",
        "slow",
        "--bandwidth",
        "2 MiB/s",
    ];
    let mover = bench.start(&slowly, 0);
    bench.until("moving", |v| v["status"]["moving"].is_object());
    mover.kill_9();
    let out = bench.run(&["volume", "cancel", "data"]);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(bench.show()["moving_to"], json!(null));
    assert_eq!(
        bench.refused(&["volume", "cancel", "data"]),
        "volume \"data\" is not moving"
    );

    let mover = bench.start(&slowly, 0);
    bench.until("moving", |v| v["status"]["moving"].is_object());
    mover.kill_9();
    assert_eq!(bench.show()["moving_to"], "slow");
    // The bandwidth is that of the first order.
    let out = bench.run(&["volume", "move", "data", "--to", "slow"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    assert!(
        said.starts_with("continuing the move of volume data to slow\n"),
        "{said}"
    );
    assert_eq!(bench.show()["tiers"], json!([["slow", "16 MiB"]]));
    verify(&mut bench.export().client(), 16);
}

#[test]
fn refusals_suggest_the_next_step() {
    let bench = Bench::empty();
    let missing = "terrace-array: the directory has no array: `terrace tier add NAME --dir DIR --size SIZE` creates one, --array selects another directory; if its disk was lost, `terrace array restore` restores its map";
    assert_eq!(bench.refused(&["volume", "list"]), missing);
    assert_eq!(bench.refused(&["volume", "export"]), missing);
    assert_eq!(
        bench.refused(&["tier", "add", "fast", "--dir", "none", "--size", "1 GiB"]),
        "cannot use directory HERE/none: No such file or directory (os error 2)"
    );
    assert!(
        !bench.path().join("terrace-array").exists(),
        "nothing is left"
    );
    assert_eq!(
        bench.refused(&["tier", "add", "fast", "--dir", "f", "--size", "1 KiB"]),
        "1 KiB is less than one extent of 1 MiB"
    );
    let usage = |arguments: &[&str], words: &str| {
        let out = bench.run(arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    };
    let add = ["tier", "add", "fast", "--dir", "f", "--size", "128 MiB"];
    let emulate = |preset| [&add[..], &["--emulate", preset]].concat();
    usage(
        &emulate("pm593"),
        "unknown preset \"pm593\", did you mean \"pm953\"?",
    );
    usage(&["tier", "add", "fast", "--dir", "f"], "--size");
    usage(&["tier", "add", "fast", "--size", "1 GiB"], "--dir");
    bench.ok(&emulate("pm953"));
    assert_eq!(
        bench.refused(&[&add[..], &["--extent", "4 MiB"]].concat()),
        "terrace-array: the extent size of an array is set when it is created: omit --extent"
    );
    let create = |name, size, tier| ["volume", "create", name, "--size", size, "--tier", tier];
    bench.ok(&create("data", "64 MiB", "fast"));
    for (arguments, words) in [
        (
            create("data", "1 MiB", "fast"),
            "volume \"data\" already exists",
        ),
        (
            create("x", "1000 B", "fast"),
            "the size of a volume must be a multiple of 512 bytes, and 1000 B is not",
        ),
        (
            create("x", "1 MiB", "fats"),
            "unknown tier \"fats\", did you mean \"fast\"?",
        ),
        (create("", "1 MiB", "fast"), "name \"\": must not be empty"),
    ] {
        assert_eq!(bench.refused(&arguments), words);
    }
    assert_eq!(
        bench.refused(&[
            "volume", "create", "x", "--size", "1 MiB", "--tier", "fast", "--class", ""
        ]),
        "class \"\": must not be empty"
    );
    assert_eq!(
        bench.refused(&["volume", "show", "dta"]),
        "unknown volume \"dta\", did you mean \"data\"?"
    );
    let not_served = "volume \"data\": the volume is not served: run `terrace volume export`";
    assert_eq!(
        bench.refused(&["volume", "set", "data", "--iops", "5"]),
        not_served
    );
    assert_eq!(
        bench.refused(&["volume", "inject", "data", "--read", "1ms", "--for", "1s"]),
        not_served
    );
    assert_eq!(
        bench.refused(&["trace", "record", "data", "--out", "x.trc"]),
        not_served
    );
    assert_eq!(
        bench.refused(&["tier", "limit", "fast", "--iops", "5"]),
        "the array is not served: run `terrace volume export`"
    );
    usage(
        &["volume", "delete", "data"],
        "the data of volume \"data\" would be lost for ever: add --yes to delete it",
    );
    usage(&["volume", "set", "data"], "--iops");
    usage(
        &["volume", "export", "--listen", "tcp:0.0.0.0:1"],
        "is not a loopback address",
    );
    usage(
        &["volume", "export", "--listen", "here"],
        "is not an address to listen on",
    );
    std::fs::rename(bench.path().join("f"), bench.path().join("g")).unwrap();
    // The only device is missing, and the second copy of the map with it.
    let said = bench.refused(&["volume", "export"]);
    let why = "only the first copy of the map is available, and the other copy may be newer: 0 of 1 devices are available to decide that, and 1 are needed (second copy: HERE/f/map-";
    assert!(said.starts_with(why), "{said}");
    assert!(said.contains("`--accept-loss map`"), "{said}");
    let out = bench.run(&["volume", "list"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success()
            && said.starts_with("warning: the shown state of the array may be out of date"),
        "{said}"
    );
}

#[test]
fn volume_class_is_set_with_and_without_a_server() {
    let bench = Bench::with_volume("8 MiB");
    let said = |arguments: &[&str]| {
        let out = bench.run(arguments);
        assert!(out.status.success(), "{arguments:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    let gold = said(&["volume", "class", "data", "gold"]);
    assert_eq!(gold, "volume data now has class gold\n");
    assert_eq!(bench.show()["class"], "gold");
    let server = bench.export();
    said(&["volume", "class", "data", "bronze"]);
    assert_eq!(
        bench.refused(&["volume", "class", "data", ""]),
        "class \"\": must not be empty"
    );
    server.kill_9();
    assert_eq!(bench.show()["class"], "bronze");
}

#[test]
fn move_to_a_full_tier_is_refused() {
    let bench = Bench::new();
    bench.ok(&[
        "volume", "create", "data", "--size", "256 MiB", "--tier", "slow",
    ]);
    let server = bench.export();
    fill(&mut server.client(), 130);
    assert_eq!(
        bench.refused(&["volume", "move", "data", "--to", "fast"]),
        "device \"fast-0\" has 128 MiB free, the volume needs 130 MiB"
    );
    assert_eq!(
        bench.refused(&[
            "volume",
            "move",
            "data",
            "--to",
            "fast",
            "--bandwidth",
            "0 B/s"
        ]),
        "the bandwidth of a move must be above 0"
    );
}

#[test]
fn second_server_of_an_array_is_refused() {
    let bench = Bench::with_volume("8 MiB");
    let _server = bench.export();
    let served = "terrace-array: the array is served by another process: stop that one first";
    assert_eq!(bench.refused(&["volume", "export"]), served);
    assert_eq!(bench.refused(&["volume", "check"]), served);
    assert_eq!(bench.refused(&["volume", "repair"]), served);
    // The message reports a process that holds the array and does not respond.
    let held = Bench::with_volume("8 MiB");
    let _array = array::Array::open(&held.path().join("terrace-array")).unwrap();
    assert_eq!(
        held.refused(&["volume", "list"]),
        "terrace-array: the array is in use by another process that does not answer on its control socket: wait for it to end"
    );
}

#[test]
fn garbage_on_the_control_socket_is_refused() {
    let bench = Bench::with_volume("8 MiB");
    let server = bench.export();
    let say = |bytes: &[u8]| {
        let mut socket = UnixStream::connect(bench.socket()).unwrap();
        socket
            .set_read_timeout(Some(crate::support::PATIENCE))
            .unwrap();
        // The server may disconnect before it has read everything.
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        answer
    };
    for (garbage, words) in [
        ("\n", "not JSON"),
        ("null\n", "not a JSON object"),
        ("{\"ask\":\"volumes\"}\n", "no version"),
        ("{\"v\":7,\"ask\":\"volumes\"}\n", "has version 7"),
        ("{\"v\":1,\"ask\":\"format\"}\n", "unknown variant"),
        (
            "{\"v\":1,\"ask\":\"volumes\",\"all\":1}\n",
            "an unknown field \\\"all\\\"",
        ),
        ("{\"v\":1,\"ask\":\"delete\"}\n", "missing field"),
        ("{\"v\":1", "the request has no end of line"),
    ] {
        let answer = say(garbage.as_bytes());
        assert!(
            answer.starts_with("{\"error\":") && answer.contains(words),
            "{garbage}: {answer}"
        );
    }
    assert!(say(&vec![b'x'; 1 << 20]).contains("a line of more than 65536 bytes"));
    assert_eq!(say(b""), "");
    let twice = say(b"{\"v\":1,\"ask\":\"tiers\"}\n{\"v\":1,\"ask\":\"volumes\"}\n");
    assert_eq!(
        twice.lines().filter(|l| l.starts_with("{\"ok\":")).count(),
        2,
        "{twice}"
    );

    // Silent clients do not block others permanently, and excess clients are rejected.
    let silent: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(bench.socket()).unwrap())
        .collect();
    assert!(say(b"{\"v\":1,\"ask\":\"tiers\"}\n").contains("too many commands at the same time"));
    drop(silent);
    bench.until("asked", |_| true);
    server.client().read(0, 512).unwrap();
}

#[test]
fn volume_limits_recordings_and_injected_delays_take_effect() {
    let bench = Bench::with_volume("8 MiB");
    let server = bench.export();
    let mut client = server.client();
    fill(&mut client, 2);
    let reads = |client: &mut datapath::Client, n: u64| {
        let begin = std::time::Instant::now();
        for i in 0..n {
            client.read(i * 4096, 4096).unwrap();
        }
        begin.elapsed().as_secs_f64()
    };
    for (weight, word) in [("nan", "NaN"), ("inf", "inf"), ("0", "0"), ("101", "101")] {
        assert_eq!(
            bench.refused(&["volume", "set", "data", "--weight", weight]),
            format!("a weight must be between 0.01 and 100, not {word}")
        );
    }
    bench.ok(&["volume", "set", "data", "--iops", "50", "--weight", "2"]);
    assert!(reads(&mut client, 40) > 0.3);
    bench.ok(&["volume", "set", "data", "--iops", "0", "--measure", "off"]);
    assert!(
        bench
            .ok(&["volume", "show", "data"])
            .contains("--measure on")
    );
    bench.ok(&["volume", "set", "data", "--measure", "on"]);
    bench.ok(&["tier", "limit", "fast", "--bandwidth", "100 MiB/s"]);
    assert!(bench.ok(&["tier", "list"]).contains("100.0"));
    bench.ok(&["tier", "limit", "fast"]);

    let record = bench.start(&["trace", "record", "data", "--out", "t.trc"], 0);
    bench.until("recorded", |v| v["status"]["recording"].is_string());
    assert!(
        bench
            .refused(&["trace", "record", "data", "--out", "u.trc"])
            .contains("is already being recorded to")
    );
    reads(&mut client, 25);
    record.stop();
    let info = bench.json(&["trace", "info", "t.trc"]);
    assert_eq!(
        (&info["requests"], &info["reads"]),
        (&json!(25), &json!(25)),
        "{info:#}"
    );
    assert!(
        bench
            .refused(&["trace", "record", "data", "--out", "t.csv"])
            .ends_with("recordings are native traces: name it .trc")
    );
    assert_eq!(
        bench.refused(&["trace", "record", "data", "--end"]),
        "volume \"data\": the volume is not being recorded"
    );

    let inject = ["volume", "inject", "data", "--read", "5ms", "--for", "10m"];
    let inject = bench.start(&[&inject[..], &["-o", "json"]].concat(), 0);
    bench.until("delayed", |v| v["status"]["injecting"] == json!(true));
    assert!(reads(&mut client, 20) > 0.1);
    let injected: serde_json::Value = serde_json::from_str(&inject.stop()).unwrap();
    assert_eq!(injected["schema"], "terrace.volume.inject/1");
    assert_eq!(injected["added"]["count"], 20);
    let p50 = injected["added"]["p50_us"].as_f64().unwrap();
    assert!(p50 >= 5000.0, "{injected:#}");
}

#[test]
fn xml_of_a_served_volume_describes_a_libvirt_disk() {
    let mut site = Site::new(&[("db", 8)]);
    let words = ["volume", "xml", "db", "--target", "vdc"];
    let refused = site.run(&words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("give the socket that serves the volume"),
        "{said}"
    );
    site.serve(&[]);
    let socket = site.socket();
    let xml = site.ok(&[&words[..], &["--socket", socket.to_str().unwrap()]].concat());
    let source = format!("<host transport='unix' socket='{}'/>", socket.display());
    for part in [
        "<disk type='network' device='disk'>",
        "<source protocol='nbd' name='db'>",
        &source,
        "<target dev='vdc' bus='virtio'/>",
    ] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
}

#[test]
fn xml_of_a_vhost_user_volume_describes_a_libvirt_disk() {
    let mut site = Site::new(&[("db", 8)]);
    let dir = site.path("vhost");
    let dir = dir.to_str().unwrap().to_owned();
    let words = [
        "volume",
        "xml",
        "db",
        "--target",
        "vdc",
        "--vhost-user",
        &dir,
    ];
    let refused = site.run(&words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("give the directory of the vhost-user sockets"),
        "{said}"
    );
    site.serve(&["--vhost-user", &dir]);
    let line = format!("db vhost-user:{dir}/db.sock\n");
    assert!(site.log().contains(&line), "{}", site.log());
    let xml = site.ok(&words);
    for part in [
        "<disk type='vhostuser' device='disk'>".to_owned(),
        format!("<source type='unix' path='{dir}/db.sock'>"),
        "<reconnect enabled='yes' timeout='1'/>".to_owned(),
        "<target dev='vdc' bus='virtio'/>".to_owned(),
    ] {
        assert!(xml.contains(&part), "{part}: {xml}");
    }
    // libvirt accepts the definition, if it is installed.
    if testkit::needs::programs(&["virsh"]) {
        let domain = format!(
            "<domain type='test'><name>d</name><memory unit='MiB'>64</memory>
             <memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>
             <vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os><devices>{xml}</devices></domain>"
        );
        std::fs::write(site.path("domain.xml"), domain).unwrap();
        let define = [
            "-c",
            "test:///default",
            "define",
            "--validate",
            "domain.xml",
        ];
        site.client("virsh", &define);
    }
    // One directory of sockets also serves all volumes that are created later.
    site.ok(&[
        "volume", "create", "later", "--size", "8 MiB", "--tier", "fast",
    ]);
    assert!(site.path("vhost/later.sock").exists());
    site.ok(&["volume", "delete", "later", "--yes"]);
    assert!(!site.path("vhost/later.sock").exists());
    site.stop();
    assert!(!site.path("vhost/db.sock").exists());
}

#[test]
fn direct_io_is_used_where_configured_and_supported() {
    let mut site = Site::empty();
    let add = |site: &Site, tier: &str, dir: &std::path::Path, direct: &str| {
        let dir = dir.to_str().unwrap();
        site.run(&[
            "tier", "add", tier, "--dir", dir, "--size", "8M", "--direct", direct,
        ])
    };
    let said = |out: std::process::Output| String::from_utf8(out.stderr).unwrap();
    let memory = site.path("memory");
    std::fs::create_dir(&memory).unwrap();
    let is_memory = datapath::device::is_in_memory(&memory);
    if is_memory {
        let said = said(add(&site, "fast", &memory, "on"));
        assert!(
            said.contains("direct I/O is not possible: the device is in memory"),
            "{said}"
        );
        assert_eq!(
            std::fs::read_dir(&memory).unwrap().count(),
            0,
            "nothing is left"
        );
    }
    let disk = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if datapath::device::is_in_memory(disk.path()) {
        return testkit::needs::skipped("a build directory on a disk");
    }
    assert!(add(&site, "memory", &memory, "auto").status.success());
    assert!(add(&site, "fast", disk.path(), "on").status.success());
    assert!(add(&site, "slow", disk.path(), "auto").status.success());
    let wrong = said(add(&site, "other", disk.path(), "maybe"));
    assert!(wrong.contains("must be auto, on or off"), "{wrong}");
    site.serve(&[]);
    let list = site.ok(&["tier", "list"]);
    let line = |device: &str| {
        let line = list
            .lines()
            .find(|l| l.starts_with(&format!("device {device}:")));
        line.unwrap_or_else(|| panic!("{device}: {list}"))
    };
    assert!(
        !is_memory || line("memory-0").ends_with("through the page cache: the device is in memory")
    );
    assert!(line("fast-0").ends_with("direct I/O: as configured"));
    assert!(line("slow-0").contains("a durable write of 4 KiB takes"));
    let done = said(site.run(&["device", "direct", "fast-0", "off"]));
    assert!(done.contains("from the next start of the server"), "{done}");
    let fast = |site: &Site| {
        let all = site.json(&["tier", "list"]);
        let all = all["tiers"].as_array().unwrap();
        let fast = all.iter().find(|t| t["name"] == "fast").unwrap();
        let device = &fast["devices"][0];
        (device["direct"].clone(), device["direct_now"][0].clone())
    };
    assert_eq!(
        fast(&site),
        (json!("off"), json!(true)),
        "until the next start"
    );
    site.stop();
    site.serve(&[]);
    assert_eq!(fast(&site), (json!("off"), json!(false)));
    site.stop();
}
