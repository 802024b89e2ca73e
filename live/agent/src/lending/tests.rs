use std::net::{IpAddr, TcpListener};

use super::flash::{self, LOOK};
use super::*;

/// Announces an address and ends with its input, as a cache node does.
const GOOD: &str = r#"echo '{"schema":"terrace.export/1","export":"","uri":"nbds://192.0.2.7:10810/"}'; cat >/dev/null"#;

struct Bench {
    donor: Donor,
    _dir: tempfile::TempDir,
}

/// Donor whose cache nodes run this shell script.
fn bench(script: &str) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("node");
    // Another process writes the script. If this process wrote it, a child of a concurrent test could have the file
    // open for writing, and then it cannot be executed.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", write, "sh"]).arg(&program).arg(script);
    assert!(shell.status().unwrap().success());
    let mut donor = Donor::new(LendSettings {
        memory: Bytes::mib(64),
        flash: None,
        listen: LendListen::Unix(dir.path().join("sockets").to_str().unwrap().into()),
        tls_certificates: None,
        client_certificates: Some("/etc/terrace/tls".into()),
        program,
    });
    donor.times = Times {
        begins: Duration::from_secs(120),
        ends: Duration::from_millis(200),
    };
    Bench { donor, _dir: dir }
}

impl Bench {
    fn start(&mut self, id: u64) {
        self.start_of(id, NodeStore::Memory);
    }

    fn start_of(&mut self, id: u64, store: NodeStore) {
        let bytes = Bytes::mib(1).0;
        let order = NodeOrder { id, bytes, store };
        self.donor.carry_out(LendAction::Start(order));
    }

    fn state(&mut self, id: u64) -> Option<NodeState> {
        let there = self.donor.look().nodes;
        there.into_iter().find(|n| n.id == id).map(|n| n.state)
    }

    /// Looks repeatedly until the state fulfils a condition.
    fn until(&mut self, id: u64, is: impl Fn(Option<&NodeState>) -> bool) -> Option<NodeState> {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let state = self.state(id);
            if is(state.as_ref()) {
                return state;
            }
            assert!(Instant::now() < until, "{state:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn until_failed(&mut self, id: u64) -> String {
        let failed = |s: Option<&NodeState>| matches!(s, Some(NodeState::Failed { .. }));
        match self.until(id, failed) {
            Some(NodeState::Failed { why }) => why,
            other => panic!("{other:?}"),
        }
    }

    fn pid(&self, id: u64) -> u32 {
        self.donor.nodes[&id].process.as_ref().unwrap().child.id()
    }
}

fn is_ready(state: Option<&NodeState>) -> bool {
    matches!(state, Some(NodeState::Ready { .. }))
}

#[test]
fn cache_node_is_started_reports_its_address_and_ends_on_order() {
    let mut bench = bench(GOOD);
    // The process ends by itself before the kill.
    bench.donor.times.ends = Duration::from_secs(120);
    bench.start(5);
    let ready = bench.until(5, is_ready);
    // The URI has the certificates of the hosts that use the process.
    let at = "nbds://192.0.2.7:10810/?tls-certificates=/etc/terrace/tls".into();
    assert_eq!(ready, Some(NodeState::Ready { at }));
    let pid = bench.pid(5);
    bench.donor.carry_out(LendAction::End { id: 5 });
    assert_eq!(bench.until(5, |s| s.is_none()), None);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(bench.donor.warnings().is_empty());
}

#[test]
fn unusable_flash_is_reported_once_and_checked_again() {
    let mut bench = bench(GOOD);
    let dir = bench._dir.path().join("flash");
    bench.donor.settings.flash = Some((Bytes::mib(2), dir.clone()));
    for _ in 0..3 {
        assert_eq!(bench.donor.look().flash_bytes, 0);
    }
    let said = bench.donor.warnings();
    assert!(
        said.len() == 1 && said[0].contains("cannot create a file in"),
        "{said:?}"
    );
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(bench.donor.look().flash_bytes, 0, "not yet");
    bench.donor.flash.looked = Some(Instant::now() - LOOK);
    assert_eq!(bench.donor.look().flash_bytes, Bytes::mib(2).0);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let why = flash::check(&dir, Bytes(1 << 60)).unwrap_err().to_string();
    assert!(why.contains("is on a file system of"), "{why}");
}

/// The process prints its arguments as its last error output, which becomes the reason of the failure.
#[test]
fn cache_node_options_follow_the_store() {
    let mut bench = bench(r#"echo "$*" >&2; exit 1"#);
    bench.donor.settings.flash = Some((Bytes::mib(256), "/mnt/flash".into()));
    for (store, asked) in [
        (NodeStore::Memory, "cache-node --memory 1 MiB --listen"),
        (
            NodeStore::Flash,
            "cache-node --flash /mnt/flash --size 1 MiB --listen",
        ),
    ] {
        bench.start_of(5, store);
        let why = bench.until_failed(5);
        assert!(why.contains(asked), "{why}");
        let there = bench.donor.look();
        assert_eq!(there.memory_bytes, 64 << 20);
        assert_eq!(there.nodes[0].store, store);
        bench.donor.carry_out(LendAction::End { id: 5 });
    }
    bench.donor.settings.flash = None;
    bench.start_of(5, NodeStore::Flash);
    assert_eq!(bench.until_failed(5), "this host lends no flash");
}

#[test]
fn killed_cache_node_is_failed_until_it_is_no_longer_ordered() {
    let mut bench = bench(GOOD);
    bench.start(5);
    bench.until(5, is_ready);
    let process = bench.donor.nodes.get_mut(&5).unwrap().process.as_mut();
    process.unwrap().child.kill().unwrap();
    let why = bench.until_failed(5);
    assert!(why.contains("signal: 9"), "{why}");
    assert_eq!(bench.donor.warnings().len(), 1);
    // The agent does not restart it by itself.
    bench.start(5);
    assert!(matches!(bench.state(5), Some(NodeState::Failed { .. })));
    bench.donor.carry_out(LendAction::End { id: 5 });
    assert_eq!(bench.state(5), None);
}

#[test]
fn cache_node_that_cannot_start_reports_its_error() {
    let mut bench = bench("echo 'there is no memory' >&2; exit 3");
    bench.start(5);
    let why = bench.until_failed(5);
    assert!(why.contains("exit status: 3"), "{why}");
    assert!(why.contains("there is no memory"), "{why}");
    bench.donor.settings.program = "/nonexistent/terrace".into();
    bench.start(6);
    let why = bench.until_failed(6);
    assert!(why.contains("cannot start /nonexistent/terrace"), "{why}");
}

#[test]
fn cache_node_that_hangs_or_reports_a_wrong_address_is_killed() {
    let mut silent = bench("exec sleep 1000");
    silent.donor.times.begins = Duration::from_millis(100);
    silent.start(5);
    let why = silent.until_failed(5);
    assert!(why.contains("it has not listened within"), "{why}");
    for (said, part) in [
        ("ready", "is not its address"),
        (r#"{"uri":"http://example/"}"#, "unknown scheme"),
        (r#"{"export":""}"#, "is not its address"),
    ] {
        let mut liar = bench(&format!("echo '{said}'; exec sleep 1000"));
        liar.start(5);
        let why = liar.until_failed(5);
        assert!(why.contains(part), "{said}: {why}");
    }
}

#[test]
fn unresponsive_cache_node_is_killed_and_counted_until_then() {
    let script = GOOD.replace("cat >/dev/null", "exec sleep 1000");
    let mut bench = bench(&script);
    bench.start(5);
    bench.until(5, is_ready);
    let pid = bench.pid(5);
    let ends = std::mem::replace(&mut bench.donor.times.ends, Duration::from_secs(120));
    bench.donor.carry_out(LendAction::End { id: 5 });
    assert_eq!(bench.state(5), Some(NodeState::Ending));
    bench.donor.times.ends = ends;
    bench.until(5, |s| s.is_none());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn cache_nodes_end_with_their_donor() {
    let mut bench = bench(GOOD);
    for id in [5, 6, 7] {
        bench.start(id);
        bench.until(id, is_ready);
    }
    let pids = [5, 6, 7].map(|id| bench.pid(id));
    drop(bench);
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn stale_sockets_of_cache_nodes_are_removed_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["7.sock", "other.sock"] {
        drop(std::os::unix::net::UnixListener::bind(path(name)).unwrap());
    }
    let _serving = std::os::unix::net::UnixListener::bind(path("8.sock")).unwrap();
    std::fs::write(path("9"), "").unwrap();
    remove_left_behind(dir.path());
    let there = ["7.sock", "8.sock", "other.sock", "9"].map(|name| path(name).exists());
    assert_eq!(there, [false, true, true, true]);
}

#[test]
fn ports_are_in_the_range_and_free() {
    // A loopback address without another listener.
    let local: IpAddr = "127.93.7.41".parse().unwrap();
    let taken = TcpListener::bind((local, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let why = free_port(local, (port, port), &[]).unwrap_err().to_string();
    assert!(why.contains("is free"), "{why}");
    drop(taken);
    assert_eq!(free_port(local, (port, port), &[]).unwrap(), port);
    assert!(free_port(local, (port, port), &[port]).is_err());
}
