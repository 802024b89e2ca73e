//! Limits on the memory and the audit entries that agents and callers can use.

use manager::problem::ProblemKind;
use manager::question::{Actor, Question};
use manager::service::{MessageRefusal, Service, TokenTerm};
use manager::store::Store;
use manager::view::EventKind;
use manager::wire::{ArrayProblem, WindowReport, WireRefusal};

use super::host::{BASE, Host, WINDOW};
use super::upside_down;

const DAY_MS: u64 = 86_400_000;

fn events(host: &mut Host) -> Vec<manager::view::EventView> {
    host.store.events(None, 1_000_000).unwrap()
}

#[test]
fn oversized_report_is_accepted_and_its_lines_are_cut() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    let before = events(&mut host).len();
    let mut report = host.report();
    report.seq = 1_000;
    report.problem = (0..5_000)
        .map(|i| format!("{i} {}", "x".repeat(2_000)))
        .collect();
    report.problem[0] = "over\u{202e}turned\u{1b}[31m".into();
    report.problems = (0..3_000)
        .map(|i| ArrayProblem {
            kind: if i == 2_999 {
                "device-lost"
            } else {
                "device-not-direct"
            }
            .into(),
            about: format!("device-{i}"),
            what: "y".repeat(10_000),
        })
        .collect();
    let now = host.now();
    host.managed.report(now, "alpha", report).unwrap();
    let events = events(&mut host);
    let lines: Vec<_> = events[before..]
        .iter()
        .filter(|e| e.kind == EventKind::Host)
        .collect();
    assert_eq!(lines.len(), 33);
    assert_eq!(lines[0].text, "over\\u{202e}turned\\u{1b}[31m");
    assert!(lines[1].text.len() <= 1_024 && lines[1].text.ends_with("… (cut)"));
    assert_eq!(
        lines[32].text,
        "4968 more lines of this report were omitted"
    );
    assert!(events.iter().all(|e| e.text.len() <= 8_192));
    // The most urgent problem is in the shortened list.
    let problems = host.status().problems;
    assert!(problems.iter().any(|t| t.kind == ProblemKind::DeviceLost));
    assert!(
        problems
            .iter()
            .any(|t| t.what.starts_with("1977 more problems"))
    );
}

#[test]
fn events_of_a_flapping_host_are_limited_and_orders_are_not() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    for seq in 0..10 {
        let mut report = host.report();
        report.seq = 1_000 + seq;
        report.problems = (0..900)
            .map(|i| ArrayProblem {
                kind: "device-not-direct".into(),
                about: format!("device-{seq}-{i}"),
                what: "it goes through the page cache".into(),
            })
            .collect();
        host.now_ns += WINDOW;
        let now = host.now();
        host.managed.report(now, "alpha", report).unwrap();
    }
    host.ask(Question::Pause).unwrap();
    let all = events(&mut host);
    let of_host = all.iter().filter(|e| !e.kind.is_audit()).count();
    assert!((2_000..2_100).contains(&of_host), "{of_host}");
    assert!(all.iter().any(|e| e.kind == EventKind::Operator));
    // The number of omitted events is reported once there is room.
    host.now_ns += 60 * WINDOW;
    let mut report = host.report();
    report.seq = 2_000;
    report.problem = vec!["again".into()];
    let now = host.now();
    host.managed.report(now, "alpha", report).unwrap();
    let all = events(&mut host);
    assert!(
        all.iter()
            .any(|e| e.text.contains("events of alpha were omitted"))
    );
}

#[test]
fn name_with_hidden_characters_is_refused() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    let now = host.now();
    for (seq, name) in [
        (1_000, "db\u{202e}nim"),
        (1_001, "a\nb"),
        (1_002, "x".repeat(600).as_str()),
    ] {
        let mut report = host.report();
        report.seq = seq;
        report.volumes[0].name = name.into();
        let refused = host.managed.report(now, "alpha", report);
        let Err(MessageRefusal::Wire(WireRefusal::Nonsense { why })) = refused else {
            panic!("{name:?} was taken");
        };
        assert!(
            why.starts_with("name ") && !why.contains(['\n', '\u{202e}']),
            "{why}"
        );
    }
}

#[test]
fn tokens_that_expire_soon_are_a_problem_until_replaced() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    let now = host.now();
    let term = |name: &str, days: u64| TokenTerm {
        name: name.into(),
        role: "operate".into(),
        expires_ms: Some(now.unix_ms + days * DAY_MS),
    };
    let subjects = |host: &mut Host| -> Vec<String> {
        let all = host.status().problems.into_iter();
        let soon = all.filter(|t| t.kind == ProblemKind::TokenExpires);
        soon.map(|t| t.subject).collect()
    };
    host.managed
        .set_tokens(now, vec![term("alice", 3), term("bob", 30)]);
    assert_eq!(subjects(&mut host), ["token alice"]);
    host.managed.set_tokens(now, vec![term("alice", 0)]);
    let problems = host.status().problems;
    assert!(
        problems
            .iter()
            .any(|t| t.what.contains("alice (role operate) has expired"))
    );
    host.managed.set_tokens(now, vec![]);
    assert!(subjects(&mut host).is_empty());
    host.managed
        .tokens_changed(now, &Actor("root".into()), "tokens: added read x".into());
    host.managed.refused(now, "refused callers".into());
    let all = events(&mut host);
    let last = &all[all.len() - 2..];
    assert_eq!(
        (last[0].kind, last[0].actor.as_str()),
        (EventKind::Access, "root")
    );
    assert_eq!(last[1].kind, EventKind::Refused);
    assert_eq!((last[0].share(), last[1].share()), (None, Some("/refused")));
}

#[test]
fn report_with_too_many_texts_is_refused() {
    let host = Host::new(BASE, upside_down());
    let mut report = host.report();
    report.problem = vec![String::new(); 100_000];
    let text = serde_json::to_string(&report).unwrap();
    assert!(serde_json::from_str::<WindowReport>(&text).is_ok());
    report.problem.push(String::new());
    let text = serde_json::to_string(&report).unwrap();
    let refused = serde_json::from_str::<WindowReport>(&text).unwrap_err();
    assert!(
        refused.to_string().contains("more than 100000"),
        "{refused}"
    );
}
