//! Tests of lent memory and flash: nodes start within the limits and end without an order.

use super::*;
use crate::wire::{LendWindow, NodeOrder, NodeState, NodeStore, NodeWindow};

fn order(id: u64, bytes: u64) -> NodeOrder {
    let store = NodeStore::Memory;
    NodeOrder { id, bytes, store }
}

fn node(id: u64, bytes: u64, state: NodeState) -> NodeWindow {
    NodeWindow {
        id,
        bytes,
        store: NodeStore::Memory,
        state,
    }
}

fn ready() -> NodeState {
    NodeState::Ready {
        at: "nbd+unix:///?socket=n.sock".into(),
    }
}

fn failed() -> NodeState {
    NodeState::Failed { why: "gone".into() }
}

/// Returns the actions for these orders and existing nodes, with a hundred bytes of memory and of flash to lend.
fn look(
    agent: &mut Agent,
    at: u64,
    wanted: &[NodeOrder],
    nodes: Vec<NodeWindow>,
) -> Vec<LendAction> {
    let at = (at + 1) * SECOND;
    let mut orders = orders(agent, vec![]);
    orders.remedies.nodes = wanted.to_vec();
    agent.ordered(at, at, orders);
    let actions = lend(agent, at, nodes);
    agent.beat(at, snapshot(vec![volume("slow", None)]));
    actions
}

fn lend(agent: &mut Agent, at_ns: u64, nodes: Vec<NodeWindow>) -> Vec<LendAction> {
    let there = LendWindow {
        memory_bytes: 100,
        flash_bytes: 100,
        nodes,
    };
    agent.lend(at_ns, there)
}

#[test]
fn lending_process_is_started_once_reported_and_ended() {
    let mut agent = registered(vec![volume("slow", None)]);
    let wanted = [order(5, 60)];
    let actions = look(&mut agent, 1, &wanted, vec![]);
    assert_eq!(actions, [LendAction::Start(wanted[0])]);
    assert!(agent.is_busy(), "it is looked at soon");
    let there = vec![node(5, 60, NodeState::Starting)];
    assert_eq!(look(&mut agent, 2, &wanted, there.clone()), []);
    let lends = report(&mut agent).lends.expect("it lends");
    assert_eq!((lends.memory_bytes, lends.nodes), (100, there));
    assert!(agent.is_busy());
    assert_eq!(look(&mut agent, 3, &wanted, vec![node(5, 60, ready())]), []);
    assert!(!agent.is_busy());
    let actions = look(&mut agent, 4, &[], vec![node(5, 60, ready())]);
    assert_eq!(actions, [LendAction::End { id: 5 }]);
    let ending = vec![node(5, 60, NodeState::Ending)];
    assert_eq!(look(&mut agent, 5, &[], ending), []);
    // A failed node is reported and not restarted while it is ordered.
    assert_eq!(
        look(&mut agent, 6, &wanted, vec![node(5, 60, failed())]),
        []
    );
    let actions = look(&mut agent, 7, &[], vec![node(5, 60, failed())]);
    assert_eq!(actions, [LendAction::End { id: 5 }]);
}

#[test]
fn cache_node_without_available_memory_waits() {
    let mut agent = registered(vec![volume("slow", None)]);
    let wanted = [order(5, 60), order(6, 50), order(7, 40)];
    let start = |n: usize| LendAction::Start(wanted[n]);
    assert_eq!(look(&mut agent, 1, &wanted, vec![]), [start(0), start(2)]);
    // An ending node still uses its memory; a failed one does not.
    let there = vec![node(5, 60, NodeState::Ending), node(7, 40, failed())];
    assert_eq!(look(&mut agent, 2, &wanted[1..], there), []);
    let there = vec![node(7, 40, failed())];
    assert_eq!(look(&mut agent, 3, &wanted[1..], there), [start(1)]);
    // Sums do not overflow.
    let all = [order(8, u64::MAX), order(9, u64::MAX)];
    assert_eq!(look(&mut agent, 4, &all, vec![]), []);
    // An order with another size is a different node, even with the same number.
    let there = vec![node(5, 50, ready())];
    let actions = look(&mut agent, 5, &wanted[..1], there);
    assert_eq!(actions, [LendAction::End { id: 5 }]);
}

#[test]
fn cache_nodes_are_limited_per_store() {
    let mut agent = registered(vec![volume("slow", None)]);
    let on_flash = |order: NodeOrder| NodeOrder {
        store: NodeStore::Flash,
        ..order
    };
    let wanted = [order(5, 60), on_flash(order(6, 60)), on_flash(order(7, 60))];
    let start = |n: usize| LendAction::Start(wanted[n]);
    assert_eq!(look(&mut agent, 1, &wanted, vec![]), [start(0), start(1)]);
    // An order with another store is a different node, even with the same number.
    let there = vec![node(6, 60, ready())];
    let actions = look(&mut agent, 2, &wanted[1..2], there);
    assert_eq!(actions, [LendAction::End { id: 6 }]);
}

#[test]
fn lending_ends_with_its_lease_without_a_controller() {
    let mut agent = registered(vec![volume("slow", None)]);
    let wanted = [order(5, 60)];
    look(&mut agent, 1, &wanted, vec![]);
    // Ordered at 2 s, with a lease of 3 s.
    let there = || vec![node(5, 60, ready())];
    assert_eq!(lend(&mut agent, 5 * SECOND - 1, there()), []);
    let ended = [LendAction::End { id: 5 }];
    assert_eq!(lend(&mut agent, 5 * SECOND, there()), ended);
    // Immediately, if the controller does not know the agent.
    let mut agent = registered(vec![volume("slow", None)]);
    look(&mut agent, 1, &wanted, vec![]);
    agent.refused(&WireRefusal::Register);
    assert_eq!(lend(&mut agent, 2 * SECOND, there()), ended);
    // Without orders there are no nodes.
    let mut agent = Agent::new(7, "test");
    assert_eq!(lend(&mut agent, 0, vec![]), []);
}
