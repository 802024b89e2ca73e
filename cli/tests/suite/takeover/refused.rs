//! Reasons to refuse a hand-over: the server continues as before and reports the reason.

use std::time::Duration;

use datapath::Client;
use datapath::control::{CONTROL_SOCKET, VolumeHold};

use super::{Guest, Site, wait};
use crate::support::{signal, wait_for};

/// Starts a take-over that must be refused; returns the messages in the log.
fn is_refused(site: &Site, more: &[&str]) -> String {
    let before = site.log().len();
    let mut new = site.begin_to_take_over(more);
    assert!(!new.wait().unwrap().success(), "{}", site.log());
    site.log()[before..].to_owned()
}

#[test]
fn take_over_with_a_slow_request_is_abandoned() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    site.copies_are_current();
    // The read stays in flight for much longer than a hand-over may take.
    let mut slow = site.command(&["volume", "inject", "db", "--read", "8s", "--for", "10m"]);
    let mut slow = slow.spawn().unwrap();
    wait_for("reads are slow", || {
        site.json(&["volume", "show", "db"])["status"]["injecting"] == true
    });
    let mut reader = Client::connect(&site.uri("db").parse().unwrap()).unwrap();
    let reads = std::thread::spawn(move || {
        reader.read(0, 4096).unwrap();
        reader
    });
    wait_for("a read is in flight", || site.outstanding("db") == 1);
    let before = site.server_pid();
    // On a busy machine a worker may not respond in time, which is another reason.
    let reasons = ["are in flight", "a worker did not answer in time"];
    let said = is_refused(&site, &[]);
    assert!(reasons.iter().any(|why| said.contains(why)), "{said}");
    assert!(
        said.contains("the old server continues to serve it"),
        "{said}"
    );
    signal(slow.id(), "-INT");
    slow.wait().unwrap();
    let mut reader = reads.join().unwrap();
    // A later take-over succeeds, when no request is delayed.
    assert_eq!(site.server_pid(), before);
    site.take_over(&[]);
    reader.read(0, 4096).unwrap();
    reader.disconnect().unwrap();
}

#[test]
fn take_over_during_a_save_is_refused() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    site.copies_are_current();
    let holding = VolumeHold::begin(&site.path("array").join(CONTROL_SOCKET), "db").unwrap();
    let mut new = site.begin_to_take_over(&[]);
    assert!(!new.wait().unwrap().success());
    let why = "volume \"db\" is being saved";
    assert!(site.log().contains(why), "{}", site.log());
    holding.end().unwrap();
    site.take_over(&[]);
}

#[test]
fn take_over_with_a_remote_tier_is_refused() {
    let mut site = Site::empty();
    let (dir, socket) = (site.path("fast"), site.path("other.sock"));
    std::fs::create_dir(&dir).unwrap();
    testkit::export::serve(&socket, 16 << 20);
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let dir = dir.to_str().unwrap();
    site.ok(&["tier", "add", "fast", "--dir", dir, "--size", "16 MiB"]);
    site.ok(&["tier", "add", "remote", "--nbd", &uri]);
    site.ok(&[
        "volume", "create", "db", "--size", "8 MiB", "--tier", "fast",
    ]);
    site.serve(&[]);
    site.copies_are_current();
    let guest = Guest::new(&site.uri("db"), 0, 100, Duration::ZERO);
    wait(100);
    assert!(!site.begin_to_take_over(&[]).wait().unwrap().success());
    let why = "is an export of another server";
    assert!(site.log().contains(why), "{}", site.log());
    guest.end(0);
}

#[test]
fn take_over_with_unsupported_options_is_refused_before_guests_pause() {
    let mut site = Site::new(&[("db", 16), ("web", 16)]);
    site.serve(&[]);
    site.copies_are_current();
    let guest = Guest::new(&site.uri("db"), 0, 100, Duration::ZERO);
    let listens = is_refused(&site, &["--listen", "tcp:127.0.0.1:0"]);
    assert!(
        listens.contains("in a take-over: restart the server"),
        "{listens}"
    );
    let volumes = is_refused(&site, &["web"]);
    let why = "the running server serves volume \"db\", which the new server would not";
    assert!(volumes.contains(why), "{volumes}");
    let twice = format!("unix:{}", site.socket().display());
    let twice = is_refused(&site, &["--listen", &twice]);
    assert!(
        twice.contains("in a take-over: restart the server"),
        "{twice}"
    );
    let rings = site.path("rings");
    let rings = is_refused(&site, &["--vhost-user", rings.to_str().unwrap()]);
    assert!(rings.contains("vhost-user sockets from none to"), "{rings}");
    let unknown = is_refused(&site, &["db", "wbe"]);
    let why = "the running server does not serve volume \"wbe\"";
    assert!(unknown.contains(why), "{unknown}");
    let tls = is_refused(&site, &["--tls-certificates", "nowhere"]);
    assert!(tls.contains("nowhere"), "{tls}");
    let open = is_refused(&site, &["--listen", "tcp:0.0.0.0:0"]);
    assert!(open.contains("not a loopback address"), "{open}");
    // No guest has waited for the refused take-overs.
    let log = site.log();
    assert!(!log.contains("guests were paused"), "{log}");
    site.take_over(&[]);
    guest.end(0);
}

#[test]
fn abandoned_take_over_does_not_affect_guests() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    site.copies_are_current();
    let guest = Guest::new(&site.uri("db"), 0, 100, Duration::ZERO);
    let ask = |format: u32| {
        let mut asks = UnixStream::connect(site.path("array").join(CONTROL_SOCKET)).unwrap();
        writeln!(
            asks,
            "{{\"v\":1,\"ask\":\"take-over\",\"format\":{format}}}"
        )
        .unwrap();
        let mut answer = String::new();
        BufReader::new(&asks).read_line(&mut answer).unwrap();
        (asks, answer)
    };
    let (_, answer) = ask(7);
    assert!(answer.contains("hands over in format 1, not 7"), "{answer}");
    let (mut asks, answer) = ask(1);
    assert!(answer.contains("the array can be taken over"), "{answer}");
    // Sends, in place of a valid start, a length that exceeds the memory.
    asks.write_all(&[b'B', 255, 255, 255, 255, 0, 0, 0, 0])
        .unwrap();
    drop(asks);
    wait_for("that is said", || {
        site.log()
            .contains("the other process did not start the take-over")
    });
    site.take_over(&[]);
    guest.end(0);
}

#[test]
fn take_over_with_throttled_requests_succeeds() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    site.copies_are_current();
    // One of the requests waits for seconds.
    site.ok(&["volume", "set", "db", "--iops", "4"]);
    let guests = [0, 100, 200, 300].map(|n| Guest::new(&site.uri("db"), n, 100, Duration::ZERO));
    wait(2500);
    site.take_over(&[]);
    site.ok(&["volume", "set", "db", "--iops", "0"]);
    for (guest, first) in guests.into_iter().zip([0, 100, 200, 300]) {
        guest.end(first);
    }
}

#[test]
fn take_over_with_a_tier_limit_succeeds() {
    let mut site = Site::new(&[("db", 16)]);
    site.serve(&[]);
    site.copies_are_current();
    site.ok(&["tier", "limit", "fast", "--iops", "100000"]);
    let guest = Guest::new(&site.uri("db"), 0, 100, Duration::ZERO);
    for _ in 0..3 {
        wait(250);
        site.take_over(&[]);
    }
    guest.end(0);
}
