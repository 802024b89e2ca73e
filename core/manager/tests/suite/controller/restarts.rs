//! Restarts, store failures and stuck jobs: nothing is executed twice, and nothing is lost.

use std::sync::{Arc, Mutex};

use manager::question::{Answer, Question, Refusal};
use manager::recording::{Entry, Replay, begins};
use manager::service::MessageRefusal;
use manager::service::Service;
use manager::store::memory::Fault;
use manager::view::MoveState;
use manager::wire::{JobProgress, WireRefusal};
use model::Goal;
use model::JobStatus;
use model::Mode;

use super::host::{BASE, Host, WINDOW, volume};
use super::{AUTO, choice, upside_down, with, with_a_job};

#[test]
fn killed_controller_resumes_and_repeats_no_order() {
    let mut host = Host::new(&with(AUTO), upside_down());
    let plan = host.until_plan();
    host.windows(1);
    let job = host.ordered()[0];
    host.progress(
        job,
        JobProgress::Copying {
            copied_bytes: 1,
            left_bytes: 2 << 20,
            rate_bytes_per_s: 1,
        },
    );
    host.windows(1);
    host.restart_controller();
    let lost = host.window();
    assert!(
        matches!(lost, Err(MessageRefusal::Wire(WireRefusal::Register))),
        "{lost:?}"
    );
    host.register();
    host.windows(1);
    assert_eq!(host.ordered()[0], job, "the same job, not another one");
    assert_eq!(host.plan().unwrap().generation, plan.generation);
    host.finish(job, 100);
    host.windows(1);
    assert_eq!(host.job(job).state, JobStatus::Done);
    host.restart_controller();
    host.register();
    host.windows(1);
    assert_eq!(host.job(job).state, JobStatus::Done);
    assert!(!host.ordered().contains(&job));
}

#[test]
fn failing_store_gives_no_orders_and_recovers_unchanged() {
    let mut host = Host::new(&with(AUTO), upside_down());
    host.windows(2);
    host.store.0.borrow_mut().set_fault(Fault::Writes);
    let refused = host.window().err();
    assert!(
        matches!(&refused, Some(MessageRefusal::Unavailable(why)) if why.contains("nothing is decided or ordered")),
        "{refused:?}"
    );
    let status = host.ask(Question::Pause);
    assert!(matches!(status, Err(Refusal::Unavailable(_))), "{status:?}");
    // Reports of agents are still shown, with the reason for the missing orders.
    host.register();
    let seen = host.window().err();
    assert!(
        matches!(seen, Some(MessageRefusal::Unavailable(_))),
        "{seen:?}"
    );
    let status = host.status();
    assert!(
        status.store_failure.is_some() && status.volumes > 0,
        "{status:?}"
    );
    assert!(!status.paused, "what was not committed did not happen");
    host.store.0.borrow_mut().set_fault(Fault::None);
    host.now_ns += 60_000_000_000;
    assert!(!host.status().paused, "nor does it happen later");
    assert_eq!(host.status().store_failure, None);
    host.register();
    host.until_plan();
    host.windows(1);
    assert!(!host.ordered().is_empty());
}

#[test]
fn stuck_job_is_reported_and_cancelled_until_it_ends() {
    let watch = format!("{AUTO}[watch]\nstuck_after = \"5s\"\ngive_up_after = \"10s\"\n");
    let mut host = Host::new(&with(&watch), upside_down());
    host.until_plan();
    host.windows(1);
    let job = host.ordered()[0];
    host.progress(
        job,
        JobProgress::Copying {
            copied_bytes: 1,
            left_bytes: 99,
            rate_bytes_per_s: 1,
        },
    );
    host.windows(8);
    assert!(
        host.status()
            .problems
            .iter()
            .any(|p| p.what.contains("is stuck")),
        "{:?}",
        host.status().problems
    );
    host.windows(6);
    assert_eq!(host.job(job).state, JobStatus::Cancelled);
    let cancels = |h: &Host| {
        h.orders
            .as_ref()
            .unwrap()
            .cancels
            .iter()
            .map(|m| m.job)
            .collect::<Vec<_>>()
    };
    assert_eq!(cancels(&host), [job]);
    host.progress(
        job,
        JobProgress::Failed {
            why: "cancelled".into(),
            copied_bytes: 1,
        },
    );
    host.windows(1);
    assert!(cancels(&host).is_empty());
}

/// Monitor epochs of two windows, migration epochs of four.
const TOO_OLD: u64 = 12 * WINDOW;

#[test]
fn old_plan_starts_no_moves_when_its_host_returns() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    assert!(!plan.moves.is_empty());
    host.now_ns += TOO_OLD;
    let now = host.now();
    host.managed.tick(now);
    host.order(Question::SetMode {
        goal: Goal::Latency,
        mode: Mode::Auto,
    });
    host.register();
    host.windows(1);
    assert!(host.ordered().is_empty(), "its facts are from before");
    let state = &host.plan().unwrap().moves[0].state;
    assert!(
        matches!(state, MoveState::Ended { why } if why == "its plan is too old"),
        "{state:?}"
    );
    host.until_plan();
    host.windows(1);
    assert!(!host.ordered().is_empty(), "a new one begins");
}

#[test]
fn copied_bytes_are_counted_once_across_restarts() {
    let (mut host, job) = with_a_job();
    let copying = JobProgress::Copying {
        copied_bytes: 64,
        left_bytes: 1 << 20,
        rate_bytes_per_s: 1,
    };
    host.progress(job, copying.clone());
    host.windows(2);
    for _ in 0..3 {
        host.restart_controller();
        host.register();
        host.progress(job, copying.clone());
        host.windows(1);
    }
    assert_eq!(host.job(job).copied_bytes, 64);
}

/// An approved job that has not started and is no longer required ends everywhere, and does not remain in the list of
/// jobs.
#[test]
fn superseded_jobs_also_end_in_the_store() {
    let mut host = Host::new(BASE, upside_down());
    let plan = host.until_plan();
    host.order(Question::Pause);
    host.order(Question::Apply(choice(plan.generation, None)));
    let job = plan.moves[0].job.unwrap();
    assert_eq!(host.job(job).state, JobStatus::Waiting);
    // With the new load, no move is required.
    host.volumes[0].ios = 10;
    host.volumes[1].ios = 800;
    host.until_plan();
    host.until_plan();
    let Ok(Answer::Jobs(jobs)) = host.ask(Question::Jobs { limit: 100 }) else {
        panic!("it answers")
    };
    assert!(jobs.iter().all(|j| j.job != job), "{jobs:#?}");
    let stored = manager::store::Store::jobs(&mut host.store, 100).unwrap();
    let row = stored
        .iter()
        .find(|j| j.job == job)
        .expect("it was approved");
    assert_eq!(
        (row.state, row.cause.as_deref(), row.ended_ns.is_some()),
        (JobStatus::Cancelled, Some("superseded"), true)
    );
}

#[test]
fn approved_waiting_moves_are_approved_in_the_next_plan() {
    // One move at a time: the second one waits.
    let one = BASE.replace("hold = 1", "hold = 1\nconcurrent_moves = 1");
    let mut volumes = upside_down();
    volumes.push(volume("second", "slow", "slow-0", 700, 900));
    let mut host = Host::new(&one, volumes);
    let plan = host.until_plan();
    assert!(plan.moves.len() >= 2, "{plan:?}");
    host.order(Question::Apply(choice(plan.generation, None)));
    host.windows(1);
    let first = host.ordered();
    assert_eq!(first.len(), 1);
    let newer = host.until_plan();
    let waiting = newer
        .moves
        .iter()
        .filter(|m| m.state == MoveState::Approved)
        .count();
    assert!(waiting >= 1, "{newer:?}");
}

/// Returns a recording with a restart of the controller.
fn recorded() -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let mut host = Host::new(BASE, upside_down());
    for life in 0..2 {
        if life > 0 {
            host.restart_controller();
        }
        let taken = lines.clone();
        let recorder = move |entry: &Entry| {
            let line = serde_json::to_string(entry).expect("plain data");
            taken.lock().unwrap().push(line);
        };
        host.managed.record(Box::new(recorder)).unwrap();
        host.register();
        host.until_plan();
        host.windows(1);
    }
    let lines = lines.lock().unwrap();
    lines.clone()
}

/// Returns the number of equal plans, and the number of surplus plans.
fn replayed<'a>(lines: impl IntoIterator<Item = &'a String>) -> (usize, usize) {
    let mut replay = Replay::default();
    let made = lines.into_iter().filter_map(|l| replay.line(l).unwrap());
    let same = made.filter(|m| m.same).count();
    (same, replay.surplus())
}

#[test]
fn plan_missing_from_the_recording_is_detected() {
    let lines = recorded();
    let decided = |l: &String| l.contains(r#""entry":"decided""#);
    let plans = lines.iter().filter(|l| decided(l)).count();
    assert_eq!(replayed(&lines), (plans, 0));
    let second = lines.iter().rposition(|l| begins(l)).unwrap();
    let last = lines[..second].iter().rposition(decided).unwrap();
    // The first controller continued after that plan, so the plan was committed.
    assert!(last + 1 < second);
    let without = lines.iter().enumerate().filter(|(i, _)| *i != last);
    assert_eq!(replayed(without.map(|(_, l)| l)), (plans - 1, 1));
    // If the recording ends during the commit of that plan, no plan is missing.
    let cut_off = lines[..last].iter().chain(&lines[second..]);
    assert_eq!(replayed(cut_off), (plans - 1, 0));
}
