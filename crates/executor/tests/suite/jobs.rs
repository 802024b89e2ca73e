//! The job state machine against a driver that answers at random.

use executor::{Action, EndCause, Executor, Input, JobId, JobState};
use model::{Effect, Goal, Move, MoveCost, MoveLimits, Plan, Reason};
use proptest::prelude::*;
use units::{Bytes, BytesPerSec, DeviceId, Nanos, VolumeId};

fn order(volume: u32, from: u16, to: u16, after: Vec<u32>) -> Move {
    Move {
        volume: VolumeId(volume),
        from: DeviceId(from),
        to: DeviceId(to),
        size: Bytes::mib(4),
        after,
        bandwidth: BytesPerSec(1 << 20),
        goal: Goal::Latency,
        reason: Reason::ClassOrder { weight: 1.0 },
        effect: Effect::default(),
        cost: MoveCost {
            bytes: Bytes::mib(4),
            duration: Nanos::from_secs(4),
        },
        extents: None,
    }
}

fn plan(generation: u64, moves: Vec<Move>) -> Input {
    Input::Plan(plan_of(generation, moves))
}

fn propose(generation: u64, moves: Vec<Move>) -> Input {
    Input::Propose(plan_of(generation, moves))
}

fn plan_of(generation: u64, moves: Vec<Move>) -> Box<Plan> {
    Box::new(Plan {
        generation,
        parent: generation - 1,
        at: Nanos::ZERO,
        strategy: "test".into(),
        moves,
        calibrations: vec![],
        limits: MoveLimits {
            concurrent: 2,
            concurrent_per_device: 1,
        },
    })
}

fn actions(executor: &mut Executor) -> Vec<Action> {
    std::iter::from_fn(|| executor.poll_action()).collect()
}

#[test]
fn a_move_goes_through_its_states_at_its_rate() {
    let mut ex = Executor::new();
    ex.handle(Nanos::ZERO, plan(1, vec![order(7, 0, 1, vec![])]))
        .unwrap();
    let job = JobId(0);
    assert!(matches!(actions(&mut ex)[..], [Action::Reserve { .. }]));
    ex.handle(Nanos::ZERO, Input::Reserved(job)).unwrap();
    let mut now = Nanos::ZERO;
    for left in (0..4).rev() {
        let [Action::Copy { at, .. }] = actions(&mut ex)[..] else {
            panic!()
        };
        now = at + Nanos::from_millis(1);
        ex.handle(
            now,
            Input::Copied {
                job,
                bytes: Bytes::mib(1),
                remaining: Bytes::mib(left),
            },
        )
        .unwrap();
    }
    assert_eq!(
        now,
        Nanos::from_secs(3) + Nanos::from_millis(1),
        "one MiB a second, whatever a chunk takes"
    );
    assert!(matches!(actions(&mut ex)[..], [Action::Switch { .. }]));
    ex.handle(now, Input::Cancel(job)).unwrap();
    assert!(actions(&mut ex).is_empty(), "too late to cancel");
    ex.handle(now, Input::Switched(job)).unwrap();
    assert!(matches!(actions(&mut ex)[..], [Action::Release { .. }]));
    ex.handle(now, Input::Released(job)).unwrap();
    assert_eq!(ex.job(job).state, JobState::Done { at: now });
}

#[test]
fn a_stale_plan_is_refused_and_a_new_one_drops_what_has_not_started() {
    let mut ex = Executor::new();
    ex.handle(
        Nanos::ZERO,
        plan(5, vec![order(1, 0, 1, vec![]), order(2, 0, 1, vec![])]),
    )
    .unwrap();
    assert_eq!(actions(&mut ex).len(), 1, "one copy per device");
    let refused = ex.handle(Nanos::ZERO, plan(5, vec![])).unwrap_err();
    assert!(refused.to_string().contains("generation 5"), "{refused}");
    ex.handle(Nanos(9), plan(6, vec![])).unwrap();
    assert_eq!(ex.job(JobId(0)).state, JobState::Reserving);
    assert!(matches!(
        ex.job(JobId(1)).state,
        JobState::Cancelled { at: Nanos(9), .. }
    ));
}

#[test]
fn what_needs_the_space_of_a_failed_move_fails_too() {
    let mut ex = Executor::new();
    ex.handle(
        Nanos::ZERO,
        plan(1, vec![order(1, 0, 1, vec![]), order(2, 2, 0, vec![0])]),
    )
    .unwrap();
    ex.handle(Nanos::ZERO, Input::Refused(JobId(0))).unwrap();
    assert!(
        matches!(&ex.job(JobId(1)).state, JobState::Failed { why, .. } if why.contains("free its space"))
    );
}

fn states(executor: &Executor) -> Vec<&JobState> {
    executor.jobs().iter().map(|j| &j.state).collect()
}

/// Carries out everything that the executor wants at once.
fn work_off(ex: &mut Executor, now: Nanos) {
    while let Some(action) = ex.poll_action() {
        let input = match action {
            Action::Reserve { job, .. } => Input::Reserved(job),
            Action::Copy { job, .. } => Input::Copied {
                job,
                bytes: Bytes::mib(4),
                remaining: Bytes::ZERO,
            },
            Action::Switch { job, .. } => Input::Switched(job),
            Action::Release { job, .. } => Input::Released(job),
            Action::Abort { .. } => continue,
        };
        ex.handle(now, input).unwrap();
    }
}

fn stored_and_read(ex: &Executor) -> Executor {
    serde_json::from_str(&serde_json::to_string(ex).unwrap()).unwrap()
}

#[test]
fn a_proposed_move_waits_for_approval_and_what_is_rejected_takes_others_along() {
    let mut ex = Executor::new();
    let moves = vec![
        order(1, 0, 1, vec![]),
        order(2, 2, 3, vec![]),
        order(3, 4, 2, vec![1]),
        order(4, 5, 0, vec![2]),
    ];
    ex.handle(Nanos::ZERO, propose(1, moves)).unwrap();
    assert!(actions(&mut ex).is_empty());
    assert_eq!(states(&ex), [&JobState::Proposed; 4]);
    assert!(!JobState::Proposed.active() && !JobState::Proposed.ended());
    ex.handle(Nanos(1), Input::Approve(JobId(0))).unwrap();
    assert!(matches!(
        actions(&mut ex)[..],
        [Action::Reserve { job: JobId(0), .. }]
    ));
    // An approved one still comes after what frees its space.
    ex.handle(Nanos(2), Input::Approve(JobId(2))).unwrap();
    assert_eq!(ex.job(JobId(2)).state, JobState::Waiting);
    assert!(actions(&mut ex).is_empty());
    let cause = EndCause::Rejected {
        by: "the night watch".into(),
    };
    ex.handle(
        Nanos(3),
        Input::Reject {
            job: JobId(1),
            cause,
        },
    )
    .unwrap();
    for (job, told) in [
        (1, "rejected by the night watch"),
        (2, "was cancelled: rejected by the night watch"),
        (3, "was cancelled: a move"),
    ] {
        let JobState::Cancelled {
            at: Nanos(3), why, ..
        } = &ex.job(JobId(job)).state
        else {
            panic!("{:?}", ex.job(JobId(job)).state);
        };
        assert!(why.contains(told), "{why}");
    }
    // Too late for either: it has started, or is over.
    ex.handle(Nanos(4), Input::Approve(JobId(1))).unwrap();
    let cause = EndCause::PlanTooOld;
    ex.handle(
        Nanos(4),
        Input::Reject {
            job: JobId(0),
            cause,
        },
    )
    .unwrap();
    assert_eq!(ex.job(JobId(0)).state, JobState::Reserving);
    assert!(ex.job(JobId(1)).state.ended());
}

#[test]
fn a_newer_plan_supersedes_what_was_proposed_and_a_stale_proposal_is_refused() {
    let mut ex = Executor::new();
    let moves = vec![order(1, 0, 1, vec![]), order(2, 2, 3, vec![])];
    ex.handle(Nanos::ZERO, propose(3, moves)).unwrap();
    let stale = ex.handle(Nanos(1), propose(3, vec![])).unwrap_err();
    assert_eq!((stale.generation, stale.accepted), (3, 3));
    ex.handle(Nanos(1), Input::Cancel(JobId(0))).unwrap();
    ex.handle(Nanos(2), propose(4, vec![order(2, 2, 3, vec![])]))
        .unwrap();
    let whys: Vec<&str> = ex
        .jobs()
        .iter()
        .filter_map(|j| match &j.state {
            JobState::Cancelled { why, .. } => Some(why.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        whys,
        ["cancelled by the operator", "superseded by a newer plan"]
    );
    assert_eq!(ex.job(JobId(2)).state, JobState::Proposed);
}

#[test]
fn while_paused_nothing_starts_and_what_runs_goes_on() {
    let mut ex = Executor::new();
    let moves = vec![order(1, 0, 1, vec![]), order(2, 0, 1, vec![])];
    ex.handle(Nanos::ZERO, plan(1, moves)).unwrap();
    ex.handle(Nanos(1), Input::Pause).unwrap();
    work_off(&mut ex, Nanos(2));
    assert_eq!(
        states(&ex),
        [&JobState::Done { at: Nanos(2) }, &JobState::Waiting]
    );
    // A restart does not end the pause, and neither does a newer plan or an approval.
    let mut ex = stored_and_read(&ex);
    assert!(ex.paused());
    ex.resume(Nanos(3));
    ex.handle(Nanos(4), propose(2, vec![order(2, 0, 1, vec![])]))
        .unwrap();
    ex.handle(Nanos(5), Input::Approve(JobId(2))).unwrap();
    assert!(actions(&mut ex).is_empty());
    ex.handle(Nanos(6), Input::Resume).unwrap();
    assert!(!ex.paused());
    work_off(&mut ex, Nanos(7));
    assert_eq!(ex.job(JobId(2)).state, JobState::Done { at: Nanos(7) });
}

#[test]
fn ended_jobs_are_forgotten_and_numbers_stay_what_they_are() {
    let mut ex = Executor::new();
    // The third comes after the first; the second stays under way, the first ends at once.
    let moves = vec![
        order(1, 0, 1, vec![]),
        order(2, 2, 3, vec![]),
        order(3, 4, 0, vec![0]),
    ];
    ex.handle(Nanos::ZERO, plan(1, moves)).unwrap();
    for input in [
        Input::Pause,
        Input::Reserved(JobId(0)),
        Input::Copied {
            job: JobId(0),
            bytes: Bytes::mib(4),
            remaining: Bytes::ZERO,
        },
        Input::Switched(JobId(0)),
        Input::Released(JobId(0)),
    ] {
        ex.handle(Nanos(5), input).unwrap();
    }
    actions(&mut ex);
    ex.forget(Nanos(5));
    assert_eq!(ex.jobs().len(), 3, "it ended at 5, not before");
    ex.forget(Nanos(6));
    let mut ex = stored_and_read(&ex);
    assert!(ex.get(JobId(0)).is_none());
    assert_eq!(ex.job(JobId(1)).order.volume, VolumeId(2));
    assert_eq!(ex.get(JobId(2)).map(|j| j.id), Some(JobId(2)));
    assert!(ex.get(JobId(3)).is_none());
    // What comes too late, or names what there never was, changes nothing.
    ex.handle(Nanos(7), Input::Cancel(JobId(0))).unwrap();
    ex.handle(Nanos(7), Input::Approve(JobId(9))).unwrap();
    // The third need not wait for one that is forgotten; new numbers go on from the old ones.
    ex.handle(Nanos(7), Input::Resume).unwrap();
    ex.resume(Nanos(7));
    work_off(&mut ex, Nanos(8));
    let done = JobState::Done { at: Nanos(8) };
    assert_eq!(states(&ex), [&done; 2]);
    ex.handle(
        Nanos(9),
        plan(2, vec![order(4, 0, 1, vec![]), order(5, 2, 0, vec![0])]),
    )
    .unwrap();
    assert_eq!(ex.job(JobId(4)).after, [JobId(3)]);
    ex.forget(Nanos(100));
    assert_eq!(ex.jobs().len(), 2, "what has not ended stays");
    work_off(&mut ex, Nanos(10));
    ex.forget(Nanos(100));
    assert!(ex.jobs().is_empty() && ex.get(JobId(4)).is_none());
}

#[test]
fn a_store_from_before_pauses_and_forgetting_still_reads() {
    let mut ex = Executor::new();
    ex.handle(Nanos::ZERO, plan(1, vec![order(1, 0, 1, vec![])]))
        .unwrap();
    let mut old = serde_json::to_value(&ex).unwrap();
    let fields = old.as_object_mut().unwrap();
    assert!(fields.remove("base").is_some() && fields.remove("paused").is_some());
    let goal = &mut old["jobs"][0]["order"];
    assert!(goal.as_object_mut().unwrap().remove("goal").is_some());
    let back: Executor = serde_json::from_value(old).unwrap();
    assert!(!back.paused());
    assert_eq!(back.jobs(), ex.jobs());
}

/// Whatever state a job is in when the store is read back, it is taken up there.
#[test]
fn every_state_survives_a_restart() {
    let job = JobId(0);
    let proposed = |ex: &mut Executor| {
        ex.handle(Nanos::ZERO, propose(1, vec![order(1, 0, 1, vec![])]))
            .unwrap();
    };
    let copied = Input::Copied {
        job,
        bytes: Bytes::mib(4),
        remaining: Bytes::ZERO,
    };
    let path = [
        Input::Approve(job),
        Input::Reserved(job),
        copied,
        Input::Switched(job),
        Input::Released(job),
    ];
    let wanted = |action: &Action| match action {
        Action::Reserve { .. } => "reserve",
        Action::Copy { .. } => "copy",
        Action::Switch { .. } => "switch",
        Action::Release { .. } => "release",
        Action::Abort { .. } => "abort",
    };
    for (steps, again) in [
        (0, vec![]),
        (1, vec!["reserve"]),
        (2, vec!["copy"]),
        (3, vec!["switch"]),
        (4, vec!["release"]),
        (5, vec![]),
    ] {
        let mut ex = Executor::new();
        proposed(&mut ex);
        for input in &path[..steps] {
            ex.handle(Nanos(1), input.clone()).unwrap();
        }
        let mut back = stored_and_read(&ex);
        assert_eq!(back.jobs(), ex.jobs());
        back.resume(Nanos(2));
        let todo: Vec<&str> = actions(&mut back).iter().map(wanted).collect();
        assert_eq!(todo, again, "after {steps} steps");
        // And goes on from there to its end.
        for input in &path[steps..] {
            back.handle(Nanos(3), input.clone()).unwrap();
        }
        assert!(matches!(back.job(job).state, JobState::Done { .. }));
    }
    // Waiting behind a pause, cancelled and failed: nothing is done again.
    for end in [
        Input::Cancel(job),
        Input::IoError {
            job,
            why: "EIO".into(),
        },
    ] {
        let mut ex = Executor::new();
        proposed(&mut ex);
        for input in path[..2].iter().cloned().chain([end]) {
            ex.handle(Nanos(1), input).unwrap();
        }
        let mut back = stored_and_read(&ex);
        back.resume(Nanos(2));
        assert!(actions(&mut back).is_empty() && back.job(job).state.ended());
    }
    let mut ex = Executor::new();
    ex.handle(Nanos::ZERO, Input::Pause).unwrap();
    proposed(&mut ex);
    ex.handle(Nanos(1), Input::Approve(job)).unwrap();
    let mut back = stored_and_read(&ex);
    back.resume(Nanos(2));
    assert!(actions(&mut back).is_empty());
    assert_eq!(back.job(job).state, JobState::Waiting);
}

proptest! {
    /// Whatever the driver answers, limits hold, every job ends, and a restart in any state ends the same way.
    #[test]
    fn limits_hold_and_every_job_ends(
        moves in prop::collection::vec((0u32..6, 0u16..4, 0u16..4, any::<bool>()), 1..12),
        answers in prop::collection::vec(0u8..12, 600),
    ) {
        let mut ex = Executor::new();
        let mut list = Vec::new();
        for (i, (volume, from, to, dep)) in moves.into_iter().enumerate() {
            if from != to && !list.iter().any(|m: &Move| m.volume == VolumeId(volume)) {
                let after = if dep && !list.is_empty() { vec![(i as u32) % list.len() as u32] } else { vec![] };
                list.push(order(volume, from, to, after));
            }
        }
        let mut now = Nanos::ZERO;
        ex.handle(now, plan(1, list)).unwrap();
        let mut todo: Vec<Action> = Vec::new();
        let mut reserved = std::collections::BTreeSet::new();
        for answer in answers {
            todo.extend(actions(&mut ex));
            let active: Vec<_> = ex.jobs().iter().filter(|j| j.state.active()).collect();
            prop_assert!(active.len() <= 2);
            for d in 0..4 {
                let touching = active.iter().filter(|j| j.order.from == DeviceId(d) || j.order.to == DeviceId(d));
                prop_assert!(touching.count() <= 1, "one copy per device");
            }
            if answer == 11 {
                // A restart: the store has the states, the actions in flight are lost.
                let stored = serde_json::to_string(&ex).unwrap();
                ex = serde_json::from_str(&stored).unwrap();
                todo.clear();
                ex.resume(now);
                continue;
            }
            if todo.is_empty() {
                break;
            }
            let action = todo.remove(0);
            now += Nanos(1);
            let input = match action {
                Action::Reserve { job, .. } if answer == 5 => {
                    // The operator cancels while the answer is on its way.
                    ex.handle(now, Input::Cancel(job)).unwrap();
                    reserved.insert(job);
                    Input::Reserved(job)
                }
                Action::Reserve { job, .. } if answer == 0 => Input::Refused(job),
                Action::Reserve { job, .. } => { reserved.insert(job); Input::Reserved(job) }
                Action::Copy { job, .. } if answer == 1 => Input::IoError { job, why: "EIO".into() },
                Action::Copy { job, .. } if answer == 2 => Input::CopyBlocked { job, retry: now + Nanos(5) },
                Action::Copy { job, .. } if answer == 3 => Input::Cancel(job),
                Action::Copy { job, at, .. } => {
                    now = now.max(at);
                    Input::Copied { job, bytes: Bytes::mib(1), remaining: Bytes::mib(u64::from(answer % 3)) }
                }
                Action::Switch { job, .. } if answer == 4 => Input::IoError { job, why: "EIO".into() },
                Action::Switch { job, .. } => Input::Switched(job),
                Action::Release { job, .. } => { reserved.remove(&job); Input::Released(job) }
                Action::Abort { job, .. } => { prop_assert!(reserved.remove(&job)); continue }
            };
            ex.handle(now, input).unwrap();
        }
        // From here on everything goes well.
        for _ in 0..500 {
            todo.extend(actions(&mut ex));
            if todo.is_empty() { break; }
            let input = match todo.remove(0) {
                Action::Reserve { job, .. } => Input::Reserved(job),
                Action::Copy { job, .. } => Input::Copied { job, bytes: Bytes::mib(1), remaining: Bytes::ZERO },
                Action::Switch { job, .. } => Input::Switched(job),
                Action::Release { job, .. } => Input::Released(job),
                Action::Abort { .. } => continue,
            };
            ex.handle(now, input).unwrap();
        }
        prop_assert!(ex.jobs().iter().all(|j| j.state.ended()), "{:?}", ex.jobs());
    }
}

#[test]
fn causes_are_typed_and_what_was_stored_without_them_is_read() {
    let old = r#"{"state":"cancelled","at":"2ns","why":"superseded by a newer plan"}"#;
    let state: JobState = serde_json::from_str(old).unwrap();
    let JobState::Cancelled { why, cause, .. } = &state else {
        panic!("{state:?}")
    };
    assert_eq!(
        (why.as_str(), cause),
        ("superseded by a newer plan", &EndCause::Unsaid)
    );
    assert!(!state.superseded());
    let mut ex = Executor::new();
    ex.handle(Nanos::ZERO, propose(1, vec![order(1, 0, 1, vec![])]))
        .unwrap();
    ex.handle(Nanos(1), propose(2, vec![])).unwrap();
    let state = &ex.job(JobId(0)).state;
    assert!(state.superseded());
    let kept = serde_json::to_string(state).unwrap();
    assert_eq!(&serde_json::from_str::<JobState>(&kept).unwrap(), state);
}
