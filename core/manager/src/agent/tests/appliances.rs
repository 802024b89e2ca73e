//! Tests of appliances on nodes: start, end and failure.

use slo::ApplianceEvent;
use slo::warm::Warm;

use super::*;
use crate::wire::ApplianceOrder;

fn appliance(id: u64) -> ApplianceOrder {
    ApplianceOrder {
        id,
        volume: "data".into(),
        server: "other".into(),
        cpus: 4,
        memory_bytes: 1000,
        cache_bytes: 1000,
        way: String::new(),
        warm: Warm::Cold { why: String::new() },
        at: Some("nbd+unix:///?socket=n.sock".into()),
    }
}

fn second(answer: Option<u64>, ready: bool, ended: Option<&str>) -> Option<SecondSnapshot> {
    Some(SecondSnapshot {
        answer,
        ready,
        ended: ended.map(Into::into),
    })
}

/// Orders these appliances, and lets a window pass with this L2 cache of the array. Returns the action and the reported states.
fn look(
    agent: &mut Agent,
    at: u64,
    wanted: &[u64],
    second: Option<SecondSnapshot>,
) -> (Option<AgentAction>, Vec<(u64, Option<ApplianceEvent>)>) {
    // One window has been reported before.
    let at = at + 1;
    let mut orders = orders(agent, vec![]);
    orders.remedies.appliances = wanted.iter().map(|id| appliance(*id)).collect();
    agent.ordered(at * SECOND, at * SECOND, orders);
    let there = Snapshot {
        second,
        ..snapshot(vec![volume("slow", None)])
    };
    agent.beat(at * SECOND, there);
    let action = agent.poll_action();
    let report = report(agent);
    let windows = report.appliances.into_iter();
    (action, windows.map(|a| (a.id, a.event)).collect())
}

fn failed(id: u64, why: &str) -> Vec<(u64, Option<ApplianceEvent>)> {
    let event = ApplianceEvent::Failed { why: why.into() };
    vec![(id, Some(event))]
}

fn used(action: Option<AgentAction>) -> u64 {
    match action {
        Some(AgentAction::UseNode { id, .. }) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn cache_node_is_attached_serves_and_is_detached() {
    let mut agent = registered(vec![volume("slow", None)]);
    let (action, told) = look(&mut agent, 1, &[5], None);
    assert_eq!((used(action.clone()), told), (5, vec![(5, None)]));
    agent.done(&action.unwrap(), Ok(()));
    // It is started only once.
    assert_eq!(look(&mut agent, 2, &[5], None).0, None);
    let connecting = second(Some(5), false, None);
    assert_eq!(
        look(&mut agent, 3, &[5], connecting),
        (None, vec![(5, None)])
    );
    let serving = vec![(5, Some(ApplianceEvent::Serving))];
    let there = second(Some(5), true, None);
    assert_eq!(
        look(&mut agent, 4, &[5], there.clone()),
        (None, serving.clone())
    );
    let (action, told) = look(&mut agent, 5, &[], there);
    assert_eq!(
        (action, told),
        (Some(AgentAction::StopNode { id: 5 }), serving)
    );
    let removed = vec![(5, Some(ApplianceEvent::Removed))];
    assert_eq!(look(&mut agent, 6, &[], None), (None, removed));
    // The controller has confirmed the state.
    let mut heard = orders(&agent, vec![]);
    heard.remedies.appliances_taken = vec![5];
    agent.ordered(7 * SECOND, 7 * SECOND, heard);
    assert_eq!(look(&mut agent, 7, &[], None), (None, vec![]));
}

#[test]
fn refused_lost_silent_or_replaced_cache_node_has_failed() {
    let mut agent = registered(vec![volume("slow", None)]);
    let action = look(&mut agent, 1, &[5], None).0.unwrap();
    agent.done(&action, Err("no such socket".into()));
    let told = look(&mut agent, 2, &[5], None);
    assert_eq!(told, (None, failed(5, "no such socket")));
    // Another appliance, which the array ends; the agent then removes it.
    assert_eq!(used(look(&mut agent, 3, &[6], None).0), 6);
    let ended = second(Some(6), false, Some("it does not respond"));
    let (action, told) = look(&mut agent, 4, &[6], ended);
    assert_eq!(action, Some(AgentAction::StopNode { id: 6 }));
    assert_eq!(told.last().cloned(), failed(6, "it does not respond").pop());
    // An appliance that an operator's L2 cache has replaced.
    assert_eq!(used(look(&mut agent, 5, &[7], None).0), 7);
    let told = look(&mut agent, 6, &[7], second(None, true, None));
    assert_eq!(told.0, None, "an operator's L2 cache stays");
    let by_person = failed(7, "an operator has ordered another L2 cache");
    assert_eq!(told.1.last(), by_person.last());
    // An appliance whose node never responds.
    assert_eq!(used(look(&mut agent, 7, &[8], None).0), 8);
    for at in 8..27 {
        let told = look(&mut agent, at, &[8], second(Some(8), false, None));
        assert_eq!((told.0, told.1.last()), (None, Some(&(8, None))), "{at}");
    }
    let (action, told) = look(&mut agent, 28, &[8], second(Some(8), false, None));
    assert_eq!(action, Some(AgentAction::StopNode { id: 8 }));
    assert_eq!(
        told.last().cloned(),
        failed(8, "its cache node does not respond").pop()
    );
    // An appliance that served and that the array lost by a restart.
    assert_eq!(used(look(&mut agent, 29, &[9], None).0), 9);
    look(&mut agent, 30, &[9], second(Some(9), true, None));
    let told = look(&mut agent, 31, &[9], None);
    assert_eq!(
        told.1.last().cloned(),
        failed(9, "the array no longer has this L2 cache").pop()
    );
}

#[test]
fn unordered_cache_node_is_detached_even_without_a_controller() {
    let mut agent = registered(vec![volume("slow", None)]);
    let old = second(Some(3), true, None);
    // From an earlier agent, before the first orders.
    let there = Snapshot {
        second: old.clone(),
        ..snapshot(vec![volume("slow", None)])
    };
    agent.beat(SECOND, there.clone());
    assert_eq!(agent.poll_action(), None);
    let _ = agent.poll_message();
    let (action, told) = look(&mut agent, 2, &[], old);
    assert_eq!(
        (action, told),
        (Some(AgentAction::StopNode { id: 3 }), vec![])
    );
    // An appliance without new orders, after the end of the lease.
    assert_eq!(used(look(&mut agent, 3, &[4], None).0), 4);
    let serving = Snapshot {
        second: second(Some(4), true, None),
        ..there
    };
    agent.beat(6 * SECOND, serving.clone());
    assert_eq!(agent.poll_action(), None);
    agent.beat(7 * SECOND + 1, serving);
    assert_eq!(agent.poll_action(), Some(AgentAction::StopNode { id: 4 }));
}
