//! Reports of agents, and replies to them.

use manager::question::{Answer, Question, Refusal};
use manager::service::{MessageRefusal, Service};
use manager::view::HostState;
use manager::wire::{JobProgress, WireRefusal};
use model::{IoFailure, JobStatus};

use super::host::{BASE, Host, WINDOW};
use super::{AUTO, choice, upside_down, with, with_a_job};

#[test]
fn silent_host_is_unknown_and_its_plan_is_not_applied() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    host.now_ns += 4 * WINDOW;
    let now = host.now();
    host.managed.tick(now);
    let status = host.status();
    assert_eq!(
        (status.hosts[0].state, status.unknown),
        (HostState::Late, 0)
    );
    let applied = host.ask(Question::Apply(choice(plan.generation, None)));
    assert!(
        matches!(&applied, Err(Refusal::Conflict(why)) if why.contains("does not report")),
        "{applied:?}"
    );
    host.now_ns += 60 * WINDOW;
    let now = host.now();
    host.managed.tick(now);
    assert_eq!(host.status().hosts[0].state, HostState::Lost);
    assert!(
        host.status()
            .problems
            .iter()
            .any(|p| p.what.starts_with("host alpha is lost"))
    );
    let Ok(manager::question::Answer::Volumes(volumes)) = host.ask(Question::Volumes) else {
        panic!("it answers")
    };
    assert!(
        volumes.iter().all(|v| v.load.is_none()),
        "what is old is not shown as if it were now"
    );
}

#[test]
fn delayed_report_causes_no_decisions() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.windows(3);
    let before = host.status().hosts[0].generation;
    // The next reports describe a time long ago.
    for _ in 0..6 {
        let mut report = {
            host.now_ns += WINDOW;
            host.report()
        };
        report.as_of_ns = host.now_ns.saturating_sub(30 * WINDOW);
        report.seq = host.now_ns;
        let now = host.now();
        let orders = host.managed.report(now, "alpha", report).unwrap();
        assert!(orders.moves.is_empty() && orders.calibrations.is_empty());
    }
    assert_eq!(host.status().hosts[0].generation, before);
}

#[test]
fn failed_decision_names_its_reason() {
    let mut host = Host::new(BASE, upside_down());
    host.volumes[0].device = "gone-0";
    host.windows(6);
    let status = host.status();
    let problem = status.hosts[0].problem.clone().expect("no such device");
    assert!(
        problem.starts_with("a volume is on device \"gone-0\""),
        "{problem}"
    );
    let said = status.problems.iter().any(|p| p.what.ends_with(&problem));
    assert!(said, "{:?}", status.problems);
}

#[test]
fn invalid_agent_report_is_refused_by_name() {
    let mut host = Host::new(BASE, upside_down());
    let now = host.now();
    let mut twice = host.report();
    twice.seq = 1;
    twice.volumes.push(twice.volumes[0].clone());
    let refused = host.managed.report(now, "alpha", twice);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Nonsense { why })) if why.contains("reported twice")),
        "{refused:?}"
    );
    let mut sums = host.report();
    sums.seq = 1;
    sums.volumes[0].load.as_mut().unwrap().reads.ios += 1;
    let refused = host.managed.report(now, "alpha", sums);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Nonsense { why })) if why.contains("does not match")),
        "{refused:?}"
    );
    let mut other = host.report();
    other.session += 1;
    let refused = host.managed.report(now, "alpha", other);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Register))),
        "{refused:?}"
    );
}

#[test]
fn invalid_reports_are_refused_without_effect() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(1);
    type Spoil = fn(&mut manager::wire::WindowReport);
    let spoils: [Spoil; 5] = [
        |r| r.tiers = (0..70_000).map(|i| i.to_string()).collect(),
        |r| r.tiers.push("fast".into()),
        |r| r.devices[0].size_bytes = 0,
        |r| r.devices[0].emulate.as_mut().unwrap().read_iops = 0.0,
        |r| r.volumes[0].placed[0].bytes = u64::MAX,
    ];
    for spoil in spoils {
        let mut report = host.report();
        report.seq = 1_000;
        spoil(&mut report);
        let now = host.now();
        let refused = host.managed.report(now, "alpha", report);
        assert!(
            matches!(
                refused,
                Err(MessageRefusal::Wire(WireRefusal::Nonsense { .. }))
            ),
            "{refused:?}"
        );
    }
    host.until_plan();
}

#[test]
fn second_agent_of_the_same_name_is_refused() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    let other = manager::wire::Register {
        protocol: manager::wire::PROTOCOL,
        session: 99,
        version: "test".into(),
    };
    let now = host.now();
    let refused = host.managed.register(now, "alpha", other);
    assert!(
        matches!(&refused, Err(MessageRefusal::Wire(WireRefusal::Nonsense { why })) if why.starts_with("another agent reports")),
        "{refused:?}"
    );
    host.windows(1);
}

#[test]
fn agents_get_the_policy_of_the_array() {
    let config = BASE.replacen("[policy]", "[policy]\novercommit_max = 1.5", 1);
    let mut host = Host::new(&config, upside_down());
    let mut register = |session, protocol| {
        let message = manager::wire::Register {
            protocol,
            session,
            version: "test".into(),
        };
        let now = host.now();
        host.managed.register(now, "alpha", message)
    };
    let welcome = register(70, manager::wire::PROTOCOL).unwrap();
    let policy = welcome.policy.unwrap();
    assert_eq!(policy.overcommit_max, 1.5);
    assert!(!policy.classes.is_empty());
    for other in [1, manager::wire::PROTOCOL - 1, manager::wire::PROTOCOL + 1] {
        let refused = register(72, other);
        let is_protocol = |why| matches!(why, MessageRefusal::Wire(WireRefusal::Protocol { theirs }) if theirs == other);
        assert!(refused.is_err_and(is_protocol), "version {other}");
    }
}

#[test]
fn volume_with_a_hanging_device_violates_its_objective() {
    let mut host = Host::new(BASE, upside_down());
    host.windows(2);
    let violated = |host: &mut Host| {
        let Ok(Answer::Volume(v)) = host.ask(Question::Volume {
            volume: "idle".into(),
        }) else {
            panic!("it is known")
        };
        let slo = v.slo.expect("gold has an objective");
        (slo.violated_now, slo.violated, v.load.unwrap().waiting)
    };
    assert_eq!(violated(&mut host), (false, 0, 0));
    // Without completions there are no latencies. Three requests have waited for a window.
    host.volumes[1].ios = 0;
    host.volumes[1].waiting = Some((3, 900_000));
    host.windows(2);
    assert_eq!(violated(&mut host), (true, 2, 3));
    assert_eq!(host.status().slo_violated, 1);
    let Ok(Answer::Counters(counters)) = host.ask(Question::Counters) else {
        panic!("it answers")
    };
    let idle = counters.volumes.iter().find(|v| v.volume == "idle");
    assert_eq!(idle.unwrap().slo_violated_ns, 2 * WINDOW);
    // An idle volume has no violation.
    host.volumes[1].waiting = None;
    host.windows(1);
    assert_eq!(violated(&mut host), (false, 2, 0));
}

#[test]
fn next_job_starts_after_the_reported_end_of_the_previous_one() {
    // One move at a time.
    let rules = "[policy]\nconcurrent_moves = 1\npins = { busy = \"fast\", idle = \"mid\" }";
    let config = with(AUTO).replacen("[policy]", rules, 1);
    let mut host = Host::new(&config, upside_down());
    let plan = host.until_plan();
    assert!(plan.moves.len() >= 2, "{plan:?}");
    host.windows(1);
    let [first] = host.ordered()[..] else {
        panic!("{:?}", host.ordered())
    };
    host.finish(first, 100);
    // Half a window later, no window has ended, so the message has no load.
    let orders = host.tell_of_jobs().expect("it is taken");
    let next: Vec<u32> = orders.moves.iter().map(|m| m.job).collect();
    assert_eq!(next.len(), 1);
    assert_ne!(next, [first]);
    assert_eq!(host.job(first).state, JobStatus::Done);
    // A repetition of the message is outdated; a message of another agent is rejected.
    let again = host.jobs_report();
    let now = host.now();
    let refused = host.managed.jobs_ended(now, "alpha", again.clone());
    assert!(matches!(
        refused,
        Err(MessageRefusal::Wire(WireRefusal::Stale { .. }))
    ));
    let stranger = manager::wire::JobsReport {
        session: 4711,
        seq: 1_000,
        ..again
    };
    let refused = host.managed.jobs_ended(now, "alpha", stranger);
    assert!(matches!(
        refused,
        Err(MessageRefusal::Wire(WireRefusal::Register))
    ));
    host.windows(1);
    assert_eq!(host.ordered(), next, "and it goes on");
}

#[test]
fn invalid_jobs_are_refused_by_field_in_both_messages() {
    let (mut host, job) = with_a_job();
    let failed = |why: String, copied_bytes| JobProgress::Failed { why, copied_bytes };
    let too_large = failed("no space".into(), u64::MAX);
    let left_too_large = JobProgress::Copying {
        copied_bytes: 0,
        left_bytes: u64::MAX,
        rate_bytes_per_s: u64::MAX,
    };
    for (state, field) in [
        (failed("x".repeat(5_000), 0), "why has 5000 bytes"),
        (too_large, "copied_bytes of"),
        (left_too_large, "left_bytes of"),
    ] {
        host.progress(job, state);
        let wanted = format!("job {job}: {field}");
        refused_by_both(&mut host, &wanted);
    }
    let io = |device: String| {
        Some(IoFailure {
            device,
            op: "write".into(),
            errno: "EIO".into(),
        })
    };
    host.progress(job, failed("EIO".into(), 0));
    host.jobs[0].failed_io = io("d".repeat(5_000));
    refused_by_both(&mut host, &format!("job {job}: failed_io has 5008 bytes"));
    host.progress(job, JobProgress::Done { copied_bytes: 1 });
    host.jobs[0].failed_io = io("fast-0".into());
    refused_by_both(&mut host, &format!("job {job}: failed_io of a job"));
    host.jobs = vec![host.jobs[0].clone(); 100_001];
    refused_by_both(&mut host, "100001 jobs, the limit is");
    // None of these jobs had an effect.
    host.jobs.clear();
    host.windows(1);
    assert_eq!(host.job(job).state, JobStatus::Active);
}

fn refused_by_both(host: &mut Host, wanted: &str) {
    let nonsense = |refusal: MessageRefusal| match refusal {
        MessageRefusal::Wire(WireRefusal::Nonsense { why }) => {
            assert!(why.contains(wanted), "{why}")
        }
        other => panic!("{other:?}"),
    };
    nonsense(host.tell_of_jobs().unwrap_err());
    nonsense(host.window().unwrap_err());
}

#[test]
fn failed_io_of_a_job_is_kept_in_its_view_and_event() {
    let (mut host, job) = with_a_job();
    let io = IoFailure {
        device: "fast-0".into(),
        op: "write".into(),
        errno: "EIO".into(),
    };
    let why = "the target failed a write (write on device fast-0: EIO)";
    let copied_bytes = 4096;
    host.progress(
        job,
        JobProgress::Failed {
            why: why.into(),
            copied_bytes,
        },
    );
    host.jobs[0].failed_io = Some(io.clone());
    host.tell_of_jobs().expect("it is taken");
    let view = host.job(job);
    assert_eq!(
        (view.state, view.why.as_deref()),
        (JobStatus::Failed, Some(why))
    );
    assert_eq!(view.cause.as_deref(), Some("failed-io"));
    assert_eq!(view.failed_io.as_ref(), Some(&io));
    // A restart preserves all of this.
    host.restart_controller();
    let again = host.job(job);
    assert_eq!((again.cause, again.failed_io), (view.cause, view.failed_io));
    let events = manager::store::Store::events(&mut host.store, None, 1000).unwrap();
    let event = events
        .iter()
        .find(|e| e.failed_io.is_some())
        .expect("it is told");
    assert!(
        event.text.ends_with(&format!("failed: {why}")),
        "{}",
        event.text
    );
    assert_eq!(event.failed_io.as_ref(), Some(&io));
}
