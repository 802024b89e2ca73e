//! A process that commits and tidies is killed again and again. All acknowledged commits must exist, and none in part.
#![allow(
    clippy::disallowed_methods,
    reason = "it starts processes, and kills them after a while"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use manager::store::contract::{decision, event, job, window};
use manager::store::{Change, FlowSummary, HistoryQuery, Store};
use store::{Retention, SqliteStore};

/// Environment variable with the path of the store; it makes this program the committing process.
const CHILD: &str = "STORE_CRASH_TEST_PATH";

/// Number of times that the committing process runs.
const LIVES: u64 = 24;

/// Time between two windows: three of them are rolled up into one.
const STEP_NS: u64 = 100_000_000_000;

/// Retention with roll-up of windows after 90 newer ones, so that it happens all the time.
fn retention() -> Retention {
    Retention {
        raw: units::Nanos(90 * STEP_NS),
        ..Retention::default()
    }
}

/// Returns all changes of commit `n`.
fn commit_of(n: u64) -> Vec<Change> {
    let names: Vec<String> = (0..70 + n % 50).map(|v| format!("v{v}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut window = window("alpha", n * STEP_NS, &names);
    window.volumes[0].reads = FlowSummary {
        ios: n,
        ..FlowSummary::default()
    };
    vec![
        Change::Put {
            key: "done".to_string(),
            value: n.to_string(),
        },
        Change::Event(event(n, n * STEP_NS)),
        Change::Window(window),
        Change::Job(Box::new(job("alpha", n as u32, n * STEP_NS, None))),
        Change::Decision(Box::new(decision("alpha", n, n * STEP_NS))),
    ]
}

/// Returns the number of the last commit. Checks that it and all earlier ones are complete, and that there is nothing later.
fn last_whole_commit(store: &mut SqliteStore) -> u64 {
    let last = match store.values().unwrap().as_slice() {
        [] => 0,
        [(key, n)] if key == "done" => n.parse().unwrap(),
        other => panic!("{other:?}"),
    };
    let events = store.events(None, usize::MAX).unwrap();
    let ids: Vec<u64> = events.iter().map(|e| e.id).collect();
    assert_eq!(ids, (1..=last).collect::<Vec<_>>());
    let jobs = store.jobs(usize::MAX).unwrap();
    let numbers: Vec<u64> = jobs.iter().rev().map(|j| u64::from(j.job)).collect();
    assert_eq!(numbers, ids);
    let newest = store.decision("alpha", None).unwrap();
    assert_eq!(newest.map_or(0, |d| d.generation), last);
    // Each window exists once: raw or in a rolled-up one.
    let query = HistoryQuery {
        host: "alpha".to_string(),
        volume: "v0".to_string(),
        from_ns: 0,
        to_ns: u64::MAX,
    };
    let history = store.history(&query).unwrap();
    let ios: u64 = history.iter().map(|p| p.summary.reads.ios).sum();
    assert_eq!(ios, last * (last + 1) / 2);
    let raw = store.windows("alpha", 0, u64::MAX).unwrap();
    assert!(raw.iter().all(|w| w.volumes.len() >= 70));
    assert_eq!(raw.last().map_or(0, |w| w.at_ns), last * STEP_NS);
    last
}

/// Runs the committing process; does nothing without the variable.
#[test]
fn child_process_commits_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let mut store = SqliteStore::open(Path::new(&path), retention()).unwrap();
    let mut out = std::io::stdout();
    let first = last_whole_commit(&mut store) + 1;
    writeln!(out, "\nacknowledged {}", first - 1).unwrap();
    for n in first.. {
        store.commit(&commit_of(n)).unwrap();
        writeln!(out, "acknowledged {n}").unwrap();
        out.flush().unwrap();
        store.tidy(n * STEP_NS).unwrap();
    }
}

fn start(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::child_process_commits_until_it_is_killed",
            "--nocapture",
        ])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Lets a process commit for a while and kills it. Returns the last acknowledged commit.
fn live_and_die(path: &Path, life: u64) -> u64 {
    let mut child = start(path);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = lines.filter_map(|line| {
        let n = line.unwrap().strip_prefix("acknowledged ")?.parse().ok();
        Some(n.expect("a number"))
    });
    let mut last: u64 = acknowledged.next().expect("it opens the store");
    // Each run has enough commits for roll-ups, and is killed at another moment.
    for _ in 0..10 {
        last = acknowledged.next().unwrap_or(last);
    }
    let micros = life.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    std::thread::sleep(Duration::from_micros(micros % 150_000));
    child.kill().unwrap();
    child.wait().unwrap();
    acknowledged.last().unwrap_or(last)
}

#[test]
fn acknowledged_commits_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let mut rolled_up = 0;
    for life in 1..=LIVES {
        let acknowledged = live_and_die(&path, life);
        let mut store = SqliteStore::open(&path, retention()).unwrap();
        let found = last_whole_commit(&mut store);
        assert!(
            found == acknowledged || found == acknowledged + 1,
            "life {life}: {acknowledged} acknowledged, {found} found"
        );
        rolled_up = found - store.windows("alpha", 0, u64::MAX).unwrap().len() as u64;
    }
    assert!(
        rolled_up > 100,
        "{rolled_up}: it was not killed while tidying"
    );
}
