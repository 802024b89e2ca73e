//! Parts of a cache that are ordered: lent, renewed, refused.

use super::*;

/// A volume with a cache, and what is lent to it of that.
fn cached(lent: Option<(u64, u64)>) -> VolumeSnapshot {
    VolumeSnapshot {
        cache: Some(CacheSnapshot {
            pool: 0,
            pool_bytes: 1000,
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
    orders.answers.cache_shares = share.into_iter().collect();
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
fn a_part_of_the_cache_is_lent_for_as_long_as_it_is_said_and_taken_back_when_it_is_not() {
    let mut agent = registered(vec![cached(Some((50, SECOND)))]);
    // From another life, perhaps: nothing is known yet.
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
    // It is renewed when half of it is over.
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
    // Without a controller nothing is ordered, and nothing ended: it ends by itself.
    reported(&mut agent, 9 * SECOND, Some((100, 1)));
    assert_eq!(agent.poll_action(), None);
    with_share(&mut agent, 9 * SECOND, None);
    reported(&mut agent, 9 * SECOND, Some((100, SECOND)));
    assert_eq!(lent(&mut agent).map(|l| l.0), Some(None));
}

#[test]
fn a_part_that_is_refused_is_tried_again_after_a_while_and_said_once() {
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
            let told = report.trouble.iter().filter(|t| t.contains("do not fit"));
            assert_eq!(told.count(), usize::from(tried == 1 && second == 2));
        }
    }
    assert_eq!(tried, 3, "at once, after ten seconds, and after twenty");
}
