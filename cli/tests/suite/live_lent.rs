//! Memory and flash of another host as an automatic L2 cache: a served array with an emulated disk, an agent that
//! lends, a controller, and guests that verify their own writes while processes are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use datapath::Client;
use testkit::certificates::{Authority, Holds};

use crate::live::{Bench, RunningServer, signal, wait};

/// Deadline that only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(180);

const PAGE: u64 = 4096;

/// Twice the cache of a worker: half of the reads reach the disk, and all pages fit into the lent memory.
const PAGES: u64 = 512;

/// Requests in flight: more than the disk serves in time.
const DEPTH: u64 = 12;

/// Number of processes that are killed or stopped.
const ROUNDS: u64 = 6;

const CONFIG: &str = r#"
window = "250ms"
strategy = "noop"
[array]
dir = "terrace-array"
host = "here"
[array.cache]
size = "CACHE MiB"
page = "4 KiB"
[[classes]]
name = "gold"
latency = "25ms"
statistic = "mean"
[response.workflow]
settle = "500ms"
look_again = "500ms"
patience = 0.01
avoid_host = "500ms"
[response.workflow.detect]
samples = 4
violating_min = 3
clear_below = 0.5
[response.workflow.release]
samples = 4
cooldown = "500ms"
[response.modes]
throttle = "off"
memory-share = "off"
mirror = "off"
move = "off"
appliance = "auto"
"#;

/// Returns the content of a page after this number of writes.
fn content(page: u64, writes: u64) -> Vec<u8> {
    let word = (page << 32 | writes).to_le_bytes();
    word.repeat((PAGE / 8) as usize)
}

/// Guests that read at random and sometimes write. Each guest has its own pages and verifies their content.
struct Guests {
    over: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Guests {
    fn on(uri: &str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let reads = Arc::new(AtomicU64::new(0));
        let guest = |n: u64| {
            let mut client = Client::connect(&uri.parse().unwrap()).unwrap();
            let (over, reads) = (over.clone(), reads.clone());
            std::thread::spawn(move || {
                let mut rng = algo::Rng::new(n, 23);
                let own = PAGES / DEPTH;
                let mut writes = vec![0; own as usize];
                while !over.load(Ordering::Acquire) {
                    let k = rng.below(own);
                    let page = n * own + k;
                    if writes[k as usize] == 0 || rng.below(30) == 0 {
                        writes[k as usize] += 1;
                        let data = content(page, writes[k as usize]);
                        client.write(page * PAGE, &data).unwrap();
                    }
                    let data = client.read(page * PAGE, PAGE as u32).unwrap();
                    let wanted = content(page, writes[k as usize]);
                    assert!(data == wanted, "page {page} is not what was written last");
                    reads.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        };
        let threads = (0..DEPTH).map(guest).collect();
        Self {
            over,
            reads,
            threads,
        }
    }

    fn end(self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads {
            thread.join().expect("what it read was right");
        }
    }
}

/// Returns the running child processes of a process.
fn children(of: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The fields after the process name, which may contain any character: state and parent.
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        let fields = fields.unwrap_or_default();
        let mut fields = fields.split(' ');
        fields.next().is_some_and(|state| state != "Z")
            && fields.next() == Some(of.to_string().as_str())
    };
    pids.filter(is_child).collect()
}

fn is_there(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|s| !s.contains(") Z "))
}

fn said(bench: &Bench, what: &str) -> usize {
    let all = bench.json(&["events", "--limit", "1000"]);
    let all = all["events"].as_array().expect("a list").iter();
    let texts = all.filter_map(|e| e["text"].as_str());
    texts.filter(|text| text.contains(what)).count()
}

fn until_said(bench: &Bench, what: &str, times: usize) {
    let until = Instant::now() + PATIENCE;
    while said(bench, what) < times {
        let text = || bench.ok(&["events", "--limit", "100"]);
        assert!(
            Instant::now() < until,
            "{what:?} is not said {times} times:\n{}",
            text()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the array is connected to an L2 cache that the other host lends.
fn until_serving(bench: &Bench, of: &str) {
    wait(PATIENCE, "a second level that is lent", || {
        let shown = bench.ok(&["array", "cache"]);
        let lost = ["not connected", "stopped"];
        let there = shown.contains(of);
        (there && !lost.iter().any(|l| shown.contains(l))).then_some(())
    });
}

const MEMORY: &[&str] = &["--lend", "32 MiB", "--lend-listen", "unix:lent"];

/// Uses certificates, as between hosts.
const FLASH: &[&str] = &[
    "--lend-flash",
    "32 MiB",
    "--lend-flash-dir",
    "flash",
    "--lend-listen",
    "tcp:127.0.0.1",
    "--lend-tls-certificates",
    "tls",
];

fn donor(bench: &Bench, what: &[&str]) -> RunningServer {
    let who = ["agent", "--host", "other", "--controller"];
    let controller = ["unix:terrace-state/controller.sock"];
    bench.start(&[&who[..], &controller, &["--lend-only"], what].concat(), 0)
}

/// Waits for the cache node and returns its process ID.
fn node(donor: &RunningServer) -> u32 {
    wait(PATIENCE, "a process that lends", || {
        children(donor.child.id()).first().copied()
    })
}

fn gone(pid: u32) {
    wait(PATIENCE, "the end of a process", || {
        (!is_there(pid)).then_some(())
    });
}

#[test]
fn lent_memory_and_flash_survive_kills_without_wrong_reads() {
    let bench = Bench::empty();
    std::fs::create_dir(bench.path().join("flash")).unwrap();
    let (authority, tls) = (Authority::new("ours"), bench.path().join("tls"));
    authority.server(&tls, &["127.0.0.1"], Holds::Long);
    authority.client(&tls, Holds::Long, 10);
    let tier = ["tier", "add", "disks", "--dir", "s", "--size", "64 MiB"];
    bench.ok(&[&tier[..], &["--emulate", "disk-15k"]].concat());
    let size = ["--size", "4 MiB", "--tier", "disks", "--class", "gold"];
    bench.ok(&[&["volume", "create", "orders"][..], &size].concat());
    // Each worker has a part of the cache, and the volume belongs to one worker.
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let text = CONFIG.replace("CACHE", &workers.to_string());
    let config = bench.path().join("live.toml");
    std::fs::write(&config, &text).unwrap();
    let server = bench.start(&["serve", "--config", "live.toml"], 3);
    assert_eq!(server.lines[2], "ready", "{:?}", server.lines);
    let uri = server.lines[0]
        .split(' ')
        .nth(2)
        .expect("volume, name, URI");
    let mut other = donor(&bench, MEMORY);
    let guests = Guests::on(uri);
    let mut rng = algo::Rng::new(1, 24);
    for round in 0..ROUNDS {
        let pid = node(&other);
        match round {
            // The node is killed, most likely before it listens.
            0 => {
                std::thread::sleep(Duration::from_millis(rng.below(10)));
                signal(pid, "-KILL");
                gone(pid);
                until_said(&bench, "appliance of orders failed", 1);
            }
            // The node is killed while it serves.
            1 => {
                until_serving(&bench, ": on host other");
                until_said(&bench, "orders goes through its appliance", 1);
                let status = bench.ok(&["status"]);
                assert!(status.contains("other lends 32 MiB of memory"), "{status}");
                assert!(status.contains("to here for orders"), "{status}");
                let reads = guests.reads.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(rng.below(1000)));
                wait(PATIENCE, "more reads of guests", || {
                    (guests.reads.load(Ordering::Relaxed) > reads + 100).then_some(())
                });
                signal(pid, "-KILL");
                gone(pid);
                until_said(&bench, "appliance of orders failed", 2);
            }
            // The node stops responding while it serves: the cache appliance fails, and the agent kills the node.
            2 => {
                until_serving(&bench, ": on host other");
                signal(pid, "-STOP");
                until_said(&bench, "appliance of orders failed", 3);
                gone(pid);
            }
            // The agent is killed: its processes end with it. The next agent lends flash to clients with a certificate.
            3 => {
                until_serving(&bench, ": on host other");
                other.kill_9();
                gone(pid);
                other = donor(&bench, FLASH);
            }
            4 => {
                until_serving(&bench, ": on flash of host other");
                let status = bench.ok(&["status"]);
                assert!(status.contains("other lends 32 MiB of flash"), "{status}");
                signal(pid, "-KILL");
                gone(pid);
            }
            // The node is killed at a random time.
            _ => {
                std::thread::sleep(Duration::from_millis(rng.below(3000)));
                signal(pid, "-KILL");
                gone(pid);
            }
        }
    }
    let pid = node(&other);
    let off = text.replace("appliance = \"auto\"", "appliance = \"off\"");
    std::fs::write(&config, off).unwrap();
    server.hang_up();
    // The node is killed while the appliance is being removed.
    std::thread::sleep(Duration::from_millis(rng.below(1500)));
    if is_there(pid) {
        signal(pid, "-KILL");
    }
    gone(pid);
    until_said(&bench, "configuration reloaded", 1);
    wait(PATIENCE, "an end of all that is lent", || {
        children(other.child.id()).is_empty().then_some(())
    });
    guests.end();
    let left = |dir: &str| std::fs::read_dir(bench.path().join(dir)).unwrap().count();
    assert_eq!(left("flash"), 0, "no file is left");
    other.stop();
    // The next agent removes the files that the killed agent left.
    let other = donor(&bench, MEMORY);
    wait(PATIENCE, "an end of old sockets", || {
        (left("lent") == 0).then_some(())
    });
    other.stop();
    server.stop();
}

#[test]
fn cache_node_exits_when_its_input_ends() {
    let bench = Bench::empty();
    let words = ["cache-node", "--memory", "1 MiB", "--listen", "unix:n.sock"];
    // The input of this command has ended before the start.
    let out = bench.run(&[&words[..], &["--until-input-ends"]].concat());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(!bench.path().join("n.sock").exists());
}

#[test]
fn cache_node_requires_memory_or_flash() {
    let bench = Bench::empty();
    for (words, part) in [
        (&[][..], "--memory"),
        (&["--memory", "1 KiB"], "--memory: at least 1 MiB"),
        (
            &["--flash", "f", "--size", "1 KiB"],
            "--size: at least 1 MiB",
        ),
        (&["--flash", "f"], "--size"),
        (
            &["--memory", "1 MiB", "--flash", "f", "--size", "1 MiB"],
            "cannot be used with",
        ),
        (
            &["--flash", "nowhere", "--size", "1 MiB"],
            "cannot create a file in nowhere",
        ),
    ] {
        let node = ["cache-node", "--listen", "unix:n.sock"];
        let out = bench.run(&[&node[..], words].concat());
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success(), "{words:?}");
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn invalid_lending_option_is_refused_with_its_name() {
    let bench = Bench::empty();
    let agent = [
        "agent",
        "--host",
        "other",
        "--controller",
        "unix:c.sock",
        "--lend-only",
    ];
    for (words, part) in [
        (
            &["--lend", "1 KiB", "--lend-listen", "unix:n"][..],
            "--lend: must be at least 1 MiB",
        ),
        (
            &["--lend", "1 GiB", "--lend-listen", "tcp:192.0.2.7"],
            "--lend-listen: carries guest data",
        ),
        (
            &["--lend", "1 GiB", "--lend-listen", "n"],
            "--lend-listen: invalid address \"n\"",
        ),
        (
            &[
                &FLASH[..2],
                &[
                    "--lend-flash-dir",
                    "n",
                    "--lend",
                    "1 KiB",
                    "--lend-listen",
                    "unix:n",
                ],
            ]
            .concat(),
            "--lend: must be at least 1 MiB",
        ),
    ] {
        let said = bench.refused(&[&agent[..], words].concat());
        assert!(said.contains(part), "{said}");
    }
    let out = bench.run(&agent);
    assert_eq!(out.status.code(), Some(2), "--lend is needed");
    let text = CONFIG.replace("CACHE", "1");
    for (lend, part) in [
        (
            "[lend]\nmemory = \"1 KiB\"\nlisten = \"unix:n\"\n",
            "lend.memory",
        ),
        (
            "[lend]\nmemory = \"1 GiB\"\nlisten = \"tcp:192.0.2.7\"\n",
            "lend.listen",
        ),
        (
            "[lend]\nmemory = \"1 GiB\"\nlisten = \"unix:n\"\nflash_dir = \"n\"\n",
            "lend.flash_dir",
        ),
    ] {
        std::fs::write(bench.path().join("live.toml"), format!("{text}{lend}")).unwrap();
        let out = bench.run(&["config", "check", "live.toml"]);
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(!out.status.success(), "{said}");
        assert!(said.contains(part) && said.contains("live.toml:"), "{said}");
    }
}
