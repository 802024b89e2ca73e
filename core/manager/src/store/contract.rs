//! Requirements on every store, as tests that run on any implementation.

use model::{Goal, JobStatus};
use serde_json::json;

use super::{
    Change, DeviceSummary, FlowSummary, HistoryQuery, Store, StoredDecision, StoredWindow,
    TidyResult, VolumeSummary,
};
use crate::view::{EventKind, EventView, JobView, OutcomeView};

/// Runs all tests, each on a new store from `fresh`. Times are within seconds of 0, too early for
/// any retention to remove data.
///
/// # Panics
///
/// If the store violates a requirement.
pub fn check<S: Store>(mut fresh: impl FnMut() -> S) {
    values_are_replaced_removed_and_in_order(&mut fresh());
    windows_come_back_as_they_were(&mut fresh());
    a_window_replaces_one_with_the_same_end(&mut fresh());
    history_is_of_one_volume(&mut fresh());
    decisions_come_back_as_they_were(&mut fresh());
    events_are_read_on_from_a_number(&mut fresh());
    jobs_are_replaced_and_newest_first(&mut fresh());
    outcomes_are_replaced_and_newest_first(&mut fresh());
    a_commit_is_made_in_order(&mut fresh());
    nothing_is_old_yet(&mut fresh());
}

/// Returns a window of `host` with the named volumes. The numbers depend on `at_ns` and the
/// position.
pub fn window(host: &str, at_ns: u64, volumes: &[&str]) -> StoredWindow {
    let flow = |n: u64| FlowSummary {
        ios: n,
        bytes: n * 4096 + n % 3,
        mean_ns: 81_000 + n,
        p50_ns: algo::bucket_value_ns(algo::bucket_of(70_000 + n)),
        p95_ns: algo::bucket_value_ns(algo::bucket_of(200_000 + n)),
        p99_ns: algo::bucket_value_ns(algo::bucket_of(900_000 + n)),
        // Not the midpoint of a bucket: the store must return it exactly, too.
        p999_ns: 1_000_001 + n,
    };
    let volumes = volumes.iter().zip(1u64..).map(|(name, n)| VolumeSummary {
        volume: (*name).to_string(),
        device: format!("d{}", n % 2),
        reads: flow(at_ns % 1000 + n),
        writes: FlowSummary::default(),
        p99_ns: algo::bucket_value_ns(300),
        slo_ns: 0,
        outstanding_milli: n * 17,
    });
    let devices = (0..2).map(|n| DeviceSummary {
        device: format!("d{n}"),
        used_bytes: n << 40,
        reads: n + at_ns,
        writes: u64::MAX - n,
        read_bytes: n * 4096,
        write_bytes: 1,
        utilization_milli: 1000,
    });
    StoredWindow {
        host: host.to_string(),
        at_ns,
        window_ns: 10,
        volumes: volumes.collect(),
        devices: devices.collect(),
    }
}

/// Returns a decision of `host`, with inputs.
pub fn decision(host: &str, generation: u64, at_ns: u64) -> StoredDecision {
    StoredDecision {
        host: host.to_string(),
        generation,
        at_ns,
        strategy: "autotiering".to_string(),
        parameters: json!({"rho": 0.1}),
        seed: u64::MAX - generation,
        facts: json!({"volumes": [{"name": "a", "iops": 1.5e-3}, null]}),
        policy: json!({"classes": {}}),
        state: json!([generation]),
        plan: json!({"moves": []}),
        report: json!({"notes": ["äöü"]}),
    }
}

pub fn event(id: u64, at_ns: u64) -> EventView {
    EventView {
        id,
        at_ns,
        unix_ms: 1_700_000_000_000 + id,
        kind: EventKind::Operator,
        actor: "controller".to_string(),
        host: Some("alpha".to_string()),
        volume: None,
        text: format!("event {id}"),
        failed_io: None,
    }
}

/// Returns a job that was planned at `planned_ns` and ended at `ended_ns`, or is active without it.
pub fn job(host: &str, job: u32, planned_ns: u64, ended_ns: Option<u64>) -> JobView {
    JobView {
        host: host.to_string(),
        job,
        generation: 3,
        volume: "a".to_string(),
        from_tier: "fast".to_string(),
        to_tier: "slow".to_string(),
        from: "d0".to_string(),
        to: "d1".to_string(),
        extents: None,
        goal: Goal::Latency,
        reason: "because".to_string(),
        state: match ended_ns {
            Some(_) => JobStatus::Done,
            None => JobStatus::Active,
        },
        why: None,
        cause: None,
        failed_io: None,
        copied_bytes: 1 << 30,
        bytes: 1 << 31,
        left_bytes: 1 << 30,
        rate_bytes_per_s: 100_000_000,
        before_us: None,
        after_us: None,
        planned_ns,
        started_ns: Some(planned_ns + 1),
        ended_ns,
        eta_ns: None,
        stuck_ns: None,
    }
}

/// Returns the outcome of a move that ended at `ended_ns`.
pub fn outcome(host: &str, job: u32, ended_ns: u64) -> OutcomeView {
    OutcomeView {
        host: host.to_string(),
        job,
        volume: "a".to_string(),
        from_tier: "fast".to_string(),
        to_tier: "slow".to_string(),
        ended_ns,
        before_us: Some(81.3),
        predicted_us: Some(0.1 + 0.2),
        predicted_range_us: None,
        observed_us: None,
        before_iops: Some(1e9),
        predicted_iops: None,
        observed_iops: None,
        error: Some(-0.25),
    }
}

fn put(key: &str, value: &str) -> Change {
    Change::Put {
        key: key.to_string(),
        value: value.to_string(),
    }
}

fn remove(key: &str) -> Change {
    Change::Remove {
        key: key.to_string(),
    }
}

fn values_are_replaced_removed_and_in_order(store: &mut impl Store) {
    assert_eq!(store.values().unwrap(), []);
    let first = [put("b", "1"), put("a/é", "{}"), put("gone", "x")];
    store.commit(&first).unwrap();
    let second = [put("b", "2"), remove("gone"), remove("never")];
    store.commit(&second).unwrap();
    let found = store.values().unwrap();
    let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(found, [("a/é", "{}"), ("b", "2")]);
}

fn windows_come_back_as_they_were(store: &mut impl Store) {
    // Volumes in no particular order, different ones in each window, and more than fit in one part.
    let many: Vec<String> = (0..150).map(|n| format!("v{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let turned: Vec<&str> = many.iter().rev().step_by(3).copied().collect();
    let windows = [
        window("alpha", 10, &many),
        window("alpha", 20, &turned),
        window("alpha", 30, &[]),
        window("alpha", 40, &["d0", "v3"]),
    ];
    for w in &windows {
        store.commit(&[Change::Window(w.clone())]).unwrap();
    }
    let other = window("beta", 20, &["v0"]);
    store.commit(&[Change::Window(other)]).unwrap();
    assert_eq!(store.windows("alpha", 0, u64::MAX).unwrap(), windows);
    assert_eq!(store.windows("alpha", 20, 30).unwrap(), windows[1..3]);
    assert_eq!(store.windows("beta", 0, 100).unwrap().len(), 1);
    assert_eq!(store.windows("gamma", 0, 100).unwrap(), []);
    assert_eq!(store.windows("alpha", 30, 20).unwrap(), []);
}

fn a_window_replaces_one_with_the_same_end(store: &mut impl Store) {
    let (old, new) = (
        window("alpha", 10, &["a", "b"]),
        window("alpha", 10, &["b"]),
    );
    store.commit(&[Change::Window(old)]).unwrap();
    store.commit(&[Change::Window(new.clone())]).unwrap();
    assert_eq!(store.windows("alpha", 0, 100).unwrap(), [new]);
    let gone = HistoryQuery {
        host: "alpha".to_string(),
        volume: "a".to_string(),
        from_ns: 0,
        to_ns: 100,
    };
    assert_eq!(store.history(&gone).unwrap(), []);
}

fn history_is_of_one_volume(store: &mut impl Store) {
    for at_ns in [10, 20, 30] {
        let volumes: &[&str] = if at_ns == 20 { &["b"] } else { &["a", "b"] };
        let changes = ["alpha", "beta"].map(|h| Change::Window(window(h, at_ns, volumes)));
        store.commit(&changes).unwrap();
    }
    let mut ask = |host: &str, volume: &str, from_ns, to_ns| {
        let query = HistoryQuery {
            host: host.to_string(),
            volume: volume.to_string(),
            from_ns,
            to_ns,
        };
        store.history(&query).unwrap()
    };
    let points = ask("alpha", "a", 0, u64::MAX);
    let ends: Vec<u64> = points.iter().map(|p| p.at_ns).collect();
    assert_eq!(ends, [10, 30], "unknown in the second window");
    assert_eq!(points[0].window_ns, 10);
    assert_eq!(
        points[1].summary,
        window("alpha", 30, &["a", "b"]).volumes[0]
    );
    assert_eq!(ask("alpha", "b", 20, 30).len(), 2, "both ends are included");
    assert_eq!(ask("alpha", "b", 30, 20), []);
    assert_eq!(ask("alpha", "never", 0, 100), []);
    assert_eq!(ask("gamma", "a", 0, 100), []);
}

fn decisions_come_back_as_they_were(store: &mut impl Store) {
    assert_eq!(store.decision("alpha", None).unwrap(), None);
    for (host, generation) in [("alpha", 1), ("alpha", 3), ("alpha", 2), ("beta", 9)] {
        let made = decision(host, generation, generation * 10);
        store.commit(&[Change::Decision(Box::new(made))]).unwrap();
    }
    let mut ask = |host, generation| store.decision(host, generation).unwrap();
    assert_eq!(ask("alpha", None), Some(decision("alpha", 3, 30)));
    assert_eq!(ask("alpha", Some(2)), Some(decision("alpha", 2, 20)));
    assert_eq!(ask("alpha", Some(9)), None);
    let mut again = decision("alpha", 2, 40);
    again.plan = json!({"moves": [1]});
    let change = Change::Decision(Box::new(again.clone()));
    store.commit(&[change]).unwrap();
    assert_eq!(store.decision("alpha", Some(2)).unwrap(), Some(again));
}

fn events_are_read_on_from_a_number(store: &mut impl Store) {
    let events: Vec<EventView> = [1, 2, 5, 6].map(|id| event(id, id * 10)).to_vec();
    let changes: Vec<Change> = events.iter().cloned().map(Change::Event).collect();
    store.commit(&changes).unwrap();
    let mut ask = |after, limit| store.events(after, limit).unwrap();
    assert_eq!(ask(None, 100), events);
    assert_eq!(ask(None, 2), events[2..], "the newest, oldest first");
    assert_eq!(ask(Some(0), 3), events[..3]);
    assert_eq!(ask(Some(2), usize::MAX), events[2..]);
    assert_eq!(ask(Some(u64::MAX), 3), []);
    assert_eq!(ask(None, 0), []);
}

fn jobs_are_replaced_and_newest_first(store: &mut impl Store) {
    let jobs = [
        job("alpha", 1, 10, None),
        job("alpha", 2, 10, None),
        job("beta", 2, 10, None),
        job("alpha", 3, 5, None),
    ];
    store
        .commit(&jobs.clone().map(|job| Change::Job(Box::new(job))))
        .unwrap();
    let ended = job("alpha", 1, 10, Some(50));
    store
        .commit(&[Change::Job(Box::new(ended.clone()))])
        .unwrap();
    let found = store.jobs(100).unwrap();
    let wanted = [jobs[2].clone(), jobs[1].clone(), ended, jobs[3].clone()];
    assert_eq!(found, wanted);
    assert_eq!(store.jobs(1).unwrap(), wanted[..1]);
}

fn outcomes_are_replaced_and_newest_first(store: &mut impl Store) {
    let outcomes = [outcome("alpha", 1, 10), outcome("alpha", 2, 30)];
    store
        .commit(&outcomes.clone().map(Change::Outcome))
        .unwrap();
    let mut again = outcome("alpha", 1, 40);
    again.observed_us = Some(90.0);
    store.commit(&[Change::Outcome(again.clone())]).unwrap();
    let wanted = [again, outcomes[1].clone()];
    assert_eq!(store.outcomes(100).unwrap(), wanted);
    assert_eq!(store.outcomes(1).unwrap(), wanted[..1]);
}

fn a_commit_is_made_in_order(store: &mut impl Store) {
    store.commit(&[]).unwrap();
    let changes = [put("a", "1"), remove("a"), put("b", "1"), put("b", "2")];
    store.commit(&changes).unwrap();
    let found = store.values().unwrap();
    assert_eq!(found, [("b".to_string(), "2".to_string())]);
}

fn nothing_is_old_yet(store: &mut impl Store) {
    assert_eq!(store.tidy(0).unwrap(), TidyResult::All);
    let kept = window("alpha", 10, &["a"]);
    let changes = [
        Change::Window(kept.clone()),
        Change::Event(event(1, 10)),
        Change::Job(Box::new(job("alpha", 1, 10, Some(20)))),
    ];
    store.commit(&changes).unwrap();
    assert_eq!(store.tidy(100).unwrap(), TidyResult::All);
    assert_eq!(store.windows("alpha", 0, 100).unwrap(), [kept]);
    assert_eq!(store.events(None, 10).unwrap().len(), 1);
    assert_eq!(store.jobs(10).unwrap().len(), 1);
}
