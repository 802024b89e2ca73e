//! Tests of the host against a small API on a unix socket: one VM, two storages, one task.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use client::{Address, Client, TlsTrust};
use manager::agent::{AgentAction, MoveEnd, Snapshot, VolumeSnapshot};
use manager::wire::{MoveOrder, Throttle};
use model::{ClassObjective, Objective, SloStatistic};
use serde_json::{Value, json};
use units::Nanos;

use super::api::Api;
use super::host::Proxmox;
use crate::host::Host;
use crate::{MachinesSettings, MoveSettings, TierOf};

const VOLUME: &str = "web-100:scsi0";
const OPTIONS: &str = "cache=writeback,iothread=1,size=1G";
const TASK: &str = "UPID:pve1:0001:0002:0003:qmmove:100:t@pve!a:";

/// State of the cluster.
struct State {
    drive: String,
    unused: Option<String>,
    /// Creation time of the volume `fast:vm-100-disk-0`, as its storage reports it.
    ctime: Option<u64>,
    digest: u32,
    /// True once a move was started.
    started: bool,
    /// Exit status of the task; `None` while it runs.
    task: Option<String>,
    log: Vec<String>,
    /// Copied share in percent. Each request for the log adds one line.
    copied: Option<u32>,
    /// Status and text of the response to the next change.
    refuse: Option<(u16, &'static str)>,
    /// Changes, as method, last part of the path and form.
    changes: Vec<(String, String, BTreeMap<String, String>)>,
    /// Total time of reads, which grows by one read at each look.
    read_ns: u64,
    reads: u64,
}

#[derive(Clone)]
struct Cluster(Arc<Mutex<State>>);

impl Cluster {
    fn start(dir: &Path) -> Self {
        let cluster = Self(Arc::new(Mutex::new(State {
            drive: format!("fast:vm-100-disk-0,{OPTIONS}"),
            unused: None,
            ctime: Some(1000),
            digest: 1,
            started: false,
            task: None,
            log: vec![],
            copied: None,
            refuse: None,
            changes: vec![],
            read_ns: 0,
            reads: 0,
        })));
        let listener = UnixListener::bind(dir.join("api.sock")).unwrap();
        let served = cluster.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let served = served.clone();
                std::thread::spawn(move || served.serve(connection.unwrap()));
            }
        });
        cluster
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn serve(&self, mut connection: UnixStream) -> Option<()> {
        let mut reader = BufReader::new(connection.try_clone().ok()?);
        loop {
            let mut lines = vec![];
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                match line.trim() {
                    "" => break,
                    line => lines.push(line.to_owned()),
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            let mut words = lines[0].split(' ');
            let (method, target) = (words.next()?, words.next()?);
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let path = decoded(path);
            let path = path.strip_prefix("/api2/json/").unwrap();
            let form = decoded_form(std::str::from_utf8(&body).unwrap());
            let (status, answer) = self.answer(method, path, query, form);
            let text = answer.to_string();
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n",
                text.len()
            );
            connection.write_all((head + &text).as_bytes()).ok()?;
        }
    }

    fn answer(
        &self,
        method: &str,
        path: &str,
        query: &str,
        form: BTreeMap<String, String>,
    ) -> (u16, Value) {
        let mut s = self.state();
        let last = path.rsplit('/').next().unwrap().to_owned();
        if method != "GET" {
            let digest = form.get("digest").cloned();
            s.changes.push((method.into(), last.clone(), form.clone()));
            let refused = s.refuse.take();
            s.started |= last == "move_disk" && refused.is_none_or(|(status, _)| status > 500);
            if let Some((status, why)) = refused {
                return (
                    status,
                    json!({ "data": null, "message": format!("{why}\n") }),
                );
            }
            if digest.is_some_and(|d| d != s.digest.to_string()) {
                let why =
                    "detected modified configuration - file changed by other user? Try again.\n";
                return (500, json!({ "data": null, "message": why }));
            }
        }
        let config = "nodes/pve1/qemu/100/config";
        let data = match (method, path) {
            ("GET", "nodes") => json!([{ "node": "pve1", "status": "online" }]),
            ("GET", "cluster/resources") => json!([
                { "type": "qemu", "vmid": 100, "node": "pve1", "name": "web", "status": "running" },
            ]),
            ("GET", "nodes/pve1/storage") => {
                let storage = |name: &str| {
                    json!({ "storage": name, "type": "lvmthin", "content": "images", "active": 1,
                        "enabled": 1, "total": 1u64 << 40, "used": 0, "avail": 1u64 << 40 })
                };
                json!([storage("fast"), storage("slow")])
            }
            ("GET", "nodes/pve1/tasks") => {
                let active = query.contains("source=active");
                match s.started && !(active && s.task.is_some()) {
                    true => {
                        let end = s.task.as_ref().map(|_| 2000);
                        json!([{ "upid": TASK, "type": "qmmove", "id": "100", "node": "pve1", "endtime": end }])
                    }
                    false => json!([]),
                }
            }
            ("GET", "nodes/pve1/storage/fast/content") => json!([{
                "volid": "fast:vm-100-disk-0", "format": "raw", "size": 1 << 30, "ctime": s.ctime,
            }]),
            ("GET", "nodes/pve1/qemu/100/status/current") => {
                s.reads += 1;
                json!({ "status": "running", "pid": 7, "running-qemu": "10.0.13", "ha": { "managed": 0 },
                    "blockstat": { "scsi0": {
                        "rd_operations": s.reads, "rd_bytes": 0, "rd_total_time_ns": s.reads * s.read_ns,
                        "wr_operations": 0, "wr_bytes": 0, "wr_total_time_ns": 0,
                        "flush_operations": 0, "flush_total_time_ns": 0,
                    } } })
            }
            ("GET", _) if path == config => {
                let mut config = json!({ "digest": s.digest.to_string(), "scsi0": s.drive });
                if let Some(unused) = &s.unused {
                    config["unused0"] = unused.as_str().into();
                }
                config
            }
            ("GET", "nodes/pve1/qemu/100/snapshot") => json!([{ "name": "current" }]),
            ("GET", _) if last == "log" => {
                let line = s.copied.map(progress_line);
                s.log.extend(line);
                let query = decoded_form(query);
                let number = |key: &str| query[key].parse::<usize>().unwrap();
                let lines = s.log.iter().enumerate().skip(number("start"));
                let lines = lines.take(number("limit"));
                lines.map(|(i, t)| json!({ "n": i + 1, "t": t })).collect()
            }
            ("GET", _) if last == "status" => match &s.task {
                None => json!({ "status": "running", "upid": TASK }),
                Some(exit) => json!({ "status": "stopped", "exitstatus": exit, "upid": TASK }),
            },
            ("GET", _) => json!([]),
            ("POST", _) if last == "move_disk" => {
                s.task = None;
                TASK.into()
            }
            ("POST", _) if path == config => {
                assert_eq!(form["delete"], "unused0");
                s.unused = None;
                s.digest += 1;
                "UPID:remove".into()
            }
            ("PUT", _) if path == config => {
                s.drive.clone_from(&form["scsi0"]);
                s.digest += 1;
                Value::Null
            }
            ("DELETE", _) => {
                s.task = Some("interrupted by signal".into());
                Value::Null
            }
            other => panic!("{other:?}"),
        };
        (200, json!({ "data": data }))
    }

    /// Ends the task successfully.
    fn finish(&self) {
        let mut s = self.state();
        s.unused = Some("fast:vm-100-disk-0".into());
        s.drive = format!("slow:vm-100-disk-1,{OPTIONS}");
        s.digest += 1;
        s.task = Some("OK".into());
    }

    fn changed(&self, method: &str, what: &str) -> Vec<BTreeMap<String, String>> {
        let state = self.state();
        let changes = state
            .changes
            .iter()
            .filter(|c| c.0 == method && c.1.contains(what));
        changes.map(|c| c.2.clone()).collect()
    }
}

fn decoded(text: &str) -> String {
    let mut out = vec![];
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
            }
            b => out.push(b),
        }
    }
    String::from_utf8(out).unwrap()
}

fn decoded_form(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|p| !p.is_empty());
    let pairs = pairs.map(|p| p.split_once('=').unwrap());
    pairs.map(|(k, v)| (decoded(k), decoded(v))).collect()
}

fn host(dir: &Path, keep: Duration) -> Proxmox {
    let address = Address::Unix(dir.join("api.sock"));
    let client = Client::new(address, None, TlsTrust::Nothing).unwrap();
    let tiers: Vec<TierOf> = ["fast=fast", "slow=slow"]
        .map(|t| t.parse().unwrap())
        .into();
    let storages = super::tiers_of(&tiers).unwrap();
    let settings = MachinesSettings {
        tiers,
        classes: vec![("*".into(), "gold".into())],
        moving: Some(MoveSettings {
            dir: dir.join("moves"),
            keep_source: keep,
        }),
    };
    Proxmox::new(Api::new(client), vec![], storages, settings)
}

fn order() -> AgentAction {
    AgentAction::StartMove(MoveOrder {
        job: 4,
        volume: VOLUME.into(),
        device: "pve1/slow".into(),
        tier: "slow".into(),
        extents: None,
        rate_bytes_per_s: 50 << 20,
    })
}

/// Order for a copy of 1 GiB that takes longer than a minute.
fn slow_order() -> AgentAction {
    let AgentAction::StartMove(order) = order() else {
        unreachable!("it is an order to move");
    };
    AgentAction::StartMove(MoveOrder {
        rate_bytes_per_s: 10 << 20,
        ..order
    })
}

fn disk(snapshot: &Snapshot) -> &VolumeSnapshot {
    let [disk] = &snapshot.volumes[..] else {
        panic!("{:?}", snapshot.volumes);
    };
    disk
}

/// Returns a cluster whose disk has moved, and its host, which keeps old volumes for an hour.
fn moved(dir: &Path) -> (Cluster, Proxmox) {
    let cluster = Cluster::start(dir);
    let mut host = host(dir, Duration::from_secs(3600));
    host.snapshot().unwrap();
    host.carry_out(&order()).unwrap();
    cluster.finish();
    until(&mut host, "not confirmed", |s| disk(s).last_move.is_some());
    (cluster, host)
}

/// Looks repeatedly until a condition holds.
fn until(host: &mut Proxmox, what: &str, mut is_so: impl FnMut(&Snapshot) -> bool) -> Snapshot {
    for _ in 0..600 {
        let snapshot = host.snapshot().unwrap();
        if is_so(&snapshot) {
            return snapshot;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}");
}

fn progress_line(percent: u32) -> String {
    format!("drive-scsi0: transferred 1.0 MiB of 1.0 GiB ({percent}.00%) in 5s")
}

/// Returns a log that takes two looks to read: hours at 30 %, then the switch of QEMU.
fn long_log() -> Vec<String> {
    let mut log = vec![progress_line(30); 10_200];
    log.push("drive-scsi0: Completing block job...".into());
    log
}

fn is_stale_image(snapshot: &Snapshot) -> bool {
    snapshot.problems.iter().any(|p| p.kind == "stale-image")
}

fn records(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir.join("moves")).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|n| n.ends_with(".json")).collect()
}

#[test]
fn move_is_followed_confirmed_and_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut first = host(dir.path(), Duration::ZERO);
    let before = first.snapshot().unwrap();
    let v = disk(&before);
    assert_eq!(
        (v.class.as_str(), &v.bound, v.size_bytes),
        ("gold", &None, 1 << 30)
    );
    first.carry_out(&order()).unwrap();
    let ordered = cluster.changed("POST", "move_disk");
    let expected = [
        ("bwlimit", "51200"),
        ("delete", "0"),
        ("digest", "1"),
        ("disk", "scsi0"),
        ("storage", "slow"),
    ];
    let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(ordered, [BTreeMap::from(expected)]);
    cluster.state().log = vec![progress_line(50)];
    let half = until(&mut first, "no progress", |s| {
        disk(s)
            .moving
            .as_ref()
            .is_some_and(|m| m.copied_bytes == 512 << 20)
    });
    assert_eq!(disk(&half).moving.as_ref().unwrap().device, "pve1/slow");
    assert_eq!(
        first.carry_out(&order()).unwrap_err().why,
        "a disk of its VM is already moving"
    );
    // Another agent continues with the same task.
    drop(first);
    let mut second = host(dir.path(), Duration::ZERO);
    until(&mut second, "not taken over", |s| disk(s).moving.is_some());
    cluster.finish();
    let end = until(&mut second, "not confirmed", |s| {
        disk(s).last_move.is_some()
    });
    let done = MoveEnd::Done {
        copied_bytes: 1 << 30,
    };
    assert_eq!(disk(&end).last_move, Some(done));
    assert_eq!(disk(&end).home, "slow");
    until(&mut second, "the old volume is not removed", |_| {
        records(dir.path()).is_empty()
    });
    let removed = cluster.changed("POST", "config");
    assert_eq!(removed.len(), 1);
    assert_eq!(
        (&*removed[0]["delete"], &*removed[0]["digest"]),
        ("unused0", "2")
    );
    assert_eq!(cluster.changed("POST", "move_disk").len(), 1);
}

#[test]
fn old_volume_is_retained_for_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, mut host) = moved(dir.path());
    host.snapshot().unwrap();
    assert!(cluster.changed("POST", "config").is_empty());
    assert_eq!(records(dir.path()).len(), 1);
}

/// An operator removes the old volume early, and a later volume may get its name.
#[test]
fn removed_old_volume_is_forgotten_early() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, mut host) = moved(dir.path());
    assert_eq!(records(dir.path()).len(), 1);
    cluster.state().unused = None;
    until(&mut host, "not forgotten", |_| {
        records(dir.path()).is_empty()
    });
    assert!(cluster.changed("POST", "config").is_empty());
}

/// A volume is removed only if it is the one that the disk has left.
#[test]
fn different_volume_with_the_old_name_is_not_removed() {
    for (at_the_switch, later) in [
        (Some(1000), Some(3000)),
        (None, None),
        (Some(2500), Some(2500)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::start(dir.path());
        let mut host = host(dir.path(), Duration::from_secs(2));
        host.snapshot().unwrap();
        host.carry_out(&order()).unwrap();
        cluster.state().ctime = at_the_switch;
        cluster.finish();
        until(&mut host, "not confirmed", |s| disk(s).last_move.is_some());
        cluster.state().ctime = later;
        until(&mut host, "no problem", |s| {
            s.problems.iter().any(|p| p.kind == "file-left-behind")
        });
        assert!(cluster.changed("POST", "config").is_empty());
        cluster.state().unused = None;
        until(&mut host, "not forgotten", |s| {
            s.problems.is_empty() && records(dir.path()).is_empty()
        });
    }
}

#[test]
fn refused_move_leaves_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut host = host(dir.path(), Duration::ZERO);
    host.snapshot().unwrap();
    cluster.state().refuse = Some((500, "VM is locked (snapshot)"));
    let why = host.carry_out(&order()).unwrap_err().why;
    assert_eq!(why, "Proxmox VE refuses the move: VM is locked (snapshot)");
    assert!(records(dir.path()).is_empty());
    // The node has carried out the order, and its response was lost: the agent finds the task.
    cluster.state().refuse = Some((597, "broken pipe"));
    host.carry_out(&order()).unwrap();
    until(&mut host, "the task is not found", |s| {
        disk(s).moving.is_some()
    });
    cluster.finish();
    until(&mut host, "not confirmed", |s| disk(s).last_move.is_some());
}

#[test]
fn cancelled_move_stops_its_task() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut host = host(dir.path(), Duration::ZERO);
    host.snapshot().unwrap();
    host.carry_out(&slow_order()).unwrap();
    cluster.state().copied = Some(10);
    let volume = VOLUME.to_owned();
    host.carry_out(&AgentAction::CancelMove { volume }).unwrap();
    // One look is not enough to determine the rate of the copy.
    host.snapshot().unwrap();
    assert!(cluster.changed("DELETE", "UPID").is_empty());
    let end = until(&mut host, "not stopped", |s| disk(s).last_move.is_some());
    assert!(
        matches!(&disk(&end).last_move, Some(MoveEnd::Stopped { why, .. }) if why == "cancelled")
    );
    assert_eq!(cluster.changed("DELETE", "UPID").len(), 1);
    assert_eq!(disk(&end).home, "fast");
}

#[test]
fn task_with_unread_log_is_not_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut first = host(dir.path(), Duration::ZERO);
    first.snapshot().unwrap();
    cluster.state().log = vec![progress_line(95)];
    first.carry_out(&order()).unwrap();
    let volume = VOLUME.to_owned();
    first
        .carry_out(&AgentAction::CancelMove { volume })
        .unwrap();
    drop(first);
    cluster.state().log = long_log();
    let mut second = host(dir.path(), Duration::ZERO);
    second.snapshot().unwrap();
    assert!(cluster.changed("DELETE", "UPID").is_empty());
    // Another program ends the task: according to the log, the guest may be on the new volume.
    std::thread::sleep(Duration::from_secs(3));
    second.snapshot().unwrap();
    assert!(cluster.changed("DELETE", "UPID").is_empty());
    cluster.state().task = Some("interrupted by signal".into());
    until(&mut second, "no problem", is_stale_image);
}

/// The rate does not bound zeroes: a copy that was faster than ordered may be near its end.
#[test]
fn copy_that_skips_zeroes_is_not_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut host = host(dir.path(), Duration::ZERO);
    host.snapshot().unwrap();
    host.carry_out(&slow_order()).unwrap();
    let volume = VOLUME.to_owned();
    host.carry_out(&AgentAction::CancelMove { volume }).unwrap();
    for percent in [0, 6, 12, 18, 24, 30] {
        cluster.state().copied = Some(percent);
        host.snapshot().unwrap();
        std::thread::sleep(Duration::from_millis(2100));
    }
    assert!(cluster.changed("DELETE", "UPID").is_empty());
}

/// The whole log decides whether the guest may be on a volume that was freed.
#[test]
fn switch_that_failed_without_an_agent_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut first = host(dir.path(), Duration::ZERO);
    first.snapshot().unwrap();
    first.carry_out(&order()).unwrap();
    drop(first);
    let mut state = cluster.state();
    state.log = long_log();
    state.task = Some("storage migration failed".into());
    drop(state);
    let mut second = host(dir.path(), Duration::ZERO);
    let end = until(&mut second, "no problem", |s| {
        is_stale_image(s) || disk(s).last_move.is_some()
    });
    assert!(is_stale_image(&end), "{:?}", disk(&end).last_move);
}

/// The rate of a task cannot be changed: the copy is stopped, and the next one is slower.
#[test]
fn copy_that_violates_an_objective_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut host = host(dir.path(), Duration::ZERO);
    let objective = ClassObjective {
        class: "gold".into(),
        objective: Objective {
            latency: Nanos::from_millis(1),
            statistic: SloStatistic::Mean,
        },
    };
    host.promise(&[objective], Nanos::from_secs(3600)).unwrap();
    host.snapshot().unwrap();
    host.carry_out(&slow_order()).unwrap();
    cluster.state().copied = Some(10);
    cluster.state().read_ns = 5_000_000;
    let end = until(&mut host, "not stopped", |s| disk(s).last_move.is_some());
    let why = format!("{:?}", disk(&end).last_move);
    assert!(why.contains("violated its objective"), "{why}");
    cluster.state().read_ns = 0;
    host.carry_out(&order()).unwrap();
    let ordered = cluster.changed("POST", "move_disk");
    assert_eq!(ordered[1]["bwlimit"], "10240");
}

#[test]
fn limits_change_without_other_options_and_are_restored() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let mut first = host(dir.path(), Duration::ZERO);
    first.snapshot().unwrap();
    let throttle = |to| AgentAction::Throttle {
        volume: VOLUME.into(),
        to,
    };
    let to = Throttle {
        iops: Some(500),
        bandwidth_bytes_per_s: None,
        lasting_ns: 3_600_000_000_000,
    };
    first.carry_out(&throttle(Some(to))).unwrap();
    let plain = format!("fast:vm-100-disk-0,{OPTIONS}");
    assert_eq!(cluster.state().drive, format!("{plain},iops=500"));
    let limited = first.snapshot().unwrap();
    assert_eq!(disk(&limited).throttle.as_ref().unwrap().iops, Some(500));
    // The agent is killed: the next one knows the limits to restore.
    drop(first);
    let mut second = host(dir.path(), Duration::ZERO);
    let limited = second.snapshot().unwrap();
    assert!(disk(&limited).throttle.is_some());
    second.carry_out(&throttle(None)).unwrap();
    assert_eq!(cluster.state().drive, plain);
    assert!(records(dir.path()).is_empty());
    // Limits that another program has set stay.
    second.carry_out(&throttle(Some(to))).unwrap();
    let others = format!("{plain},iops=70");
    cluster.state().drive.clone_from(&others);
    second.end();
    assert_eq!(cluster.state().drive, others);
}
