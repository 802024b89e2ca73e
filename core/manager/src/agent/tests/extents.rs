//! Tests of moves of extents, and of heat in windows.

use super::*;

fn of_extents(ranges: &str) -> MoveOrder {
    MoveOrder {
        extents: Some(ranges.parse().unwrap()),
        ..order()
    }
}

/// Volume of ten extents on two devices; `0` is the fast one.
fn split(places: &str, moving: Option<&str>, last_move: Option<MoveEnd>) -> VolumeSnapshot {
    VolumeSnapshot {
        moving: moving.map(|extents| MovingWindow {
            device: "fast".into(),
            extents: Some(extents.parse().unwrap()),
            copied_bytes: 10,
            left_bytes: 90,
            rate_bytes_per_s: 1,
        }),
        last_move,
        extents: Some(ExtentsSnapshot {
            extent_bytes: 10,
            places: places.to_string().try_into().unwrap(),
            heat: None,
        }),
        ..volume("slow", None)
    }
}

fn started(agent: &mut Agent) -> Option<String> {
    match agent.poll_action()? {
        AgentAction::StartMove(order) => Some(order.extents.expect("extents").to_string()),
        other => panic!("{other:?}"),
    }
}

fn progress(agent: &Agent) -> JobProgress {
    agent.jobs[&3].window(3).state
}

#[test]
fn extent_job_is_done_when_all_its_extents_are_on_the_target() {
    let quiet = || split("10x1", None, None);
    let mut agent = registered(vec![quiet()]);
    let answer = orders(&agent, vec![of_extents("2-4,8")]);
    agent.ordered(SECOND, SECOND, answer);
    let asked = agent.wanted_extents(SECOND, &snapshot(vec![quiet()]));
    assert_eq!(asked.len(), 1, "where they are has to be known first");
    let unknown = VolumeSnapshot {
        extents: None,
        ..quiet()
    };
    agent.beat(SECOND, snapshot(vec![unknown]));
    assert_eq!(agent.poll_action(), None);
    agent.beat(SECOND, snapshot(vec![split("3x1,1x0,1x1,5x1", None, None)]));
    assert_eq!(
        started(&mut agent).unwrap(),
        "2,4,8",
        "what is there need not move"
    );
    let moving = snapshot(vec![split("10x1", Some("2,4,8"), None)]);
    assert_eq!(
        agent.wanted_extents(SECOND, &moving),
        [],
        "extents are not read during a move"
    );
    agent.beat(SECOND, moving);
    assert!(matches!(
        progress(&agent),
        JobProgress::Copying { left_bytes: 90, .. }
    ));
    let end = Some(MoveEnd::Done { copied_bytes: 30 });
    agent.beat(
        SECOND,
        snapshot(vec![split("2x1,3x0,3x1,1x0,1x1", None, end)]),
    );
    assert_eq!(progress(&agent), JobProgress::Done { copied_bytes: 30 });
    assert_eq!(agent.poll_action(), None);
}

#[test]
fn move_of_other_extents_is_not_adopted_by_the_job() {
    for (moving, own) in [("2-4", true), ("3", true), ("2-5", false), ("9", false)] {
        let other = || split("10x1", Some(moving), None);
        let mut agent = registered(vec![other()]);
        let answer = orders(&agent, vec![of_extents("2-4,8")]);
        agent.ordered(SECOND, SECOND, answer);
        agent.beat(SECOND, snapshot(vec![other()]));
        let adopted = matches!(progress(&agent), JobProgress::Copying { .. });
        assert_eq!(adopted, own, "{moving}: {:?}", progress(&agent));
        assert_eq!(agent.poll_action(), None);
    }
    // A move of some extents is not a move of the whole volume, nor the reverse.
    let mut agent = registered(vec![split("10x1", Some("1"), None)]);
    let answer = orders(&agent, vec![order()]);
    agent.ordered(SECOND, SECOND, answer);
    agent.beat(SECOND, snapshot(vec![split("10x1", Some("1"), None)]));
    assert!(matches!(progress(&agent), JobProgress::Failed { .. }));
}

#[test]
fn move_with_too_many_ranges_is_split_into_consecutive_parts() {
    let every_other = |n: u32| ExtentRanges::from_sorted((0..n).map(|e| 2 * e));
    let all = every_other(RANGES_PER_MOVE as u32 + 5);
    let volume = |fast: u32, moving: Option<&str>, done: bool| VolumeSnapshot {
        extents: Some(ExtentsSnapshot {
            extent_bytes: 10,
            places: ExtentPlaces::of(
                (0..5000).map(|e| Some(DeviceId(u16::from(e % 2 == 1 || e / 2 >= fast)))),
            ),
            heat: None,
        }),
        ..split(
            "1x1",
            moving,
            done.then_some(MoveEnd::Done { copied_bytes: 10 }),
        )
    };
    let mut agent = registered(vec![volume(0, None, false)]);
    let order = MoveOrder {
        extents: Some(all.clone()),
        ..order()
    };
    let answer = orders(&agent, vec![order.clone()]);
    agent.ordered(SECOND, SECOND, answer);
    agent.beat(SECOND, snapshot(vec![volume(0, None, false)]));
    let first = every_other(RANGES_PER_MOVE as u32).to_string();
    assert_eq!(started(&mut agent).unwrap(), first);
    agent.beat(SECOND, snapshot(vec![volume(7, Some(&first), false)]));
    assert_eq!(agent.poll_action(), None);
    let second: Vec<u32> = (0..5).map(|e| 2 * (RANGES_PER_MOVE as u32 + e)).collect();
    let second = ExtentRanges::from_sorted(second).to_string();
    let between = || snapshot(vec![volume(RANGES_PER_MOVE as u32, None, true)]);

    // Without a lease the next part does not start; with a lease it does, and the job ends.
    agent.beat(60 * SECOND, between());
    assert_eq!(agent.poll_action(), None);
    agent.lease_until_ns = 100 * SECOND;
    agent.beat(60 * SECOND, between());
    assert_eq!(started(&mut agent).unwrap(), second);
    agent.beat(
        60 * SECOND,
        snapshot(vec![volume(2050, Some(&second), false)]),
    );
    assert!(matches!(
        progress(&agent),
        JobProgress::Copying {
            copied_bytes: 20,
            ..
        }
    ));
    agent.beat(60 * SECOND, snapshot(vec![volume(5000, None, true)]));
    assert_eq!(progress(&agent), JobProgress::Done { copied_bytes: 20 });

    // Between two parts the array has no move to cancel.
    let mut agent = registered(vec![volume(0, None, false)]);
    let answer = orders(&agent, vec![order.clone()]);
    agent.ordered(SECOND, SECOND, answer);
    agent.beat(SECOND, snapshot(vec![volume(0, None, false)]));
    assert_eq!(started(&mut agent).unwrap(), first);
    let mut answer = orders(&agent, vec![]);
    answer.cancels = vec![order];
    agent.seq += 1;
    answer.seq = agent.seq;
    agent.ordered(SECOND, SECOND, answer);
    agent.beat(SECOND, between());
    assert_eq!(agent.poll_action(), None);
    let ended = JobProgress::Failed {
        why: "cancelled".into(),
        copied_bytes: 10,
    };
    assert_eq!(progress(&agent), ended);
}

#[test]
fn extents_are_reported_if_the_orders_request_them() {
    let counted = |turn, touched| looked_at("4x1,6x0", turn, touched, volume("slow", None));
    let mut agent = registered(vec![volume("slow", None)]);
    let plain = snapshot(vec![volume("slow", None)]);
    assert_eq!(agent.wanted_extents(2 * SECOND, &plain), []);
    let answer = Orders {
        detail: Detail::Extents,
        ..orders(&agent, vec![])
    };
    agent.ordered(SECOND, SECOND, answer);
    assert_eq!(
        agent.wanted_extents(SECOND + 1, &plain),
        [],
        "in the middle of a window"
    );
    let wanted = agent.wanted_extents(2 * SECOND, &plain);
    assert_eq!((wanted.len(), wanted[0].since), (1, None));
    agent.beat(2 * SECOND, snapshot(vec![counted(1, &[(2, [50, 0])])]));
    let extents = report(&mut agent).volumes.remove(0).extents.unwrap();
    assert_eq!(
        (String::from(extents.places), extents.heat),
        ("4x1,6x0".into(), None)
    );
    let wanted = agent.wanted_extents(3 * SECOND, &plain);
    assert_eq!(
        wanted[0].since,
        Some(HeatCursor {
            since_ns: 9,
            turn: 1
        })
    );
    agent.beat(
        3 * SECOND,
        snapshot(vec![counted(2, &[(2, [52, 1]), (7, [0, 1])])]),
    );
    let extents = report(&mut agent).volumes.remove(0).extents.unwrap();
    assert_eq!(extents.heat, Some(ExtentHeat::of(vec![(2, 3), (7, 1)])));
    // Counters that were not read are unknown, and count for the next window.
    agent.beat(4 * SECOND, plain.clone());
    assert_eq!(report(&mut agent).volumes[0].extents, None);
}
