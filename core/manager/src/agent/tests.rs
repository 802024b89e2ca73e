//! Tests of one agent with hand-made snapshots and orders.

mod appliances;
mod extents;
mod lending;
mod remedies;
mod sessions;

use model::{
    CalibrationStep, ClassObjective, ExtentHeat, ExtentPlaces, ExtentRanges, IoFailure,
    LeaseHolder, Objective, SloStatistic,
};
use units::{DeviceId, Nanos};

use super::*;
use crate::wire::{DeviceIoCounts, JobProgress, Load, LoadOf, MovingWindow, Placed, ThrottleOrder};

const SECOND: u64 = 1_000_000_000;

fn volume(device: &str, moving: Option<&str>) -> VolumeSnapshot {
    VolumeSnapshot {
        name: "data".into(),
        class: "gold".into(),
        size_bytes: 100,
        home: if moving.is_some() { "fast" } else { device }.into(),
        placed: vec![Placed {
            device: device.into(),
            bytes: 100,
        }],
        movable: true,
        bound: None,
        by_hand: None,
        throttle: None,
        moving: moving.map(|to| MovingWindow {
            device: to.into(),
            copied_bytes: 10,
            left_bytes: 90,
            rate_bytes_per_s: 1,
            extents: None,
        }),
        last_move: None,
        counts: Some(Counts {
            sample: None,
            since_ns: 1,
            total: Load::default(),
        }),
        cache: None,
        can_mirror: false,
        mirror: None,
        reuse: None,
        extents: None,
        node: None,
    }
}

/// Volume with extents of ten bytes: their places, and reads and writes of those with requests.
fn looked_at(
    places: &str,
    turn: u32,
    touched: &[(u32, [u32; 2])],
    v: VolumeSnapshot,
) -> VolumeSnapshot {
    VolumeSnapshot {
        extents: Some(ExtentsSnapshot {
            extent_bytes: 10,
            places: places.to_string().try_into().unwrap(),
            heat: Some(HeatSnapshot {
                at: HeatCursor { since_ns: 9, turn },
                touched: touched.to_vec(),
            }),
        }),
        ..v
    }
}

fn snapshot(volumes: Vec<VolumeSnapshot>) -> Snapshot {
    let device = |name: &str| DeviceSnapshot {
        name: name.into(),
        tier: name.into(),
        size_bytes: 1000,
        used_bytes: 100,
        emulate: None,
        connected: true,
        place: None,
        since_ns: 1,
        io: DeviceIoCounts::default(),
        errors: vec![],
        node: None,
    };
    Snapshot {
        tiers: vec!["fast".into(), "slow".into()],
        devices: vec![device("fast"), device("slow")],
        volumes,
        problems: vec![],
        second: None,
    }
}

/// Lease of an array that a controller holds.
fn lease(id: ControllerId) -> LeaseStatus {
    let name = "controller.sock".into();
    LeaseStatus {
        holder: LeaseHolder { id, name },
        left_ns: 3 * SECOND,
        refused: None,
    }
}

/// Registered agent with windows of one second, at the time of its first report.
fn registered(volumes: Vec<VolumeSnapshot>) -> Agent {
    let mut agent = Agent::new(7, "test");
    agent.beat(0, snapshot(volumes.clone()));
    assert!(matches!(agent.poll_message(), Some(Message::Register(_))));
    let objective = ClassObjective {
        class: "gold".into(),
        objective: Objective {
            statistic: SloStatistic::P99,
            latency: Nanos(2_000_000),
        },
    };
    agent.welcomed(
        0,
        Welcome {
            protocol: PROTOCOL,
            at_ns: 500 * SECOND,
            window_ns: SECOND,
            objectives: vec![objective],
            policy: None,
            detail: Detail::Volumes,
        },
    );
    agent.claimed(Ok::<_, String>(lease(ControllerId::default())));
    agent.beat(0, snapshot(volumes.clone()));
    agent.beat(SECOND, snapshot(volumes));
    assert!(matches!(agent.poll_message(), Some(Message::Report(_))));
    agent
}

fn order() -> MoveOrder {
    MoveOrder {
        job: 3,
        volume: "data".into(),
        device: "fast".into(),
        tier: "fast".into(),
        extents: None,
        rate_bytes_per_s: 1,
    }
}

fn orders(agent: &Agent, moves: Vec<MoveOrder>) -> Orders {
    Orders {
        session: 7,
        seq: agent.seq,
        controller: ControllerId::default(),
        at_ns: 501 * SECOND,
        lease_ns: 3 * SECOND,
        moves,
        cancels: vec![],
        calibrations: vec![],
        calibrations_taken: vec![],
        remedies: crate::wire::Remedies::default(),
        throttles: vec![],
        objectives: agent.objectives.clone(),
        policy: None,
        detail: agent.detail,
    }
}

fn report(agent: &mut Agent) -> WindowReport {
    match agent.poll_message() {
        Some(Message::Report(report)) => *report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn controller_time_advances_with_the_agent_and_is_never_ahead() {
    let mut agent = registered(vec![volume("slow", None)]);
    // The reply arrived two seconds after the report was sent.
    agent.ordered(3 * SECOND, SECOND, orders(&agent, vec![]));
    agent.beat(4 * SECOND, snapshot(vec![volume("slow", None)]));
    assert_eq!(report(&mut agent).as_of_ns, 502 * SECOND);
}

#[test]
fn objectives_are_valid_as_long_as_the_orders() {
    let mut agent = registered(vec![volume("slow", None)]);
    let until_ns = |agent: &Agent| agent.objectives().1;
    assert_eq!(until_ns(&agent), 0, "nothing was ordered yet");
    agent.ordered(2 * SECOND, SECOND, orders(&agent, vec![]));
    assert_eq!(agent.objectives().0[0].class, "gold");
    assert_eq!(until_ns(&agent), 4 * SECOND, "counted from the report");
    agent.refused(&WireRefusal::Register);
    assert_eq!(until_ns(&agent), 0);
}

#[test]
fn move_is_started_once_followed_and_completed() {
    let mut agent = registered(vec![volume("slow", None)]);
    agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
    agent.beat(SECOND + 1, snapshot(vec![volume("slow", None)]));
    let action = agent.poll_action().expect("it begins");
    assert_eq!(action, AgentAction::StartMove(order()));
    agent.done(&action, Ok(()));
    agent.beat(2 * SECOND, snapshot(vec![volume("slow", Some("fast"))]));
    assert_eq!(agent.poll_action(), None);
    let state = report(&mut agent).jobs[0].state.clone();
    assert!(
        matches!(state, JobProgress::Copying { left_bytes: 90, .. }),
        "{state:?}"
    );
    agent.beat(3 * SECOND, snapshot(vec![volume("fast", None)]));
    assert!(matches!(
        report(&mut agent).jobs[0].state,
        JobProgress::Done { copied_bytes: 10 }
    ));
    assert_eq!(agent.poll_action(), None);
}

#[test]
fn ended_job_is_reported_at_once_and_once() {
    let mut agent = registered(vec![volume("slow", None)]);
    agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
    agent.beat(SECOND + 1, snapshot(vec![volume("slow", None)]));
    agent.poll_action().expect("it begins");
    agent.beat(SECOND + 2, snapshot(vec![volume("slow", Some("fast"))]));
    assert_eq!(agent.poll_message(), None);
    // Within a window.
    agent.beat(SECOND + 3, snapshot(vec![volume("fast", None)]));
    let Some(Message::JobsEnded(message)) = agent.poll_message() else {
        panic!("it has ended")
    };
    assert!(matches!(
        message.jobs[..],
        [JobWindow {
            job: 3,
            state: JobProgress::Done { .. },
            ..
        }]
    ));
    assert_eq!(message.seq, agent.seq);
    agent.beat(SECOND + 4, snapshot(vec![volume("fast", None)]));
    assert_eq!(agent.poll_message(), None);
    // If this message is lost, the report repeats it.
    agent.beat(2 * SECOND, snapshot(vec![volume("fast", None)]));
    let window = report(&mut agent);
    assert_eq!((window.seq, window.jobs.len()), (message.seq + 1, 1));
    // Its reply may arrive after that of the report, and is outdated then.
    let late = Orders {
        seq: message.seq,
        ..orders(&agent, vec![order()])
    };
    agent.ordered(2 * SECOND, 2 * SECOND, orders(&agent, vec![]));
    agent.ordered(2 * SECOND, 2 * SECOND, late);
    assert!(agent.orders.is_empty() && agent.jobs.is_empty());
}

#[test]
fn orders_without_the_lease_are_not_started_and_none_is_cancelled() {
    let moving = || snapshot(vec![volume("slow", Some("fast"))]);
    let mut agent = registered(vec![volume("slow", None)]);
    let other = ControllerId {
        store: 2,
        epoch: 1,
        start: 2,
    };
    agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
    let own = (ControllerId::default(), Nanos(3 * SECOND));
    assert_eq!(agent.claim(SECOND), Some(own));
    agent.claimed(Ok::<_, String>(lease(other)));
    assert_eq!((agent.holder(), agent.objectives().1), (None, 0));
    agent.beat(SECOND + 1, snapshot(vec![volume("slow", None)]));
    assert_eq!((agent.poll_action(), agent.jobs.len()), (None, 0));
    // The move of the other controller is running and must not be cancelled.
    agent.cancels.insert(3, order());
    agent.beat(SECOND + 2, moving());
    assert_eq!(agent.poll_action(), None);
    agent.cancels.clear();
    agent.jobs.clear();
    agent.beat(2 * SECOND, snapshot(vec![volume("slow", None)]));
    assert_eq!(report(&mut agent).lease, Some(lease(other)));
    // The other controller and its lease have ended.
    agent.claimed(Ok::<_, String>(lease(ControllerId::default())));
    agent.beat(2 * SECOND + 1, snapshot(vec![volume("slow", None)]));
    assert_eq!(agent.poll_action(), Some(AgentAction::StartMove(order())));
    // Expired orders claim nothing.
    assert_eq!(agent.claim(4 * SECOND), None);
}

#[test]
fn permanent_refusal_of_a_move_is_reported_as_permanent() {
    for (error, permanent) in [
        (ActionError::permanent("only whole disks are moved"), true),
        (ActionError::from("no room"), false),
    ] {
        let mut agent = registered(vec![volume("slow", None)]);
        agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
        agent.beat(SECOND + 1, snapshot(vec![volume("slow", None)]));
        let action = agent.poll_action().unwrap();
        agent.done(&action, Err(error));
        agent.beat(2 * SECOND, snapshot(vec![volume("slow", None)]));
        assert_eq!(report(&mut agent).jobs[0].permanent, permanent);
    }
}

#[test]
fn move_running_before_a_restart_is_adopted_and_not_repeated() {
    for (found, done) in [
        (volume("slow", Some("fast")), false),
        (volume("fast", None), true),
    ] {
        let mut agent = registered(vec![found.clone()]);
        agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
        agent.beat(2 * SECOND, snapshot(vec![found]));
        assert_eq!(agent.poll_action(), None);
        let state = report(&mut agent).jobs[0].state.clone();
        assert_eq!(matches!(state, JobProgress::Done { .. }), done, "{state:?}");
    }
}

#[test]
fn orders_expire_and_older_ones_are_ignored() {
    let mut agent = registered(vec![volume("slow", None)]);
    agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
    // Counted from the time at which the report was sent.
    agent.beat(4 * SECOND, snapshot(vec![volume("slow", None)]));
    assert_eq!(agent.poll_action(), None);
    let mut agent = registered(vec![volume("slow", None)]);
    let late = orders(&agent, vec![order()]);
    agent.beat(2 * SECOND, snapshot(vec![volume("slow", None)]));
    agent.ordered(2 * SECOND, 2 * SECOND, orders(&agent, vec![]));
    agent.ordered(2 * SECOND, 2 * SECOND, late);
    agent.beat(2 * SECOND + 1, snapshot(vec![volume("slow", None)]));
    assert_eq!(agent.poll_action(), None, "a newer reply was processed");
}

#[test]
fn cancellation_is_repeated_until_the_move_has_ended() {
    let mut agent = registered(vec![volume("slow", Some("fast"))]);
    let mut cancel = orders(&agent, vec![]);
    cancel.cancels = vec![order()];
    agent.ordered(SECOND, SECOND, cancel);
    agent.beat(SECOND + 1, snapshot(vec![volume("slow", Some("fast"))]));
    let volume_name = "data".to_string();
    assert_eq!(
        agent.poll_action(),
        Some(AgentAction::CancelMove {
            volume: volume_name
        })
    );
    agent.beat(2 * SECOND, snapshot(vec![volume("slow", None)]));
    let report = report(&mut agent);
    assert!(
        matches!(&report.jobs[0].state, JobProgress::Failed { .. }),
        "{report:?}"
    );
}

#[test]
fn move_refused_by_the_array_fails_with_its_reason() {
    let mut agent = registered(vec![volume("slow", None)]);
    agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
    agent.beat(SECOND + 1, snapshot(vec![volume("slow", None)]));
    let action = agent.poll_action().expect("it begins");
    agent.done(&action, Err("no room".into()));
    agent.beat(2 * SECOND, snapshot(vec![volume("slow", None)]));
    let state = report(&mut agent).jobs[0].state.clone();
    assert!(
        matches!(&state, JobProgress::Failed { why, .. } if why == "no room"),
        "{state:?}"
    );
}

#[test]
fn move_failed_by_a_device_reports_the_io_operation() {
    let io = IoFailure {
        device: "fast-0".into(),
        op: "write".into(),
        errno: "EIO".into(),
    };
    let mut agent = registered(vec![volume("slow", None)]);
    agent.ordered(SECOND, SECOND, orders(&agent, vec![order()]));
    agent.beat(SECOND + 1, snapshot(vec![volume("slow", None)]));
    let stopped = VolumeSnapshot {
        last_move: Some(MoveEnd::Stopped {
            why: "the target failed a write".into(),
            copied_bytes: 5,
            failed_io: Some(io.clone()),
        }),
        ..volume("slow", None)
    };
    agent.beat(2 * SECOND, snapshot(vec![stopped]));
    let job = report(&mut agent).jobs[0].clone();
    let why = "the target failed a write".to_string();
    let copied_bytes = 5;
    assert_eq!(job.state, JobProgress::Failed { why, copied_bytes });
    assert_eq!(job.failed_io, Some(io));
}

#[test]
fn limits_follow_the_orders_without_repetition() {
    let throttle = |iops: u64, seconds: u64| Throttle {
        iops: Some(iops),
        bandwidth_bytes_per_s: None,
        lasting_ns: seconds * SECOND,
    };
    let limited = |to: Option<Throttle>| {
        snapshot(vec![VolumeSnapshot {
            throttle: to,
            ..volume("slow", None)
        }])
    };
    // From an earlier agent; no orders have arrived yet.
    let mut agent = registered(vec![volume("slow", None)]);
    agent.beat(SECOND + 1, limited(Some(throttle(70, 60))));
    assert_eq!(agent.poll_action(), None);
    let ordered = |agent: &Agent, to: Option<Throttle>| Orders {
        throttles: to
            .map(|throttle| ThrottleOrder {
                volume: "data".into(),
                throttle,
            })
            .into_iter()
            .collect(),
        ..orders(agent, vec![])
    };
    let answer = ordered(&agent, Some(throttle(50, 60)));
    agent.ordered(SECOND + 2, SECOND + 2, answer);
    agent.beat(SECOND + 3, limited(Some(throttle(70, 60))));
    let action = agent.poll_action().expect("another limit is ordered");
    let AgentAction::Throttle { volume: of, to } = &action else {
        panic!("{action:?}")
    };
    assert_eq!((&**of, to.unwrap().iops), ("data", Some(50)));
    // Refused: it is retried later.
    agent.done(&action, Err("not now".into()));
    agent.beat(SECOND + 4, limited(None));
    assert_eq!(agent.poll_action(), None);
    agent.beat(2 * SECOND, limited(None));
    let window = report(&mut agent);
    assert!(window.problem[0].contains("data is not as ordered: not now"));
    agent.ordered(
        11 * SECOND,
        11 * SECOND,
        ordered(&agent, Some(throttle(50, 51))),
    );
    agent.beat(12 * SECOND, limited(None));
    assert!(matches!(
        agent.poll_action(),
        Some(AgentAction::Throttle { to: Some(_), .. })
    ));
    agent.beat(12 * SECOND + 1, limited(Some(throttle(50, 50))));
    assert_eq!(agent.poll_action(), None);
    agent.beat(13 * SECOND, limited(Some(throttle(50, 49))));
    assert_eq!(
        report(&mut agent).volumes[0].throttle,
        Some(throttle(50, 49))
    );
    // Without a controller it lasts until its end; then no action is needed.
    agent.beat(40 * SECOND, limited(Some(throttle(50, 22))));
    assert_eq!(agent.poll_action(), None);
    assert!(agent.due_in_ns(61 * SECOND) <= SECOND);
    agent.beat(70 * SECOND, limited(None));
    assert_eq!(agent.poll_action(), None);
    // A throttle that is no longer ordered is removed.
    let _ = report(&mut agent);
    agent.ordered(70 * SECOND, 70 * SECOND, ordered(&agent, None));
    agent.beat(70 * SECOND + 1, limited(Some(throttle(50, 600))));
    assert_eq!(
        agent.poll_action(),
        Some(AgentAction::Throttle {
            volume: "data".into(),
            to: None
        })
    );
}
