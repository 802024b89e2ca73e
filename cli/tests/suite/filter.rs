//! Tests of `terrace filter` and of remote tiers. The remote NBD server is this program as well.

use serde_json::Value;

use crate::live::{Bench, MIB, fill, verify};

#[test]
fn filter_forwards_requests_and_measures_them() {
    let bench = Bench::with_volume("16 MiB");
    let server = bench.export();
    let arguments = [
        "filter",
        server.uri(0),
        "--listen",
        "unix:filter.sock",
        "--listen",
        "tcp:127.0.0.1:0",
        "--name",
        "seen",
        "--inject-read",
        "1ms",
        "--record",
        "seen.trc",
        "-o",
        "json",
    ];
    let filter = bench.start(&arguments, 2);
    assert!(filter.uri(0).starts_with("nbd+unix:///seen?socket="));
    assert!(filter.uri(1).starts_with("nbd://127.0.0.1:"));
    let mut client = filter.client();
    assert_eq!(client.size(), 16 * MIB);
    fill(&mut client, 16);
    verify(&mut filter.client_of(1), 16);
    verify(&mut server.client(), 16);
    client.zero(MIB, MIB as u32).unwrap();
    assert_eq!(client.read(MIB, 4096).unwrap(), vec![0; 4096]);
    // A trim of the whole volume keeps the extent that stands for the remote export.
    client.trim(0, (16 * MIB) as u32).unwrap();
    client.flush().unwrap();
    assert_eq!(bench.show()["allocated"], "0 B");
    fill(&mut client, 2);
    verify(&mut server.client(), 2);
    drop(client);

    let status: Value = serde_json::from_str(&filter.stop()).unwrap();
    assert_eq!(status["schema"], "terrace.filter/1");
    assert_eq!(status["measured"]["directions"][0]["requests"], 17);
    assert_eq!(status["measured"]["directions"][1]["requests"], 18);
    assert!(status["injected"]["added"]["p50_us"].as_f64().unwrap() >= 1000.0);
    let info = bench.json(&["trace", "info", "seen.trc"]);
    assert_eq!(info["requests"], 40, "{info:#}");
    assert!(!bench.path().join("filter.sock").exists());
}

#[test]
fn filter_without_reachable_server_is_refused() {
    let bench = Bench::empty();
    let nobody = [
        "filter",
        "nbd+unix:///x?socket=none.sock",
        "--listen",
        "unix:f.sock",
    ];
    assert_eq!(
        bench.refused(&nobody),
        "cannot talk to nbd+unix:///x?socket=none.sock: No such file or directory (os error 2)"
    );
    let out = bench.run(&["filter", "http://x", "--listen", "unix:f.sock"]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn tier_on_an_export_of_another_server_serves_volumes() {
    let far = Bench::with_volume("64 MiB");
    let far_server = far.export();
    let near = Bench::empty();
    near.ok(&["tier", "add", "fast", "--dir", "f", "--size", "64 MiB"]);
    near.ok(&["tier", "add", "far", "--nbd", far_server.uri(0)]);
    near.ok(&[
        "volume", "create", "data", "--size", "32 MiB", "--tier", "far",
    ]);
    let server = near.export();
    let mut client = server.client();
    fill(&mut client, 16);
    verify(&mut client, 16);
    // The first MiB holds the superblocks.
    assert_eq!(far.show()["allocated"], "17 MiB");
    near.ok(&["volume", "move", "data", "--to", "fast", "--wait"]);
    verify(&mut client, 16);
    near.ok(&["volume", "move", "data", "--to", "far", "--wait"]);
    verify(&mut client, 16);
    server.stop();
    verify(&mut near.export().client(), 16);
}
