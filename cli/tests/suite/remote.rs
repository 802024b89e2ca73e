//! A remote device that sends incomplete replies: one guest must never receive another guest's data.

use std::time::Duration;

use crate::support::{Site, wait_for};

#[test]
fn partial_read_reply_is_an_error_and_exposes_no_other_data() {
    let mut site = Site::empty();
    let remote = site.path("remote.sock");
    // Reads of the superblocks and of the owner's claims receive complete replies.
    testkit::export::serve(&remote, 32 << 10);
    let (fast, uri) = (
        site.path("fast"),
        format!("nbd+unix:///?socket={}", remote.display()),
    );
    std::fs::create_dir(&fast).unwrap();
    let fast = fast.to_str().unwrap();
    site.ok(&["tier", "add", "fast", "--dir", fast, "--size", "16 MiB"]);
    site.ok(&["tier", "add", "remote", "--nbd", &uri]);
    site.ok(&[
        "volume", "create", "mine", "--size", "8 MiB", "--tier", "fast",
    ]);
    site.ok(&[
        "volume", "create", "other", "--size", "8 MiB", "--tier", "remote",
    ]);
    site.serve(&["--workers", "1"]);
    let connect = |name: &str| datapath::Client::connect(&site.uri(name).parse().unwrap()).unwrap();
    let (mut mine, mut other) = (connect("mine"), connect("other"));
    mine.write(0, &[0x5a; 65536]).unwrap();
    other.write(0, &[1; 4096]).unwrap();
    for _ in 0..20 {
        mine.read(0, 65536).unwrap();
        assert!(
            other.read(0, 4096).is_err(),
            "a partial answer passed for a whole one"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn volume_with_queued_guest_requests_can_be_deleted() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    let uri: nbd::Uri = site.uri("db").parse().unwrap();
    let mut client = datapath::Client::connect(&uri).unwrap();
    client.write(0, &[1; 4096]).unwrap();
    site.ok(&["volume", "set", "db", "--iops", "5"]);
    let busy = std::thread::spawn(move || while client.write(0, &[1; 4096]).is_ok() {});
    wait_for("a request waits", || site.outstanding("db") > 0);
    site.ok(&["volume", "delete", "db", "--force"]);
    busy.join().unwrap();
    assert_eq!(
        site.json(&["volume", "list"])["volumes"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}
