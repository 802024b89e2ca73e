//! The job state machine against a driver that answers at random.

use executor::{Action, Executor, Input, JobId, JobState};
use model::{Effect, Move, MoveCost, MoveLimits, Plan, Reason};
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
        reason: Reason::ClassOrder { weight: 1.0 },
        effect: Effect::default(),
        cost: MoveCost {
            bytes: Bytes::mib(4),
            duration: Nanos::from_secs(4),
        },
    }
}

fn plan(generation: u64, moves: Vec<Move>) -> Input {
    Input::Plan(Box::new(Plan {
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
    }))
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
