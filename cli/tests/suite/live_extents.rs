//! Tiering of extents as an operator runs it: the real binary, two tiers, a guest with a hot fifth, a kill during a
//! move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use datapath::Client;
use serde_json::Value;

use crate::live::{Bench, MIB, RunningServer, wait};

/// Deadline that only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// Number of extents of the volume, of 1 MiB each; every fifth extent is hot.
const EXTENTS: u64 = 60;
const HOT: u64 = 5;
const PAGE: u64 = 4096;
const PAGES: u64 = EXTENTS * MIB / PAGE;

/// Size of the fast tier: enough for the hot fifth and a little more, and far too small for the whole volume.
const FAST: &str = "16 MiB";

/// A season of 100 slots pays for the moves of extents with few requests per slot, as on a busy machine.
const CONFIG: &str = r#"
window = "500ms"
[array]
dir = "terrace-array"
host = "here"
[[tiers]]
name = "fast"
preset = "pm953"
[[tiers]]
name = "slow"
preset = "pm863"
[policy]
monitor_epoch = "1s"
migration_epoch = "2s"
headroom_space = 1.0
copy_bandwidth = "3 MiB/s"
copy_share = 1.0
[strategies.period]
period = "2s"
[strategies.adaptive-period]
slot = "2s"
season = "200s"
"#;

fn bench(strategy: &str) -> Bench {
    let bench = Bench::empty();
    bench.ok(&["tier", "add", "fast", "--dir", "f", "--size", FAST]);
    bench.ok(&["tier", "add", "slow", "--dir", "s", "--size", "256 MiB"]);
    let size = format!("{EXTENTS} MiB");
    bench.ok(&[
        "volume", "create", "data", "--size", &size, "--tier", "slow",
    ]);
    let text = format!("strategy = \"{strategy}\"\n{CONFIG}");
    std::fs::write(bench.path().join("live.toml"), text).unwrap();
    bench
}

fn serve(bench: &Bench) -> RunningServer {
    let running = bench.start(&["serve", "--config", "live.toml"], 3);
    assert_eq!(running.lines[2].trim(), "ready");
    running
}

fn connect(running: &RunningServer) -> Client {
    let uri = running.lines[0]
        .split(' ')
        .nth(2)
        .expect("volume, name, URI");
    Client::connect(&uri.trim().parse().unwrap()).unwrap()
}

/// Returns the content of a page after its `version`th write; zeroes before the first.
fn page_of(page: u64, version: u64) -> Vec<u8> {
    let word = |i: u64| match version {
        0 => 0,
        _ => algo::mix(page << 20 | version, i),
    };
    (0..PAGE / 8).flat_map(|i| word(i).to_le_bytes()).collect()
}

/// Returns the pages of an extent.
fn pages_of(extent: u64) -> std::ops::Range<u64> {
    let pages = MIB / PAGE;
    extent * pages..(extent + 1) * pages
}

/// Writes of a guest: the acknowledged version of each page, and the page whose write is in flight.
struct GuestWrites {
    versions: Vec<u64>,
    under_way: Option<u64>,
}

/// Guest that sends four fifths of its requests to every fifth extent, half of them writes. It runs until it is stopped
/// or its server ends.
struct Guest {
    over: Arc<AtomicBool>,
    thread: JoinHandle<GuestWrites>,
}

impl Guest {
    fn on(running: &RunningServer, mut versions: Vec<u64>) -> Self {
        let mut client = connect(running);
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = std::thread::spawn(move || {
            let mut rng = algo::Rng::new(versions.iter().sum(), 7);
            while !until.load(Ordering::Acquire) {
                let extent = match rng.below(5) {
                    0 => rng.below(EXTENTS),
                    _ => rng.below(EXTENTS / HOT) * HOT,
                };
                let page = extent * (MIB / PAGE) + rng.below(MIB / PAGE);
                let done = match rng.below(2) {
                    0 => client.read(page * PAGE, PAGE as u32).map(|got| {
                        let version = versions[page as usize];
                        assert!(
                            got == page_of(page, version),
                            "page {page} is not as written"
                        );
                    }),
                    _ => {
                        let next = versions[page as usize] + 1;
                        let done = client.write(page * PAGE, &page_of(page, next));
                        if done.is_err() {
                            let under_way = Some(page);
                            return GuestWrites {
                                versions,
                                under_way,
                            };
                        }
                        versions[page as usize] = next;
                        done
                    }
                };
                if done.is_err() {
                    break; // its server was killed
                }
                std::thread::sleep(Duration::from_micros(500));
            }
            let under_way = None;
            GuestWrites {
                versions,
                under_way,
            }
        });
        Self { over, thread }
    }

    fn end(self) -> GuestWrites {
        self.over.store(true, Ordering::Release);
        self.thread.join().expect("what it read was right")
    }
}

/// Checks that every page holds its last acknowledged version. The page whose write was in flight may also hold the
/// next one.
fn check(running: &RunningServer, mut written: GuestWrites) -> Vec<u64> {
    let mut client = connect(running);
    for extent in 0..EXTENTS {
        let all = client.read(extent * MIB, MIB as u32).unwrap();
        for (page, got) in pages_of(extent).zip(all.chunks(PAGE as usize)) {
            let version = &mut written.versions[page as usize];
            if written.under_way == Some(page) && got == page_of(page, *version + 1) {
                *version += 1;
            }
            assert!(
                got == page_of(page, *version),
                "page {page} is not version {version}"
            );
        }
    }
    written.versions
}

/// Returns the current plan once it moves extents to the fast tier.
fn plan_up(bench: &Bench) -> Option<Value> {
    let out = bench.run(&["plan", "-o", "json"]);
    let plan: Value = serde_json::from_slice(&out.stdout).ok()?;
    let up = |m: &Value| m["to_tier"] == "fast" && m["extents"].is_string();
    plan["moves"].as_array()?.iter().any(up).then_some(plan)
}

/// Returns the number of hot extents on the fast tier, and the share of requests that this tier serves.
fn hot_on_fast(bench: &Bench) -> (usize, f64) {
    let heat = bench.json(&["volume", "heat", "data", "--top", "60"]);
    let fast = |h: &Value| h["device"] == "fast-0";
    let hot = |h: &&Value| h["extent"].as_u64().unwrap().is_multiple_of(HOT);
    let hottest = heat["hottest"].as_array().unwrap().iter();
    let there = hottest.filter(hot).filter(|h| fast(h)).count();
    let places = heat["places"].as_array().unwrap().iter();
    let share = places
        .filter(|p| fast(p))
        .map(|p| p["requests_share"].as_f64().unwrap());
    (there, share.sum())
}

fn jobs(bench: &Bench) -> Vec<Value> {
    let jobs = bench.json(&["job", "list"]);
    jobs["jobs"].as_array().unwrap().clone()
}

fn check_hot_extents_move_up(strategy: &str) {
    let bench = bench(strategy);
    let server = serve(&bench);
    let mut client = connect(&server);
    let versions = vec![1; PAGES as usize];
    for extent in 0..EXTENTS {
        let pages = pages_of(extent).map(|page| page_of(page, 1));
        client
            .write(extent * MIB, &pages.collect::<Vec<_>>().concat())
            .unwrap();
    }
    client.flush().unwrap();
    drop(client);
    let guest = Guest::on(&server, versions);

    // In the mode `recommend`, the plan shows its moves and their reasons, and nothing moves.
    let plan = wait(PATIENCE, "a plan", || plan_up(&bench));
    let up = plan["moves"]
        .as_array()
        .unwrap()
        .iter()
        .find(|m| m["to_tier"] == "fast")
        .unwrap();
    assert_eq!(
        (&up["volume"], &up["goal"]),
        (&"data".into(), &"latency".into())
    );
    assert!(
        up["reason"]
            .as_str()
            .unwrap()
            .starts_with("hot enough for the fast tier"),
        "{up}"
    );
    assert_eq!(up["state"]["state"], "proposed", "{up}");
    let text = bench.ok(&["plan", "--explain"]);
    assert!(
        text.contains("extents of data") || text.contains("one extent of data"),
        "{text}"
    );
    let why = bench.ok(&["why", "data"]);
    assert!(why.contains("its extents are placed individually"), "{why}");
    assert!(
        why.contains("slow → fast: hot enough for the fast tier"),
        "{why}"
    );
    assert_eq!(hot_on_fast(&bench).0, 0);
    assert_eq!(jobs(&bench), [] as [Value; 0]);

    // A replay of the recorded facts gives the same decision.
    let generation = plan["generation"].to_string();
    let facts = bench.ok(&["export", "facts", "--plan", &generation]);
    std::fs::write(bench.path().join("facts.toml"), facts).unwrap();
    let again = bench.json(&["sim", "plan", "facts.toml"]);
    let of = |plan: &Value, key: &str| -> Vec<Value> {
        let list = ["moves", "actions"].iter().find_map(|l| plan[l].as_array());
        list.unwrap().iter().map(|m| m[key].clone()).collect()
    };
    assert_eq!(of(&again, "extents"), of(&plan, "extents"));

    bench.ok(&["mode", "latency", "auto"]);
    let copying = wait(PATIENCE, "a copy", || {
        let begun = |j: &&Value| j["state"] == "active" && j["copied_bytes"].as_u64() > Some(0);
        jobs(&bench).iter().find(begun).cloned()
    });
    assert!(copying["extents"].is_string(), "{copying}");
    let moving = bench.show()["moving_extents"].clone();
    server.kill_9();
    let written = guest.end();
    assert_eq!(
        bench.show()["moving_extents"],
        moving,
        "the array remembers what was moving"
    );

    let server = serve(&bench);
    let versions = check(&server, written);
    let guest = Guest::on(&server, versions);
    let hot = (EXTENTS / HOT) as usize;
    wait(PATIENCE, "the hot extents on the fast tier", || {
        let (there, share) = hot_on_fast(&bench);
        (there == hot && share > 0.6).then_some(())
    });
    let done = wait(PATIENCE, "the end of the job that was cut", || {
        let ended = |j: &&Value| j["job"] == copying["job"] && j["ended_ns"].is_u64();
        jobs(&bench).iter().find(ended).cloned()
    });
    assert_eq!(done["state"], "done", "{done}");
    // `why` lists the extents of each tier only between two moves, and later plans may move extents that have cooled.
    wait(PATIENCE, "a list of extents on the fast tier", || {
        let why = bench.ok(&["why", "data"]);
        why.contains("GiB on fast with ").then_some(())
    });
    let written = guest.end();
    check(&server, written);
    assert_eq!(
        bench.show()["home"],
        "slow",
        "what is written first goes where it did before"
    );
    server.stop();
    assert!(bench.ok(&["volume", "check"]).contains("no problem\n"));
}

#[test]
fn hot_extents_move_up_by_period() {
    check_hot_extents_move_up("period");
}

#[test]
fn hot_extents_move_up_by_adaptive_period() {
    check_hot_extents_move_up("adaptive-period");
}

#[test]
fn period_not_a_multiple_of_the_migration_epoch_is_refused() {
    let bench = bench("period");
    let text = std::fs::read_to_string(bench.path().join("live.toml")).unwrap();
    let odd = text.replace("period = \"2s\"", "period = \"3s\"");
    std::fs::write(bench.path().join("live.toml"), odd).unwrap();
    let fault = bench.refused(&["config", "check", "live.toml"]);
    assert_eq!(
        fault,
        "live.toml:20: strategies.period.period: 3s must be a multiple of the migration epoch of 2s: data is placed only when an epoch ends"
    );
}
