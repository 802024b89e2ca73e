//! vhost-user guests, whose memory the server maps, and a server that is killed while they run: real processes, real signals,
//! a real QEMU.
//!
//! `TERRACE_KILLS=20 cargo test --release -p cli --test suite vhost_user` sets the number of kills.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use algo::Rng;
use datapath::stages::inject;
use datapath::{Client, Reach};
use testkit::guest::{Guest as Machine, Log};
use testkit::vhost_user::{DiskRequest, Guest, GuestSpec};
use units::Nanos;

use crate::support::machine_host::end;
use crate::support::{PATIENCE, Site};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 4096;
const QUEUES: usize = 2;
const SIZE: u16 = 64;

fn kills(few: u64) -> u64 {
    match std::env::var("TERRACE_KILLS") {
        Ok(text) => text.parse().expect("TERRACE_KILLS is a number"),
        Err(_) => few,
    }
}

fn serve(site: &mut Site) {
    let dir = site.path("vhost");
    site.serve(&["--workers", "2", "--vhost-user", dir.to_str().unwrap()]);
}

fn socket(site: &Site, volume: &str) -> PathBuf {
    site.path("vhost").join(format!("{volume}.sock"))
}

/// Starts a slow move, which is often still running at a kill. A move that is already running continues.
fn begin_move(site: &Site, volume: &str, tier: &str) {
    let order = [
        "volume",
        "move",
        volume,
        "--to",
        tier,
        "--bandwidth",
        "30 MiB/s",
    ];
    let moved = site.run(&order);
    let said = String::from_utf8_lossy(&moved.stderr).into_owned();
    let goes_on = moved.status.success() || said.contains("already moving");
    assert!(goes_on, "{said}");
}

/// Delays write completions for longer than the server lives.
fn hold_writes(site: &Site) {
    let array = Reach::find(&site.path("array")).unwrap();
    let session = inject::Command::Inject {
        volume: "db".into(),
        read: Nanos::ZERO,
        write: Nanos::from_secs(300),
        lasting: Nanos::from_secs(300),
    };
    array.ask(session.into()).unwrap();
}

/// Guest that keeps its queues full and knows the content of each block, with at most one request per block in flight.
struct Load {
    guest: Guest,
    random: Rng,
    known: Vec<u64>,
    busy: Vec<bool>,
    asked: Vec<Vec<Option<(usize, u64)>>>,
    number: u64,
    reads: u64,
}

fn block_of(number: u64, index: usize) -> Vec<u8> {
    let words = match number {
        0 => [[0; 8]; 2].concat(),
        _ => [number.to_le_bytes(), (index as u64).to_le_bytes()].concat(),
    };
    words.repeat(BLOCK / words.len())
}

impl Load {
    fn new() -> Self {
        let guest = Guest::new(GuestSpec {
            queues: QUEUES as u16,
            size: SIZE,
            data: BLOCK as u32,
            ..GuestSpec::default()
        });
        Self {
            guest,
            random: Rng::new(3, 3),
            known: vec![0; BLOCKS as usize],
            busy: vec![false; BLOCKS as usize],
            asked: vec![vec![None; usize::from(SIZE)]; QUEUES],
            number: 0,
            reads: 0,
        }
    }

    fn hand_in(&mut self, queue: usize) {
        while let Some(slot) = self.guest.slot(queue) {
            let index = self.random.below(BLOCKS) as usize;
            let at = (index * BLOCK) as u64;
            let (ask, number) = if self.busy[index] {
                (DiskRequest::Flush, None)
            } else if self.random.below(3) == 0 {
                (DiskRequest::Read(at, BLOCK as u32), Some(0))
            } else {
                self.number += 1;
                let bytes = block_of(self.number, index);
                self.guest.fill(queue, slot, &bytes);
                (DiskRequest::Write(at, BLOCK as u32), Some(self.number))
            };
            if number.is_some() {
                self.busy[index] = true;
            }
            self.asked[queue][usize::from(slot)] = number.map(|number| (index, number));
            self.guest.hand_in(queue, slot, ask);
        }
        self.guest.kick(queue);
    }

    fn answers(&mut self, queue: usize) {
        while let Some(answer) = self.guest.next(queue) {
            assert_eq!(answer.status, 0);
            let asked = self.asked[queue][usize::from(answer.slot)].take();
            let Some((index, number)) = asked else {
                continue;
            };
            if number > 0 {
                self.known[index] = number;
            } else {
                self.reads += 1;
                let got = self.guest.data(queue, answer.slot, BLOCK);
                let known = self.known[index];
                assert!(
                    got == block_of(known, index),
                    "block {index} is not {known}"
                );
            }
            self.busy[index] = false;
        }
    }

    /// Runs the load for at least `time`, and until a minimum of requests was submitted and read.
    fn run(&mut self, time: Duration, (writes, reads): (u64, u64)) {
        let until = Instant::now() + time;
        let (writes, reads) = (self.number + writes, self.reads + reads);
        while Instant::now() < until || self.number < writes || self.reads < reads {
            for queue in 0..QUEUES {
                self.hand_in(queue);
                self.answers(queue);
            }
        }
    }

    /// Waits until every submitted request is completed.
    fn drain(&mut self) {
        for queue in 0..QUEUES {
            self.answers(queue);
            while self.guest.driver(queue).waiting() > 0 {
                self.guest.sleep(queue).unwrap();
                self.answers(queue);
            }
        }
    }
}

#[test]
fn requests_in_flight_survive_kills_of_the_server() {
    let mut site = Site::new(&[("db", 16)]);
    let mut load = Load::new();
    let kills = kills(5);
    let (mut redone, mut redone_of) = (0, 0);
    for kill in 0..kills {
        serve(&mut site);
        let before = load.number;
        load.guest.connect(&socket(&site, "db")).unwrap();
        // The new server completes the requests in flight without a kick.
        load.drain();
        assert_eq!(load.number, before);
        begin_move(&site, "db", ["slow", "middle", "fast"][kill as usize % 3]);
        load.run(Duration::from_millis(100 + kill * 37 % 200), (200, 50));
        // Write completions come late, so the requests in flight are out of order.
        hold_writes(&site);
        load.run(Duration::from_millis(60 + kill * 13 % 50), (0, 0));
        site.kill();
        load.guest.disconnect();
        for queue in 0..QUEUES {
            load.answers(queue);
            redone_of += load.guest.driver(queue).waiting();
        }
        redone += 1;
    }
    serve(&mut site);
    load.guest.connect(&socket(&site, "db")).unwrap();
    load.drain();
    let again = site
        .log()
        .matches("resubmitted requests that were in flight")
        .count();
    assert!((1..=QUEUES).contains(&again), "{}", site.log());
    assert!(
        redone_of > redone * 10,
        "{redone_of} were in flight in {redone} kills"
    );
    // The data as an NBD client sees it.
    let mut client = Client::connect(&site.uri("db").parse().unwrap()).unwrap();
    for index in 0..BLOCKS as usize {
        let got = client.read((index * BLOCK) as u64, BLOCK as u32).unwrap();
        assert!(got == block_of(load.known[index], index), "block {index}");
    }
    drop(client);
    load.guest.disconnect();
    site.stop();
    site.ok(&["volume", "check"]);
}

/// Machine that boots from a volume.
struct Qemu {
    child: Option<Child>,
    log: PathBuf,
}

impl Qemu {
    fn boot(site: &Site, socket: &Path) -> Self {
        let log = site.path("guest.log");
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-M",
            "pc,memory-backend=mem",
            "-m",
            "32",
            "-display",
            "none",
            "-nodefaults",
        ]);
        qemu.args(["-object", "memory-backend-memfd,id=mem,size=32M,share=on"]);
        let chardev = format!("socket,id=disk,path={},reconnect=1", socket.display());
        qemu.args(["-chardev", &chardev]);
        qemu.args([
            "-device",
            "vhost-user-blk-pci,chardev=disk,num-queues=2,bootindex=1",
        ]);
        let report = format!("file,id=report,append=on,path={}", log.display());
        qemu.args(["-chardev", &report, "-serial", "chardev:report"]);
        let said = std::fs::File::create(site.path("qemu.log")).unwrap();
        let child = qemu
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn();
        Self {
            child: Some(child.unwrap()),
            log,
        }
    }

    fn report(&self) -> Log {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        Log::read(&bytes).unwrap()
    }

    fn wait_for_writes(&mut self, site: &Site, more: usize) {
        let before = self.report().writes();
        let until = Instant::now() + PATIENCE;
        while self.report().writes() < before + more {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            let said = || std::fs::read_to_string(site.path("qemu.log")).unwrap_or_default();
            assert!(ended.is_none(), "{}", said());
            assert!(
                Instant::now() < until,
                "it writes no more: {}{}",
                said(),
                site.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        end(&mut self.child, "-9");
    }
}

/// A machine boots from a volume by vhost-user, writes and verifies it, while the volume moves between three tiers and
/// the server is killed.
#[test]
fn machine_continues_while_its_volume_moves_and_its_server_is_killed() {
    if !testkit::needs::programs(&["qemu-system-x86_64"]) {
        return;
    }
    let machine = Machine {
        requests_per_tick: 30,
        blocks: 2048,
    };
    let mib = machine.disk_bytes().div_ceil(1 << 20);
    let mut site = Site::new(&[("web", mib as u32)]);
    serve(&mut site);
    let uri: nbd::Uri = site.uri("web").parse().unwrap();
    let mut client = Client::connect(&uri).unwrap();
    client.write(0, &machine.boot_sector()).unwrap();
    drop(client);
    let mut qemu = Qemu::boot(&site, &socket(&site, "web"));
    qemu.wait_for_writes(&site, 50);
    for kill in 0..kills(4) {
        begin_move(&site, "web", ["slow", "middle", "fast"][kill as usize % 3]);
        qemu.wait_for_writes(&site, 20);
        std::thread::sleep(Duration::from_millis(kill * 29 % 60));
        site.kill();
        serve(&mut site);
        qemu.wait_for_writes(&site, 30);
    }
    let report = qemu.report();
    assert_eq!((report.boots(), report.errors()), (1, 0));
    assert!(report.reads() > 50, "{} reads", report.reads());
    end(&mut qemu.child, "-9");
    let mut client = Client::connect(&uri).unwrap();
    let mut image = vec![];
    for at in 0..mib {
        image.extend(client.read(at << 20, 1 << 20).unwrap());
    }
    let lost = qemu.report().lost_in(&image);
    assert!(lost.is_empty(), "{lost:?}");
}
