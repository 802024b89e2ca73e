//! Messages of real servers to a service manager, and their times.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use datapath::Client;

use crate::live::{Bench, MIB, wait};
use crate::support::PATIENCE;

/// Socket of a service manager, which receives the messages.
pub struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    pub fn at(path: &Path) -> Self {
        Self::of(UnixDatagram::bind(path).unwrap())
    }

    fn of(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket }
    }

    pub fn hears(&self) -> String {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.recv(&mut bytes) {
                // The kernel does not restart an interrupted `recv` that has a timeout.
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                heard => {
                    let n = heard.expect("a message");
                    return String::from_utf8(bytes[..n].to_vec()).unwrap();
                }
            }
        }
    }

    /// Waits for a message with this beginning; returns it as the last of all messages received meanwhile.
    pub fn hears_until(&self, begin: &str) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        let mut all: Vec<String> = vec![];
        while all.last().is_none_or(|m| !m.starts_with(begin)) {
            assert!(Instant::now() < until, "no {begin}: {all:?}");
            all.push(self.hears());
        }
        all
    }
}

/// Server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(bench: &Bench, args: &[&str], socket: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command
            .current_dir(bench.path())
            .args(args)
            .env_remove("TERRACE_ARRAY")
            .env("NOTIFY_SOCKET", socket)
            .env("WATCHDOG_USEC", "2000000")
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn terminate(&self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.unwrap().success());
    }
}

fn client(bench: &Bench, volume: &str) -> Client {
    let socket = bench.path().join("terrace-array/nbd.sock");
    let uri = format!("nbd+unix:///{volume}?socket={}", socket.display());
    Client::connect(&uri.parse().unwrap()).expect("it is ready")
}

#[test]
fn export_is_ready_when_all_volumes_accept_connections() {
    let bench = Bench::with_volume("8M");
    bench.ok(&["volume", "create", "more", "--size", "4M", "--tier", "slow"]);
    let name = format!("terrace-test-{}-export", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Manager::of(UnixDatagram::bind_addr(&address).unwrap());
    let server = Server::start(&bench, &["volume", "export"], &format!("@{name}"));
    let heard = manager.hears_until("READY=1");
    assert_eq!(client(&bench, "data").size(), 8 * MIB);
    assert_eq!(client(&bench, "more").size(), 4 * MIB);
    assert_eq!(heard[0], "STATUS=opening the array");
    let socket = bench.path().join("terrace-array/nbd.sock");
    let status = format!("STATUS=serving 2 volumes at unix:{}", socket.display());
    assert_eq!(heard[1].split_once('\n').unwrap().1, status);

    manager.hears_until("WATCHDOG=1");
    manager.hears_until("WATCHDOG=1");
    server.terminate();
    manager.hears_until("STOPPING=1");
}

/// If the server cannot listen for guests, it ends before it is ready.
#[test]
fn export_that_cannot_listen_is_never_ready() {
    let bench = Bench::with_volume("8M");
    let manager = Manager::at(&bench.path().join("notify"));
    let args = ["volume", "export", "--listen", "unix:none/socket"];
    let mut server = Server::start(&bench, &args, &notify(&bench));
    assert!(!server.0.wait().unwrap().success());
    manager.socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    let mut heard = 0;
    while let Ok(n) = manager.socket.recv(&mut bytes) {
        assert!(!bytes[..n].starts_with(b"READY="));
        heard += 1;
    }
    assert!(heard > 0);
}

/// If the server cannot listen for operators, only the controller fails, and the status names the address.
#[test]
fn controller_that_cannot_listen_leaves_volumes_served() {
    let bench = Bench::with_volume("8M");
    let live = "strategy = \"noop\"\n[controller]\nsocket = \"none/socket\"\n[array]\ndir = \"terrace-array\"\n";
    std::fs::write(bench.path().join("live.toml"), live).unwrap();
    let manager = Manager::at(&bench.path().join("notify"));
    let server = Server::start(&bench, &["serve", "--config", "live.toml"], &notify(&bench));
    manager.hears_until("READY=1");
    assert_eq!(client(&bench, "data").size(), 8 * MIB);
    wait(PATIENCE, "a problem that names the socket", || {
        let status = bench.ok(&["array", "status"]);
        status.contains("none/socket").then_some(())
    });
    server.terminate();
    manager.hears_until("STOPPING=1");
}

fn notify(bench: &Bench) -> String {
    bench.path().join("notify").display().to_string()
}

#[test]
fn live_server_is_ready_before_its_controller_listens() {
    let bench = Bench::with_volume("8M");
    let live = "strategy = \"noop\"\nwindow = \"1s\"\n[array]\ndir = \"terrace-array\"\n";
    std::fs::write(bench.path().join("live.toml"), live).unwrap();
    let manager = Manager::at(&bench.path().join("notify"));
    let args = ["serve", "--config", "live.toml"];
    let server = Server::start(&bench, &args, &notify(&bench));
    manager.hears_until("READY=1");
    assert_eq!(client(&bench, "data").size(), 8 * MIB);
    let heard = manager.hears_until("STATUS=serving 1 volume; controller");
    let status = heard.last().unwrap();
    let address = status
        .strip_prefix("STATUS=serving 1 volume; controller at ")
        .unwrap_or_else(|| panic!("{status}"));
    bench.ok(&["status", "--controller", address]);
    manager.hears_until("WATCHDOG=1");
    server.terminate();
    manager.hears_until("STOPPING=1");
}

#[test]
fn agent_is_ready_before_it_reports_and_states_the_reason() {
    let bench = Bench::new();
    let manager = Manager::at(&bench.path().join("notify"));
    let args = ["agent", "--host", "alpha", "--controller", "unix:none.sock"];
    let server = Server::start(&bench, &args, &notify(&bench));
    let heard = manager.hears_until("READY=1");
    assert!(heard[0].contains("\nSTATUS=not reporting: "), "{heard:?}");
    server.terminate();
    manager.hears_until("STOPPING=1");
}

/// A missing or unreachable service manager does not keep the server from serving.
#[test]
fn unreachable_service_manager_does_not_stop_the_server() {
    let bench = Bench::with_volume("8M");
    for socket in ["none", "@terrace-nobody", "vsock:2:1"] {
        let _server = Server::start(&bench, &["volume", "export"], socket);
        bench.until("served", |v| v["exported"] == true);
    }
}
