//! Disks of virtual machines that move while their guests check them: real libvirt and real QEMU. Only the processor is
//! emulated.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use algo::Rng;
use testkit::guest::Guest;

use crate::support::kvm::{DiskOf, Kvm, PROGRAMS, URI};
use crate::support::machine_host::{end, format_of, said};
use crate::support::{KillOnDrop, PATIENCE};

const MOVES: &str = "state/libvirt-moves";
pub const GUEST: Guest = Guest {
    requests_per_tick: 20,
    blocks: 512,
};

pub fn configure(host: &Kvm, copy_bandwidth: &str, tiers: &[(&str, &str, Option<&str>)]) {
    let table = format!("[libvirt]\nuri = \"{URI}\"");
    host.configure(&table, copy_bandwidth, tiers);
}

/// Returns a host with two tiers, `here` and `there`, and both directories. A guest runs on `here`; no server runs yet.
pub fn two_tiers(copy_bandwidth: &str, format_there: &str) -> (Kvm, [String; 2]) {
    let mut host = Kvm::new();
    let [here, there] = ["here", "there"].map(|name| host.make_dir(name));
    let web = DiskOf {
        file: "here/web.raw",
        format: "raw",
        driver: "",
    };
    host.define("web", &GUEST, &[web]);
    let tiers = [
        ("here", here.as_str(), Some("raw")),
        ("there", there.as_str(), Some(format_there)),
    ];
    configure(&host, copy_bandwidth, &tiers);
    host.virsh(&["start", "web"]);
    host.wait_for_writes("web", 20);
    (host, [here, there])
}

/// Returns true if the disk's image is below `below`, in the running domain and in its definition for the next start.
pub fn is_on(host: &Kvm, below: &str) -> bool {
    [false, true].iter().all(|inactive| {
        let image = host.image_of("web", "vda", *inactive);
        image.is_some_and(|image| image.starts_with(below))
    })
}

fn is_copied(host: &Kvm) -> bool {
    host.intents(MOVES).contains("\"copying\"")
}

/// Starts an export of a file in place of remote storage; returns its process and its URI.
fn export(host: &Kvm, file: &str, bytes: u64) -> (KillOnDrop, String) {
    let path = host.path(file);
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    host.give();
    let socket = host.path("nbd.sock");
    let mut nbdkit = host.command(Path::new("nbdkit"));
    nbdkit.args(["-f", "--exit-with-parent", "-U"]).arg(&socket);
    nbdkit.arg("file").arg(&path).stderr(Stdio::null());
    let child = KillOnDrop(nbdkit.spawn().unwrap());
    host.wait_until("nbdkit listens", || socket.exists());
    (child, format!("nbd+unix:///?socket={}", socket.display()))
}

/// `TERRACE_SEEDS=0..181` makes 60 moves of each kind, and one more: the last one must end on `bulk`.
#[test]
fn disk_moves_through_all_tiers_without_data_loss() {
    let needed = [&PROGRAMS[..], &["nbdkit"]].concat();
    if !testkit::needs::programs(&needed) {
        return;
    }
    let mut host = Kvm::new();
    let [fast, bulk] = ["fast", "bulk"].map(|name| host.make_dir(name));
    let (_export, far) = export(&host, "far.raw", GUEST.disk_bytes());
    let web = DiskOf {
        file: "fast/web.qcow2",
        format: "qcow2",
        // Both options require a pause of the guest when a copy begins.
        driver: "discard='unmap' iothread='1'",
    };
    host.define("web", &GUEST, &[web]);
    let tiers = [
        ("fast", fast.as_str(), Some("qcow2")),
        ("bulk", &bulk, Some("raw")),
        ("far", &far, None),
    ];
    let table = format!("[libvirt]\nuri = \"{URI}\"\nlatency_histograms = true");
    host.configure(&table, "100MB/s", &tiers);
    host.virsh(&["start", "web"]);
    host.wait_for_writes("web", 50);
    host.serve();
    let images = [
        ("bulk", format!("{bulk}/"), "raw"),
        ("far", far.replace("nbd+unix:///?socket=", ""), "raw"),
        ("fast", format!("{fast}/"), "qcow2"),
    ];
    let moves = testkit::seeds::run(0..10, |n| {
        let (tier, image, _) = &images[n as usize % 3];
        host.pin("web:vda", tier);
        // libvirt reports no name for an export without a name.
        let is_there = |inactive| {
            let now = host.image_of("web", "vda", inactive);
            now.is_some_and(|now| match *tier {
                "far" => !now.starts_with('/') || now.contains("nbd"),
                _ => now.starts_with(image.as_str()),
            })
        };
        host.wait_until(&format!("move {n} to {tier} is done"), || {
            is_there(false) && is_there(true)
        });
        host.wait_for_writes("web", 20);
        Ok(())
    });
    eprintln!(
        "{moves} moves, {} writes",
        host.log("web").unwrap().writes()
    );
    // After the retention time, no old image and no recorded move is left.
    host.wait_until("old images are gone", || host.rests(MOVES));
    let last = host.image_of("web", "vda", true).unwrap();
    assert_eq!(host.files("fast"), [""; 0]);
    assert_eq!(host.files("bulk"), ["web-vda.raw"]);
    let problems = host.status()["problems"].to_string();
    assert!(!problems.contains("web"), "{problems}");
    // QEMU counts latencies only while an agent reads them.
    let counted = |host: &Kvm| {
        let ask = r#"{"execute":"query-blockstats"}"#;
        let said = host.virsh(&["qemu-monitor-command", "web", ask]);
        said.contains("rd_latency_histogram")
    };
    host.wait_for_a_p99();
    assert!(counted(&host));
    end(&mut host.server, "-TERM");
    assert!(!counted(&host), "its histograms are not given back");
    host.virsh(&["destroy", "web"]);
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (1, 0));
    assert!(log.writes() > 200, "{} writes", log.writes());
    let lost = log.lost_in(&host.bytes_of(&last, "raw"));
    assert!(lost.is_empty(), "{lost:?}");
}

/// Mounted file system of a few MiB; unmounted on drop.
struct SmallFileSystem(String);

impl SmallFileSystem {
    fn on(host: &Kvm, dir: &str, size: &str) -> Self {
        let path = host.path(dir).to_str().unwrap().to_owned();
        let mount = ["-t", "tmpfs", "-o", size, "none", &path];
        let mounted = Command::new("mount").args(mount).status();
        assert!(mounted.unwrap().success());
        host.give();
        Self(path)
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn guest_data_survives_external_changes_during_a_move() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let (mut host, [here, there]) = two_tiers("0.3MB/s", "raw");
    host.serve();
    let begin = || {
        host.pin("web:vda", "there");
        host.wait_until("it is copied", || is_copied(&host));
        // No new move is planned after this one ends.
        host.pin("web:vda", "here");
    };
    let stays = |what: &str, why: &str| {
        host.wait_until(&format!("{what}: the move is over"), || host.rests(MOVES));
        for inactive in [false, true] {
            let image = host.image_of("web", "vda", inactive).unwrap();
            assert_eq!(image, format!("{here}/web.raw"), "{what}");
        }
        assert_eq!(host.files("there"), [""; 0], "{what}");
        host.wait_for_writes("web", 20);
        host.wait_until(&format!("{what}: its job says {why:?}"), || {
            said(host.terrace(&["job", "list"])).contains(why)
        });
    };
    begin();
    let jobs = said(host.terrace(&["job", "list", "-o", "json"]));
    let jobs: serde_json::Value = serde_json::from_str(&jobs).unwrap();
    let running = jobs["jobs"].as_array().unwrap().iter();
    let running = running.max_by_key(|j| j["job"].as_u64()).unwrap();
    let id = running["job"].to_string();
    said(host.terrace(&["job", "cancel", &id]));
    stays("cancelled", "cancelled");

    begin();
    // QEMU 7.2 may crash otherwise.
    host.virsh(&["suspend", "web"]);
    host.virsh(&["blockjob", "web", "vda", "--abort"]);
    host.virsh(&["resume", "web"]);
    stays("aborted by hand", "another program cancelled the copy");

    begin();
    host.virsh(&["destroy", "web"]);
    host.virsh(&["start", "web"]);
    stays("destroyed", "ended before");

    // A second agent for the same directory does nothing.
    let moves = host.path("state/libvirt-moves");
    let socket = format!("unix:{}", host.path("state/controller.sock").display());
    let mut other = host.command(&host.path("terrace"));
    other.args(["agent", "--libvirt", "qemu:///session", "--host", "kvm2"]);
    other.args(["--tier", &format!("here={here}"), "--moves"]);
    let log = fs::File::create(host.path("other.log")).unwrap();
    other
        .arg(&moves)
        .args(["--controller", &socket])
        .stderr(log);
    let mut other = other.spawn().unwrap();
    host.wait_until("the other agent says why it does nothing", || {
        let said = fs::read_to_string(host.path("other.log")).unwrap();
        said.contains("another agent") && said.contains("the moves")
    });
    other.kill().unwrap();
    other.wait().unwrap();

    // A copy that another program started is left unchanged.
    let copy = host.path("copy.raw");
    let words = ["--transient-job", "--bandwidth", "100000", "--bytes"];
    let copied = ["blockcopy", "web", "vda", copy.to_str().unwrap()];
    host.virsh(&[&copied[..], &["--format", "raw"], &words].concat());
    host.wait_until("the job is seen", || {
        let why = said(host.terrace(&["why", "web:vda"]));
        why.contains("another program runs a block job on it")
    });
    let pinned = host.terrace(&["volume", "pin", "web:vda", "there"]);
    let refused = String::from_utf8_lossy(&pinned.stderr).into_owned();
    assert!(refused.contains("cannot be moved"), "{refused}");
    host.virsh(&["blockjob", "web", "vda", "--abort"]);

    // The move continues across a reset of the guest; the disk cannot be resized during the move.
    host.wait_until("it can be pinned again", || {
        let pinned = host.terrace(&["volume", "pin", "web:vda", "there"]);
        pinned.status.success()
    });
    host.wait_until("it is copied", || is_copied(&host));
    host.virsh(&["reset", "web"]);
    let larger = (GUEST.disk_bytes() * 2).to_string() + "B";
    let resized = host.try_virsh(&["blockresize", "web", "vda", &larger]);
    assert!(!resized.status.success(), "{resized:?}");
    host.wait_until("it has moved", || is_on(&host, &format!("{there}/web.raw")));
    host.wait_for_writes("web", 20);
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (3, 0));
    assert!(
        log.lost_in(&host.bytes_of(&format!("{there}/web.raw"), "raw"))
            .is_empty()
    );
}

#[test]
fn full_target_ends_the_move_and_the_guest_continues() {
    if !testkit::needs::programs(&[&PROGRAMS[..], &["mount"]].concat()) {
        return;
    }
    // Slow enough that the target is full before the copy is complete, even if commands are slow.
    let (mut host, [here, _]) = two_tiers("0.03MB/s", "raw");
    if !host.has_user() {
        return testkit::needs::skipped("root"); // to mount a small file system
    }
    let _small = SmallFileSystem::on(&host, "there", "size=96m");
    host.serve();
    host.pin("web:vda", "there");
    host.wait_until("it is copied", || is_copied(&host));
    host.pin("web:vda", "here");
    fs::write(host.path("there/other"), vec![1; 70 << 20]).unwrap();
    host.wait_until("the move is over", || host.rests(MOVES));
    assert_eq!(host.files("there"), ["other"], "{}", host.serve_log());
    host.wait_until("the job has failed", || {
        let jobs = said(host.terrace(&["job", "list"]));
        jobs.contains("are free on its target")
    });
    host.wait_for_writes("web", 20);
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (1, 0));
    let image = format!("{here}/web.raw");
    assert!(log.lost_in(&host.bytes_of(&image, "raw")).is_empty());
}

/// Processes that a round kills.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Victims {
    agent: bool,
    qemu: bool,
    libvirt: bool,
}

fn kill(pid: Option<i32>) {
    if let Some(pid) = pid {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

/// `TERRACE_SEEDS=0..100` runs a hundred rounds.
#[test]
fn domain_does_not_start_from_a_stale_image_after_kills() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    // With a qcow2 target, unflushed data of a mirror is only in QEMU's memory.
    let (mut host, [here, _]) = two_tiers("2MB/s", "qcow2");
    host.serve();
    let (mut starts, mut refused, mut by_phase) = (0, 0, std::collections::BTreeMap::new());
    testkit::seeds::run(0..4, |seed| {
        let mut random = Rng::new(seed, 0);
        let on = host
            .image_of("web", "vda", false)
            .ok_or("it is not running")?;
        let tier = match on.starts_with(&here) {
            true => "there",
            false => "here",
        };
        host.pin("web:vda", tier);
        // Half of the kills are close to the pivot.
        let around_pivot = random.below(2) == 0;
        let wanted: &[&str] = match around_pivot {
            true => &["\"blocking\"", "\"pivoting\"", "\"pivoted\""],
            false => &["\"begun\"", "\"copying\""],
        };
        let phase = || {
            let texts = host.intents(MOVES);
            let found = wanted.iter().find(|w| texts.contains(*w));
            found.map(ToString::to_string)
        };
        let until = Instant::now() + PATIENCE;
        while phase().is_none() {
            if Instant::now() > until {
                return Err(format!("no move comes to {wanted:?}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let longest = if around_pivot { 300 } else { 2500 };
        std::thread::sleep(Duration::from_millis(random.below(longest)));
        let at = phase().unwrap_or("later".into());
        *by_phase.entry(at).or_insert(0) += 1;
        let bits = 1 + random.below(7);
        let victims = Victims {
            agent: bits & 1 != 0,
            qemu: bits & 2 != 0,
            libvirt: bits & 4 != 0,
        };
        if victims.libvirt {
            kill(host.pid("libvirtd.pid"));
        }
        if victims.qemu {
            kill(host.pid("qemu/run/web.pid"));
        }
        if victims.agent {
            end(&mut host.server, "-9");
        }
        let fault = |why: String| format!("{victims:?}: {why}");
        // A script starts the domain at once and repeatedly: at each permitted start the image must hold every
        // acknowledged write.
        let until = Instant::now() + PATIENCE;
        let mut tried = 0;
        let before = host.log("web").map_err(fault)?.writes();
        while host.log("web").map_err(fault)?.writes() < before + 30 {
            std::thread::sleep(Duration::from_millis(100));
            if Instant::now() > until {
                return Err(fault("it is not running again".into()));
            }
            tried += 1;
            // A guest that the killed agent had paused resumes with the next agent.
            if tried == 3 && host.server.is_none() {
                host.serve();
            }
            if host.virsh(&["list", "--name"]).contains("web") {
                continue;
            }
            let named = host.image_of("web", "vda", true).ok_or("it is gone")?;
            if Path::new(&named).exists() {
                let log = host.log("web").map_err(fault)?;
                let lost = log.lost_in(&host.bytes_of(&named, format_of(&named)));
                if let Some(first) = lost.first() {
                    return Err(fault(format!(
                        "it would start from {named}, where {} writes are lost: {first}",
                        lost.len()
                    )));
                }
            }
            match host.try_virsh(&["start", "web"]).status.success() {
                true => starts += 1,
                false => refused += 1,
            }
        }
        if host.server.is_none() {
            host.serve();
        }
        // The disk ends on its target, and no files of the move are left.
        host.wait_until("it has moved", || {
            is_on(&host, &host.text(tier)) && host.rests(MOVES)
        });
        host.log("web").map_err(fault)?;
        let left = [host.files("here"), host.files("there")].concat();
        match left.len() {
            1 => Ok(()),
            _ => Err(fault(format!("files are left: {left:?}"))),
        }
    });
    eprintln!("{starts} starts, {refused} refused, killed when {by_phase:?}");
    end(&mut host.server, "-9");
    let on = host.image_of("web", "vda", false).unwrap();
    host.virsh(&["destroy", "web"]);
    let log = host.log("web").unwrap();
    assert_eq!(log.errors(), 0);
    assert!(log.lost_in(&host.bytes_of(&on, format_of(&on))).is_empty());
}
