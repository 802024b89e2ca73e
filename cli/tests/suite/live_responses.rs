//! A violated objective as an operator sees it: the real binary, one emulated disk, a database, and a batch job that
//! uses the whole disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use datapath::Client;
use serde_json::Value;

use crate::live::{Bench, MIB, RunningServer, fill};

/// Deadline that only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(240);

const SIZE_MIB: u64 = 24;
const PAGE: u64 = 4096;

/// Outstanding requests of the batch job: a new request waits for all of them.
const BATCH_DEPTH: u64 = 16;

/// The emulated disk needs 5.6 ms for a request, and about 100 ms for a request behind sixteen others.
const CONFIG: &str = r#"
window = "500ms"
strategy = "noop"
[array]
dir = "terrace-array"
host = "here"
[[classes]]
name = "gold"
latency = "50ms"
statistic = "mean"
[response.workflow]
settle = "2s"
look_again = "2s"
patience = 0.1
[response.workflow.detect]
samples = 4
violating_min = 3
clear_below = 0.5
[response.workflow.release]
samples = 4
cooldown = "5s"
[response.modes]
"#;

fn bench(mode: &str) -> Bench {
    let bench = Bench::empty();
    let size = format!("{SIZE_MIB} MiB");
    let tier = ["tier", "add", "disks", "--dir", "s", "--size", "128 MiB"];
    bench.ok(&[&tier[..], &["--emulate", "disk-15k"]].concat());
    let create = |name: &str, class: &[&str]| {
        let words = ["volume", "create", name, "--size", &size, "--tier", "disks"];
        bench.ok(&[&words[..], class].concat());
    };
    create("orders", &["--class", "gold"]);
    create("batch", &[]);
    let text = format!("{CONFIG}throttle = \"{mode}\"\n");
    std::fs::write(bench.path().join("live.toml"), text).unwrap();
    bench
}

fn connect(running: &RunningServer, name: &str) -> Client {
    let mut lines = running.lines.iter();
    let line = lines.find(|l| l.contains(name)).expect("it is served");
    let uri = line.split(' ').nth(2).expect("volume, name, URI");
    Client::connect(&uri.trim().parse().unwrap()).unwrap()
}

/// Guest that reads at random, with a fixed number of requests in flight, until it is stopped.
struct Guest {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Guest {
    fn on(running: &RunningServer, name: &str, depth: u64, thinks: Duration) -> Self {
        Self::of_pages(running, name, (depth, SIZE_MIB * MIB / PAGE), thinks)
    }

    /// Starts a guest that reads only the first pages of the volume: `depth` is in flight, `pages` is their number.
    fn of_pages(
        running: &RunningServer,
        name: &str,
        (depth, pages): (u64, u64),
        thinks: Duration,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let reader = |n: u64| {
            let (mut client, over) = (connect(running, name), over.clone());
            std::thread::spawn(move || {
                let mut rng = algo::Rng::new(n, 11);
                while !over.load(Ordering::Acquire) {
                    let page = rng.below(pages);
                    client.read(page * PAGE, PAGE as u32).unwrap();
                    std::thread::sleep(thinks);
                }
            })
        };
        let threads = (0..depth).map(reader).collect();
        Self { over, threads }
    }

    fn end(self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads {
            thread.join().expect("what it read was answered");
        }
    }
}

fn serve(bench: &Bench) -> RunningServer {
    let running = bench.start(&["serve", "--config", "live.toml"], 4);
    assert_eq!(running.lines[3].trim(), "ready", "{:?}", running.lines);
    for name in ["orders", "batch"] {
        fill(&mut connect(&running, name), SIZE_MIB);
    }
    running
}

/// Returns the texts of all events about responses to violated objectives.
fn events(bench: &Bench) -> Vec<String> {
    let all = bench.json(&["events", "--limit", "1000"]);
    let all = all["events"].as_array().expect("a list").iter();
    let about = all.filter(|e| e["kind"] == "response");
    about
        .map(|e| e["text"].as_str().expect("a text").to_owned())
        .collect()
}

fn until_said(bench: &Bench, what: &str) {
    let until = Instant::now() + PATIENCE;
    while !events(bench).iter().any(|text| text.contains(what)) {
        let now = || events(bench).join("\n");
        assert!(Instant::now() < until, "nobody says {what:?}:\n{}", now());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn why(bench: &Bench, volume: &str) -> Value {
    bench.json(&["why", volume])
}

#[test]
fn neighbour_is_throttled_while_an_objective_is_violated() {
    let bench = bench("auto");
    let running = serve(&bench);
    let orders = Guest::on(&running, "orders", 1, Duration::from_millis(20));
    let batch = Guest::on(&running, "batch", BATCH_DEPTH, Duration::ZERO);
    until_said(&bench, "orders violates its objective, mean at most 50ms");
    until_said(&bench, "batch: throttled to ");
    let text = events(&bench).join("\n");
    assert!(text.contains("of disks-0, which is saturated"), "{text}");
    assert!(
        text.contains("predicted: utilization of disks-0 "),
        "{text}"
    );
    let limited = why(&bench, "batch");
    let throttle = &limited["volume"]["throttle"];
    assert_eq!(throttle["for_volume"], "orders", "{limited:#}");
    until_said(&bench, "orders meets its objective again");
    let metrics = bench.ok(&["why", "orders"]);
    assert!(metrics.contains("throttle batch to"), "{metrics}");
    batch.end();
    until_said(&bench, "batch: throttle removed");
    let shown = why(&bench, "orders");
    let answers = shown["responses"].as_array().expect("a list");
    // In the first windows the batch job's load may be too small to be identified as the cause.
    let ended = |r: &Value| r["state"] == "taken-back" || r["state"] == "no-remedy";
    let all_ended = answers.iter().all(ended);
    assert!(!answers.is_empty() && all_ended, "{shown:#}");
    // The array receives the end of the limit and removes it.
    let until = Instant::now() + PATIENCE;
    while !why(&bench, "batch")["volume"]["throttle"].is_null() {
        assert!(Instant::now() < until, "it is limited still");
        std::thread::sleep(Duration::from_millis(200));
    }
    orders.end();
    running.stop();
}

#[test]
fn recommended_remedy_is_shown_and_not_applied() {
    let bench = bench("recommend");
    let running = serve(&bench);
    let orders = Guest::on(&running, "orders", 1, Duration::from_millis(20));
    let batch = Guest::on(&running, "batch", BATCH_DEPTH, Duration::ZERO);
    until_said(&bench, "Recommended remedy: throttle batch to ");
    std::thread::sleep(Duration::from_secs(3));
    let text = events(&bench).join("\n");
    assert!(text.contains("the mode of throttle is recommend"), "{text}");
    assert!(!text.contains("batch: throttled to"), "{text}");
    assert!(why(&bench, "batch")["volume"]["throttle"].is_null());
    batch.end();
    until_said(&bench, "no remedy was applied");
    orders.end();
    running.stop();
}

/// Minimum number of reads for a miss-ratio curve, with a margin: one page in eight is sampled.
const READS: u64 = 10_000;

/// The pages of a database are in the cache until a job on the same worker reads all its data once and evicts them one
/// by one.
#[test]
fn cache_share_is_given_to_a_volume_evicted_by_its_neighbour() {
    const SET: u64 = 256;
    let bench = Bench::empty();
    let tier = ["tier", "add", "disks", "--dir", "s", "--size", "128 MiB"];
    bench.ok(&[&tier[..], &["--emulate", "disk-15k"]].concat());
    // Each worker has its own cache: both volumes must belong to the same worker.
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let create = |name: &str, size: &str, class: &[&str]| {
        let words = ["volume", "create", name, "--size", size, "--tier", "disks"];
        bench.ok(&[&words[..], class].concat());
    };
    create("orders", "1 MiB", &["--class", "gold"]);
    for other in 1..workers {
        create(&format!("other-{other}"), "1 MiB", &[]);
    }
    create("batch", &format!("{SIZE_MIB} MiB"), &[]);
    let text = CONFIG
        .replace("50ms", "4ms")
        .replace("patience = 0.1", "patience = 0.01");
    let cache = format!(
        "[array.cache]\nsize = \"{} MiB\"\npage = \"4 KiB\"\n",
        2 * workers
    );
    let text = text.replace("[[classes]]", &format!("{cache}[[classes]]"));
    let modes = "throttle = \"off\"\nmemory-share = \"auto\"\n";
    std::fs::write(bench.path().join("live.toml"), text + modes).unwrap();
    let running = bench.start(&["serve", "--config", "live.toml"], workers + 3);
    assert_eq!(running.lines[workers + 2].trim(), "ready");
    fill(&mut connect(&running, "orders"), 1);
    fill(&mut connect(&running, "batch"), SIZE_MIB);
    let mut client = connect(&running, "orders");
    let mut rng = algo::Rng::new(1, 12);
    for _ in 0..READS {
        client.read(rng.below(SET) * PAGE, PAGE as u32).unwrap();
    }
    let thinks = Duration::from_millis(20);
    let orders = Guest::of_pages(&running, "orders", (1, SET), thinks);
    let batch = Guest::on(&running, "batch", 1, Duration::from_millis(3));
    until_said(&bench, "orders violates its objective, mean at most 4ms");
    until_said(&bench, "of the cache for orders (other volumes");
    until_said(&bench, "of the cache reserved");
    let shown = why(&bench, "orders");
    let answer = &shown["responses"][0];
    assert_eq!(answer["remedy"], "memory-share", "{shown:#}");
    assert!(answer["price_s"].as_f64().is_some_and(|s| s >= 120.0));
    let until = Instant::now() + PATIENCE;
    while !bench
        .ok(&["volume", "show", "orders"])
        .contains("as a remedy for an SLO violation")
    {
        assert!(Instant::now() < until, "it has no part of the cache");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The operator's setting applies later, after the response has ended.
    let set = bench.run(&["volume", "set", "orders", "--cache-part", "256 KiB"]);
    let said = String::from_utf8([set.stdout, set.stderr].concat()).unwrap();
    assert!(
        said.contains("orders will have 256 KiB of the cache"),
        "{said}"
    );
    until_said(&bench, "orders meets its objective again");
    batch.end();
    orders.end();
    running.stop();
}

/// A neighbour uses the whole disk of the database, and another disk is idle.
#[test]
fn volume_moves_to_an_idle_disk_without_data_loss() {
    let bench = bench("off");
    std::fs::create_dir(bench.path().join("t")).unwrap();
    let tier = ["tier", "add", "idle", "--dir", "t", "--size", "128 MiB"];
    bench.ok(&[&tier[..], &["--emulate", "disk-15k"]].concat());
    let path = bench.path().join("live.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text + "move = \"auto\"\n").unwrap();
    let running = serve(&bench);
    let orders = Guest::on(&running, "orders", 1, Duration::from_millis(20));
    let batch = Guest::on(&running, "batch", BATCH_DEPTH, Duration::ZERO);
    until_said(&bench, "orders: move to idle-0");
    until_said(&bench, "orders meets its objective again");
    batch.end();
    orders.end();
    // The objective may be met before the last extents are copied.
    let until = Instant::now() + PATIENCE;
    loop {
        let jobs = bench.json(&["job", "list"]);
        let job = &jobs["jobs"][0];
        assert_eq!(job["volume"], "orders", "{jobs:#}");
        if job["state"] == "done" {
            break;
        }
        assert!(
            job["state"] == "active" && Instant::now() < until,
            "{jobs:#}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    let shown = why(&bench, "orders");
    let answers = shown["responses"].as_array().expect("a list");
    assert!(answers.iter().any(|r| r["state"] == "done"), "{shown:#}");
    let volume = bench.ok(&["volume", "show", "orders"]);
    assert!(volume.contains("idle"), "{volume}");
    crate::live::verify(&mut connect(&running, "orders"), SIZE_MIB);
    running.stop();
}
