//! Memory and flash that this host lends to the arrays of other hosts: one process per order (`terrace cache-node`), which the
//! owner of the agent starts and ends.
//!
//! ```text
//!  ordered ─▶ start ─▶ starting ─▶ ready at URI ─▶ no longer ordered, or the lease has ended: end ─▶ ending ─▶ gone
//!                         │             │ its process has ended
//!                         └──▶ failed ◀─┘ ─▶ no longer ordered: forgotten
//! ```
//!
//! The processes end with the process that started them, so a new agent has none. Together they never use more than the host
//! lends; an order without free space waits until another process has ended.

use super::Agent;
use crate::wire::{LendWindow, NodeOrder, NodeState, NodeStore, Remedies};

/// Action on a process that lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LendAction {
    /// Start a process.
    Start(NodeOrder),
    /// End a process, and forget it if it has failed.
    End {
        /// Number of the order.
        id: u64,
    },
}

/// Ordered nodes, and the existing ones.
#[derive(Debug, Default)]
pub(super) struct LendingNodes {
    wanted: Vec<NodeOrder>,
    /// Last reported state; none if the host lends nothing.
    there: Option<LendWindow>,
}

impl LendingNodes {
    /// Updates the orders.
    pub(super) fn wanted(&mut self, remedies: &Remedies) {
        self.wanted.clone_from(&remedies.nodes);
    }

    /// Returns the entry in a report.
    pub(super) fn window(&self) -> Option<LendWindow> {
        self.there.clone()
    }

    /// Returns true if a node starts, ends or has to start.
    pub(super) fn is_busy(&self) -> bool {
        let Some(there) = &self.there else {
            return false;
        };
        let known = |id: u64| there.nodes.iter().any(|n| n.id == id);
        let moving = |s: &NodeState| matches!(s, NodeState::Starting | NodeState::Ending);
        there.nodes.iter().any(|n| moving(&n.state)) || self.wanted.iter().any(|o| !known(o.id))
    }
}

impl Agent {
    /// Processes the current state of the processes, and returns actions. To be called as often as [`Agent::beat`], also while the
    /// array does not respond.
    pub fn lend(&mut self, now_ns: u64, there: LendWindow) -> Vec<LendAction> {
        let lending = &mut self.lending;
        if self.lease_until_ns <= now_ns {
            lending.wanted.clear();
        }
        let mut actions = vec![];
        for node in &there.nodes {
            let of = |o: &NodeOrder| (o.id, o.bytes, o.store) == (node.id, node.bytes, node.store);
            if !lending.wanted.iter().any(of) && node.state != NodeState::Ending {
                actions.push(LendAction::End { id: node.id });
            }
        }
        for store in NodeStore::ALL {
            let having = there.nodes.iter();
            let having = having.filter(|n| n.store == store && n.state.has_store());
            let mut taken = having.map(|n| n.bytes).fold(0, u64::saturating_add);
            for order in lending.wanted.iter().filter(|o| o.store == store) {
                let known = there.nodes.iter().any(|n| n.id == order.id);
                let sum = taken.saturating_add(order.bytes);
                if !known && sum <= there.lends(store) {
                    taken = sum;
                    actions.push(LendAction::Start(*order));
                }
            }
        }
        lending.there = Some(there);
        actions
    }
}
