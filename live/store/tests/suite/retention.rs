//! Roll-up and deletion.

use manager::store::contract::{decision, event, job, outcome, window};
use manager::store::{
    Change, FlowSummary, HistoryPoint, HistoryQuery, Store, StoredWindow, TidyResult,
};
use manager::view::{EventKind, EventView};
use serde_json::Value;
use store::{ROLLED_WINDOW, Retention, SqliteStore};
use tempfile::TempDir;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

fn new(retention: Retention) -> (SqliteStore, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("store.db"), retention).unwrap();
    (store, dir)
}

/// Tidies until nothing is left to do. Returns the number of rounds with work.
fn tidy(store: &mut SqliteStore, now_ns: u64) -> u32 {
    for round in 0..10_000 {
        if store.tidy(now_ns).unwrap() == TidyResult::All {
            return round;
        }
    }
    panic!("tidying has no end");
}

fn history(store: &mut SqliteStore, host: &str, volume: &str) -> Vec<HistoryPoint> {
    let query = HistoryQuery {
        host: host.to_string(),
        volume: volume.to_string(),
        from_ns: 0,
        to_ns: u64::MAX,
    };
    store.history(&query).unwrap()
}

/// A minute in which one volume has `ios` reads and another one is idle.
fn minute(host: &str, at_ns: u64, ios: u64) -> StoredWindow {
    let mut made = window(host, at_ns, &["a", "idle"]);
    made.window_ns = MINUTE;
    made.volumes[0].reads = FlowSummary {
        ios,
        bytes: ios * 512,
        mean_ns: ios * 1000,
        p50_ns: 8256,
        p95_ns: 8256,
        p99_ns: 8256 * ios,
        p999_ns: 8256 * ios,
    };
    made.volumes[0].outstanding_milli = ios;
    made.volumes[0].device = format!("d{}", at_ns / (5 * MINUTE + 1));
    made.volumes[1].reads = FlowSummary::default();
    made
}

#[test]
fn five_minutes_are_rolled_up_when_all_of_them_are_old() {
    let (mut store, _dir) = new(Retention::default());
    for n in 1..=12 {
        let made = minute("alpha", n * MINUTE, n);
        store.commit(&[Change::Window(made)]).unwrap();
    }
    let raw = Retention::default().raw.0;
    assert_eq!(
        tidy(&mut store, raw + 5 * MINUTE),
        0,
        "as old as that, not older"
    );
    assert_eq!(tidy(&mut store, raw + 5 * MINUTE + 1), 1);
    assert_eq!(store.windows("alpha", 0, u64::MAX).unwrap().len(), 7);
    assert_eq!(
        tidy(&mut store, raw + 11 * MINUTE),
        1,
        "the third is not over"
    );

    let points = history(&mut store, "alpha", "a");
    let ends: Vec<u64> = points.iter().map(|p| p.at_ns / MINUTE).collect();
    assert_eq!(ends, [5, 10, 11, 12]);
    let first = &points[0];
    assert_eq!(first.window_ns, 5 * MINUTE);
    assert_eq!(first.window_ns, ROLLED_WINDOW.0);
    let wanted = FlowSummary {
        ios: 1 + 2 + 3 + 4 + 5,
        bytes: 15 * 512,
        // (1·1 + 2·2 + … + 5·5) ÷ 15 µs, rounded to ns.
        mean_ns: 3667,
        p50_ns: 8256,
        p95_ns: 8256,
        p99_ns: 8256 * 5,
        p999_ns: 8256 * 5,
    };
    assert_eq!(first.summary.reads, wanted);
    assert_eq!(first.summary.outstanding_milli, 3);
    assert_eq!(
        (&*first.summary.device, &*points[1].summary.device),
        ("d0", "d1")
    );
    assert_eq!(
        points[3].summary,
        minute("alpha", 12 * MINUTE, 12).volumes[0]
    );
}

#[test]
fn late_window_is_added_to_its_roll_up() {
    let (mut store, _dir) = new(Retention::default());
    let day_8 = 8 * DAY;
    for n in [2, 4, 5] {
        let made = minute("alpha", n * MINUTE, n);
        store.commit(&[Change::Window(made)]).unwrap();
        tidy(&mut store, day_8);
    }
    let early = minute("alpha", MINUTE, 1);
    let zero = minute("alpha", 0, 7);
    let changes = [Change::Window(early), Change::Window(zero)];
    store.commit(&changes).unwrap();
    tidy(&mut store, day_8);
    let points = history(&mut store, "alpha", "a");
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].at_ns, 5 * MINUTE);
    assert_eq!(points[0].window_ns, 5 * MINUTE);
    assert_eq!(points[0].summary.reads.ios, 19);
}

#[test]
fn volume_unknown_for_some_windows_is_averaged_over_the_others() {
    let (mut store, _dir) = new(Retention::default());
    for n in 1..=5 {
        let mut made = minute("alpha", n * MINUTE, 10);
        if n > 2 {
            made.volumes.remove(0);
        }
        store.commit(&[Change::Window(made)]).unwrap();
    }
    tidy(&mut store, 8 * DAY);
    let points = history(&mut store, "alpha", "a");
    assert_eq!(points.len(), 1);
    assert_eq!(points[0].window_ns, 2 * MINUTE);
    assert_eq!(points[0].summary.reads.ios, 20);
    assert_eq!(
        history(&mut store, "alpha", "idle")[0].window_ns,
        5 * MINUTE
    );
}

#[test]
fn each_host_is_rolled_up_and_forgotten() {
    let (mut store, _dir) = new(Retention::default());
    for n in 1..=200 {
        let changes = ["alpha", "beta"].map(|h| Change::Window(minute(h, n * MINUTE, n)));
        store.commit(&changes).unwrap();
    }
    assert_eq!(
        tidy(&mut store, 8 * DAY),
        80,
        "5 minutes of one host a round"
    );
    for host in ["alpha", "beta"] {
        assert_eq!(store.windows(host, 0, u64::MAX).unwrap(), []);
        assert_eq!(history(&mut store, host, "a").len(), 40);
        let ios: u64 = history(&mut store, host, "a")
            .iter()
            .map(|p| p.summary.reads.ios)
            .sum();
        assert_eq!(ios, (1..=200u64).sum::<u64>());
    }
    let rolled = Retention::default().rolled.0;
    tidy(&mut store, rolled + 100 * MINUTE + 1);
    assert_eq!(history(&mut store, "alpha", "a").len(), 20);
    let rounds = tidy(&mut store, rolled + 300 * MINUTE);
    assert_eq!(history(&mut store, "beta", "a"), []);
    assert!(rounds >= 2, "{rounds}: not all at once");
}

#[test]
fn decisions_lose_their_inputs_first() {
    let (mut store, _dir) = new(Retention::default());
    for generation in 1..=40 {
        let made = decision("alpha", generation, generation * MINUTE);
        store.commit(&[Change::Decision(Box::new(made))]).unwrap();
    }
    let rounds = tidy(&mut store, 7 * DAY + 35 * MINUTE);
    assert_eq!(rounds, 2, "34 of them, 16 a round");
    let mut wanted = decision("alpha", 34, 34 * MINUTE);
    (wanted.facts, wanted.policy, wanted.state) = (Value::Null, Value::Null, Value::Null);
    assert_eq!(store.decision("alpha", Some(34)).unwrap(), Some(wanted));
    let whole = decision("alpha", 35, 35 * MINUTE);
    assert_eq!(store.decision("alpha", Some(35)).unwrap(), Some(whole));
    tidy(&mut store, 90 * DAY + 40 * MINUTE);
    assert_eq!(store.decision("alpha", Some(39)).unwrap(), None);
    let last = store.decision("alpha", None).unwrap().unwrap();
    assert_eq!((last.generation, last.facts), (40, Value::Null));
}

#[test]
fn old_records_are_forgotten_except_running_jobs() {
    let (mut store, _dir) = new(Retention::default());
    let mut changes = Vec::new();
    for n in 1..=1200u32 {
        let at_ns = u64::from(n) * SECOND;
        let ended_ns = (!n.is_multiple_of(400)).then_some(at_ns);
        changes.push(Change::Event(event(at_ns / SECOND, at_ns)));
        changes.push(Change::Job(Box::new(job("alpha", n, at_ns, ended_ns))));
        changes.push(Change::Outcome(outcome("alpha", n, at_ns)));
    }
    store.commit(&changes).unwrap();
    let rounds = tidy(&mut store, 400 * DAY + 1101 * SECOND);
    assert_eq!(rounds, 2, "1100 of each, 500 a round");
    assert_eq!(store.events(None, 9999).unwrap()[0].id, 1101);
    assert_eq!(store.outcomes(9999).unwrap().len(), 100);
    let jobs = store.jobs(9999).unwrap();
    let old: Vec<u32> = jobs.iter().map(|j| j.job).filter(|n| *n <= 1100).collect();
    assert_eq!(old, [800, 400], "they have not ended");
    assert_eq!(jobs.len(), 102);
}

#[test]
fn records_are_limited_in_number() {
    let (mut store, _dir) = new(Retention {
        events_max: 100,
        jobs_max: 50,
        outcomes_max: 25,
        ..Retention::default()
    });
    for n in 1..=300u32 {
        let at_ns = u64::from(n) * SECOND;
        let running = n == 7;
        let changes = [
            Change::Event(event(at_ns / SECOND, at_ns)),
            Change::Job(Box::new(job(
                "alpha",
                n,
                at_ns,
                (!running).then_some(at_ns),
            ))),
            Change::Outcome(outcome("alpha", n, at_ns)),
        ];
        store.commit(&changes).unwrap();
    }
    tidy(&mut store, 301 * SECOND);
    let events = store.events(None, 999).unwrap();
    assert_eq!((events.len(), events[0].id), (100, 201));
    let jobs = store.jobs(999).unwrap();
    assert_eq!(jobs.len(), 51);
    assert_eq!(jobs.last().unwrap().job, 7, "it has not ended");
    assert_eq!(store.outcomes(999).unwrap().len(), 25);
}

#[test]
fn host_events_displace_neither_the_audit_log_nor_other_hosts() {
    let (mut store, _dir) = new(Retention {
        events_max: 1_000,
        share_events_max: 600,
        ..Retention::default()
    });
    let of = |id: u64, kind, host: Option<&str>| {
        Change::Event(EventView {
            kind,
            host: host.map(Into::into),
            ..event(id, id * SECOND)
        })
    };
    let mut changes = vec![];
    for id in 1..=3_000 {
        changes.push(match id {
            1..=100 => of(id, EventKind::Operator, Some("alpha")),
            101..=200 => of(id, EventKind::Access, None),
            201..=400 => of(id, EventKind::Host, Some("quiet")),
            _ if id % 100 == 0 => of(id, EventKind::Refused, None),
            _ => of(id, EventKind::Problem, Some("alpha")),
        });
    }
    store.commit(&changes).unwrap();
    tidy(&mut store, 3_001 * SECOND);
    let events = store.events(None, 9_999).unwrap();
    let count = |kind| events.iter().filter(|e| e.kind == kind).count();
    assert_eq!(count(EventKind::Operator), 100);
    assert_eq!(count(EventKind::Access), 100);
    assert_eq!(count(EventKind::Host), 200);
    assert_eq!(count(EventKind::Refused), 26);
    assert_eq!(count(EventKind::Problem), 1_000 - 426);
    assert_eq!(events.last().unwrap().id, 3_000);
    // Without other events, the number of audit events is limited too, oldest first.
    let audit: Vec<Change> = (3_001..=4_500)
        .map(|id| of(id, EventKind::Approval, Some("alpha")))
        .collect();
    store.commit(&audit).unwrap();
    tidy(&mut store, 4_501 * SECOND);
    let events = store.events(None, 9_999).unwrap();
    assert_eq!((events.len(), events[0].id), (1_000, 3_501));
    assert!(events.iter().all(|e| e.kind == EventKind::Approval));
}

#[test]
fn space_of_forgotten_records_is_reused() {
    let (mut store, dir) = new(Retention::default());
    let volumes: Vec<String> = (0..500).map(|n| format!("v{n}")).collect();
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let mut sizes = Vec::new();
    for day in 0..12 {
        let ends = (1..=48).map(|n| day * DAY + n * 30 * MINUTE);
        let windows = ends.map(|at_ns| Change::Window(window("alpha", at_ns, &volumes)));
        store.commit(&windows.collect::<Vec<_>>()).unwrap();
        // All windows older than a day are deleted.
        tidy(&mut store, 400 * DAY + day * DAY);
        assert!(history(&mut store, "alpha", "v0").len() <= 49);
        let file = std::fs::metadata(dir.path().join("store.db"));
        sizes.push(file.unwrap().len());
    }
    assert!(sizes[11] <= sizes[3] + sizes[3] / 10, "{sizes:?}");
}
