//! Disks of plain QEMU that move while their guests check them: real QEMU, controlled by its sockets. Only the
//! processor is emulated.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use algo::Rng;
use serde_json::{Value, json};
use testkit::guest::Guest;

use crate::support::PATIENCE;
use crate::support::machine_host::{self, MachineHost, end, format_of};

pub const MOVES: &str = "state/qemu-moves";
pub const PROGRAMS: [&str; 2] = ["qemu-system-x86_64", "qemu-img"];
const GUEST: Guest = Guest {
    requests_per_tick: 20,
    blocks: 512,
};

/// Host with one machine, `web`, that has one disk, `vda`.
pub struct QemuHost {
    host: MachineHost,
    pub machine: Option<Child>,
    /// True if the disk is defined as a drive, which QEMU may open again by its name.
    by_drive: bool,
}

impl Deref for QemuHost {
    type Target = MachineHost;

    fn deref(&self) -> &MachineHost {
        &self.host
    }
}

impl DerefMut for QemuHost {
    fn deref_mut(&mut self) -> &mut MachineHost {
        &mut self.host
    }
}

impl QemuHost {
    pub fn new(copy_bandwidth: &str) -> Self {
        let host = MachineHost::new(None);
        let [_, fast, bulk] = ["sockets", "fast", "bulk"].map(|name| host.make_dir(name));
        let tiers = [
            ("fast", fast.as_str(), Some("qcow2")),
            ("bulk", bulk.as_str(), Some("raw")),
        ];
        host.configure("[qemu]\nsockets = \"sockets\"", copy_bandwidth, &tiers);
        let mut bytes = GUEST.boot_sector().to_vec();
        bytes.resize(GUEST.disk_bytes() as usize, 0);
        fs::write(host.path("bulk/web.raw"), bytes).unwrap();
        Self {
            host,
            machine: None,
            by_drive: false,
        }
    }

    /// Starts the machine as a script would, from this image. Acknowledged writes are on disk, the image is below a
    /// throttle without limits, and the test has a second monitor socket.
    pub fn start(&mut self, file: &str, format: &str) -> bool {
        let log = format!("file,id=report,append=on,path={}", self.text("web.log"));
        let image = json!({
            "driver": format, "node-name": "image", "discard": "unmap",
            "file": { "driver": "file", "filename": self.text(file) },
        });
        let mut qemu = Command::new(machine_host::qemu());
        qemu.args(["-M", "pc", "-m", "32", "-display", "none", "-nodefaults"]);
        qemu.args(["-chardev", &log, "-serial", "chardev:report"]);
        let mut device = "virtio-blk-pci,id=vda,write-cache=off,drive=".to_owned();
        if self.by_drive {
            let file = self.text(file);
            let drive = format!("if=none,id=d,format={format},discard=unmap,file={file}");
            qemu.args(["-drive", &drive]);
            device += "d";
        } else {
            qemu.args(["-object", "throttle-group,id=limits"]);
            qemu.args(["-blockdev", &image.to_string(), "-blockdev"]);
            qemu.arg("driver=throttle,node-name=throttle,throttle-group=limits,file=image");
            device += "throttle";
        }
        qemu.args(["-device", &device]);
        for socket in ["sockets/web.qmp", "test.sock"] {
            let socket = format!("unix:{},server=on,wait=off", self.text(socket));
            qemu.args(["-qmp", &socket]);
        }
        let child = qemu.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap();
        let until = Instant::now() + PATIENCE;
        while !greets(&self.path("test.sock")) {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < until, "QEMU does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.machine = Some(child);
        true
    }

    pub fn ask(&self, command: &str, arguments: Value) -> Value {
        let stream = UnixStream::connect(self.path("test.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut say = |command: &str, arguments: Value| {
            let order = json!({ "execute": command, "arguments": arguments });
            writeln!(&stream, "{order}").unwrap();
            loop {
                let line = lines.next().unwrap().unwrap();
                let mut answer: Value = serde_json::from_str(&line).unwrap();
                if answer.get("return").is_some() || answer.get("error").is_some() {
                    return answer["return"].take();
                }
            }
        };
        say("qmp_capabilities", json!({}));
        say(command, arguments)
    }

    /// Returns driver and file name of each block node.
    fn nodes(&self) -> Vec<(String, String)> {
        let nodes = self.ask("query-named-block-nodes", json!({ "flat": true }));
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        let nodes = nodes.as_array().unwrap().iter();
        nodes.map(|n| (text(&n["drv"]), text(&n["file"]))).collect()
    }

    /// Returns the path of the guest's image, or `None` while a block job runs.
    pub fn image(&self) -> Option<String> {
        let mut formats = self.nodes().into_iter();
        let found = formats.find(|(driver, _)| driver == "raw" || driver == "qcow2");
        let jobs = self.ask("query-block-jobs", json!({}));
        found.filter(|_| jobs == json!([])).map(|(_, file)| file)
    }

    /// Returns true if the agent runs and no move is in progress.
    fn is_settled(&self) -> bool {
        let on_its_way = [
            "begun",
            "copying",
            "blocking",
            "pivoting",
            "pivoted",
            "giving-up",
        ];
        let intents = self.intents(MOVES);
        let moves = on_its_way
            .iter()
            .any(|p| intents.contains(&format!("\"{p}\"")));
        self.server.is_some() && !moves
    }

    /// Returns the image of the machine if exactly one file has no `.moved-` in its name.
    fn only_image(&self) -> Option<String> {
        let found = ["bulk", "fast"].map(|dir| {
            let names = self.files(dir).into_iter();
            names
                .map(|n| self.text(&format!("{dir}/{n}")))
                .collect::<Vec<_>>()
        });
        let named = found
            .concat()
            .into_iter()
            .filter(|n| !n.contains(".moved-"));
        let named: Vec<String> = named.collect();
        (named.len() == 1).then(|| named[0].clone())
    }

    fn lost(&self, image: &str) -> usize {
        let log = self.log("web").unwrap();
        log.lost_in(&self.bytes_of(image, format_of(image))).len()
    }

    /// Returns true if QEMU keeps latency histograms of the disk.
    fn has_histograms(&self) -> bool {
        let stats = self.ask("query-blockstats", json!({}));
        !stats[0]["stats"]["rd_latency_histogram"].is_null()
    }
}

/// Returns true if QEMU sends its greeting on a socket. QEMU listens before it opens its images, and may fail after
/// that.
fn greets(socket: &Path) -> bool {
    let Ok(stream) = UnixStream::connect(socket) else {
        return false;
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.contains("QMP")
}

impl Drop for QemuHost {
    fn drop(&mut self) {
        end(&mut self.machine, "-9");
    }
}

#[test]
fn disk_of_plain_qemu_moves_without_data_loss() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let mut host = QemuHost::new("100MB/s");
    assert!(host.start("bulk/web.raw", "raw"));
    host.wait_for_writes("web", 50);
    host.serve();
    for (n, tier) in ["fast", "bulk", "fast"].iter().enumerate() {
        host.pin("web:vda", tier);
        let below = host.text(tier) + "/";
        host.wait_until(&format!("move {n} to {tier} is done"), || {
            host.image().is_some_and(|image| image.starts_with(&below))
        });
        host.wait_for_writes("web", 20);
    }
    // Latency percentiles are available.
    host.wait_for_a_p99();
    host.wait_until("old images are gone", || host.rests(MOVES));
    assert_eq!(host.files("bulk"), [""; 0]);
    assert_eq!(host.files("fast"), ["web.qcow2"]);
    // Three moves leave only the throttle and the two nodes of the image in QEMU.
    assert_eq!(host.nodes().len(), 3, "{:?}", host.nodes());
    assert!(host.has_histograms());
    end(&mut host.server, "-TERM");
    assert!(!host.has_histograms(), "its histograms are not given back");
    end(&mut host.machine, "-9");
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (1, 0));
    assert!(log.writes() > 100, "{} writes", log.writes());
    assert_eq!(host.lost(&host.text("fast/web.qcow2")), 0);
    assert!(
        !host.start("bulk/web.raw", "raw"),
        "a start from the old path is no start"
    );
}

#[test]
fn drive_of_the_command_line_moves_and_a_migrating_machine_does_not() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let mut host = QemuHost::new("100MB/s");
    host.by_drive = true;
    assert!(host.start("bulk/web.raw", "raw"));
    host.wait_for_writes("web", 20);
    // A migration that never completes: QEMU waits for a reader of the socket.
    let far = host.path("far.sock");
    let _listens = UnixListener::bind(&far).unwrap();
    host.ask("migrate-set-parameters", json!({ "max-bandwidth": 1000 }));
    host.ask(
        "migrate",
        json!({ "uri": format!("unix:{}", far.display()) }),
    );
    host.serve();
    host.wait_until("it says why it stays", || {
        let shown = host.terrace(&["top", "-n", "1", "-o", "json"]).stdout;
        String::from_utf8_lossy(&shown).contains("is migrating to another host")
    });
    assert_eq!(host.files("fast"), [""; 0]);
    host.ask("migrate_cancel", json!({}));
    for tier in ["fast", "bulk"] {
        host.pin("web:vda", tier);
        let below = host.text(tier) + "/";
        host.wait_until(&format!("its move to {tier} is done"), || {
            host.image().is_some_and(|image| image.starts_with(&below))
        });
        host.wait_for_writes("web", 20);
    }
    host.wait_until("old images are gone", || host.rests(MOVES));
    assert_eq!(host.files("fast"), [""; 0]);
    let image = host.image().unwrap();
    end(&mut host.machine, "-9");
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (1, 0));
    assert_eq!(host.lost(&image), 0);
}

#[test]
fn move_of_plain_qemu_survives_kills() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let mut host = QemuHost::new("500KiB/s");
    assert!(host.start("bulk/web.raw", "raw"));
    host.wait_for_writes("web", 20);
    host.serve();
    host.pin("web:vda", "fast");
    let copying = |host: &QemuHost| host.intents(MOVES).contains("\"copying\"");
    host.wait_until("it copies", || copying(&host));
    end(&mut host.machine, "-9");
    assert_eq!(host.lost(&host.text("bulk/web.raw")), 0);
    host.wait_until("the move is given up", || !copying(&host));
    assert_eq!(host.files("bulk"), ["web.raw"]);
    assert!(host.start("bulk/web.raw", "raw"));
    host.wait_for_writes("web", 20);
    // The move starts again, and its agent is killed.
    host.wait_until("it copies again", || copying(&host));
    end(&mut host.server, "-9");
    host.serve();
    let fast = host.text("fast") + "/";
    host.wait_until("it has moved", || {
        host.image().is_some_and(|image| image.starts_with(&fast))
    });
    host.wait_for_writes("web", 20);
    host.wait_until("old images are gone", || host.rests(MOVES));
    let image = host.image().unwrap();
    end(&mut host.machine, "-9");
    assert_eq!([host.files("bulk"), host.files("fast")].concat().len(), 1);
    let log = host.log("web").unwrap();
    assert_eq!((log.boots(), log.errors()), (2, 0));
    assert_eq!(host.lost(&image), 0);
}

/// `TERRACE_SEEDS=0..100` runs a hundred rounds.
#[test]
fn plain_qemu_does_not_start_from_a_stale_image() {
    if !testkit::needs::programs(&PROGRAMS) {
        return;
    }
    let mut host = QemuHost::new("4MiB/s");
    assert!(host.start("bulk/web.raw", "raw"));
    host.wait_for_writes("web", 20);
    host.serve();
    let (mut starts, mut refused, mut by_phase) = (0, 0, std::collections::BTreeMap::new());
    testkit::seeds::run(0..3, |seed| {
        let mut random = Rng::new(seed, 0);
        let on = host.image().ok_or("it has no image")?;
        let tier = match on.starts_with(&host.text("bulk")) {
            true => "fast",
            false => "bulk",
        };
        host.pin("web:vda", tier);
        let phases: &[&str] = match random.below(4) {
            0 => &["begun", "copying"],
            _ => &["blocking", "pivoting", "pivoted"],
        };
        let phase = |host: &QemuHost| {
            let intents = host.intents(MOVES);
            let found = phases
                .iter()
                .find(|p| intents.contains(&format!("\"{p}\"")));
            found.map(ToString::to_string)
        };
        let until = Instant::now() + PATIENCE;
        let at = loop {
            if let Some(at) = phase(&host) {
                break at;
            }
            if Instant::now() > until {
                return Err(format!("no move comes to {phases:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        *by_phase.entry(at).or_insert(0) += 1;
        let victims = 1 + random.below(3);
        if victims & 1 != 0 {
            end(&mut host.machine, "-9");
        }
        if victims & 2 != 0 {
            end(&mut host.server, "-9");
        }
        // The script runs repeatedly with the old path until the move's state shows the location of the image.
        let before = host.log("web").unwrap().writes();
        let (until, mut tried) = (Instant::now() + PATIENCE, 0);
        while host.log("web").unwrap().writes() < before + 30 {
            if Instant::now() > until {
                return Err(format!("victims {victims}: it is not running again"));
            }
            std::thread::sleep(Duration::from_millis(50));
            tried += 1;
            if tried == 5 && host.server.is_none() {
                host.serve();
            }
            if host.machine.is_some() {
                continue;
            }
            let image = match host.is_settled() {
                true => host.only_image().unwrap_or(on.clone()),
                false => on.clone(),
            };
            if !Path::new(&image).exists() {
                refused += 1;
                continue;
            }
            let lost = host.lost(&image);
            if lost > 0 {
                return Err(format!(
                    "victims {victims}: it would start from {image}, where {lost} writes are lost"
                ));
            }
            let format = image.rsplit('.').next().unwrap_or_default();
            match host.start(&image, format) {
                true => starts += 1,
                false => refused += 1,
            }
        }
        if host.server.is_none() {
            host.serve();
        }
        let below = host.text(tier) + "/";
        host.wait_until("it has moved", || {
            let there = host.image().is_some_and(|image| image.starts_with(&below));
            there && host.rests(MOVES)
        });
        let left = [host.files("bulk"), host.files("fast")].concat();
        match left.len() {
            1 => Ok(()),
            _ => Err(format!("files are left: {left:?}")),
        }
    });
    eprintln!("{starts} starts, {refused} refused, killed when {by_phase:?}");
    let image = host.image().unwrap();
    end(&mut host.machine, "-9");
    assert_eq!(host.log("web").unwrap().errors(), 0);
    assert_eq!(host.lost(&image), 0);
}
