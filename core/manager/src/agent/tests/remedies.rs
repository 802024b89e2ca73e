//! Tests of ordered cache shares and mirrors: start, renewal and refusal.

use super::*;

/// Volume with a cache, and its share by a remedy.
fn cached(lent: Option<(u64, u64)>) -> VolumeSnapshot {
    VolumeSnapshot {
        cache: Some(CacheSnapshot {
            pool: 0,
            pool_bytes: 1000,
            page_bytes: 10,
            in_parts: true,
            given_bytes: Some(10),
            lent,
        }),
        ..volume("slow", None)
    }
}

fn with_share(agent: &mut Agent, now_ns: u64, bytes: Option<u64>) {
    let share = bytes.map(|bytes| crate::wire::CacheShareOrder {
        volume: "data".into(),
        bytes,
    });
    let mut orders = orders(agent, vec![]);
    orders.remedies.cache_shares = share.into_iter().collect();
    agent.ordered(now_ns, now_ns, orders);
}

fn lent(agent: &mut Agent) -> Option<(Option<u64>, u64)> {
    match agent.poll_action()? {
        AgentAction::LendCache {
            bytes, lasting_ns, ..
        } => Some((bytes, lasting_ns)),
        other => panic!("{other:?}"),
    }
}

fn window(agent: &mut Agent, now_ns: u64, volume: VolumeSnapshot) {
    agent.beat(now_ns, snapshot(vec![volume]));
    let _ = agent.poll_message();
}

#[test]
fn cache_share_is_granted_for_its_term_and_revoked() {
    let mut agent = registered(vec![cached(Some((50, SECOND)))]);
    // From an earlier agent; no orders have arrived yet.
    assert_eq!(agent.poll_action(), None);
    with_share(&mut agent, SECOND, Some(100));
    let reported = |agent: &mut Agent, at, lent| window(agent, at, cached(lent));
    reported(&mut agent, SECOND, Some((50, SECOND)));
    assert_eq!(lent(&mut agent), Some((Some(100), 3 * SECOND)));
    let done = AgentAction::LendCache {
        volume: "data".into(),
        bytes: Some(100),
        lasting_ns: 3 * SECOND,
    };
    agent.done(&done, Ok(()));
    // It is renewed after half of its time.
    reported(&mut agent, 2 * SECOND, Some((100, 2 * SECOND)));
    assert_eq!(agent.poll_action(), None);
    with_share(&mut agent, 2 * SECOND, Some(100));
    reported(&mut agent, 3 * SECOND, Some((100, SECOND)));
    assert!(
        agent.poll_action().is_none(),
        "as much is left of the lease"
    );
    with_share(&mut agent, 3 * SECOND, Some(100));
    reported(&mut agent, 3 * SECOND, Some((100, SECOND)));
    assert_eq!(lent(&mut agent), Some((Some(100), 3 * SECOND)));
    agent.done(&done, Ok(()));
    // Without a controller the agent neither starts nor ends it: it expires.
    reported(&mut agent, 9 * SECOND, Some((100, 1)));
    assert_eq!(agent.poll_action(), None);
    with_share(&mut agent, 9 * SECOND, None);
    reported(&mut agent, 9 * SECOND, Some((100, SECOND)));
    assert_eq!(lent(&mut agent).map(|l| l.0), Some(None));
}

#[test]
fn refused_cache_share_is_retried_later_and_reported_once() {
    let mut agent = registered(vec![cached(None)]);
    let mut tried = 0;
    for second in 1..60 {
        with_share(&mut agent, second * SECOND, Some(100));
        agent.beat(second * SECOND, snapshot(vec![cached(None)]));
        while let Some(action) = agent.poll_action() {
            tried += 1;
            agent.done(&action, Err("parts do not fit".into()));
        }
        if let Some(Message::Report(report)) = agent.poll_message() {
            let told = report.problem.iter().filter(|t| t.contains("do not fit"));
            assert_eq!(told.count(), usize::from(tried == 1 && second == 2));
        }
    }
    assert_eq!(tried, 3, "at once, after ten seconds, and after twenty");
}

fn with_mirror(agent: &mut Agent, now_ns: u64, device: Option<&str>) {
    let order = device.map(|device| crate::wire::MirrorOrder {
        volume: "data".into(),
        device: device.into(),
        extents: "0-3".parse().unwrap(),
        rate_bytes_per_s: 9,
    });
    let mut orders = orders(agent, vec![]);
    orders.remedies.mirrors = order.into_iter().collect();
    agent.ordered(now_ns, now_ns, orders);
}

/// Volume with a mirror on a device, and its time left.
fn mirrored(copies: Option<(&str, Option<u64>)>) -> VolumeSnapshot {
    VolumeSnapshot {
        can_mirror: true,
        mirror: copies.map(|(device, left_ns)| MirrorSnapshot {
            device: device.into(),
            extents: Some("0-3".parse().unwrap()),
            bytes: 40,
            read_share: 0.25,
            left_ns,
        }),
        ..volume("slow", None)
    }
}

#[test]
fn ordered_mirrors_are_renewed_and_manual_ones_are_unchanged() {
    let mut agent = registered(vec![mirrored(None)]);
    let mut at = SECOND;
    let mut next = |agent: &mut Agent, device, copies| {
        at += SECOND;
        with_mirror(agent, at, device);
        window(agent, at, mirrored(copies));
        let action = agent.poll_action();
        if let Some(action) = &action {
            agent.done(action, Ok(()));
        }
        assert_eq!(agent.poll_action(), None);
        action
    };
    let made = AgentAction::Mirror {
        volume: "data".into(),
        device: "fast".into(),
        tier: "fast".into(),
        extents: "0-3".parse().unwrap(),
        rate_bytes_per_s: 9,
        lasting_ns: 3 * SECOND,
    };
    let stop = AgentAction::StopMirror {
        volume: "data".into(),
    };
    assert_eq!(next(&mut agent, None, None), None);
    assert_eq!(next(&mut agent, Some("fast"), None), Some(made.clone()));
    let left = |device, left_ns| Some((device, Some(left_ns)));
    assert_eq!(
        next(&mut agent, Some("fast"), left("fast", 3 * SECOND)),
        None
    );
    let renewed = next(&mut agent, Some("fast"), left("fast", 2 * SECOND));
    assert_eq!(renewed, Some(made));
    // A mirror that differs from the order is removed first.
    let other = next(&mut agent, Some("fast"), left("mid", 2 * SECOND));
    assert_eq!(other, Some(stop.clone()));
    assert_eq!(next(&mut agent, None, left("fast", 2 * SECOND)), Some(stop));
    // A mirror of an operator.
    assert_eq!(next(&mut agent, None, Some(("fast", None))), None);
    assert_eq!(next(&mut agent, Some("mid"), Some(("fast", None))), None);
    let report = agent.poll_message();
    assert_eq!(report, None);
}

#[test]
fn mirrors_without_effect_are_restarted_after_a_delay() {
    let mut agent = registered(vec![mirrored(None)]);
    let mut begun = vec![];
    for second in 1..60 {
        with_mirror(&mut agent, second * SECOND, Some("fast"));
        agent.beat(second * SECOND, snapshot(vec![mirrored(None)]));
        while let Some(action) = agent.poll_action() {
            begun.push(second);
            agent.done(&action, Ok(()));
        }
        let _ = agent.poll_message();
    }
    let apart = "at once, after ten seconds, and after twenty";
    assert_eq!(begun, [1, 11, 31], "{apart}");
}

#[test]
fn extent_access_is_reported_if_the_orders_request_it() {
    let counted = |turn, touched| looked_at("10x0", turn, touched, mirrored(None));
    let mut agent = registered(vec![mirrored(None)]);
    let ask = |agent: &mut Agent, at: u64, asked: &[&str]| {
        let mut orders = orders(agent, vec![]);
        orders.remedies.access = asked.iter().map(|name| name.to_string()).collect();
        agent.ordered(at, at, orders);
    };
    let told = |agent: &mut Agent, at: u64, v: VolumeSnapshot| {
        agent.beat(at, snapshot(vec![v]));
        match agent.poll_message() {
            Some(Message::Report(mut report)) => {
                let v = report.volumes.remove(0);
                assert_eq!(v.extents, None, "the strategy places no extents");
                v.mirror.unwrap().access
            }
            other => panic!("{other:?}"),
        }
    };
    ask(&mut agent, SECOND, &["data"]);
    let plain = snapshot(vec![mirrored(None)]);
    assert_eq!(agent.wanted_extents(2 * SECOND, &plain).len(), 1);
    // Counters that began within the window do not cover it.
    assert_eq!(
        told(&mut agent, 2 * SECOND, counted(1, &[(2, [5, 5])])),
        None
    );
    ask(&mut agent, 2 * SECOND, &["data"]);
    let access = told(
        &mut agent,
        3 * SECOND,
        counted(2, &[(2, [7, 5]), (4, [0, 1])]),
    )
    .unwrap();
    let heat = |of: &[(u32, u32)]| model::ExtentHeat::of(of.to_vec());
    assert_eq!(
        (access.reads, access.writes),
        (heat(&[(2, 2)]), heat(&[(4, 1)]))
    );
    ask(&mut agent, 3 * SECOND, &[]);
    assert_eq!(agent.wanted_extents(4 * SECOND, &plain), []);
    assert_eq!(
        told(&mut agent, 4 * SECOND, counted(3, &[(2, [9, 9])])),
        None
    );
}
