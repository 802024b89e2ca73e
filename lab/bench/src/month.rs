//! Size of the store after a simulated month, and time of commits, tidying and queries: `month DAYS VOLUMES FILE`.
//!
//! The month has one host with 12 devices, a window every 10 s, and a decision every 15 minutes with its jobs, outcomes and events. A
//! round of tidying starts every minute and repeats until nothing is left to tidy. These intervals are simulated time; the measured
//! durations are real time.

mod load;
mod plan;

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use manager::store::{Change, HistoryQuery, Store, StoredDecision, TidyResult};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use store::{Retention, SqliteStore};

use crate::BenchResult;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3600 * SECOND_NS;
const WINDOW_NS: u64 = 10 * SECOND_NS;
const WINDOWS_A_DAY: u64 = DAY_NS / WINDOW_NS;
/// Number of windows from one round of tidying to the next.
const TIDY_EVERY: u64 = 6;
const HOST: &str = "alpha";

pub(crate) fn main(args: &[String]) -> BenchResult {
    let [days, volumes, file] = args else {
        return Err(crate::WRONG.into());
    };
    let days: u64 = days.parse().expect("DAYS is a number");
    let volumes: usize = volumes.parse().expect("VOLUMES is a number");
    assert!(days > 0 && volumes > 0, "a day and a volume at least");
    let path = Path::new(file);
    let mut store = SqliteStore::open(path, Retention::default()).expect("the store opens");
    write(&mut store, path, days, volumes);
    drop(store);
    let began = Instant::now();
    let mut store = SqliteStore::open(path, Retention::default()).expect("the store opens again");
    let ms = began.elapsed().as_secs_f64() * 1e3;
    println!("opening it again: {ms:.1} ms");
    ask(&mut store, days);
    drop(store);
    sizes(path);
    Ok(())
}

/// Durations of one kind of call, seconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn measure<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = call();
        self.0.push(began.elapsed().as_secs_f64());
        result
    }

    fn print(&mut self, what: &str) {
        self.0.sort_by(f64::total_cmp);
        let n = self.0.len();
        let at = |share: f64| self.0[((n as f64 * share) as usize).min(n - 1)] * 1e3;
        println!(
            "{what}: {n} calls, median {:.2} ms, p99 {:.2} ms, longest {:.1} ms",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
}

fn write(store: &mut SqliteStore, path: &Path, days: u64, volumes: usize) {
    let (sender, commits) = sync_channel::<Vec<Change>>(32);
    let generator = std::thread::spawn(move || {
        let mut load = load::Loads::new(volumes);
        let mut plans = plan::Plans::new(volumes);
        for n in 1..=days * WINDOWS_A_DAY {
            let mut changes = vec![Change::Window(load.window(n * WINDOW_NS))];
            changes.append(&mut plans.changes(n));
            if sender.send(changes).is_err() {
                return;
            }
        }
    });
    let (mut with_window, mut with_decision) = (Times::default(), Times::default());
    let (mut idle_tidy, mut busy_tidy) = (Times::default(), Times::default());
    let began = Instant::now();
    for (n, changes) in (1..).zip(commits) {
        let decides = changes.iter().any(|c| matches!(c, Change::Decision(_)));
        let times = if decides {
            &mut with_decision
        } else {
            &mut with_window
        };
        times.measure(|| store.commit(&changes).expect("it commits"));
        let mut more = n % TIDY_EVERY == 0;
        while more {
            let mut round = Times::default();
            more =
                round.measure(|| store.tidy(n * WINDOW_NS).expect("it tidies")) == TidyResult::Some;
            let times = if more { &mut busy_tidy } else { &mut idle_tidy };
            times.0.append(&mut round.0);
        }
        if n % WINDOWS_A_DAY == 0 {
            let bytes = std::fs::metadata(path).expect("the file is there").len();
            println!(
                "day {}: {:.0} MiB, {:.0} s",
                n / WINDOWS_A_DAY,
                mib(bytes),
                began.elapsed().as_secs_f64()
            );
        }
    }
    generator.join().expect("the generator ends well");
    with_window.print("commits of a window");
    with_decision.print("commits of a window and a decision");
    idle_tidy.print("tidying with nothing to do");
    if !busy_tidy.0.is_empty() {
        busy_tidy.print("tidying with something to do");
    }
}

fn ask(store: &mut SqliteStore, days: u64) {
    let now_ns = days * DAY_NS;
    for (what, length_ns) in [
        ("an hour", DAY_NS / 24),
        ("a day", DAY_NS),
        ("a week", 7 * DAY_NS),
        ("all of it", now_ns),
    ] {
        let query = HistoryQuery {
            host: HOST.to_string(),
            volume: load::volume_name(17),
            from_ns: now_ns.saturating_sub(length_ns),
            to_ns: now_ns,
        };
        let began = Instant::now();
        let points = store.history(&query).expect("it answers").len();
        let ms = began.elapsed().as_secs_f64() * 1e3;
        println!("history of a volume over {what}: {points} points, {ms:.1} ms");
    }
    let began = Instant::now();
    let hour_ns = DAY_NS / 24;
    let windows = store.windows(HOST, now_ns - hour_ns, now_ns);
    let windows = windows.expect("it answers").len();
    let ms = began.elapsed().as_secs_f64() * 1e3;
    println!("all volumes over an hour: {windows} windows, {ms:.1} ms");
    let began = Instant::now();
    let decision = store.decision(HOST, None).expect("it answers");
    let ms = began.elapsed().as_secs_f64() * 1e3;
    let json = |part: fn(&StoredDecision) -> &Value| {
        decision.as_ref().map_or(0, |d| part(d).to_string().len()) / 1000
    };
    println!(
        "the last decision: {ms:.1} ms; facts of {} KB, a report of {} KB",
        json(|d| &d.facts),
        json(|d| &d.report)
    );
}

fn sizes(path: &Path) {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let conn = Connection::open_with_flags(path, flags).expect("it opens");
    println!("{:<24} {:>9} {:>9}", "table or index", "MiB", "% filled");
    let mut statement = conn
        .prepare(
            "SELECT name, sum(pgsize), sum(unused) FROM dbstat GROUP BY name HAVING sum(pgsize) > 1000000
             ORDER BY 2 DESC",
        )
        .expect("there is dbstat");
    let mut rows = statement.query([]).expect("it answers");
    while let Some(row) = rows.next().expect("it answers") {
        let name: String = row.get_unwrap(0);
        let (bytes, unused): (u64, u64) = (row.get_unwrap(1), row.get_unwrap(2));
        let filled = 100.0 - 100.0 * unused as f64 / bytes as f64;
        println!("{name:<24} {:>9.1} {filled:>9.0}", mib(bytes));
    }
    let number = |sql: &str| -> u64 { conn.query_row(sql, [], |r| r.get(0)).expect("a number") };
    let page = number("PRAGMA page_size");
    let free = number("PRAGMA freelist_count") * page;
    println!("{:<24} {:>9.1}", "free pages", mib(free));
    let per_row = |level: &str| {
        let bytes = number(&format!(
            "SELECT coalesce(sum(length(volumes)), 0) FROM {level}_parts"
        ));
        let rows = number(&format!("SELECT count(*) FROM {level}_windows"));
        println!("{level} windows: {rows}, parts {:.1} MiB", mib(bytes));
    };
    per_row("raw");
    per_row("rolled");
    let all = std::fs::metadata(path).expect("the file is there").len();
    println!("{:<24} {:>9.1}", "the file", mib(all));
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
