//! Tests of the job state machine against a driver with random answers.

use executor::{End, EndCause, Executor, FailCause, Input, JobId, JobState};
use model::{Action, Cost, Effect, Goal, IoFailure, Move, MoveLimits, Plan, Reason, Terms};
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
        terms: Terms {
            goal: Goal::Latency,
            reason: Reason::pinned(),
            effect: Effect::default(),
            cost: Cost {
                bytes: Bytes::mib(4),
                duration: Nanos::from_secs(4),
            },
        },
        extents: None,
    }
}

fn plan_of(generation: u64, moves: Vec<Move>) -> Box<Plan> {
    Box::new(Plan {
        generation,
        parent: generation - 1,
        at: Nanos::ZERO,
        strategy: "test".into(),
        actions: moves.into_iter().map(Action::Move).collect(),
        limits: MoveLimits {
            concurrent: 2,
            concurrent_per_device: 1,
        },
    })
}

fn propose(generation: u64, moves: Vec<Move>) -> Input {
    Input::Propose(plan_of(generation, moves))
}

/// Proposes a plan and approves all of its moves.
fn carry_out(ex: &mut Executor, now: Nanos, generation: u64, moves: Vec<Move>) {
    let first = ex.next_job().0;
    let count = moves.len() as u32;
    ex.handle(now, propose(generation, moves)).unwrap();
    for job in first..first + count {
        ex.handle(now, Input::Approve(JobId(job))).unwrap();
    }
}

fn active(ex: &Executor) -> Vec<u32> {
    let active = ex.jobs().iter().filter(|j| j.state.active());
    active.map(|j| j.id.0).collect()
}

fn states(executor: &Executor) -> Vec<&'static str> {
    executor
        .jobs()
        .iter()
        .map(|j| j.state.status().name())
        .collect()
}

/// Finishes all active jobs at once, and those that may start after them.
fn work_off(ex: &mut Executor, now: Nanos) {
    while let Some(job) = active(ex).first() {
        ex.handle(now, Input::Done(JobId(*job))).unwrap();
    }
}

fn stored_and_read(ex: &Executor) -> Executor {
    serde_json::from_str(&serde_json::to_string(ex).unwrap()).unwrap()
}

#[test]
fn move_state_changes_are_reported_once() {
    let mut ex = Executor::new();
    let job = JobId(0);
    ex.handle(Nanos::ZERO, propose(1, vec![order(7, 0, 1, vec![])]))
        .unwrap();
    assert_eq!(
        ex.take_changed().into_iter().collect::<Vec<_>>(),
        [(job, None)]
    );
    ex.handle(Nanos(1), Input::Approve(job)).unwrap();
    let was = Some(JobState::Proposed);
    assert_eq!(
        ex.take_changed().into_iter().collect::<Vec<_>>(),
        [(job, was)]
    );
    assert_eq!(ex.job(job).state, JobState::Active);
    for (bytes, copied) in [(2, 2), (5, 5), (3, 5)] {
        let bytes = Bytes::mib(bytes);
        ex.handle(Nanos(2), Input::Copied { job, bytes }).unwrap();
        assert_eq!(ex.job(job).copied, Bytes::mib(copied), "it never falls");
    }
    assert!(ex.take_changed().is_empty(), "progress is no new state");
    ex.handle(Nanos(3), Input::Done(job)).unwrap();
    let (at, end) = (Nanos(3), End::Done);
    assert_eq!(ex.job(job).state, JobState::Ended { at, end });
    assert_eq!(ex.job(job).started, Some(Nanos(1)));
    let was = Some(JobState::Active);
    assert_eq!(
        ex.take_changed().into_iter().collect::<Vec<_>>(),
        [(job, was)]
    );
    // Later inputs for it are ignored.
    let cause = FailCause::of_host("EIO".into(), None);
    for late in [
        Input::Failed { job, cause },
        Input::Cancel(job),
        Input::Approve(job),
        Input::Done(job),
        Input::Copied {
            job,
            bytes: Bytes::gib(1),
        },
    ] {
        ex.handle(Nanos(4), late).unwrap();
    }
    assert!(ex.take_changed().is_empty());
    assert_eq!(ex.job(job).copied, Bytes::mib(5));
}

#[test]
fn job_that_returns_to_its_state_is_not_reported_as_changed() {
    let mut ex = Executor::new();
    ex.handle(Nanos::ZERO, Input::Pause).unwrap();
    ex.handle(Nanos::ZERO, propose(1, vec![order(7, 0, 1, vec![])]))
        .unwrap();
    ex.take_changed();
    ex.handle(Nanos(1), Input::Approve(JobId(0))).unwrap();
    ex.handle(Nanos(1), Input::Withdraw(JobId(0))).unwrap();
    assert!(ex.take_changed().is_empty());
}

#[test]
fn stale_plan_is_refused_and_a_new_one_drops_waiting_jobs() {
    let mut ex = Executor::new();
    let moves = vec![order(1, 0, 1, vec![]), order(2, 0, 1, vec![])];
    carry_out(&mut ex, Nanos::ZERO, 5, moves);
    assert_eq!(active(&ex), [0], "one copy per device");
    let refused = ex.handle(Nanos::ZERO, propose(5, vec![])).unwrap_err();
    assert!(refused.to_string().contains("generation 5"), "{refused}");
    ex.handle(Nanos(9), propose(6, vec![])).unwrap();
    assert_eq!(ex.job(JobId(0)).state, JobState::Active);
    let end = End::Cancelled(EndCause::Superseded);
    let superseded = JobState::Ended { at: Nanos(9), end };
    assert_eq!(ex.job(JobId(1)).state, superseded);
    assert!(superseded.superseded() && !ex.job(JobId(0)).state.superseded());
}

#[test]
fn move_that_needs_space_of_a_failed_move_fails() {
    let mut ex = Executor::new();
    let moves = vec![order(1, 0, 1, vec![]), order(2, 2, 0, vec![0])];
    carry_out(&mut ex, Nanos::ZERO, 1, moves);
    let io = IoFailure {
        device: "fast-0".into(),
        op: "write".into(),
        errno: "EIO".into(),
    };
    let job = JobId(0);
    let cause = FailCause::of_host("the target failed a write".into(), Some(io.clone()));
    ex.handle(Nanos::ZERO, Input::Failed { job, cause })
        .unwrap();
    let end = |job| ex.job(JobId(job)).state.end().unwrap();
    assert_eq!(end(0).why().unwrap(), "the target failed a write");
    assert_eq!(end(0).cause(), Some("failed-io"));
    assert_eq!(end(0).failed_io(), Some(&io));
    assert_eq!(
        end(1).why().unwrap(),
        "the move that should have freed its space failed"
    );
    assert_eq!(end(1).cause(), Some("space-not-freed"));
    assert_eq!(end(1).failed_io(), None);
}

#[test]
fn proposed_move_waits_for_approval_and_rejection_cascades() {
    let mut ex = Executor::new();
    let moves = vec![
        order(1, 0, 1, vec![]),
        order(2, 2, 3, vec![]),
        order(3, 4, 2, vec![1]),
        order(4, 5, 0, vec![2]),
    ];
    ex.handle(Nanos::ZERO, propose(1, moves)).unwrap();
    assert_eq!(states(&ex), ["proposed"; 4]);
    ex.handle(Nanos(1), Input::Approve(JobId(0))).unwrap();
    assert_eq!(active(&ex), [0]);
    // An approved move still waits for the move that frees its space.
    ex.handle(Nanos(2), Input::Approve(JobId(2))).unwrap();
    assert_eq!(states(&ex), ["active", "proposed", "waiting", "proposed"]);
    let cause = EndCause::Rejected {
        by: "the night watch".into(),
    };
    let job = JobId(1);
    ex.handle(Nanos(3), Input::Reject { job, cause }).unwrap();
    for (job, words) in [
        (1, "rejected by the night watch"),
        (2, "was cancelled: rejected by the night watch"),
        (3, "was cancelled: the move"),
    ] {
        let JobState::Ended { at: Nanos(3), end } = &ex.job(JobId(job)).state else {
            panic!("{:?}", ex.job(JobId(job)).state);
        };
        let why = end.why().unwrap();
        assert!(why.contains(words), "{why}");
    }
    // Too late for both: one has started, the other has ended.
    ex.handle(Nanos(4), Input::Approve(JobId(1))).unwrap();
    let (job, cause) = (JobId(0), EndCause::PlanTooOld);
    ex.handle(Nanos(4), Input::Reject { job, cause }).unwrap();
    assert_eq!(states(&ex)[..2], ["active", "cancelled"]);
}

#[test]
fn newer_plan_supersedes_proposals_and_a_stale_one_is_refused() {
    let mut ex = Executor::new();
    let moves = vec![order(1, 0, 1, vec![]), order(2, 2, 3, vec![])];
    ex.handle(Nanos::ZERO, propose(3, moves)).unwrap();
    let stale = ex.handle(Nanos(1), propose(3, vec![])).unwrap_err();
    assert_eq!((stale.generation, stale.accepted), (3, 3));
    ex.handle(Nanos(1), Input::Cancel(JobId(0))).unwrap();
    ex.handle(Nanos(2), propose(4, vec![order(2, 2, 3, vec![])]))
        .unwrap();
    let ends: Vec<Option<&End>> = ex.jobs().iter().map(|j| j.state.end()).collect();
    assert_eq!(
        ends,
        [
            Some(&End::Cancelled(EndCause::GivenUp)),
            Some(&End::Cancelled(EndCause::Superseded)),
            None
        ]
    );
}

#[test]
fn pause_stops_new_moves_and_running_ones_continue() {
    let mut ex = Executor::new();
    let moves = vec![order(1, 0, 1, vec![]), order(2, 0, 1, vec![])];
    carry_out(&mut ex, Nanos::ZERO, 1, moves);
    ex.handle(Nanos(1), Input::Pause).unwrap();
    work_off(&mut ex, Nanos(2));
    assert_eq!(states(&ex), ["done", "waiting"]);
    // A restart does not end the pause, and neither does a newer plan or an approval.
    let mut ex = stored_and_read(&ex);
    assert!(ex.paused());
    carry_out(&mut ex, Nanos(4), 2, vec![order(2, 0, 1, vec![])]);
    assert!(active(&ex).is_empty());
    ex.handle(Nanos(6), Input::Resume).unwrap();
    assert!(!ex.paused());
    work_off(&mut ex, Nanos(7));
    assert_eq!(states(&ex), ["done", "cancelled", "done"]);
}

#[test]
fn ended_jobs_are_forgotten_and_numbers_are_unchanged() {
    let mut ex = Executor::new();
    // The third waits for the first; the second stays active, the first ends at once.
    let moves = vec![
        order(1, 0, 1, vec![]),
        order(2, 2, 3, vec![]),
        order(3, 4, 0, vec![0]),
    ];
    carry_out(&mut ex, Nanos::ZERO, 1, moves);
    ex.handle(Nanos(5), Input::Pause).unwrap();
    ex.handle(Nanos(5), Input::Done(JobId(0))).unwrap();
    ex.forget(Nanos(5));
    assert_eq!(ex.jobs().len(), 3, "it ended at 5, not before");
    ex.forget(Nanos(6));
    let mut ex = stored_and_read(&ex);
    assert!(ex.get(JobId(0)).is_none());
    assert_eq!(ex.job(JobId(1)).order.volume, VolumeId(2));
    assert_eq!(ex.get(JobId(2)).map(|j| j.id), Some(JobId(2)));
    assert!(ex.get(JobId(3)).is_none());
    // Late inputs and inputs for unknown jobs have no effect.
    ex.handle(Nanos(7), Input::Cancel(JobId(0))).unwrap();
    ex.handle(Nanos(7), Input::Approve(JobId(9))).unwrap();
    // The third need not wait for a forgotten job; new numbers continue from the old ones.
    ex.handle(Nanos(7), Input::Resume).unwrap();
    work_off(&mut ex, Nanos(8));
    assert_eq!(states(&ex), ["done"; 2]);
    let moves = vec![order(4, 0, 1, vec![]), order(5, 2, 0, vec![0])];
    carry_out(&mut ex, Nanos(9), 2, moves);
    assert_eq!(ex.job(JobId(4)).after, [JobId(3)]);
    ex.forget(Nanos(100));
    assert_eq!(ex.jobs().len(), 2, "what has not ended stays");
    work_off(&mut ex, Nanos(10));
    ex.forget(Nanos(100));
    assert!(ex.jobs().is_empty() && ex.get(JobId(4)).is_none());
}

#[test]
fn job_ends_survive_a_restart_with_their_names() {
    let causes = [
        EndCause::Superseded,
        EndCause::Rejected { by: "me".into() },
        EndCause::PlanTooOld,
        EndCause::TierClosed,
        EndCause::Pinned,
        EndCause::GivenUp,
        EndCause::SpaceNotFreed { why: "x".into() },
    ];
    let cancelled = causes.into_iter().map(End::Cancelled);
    let io = IoFailure {
        device: "d".into(),
        op: "read".into(),
        errno: "EIO".into(),
    };
    let failed = [
        FailCause::of_host("EIO".into(), Some(io)),
        FailCause::of_host("no space".into(), None),
        FailCause::SpaceNotFreed,
    ];
    let failed = failed.into_iter().map(End::Failed);
    for end in cancelled.chain(failed).chain([End::Done]) {
        let state = JobState::Ended { at: Nanos(7), end };
        let kept = serde_json::to_value(&state).unwrap();
        assert_eq!(kept["state"], state.status().name());
        assert_eq!(serde_json::from_value::<JobState>(kept).unwrap(), state);
    }
}

proptest! {
    /// For any reports of hosts and operators: limits hold, every job ends, and a restart in any state gives the same end.
    #[test]
    fn limits_are_respected_and_all_jobs_end(
        moves in prop::collection::vec((0u32..6, 0u16..4, 0u16..4, any::<bool>()), 1..12),
        answers in prop::collection::vec((0u8..12, 0usize..4), 60),
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
        carry_out(&mut ex, now, 1, list);
        let mut known: Vec<JobState> = Vec::new();
        for (answer, which) in answers {
            now += Nanos(1);
            // The reported changes are exactly the changes.
            let changed = ex.take_changed();
            known.resize(ex.jobs().len(), JobState::Proposed);
            for (i, job) in ex.jobs().iter().enumerate() {
                prop_assert!(changed.contains_key(&job.id) || known[i] == job.state);
                known[i] = job.state.clone();
            }
            let running: Vec<_> = ex.jobs().iter().filter(|j| j.state.active()).collect();
            prop_assert!(running.len() <= 2);
            for d in 0..4 {
                let touching = running.iter().filter(|j| j.order.from == DeviceId(d) || j.order.to == DeviceId(d));
                prop_assert!(touching.count() <= 1, "one copy per device");
            }
            if answer == 11 {
                ex = stored_and_read(&ex);
                continue;
            }
            let running = active(&ex);
            let Some(job) = running.get(which % running.len().max(1)) else { break };
            let job = JobId(*job);
            ex.handle(now, match answer {
                0 => Input::Failed { job, cause: FailCause::of_host("EIO".into(), None) },
                1 => Input::Cancel(job),
                2 => Input::Withdraw(job),
                3 => Input::Pause,
                4 | 5 => Input::Resume,
                6 | 7 => Input::Copied { job, bytes: Bytes::mib(1) },
                _ => Input::Done(job),
            }).unwrap();
        }
        // From here on, all jobs succeed.
        ex.handle(now, Input::Resume).unwrap();
        for job in 0..ex.jobs().len() as u32 {
            ex.handle(now, Input::Approve(JobId(job))).unwrap();
        }
        work_off(&mut ex, now);
        prop_assert!(ex.jobs().iter().all(|j| j.state.ended()), "{:?}", ex.jobs());
    }
}
