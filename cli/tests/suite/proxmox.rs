//! Disks of a Proxmox VE cluster: the fake cluster of `bench/pve-cluster` with real QEMU processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use client::{Address, Client, TlsTrust, Token};
use serde_json::{Value, json};
use testkit::needs;

use crate::support::machine_host::{MachineHost, end, said};

const PROGRAMS: [&str; 4] = ["python3", "qemu-system-x86_64", "qemu-img", "openssl"];
const VOLUME: &str = "db-100:scsi1";
const MOVES: &str = "state/proxmox-moves";
/// Bytes of a block that a guest writes.
const BLOCK: usize = 64 << 10;
/// Number of blocks of the disk.
const BLOCKS: usize = 512;

struct Cluster {
    host: MachineHost,
    cluster: Option<Child>,
    /// First report of the cluster: its address, CA file and token secret.
    started: Value,
}

impl Cluster {
    fn start() -> Self {
        let host = MachineHost::new(None);
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/pve-cluster/cluster.py");
        let log = fs::File::create(host.path("cluster.log")).unwrap();
        let child = Command::new("python3")
            .arg(program)
            .args(["--directory", &host.text("pve"), "--poll-seconds", "0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn();
        let mut child = child.unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let started = serde_json::from_str(&line).unwrap();
        let cluster = Self {
            host,
            cluster: Some(child),
            started,
        };
        // The tests run with any QEMU. The cluster reports a version whose disks can move.
        cluster.control(&json!({ "do": "reported-qemu", "vmid": 100, "version": "10.0.13" }));
        cluster.configure("", "200 MiB/s");
        cluster
    }

    fn text(&self, key: &str) -> &str {
        self.started[key].as_str().unwrap()
    }

    fn secret(&self) -> String {
        let secret = fs::read_to_string(self.text("token_file")).unwrap();
        format!("{}={}", self.text("token_id"), secret.trim())
    }

    fn configure(&self, keys: &str, copy_bandwidth: &str) {
        let token = self.host.path("token");
        fs::write(&token, self.secret()).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let (address, ca) = (self.text("address"), self.text("ca_file"));
        let trust = match keys.contains("fingerprint") {
            true => String::new(),
            false => format!("ca = \"{ca}\"\n"),
        };
        let table =
            format!("[proxmox]\naddress = \"{address}\"\ntoken = \"token\"\n{trust}{keys}\n");
        let tiers = [("fast", "local-lvm", None), ("bulk", "local", None)];
        self.host.configure(&table, copy_bandwidth, &tiers);
    }

    fn control(&self, order: &Value) -> Value {
        let stream = UnixStream::connect(self.text("control")).unwrap();
        writeln!(&stream, "{order}").unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Reads the configuration of VM 100 from the cluster, without Terrace.
    fn config(&self) -> Value {
        let address: Address = self.text("address").parse().unwrap();
        let token = Token::of_header(&format!("PVEAPIToken={}", self.secret())).unwrap();
        let trust = TlsTrust::CaFile(self.text("ca_file").into());
        let mut client = Client::new(address, Some(token), trust).unwrap();
        let path = ["api2", "json", "nodes", "pve1", "qemu", "100", "config"];
        let answer = client
            .call_form("GET", &path, &[("current", "1")], &[])
            .unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        body["data"].clone()
    }

    fn drive(&self, key: &str) -> String {
        self.config()[key].as_str().unwrap().into()
    }

    fn wait_for_storage(&self, storage: &str) {
        self.host
            .wait_until(&format!("the disk is on {storage}"), || {
                self.drive("scsi1").starts_with(&format!("{storage}:"))
            });
    }

    /// Returns a guest's connection to the disk, which follows its moves. The guest must keep this connection. QEMU 7.2
    /// may accept a new client while a mirror ends, and its NBD server does not make new clients wait: their writes
    /// reach only the source.
    fn guest(&self) -> Guest {
        let uri = self.control(&json!({ "do": "nbd", "vmid": 100, "disk": "scsi1" }));
        let uri = uri["uri"].as_str().unwrap_or_else(|| panic!("{uri}"));
        Guest(datapath::Client::connect(&uri.parse().unwrap()).unwrap())
    }
}

/// Guest that writes blocks of 64 KiB: block `n` has bytes `n + seed`.
struct Guest(datapath::Client);

impl Guest {
    fn block(n: usize, seed: usize) -> Vec<u8> {
        vec![u8::try_from((n + seed) % 255 + 1).unwrap(); BLOCK]
    }

    fn write(&mut self, blocks: Range<usize>, seed: usize) {
        for n in blocks {
            self.0
                .write((n * BLOCK) as u64, &Self::block(n, seed))
                .unwrap();
        }
    }

    fn check(&mut self, blocks: Range<usize>, seed: usize) {
        for n in blocks {
            let found = self.0.read((n * BLOCK) as u64, BLOCK as u32).unwrap();
            assert!(found == Self::block(n, seed), "block {n} has {}", found[0]);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end(&mut self.host.server, "-9");
        end(&mut self.cluster, "-TERM");
    }
}

/// A disk moves to another storage and back while a guest writes; no write is lost, and no old volume is left.
/// `TERRACE_SEEDS=0..60` makes 60 moves; their number must be even.
#[test]
fn moves_of_a_cluster_preserve_all_writes() {
    if !needs::programs(&PROGRAMS) {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.host.serve();
    let mut guest = cluster.guest();
    guest.write(0..BLOCKS, 0);
    let storages = [("fast", "local-lvm"), ("bulk", "local")];
    let moves = testkit::seeds::run(0..2, |turn| {
        let (tier, storage) = storages[turn as usize % 2];
        cluster.host.pin(VOLUME, tier);
        let seed = 7 * (turn as usize % 30 + 1);
        let mut n = 0;
        while !cluster.drive("scsi1").starts_with(&format!("{storage}:")) {
            guest.write(n..n + 1, seed);
            n = (n + 1) % BLOCKS;
            assert!(
                cluster
                    .host
                    .server
                    .as_mut()
                    .unwrap()
                    .try_wait()
                    .unwrap()
                    .is_none()
            );
        }
        cluster.wait_for_storage(storage);
        guest.check(0..n, seed);
        guest.write(0..BLOCKS, 0);
        cluster.host.wait_until("the old volume is removed", || {
            cluster.config().get("unused0").is_none() && cluster.host.rests(MOVES)
        });
        guest.check(0..BLOCKS, 0);
        Ok(())
    });
    eprintln!("{moves} moves");
    let drive = cluster.drive("scsi1");
    assert!(
        drive.contains("iops=4000") && drive.contains("mbps=200"),
        "{drive}"
    );
}

/// The agent is killed while the task copies; the next agent follows the same task.
#[test]
fn killed_agent_resumes_its_task() {
    if !needs::programs(&PROGRAMS) {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.configure("", "4 MiB/s");
    cluster.host.serve();
    let mut guest = cluster.guest();
    guest.write(0..BLOCKS, 3);
    cluster.host.pin(VOLUME, "fast");
    cluster.host.wait_until("the task runs", || {
        cluster.host.intents(MOVES).contains("UPID:")
    });
    end(&mut cluster.host.server, "-9");
    cluster.host.serve();
    cluster.wait_for_storage("local-lvm");
    cluster.host.wait_until("the old volume is removed", || {
        cluster.config().get("unused0").is_none() && cluster.host.rests(MOVES)
    });
    guest.check(0..BLOCKS, 3);
}

#[test]
fn limits_of_a_cluster_are_restored_at_the_end() {
    if !needs::programs(&PROGRAMS) {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.host.serve();
    let before = cluster.drive("scsi0");
    cluster.host.wait_until("the limit is in force", || {
        let words = [
            "volume",
            "throttle",
            "db-100:scsi0",
            "--iops",
            "500",
            "--for",
            "10m",
        ];
        cluster.host.terrace(&words);
        cluster.drive("scsi0").contains(",iops=500")
    });
    for option in before.split(',') {
        assert!(cluster.drive("scsi0").contains(option), "{option}");
    }
    end(&mut cluster.host.server, "-TERM");
    let options = |drive: &str| {
        let mut all: Vec<String> = drive.split(',').map(str::to_owned).collect();
        all.sort();
        all
    };
    assert_eq!(options(&cluster.drive("scsi0")), options(&before));
}

#[test]
fn check_names_missing_privileges_and_shows_reasons() {
    if !needs::programs(&PROGRAMS) {
        return;
    }
    let mut cluster = Cluster::start();
    let fingerprint = format!("fingerprint = \"{}\"", cluster.text("fingerprint"));
    cluster.configure(&fingerprint, "1 MiB/s");
    let check = || cluster.host.terrace(&["config", "check", "machines.toml"]);
    let text = said(check());
    assert!(text.contains("held: VM.Audit on /vms"), "{text}");
    assert!(text.contains("held: Sys.Audit on /nodes/pve3"), "{text}");
    let path = "/storage/local-lvm";
    cluster.control(&json!({ "do": "deny", "privilege": "Datastore.AllocateSpace", "path": path }));
    let refused = check();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    let missing = format!("missing: Datastore.AllocateSpace on {path}");
    assert!(text.contains(&missing), "{text}");
    cluster.control(&json!({ "do": "clear" }));
    cluster.control(&json!({ "do": "set", "vmid": 100, "key": "lock", "value": "backup" }));
    cluster.host.serve();
    cluster.host.wait_until("the reason is shown", || {
        let why = cluster.host.terrace(&["why", VOLUME]);
        String::from_utf8_lossy(&why.stdout).contains("a backup of its VM is under way")
    });
}

/// Copies by QEMU before 8.0 need a pause of the guest, which Proxmox VE does not offer.
#[test]
fn disk_of_an_old_qemu_is_not_moved() {
    if !needs::programs(&PROGRAMS) {
        return;
    }
    let mut cluster = Cluster::start();
    cluster.control(&json!({ "do": "reported-qemu", "vmid": 100, "version": "7.2.22" }));
    cluster.host.serve();
    cluster.host.wait_until("the reason is shown", || {
        let why = cluster.host.terrace(&["why", VOLUME]);
        String::from_utf8_lossy(&why.stdout).contains("copies by QEMU 7.2.22")
    });
}

/// A configuration needs only a token: the storages become tiers, and nothing is moved.
#[test]
fn init_proposes_storages_as_tiers() {
    if !needs::programs(&PROGRAMS) {
        return;
    }
    let cluster = Cluster::start();
    let (address, ca) = (cluster.text("address"), cluster.text("ca_file"));
    let init = |words: &[&str]| {
        let all = [&["init", address, "--file", "found.toml"], words].concat();
        cluster.host.terrace(&all)
    };
    let refused = |words: &[&str]| String::from_utf8(init(words).stderr).unwrap();
    assert!(refused(&["--ca", ca]).contains("needs an API token"));
    assert!(refused(&["--token", "token"]).contains("--fingerprint"));
    said(init(&["--token", "token", "--ca", ca]));
    let found = fs::read_to_string(cluster.host.path("found.toml")).unwrap();
    for shown in [
        "pools = [\"local-lvm\"]",
        "moves = false",
        "latency = \"recommend\"",
    ] {
        assert!(found.contains(shown), "{shown}: {found}");
    }
    let checked = said(cluster.host.terrace(&["config", "check", "found.toml"]));
    assert!(checked.contains("tiers: 4"), "{checked}");
    assert!(refused(&["--token", "token", "--ca", ca]).contains("already exists"));
}
