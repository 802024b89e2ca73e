//! The package on a machine: installed, started as its units start it, upgraded while a guest runs, removed, purged.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datapath::Client;

use super::deb;
use super::machine::Machine;
use super::notified::Manager;
use crate::live::{MIB, pattern, wait};
use crate::run::{err, out};
use crate::support::PATIENCE;

/// Builds a package of an earlier version with another default configuration.
fn earlier(of: &Path, dir: &Path, version: &str) {
    let root = dir.join("earlier");
    let raw = Command::new("dpkg-deb")
        .arg("-R")
        .arg(of)
        .arg(&root)
        .status();
    assert!(raw.unwrap().success());
    let change = |file: &str, from: &str, to: &str| {
        let path = root.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file}: {from}");
        fs::write(&path, text.replace(from, to)).unwrap();
    };
    change(
        "DEBIAN/control",
        "Version: 2.0-1",
        &format!("Version: {version}"),
    );
    change(
        "etc/terrace/terrace.toml",
        "window = \"10s\"",
        "window = \"20s\"",
    );
    let built = Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Znone", "--build"])
        .arg(&root)
        .arg(dir.join("earlier.deb"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", err(&built));
}

fn unit_starts(machine: &Machine, unit: &str) -> Vec<String> {
    let path = machine.path(&format!("/usr/lib/systemd/system/{unit}.service"));
    let text = fs::read_to_string(path).unwrap();
    let start = text.lines().find_map(|l| l.strip_prefix("ExecStart="));
    start.unwrap().split(' ').map(Into::into).collect()
}

/// Process of a unit; it ends with the test.
struct Service<'a> {
    child: Child,
    manager: Option<&'a Manager>,
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'a> Service<'a> {
    /// Runs the command of a unit as the unit's user, and waits for its readiness message.
    fn start(machine: &Machine, manager: &'a Manager, unit: &str) -> Self {
        let words = unit_starts(machine, unit);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = [&["sh", "-c", "umask 077; exec \"$@\"", "sh"], &words[..]].concat();
        let mut command = machine.command(&Machine::as_terrace(&words));
        let child = command.env("NOTIFY_SOCKET", "/run/notify").spawn().unwrap();
        let service = Self {
            child,
            manager: Some(manager),
        };
        let ready = manager.hears_until("READY=1");
        if ready.last().unwrap().contains("the controller is starting") {
            manager.hears_until("STATUS=serving");
        }
        service
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the path of the program that the process runs, as seen on the machine.
    fn program(&self) -> String {
        let exe = fs::read_link(format!("/proc/{}/exe", self.pid())).unwrap();
        let exe = exe.display().to_string();
        let from = exe.find("/usr/").unwrap_or_default();
        exe[from..].to_owned()
    }

    fn stop(mut self) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.unwrap().success());
        let manager = self.manager.expect("somebody hears it");
        manager.hears_until("STOPPING=1");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Guest that writes and verifies its earlier writes until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

const GUEST_MIB: u64 = 16;

/// Returns the guest's data at a place after this number of rounds.
fn written(at: u64, round: u64) -> Vec<u8> {
    pattern((at ^ round) as u8, MIB as usize)
}

impl Load {
    fn on(mut client: Client) -> Self {
        let (stop, rounds) = (
            Arc::new(AtomicBool::new(false)),
            Arc::<AtomicU64>::default(),
        );
        let (stopped, done) = (stop.clone(), rounds.clone());
        let thread = std::thread::spawn(move || {
            for round in 0.. {
                for at in 0..GUEST_MIB {
                    if round > 0 {
                        let read = client
                            .read(at * MIB, MIB as u32)
                            .expect("a guest sees no error");
                        assert!(read == written(at, round - 1), "MiB {at} in round {round}");
                    }
                    client
                        .write(at * MIB, &written(at, round))
                        .expect("a guest sees no error");
                }
                client.flush().expect("a guest sees no error");
                done.store(round + 1, Ordering::Release);
                if stopped.load(Ordering::Acquire) {
                    return client.disconnect().unwrap();
                }
            }
        });
        Self {
            stop,
            rounds,
            thread,
        }
    }

    /// Waits until the guest has completed two more rounds without an error.
    fn goes_on(&self) {
        let before = self.rounds.load(Ordering::Acquire);
        wait(PATIENCE, "more of the guest's requests", || {
            assert!(!self.thread.is_finished(), "the guest has ended");
            (self.rounds.load(Ordering::Acquire) >= before + 2).then_some(())
        });
    }

    /// Stops the guest; returns the number of its rounds.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap();
        self.rounds.load(Ordering::Acquire)
    }
}

fn connect(machine: &Machine) -> Client {
    let socket = machine.path("/run/terrace/nbd.sock");
    let uri = format!("nbd+unix:///data?socket={}", socket.display());
    Client::connect(&uri.parse().unwrap()).unwrap()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", out(output), err(output));
    out(output)
}

#[test]
fn package_is_installed_started_upgraded_with_guests_and_purged() {
    if !testkit::needs::programs(&deb::BUILD) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(machine) = Machine::start() else {
        return;
    };
    let installed = machine.try_run(&["dpkg", "-s", "terrace"]);
    assert!(
        !installed.status.success(),
        "this machine has the package already"
    );
    let package = deb::build(dir.path(), &["2.0-1"]);
    earlier(&package, dir.path(), "1.9-1");
    fs::copy(&package, machine.path("/tmp/new.deb")).unwrap();
    fs::copy(dir.path().join("earlier.deb"), machine.path("/tmp/old.deb")).unwrap();
    let state = || {
        let said = machine.try_run(&[
            "dpkg-query",
            "-W",
            "-f",
            "${db:Status-Abbrev}${Version}",
            "terrace",
        ]);
        out(&said)
    };

    // Installation creates the user and its directories, and starts nothing.
    let said = succeeded(&machine.dpkg(&["-i", "/tmp/old.deb"]));
    assert!(said.contains("terrace: no unit is started."), "{said}");
    assert_eq!(state(), "ii 1.9-1");
    assert_eq!(machine.stat("/etc/terrace"), "root:terrace 750");
    assert_eq!(machine.stat("/etc/terrace/terrace.toml"), "root:root 644");
    assert_eq!(machine.stat("/var/lib/terrace"), "terrace:terrace 700");
    let user = machine.run(&["getent", "passwd", "terrace"]);
    assert!(
        user.trim_end()
            .ends_with(":/var/lib/terrace:/usr/sbin/nologin"),
        "{user}"
    );
    let running = Command::new("pgrep")
        .args(["-u", user.split(':').nth(2).unwrap()])
        .output();
    assert_eq!(running.map(|o| out(&o)).unwrap_or_default(), "");
    machine.run(&["terrace", "config", "check", "/etc/terrace/terrace.toml"]);

    // An administrator configures the installation.
    let configuration = machine.path("/etc/terrace/terrace.toml");
    let changed = fs::read_to_string(&configuration).unwrap() + "# ours\n";
    fs::write(&configuration, &changed).unwrap();
    let terrace = |words: &[&str]| {
        let words = [&["terrace"], words, &["--array", "/var/lib/terrace/array"]].concat();
        machine.run(&Machine::as_terrace(&words))
    };
    for tier in ["nvme", "sata"] {
        let place = format!("/var/lib/terrace/{tier}");
        machine.run(&Machine::as_terrace(&["mkdir", &place]));
        terrace(&["tier", "add", tier, "--dir", &place, "--size", "64M"]);
    }
    terrace(&[
        "volume", "create", "data", "--size", "32M", "--tier", "nvme",
    ]);
    machine.run(&[
        "install",
        "-d",
        "-o",
        "terrace",
        "-g",
        "terrace",
        "-m",
        "750",
        "/run/terrace",
    ]);
    let manager = Manager::at(&machine.path("/run/notify"));
    machine.run(&["chmod", "666", "/run/notify"]);

    // The complete manager runs with the packaged configuration; then the export unit runs alone, with a guest.
    let service = Service::start(&machine, &manager, "terrace");
    let status = machine.run(&["terrace", "status"]);
    assert!(status.contains("strategy terrace"), "{status}");
    assert_eq!(connect(&machine).size(), 32 * MIB);
    service.stop();
    let service = Service::start(&machine, &manager, "terrace-export");
    assert_eq!(service.program(), "/usr/bin/terrace");
    let load = Load::on(connect(&machine));
    load.goes_on();

    // Upgrade: the guest continues with the old program, dpkg's output names the process, and changed files are kept.
    let said = succeeded(&machine.dpkg(&["-i", "/tmp/new.deb"]));
    assert_eq!(state(), "ii 2.0-1");
    let outdated = format!(
        "terrace:   {} /usr/bin/terrace volume export ",
        service.pid()
    );
    for words in [
        "upgraded from 1.9-1",
        &outdated,
        "restart them at a convenient time",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    load.goes_on();
    assert_eq!(service.program(), "/usr/bin/terrace (deleted)");
    assert_eq!(fs::read_to_string(&configuration).unwrap(), changed);
    let new = fs::read_to_string(machine.path("/etc/terrace/terrace.toml.dpkg-dist")).unwrap();
    assert_eq!(new, super::read("packaging/terrace.toml"));
    assert_eq!(machine.stat("/etc/terrace"), "root:terrace 750");
    // A second installation names the process again; a removal is refused.
    let said = succeeded(&machine.dpkg(&["-i", "/tmp/new.deb"]));
    assert!(said.contains(&outdated), "{said}");
    let refused = machine.dpkg(&["--remove", "terrace"]);
    assert!(!refused.status.success());
    let said = err(&refused);
    assert!(
        said.contains("terrace: not removed, because these processes serve guests:"),
        "{said}"
    );
    assert!(said.contains(&outdated), "{said}");
    // dpkg's state: removal wanted, but still installed.
    assert_eq!(state(), "ri 2.0-1");
    assert!(machine.path("/usr/bin/terrace").exists());
    load.goes_on();

    // The administrator restarts the unit at a convenient time.
    let rounds = load.end();
    service.stop();
    let service = Service::start(&machine, &manager, "terrace-export");
    assert_eq!(service.program(), "/usr/bin/terrace");
    let mut client = connect(&machine);
    for at in 0..GUEST_MIB {
        let read = client.read(at * MIB, MIB as u32).unwrap();
        assert!(read == written(at, rounds - 1), "MiB {at}");
    }
    drop(client);
    service.stop();
    let said = succeeded(&machine.dpkg(&["-i", "/tmp/new.deb"]));
    assert!(
        !said.contains("continue with the old program"),
        "nobody does: {said}"
    );

    // Removal keeps the configuration. Purge keeps the data of guests and its owner.
    succeeded(&machine.dpkg(&["--remove", "terrace"]));
    assert_eq!(state(), "rc 2.0-1");
    assert!(!machine.path("/usr/bin/terrace").exists());
    assert_eq!(fs::read_to_string(&configuration).unwrap(), changed);
    let said = succeeded(&machine.dpkg(&["--purge", "terrace"]));
    assert!(said.contains("terrace: /var/lib/terrace is kept"), "{said}");
    for gone in [
        "/etc/terrace",
        "/etc/default/terrace",
        "/etc/needrestart/conf.d/terrace.conf",
    ] {
        assert!(!machine.path(gone).exists(), "{gone}");
    }
    assert_eq!(machine.stat("/var/lib/terrace"), "terrace:terrace 700");
    let map = machine.path("/var/lib/terrace/array/map.redb");
    assert!(map.exists() || fs::read_dir(map.parent().unwrap()).unwrap().count() > 0);

    // After a new installation the program serves the existing data.
    succeeded(&machine.dpkg(&["-i", "/tmp/new.deb"]));
    let service = Service::start(&machine, &manager, "terrace-export");
    let read = connect(&machine).read(0, MIB as u32).unwrap();
    assert!(read == written(0, rounds - 1));
    service.stop();

    // Without data, a purge removes everything.
    machine.run(&["sh", "-c", "rm -r /var/lib/terrace/*"]);
    let said = succeeded(&machine.dpkg(&["--purge", "terrace"]));
    assert!(!said.contains("is kept"), "{said}");
    assert!(!machine.path("/var/lib/terrace").exists());
    for database in ["passwd", "group"] {
        let there = machine.try_run(&["getent", database, "terrace"]);
        assert!(!there.status.success(), "{database}");
    }
}

/// Replacement for systemctl that records its arguments and reports only the export unit as active.
const SYSTEMCTL: &str = "#!/bin/sh
echo \"$*\" >> /tmp/systemctl-calls
case \"$*\" in
  'is-active --quiet terrace-export.service') ;;
  is-active*) exit 3 ;;
esac
";

#[test]
fn package_upgrade_restarts_services_only_on_request() {
    if !testkit::needs::programs(&deb::BUILD) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(machine) = Machine::start() else {
        return;
    };
    let package = deb::build(dir.path(), &["2.0-1"]);
    fs::copy(&package, machine.path("/tmp/new.deb")).unwrap();
    fs::write(machine.path("/usr/local/bin/systemctl"), SYSTEMCTL).unwrap();
    machine.run(&["chmod", "755", "/usr/local/bin/systemctl"]);
    machine.run(&["mkdir", "-p", "/run/systemd/system"]);
    // Runs dpkg; returns its output and the calls of systemctl.
    let dpkg = |words: &[&str]| {
        fs::write(machine.path("/tmp/systemctl-calls"), "").unwrap();
        let said = succeeded(&machine.dpkg(words));
        (
            said,
            fs::read_to_string(machine.path("/tmp/systemctl-calls")).unwrap(),
        )
    };
    let install = ["-i", "/tmp/new.deb"];
    assert_eq!(dpkg(&install).1, "daemon-reload\n");

    // An agent that waits for its controller runs during the upgrade.
    let agent = [
        "terrace",
        "agent",
        "--host",
        "alpha",
        "--controller",
        "unix:/tmp/none",
    ];
    let agent = Service {
        child: machine.command(&agent).spawn().unwrap(),
        manager: None,
    };
    wait(PATIENCE, "an agent", || {
        (agent.program() == "/usr/bin/terrace").then_some(())
    });
    let (said, systemctl) = dpkg(&install);
    let asked = "daemon-reload\nis-active --quiet terrace.service\nis-active --quiet terrace-export.service\nis-active --quiet terrace-agent.service\nis-active --quiet terrace-cache-node.service\n";
    assert_eq!(systemctl, asked, "{said}");
    assert!(
        said.contains("\nterrace:   systemctl restart terrace-export.service\n"),
        "{said}"
    );
    assert!(!said.contains("restart terrace.service"), "{said}");
    drop(agent);

    let default = machine.path("/etc/default/terrace");
    let text = fs::read_to_string(&default).unwrap();
    fs::write(&default, text.replace("UPGRADE=no", "UPGRADE=yes")).unwrap();
    assert_eq!(
        dpkg(&install).1,
        "daemon-reload\ntry-restart terrace-export.service terrace.service terrace-agent.service terrace-cache-node.service\n"
    );

    let wants = machine.path("/etc/systemd/system/multi-user.target.wants/terrace.service");
    fs::create_dir_all(wants.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/usr/lib/systemd/system/terrace.service", &wants).unwrap();
    let stop = "stop terrace-agent.service terrace.service terrace-export.service terrace-cache-node.service\n";
    assert_eq!(
        dpkg(&["--remove", "terrace"]).1,
        format!("{stop}daemon-reload\n")
    );
    assert!(wants.symlink_metadata().is_ok(), "it may come back");
    assert_eq!(dpkg(&["--purge", "terrace"]).1, "daemon-reload\n");
    assert!(wants.symlink_metadata().is_err());
}
